"""The errors that visterm raises on purpose; whoever catches `VistermError` catches them all.

VistermError
├── UserError               an argument, option or setting that cannot be used
│   ├── UnknownNameError    a model, encoder, metric or parameter that does not exist
│   └── MissingExtraError   an optional package that is not installed
├── DataError               something that was read does not fit
│   ├── ShapeError          a matrix of the wrong size
│   ├── TagFileError        a tag file that cannot be understood
│   ├── ImageError          one image that cannot be read (has `.reason`)
│   ├── NoneReadableError   none of some images can be read (has `.skipped`)
│   └── TooLargeError       a result that would not fit in memory
├── StorageError            a run or a catalogue on disk that cannot be used
│   ├── CorruptFileError    a checksum or a format does not match
│   ├── InUseError          another process writes into a catalogue just now
│   ├── ReplacedError       a catalogue was removed or replaced while it was open
│   ├── EncoderMismatchError  rows made by another encoder or model
│   └── DiskError           the disk or the system refuses: read-only, broken, too many open files
│       └── OutOfSpaceError   a full disk, a used-up quota, a file beyond the largest size
├── ServiceError            another program's server that cannot be reached, or answers wrongly
└── DivergedError           training went to infinity or NaN
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visterm.core.types import Skipped

_PARAMETER = re.compile(r"`([a-z_][\w.]*)`")  # as in "lower `min_count`"


class VistermError(Exception):
    """Base of all errors that visterm raises on purpose: what is wrong, what is accepted, what to do.

    An error is made of its parts, so that the command line, Python and the API each name a setting as their readers
    know it, and programs need not read the text::

        UserError(setting="min_confidence", value=2, expected="a number from 0 to 1", advice="Leave out `new_only`.")

    Parameters
    ----------
    problem : str
        What is wrong, a whole sentence; "" if `setting`, `value` and `expected` say it all.
    setting : str, optional
        The parameter that can't be used, as in Python: ``min_confidence``, or ``encoder.views`` for a setting of the
        encoder.
    value : object
        Its value.
    expected : str
        What is accepted: ``a number from 0 to 1``.
    advice : str
        What to do, one or more whole sentences.

    `problem`, `expected` and `advice` put the names of parameters in backquotes.
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
        """Return the message; `name_of` returns what a reader calls a parameter (None: as in Python)."""
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
    """An argument, option or setting that cannot be used."""


class UnknownNameError(UserError):
    """A name that is in no table, with the nearest names that are."""


class MissingExtraError(UserError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class DataError(VistermError, ValueError):
    """Something that was read or passed does not fit."""


class ShapeError(DataError):
    """A matrix has the wrong number of rows or columns."""


class TagFileError(DataError):
    """A tag file cannot be understood."""


class NoTagsError(TagFileError):
    """A folder of images has no tags."""


class ImageError(DataError):
    """One image cannot be read; `reason` is a category, and after a colon what is particular to this file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"Cannot read the image {path}: {reason}.")
        self.path = path
        self.reason = reason


class NoneReadableError(DataError):
    """None of some images can be read; the message names the first with its reason, and ends with a `note`."""

    def __init__(self, skipped: Sequence[Skipped], note: str = "") -> None:
        first, n = skipped[0], len(skipped)
        problem = f"None of the {n:,} images could be read. The first, {first.image}, is skipped"
        problem = problem if n > 1 else f"The image {first.image} cannot be read"
        super().__init__(f"{problem}: {first.reason}.{note and f' {note}'}")
        self.skipped, self._note = skipped, note

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # from a worker, the message is no argument
        return type(self), (self.skipped, self._note)


class TooLargeError(DataError):
    """A result would not fit into the memory that it is allowed."""


class StorageError(VistermError):
    """A run or a catalogue on disk cannot be used."""


class CorruptFileError(StorageError):
    """A file's checksum or format does not match what was written."""


class InUseError(StorageError):
    """Another process writes into the catalogue; when it is done, the same call works."""


class ReplacedError(StorageError):
    """A catalogue was removed, or another was put in its place, while it was open."""


class EncoderMismatchError(StorageError):
    """Rows of one encoder or model were offered to another."""


class DiskError(StorageError):
    """The disk or the system refuses: a read-only or broken disk, too many open files."""


class OutOfSpaceError(DiskError):
    """The disk is full, a quota is used up, or a file would be larger than files may be."""


class ServiceError(VistermError):
    """Another program's server cannot be reached, or answers what it should not."""


class DivergedError(VistermError, ArithmeticError):
    """Training went to infinity or NaN; the message says what to lower."""
