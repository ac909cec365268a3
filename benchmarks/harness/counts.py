"""What is counted in the source of a package: statements, docstrings, long or tangled functions, classes, names."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LONGEST_BODY = 60
MOST_ANCESTORS = 5
MOST_COMPLEX, MOST_COMPLEX_IN = 10, {"cli": 15, "kernels": 15}
VAGUE_NAMES = {"found", "there", "place", "said", "held", "own", "left"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*\b")
COMMAND = re.compile(r"visterm [a-z]+[^;,()\n]*?(?=\.(?:\s|$)|[;,()\n]|$)")  # A whole command in a sentence


class Source(NamedTuple):
    """A file as text and as a syntax tree."""

    path: Path
    text: str
    tree: ast.Module


def read_sources(folder: Path) -> list[Source]:
    """Read the Python files of a folder."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return [Source(path, text, ast.parse(text)) for path, text in texts.items()]


def statements(sources: Iterable[Source]) -> int:
    """Count the nodes of type `ast.stmt`."""
    return sum(isinstance(node, ast.stmt) for source in sources for node in ast.walk(source.tree))


def blank_lines(sources: Iterable[Source]) -> int:
    """Count the blank lines."""
    return sum(not line.strip() for source in sources for line in source.text.splitlines())


def docstring_lines(sources: Iterable[Source]) -> list[int]:
    """Return the lines of the docstring of each function whose name doesn't begin with an underscore; 0 without one."""
    docs = [ast.get_docstring(f, clean=False) for _, f in _functions(sources) if not f.name.startswith("_")]
    return [doc.count("\n") + 1 if doc else 0 for doc in docs]


def long_functions(sources: Iterable[Source]) -> list[str]:
    """List the functions whose body, without the docstring, has more than `LONGEST_BODY` lines."""
    return [f"{where}: {f.name}" for where, f in _functions(sources) if _body_lines(f) > LONGEST_BODY]


def complex_functions(package: Path) -> list[str]:
    """List the functions that ruff's C901 calls too complex."""
    options = ["--isolated", "--select", "C901", "--config", f"lint.mccabe.max-complexity={MOST_COMPLEX}"]
    command = [sys.executable, "-m", "ruff", "check", *options, "--output-format", "json", "--exit-zero", package]
    reports = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = []
    for report in reports:  # "`name` is too complex (11 > 10)"
        room = Path(report["filename"]).relative_to(package.resolve()).parts[0]
        complexity = int(report["message"].rpartition("(")[2].partition(" ")[0])
        if complexity > MOST_COMPLEX_IN.get(room, MOST_COMPLEX):
            found.append(f"{report['filename']}: {report['message']}")
    return found


def deep_classes(sources: Iterable[Source]) -> list[str]:
    """List the classes with more than `MOST_ANCESTORS` ancestors from the same package."""
    bases: dict[str, set[str]] = {}
    for _, node in _classes(sources):
        bases.setdefault(node.name, set()).update(map(_last_name, node.bases))

    def ancestors(name: str) -> set[str]:
        direct = bases[name] & bases.keys() - {name}
        return direct.union(*map(ancestors, direct))

    counts = {name: len(ancestors(name)) for name in bases}
    return [f"{name}: {count} ancestors" for name, count in counts.items() if count > MOST_ANCESTORS]


def names_of_several_classes(sources: Iterable[Source]) -> list[str]:
    """List the names that two or more classes have."""
    return [name for name, count in Counter(node.name for _, node in _classes(sources)).items() if count > 1]


def vague_names(sources: Iterable[Source]) -> list[str]:
    """List where a variable of a function gets a name that says how its value came about, or nothing."""
    return [
        f"{where}: {node.id} in {function.name}"
        for where, function in _functions(sources)
        for node in _inside(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES
    ]


def words_any(sources: Iterable[Source]) -> list[str]:
    """List where the word ``Any`` is, by file."""
    return [str(source.path) for source in sources for _ in re.findall(r"\bAny\b", source.text)]


def inner_imports(sources: Iterable[Source]) -> list[str]:
    """List the imports inside functions, outside of ``if TYPE_CHECKING:``."""
    return [
        f"{where}: {ast.unparse(node)}"
        for where, function in _functions(sources)
        for node in _inside(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def options_named(sources: Iterable[Source], options: Collection[str]) -> list[str]:
    """List the `options` that texts name, docstrings and whole commands aside; of one letter only in sentences."""
    return [
        f"{path}: {name} in {text!r}"
        for path, text in _texts(sources)
        for name in OPTION.findall(COMMAND.sub("", text))
        if name in options and (" " in text or name[1] == "-")
    ]


def _texts(sources: Iterable[Source]) -> Iterator[tuple[Path, str]]:
    """Yield the texts in sources, with an X for each value in an f-string, without docstrings."""
    for source in sources:
        nodes = list(ast.walk(source.tree))
        parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        parts |= {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr | ast.Constant) and node not in parts:
                pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
                yield source.path, "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in pieces)


def _functions(sources: Iterable[Source]) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for source in sources:
        yield from ((source.path, node) for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS))


def _classes(sources: Iterable[Source]) -> Iterator[tuple[Path, ast.ClassDef]]:
    for source in sources:
        yield from ((source.path, node) for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return function.end_lineno - first[0].lineno + 1 if first and function.end_lineno else 0


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions in it: each of these is looked at itself."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, FUNCTIONS):
            yield node
            types_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            yield from () if types_only else _inside(node)


def _last_name(base: ast.expr) -> str:
    """Return the name of a class's base: ``C`` of ``C``, ``m.C`` and ``C[T]``."""
    if isinstance(base, ast.Subscript):
        return _last_name(base.value)
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
