"""Declarations of learned attributes (type, shape and range), which are used to check files from unknown sources.

A class declares its learned attributes in ``learned``, in addition to those of its base classes::

    learned: ClassVar[dict[str, Kind]] = {
        "rows_": DenseOrCsr("float32", ("n_images", "n_features_in_")),
        "order_": Array("int64", ("trees", "n_images"), permuted=True),
        "power_": Number(least=0),
    }

A name in a shape is an integer attribute of the estimator (a setting, such as ``trees``, or a learned number, such as
``n_tags_``). Any other name stands for one unknown size, which must be the same wherever the class uses the name.
"""

from __future__ import annotations

import operator
import re
import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite
from visterm.core.errors import DataError
from visterm.core.estimator import Estimator

Size: TypeAlias = "int | str | None"  # A number, a name, a name plus a number (``"n_leaves + 1"``), or None for any
MAX_WHOLE = 2**53  # Default upper bound of whole numbers
ANY_TEXT = "(?s).*"
HASH = "[0-9a-f]{64}"
FILE_NAME = r"[^\x00]*"
BOUNDS = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
    "most": ("at most", operator.le),
}
"""Attribute of a kind -> its wording in messages, and the comparison that must be true for (number, bound)."""


@dataclass
class Sizes:
    """Resolves the size names in declarations.

    A name is looked up in `by_name`, then among the integer attributes of `estimator`. Any other name is added to
    `by_name`, with the size of the first array that uses it.
    """

    by_name: dict[str, int] = field(default_factory=dict)
    estimator: Estimator | None = None

    def of(self, size: Size) -> int | None:
        """Return a size as a number, or None if it is unknown or any size is allowed."""
        if not isinstance(size, str):
            return size
        name, _, addend = size.partition(" + ")
        value: object = self.by_name.get(name, getattr(self.estimator, name, None))
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            return None
        return int(value) + int(addend or 0)

    def match(self, shape: tuple[int, ...], expected: tuple[Size, ...]) -> bool:
        """Compare a shape with the expected one, and record the sizes of unknown names; return whether it matches."""
        if len(shape) != len(expected):
            return False
        for actual, size in zip(shape, expected, strict=True):
            expected_size = self.of(size)
            if isinstance(size, str) and expected_size is None:
                name, _, addend = size.partition(" + ")
                self.by_name[name] = actual - int(addend or 0)
            elif expected_size not in (None, actual):
                return False
        return True

    def summary(self, expected: tuple[Size, ...]) -> str:
        """Return an expected shape for messages, with the known values of its names: ``(n_images = 3, any)``."""
        names = ("any" if size is None else str(size) for size in expected)
        values = (self.of(size) if isinstance(size, str) else None for size in expected)
        return f"({', '.join(n if v is None else f'{n} = {v}' for n, v in zip(names, values, strict=True))})"


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """Declares one learned attribute. `required`: every fitted estimator has it; `or_none`: it may be None."""

    required: bool = True
    or_none: bool = False

    @abstractmethod
    def check(self, value: object, sizes: Sizes) -> None:
        """Raise `DataError` if the value is invalid; the message continues a sentence that begins with the name."""

    def check_named(self, name: str, value: object, sizes: Sizes) -> None:
        """Check a value, unless it is a None that is accepted; the message begins with the name."""
        if value is None and self.or_none:
            return
        try:
            self.check(value, sizes)
        except DataError as error:
            raise DataError(f"{name} {error}") from error


