"""`visterm serve`: it says where it listens, answers, ends on Ctrl-C, and is not open to others by accident."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest
from fastapi import FastAPI

from refusals import refused
from tiny_catalogue import make_tiny_catalogue
from visterm.cli import serve as command
from visterm.core.errors import UserError
from visterm.web.server import run_server


def test_it_says_where_it_listens_and_ends_when_it_is_told_to(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    started = [sys.executable, "-m", "visterm", "serve", str(tiny.folder), "--port", "0"]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
        try:
            told = process.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", told)
            assert address, told + process.stderr.read()
            with urlopen(f"{address[0]}/api/v1/about", timeout=600) as answer:
                assert json.load(answer)["images"] == 24
            process.send_signal(signal.SIGINT)
            assert process.wait(600) in (0, 130, -signal.SIGINT)
            rest = process.stderr.read()
            assert "Traceback" not in rest
            assert rest.count("Encoder: visterms, with about two thirds of a network's quality") == 1
        finally:
            process.kill()


def test_beyond_this_machine_it_wants_a_token(tmp_path):
    with pytest.raises(UserError, match="can be reached from other machines"):
        command.serve(tmp_path, host="0.0.0.0")
    short = tmp_path / "token.txt"
    short.write_text("secret\n")
    short.chmod(0o600)
    with pytest.raises(UserError, match="has 6 characters; expected 16 or more"):
        command.serve(tmp_path, host="0.0.0.0", token_file=[str(short)])


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(mode, tmp_path):
    token = tmp_path / "token.txt"
    token.write_text("a token of many letters\n")
    token.chmod(mode)
    with refused("token_file", value=token):
        command.serve(tmp_path, host="0.0.0.0", token_file=[str(token)])
    token.chmod(0o600)
    assert command._read_token(token) == "a token of many letters"


def test_a_port_that_is_in_use_is_told_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with refused("port", value=port):
            run_server(FastAPI(), "127.0.0.1", port, print)
