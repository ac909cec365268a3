"""The counts of benchmarks/house.py, on packages of a few lines whose imports are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402
from harness.imports import circles, importers, read_package, upward, with_one_importer  # noqa: E402
from harness.walks import Step, trace  # noqa: E402


@pytest.fixture
def package(tmp_path):
    """Write a package of files given by name, and read it."""

    def written(**files):
        for name, text in files.items():
            path = tmp_path / "made" / (name.replace("__dot__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            for folder in {tmp_path / "made", path.parent}:
                (folder / "__init__.py").touch()
        return read_package(tmp_path / "made")

    return written


def test_imports_in_functions_and_for_types_count(package):
    made = package(
        a="import made.b\n",
        b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made.c import C\n",
        c="def f():\n    from made import d\n    return d\n",
        d="",
    )
    assert made.imports == {
        "made": set(),
        "made.a": {"made.b"},
        "made.b": {"made.c"},
        "made.c": {"made.d"},
        "made.d": set(),
    }


def test_a_module_named_in_a_string_has_an_importer(package):
    made = package(table="T = ['made.knn:Knn']\n", knn="class Knn: ...\n", alone="'made.nothing'\n")
    assert importers(made)["made.knn"] == {"made.table"}
    assert with_one_importer(made) == ["made.knn"]


def test_a_file_with_two_importers_and_a_package_are_no_files_with_one(package):
    made = package(a="from made import c\nfrom made.sub import x\n", b="from made import c\n", c="", sub__dot__x="")
    assert with_one_importer(made) == ["made.sub.x"]


def test_small_files_are_those_below_the_limit(package):
    made = package(a="from made import b, c\n", b="x = 1\n" * 59, c="x = 1\n" * 60)
    assert house.tangles(made, [])["files with one importer"] == ["made.b", "made.c"]
    assert house.tangles(made, [])["small files with one importer"] == ["made.b"]


def test_imports_upwards_and_between_rooms_of_one_layer_are_found(package):
    made = package(
        web__dot__page="from made.store.rows import R\n",
        store__dot__rows="from made.models.base import B\n",
        models__dot__base="from made.core.types import T\n",
        core__dot__types="def f():\n    from made.web import page\n    return page\n",
    )
    assert upward(made, ["web", "store | models", "core"]) == [
        ("made.core.types", "made.web.page"),
        ("made.store.rows", "made.models.base"),
    ]
    assert upward(made, ["web", "store", "models", "core"]) == [("made.core.types", "made.web.page")]


def test_circles_are_found_whole_and_apart():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}, "g": set()}
    assert circles({name: frozenset(targets) for name, targets in edges.items()}) == [["a", "b", "c"], ["d", "e"]]


def test_a_limit_that_is_passed_is_said_with_what_is_counted():
    found = {"imports upwards": ["a imports b", "c imports d"], "files in circles": ["x", "y"]}
    assert house.above(found, {"imports upwards": 2, "files in circles": 2}) == []
    [line] = house.above(found, {"imports upwards": 1, "files in circles": 2})
    assert line.startswith("imports upwards: 2, but at most 1 are allowed")
    assert line.endswith("a imports b\n  c imports d")


def test_a_walk_has_functions_in_order_of_their_first_call_and_the_deepest_stack(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text("import two\ndef start():\n    two.a()\n    two.b()\n    end()\ndef end(): ...\n")
    (tmp_path / "two.py").write_text("def a(): ...\ndef b():\n    return (lambda: c())()\ndef c(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    import one

    monkeypatch.setattr("harness.walks.run", lambda _: one.start())
    walk = trace(tmp_path, [])
    assert walk.functions == [Step("one.py", "start"), *(Step("two.py", name) for name in "abc"), Step("one.py", "end")]
    assert [step.function for step in walk.deepest] == ["start", "b", "b.<locals>.<lambda>", "c"]
    assert (walk.files, walk.returns) == ({"one.py", "two.py"}, 1)
