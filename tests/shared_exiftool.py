"""One exiftool for all tests of a module, which import `lent_exiftool`: a start of Perl takes 0.25 s."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from visterm.data.exiftool import ExifTool, find_exiftool
from visterm.library.export import targets

ONE: list[ExifTool] = []


class Lent:
    """The exiftool of the module, in place of one that a target starts and ends."""

    def __init__(self) -> None:
        find_exiftool()

    def __getattr__(self, name: str) -> Any:
        return getattr(ONE[0], name)

    def close(self) -> None:
        """Leave it running."""


@pytest.fixture(scope="module", autouse=True)
def lent_exiftool() -> Iterator[None]:
    """Lend one exiftool to all targets, where it is installed."""
    if shutil.which("exiftool") is None:
        yield
        return
    with closing(ExifTool()) as one, pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "ExifTool", Lent)
        ONE[:] = [one]
        yield


def run_exiftool(*arguments: str | Path) -> bytes:
    """Run exiftool with some arguments, of which the last is an image, and return what it prints."""
    return ONE[0]._execute([os.fsencode(argument) for argument in arguments], Path(arguments[-1]))


def set_fields(image: Path, *arguments: str) -> Path:
    """Let exiftool change an image in place."""
    told = run_exiftool("-overwrite_original", *arguments, image)
    assert b"1 image files updated" in told or b"1 image files unchanged" in told
    return image
