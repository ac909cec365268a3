"""Folders whose names are not UTF-8, as old disks have them, hold runs, catalogues and photos as others do."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from command_line import run_command
from tiny_catalogue import make_tiny_catalogue

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names there are always Unicode")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("odd")
    make_tiny_catalogue(made, n_images=12)
    folder = made / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    shutil.copytree(next((made / "catalogue" / "runs").iterdir()), folder / os.fsdecode(b"r\xfcn"))
    shutil.copytree(made / "photos", folder / "photos")
    shutil.copy(made / "photos" / "00.jpg", folder / "photos" / os.fsdecode(b"\xff\xfe.jpg"))
    assert (
        run_command(["index", folder / os.fsdecode(b"r\xfcn"), folder / "photos", "-o", folder / "cat"]).returncode == 0
    )
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "info CAT --check", "info CAT --check --json", "info RUN --check --json", "search CAT stripes",
        "search CAT stripes --json", "tag CAT ODD --add mine", "tag CAT ODD --json", "tags CAT",
        "export CAT --to xmp -k 1", "export CAT --to xmp --undo --json", "export CAT --to csv -k 1 -o TABLE",
        "duplicates CAT", "duplicates CAT --json", "fit CAT",
    ],
)  # fmt: skip
def test_commands_read_and_write_there_and_show_the_names(line, place):
    names = {
        "CAT": place / "cat",
        "RUN": place / os.fsdecode(b"r\xfcn"),
        "ODD": place / "photos" / os.fsdecode(b"\xff\xfe.jpg"),
        "TABLE": place / "table.csv",
    }
    done = run_command([names.get(word, word) for word in line.split()])
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    done.stdout.encode()
