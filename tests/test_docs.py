"""The tables of the documentation are those of the registry, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from visterm.core.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PAGES = [path for folder in ("docs", "docs/methods", "research/docs") for path in (ROOT / folder).glob("*.md")]


def test_the_tables_of_models_encoders_and_metrics_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_file_that_a_page_links_to_is_there():
    missing = []
    for page in (*ROOT.glob("*.md"), *PAGES):
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if link[:4] != "http"]
        missing += [(page.name, link) for link in links if link and not (page.parent / link).exists()]
    assert missing == []


def test_the_tests_that_the_page_of_security_names_are_there():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"test_\w+\.py", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []


def test_the_model_that_the_page_on_adding_one_writes_learns_and_refuses_what_is_no_number(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "add_a_model.md").read_text(encoding="utf-8")
    code = re.search(r"```text\n(.*?)```", page, flags=re.DOTALL)[1]
    (tmp_path / "nearest_mean_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    model = import_module("nearest_mean_of_the_page").NearestMean
    X, Y = np.array([[1, 0], [0, 1], [0, 3]]), np.array([[1, 0], [0, 1], [0, 1]])
    assert model().fit(X, Y).decision_function([[0, 1]]).tolist() == [[0, 2]]
    assert model(shrink=2).fit(X, Y).decision_function([[0, 1]]).tolist() == [[0, 1]]
    with pytest.raises(UserError, match="shrink is 'abc'"):
        model(shrink="abc").fit(X, Y)


def test_no_command_that_the_gate_runs_waits_for_ever():
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/first_steps.md"))
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) > 2
    assert [block for block in blocks if "ray start" in block] == []
    lines = [line for block in blocks for line in block.splitlines()[:-1]]  # .ci/readme_commands.py ends a last `serve`
    assert [line for line in lines if "visterm serve" in line] == []
