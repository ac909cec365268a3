"""Bands of tags by how many training images they have, and what `visterm evaluate` says of each."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from refusals import refused
from visterm import Tagger
from visterm.cli.command_line import app
from visterm.cli.evaluate import show_bands
from visterm.core.vocabulary import Vocabulary
from visterm.evaluation.evaluate_run import EvaluateRequest
from visterm.evaluation.summaries import band_summary
from visterm.metrics import measure
from visterm.metrics.annotation import band_values, bands_from, frequency_bands, thirds_of


def parts(bands):
    return [(band.name, band.least, band.most, band.tags.tolist()) for band in bands]


def test_tags_are_parted_at_fixed_numbers_of_training_images():
    assert parts(frequency_bands([100, 1, 4, 5, 0, 2000, 19])) == [
        ("none", 0, 0, [4]),
        ("1 to 4", 1, 4, [1, 2]),
        ("5 to 19", 5, 19, [3, 6]),
        ("100 or more", 100, -1, [0, 5]),
    ]


def test_tags_that_are_all_in_one_band_are_parted_into_thirds():
    assert parts(frequency_bands([300, 900, 150, 1500, 120, 400])) == [
        ("rare (120 to 150)", 120, 150, [2, 4]),
        ("middling (300 to 400)", 300, 400, [0, 5]),
        ("frequent (900 to 1,500)", 900, 1500, [1, 3]),
    ]


def test_tags_as_frequent_as_each_other_are_in_one_third():
    assert parts(thirds_of([1, 1, 1, 1, 2, 3])) == [
        ("rare (1)", 1, 1, [0, 1, 2, 3]),
        ("frequent (2 to 3)", 2, 3, [4, 5]),
    ]
    assert parts(thirds_of([7, 7])) == [("rare (7)", 7, 7, [0, 1])]
    assert [band.tags.size for band in thirds_of([1] * 9 + [2])] == [9, 1]
    assert parts(frequency_bands([7, 7])) == [("5 to 19", 5, 19, [0, 1])]
    assert parts(thirds_of([1, 1, 2, 2, 2, 3, 3])) == [
        ("rare (1)", 1, 1, [0, 1]),
        ("middling (2)", 2, 2, [2, 3, 4]),
        ("frequent (3)", 3, 3, [5, 6]),
    ]


def test_tags_below_the_first_band_are_in_none_and_no_tags_make_no_bands():
    assert parts(bands_from([1, 2, 3], [2, 3])) == [("2", 2, 2, [1]), ("3 or more", 3, -1, [2])]
    assert frequency_bands([]) == []


SCORES = np.array([[4, 3, 2, 1], [4, 1, 3, 2], [1, 4, 2, 3.0]])
Y = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]])


def test_a_band_is_measured_by_its_own_tags_among_all():
    # Two tags an image: 0 and 1, 0 and 2, 1 and 3. Tag 0 is right in 2 of 2 and of 3; tag 1 in 2 of 2 and of 2.
    values = measure(SCORES, Y, ["tag_p@2", "tag_r@2", "word_map"])
    rare, frequent, absent = frequency_bands([200, 3, 30, 30])[0], *frequency_bands([200, 3, 30, 30])[:0:-1]
    found = band_values(values, rare, 2)
    assert {name: array.tolist() for name, array in found.items()} == {
        "tag_p@2": [1.0], "tag_r@2": [1.0], "tag_f1@2": [1.0], "n_plus@2": [1.0], "word_map": [1.0]
    }  # fmt: skip
    found = band_values(values, frequent, 2)
    assert found["tag_f1@2"].tolist() == [pytest.approx(0.8)]  # of 1 and 2 / 3
    assert band_values(values, absent, 2) == {}


def evaluation():
    vocabulary = Vocabulary(["a", "b", "c", "d"], [200, 3, 30, 30])
    values = measure(SCORES, Y, ["tag_p@5", "tag_r@5", "word_map"])
    worse = measure(-SCORES, Y, ["tag_p@5", "tag_r@5", "word_map"])
    return SimpleNamespace(vocabulary=vocabulary, Y=sp.csr_array(Y), values=[values, worse])


def test_the_summary_counts_tags_and_images_and_gives_intervals():
    bands = band_summary(evaluation(), ["one", "two"])
    assert [(band["band"], band["tags"], band["measured_tags"], band["images"]) for band in bands] == [
        ("1 to 4", 1, 1, 2), ("20 to 99", 2, 0, 0), ("100 or more", 1, 1, 3)
    ]  # fmt: skip
    assert [run["run"] for run in bands[0]["runs"]] == ["one", "two"]
    assert bands[1]["runs"][0]["metrics"] == {}
    assert bands[2]["most"] is None
    # All four tags are given to all three images.
    assert bands[0]["runs"][0]["metrics"]["tag_p@5"] == {"mean": 2 / 3, "low": 2 / 3, "high": 2 / 3}
    assert bands[0]["runs"][0]["metrics"]["n_plus@5"] == {"mean": 1.0}
    assert bands[0]["runs"][1]["metrics"]["word_map"]["mean"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_the_table_has_a_dash_where_nothing_could_be_measured(capsys):
    show_bands(band_summary(evaluation(), ["one", "two"]))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "one:"
    assert shown[1].split("  ")[0] == "training photos"
    assert shown[3].split() == ["20", "to", "99", "2", "0", "0", *"------"]
    assert shown[5] == "two:"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Images by number, of which one in eight has a rare tag."""
    folder = tmp_path_factory.mktemp("bands")
    rng = np.random.default_rng(0)
    rows = ["image,tags,split"]
    rows += [f"{i},{'ab'[i % 2]}{';rare' if i in (3, 4) else ''},train" for i in range(40)]
    rows += [f"{i},{'abc'[rng.integers(2)]};rare;c,test" for i in range(40)]
    (folder / "tags.csv").write_text("\n".join([*rows, "3,c,train"]), encoding="utf-8")
    Tagger(encoder="ids", model="prior", n_jobs=1).fit(None, folder / "tags.csv").save(folder / "run")
    return folder


def evaluate(library, *options):
    tags = ("--tags", library / "tags.csv")
    return CliRunner().invoke(app, [str(part) for part in ("evaluate", library / "run", *tags, *options)])


def test_the_command_says_bands_in_words_and_in_json_only_with_a_report(library):
    metric = ("--metric", "tag_r@1")
    answer = json.loads(evaluate(library, *metric, "--report", library / "page", "--json").stdout)
    assert set(answer) == {"tag_r@1", "bands"}
    assert [(band["band"], band["tags"]) for band in answer["bands"]] == [("1 to 4", 2), ("20 to 99", 2)]
    assert {"mean", "low", "high"} == set(answer["bands"][0]["runs"][0]["metrics"]["tag_r@5"])
    assert set(json.loads(evaluate(library, *metric, "--json").stdout)) == {"tag_r@1"}
    assert "20 to 99" in evaluate(library, *metric, "--report", library / "page").stdout
    assert "20 to 99" not in evaluate(library, *metric).stdout
    with refused("bands", value=True):
        EvaluateRequest(runs=[library / "run"], queries="tags", bands=True).check()


def test_the_report_always_has_bands(library):
    assert evaluate(library, "--metric", "map", "--report", library / "report").exit_code == 0
    page = (library / "report" / "index.html").read_text(encoding="utf-8")
    assert "Rare and frequent tags" in page
    assert "<th scope=row>20 to 99</th>" in page
    written = json.loads((library / "report" / "results.json").read_text(encoding="utf-8"))
    assert [band["band"] for band in written["bands"]] == ["1 to 4", "20 to 99"]
