"""`benchmarks/rivals.py`: what its tables say, and that the plain program of EASE is the model of that name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import rivals
from harness.data_sets import by_number
from harness.runs import LOOKS, TEST_ROWS, spread, write

from visterm.models import Ease


def figures(quality, **more):
    seconds = {"processor": spread([1.0, 3.0, 2.0]), "clock": spread([123.4])}
    return {"map": quality, "word_map": 0.25, "p@5": 0.5, "n_plus@5": 7.0, "tag_f1@5": 0.125, **seconds, **more}


def test_a_table_has_the_best_first_what_auto_is_ahead_by_and_what_is_not_installed():
    behind = figures(0.5, **{"auto less it": {"mean": 0.125, "low": 0.1, "high": 0.15}})
    methods = {"LightFM": {"missing": "not installed"}, "EASE in NumPy": behind, "auto": figures(0.625)}
    data = {"Pairs": {"about": "9 images × 7 tags", "methods": methods}}
    result = {"machine": {"processor": "one"}, "measured on": "test rows", "seed": 3, "data": data}
    rows = [line for line in "\n".join(rivals.tables(result)).splitlines() if line.startswith("| ")]
    assert rows[2:] == [
        "| `auto` | 0.6250 |  | 0.250 | 2.00 s |",
        "| EASE in NumPy | 0.5000 | +0.125 (+0.100…+0.150) | 0.250 | 2.00 s |",
        "| LightFM | not installed |  |  |  |",
    ]


def test_ease_in_ten_lines_scores_as_the_model_with_the_same_penalty():
    drawn = np.random.default_rng(0).random((60, 12)) < 0.3
    rows = by_number("pairs", "drawn", sp.csr_array(drawn.astype(np.float32))).final
    model = Ease(alpha=100.0).fit(None, rows.Y)
    expected = model.decision_function(rows.features(rows.judged))
    np.testing.assert_allclose(rivals.ease(rows), expected, atol=1e-5)


@pytest.mark.parametrize("missing", ["implicit ALS", "LightFM"])
def test_rivals_that_are_not_installed_are_named_and_not_run(missing, monkeypatch):
    monkeypatch.setattr(rivals, "MISSING", [missing])
    monkeypatch.setattr(rivals, "NUMBER_RIVALS", {missing: None, "EASE in NumPy": rivals.ease})
    drawn = np.random.default_rng(0).random((300, 12)) < 0.3
    methods = rivals.measure(by_number("pairs", "drawn", sp.csr_array(drawn.astype(np.float32))).final, 2)["methods"]
    assert methods[missing] == {"missing": "not installed"}
    assert len(methods["EASE in NumPy"]["processor"]["runs"]) == 2
    assert methods["EASE in NumPy"]["auto less it"]["low"] <= methods["EASE in NumPy"]["auto less it"]["high"]


def test_programs_that_measure_on_test_rows_say_so_in_a_log_once_a_day(tmp_path):
    for measured_on in (TEST_ROWS, "validation rows", TEST_ROWS):
        write({"measured on": measured_on}, tmp_path / f"{measured_on}.json")
    (line,) = (tmp_path / LOOKS).read_text().splitlines()
    assert json.loads(line)["figures"] == "test rows.json"