@dataclass(frozen=True)
class Array(Kind):
    """A NumPy array of finite numbers.

    `least` and `most` are inclusive bounds, `above` and `below` exclusive ones. A bound may be the name of a size:
    ``below="n_images"`` allows only valid row numbers of images. If `permuted`, each row is a permutation of 0, 1, ...;
    if `ascending`, numbers never decrease along a row; if `empty`, a dimension may be 0.
    """

    dtype: str
    shape: tuple[Size, ...]
    least: float | None = field(default=None, kw_only=True)
    above: float | None = field(default=None, kw_only=True)
    below: float | str | None = field(default=None, kw_only=True)
    most: float | str | None = field(default=None, kw_only=True)
    permuted: bool = field(default=False, kw_only=True)
    ascending: bool = field(default=False, kw_only=True)
    empty: bool = field(default=False, kw_only=True)

    canonical: bool = field(default=True, kw_only=True)
    forms: ClassVar[tuple[str, ...]] = ("an array",)

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse a wrong type or shape, and numbers out of range."""
        is_csr = sp.issparse(value) and value.format == "csr"
        form = "a CSR matrix" if is_csr else "an array" if isinstance(value, np.ndarray) else ""
        shape = getattr(value, "shape", ())
        if not (form in self.forms and value.dtype == self.dtype and sizes.match(shape, self.shape)):
            forms = form if form in self.forms else " or ".join(self.forms)
            raise DataError(f"is {_summary(value)}; expected {forms} of {self.dtype} {sizes.summary(self.shape)}")

        if 0 in shape and not self.empty:
            raise DataError(f"is empty, {_summary(value)}; expected at least 1 row and column")
        numbers = value.data if is_csr else value
        if not all_finite(numbers):
            raise DataError("has infinity or NaN; expected finite numbers")
        if is_csr and self.canonical:
            rebuilt = sp.csr_array((value.data, value.indices, value.indptr), value.shape)
            if not rebuilt.has_canonical_format:  # computed for a new matrix; that of `value` may be a stored flag
                raise DataError("has columns out of order or twice in a row; expected each once, in ascending order")

        if numbers.size and any(bound is not None for bound in (self.least, self.above, self.below, self.most)):
            for number in (numbers.min(), numbers.max()):
                _check_range(number.item(), sizes, self)
        if self.ascending or self.permuted:
            self._check_order(value)

    def _check_order(self, value: NDArray[np.number]) -> None:
        """Refuse numbers that decrease along a row, and rows that are not permutations."""
        if self.ascending and bool((np.diff(value) < 0).any()):
            raise DataError("has numbers that fall; expected them in ascending order")
        if self.permuted:
            rows = np.sort(np.atleast_2d(value), axis=1)
            if not np.array_equal(rows, np.broadcast_to(np.arange(rows.shape[1]), rows.shape)):
                raise DataError(
                    f"is not a permutation; expected each number from 0 to {rows.shape[1] - 1} once per row"
                )


@dataclass(frozen=True)
class Csr(Array):
    """A CSR matrix with sorted columns, each at most once per row; `checked_csr` has validated its indices.

    With ``canonical=False`` its columns may be in any order.
    """

    forms: ClassVar[tuple[str, ...]] = ("a CSR matrix",)


@dataclass(frozen=True)
class DenseOrCsr(Csr):
    """An array or a CSR matrix."""

    forms: ClassVar[tuple[str, ...]] = ("an array", "a CSR matrix")


@dataclass(frozen=True, kw_only=True)
class Whole(Kind):
    """A whole number from `least` to `most` (which may be the name of a size)."""

    least: int = 0
    most: int | str = MAX_WHOLE

    def check(self, value: object, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise DataError(f"is {_summary(value)}; expected a whole number")
        _check_range(int(value), sizes, self)


@dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A finite number in a range; see `Array` for the bounds."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse anything else."""
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and abs(value) <= sys.float_info.max):
            raise DataError(f"is {_summary(value)}; expected a finite number")
        _check_range(value, sizes, self)


@dataclass(frozen=True, kw_only=True)
class Flag(Kind):
    """True or False."""

    def check(self, value: object, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, bool | np.bool_):
            raise DataError(f"is {_summary(value)}; expected True or False")


