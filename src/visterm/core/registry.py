"""One table of names for each kind of part: imported at first use, and the source of every list of names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from visterm.core.errors import MissingExtraError, UnknownNameError, UserError

PACKAGE = "visterm"
RESEARCH = "visterm-research"

_LISTED = 40  # Names that a message lists before it says how many more there are


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One line of a table."""

    name: str  # What users type
    target: str  # ``"module:Class"``, imported at first use; empty while its package is not installed
    summary: str  # One line for lists and docs
    paper: str = ""  # Where it comes from; empty for common ground
    extra: str = ""  # The optional dependency that it needs; empty for none
    learns: bool = True  # False for baselines that ignore the images' content
    package: str = PACKAGE  # The distribution that brings it

    def load(self) -> Any:
        """Import the class, or say which extra brings the package that it needs."""
        module, _, attribute = self.target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ImportError as error:
            if self.extra and not (error.name or "").startswith("visterm"):
                raise MissingExtraError(
                    f"'{self.name}' needs the package '{error.name}'. "
                    f"Install it with: pip install '{self.package}[{self.extra}]'"
                ) from error
            raise


class Registry:
    """A table of `entries` of one kind, ours and those that other packages offer in the entry-point group `group`.

    `kind` is what the parts are, in messages: "model", "encoder". An entry whose `package` is another one describes
    what that package offers under this name, and says what to install where it is missing.
    """

    def __init__(self, kind: str, entries: list[TableEntry], *, group: str) -> None:
        self.kind = kind
        self._own = {entry.name: entry for entry in entries if entry.package == PACKAGE}
        self._described = {entry.name: entry for entry in entries if entry.package != PACKAGE}
        self._group = group

    def __iter__(self) -> Iterator[TableEntry]:
        yield from self._own.values()
        yield from self._offered().values()

    def names(self) -> list[str]:
        """List the names."""
        return [entry.name for entry in self]

    def not_installed(self) -> list[TableEntry]:
        """List what packages that are not installed would bring."""
        offered = self._offered()
        return [entry for name, entry in self._described.items() if name not in offered]

    def entry(self, name: str) -> TableEntry:
        """Return one line of the table, or raise with what to install or the nearest names."""
        entry = self._own.get(name) or self._offered().get(name)
        if entry is None:
            raise self.unknown(name, self.names())
        return entry

    def unknown(self, name: str, known: list[str]) -> UserError:
        """Return the error for a name that is not there: which package brings it, else the nearest of `known`."""
        if (entry := self._described.get(name)) is None:
            problem = f"Unknown {self.kind} '{name}'."
            return UnknownNameError(problem, setting=self.kind, value=name, advice=_advice(name, known))
        return MissingExtraError(
            f"The {self.kind} '{name}' is in the package {entry.package}, which is not installed.",
            setting=self.kind,
            value=name,
            advice=f"Install it with: pip install {entry.package} (in a clone of visterm: pip install ./research)",
        )

    def load(self, name: str) -> Any:
        """Import the class behind a name."""
        return self.entry(name).load()

    def create(self, name: str, **params: object) -> Any:
        """Construct the part behind a name.

        Unknown parameters are an error that lists the known ones; so is text for one that is True or False, as any text
        would be taken as True.
        """
        cls = self.load(name)
        known = {key: p.default for key, p in inspect.signature(cls).parameters.items() if key != "self"}
        for param, value in params.items():
            if param not in known:
                problem, advice = (
                    f"The {self.kind} {name} has no setting '{param}'.",
                    _advice(param, list(known), "It has"),
                )
                raise UnknownNameError(problem, setting=f"{self.kind}.{param}", value=value, advice=advice)
            if isinstance(known[param], bool) and isinstance(value, str):
                raise UserError(setting=f"{self.kind}.{param}", value=value, expected="True or False")
        return cls(**params)

    def name_of(self, obj: object) -> str:
        """Return the registered name of an instance."""
        target = f"{type(obj).__module__}:{type(obj).__qualname__}"
        for entry in self:
            if entry.target == target:
                return entry.name
        raise UserError(
            f"{type(obj).__name__} is not registered as a {self.kind}, so it cannot be saved by name. "
            f"Offer it through the entry-point group '{self._group}' of its package."
        )

    def classes(self, package: str = PACKAGE) -> dict[str, TableEntry]:
        """Return the parts that a package brings by the name of their class."""
        entries = self._own if package == PACKAGE else self._offered()
        return {entry.target.rpartition(":")[2]: entry for entry in entries.values() if entry.package == package}

    def _offered(self) -> dict[str, TableEntry]:
        """Return what other packages offer under names of their own; reading all that is installed takes 20 ms.

        Those that the table describes come in its order, then others by name: a package lists them in any.
        """
        offered: dict[str, TableEntry] = {}
        from importlib.metadata import entry_points  # takes long to import

        order = {name: i for i, name in enumerate(self._described)}
        for point in sorted(entry_points(group=self._group), key=lambda p: (order.get(p.name, len(order)), p.name)):
            if point.name in self._own:
                continue
            package = point.dist.name if point.dist else point.value.partition(":")[0].partition(".")[0]
            described = self._described.get(point.name)
            if described is None or described.package != package:
                described = TableEntry(point.name, "", f"from {point.value.partition(':')[0]}", package=package)
            offered.setdefault(point.name, replace(described, target=point.value))
        return offered


def lazy_names(
    package: str, names: Mapping[str, str], classes: Callable[[], Mapping[str, TableEntry]] = dict
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that offers names of its modules, each imported at first use.

    `names` lists them by module of the package, or by its full name, with spaces between. `classes` are those of a
    table, by name; then `__dir__` lists these alone.
    """
    modules = {
        name: module if module.startswith("visterm.") else f"{package}.{module}"
        for module, offered in names.items()
        for name in offered.split()
    }

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        if (entry := classes().get(name)) is None:
            raise AttributeError(unknown_attribute(package, name, sorted([*classes(), *modules])), name=name)
        return entry.load()

    return get, lambda: sorted(classes() or modules)


def unknown_attribute(module: str, name: str, known: Sequence[str]) -> str:
    """Return the message of an AttributeError of a module, with the nearest public name or all of them."""
    return f"module '{module}' has no attribute '{name}'. {_advice(name, known)}"


def unknown(kind: str, name: str, known: list[str]) -> str:
    """Return the message that a name is not known, with the nearest ones, or all."""
    return f"Unknown {kind} '{name}'. {_advice(name, known)}"


def _advice(name: str, known: Sequence[str], listed: str = "Known") -> str:
    """Return the nearest of the known names, or all of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else known_names(known, listed)


def known_names(known: Sequence[str], listed: str = "Known") -> str:
    """List known names, the first few of many."""
    rest = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"{listed}: {', '.join(known[:_LISTED]) or 'none'}{rest}."
