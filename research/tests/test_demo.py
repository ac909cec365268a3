"""The demo: it writes what it says, its report needs no other file, and it leaves other people's folders alone."""

import json
import re

import numpy as np
import pytest

from visterm.core.errors import StorageError
from visterm.core.types import Tag
from visterm.core.vocabulary import Vocabulary
from visterm.evaluation import Report, Shown
from visterm.tagging.tagger import Tagger
from visterm_research.demo import FEWEST, HEADER, Search, marked, meaning_of, run_demo, shown_searches, shown_tags
from visterm_research.scenes import queries_of


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo") / "out", n_scenes=120, seed=1, n_jobs=1)


def bold(html):
    rows = re.findall(r"<tr><th scope=row>(.*?)</tr>", html)
    return {re.match(r"\w+", row)[0]: [float(cell) for cell in re.findall(r"class=best>([\d.]+)", row)] for row in rows}


def test_it_writes_a_library_a_run_a_catalogue_and_a_report(demo):
    folder = demo.report.parent
    assert sorted(path.name for path in folder.iterdir()) == [
        "catalogue", "library", "manifest.json", "report.html", "run",
    ]  # fmt: skip
    assert len((folder / "library" / "truth.jsonl").read_text("utf-8").splitlines()) == 120
    assert len(Tagger.load(folder / "run", n_jobs=1).vocabulary) > 50
    assert [row[0] for row in demo.rows] == ["wsabie", "knn", "ridge", "prior"]
    assert all(len(row) == len(HEADER) for row in demo.rows)
    assert all(float(cell) >= 0 for row in demo.rows for cell in row[1:])


def test_its_report_needs_nothing_from_elsewhere(demo):
    html = demo.report.read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]*)"', html)
    assert len(sources) >= 24
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert html.count("src=") == len(sources)
    assert not re.search(r"https?:|<link|<script|@import|url\(", html)


def test_a_second_demo_replaces_an_earlier_one_only(demo, tmp_path):
    assert json.loads((demo.report.parent / "manifest.json").read_text())["kind"] == "demo"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "report.html").write_text("precious")
    with pytest.raises(StorageError, match="theirs exists and is not a demo of visterm"):
        run_demo(theirs, n_scenes=100)
    assert [path.name for path in theirs.iterdir()] == ["report.html"]
    assert (theirs / "report.html").read_text() == "precious"
    with pytest.raises(StorageError, match="not a demo"):
        run_demo(demo.report, n_scenes=100)


def test_the_best_of_each_column_is_marked_ties_included():
    report = Report("", "")
    report.cells(("model", "a", "b"), marked([["one", "0.5", "9"], ["two", "0.4", "10"], ["three", "0.5", "2"]]))
    assert bold(report.parts[0]) == {"one": [0.5], "two": [10.0], "three": [0.5]}


def test_tags_are_escaped_and_the_right_ones_are_marked():
    report = Report("", "")
    tags = [Tag("<b>", 1.0), Tag("sea", 0.5)]
    report.tagged([(Shown(np.zeros((4, 4, 3), np.uint8)), "", tags, {1}, ["Meer"])])
    assert 'class="tag" title="score 1.00">&lt;b&gt;<' in report.parts[0]
    assert 'class="tag right" title="score 0.50">sea<' in report.parts[0]
    assert "people said: Meer" in report.parts[0]


def test_a_search_asks_for_all_its_words_and_none_of_those_with_a_minus():
    search = Search(("rowing boat", "lake"), ("duck",))
    assert (search.text, search.words) == ('"rowing boat" lake -duck', ["rowing boat", "lake", "-duck"])
    assert search.suits({"lake", "rowing boat", "sky"})
    assert not search.suits({"lake", "rowing boat", "duck"})
    assert not search.suits({"lake"})


def test_searches_that_are_shown_name_things_that_several_pictures_show():
    pictures = (
        [{"house", "oak", "roof", "sky"}] * 9
        + [{"car", "road", "red", "sky"}] * 8
        + [{"cow", "sky"}] * 8
        + [{"sky"}] * 10
    )
    shown = shown_searches(queries_of([tuple(sorted(tags)) for tags in pictures]), pictures)
    assert {word for search in shown for word in (*search.required, *search.excluded)} <= {
        "house",
        "oak",
        "car",
        "road",
        "cow",
    }
    assert [search.required for search in shown] == [("cow",), ("house", "oak"), ("car", "road")]
    assert all(sum(map(search.suits, pictures)) >= FEWEST for search in shown)


def test_tags_that_are_shown_are_those_that_are_written_in_most_ways():
    vocabulary = Vocabulary(["house", "Haus", "maison", "tree", "Baum", "car", "Auto"], [50, 5, 9, 80, 30, 70, 2])
    assert shown_tags(vocabulary, 300, 5) == ["house"]
    assert (meaning_of("Haus"), meaning_of("zeppelin")) == ("house", "zeppelin")
