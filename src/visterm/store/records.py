"""What is read of an image before a catalogue takes it in: size, content hash, date of the file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from visterm.core.errors import ImageError
from visterm.core.persist import file_hash
from visterm.core.remote import is_remote, real_path
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.data.contents import content_hash, file_state, reading_threads
from visterm.data.fetching import GONE
from visterm.data.images import ImageLike, image_size


@dataclass(frozen=True, slots=True)
class Record:
    """One image, before it has a number in a catalogue.

    Attributes
    ----------
    name : str
        As it was given: what searches show.
    path : str or None
        The file, in full, or the address of an object; None for an image that was given as an array.
    n_bytes : int
        Size of the file, or of the array.
    width, height : int
        Pixels of the upright image.
    sha256 : str
        Hash of the file's bytes, or of the array's; of an object, what stands for it (`content_hash`).
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
    with Team(reading_threads(images, n_jobs)) as team:
        return team.run(lambda i: _read_record(*given[i]), len(given))


def file_type_of(path: str | os.PathLike[str]) -> str:
    """Return the type of a file as the ending of its name says, in small letters: "jpeg" for .jpg."""
    ending = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    return {"jpg": "jpeg", "jpe": "jpeg", "tif": "tiff", "heif": "heic"}.get(ending, ending)


def _read_record(image: ImageLike, name: str, tags: Iterable[str]) -> Record | Skipped:
    if isinstance(image, np.ndarray):
        sha256 = hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
        return Record(name, None, image.nbytes, image.shape[1], image.shape[0], sha256, tuple(tags))
    path = real_path(image)
    try:
        width, height = image_size(path)
        state = file_state(path)
        sha256 = (content_hash(path) or "") if is_remote(path) else file_hash(path)
        if state is None or not sha256:
            return Skipped(path, GONE)
        return Record(
            name, path, state[0], width, height, sha256, tuple(tags), mtime_ns=state[1], file_type=file_type_of(path)
        )
    except ImageError as error:
        return Skipped(os.fspath(image), error.reason)
    except OSError as error:
        return Skipped(os.fspath(image), error.strerror or "it cannot be read")
