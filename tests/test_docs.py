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
PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "methods").glob("*.md")]


def test_the_tables_of_models_encoders_and_metrics_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [path.relative_to(ROOT).as_posix() for path in (*sorted(ROOT.glob("*.md")), *PAGES)])
def test_every_file_that_a_page_links_to_is_there(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    assert [link for link in links if link and not ((ROOT / page).parent / link).exists()] == []


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


@pytest.mark.parametrize("page", ["README.md", "docs/first_steps.md"])
def test_no_command_that_the_gate_runs_waits_for_ever(page):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    assert [block for block in blocks if "visterm serve" in block or "ray start" in block] == []
