"""Where figures come from: the programs and JSON files that pages name are there, and docstrings have no figures."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "research" / "experiments"
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*DOCS, ROOT / "research" / "README.md", *sorted((ROOT / "research" / "docs").glob("*.md"))]
FIGURES = [ROOT / "docs" / "figures", EXPERIMENTS / "figures"]
MEASURE = re.compile(r"\b(MAP|F1|AvgP|ROC|N\+)(@\d+)?\b")
FIGURE = re.compile(r"(?<![\w.-])0?\.[1-9]\d{1,2}\b")


def test_programs_and_figures_that_a_page_names_are_there():
    missing = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"\b((?:benchmarks|docs/figures|research/experiments)/[\w/]+\.\w+)", text)
        missing |= {(page.name, name) for name in named if not (ROOT / name).exists()}
    assert missing == set()


def test_every_file_of_figures_is_named_in_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {
        path.name for folder in FIGURES for path in folder.glob("*.json") if f"figures/{path.name}" not in text
    } == set()


def test_every_program_has_what_it_takes_from_another_program():
    """Programs find `harness` and each other in benchmarks/, experiments also in research/experiments/."""
    missing = [
        f"{path.name}: {node.module}.{name.name}"
        for folder in (ROOT / "benchmarks", EXPERIMENTS)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for other in (at / f"{node.module.replace('.', '/')}.py" for at in dict.fromkeys((folder, ROOT / "benchmarks")))
        if other.exists()
        for name in node.names
        if name.name not in names_of(other)
    ]
    assert missing == []


def test_docstrings_have_no_figures_of_quality():
    found = [
        f"{path.relative_to(ROOT)}: {' '.join(sentence.split())}"
        for folder in ("src", "research/src")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in docstrings(path)
        for sentence in re.split(r"(?<=[.:;])\s", re.sub(r">>>.*?(\n\s*\n|$)", "", text, flags=re.DOTALL))
        if MEASURE.search(sentence) and FIGURE.search(sentence)
    ]
    assert found == [], "figures belong in docs/, with the program and the JSON that they come from"


@cache
def names_of(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names.update(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
    return names


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file; of one that has no measure or no figure anywhere none, as parsing takes long."""
    source = path.read_text(encoding="utf-8")
    if not (MEASURE.search(source) and FIGURE.search(source)):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
