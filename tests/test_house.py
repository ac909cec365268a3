"""The counts of benchmarks/house.py, on packages of a few lines whose imports are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402
from harness import counts, offered  # noqa: E402
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


@pytest.mark.parametrize(
    ("limit", "figure", "expected", "failing"),
    [
        (house.Limit(9, 5), 5, "9 5 at most 5", False),
        (house.Limit(9, 5), 6, "9 6 at most 5", True),
        (house.Limit(9, 5, holds=False), 6, "9 6 not yet at most 5", False),
        (house.Limit(9, 5, holds=False), 4, "9 4 at most 5", False),
    ],
)
def test_a_limit_fails_only_where_it_holds(monkeypatch, limit, figure, expected, failing):
    monkeypatch.setitem(house.LIMITS, "cats", limit)
    assert house.line_of("cats", figure).split() == ["cats", *expected.split()]
    assert house.fails("cats", figure) is failing


def test_some_figures_must_not_sink(monkeypatch):
    monkeypatch.setitem(house.LIMITS, "docstring lines a public function", house.Limit(2.5, 2.5))
    assert not house.fails("docstring lines a public function", 2.6)
    assert house.fails("docstring lines a public function", 2.4)


def test_statements_docstrings_and_blank_lines_are_counted(package):
    made = package(
        a='def f():\n    """Do.\n\n    More.\n    """\n\n    def _g(): return 1\n    return _g\n\ndef h(): ...\n'
    )
    assert counts.statements(made.sources) == 7  # three functions, a docstring, two returns, an ellipsis
    assert counts.docstring_lines(made.sources) == [4, 0]
    assert counts.blank_lines(made.sources) == 3


def test_long_functions_are_measured_without_their_docstring(package):
    body = "    x = 1\n" * 60
    made = package(a=f'def f():\n    """Do."""\n{body}', b=f"def g():\n{body}    x = 1\n")
    assert [line.rpartition(": ")[2] for line in counts.long_functions(made.sources)] == ["g"]


def test_complex_functions_may_be_more_complex_in_the_command_line(package):
    text = "def f(x):\n" + "    if x: x += 1\n" * 11
    made = package(cli__dot__a=text, store__dot__a=text)
    [line] = counts.complex_functions(made.sources[0].path.parent)
    assert "store" in line


def test_classes_with_many_ancestors_and_names_of_two_classes_are_found(package):
    chain = "".join(f"class C{i}(C{i - 1}): ...\n" for i in range(1, 7))
    made = package(a=f"class C0(Generic[T]): ...\n{chain}class D: ...\n", b="class D(a.C5): ...\n")
    assert counts.deep_classes(made.sources) == ["C6: 6 ancestors", "D: 6 ancestors"]
    assert counts.names_of_several_classes(made.sources) == ["D"]


def test_vague_names_are_those_of_variables_of_functions(package):
    made = package(a="found = 1\ndef f(left):\n    found = left\n    def g():\n        place = 2\n    return g\n")
    assert [line.rpartition(": ")[2] for line in counts.vague_names(made.sources)] == ["found in f", "place in g"]


def test_options_in_sentences_are_listed_and_whole_commands_are_not(package):
    made = package(
        a='"""Pass --tags."""\nE = f"{x} has none; pass --tags FILE or `-o`."\nF = "--tags"\nG = ["-o"]\n',
        b='E = f"Make one: visterm fit {x} --tags FILE -o RUN. Leave --out or --text out."\n',
    )
    listed = counts.options_named(made.sources, {"--tags", "-o", "--out"})
    assert [line.partition(" in ")[0].rpartition(": ")[2] for line in listed] == ["--tags", "-o", "--tags", "--out"]


def test_any_and_imports_in_functions_are_counted_but_for_types(package):
    made = package(
        a="from typing import Any\ndef f(x: Any):\n    import b\n    def g():\n        from c import d\n",
        b="def f():\n    if TYPE_CHECKING:\n        import b\n",
    )
    assert len(counts.words_any(made.sources)) == 2
    assert [line.rpartition(": ")[2] for line in counts.inner_imports(made.sources)] == ["import b", "from c import d"]


def test_options_are_those_of_each_command_without_those_of_research():
    listed = offered.options()
    assert {"fit --model", "annotate --json"} <= set(listed)
    assert not [option for option in listed if option.startswith(("demo ", "reproduce "))]
    assert len(set(listed)) == len(listed)


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
