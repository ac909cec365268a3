"""Files that people name are opened without waiting, if they are regular files of a size that fits."""

from __future__ import annotations

import os

import pytest

from visterm.core.files import KB, open_regular, read_regular, read_regular_text


@pytest.fixture
def pipe(tmp_path):
    """A named pipe that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_regular_file_is_read_whole_and_a_link_to_it_too(tmp_path):
    (tmp_path / "a.txt").write_text("sea\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.txt")
    assert read_regular(tmp_path / "a.txt", 4) == b"sea\n"
    assert read_regular_text(tmp_path / "link", KB) == "sea\n"


def test_a_pipe_a_device_and_a_folder_are_refused_in_words_and_at_once(tmp_path, pipe):
    (tmp_path / "zero").symlink_to("/dev/zero")
    special = "a pipe, a device or a socket"
    for path, what in [(pipe, special), (tmp_path / "zero", special), (tmp_path, "a folder")]:
        with pytest.raises(OSError, match=r"\[Errno \d+\]") as refused:
            open_regular(path)
        assert refused.value.strerror == f"it is {what}, not a regular file"
        assert refused.value.filename == str(path)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_refused_in_words(name):
    with pytest.raises(FileNotFoundError, match="no file can have this name"):
        open_regular(name)


def test_a_file_that_is_too_large_is_refused_without_reading_it(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)  # sparse: takes no room
    with pytest.raises(OSError, match="larger than 1 KiB"):
        read_regular(tmp_path / "huge", KB)


def test_a_file_that_claims_no_length_is_read_up_to_the_limit():
    """Files in /proc have 0 bytes by their directory, and as many as one reads."""
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("there is no /proc here")
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular("/proc/self/maps", 10)
