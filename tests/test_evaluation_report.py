"""`visterm evaluate --report`: a page that is whole, well formed and needs nothing, and figures that agree with it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from test_cli import visterm
from tiny_scenes import scene
from visterm import Tagger
from visterm.core.errors import DataError, StorageError, UserError
from visterm.data.corpus import Corpus
from visterm.data.images import data_uri
from visterm.evaluation.evaluate import evaluate_taggers
from visterm.evaluation.evaluate_run import write_report
from visterm.evaluation.html_report import SMALL_THUMBNAIL_SIDE, Report
from visterm.evaluation.pages import (
    N_PICTURES,
    N_QUERY_PICTURES,
    N_ROWS,
    Series,
    annotation_page,
    bar_chart,
    best_and_worst,
    line_chart,
    query_page,
)
from visterm.evaluation.query_evaluation import evaluate_queries
from visterm.evaluation.summaries import (
    PAGE_METRICS,
    annotation_results,
    annotation_summary,
    query_results,
    query_summary,
)
from visterm.metrics import average_precisions

VOID = {"meta", "img", "link", "br"}
METRICS = ("map", "p@2", "tag_f1@2", "n_plus@2", "word_map")


class Outline(HTMLParser):
    """Reads a page as a browser would, and refuses tags that are not closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.headings, self.found = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def check_page(html):
    """Refuse a page that is not well formed, skips headings, leaves pictures without words or fetches something."""
    page = Outline(html)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert all(image["alt"] and image["src"].startswith("data:image/jpeg;base64,") for image in page.all("img"))
    assert all(svg["aria-label"] for svg in page.all("svg"))
    assert not re.search(r"https?:|<link|<script|@import|url\(|nan|None", re.sub(r'src="[^"]*"', "", html))
    return page


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Pictures of stripes and dots with tags, in splits, with a name that HTML must not read as its own."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "images").mkdir()
    rows = ["image,tags,split"]
    for i in range(36):
        kind = ("stripes", "dots")[i % 2]
        name = f"{i}.png" if i else "<b>0&.png"
        Image.fromarray(scene(kind, i, (48, 32))).save(folder / "images" / name)
        tags = [kind, "<i>red</i>"] if i % 3 == 0 else [kind]
        rows.append(f"{name},{';'.join([*tags, 'rare'] if i in (4, 29) else tags)},{'train' if i < 20 else 'test'}")
    (folder / "tags.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def taggers(library):
    """Two that look at the pictures alike, and one that knows fewer tags and looks otherwise."""
    corpus = Corpus.read(library / "images", library / "tags.csv")
    made = {}
    for name, model, words, least in (("ridge", "ridge", 30, 1), ("prior", "prior", 30, 1), ("few", "ridge", 20, 3)):
        tagger = Tagger(model=model, encoder_params={"codebook": words}, min_count=least, n_jobs=1).fit(corpus)
        tagger.save(library / name)
        made[name] = tagger
    return made


@pytest.fixture(scope="module")
def held_out(library):
    return Corpus.read(library / "images", library / "tags.csv").select("test")


def annotated(taggers, corpus, names):
    wanted = list(dict.fromkeys([*METRICS, *PAGE_METRICS]))
    found = evaluate_taggers([taggers[name] for name in names], corpus, wanted)
    results = annotation_results(found, annotation_summary(found, names, METRICS))
    return found, results, annotation_page(found, names, results).html()


def test_the_page_of_a_run_has_its_measures_curves_tags_and_pictures(taggers, held_out):
    _, results, html = annotated(taggers, held_out, ["ridge"])
    page = check_page(html)
    assert len(page.all("img")) == 16  # eight best and eight worst of the test images
    assert len(page.all("svg")) == 2 + 4
    assert "Significant differences" not in html
    figure = results["runs"][0]["metrics"]["map"]
    assert f"<td>{figure['mean']:.3f}<small>{figure['low']:.3f} to {figure['high']:.3f}</small></td>" in html
    assert figure["low"] < figure["mean"] < figure["high"]
    assert "low" not in results["runs"][0]["metrics"]["n_plus@2"]
    assert "&lt;i&gt;red&lt;/i&gt;" in html
    assert len(html) < 200_000
    chips = re.findall(r'<span class="tag( right)?" title="score [-\d.]+">(stripes|dots)</span>', html)
    assert {right for right, _ in chips} == {"", " right"}


def test_a_run_alone_has_the_values_that_it_always_had(taggers, held_out):
    tagger = taggers["ridge"]
    X, kept, _ = tagger.encoder.encode(held_out.images)
    Y = tagger.vocabulary.encode([held_out.tags[i] for i in kept])
    expected = np.nanmean(average_precisions(tagger.model.decision_function(X), Y))
    assert evaluate_taggers([tagger], held_out, ["map"]).mean("map") == pytest.approx(expected)


def test_runs_with_other_tags_are_compared_on_those_that_all_know(taggers, held_out):
    found, results, html = annotated(taggers, held_out, ["ridge", "prior", "few"])
    check_page(html)
    assert "rare" in taggers["ridge"].vocabulary
    assert "rare" not in found.vocabulary
    assert results["tag_names"] == ["<i>red</i>", "dots", "stripes"]
    few = taggers["few"]
    X, _, _ = few.encoder.encode(held_out.images)
    alone = average_precisions(few.model.decision_function(X), few.vocabulary.encode(held_out.tags))
    np.testing.assert_allclose(found.values[2]["map"], alone)
    ridge = taggers["ridge"]
    X, _, _ = ridge.encoder.encode(held_out.images)
    columns = [ridge.vocabulary.index(tag) for tag in found.vocabulary]
    cut = average_precisions(ridge.model.decision_function(X)[:, columns], found.vocabulary.encode(held_out.tags))
    np.testing.assert_allclose(found.values[0]["map"], cut)
    assert [(pair["first"], pair["second"]) for pair in results["pairs"]] == [
        ("ridge", "prior"), ("ridge", "few"), ("prior", "few"),
    ]  # fmt: skip
    assert set(results["pairs"][0]) == {"first", "second", "map", "p@2", "word_map"}
    assert "corrected for the 3 pairs (Holm)" in html


def test_the_table_of_differences_says_who_is_better_from_both_sides(taggers, held_out):
    _, results, html = annotated(taggers, held_out, ["ridge", "prior"])
    pair = results["pairs"][0]["map"]
    assert pair["better"] == 1
    table = re.search(r"<caption>map</caption>.*?</table>", html)[0]
    assert f"<td class=good>{pair['mean']:+.3f}<small>better, p = {pair['holm_p']:.2g}</small>" in table
    assert f"<td class=poor>{-pair['mean']:+.3f}<small>worse, p = {pair['holm_p']:.2g}</small>" in table


def test_runs_that_share_no_tag_cannot_be_compared(taggers, held_out):
    other = Tagger(model="prior", encoder_params={"codebook": 8}, n_jobs=1)
    other.fit(list(held_out.images[:6]), [["elsewhere"]] * 6)
    with pytest.raises(DataError, match="no tag in common"):
        evaluate_taggers([taggers["ridge"], other], held_out, ["map"])


def test_pictures_that_are_gone_are_blanks_with_their_names(taggers, held_out, tmp_path):
    found, results, _ = annotated(taggers, held_out, ["ridge"])
    moved = Corpus.of([tmp_path / name for name in held_out.names], held_out.names, held_out.tags)
    object.__setattr__(found, "corpus", moved)
    html = annotation_page(found, ["ridge"], results).html()
    page = check_page(html)
    blanks = [attrs for attrs in page.all("div") if attrs.get("class") == "blank"]
    assert len(blanks) == 16
    assert page.all("img") == []
    assert any(blank["aria-label"].startswith("29.png: ") for blank in blanks)


def test_images_by_number_have_no_pictures_and_the_page_says_so(tmp_path):
    learned = "image,tags\n" + "\n".join(f"{i},{'a;b' if i % 2 else 'b;c'}" for i in range(12))
    (tmp_path / "pairs.csv").write_text(learned, encoding="utf-8")
    (tmp_path / "held.csv").write_text(
        "image,tags\n" + "\n".join(f"{i},{'c' if i % 2 else 'a'}" for i in range(8)), encoding="utf-8"
    )
    tagger = Tagger(encoder="ids", model="prior", n_jobs=1).fit(None, tmp_path / "pairs.csv")
    held = Corpus.read_names(tmp_path / "held.csv")
    _, _, html = annotated({"ids": tagger}, held, ["ids"])
    page = check_page(html)
    assert "known by name or number only" in html
    assert page.all("img") == []
    found = evaluate_taggers([tagger], held, ["map"])
    [ranking] = found.best_tags([1], 5)
    assert [found.vocabulary.tags[tag] for tag in ranking.ids] == ["c"]  # it learned a and b of this image
    found = evaluate_queries([tagger], held)
    assert found.texts == ["a", "c"]
    html = query_page(found, ["ids"], query_results(found, query_summary(found, ["ids"]))).html()
    assert check_page(html).all("img") == []
    assert "known by name or number only" in html
    told = Corpus.read_names(tmp_path / "pairs.csv")
    with pytest.raises(DataError, match="No photo remains to be found"):
        evaluate_queries([tagger], told)


def test_the_page_stays_below_3_mb_even_with_pictures_of_noise():
    noise = np.random.default_rng(0).integers(0, 256, (SMALL_THUMBNAIL_SIDE, SMALL_THUMBNAIL_SIDE, 3), dtype=np.uint8)
    assert max(N_ROWS * N_QUERY_PICTURES, 2 * N_PICTURES) * len(data_uri(noise, SMALL_THUMBNAIL_SIDE)) < 2.8e6


def test_the_page_of_queries_has_kinds_curves_and_what_was_found(taggers, held_out):
    names = ["ridge", "prior"]
    found = evaluate_queries([taggers[name] for name in names], held_out)
    results = query_results(found, query_summary(found, names))
    html = query_page(found, names, results).html()
    page = check_page(html)
    n_queries = len(found.texts)
    assert n_queries == 5  # red, dots, stripes, and red with each
    assert len(page.all("img")) == n_queries * 2 * 5
    assert len(page.all("svg")) == 2
    kinds = html[html.index("Measures by kind of query") :]
    measure, table = re.findall(r"<caption>(\w+)</caption>(.*?)</table>", kinds, re.DOTALL)[0]
    assert measure == "AvgP"
    assert re.findall("<th scope=col>(.*?)</th>", table) == ["queries", "number", *names]
    means = [run["kinds"]["all"]["AvgP"]["mean"] for run in results["runs"]]
    assert re.findall(r"<td class=best>([\d.]+)", table)[0] == f"{max(means):.3f}"  # of all queries, the first row
    run = results["runs"][0]
    assert run["precision_at_rank"][9] == pytest.approx(run["kinds"]["all"]["P10"]["mean"], abs=1e-6)
    assert run["of_queries"]["AvgP"] == pytest.approx(found.values[0]["AvgP"].tolist(), abs=1e-6)
    assert results["query_texts"] == found.texts
    [best] = found.best_images([0], 16)
    scores = taggers["ridge"].model.decision_function(taggers["ridge"].encoder.encode(held_out.images)[0])
    column = scores[:, taggers["ridge"].vocabulary.index(found.texts[0])]
    assert best.ids.tolist() == np.lexsort((np.arange(16), -column)).tolist()
    relevant = [image for image, tags in enumerate(held_out.tags) if found.texts[0] in tags]
    first = html.split("<h4>")[1 + _place(html, found.texts[0])]
    ticked = [cls == "right" for cls in re.findall(r'<figure class="(right)?"', first)][:5]
    assert ticked == [image in relevant for image in best.ids[:5]]


def _place(html, text):
    """Return which of the queries of the page has a text."""
    headings = [heading.split(" <small>")[0] for heading in html.split("<h4>")[1:]]
    return headings.index(text.replace("<", "&lt;").replace(">", "&gt;"))


def test_the_best_and_the_worst_queries_are_in_one_list_each():
    values = np.array([1.0, 0.2, 1.0, np.nan, 0.2, 0.5])
    n_relevant = np.array([1, 4, 3, 0, 9, 2])
    assert best_and_worst(values, n_relevant, 2) == ([2, 0], [4, 1])
    assert best_and_worst(values, n_relevant, 9) == ([2, 0, 5], [4, 1])
    assert best_and_worst(values[:1], n_relevant[:1], 3) == ([0], [])


def test_a_product_is_for_probabilities_only(taggers, held_out):
    with pytest.raises(UserError, match="are not probabilities"):
        evaluate_queries([taggers["ridge"]], held_out, combine="product")
    with pytest.raises(UserError, match="combine is 'mean'"):
        evaluate_queries([taggers["ridge"]], held_out, combine="mean")


def test_lines_and_bars_lie_where_their_values_say():
    svg = line_chart("T", "k", "share", [[0, 2], [0, 2]], [Series("a<b", [0.0, 1.0]), Series("c", [0.5, 0.25])])
    Outline(svg)
    lines = [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(r'points="([^"]*)"', svg)
    ]
    (left, bottom), (right, top) = lines[0]
    assert left < right
    assert top < bottom
    assert lines[1][0] == pytest.approx((left, (bottom + top) / 2), abs=0.11)
    assert lines[1][1] == pytest.approx((right, bottom - (bottom - top) / 4), abs=0.11)
    assert "a&lt;b" in svg
    bars = bar_chart("T", "AP", [("sea", "(3)"), ("sky", "(1)")], [Series("one", [1.0, 0.5])])
    Outline(bars)
    full, half = (float(width) for width in re.findall(r'width="([\d.]+)"', bars))
    assert half == pytest.approx(full / 2, abs=0.1)
    assert bar_chart("T", "AP", [("sea", "")], [Series("one", [float("nan")])]).count("<rect") == 0


def test_a_report_replaces_a_report_and_nothing_else(tmp_path):
    page = Report("first", "")
    write_report(tmp_path / "report", page, {"x": 1})
    write_report(tmp_path / "report", Report("second", ""), {"x": 2})
    assert "second" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report" / "results.json").read_text()) == {"x": 2}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "index.html").write_text("precious")
    with pytest.raises(StorageError, match="theirs exists and is not a report of visterm"):
        write_report(tmp_path / "theirs", page, {})
    assert (tmp_path / "theirs" / "index.html").read_text() == "precious"


def test_the_command_compares_runs_and_writes_the_report(library, taggers, tmp_path):
    options = (library / "images", "--tags", library / "tags.csv", "--against", library / "prior")
    done = visterm("evaluate", library / "ridge", *options, "--report", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [answer] = [json.loads(line) for line in done.stdout.splitlines()]
    assert answer["pairs"][0]["map"]["better"] == 1
    assert answer["runs"][0]["metrics"]["map"]["mean"] > answer["runs"][1]["metrics"]["map"]["mean"]
    assert "The report is out/index.html" in done.stderr
    check_page((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    written = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert written["runs"][0]["metrics"] == answer["runs"][0]["metrics"]
    shown = visterm("evaluate", library / "ridge", *options, cwd=tmp_path)
    assert f"map: {library / 'ridge'} is better than {library / 'prior'} (Wilcoxon p = " in shown.stdout
    queries = visterm("evaluate", library / "ridge", *options, "--queries", "tags", "--report", "out", cwd=tmp_path)
    assert queries.returncode == 0, queries.stderr
    assert "find images by words" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    refused = visterm("evaluate", library / "ridge", *options, "--report", library / "images", cwd=tmp_path)
    assert refused.returncode == 2
    assert "it is not replaced" in refused.stderr
