"""`make bench`: which figures of a part get into the table, and what the table says of parts that don't run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench  # noqa: E402
from bench import Part  # noqa: E402

RESULT = {
    "machine": {"cores": 2},
    "cases": {"dense": {"seconds": {"median": 2.0, "least": 1.0, "most": 4.0, "runs": [1.0, 2.0, 4.0]}, "ratio": 3}},
}


def test_every_part_is_a_program_and_every_program_but_the_checks_a_part():
    checks = {"bench", "house", "same_answers"}
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == bench.PARTS.keys() | checks


def test_medians_are_shown_unless_a_part_names_its_figures():
    assert list(bench.figures(RESULT, ())) == [("cases/dense/seconds", "2", "1 - 4")]
    assert list(bench.figures(RESULT, ("cases/*/ratio",))) == [("cases/dense/ratio", "3", "")]


@pytest.fixture
def bench_with(monkeypatch, tmp_path):
    """Run the command with parts whose programs are given as text, and return its exit code and the rows it wrote."""

    def ran(programs, *arguments, **parts):
        for name, text in programs.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(bench, "HERE", tmp_path)
        monkeypatch.setattr(bench, "PARTS", {name: Part(name) for name in programs} | parts)
        monkeypatch.setattr(sys, "argv", ["bench.py", "--out", str(tmp_path / "out"), *arguments])
        with pytest.raises(SystemExit) as ended:
            bench.main()
        return ended.value.code, (tmp_path / "out" / "table.md").read_text(encoding="utf-8").splitlines()[4:]

    return ran


WRITES = f"""import sys, json
open(sys.argv[sys.argv.index("--json") + 1], "w").write({json.dumps(RESULT)!r})
"""


def test_a_part_that_fails_is_in_the_table_and_the_others_run(bench_with):
    code, rows = bench_with({"bad": "import sys; sys.exit(3)", "good": WRITES, "mute": "pass"})
    assert code == 1
    assert rows[0].startswith("| bad | failed with exit code 3: see ")
    assert rows[1] == "| good | cases/dense/seconds | 2 | 1 - 4 |"
    assert rows[2].startswith("| mute | failed: it wrote no figures")


def test_an_older_version_has_a_column_beside_ours(bench_with, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "old_version.py").touch()
    writes = """import importlib.util, json, sys
is_old = importlib.util.find_spec("old_version") is not None
if is_old and sys.argv[0].endswith("new_part.py"):
    sys.exit(3)
figures = {"seconds": {"median": 4 if is_old else 2, "least": 1, "most": 5}}
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(figures))
"""
    code, rows = bench_with({"part": writes, "new_part": writes}, "--before", str(tmp_path))
    assert code == 0
    assert rows[0] == "| part | seconds | 2 | 1 - 5 | 4 |"
    assert rows[1].startswith("| new_part | seconds | 2 | 1 - 5 | failed with exit code 3: see ")


def test_parts_without_their_packages_or_their_data_are_missing_not_failed(bench_with, tmp_path):
    parts = {"far": Part("far", ("SHARED",)), "rare": Part("rare", packages=("no_such_package",))}
    code, rows = bench_with({}, "--shared", str(tmp_path / "none"), **parts)
    assert code == 0
    assert rows == [
        f"| far | missing: the data ({tmp_path / 'none'}) |  |  |",
        "| rare | missing: no_such_package |  |  |",
    ]


def test_what_does_not_fit_into_the_time_is_not_run(bench_with):
    assert bench_with({"late": WRITES}, "--minutes", "0") == (0, ["| late | not run: the time was over |  |  |"])


def test_an_unknown_part_is_refused_with_the_parts_that_there_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench.py", "serch"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "No such part: serch. Parts: start_up, search" in capsys.readouterr().err
