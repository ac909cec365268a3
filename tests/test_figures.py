"""Where figures come from: the programs and JSON files that pages name are there, and docstrings have no figures."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = ROOT / "benchmarks"
FIGURES = ROOT / "docs" / "figures"
MEASURE = re.compile(r"\b(MAP|F1|AvgP|ROC|N\+)(@\d+)?\b")
FIGURE = re.compile(r"(?<![\w.-])0?\.[1-9]\d{1,2}\b")


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_programs_and_figures_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    programs = set(re.findall(r"\bbenchmarks/(\w+\.py)", text))
    figures = set(re.findall(r"\bfigures/(\w+\.json)", text))
    assert {name for name in programs if not (BENCHMARKS / name).exists()} == set()
    assert {name for name in figures if not (FIGURES / name).exists()} == set()


def test_every_file_of_figures_is_named_in_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS)
    assert {path.name for path in FIGURES.glob("*.json") if f"figures/{path.name}" not in text} == set()


def test_every_program_has_what_it_takes_from_another_program():
    missing = [
        f"{path.name}: {node.module}.{name.name}"
        for path in sorted(BENCHMARKS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        if (other := BENCHMARKS / f"{node.module.replace('.', '/')}.py").exists()
        for name in node.names
        if name.name not in set(names_of(other))
    ]
    assert missing == []


@pytest.mark.parametrize("folder", ["src", "research/src"])
def test_docstrings_have_no_figures_of_quality(folder):
    found = [
        f"{path.relative_to(ROOT)}: {' '.join(sentence.split())}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in docstrings(path)
        for sentence in re.split(r"(?<=[.:;])\s", re.sub(r">>>.*?(\n\s*\n|$)", "", text, flags=re.DOTALL))
        if MEASURE.search(sentence) and FIGURE.search(sentence)
    ]
    assert found == [], "figures belong in docs/, with the program and the JSON that they come from"


def names_of(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
