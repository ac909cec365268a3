"""Find words and openings that we don't use: in messages, docstrings and pages; `--check` fails above a limit.

    python docs/plain_english.py             # how often, per kind of text
    python docs/plain_english.py --show      # each place
    python docs/plain_english.py --check     # for `make lint`

A message is any text in the code that has a space and is no docstring. Pages are those of the documentation and of the
service; the texts of its API are checked by a test.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CODE = (ROOT / "src", ROOT / "research" / "src")
DOCS = ROOT / "docs"
PAGES = tuple(
    path for folder in (ROOT, DOCS, DOCS / "methods", ROOT / ".github") for path in sorted(folder.glob("*.md"))
)
WEB = ROOT / "src" / "visterm" / "web" / "pages"
WEB_PAGES = (*sorted((WEB / "templates").glob("*.html")), *sorted((WEB / "static").glob("*.js")))

WORDS = (
    r"shall", r"(?:is|are|was|were|be) told", r"told (?:of|from|apart)", r"so many", r"asked(?! for)",
    r"wants", r"wanted", r"leaves? away", r"kin",
)  # fmt: skip
"""What no text says, as regular expressions of whole words: a number, or the verb itself, says it better."""

NO_VERBS = (
    "The",
    "A",
    "An",
    "What",
    "How",
    "Where",
    "Which",
    "Whether",
    "One",
    "Of",
    "All",
    "At",
    "From",
    "Give",
    "Say",
)
"""Openings of a function's docstring that are no verb in the imperative, or none that says what comes out."""

LIMITS = {"messages": 2, "docstrings": 25, "openings": 0, "pages": 0}
"""How many finds ``--check`` allows: today's figures, to be lowered as the work goes on. Where it ends: 0."""


class Find(NamedTuple):
    """A word where it shouldn't be."""

    kind: str
    path: Path
    line: int
    word: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    parser.add_argument("--show", action="store_true", help="print each place")
    chosen = parser.parse_args()
    found = [*in_code(), *in_pages()]
    failed = False
    for kind, limit in LIMITS.items():
        finds = [find for find in found if find.kind == kind]
        too_many = chosen.check and len(finds) > limit
        failed |= too_many
        print(f"{kind:12}{len(finds):6}   at most {limit}")
        for find in finds if chosen.show or too_many else []:
            print(f"  {find.path.relative_to(ROOT)}:{find.line}: {find.word!r} in: {find.text}")
    sys.exit(failed)


def in_code() -> Iterator[Find]:
    """Yield the finds in messages and docstrings."""
    for path in sorted(path for folder in CODE for path in folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(text) for text in documentation(tree)}
        for text in docstrings_of_functions(tree):
            opening = text.value.split(maxsplit=1)[0].rstrip(".,:;")
            if opening in NO_VERBS:
                yield Find("openings", path, text.lineno, opening, text.value.splitlines()[0])
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                kind = "docstrings" if id(node) in docstrings else "messages"
                yield from finds(kind, path, node.lineno, node.value)


def documentation(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield each text that stands alone: docstrings, those of attributes and constants too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def docstrings_of_functions(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings of functions, without those of properties, which name what they are."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = {getattr(it, "id", getattr(it, "attr", "")) for it in node.decorator_list}
        first = node.body[0]
        if decorators & {"property", "cached_property"} or not isinstance(first, ast.Expr):
            continue
        if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield first.value


def in_pages() -> Iterator[Find]:
    """Yield the finds in pages: in Markdown outside of code, in templates outside of ``{{ }}`` and ``{% %}``."""
    for path in WEB_PAGES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield from finds("pages", path, number, re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", line))
    for path in PAGES:
        fenced = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced:
                yield from finds("pages", path, number, re.sub(r"`[^`]*`", "", line))


def finds(kind: str, path: Path, line: int, text: str) -> Iterator[Find]:
    """Yield the words of a text that we don't use."""
    for word in WORDS:
        for match in re.finditer(rf"\b(?:{word})\b", text, re.IGNORECASE):
            row = line + text.count("\n", 0, match.start())
            yield Find(
                kind, path, row, match.group(), " ".join(text[max(0, match.start() - 50) : match.end() + 40].split())
            )


if __name__ == "__main__":
    main()
