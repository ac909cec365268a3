"""visterm on Windows: an hour with it and a service, where Python has only what it has there (see windows_like)."""

from __future__ import annotations

import json
import ntpath
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from urllib.request import Request, urlopen

import numpy as np
import pytest

import visterm
from visterm.core.system import is_alive, memory_bytes
from visterm.data import image_folders
from visterm.library.duplicates import keeper_by
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.filters import Filter
from visterm.store.images import NewImage

LIKE_WINDOWS = Path(__file__).parent / "windows_like"
HERE = sys.platform == "win32"
"""Whether this is Windows itself, where nothing has to be played."""


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "PYTHONPATH": str(LIKE_WINDOWS), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def hour(environment, tmp_path_factory):
    """Tell the story of `windows_like/story.py`: the folder that it wrote, and how it ended."""
    folder = tmp_path_factory.mktemp("hour")
    command = [sys.executable, "-X", "warn_default_encoding", str(LIKE_WINDOWS / "story.py"), str(folder)]
    return folder, subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")


def test_an_hour_of_fitting_indexing_searching_and_learning_goes_through(hour):
    _, done = hour
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_text_is_read_or_written_in_an_encoding_that_the_system_chooses(hour):
    _, done = hour
    ours = str(Path(visterm.__file__).parent)  # not every package of an environment that lies in a folder visterm/
    warnings = [line for line in done.stderr.splitlines() if "EncodingWarning" in line and line.startswith(ours)]
    assert not warnings


def ask(address, body=None):
    """Ask the service for JSON, or send it some."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address, data, {"content-type": "application/json"}), timeout=600) as answer:
        return json.load(answer)


def test_a_service_of_one_process_answers_a_search_and_shows_a_photo(hour, environment):
    command = [sys.executable, "-m", "visterm", "serve", str(hour[0] / "catalogue"), "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        try:
            line = process.stderr.readline()
            address = re.search(r"(http://127\.0\.0\.1:\d+) \(one process answers", line)
            assert address, line + process.stderr.read()
            api = f"{address[1]}/api/v1"
            photo = ask(f"{api}/search?q=red&limit=3")["hits"][0]["id"]
            with urlopen(f"{api}/images/{photo}/thumbnail", timeout=600) as answer:
                assert answer.read(2) == b"\xff\xd8"
            job = ask(f"{api}/jobs", {"kind": "index"})["id"]
            while (state := ask(f"{api}/jobs/{job}")["state"]) in ("waiting", "running"):
                time.sleep(0.05)
            assert state == "done"
            if HERE:
                process.terminate()
            else:
                process.send_signal(signal.SIGINT)
                assert process.wait(600) in (0, 130, -signal.SIGINT)
                assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_several_processes_that_the_system_can_not_share_connections_with_are_refused(hour, environment):
    command = [sys.executable, "-m", "visterm", "serve", str(hour[0] / "catalogue"), "--workers", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (
        2, "visterm: --workers 2: on this system one process answers. Leave the option out.\n"
    )  # fmt: skip


TRIES = """
import os, sys, tempfile
from pathlib import Path
import numpy as np
from visterm.core import system
folder = Path(tempfile.mkdtemp())
(folder / "mapped").write_bytes(bytes(8))
made = [tempfile.mkdtemp() for _ in range(2)]
kept = np.memmap(folder / "mapped", mode="r"), (folder / "open").open("w")
tries = {
    "unlink": lambda: (folder / "mapped").unlink(),
    "replace": lambda: os.replace(folder / "open", folder / "other"),
    "replace what is there": lambda: os.replace(__file__, folder / "open"),
    "rename a folder": lambda: folder.rename(f"{folder}2"),
    "rename over a folder": lambda: Path(made[0]).rename(made[1]),
    "open a folder": lambda: os.open(folder, os.O_RDONLY),
}
for what, do in tries.items():
    try:
        do()
    except PermissionError:
        print(what)
print(hasattr(system.os, "sysconf"), hasattr(system.signal, "SIGKILL"), system.limit_of("RLIMIT_NOFILE"))
"""


@pytest.mark.skipif(HERE, reason="Windows needs no proof that it is Windows")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Windows is played on Linux only")
def test_what_plays_windows_refuses_what_windows_refuses(environment, tmp_path):
    (tmp_path / "tries.py").write_text(TRIES, "utf-8")
    done = subprocess.run([sys.executable, tmp_path / "tries.py"], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "unlink", "replace", "replace what is there", "rename a folder", "rename over a folder", "open a folder",
        "False False None",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize("folder", ["C:\\photos", "C:\\photos\\a", "C:\\photos\\a\\", "a\\b", "a/b"])
def test_a_folder_has_the_photos_of_the_folders_in_it(monkeypatch, folder):
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os.path, "dirname", ntpath.dirname)
    stored = StoredCatalogue(Origin("run", "f00d"))
    places = {"a/b/1.jpg": r"C:\photos\a\b\1.jpg", "x.jpg": r"C:\photos2\a\b\1.jpg"}
    stored.add([NewImage(name, path, 1, 2, 3, "0") for name, path in places.items()], np.eye(2, dtype=np.float32))
    assert stored.find(Filter(folder=folder, folder_path=folder)).tolist() == [0]
    assert keeper_by("folder", stored.images.get_many([1, 0]), {}, folder).id == 0
    stored.close()


@pytest.mark.parametrize("name", [r"C:\photos\s\1.jpg", "c:/Photos/s/1.jpg", r"C:\photos\t\..\s\1.jpg", r"s\1.jpg"])
def test_a_table_names_photos_with_their_drive(monkeypatch, name):
    monkeypatch.setattr(image_folders, "Path", PureWindowsPath)
    monkeypatch.setattr(image_folders, "os", SimpleNamespace(path=ntpath, sep="\\"))
    photos = [PureWindowsPath(rf"C:\photos\{folder}\1.jpg") for folder in "st"]
    matches = image_folders.match_names(PureWindowsPath(r"C:\photos"), photos, [name, r"D:\photos\t\2.jpg"])
    assert [match and match.path for match in matches] == [photos[0], None]


def test_a_process_that_has_ended_is_known_to_have_ended():
    assert is_alive(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_alive(child.pid)
    assert not is_alive(child.pid)


def test_the_memory_of_this_machine_is_known():
    assert memory_bytes() >= 2**28
