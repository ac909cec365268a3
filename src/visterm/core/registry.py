"""Tables of models and encoders by name, whose classes are imported at first use."""

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

_MAX_LISTED = 40  # Maximum number of names in a message


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One line of a table."""

    name: str  # What users type
    target: str  # ``"module:Class"``, imported at first use; empty while its package is not installed
    summary: str  # One line for lists and docs
    paper: str = ""  # The paper that describes it, if any
    extra: str = ""  # The optional dependency that it needs, if any
    learns: bool = True  # False for baselines that ignore the images' content
    package: str = PACKAGE  # The distribution that provides it

    def load(self) -> Any:
        """Import the class. Raises MissingExtraError, with the extra to install, if a package is missing."""
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
    """A table of models or encoders: visterm's own `entries`, and entry points of other packages in `group`.

    `kind` is the noun for messages: "model" or "encoder". An entry with another `package` describes a class of that
    package, so messages can say what to install if the package is missing.
    """

    def __init__(self, kind: str, entries: list[TableEntry], *, group: str) -> None:
        self.kind = kind
        self._built_in = {entry.name: entry for entry in entries if entry.package == PACKAGE}
        self._external_entries = {entry.name: entry for entry in entries if entry.package != PACKAGE}
        self._group = group

    def __iter__(self) -> Iterator[TableEntry]:
        yield from self._built_in.values()
        yield from self._plugin_entries().values()

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return [entry.name for entry in self]

    def class_list(self) -> str:
        """Return a list of the classes of this package with what they are, for the help of their room."""
        return "\n".join(f"- `{name}`: {entry.summary}" for name, entry in self.classes().items())

    def not_installed(self) -> list[TableEntry]:
        """Return the entries of packages that are not installed."""
        installed = self._plugin_entries()
        return [entry for name, entry in self._external_entries.items() if name not in installed]

    def entry(self, name: str) -> TableEntry:
        """Return an entry. Raises an error with the package to install or the most similar name if it is unknown."""
        entry = self._built_in.get(name) or self._plugin_entries().get(name)
        if entry is None:
            raise self.unknown(name, self.names())
        return entry

    def unknown(self, name: str, known: list[str]) -> UserError:
        """Return the error for an unknown name: the package to install, or else the most similar name in `known`."""
        if (entry := self._external_entries.get(name)) is None:
            problem = f"Unknown {self.kind} '{name}'."
            return UnknownNameError(problem, setting=self.kind, value=name, advice=_advice(name, known))
        return MissingExtraError(
            f"The {self.kind} '{name}' is in the package {entry.package}, which is not installed.",
            setting=self.kind,
            value=name,
            advice=f"Install it with: pip install {entry.package} (in a clone of visterm: pip install ./research)",
        )

    def load(self, name: str) -> Any:
        """Import the class that is registered under a name."""
        return self.entry(name).load()

    def create(self, name: str, **params: object) -> Any:
        """Construct an instance of the class that is registered under a name.

        Raises UnknownNameError for an unknown parameter; UserError for a text as the value of a True or False setting,
        as any text would count as True.
        """
        cls = self.load(name)
        defaults = {key: p.default for key, p in inspect.signature(cls).parameters.items() if key != "self"}
        for param, value in params.items():
            if param not in defaults:
                problem = f"The {self.kind} {name} has no setting '{param}'."
                advice = _advice(param, list(defaults), "It has")
                raise UnknownNameError(problem, setting=f"{self.kind}.{param}", value=value, advice=advice)
            if isinstance(defaults[param], bool) and isinstance(value, str):
                raise UserError(setting=f"{self.kind}.{param}", value=value, expected="True or False")
        return cls(**params)

    def name_of(self, obj: object) -> str:
        """Return the registered name of an instance; or the name of its class, if it is not registered."""
        target = f"{type(obj).__module__}:{type(obj).__qualname__}"
        return next((entry.name for entry in self if entry.target == target), type(obj).__name__)

    def saved_name(self, obj: object) -> str:
        """Return the registered name of an instance. Raises UserError for a class that is not registered."""
        if (name := self.name_of(obj)) in self.names():
            return name
        if hasattr(obj, "refuse_saving"):
            obj.refuse_saving()
        raise UserError(
            f"{name} is not a registered {self.kind}, so it cannot be saved by name.",
            setting=self.kind, advice=f"Use joblib.dump, or offer it through the entry-point group '{self._group}'.",
        )  # fmt: skip

    def classes(self, package: str = PACKAGE) -> dict[str, TableEntry]:
        """Return class name -> entry for the classes of a package."""
        entries = self._built_in if package == PACKAGE else self._plugin_entries()
        return {entry.target.rpartition(":")[2]: entry for entry in entries.values() if entry.package == package}

    def _plugin_entries(self) -> dict[str, TableEntry]:
        """Return name -> entry for the entry points of other packages; reading all entry points takes 20 ms.

        The entries that this table describes come first, in its order, then the others by name.
        """
        entries: dict[str, TableEntry] = {}
        from importlib.metadata import entry_points  # takes long to import

        order = {name: i for i, name in enumerate(self._external_entries)}
        for point in sorted(entry_points(group=self._group), key=lambda p: (order.get(p.name, len(order)), p.name)):
            if point.name in self._built_in:
                continue
            package = point.dist.name if point.dist else point.value.partition(":")[0].partition(".")[0]
            entry = self._external_entries.get(point.name)
            if entry is None or entry.package != package:
                entry = TableEntry(point.name, "", f"from {point.value.partition(':')[0]}", package=package)
            entries.setdefault(point.name, replace(entry, target=point.value))
        return entries


def lazy_names(
    package: str, names: Mapping[str, str], classes: Callable[[], Mapping[str, TableEntry]] = dict
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose public names are imported at first use.

    `names` maps a module, relative to the package or with its full name, to public names separated by spaces. `classes`
    returns more classes by name, from a `Registry`; `__dir__` then lists only these classes.
    """
    modules = {
        name: module if module.startswith("visterm.") else f"{package}.{module}"
        for module, public_names in names.items()
        for name in public_names.split()
    }

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        if (entry := classes().get(name)) is None:
            raise AttributeError(unknown_attribute(package, name, sorted([*classes(), *modules])), name=name)
        return entry.load()

    return get, lambda: sorted(classes() or modules)


def unknown_attribute(module: str, name: str, known: Sequence[str]) -> str:
    """Return the message of an AttributeError of a module, with the most similar public name or all of them."""
    return f"module '{module}' has no attribute '{name}'. {_advice(name, known)}"


def unknown(kind: str, name: str, known: list[str]) -> str:
    """Return the message for an unknown name, with the most similar known name or all of them."""
    return f"Unknown {kind} '{name}'. {_advice(name, known)}"


def _advice(name: str, known: Sequence[str], prefix: str = "Known") -> str:
    """Return the sentence that suggests the most similar known name, or lists all known names."""
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean '{matches[0]}'?" if matches else known_names(known, prefix)


def known_names(known: Sequence[str], prefix: str = "Known") -> str:
    """Return a sentence that lists up to `_MAX_LISTED` known names after `prefix`."""
    more_text = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"{prefix}: {', '.join(known[:_MAX_LISTED]) or 'none'}{more_text}."