@dataclass(frozen=True, kw_only=True)
class Text(Kind):
    """A text that fully matches a regular expression."""

    pattern: str = ANY_TEXT

    def check(self, value: object, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            form = "" if self.pattern == ANY_TEXT else f" of the form {self.pattern}"
            raise DataError(f"is {_summary(value)}; expected a text{form}")


@dataclass(frozen=True)
class Listed(Kind):
    """A list (or an array of objects) with `size` entries, all of the kind `one`."""

    one: Kind
    size: Size = None

    def check(self, value: object, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, list | np.ndarray) or not sizes.match((len(value),), (self.size,)):
            raise DataError(f"is {_summary(value)}; expected a list {sizes.summary((self.size,))}")
        for number, entry in enumerate(value):
            self.one.check_named(f"[{number}]", entry, sizes)


@dataclass(frozen=True)
class Record(Kind):
    """A dict with texts as keys. The keys in `fields` have values of these kinds; other values are not checked."""

    fields: Mapping[str, Kind] = field(default_factory=dict)

    def check(self, value: object, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, dict):
            raise DataError(f"is {_summary(value)}; expected names with values")
        for name, kind in self.fields.items():
            if name in value or kind.required:
                kind.check_named(f"['{name}']", value.get(name), sizes)


@dataclass(frozen=True, kw_only=True)
class Fitted(Kind):
    """A fitted estimator, an instance of `base`, checked against the declarations of its own class."""

    base: type = object

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse anything else."""
        if not isinstance(value, self.base) or not hasattr(value, "get_params"):
            raise DataError(f"is {_summary(value)}; expected a fitted {self.base.__name__}")
        check_learned(value)


def learned_kinds(estimator: Estimator) -> dict[str, Kind]:
    """Return the declarations of an estimator's class and its bases: name -> kind; ``*`` stands for a whole number."""
    kinds: dict[str, Kind] = {}
    for cls in reversed(type(estimator).__mro__):
        kinds.update(vars(cls).get("learned", {}))
    return kinds


def declared_name(name: str, kinds: Mapping[str, Kind]) -> str | None:
    """Return the name under which an attribute is declared (``rows_*_`` for ``rows_3_``); None if it is undeclared."""
    pattern = re.sub(r"(?<=_)(0|[1-9]\d{0,3})(?=_)", "*", name)
    return name if name in kinds else pattern if pattern in kinds else None


def learned_attributes(estimator: Estimator) -> dict[str, Any]:
    """Return the learned attributes of an estimator, whose names end in ``_``: name -> value."""
    attributes = sorted(vars(estimator).items())
    return {name: value for name, value in attributes if name.endswith("_") and not name.startswith("_")}


def check_learned(estimator: Any) -> None:
    """Check the learned attributes of an estimator against the declarations of its class.

    A class may add checks that no declaration can express (that the shapes of layers match, for instance) in
    ``_check_learned()``, which runs last and raises `DataError`. Raises DataError if an attribute is missing,
    undeclared, or has another type, shape or range.
    """
    kinds, learned = learned_kinds(estimator), learned_attributes(estimator)
    names: dict[str | None, list[str]] = {}
    for name in learned:
        names.setdefault(declared_name(name, kinds), []).append(name)
    if None in names:
        raise DataError(f"{names[None][0]} is not declared in `learned` of {type(estimator).__name__}")
    sizes = Sizes(estimator=estimator)
    for key, kind in sorted(kinds.items(), key=lambda item: not isinstance(item[1], Array)):  # arrays set sizes
        if kind.required and "*" not in key and key not in names:
            raise DataError(f"{key} of {type(estimator).__name__} is missing")
        for name in names.get(key, ()):
            kind.check_named(name, learned[name], sizes)
    extra_check = getattr(estimator, "_check_learned", None)
    if extra_check is not None:
        extra_check()


def _check_range(number: float, sizes: Sizes, kind: Kind) -> None:
    """Refuse a number outside the bounds of its kind."""
    for name, (relation, is_within) in BOUNDS.items():
        bound = getattr(kind, name, None)
        limit = sizes.of(bound) if isinstance(bound, str) else bound
        if limit is not None and not is_within(number, limit):
            size = f"{bound} = " if isinstance(bound, str) else ""
            raise DataError(f"has {number:g}; expected {relation} {size}{limit:g}")


def _summary(value: object) -> str:
    """Return a value for messages; for arrays only their type and shape."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    if isinstance(value, sp.sparray | sp.spmatrix):
        return f"a CSR matrix of {value.dtype} {value.shape}"
    return reprlib.repr(value)
