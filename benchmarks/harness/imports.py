"""Who imports whom: the import graph of a package, read from its source, type-only imports and names in strings too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.counts import Source, read_sources

Edges = Mapping[str, frozenset[str]]

_TARGET = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+(?::\w+)?|\w+:\w+")
_ROOMS_OF_PARTS = ("models", "encoders")
"""Rooms whose files the table of models and encoders names by their places in them: "ranking.wsabie:Wsabie"."""


class Package(NamedTuple):
    """The modules of a package; the keys of dicts are full names of modules."""

    sources: list[Source]
    files: dict[str, Path]  # That of a package is its ``__init__.py``
    lines: dict[str, int]  # Number of lines
    imports: dict[str, frozenset[str]]  # The modules of the package that it imports, wherever and for whatever purpose
    named: dict[str, frozenset[str]]  # The modules that it names in a string, to import them when they are asked for


def read_package(root: Path) -> Package:
    """Read the import graph of the package in a folder."""
    sources = {_module(source.path, root): source for source in read_sources(root)}
    files = {module: source.path for module, source in sources.items()}
    lines, imports, named = {}, {}, {}
    for module, source in sources.items():
        lines[module] = source.text.count("\n")
        imports[module] = frozenset(imported_modules(source.tree, files)) - {module}
        named[module] = frozenset(_named(source.tree, files)) - {module, root.name}
    return Package(list(sources.values()), files, lines, imports, named)


def importers(package: Package) -> dict[str, set[str]]:
    """Return the modules that import each module, or name it in a string to import it later."""
    found: dict[str, set[str]] = {module: set() for module in package.files}
    for edges in (package.imports, package.named):
        for module, targets in edges.items():
            for target in targets:
                found[target].add(module)
    return found


def with_one_importer(package: Package) -> list[str]:
    """Return the modules, packages and ``__main__`` aside, that exactly one other imports."""
    who = importers(package)
    return [
        module
        for module, path in package.files.items()
        if path.name not in ("__init__.py", "__main__.py") and len(who[module]) == 1
    ]


def upward(package: Package, layers: Sequence[str]) -> list[tuple[str, str]]:
    """Return the imports that go up, or between rooms of one layer.

    Parameters
    ----------
    package : Package
    layers : sequence of str
        As import-linter writes them, the uppermost first; rooms on one line, as in ``models | store``, are independent.
    """
    depth, room_of = {}, {}
    for number, layer in enumerate(layers):
        for room in re.split(r"\s*[|:]\s*", layer.strip("() ")):
            depth[room.strip("() ")] = number
    for module in package.files:
        parts = module.split(".")
        room_of[module] = parts[1] if len(parts) > 1 and parts[1] in depth else None
    found = []
    for module, targets in package.imports.items():
        for target in sorted(targets):
            here, there = room_of[module], room_of[target]
            if here and there and here != there and depth[there] <= depth[here]:
                found.append((module, target))
    return found


def circles(edges: Edges) -> list[list[str]]:
    """Return the groups of modules that reach each other by imports, largest first (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []
    for start in edges:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        open_.append(start)
        path = [(start, iter(sorted(edges[start])))]
        while path:
            module, targets = path[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    open_.append(target)
                    path.append((target, iter(sorted(edges[target]))))
                    break
                if target in open_:
                    low[module] = min(low[module], index[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[module])
                if low[module] == index[module]:
                    place = open_.index(module)
                    group, open_[place:] = sorted(open_[place:]), []
                    if len(group) > 1:
                        found.append(group)
    return sorted(found, key=len, reverse=True)


def _module(path: Path, root: Path) -> str:
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in files:
                    yield inner
                elif node.module in files:
                    yield node.module


def _named(tree: ast.AST, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _TARGET.fullmatch(node.value):
            named = node.value.partition(":")[0]
            root = next(iter(files)).partition(".")[0]
            inside = (f"{root}.{room}.{named}" for room in _ROOMS_OF_PARTS if ":" in node.value)
            yield from (module for module in (named, *inside) if module in files)
