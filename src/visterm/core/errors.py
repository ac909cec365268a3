"""The errors that visterm raises on purpose; all are subclasses of `VistermError`.

VistermError
├── UserError               an invalid argument, option or setting
│   ├── UnknownNameError    a model, encoder, metric or parameter that does not exist
│   └── MissingExtraError   an optional package that is not installed
├── DataError               input with invalid content
│   ├── ShapeError          a matrix of the wrong size
│   ├── TagFileError        a tag file that cannot be parsed
│   │   └── NoTagsError     a folder of images without tags
│   ├── ImageError          one image that cannot be read (has `.reason`)
│   ├── NoneReadableError   all images are unreadable (has `.skipped`)
│   └── TooLargeError       a result that would not fit in memory
├── StorageError            a run or a catalogue on disk that cannot be used
│   ├── CorruptFileError    a checksum or a format does not match
│   ├── InUseError          another process is writing into a catalogue
│   ├── ReplacedError       a catalogue was removed or replaced while it was open
│   ├── EncoderMismatchError  rows made by another encoder or model
│   └── DiskError           a read-only or broken disk, or too many open files
│       └── OutOfSpaceError   a full disk, an exhausted quota, or a file above the size limit
├── ServiceError            another program's server that cannot be reached, or sends an invalid response
└── DivergedError           training reached infinity or NaN
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_PARAMETER = re.compile(r"`([a-z_][\w.]*)`")  # as in "lower `min_count`"


class VistermError(Exception):
    """Base class of all errors that visterm raises on purpose: what is wrong, what is accepted, what to do.

    An error keeps its parts, so the command line, Python and the API can each use their own name of a setting, and
    programs don't have to parse the text::

        UserError(setting="min_confidence", value=2, expected="a number from 0 to 1", advice="Leave out `new_only`.")

    Parameters
    ----------
    problem : str
        What is wrong, as a sentence; "" to build it from `setting`, `value` and `expected`.
    setting : str, optional
        Name of the invalid parameter in Python: ``min_confidence``, or ``encoder.views`` for a setting of the encoder.
    value : object
        The invalid value.
    expected : str
        The accepted values: ``a number from 0 to 1``.
    advice : str
        What to do, as one or more sentences.

    Names of parameters in `problem`, `expected` and `advice` are in backquotes.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        setting: str | None = None,
        value: object = None,
        expected: str = "",
        advice: str = "",
    ) -> None:
        self.problem, self.setting, self.value, self.expected, self.advice = problem, setting, value, expected, advice
        super().__init__(self.wording())

    def wording(self, name_of: Callable[[str], str] | None = None) -> str:
        """Return the message; `name_of` maps the Python name of a parameter to the reader's name (None: no change)."""
        problem = self.problem
        if not problem and self.setting is not None:
            value = repr(self.value)
            value = value.removesuffix(".0") if isinstance(self.value, float) else value
            problem = f"{name_of(self.setting) if name_of else self.setting} is {value}"
        if self.expected:
            problem = f"{problem.rstrip('.')}; expected {self.expected.rstrip('.')}."
        text = f"{problem} {self.advice}".strip()
        return _PARAMETER.sub(lambda match: name_of(match[1]), text) if name_of else text


class UserError(VistermError, ValueError):
    """An argument, option or setting is invalid."""


class UnknownNameError(UserError):
    """A name is unknown; the message suggests the most similar names."""


class MissingExtraError(UserError, ImportError):
    """An optional package is not installed; the message names the extra to install."""


class DataError(VistermError, ValueError):
    """A file or an argument has invalid content."""


class ShapeError(DataError):
    """A matrix has the wrong number of rows or columns."""


class TagFileError(DataError):
    """A tag file cannot be parsed."""


class NoTagsError(TagFileError):
    """A folder of images has no tags."""


class ImageError(DataError):
    """An image cannot be read; `reason` is a category, and after a colon details of this file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"Cannot read the image {path}: {reason}.")
        self.path = path
        self.reason = reason


class NoneReadableError(DataError):
    """None of the images can be read; the message names the first image and the reason."""

    def __init__(self, skipped: Sequence[Any]) -> None:
        first, n = skipped[0], len(skipped)
        problem = f"None of the {n:,} images could be read. The first, {first.image}, is skipped"
        problem = problem if n > 1 else f"The image {first.image} cannot be read"
        super().__init__(f"{problem}: {first.reason}.")
        self.skipped = skipped

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # pickled in workers: `args` has only the message
        return type(self), (self.skipped,)


class TooLargeError(DataError):
    """A result would exceed its memory limit."""


class StorageError(VistermError):
    """A run or a catalogue on disk cannot be used."""


class CorruptFileError(StorageError):
    """A file's checksum or format does not match what was written."""


class InUseError(StorageError):
    """Another process is writing into the catalogue; retry when it is done."""


class ReplacedError(StorageError):
    """A catalogue was deleted or replaced while it was open."""


class EncoderMismatchError(StorageError):
    """Rows come from another encoder or model than expected."""


class DiskError(StorageError):
    """A disk is read-only or broken, or too many files are open."""


class OutOfSpaceError(DiskError):
    """The disk is full, a quota is exhausted, or a file would exceed the size limit."""


class ServiceError(VistermError):
    """Another program's server cannot be reached, or sends an invalid response."""


class DivergedError(VistermError, ArithmeticError):
    """Training reached infinity or NaN; the message names the setting to lower."""
