"""The tables of methods: good ones first, costs in units that suit them, and why others have no figures."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def module():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield import_module("method_costs")
        for name in ("method_costs", "make_tables"):
            sys.modules.pop(name, None)


def measured(quality, **more):
    figures = {"map": quality, "p@5": quality / 2, "word_map": quality / 4, "seconds": 1.25, "bytes": 31_117_312}
    return {**figures, "microseconds a photo": 5.16, "microseconds a query": 14.8, **more}


def found(models):
    data = {"Photos": {"about": "90 images × 12 features, 7 tags", "models": models}}
    return {"machine": {"processor": "a processor"}, "minutes": 3.0, "rivals": {"PECOS": "1.2.8"}, "data": data}


def test_the_best_comes_first_and_programs_of_others_are_no_code(module):
    text = module.cost_tables(found({"knn": measured(0.5), "PECOS": measured(0.75), "ridge": measured(0.625)}))
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if "µs" in line]
    assert rows == ["PECOS", "`ridge`", "`knn`"]
    assert "| PECOS | 0.750 | 0.188 | 1.2 s | 31 MB | 5.2 µs |" in text
    assert "### Photos\n\n90 images × 12 features, 7 tags.\n\n| method |" in text
    assert text.startswith(
        "Measured on a processor, with one thread; PECOS 1.2.8. A fit that takes more than 180 seconds is ended."
    )


def test_a_table_has_the_best_models_and_programs_and_three_models_for_comparison(module):
    names = ["auto", "mlp", "pamir", "logistic", "jec", "wsabie", "PECOS", "LightFM", "implicit", "knn"]
    models = {name: measured(0.9 - 0.05 * number) for number, name in enumerate(names)}
    rows = [line.split(" | ")[0][2:] for line in module.table(models)][2:]
    assert rows == ["`auto`", "`mlp`", "`pamir`", "`logistic`", "`wsabie`", "PECOS", "LightFM", "`knn`"]


def test_what_has_no_figures_is_listed_with_the_reason(module):
    models = {
        "ridge": measured(0.5),
        "svm": {"over": "more than 180 seconds"},
        "LightFM": {"missing": "not installed: `pip install lightfm`"},
        "plsa": {"over": "more than 180 seconds"},
        "cmrm": {"refused": "It needs counts."},
    }
    lines = module.cost_tables(found(models)).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- `svm`, `plsa`: more than 180 seconds.",
        "- LightFM: not installed: `pip install lightfm`.",
    ]
    assert "Without figures:" not in module.cost_tables(found({"ridge": measured(0.5)}))


def test_settings_that_differ_from_the_defaults_are_listed_with_their_models(module):
    models = {name: measured(0.5, settings={"hidden": "[512]"}) for name in ("fast0tag", "sampled_tagger")}
    assert "- `hidden`: [512] (`fast0tag`, `sampled_tagger`)" in module.cost_tables(found(models))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3e-7, "0.3 µs"),
        (9.96e-6, "10 µs"),
        (0.0021, "2.1 ms"),
        (0.25, "250 ms"),
        (1.0, "1.0 s"),
        (90, "90 s"),
        (150, "2.5 min"),
    ],
)
def test_a_time_has_the_unit_that_suits_it(module, seconds, text):
    assert module.time(seconds) == text


def test_the_table_of_all_models_has_the_best_first_and_says_which_were_stopped(module, tmp_path, monkeypatch):
    tables = import_module("make_tables")
    models = {"knn": measured(0.5), "kernel_ridge": measured(0.25), "ridge": {"over": "more than 180 seconds"}}
    others = {"knn": measured(0.5), "ridge": measured(0.75)}
    (tmp_path / "methods.json").write_text(json.dumps({"data": {"A": {"models": models}, "B": {"models": others}}}))
    monkeypatch.setattr(tables, "FIGURES", tmp_path / "methods.json")
    rows = [line for line in tables.figures().splitlines() if line.startswith("| ") and "---" not in line]
    assert rows == [
        "| model | A | B |",
        "| `knn` | 0.500 | 0.500 |",
        "| `ridge` | stopped | 0.750 |",
        "| `kernel_ridge` | 0.250 | - |",
    ]
