"""What a catalogue knows of each image besides its row, as JSON lines that are read when they are asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from visterm.core.errors import CorruptFileError, ImageError
from visterm.core.jsonlines import json_text
from visterm.core.persist import file_hash
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Skipped
from visterm.data.images import ImageLike, image_size


@dataclass(frozen=True, slots=True)
class Record:
    """One image of a catalogue.

    Attributes
    ----------
    name : str
        As it was given: what searches show.
    path : str or None
        The file, in full; None for an image that was given as an array.
    n_bytes : int
        Size of the file, or of the array.
    width, height : int
        Pixels of the upright image.
    sha256 : str
        Hash of the file's bytes, or of the array's.
    tags : tuple of str
        Those that people gave.
    mtime_ns : int
        When the file was last changed, in nanoseconds; 0 for an array.
    file_type : str
        The ending of its name, in small letters; "jpeg" for .jpg. Empty for an array.
    taken : str or None
        ISO 8601, as the camera's clock said; None where that is not known.
    phash : int or None
        Perceptual hash: 64 bits as a signed number.
    """

    name: str
    path: str | None
    n_bytes: int
    width: int
    height: int
    sha256: str
    tags: tuple[str, ...] = ()
    mtime_ns: int = 0
    file_type: str = ""
    taken: str | None = None
    phash: int | None = None


def read_records(
    images: Sequence[ImageLike], names: Sequence[str], tags: Sequence[Iterable[str]], *, n_jobs: int | None = None
) -> list[Record | Skipped]:
    """Read size and hash of each image; one that cannot be read (any more) comes as skipped, with the reason.

    Parameters
    ----------
    images : sequence of paths or of uint8 arrays (height, width, 3)
    names : sequence of str
    tags : sequence of lists of str
        Given by people, for each image.
    n_jobs : int, optional
        Threads; None is all cores.
    """
    given = list(zip(images, names, tags, strict=True))
    with Team(resolve_jobs(n_jobs)) as team:
        return team.run(lambda i: _read_record(*given[i]), len(given))


class Records(Sequence[Record]):
    """The records of a catalogue, each parsed when it is asked for: opening a hundred thousand costs nothing.

    Parameters
    ----------
    lines : list of bytes or Record
        JSON lines, or records that were not written yet.
    """

    def __init__(self, lines: Iterable[bytes | Record] = ()) -> None:
        self._lines = list(lines)

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        if isinstance(index, slice):
            return Records(self._lines[index])
        line = self._lines[index]
        return line if isinstance(line, Record) else _from_json(line, index)

    def name(self, index: int) -> str:
        """Give the name of one image: quicker than its record."""
        line = self._lines[index]
        return line.name if isinstance(line, Record) else str(_values(line, index)["name"])

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def extend(self, records: Iterable[Record]) -> None:
        """Append records."""
        self._lines.extend(records)

    def write(self, path: Path) -> None:
        """Write one JSON object a line."""
        with path.open("wb") as file:
            for line in self._lines:
                file.write((line if isinstance(line, bytes) else _to_json(line)) + b"\n")

    @classmethod
    def open(cls, path: Path) -> Records:
        """Read the lines that `write` wrote."""
        try:
            return cls(path.read_bytes().splitlines())
        except OSError as error:
            raise CorruptFileError(f"{path} cannot be read: {error}.") from error


def _read_record(image: ImageLike, name: str, tags: Iterable[str]) -> Record | Skipped:
    if isinstance(image, np.ndarray):
        sha256 = hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
        return Record(name, None, image.nbytes, image.shape[1], image.shape[0], sha256, tuple(tags))
    path = os.path.realpath(image)
    try:
        width, height = image_size(path)
        return Record(name, path, os.path.getsize(path), width, height, file_hash(path), tuple(tags))
    except ImageError as error:
        return Skipped(os.fspath(image), error.reason)
    except OSError as error:
        return Skipped(os.fspath(image), error.strerror or "it cannot be read")


def _to_json(record: Record) -> bytes:
    return json_text(asdict(record)).encode()


def _from_json(line: bytes, index: int) -> Record:
    values = _values(line, index)
    try:
        return Record(**{**values, "tags": tuple(values["tags"])})
    except (KeyError, TypeError) as error:
        raise _no_record(index, error) from error


def _values(line: bytes, index: int) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(line.decode("utf-8", "surrogateescape"))
        values["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_record(index, error) from error
    return values


def _no_record(index: int, error: Exception) -> CorruptFileError:
    return CorruptFileError(f"Line {index + 1} of the catalogue's records is not a record: {error}.")
