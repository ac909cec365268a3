"""The PAMIR paper's comparison of search by several words, on tiny drawn data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import average_precision_score

from command_line import run_command
from planted import plant_corpus
from studies import run_study
from visterm.core.errors import DataError, UserError
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_formats.tables import read_table
from visterm.models.neighbours.knn import Knn
from visterm_research.comparison.feature_sets import PAPER_PARAMS
from visterm_research.comparison.methods import Method, Settings
from visterm_research.comparison.run import Comparison, Outcome
from visterm_research.comparison.search import unordered
from visterm_research.comparison.sources import Source
from visterm_research.comparison.trials import Judged, Trials
from visterm_research.pamir.five_tags import five_tags_part
from visterm_research.pamir.images import Division, Pictures, corel_pictures, words_of
from visterm_research.pamir.methods import (
    AUTO,
    BY_BLOCK,
    MORE_METHODS,
    NAMING,
    PAMIR,
    PAPER_BY_BLOCK,
    PAPER_METHODS,
    blocks,
    naming,
)
from visterm_research.pamir.pictures import shown_queries
from visterm_research.pamir.rows import PRODUCT, Encoded, SearchRows
from visterm_research.pamir.search_run import SearchRun
from visterm_research.pamir.study import STUDY, _for
from visterm_research.pamir.tables import frozen
from visterm_research.papers import read_paper
from visterm_research.scenes import DrawnLibrary

paper = read_paper("pamir")

PICTURES = 72
"""Of the small library: 60 to learn from and to choose by, 12 for the test."""

KNN = Method("k-NN", "knn", {"power": 1.0}, {"n_neighbors": unordered(1, 20)}, {"n_neighbors": 1}, trials=8)


@pytest.fixture(scope="module")
def corel(small_library: DrawnLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like Corel5k's, of drawn pictures with two to five of their true tags."""
    folder = tmp_path_factory.mktemp("corel")
    (folder / "images").mkdir()
    lines = ["image\tsplit\tlabels"]
    for number, picture in enumerate(small_library.pictures[:PICTURES]):
        shutil.copy(small_library.images / picture.file_name, folder / "images" / picture.file_name)
        tags = ",".join(picture.tags[: 2 + number % 4])
        lines.append(f"{picture.file_name}\t{'test' if number % 6 == 0 else 'train'}\t{tags}")
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def quick(corel: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    pytest.importorskip("matplotlib")
    return run_study("pamir", tmp_path_factory.mktemp("pamir"), data=[corel], quick=True, n_jobs=1)


def planted(n_divisions: int = 1, shown: tuple[int, ...] = ()) -> tuple[Pictures, Any, Any]:
    """A planted corpus as pictures without pixels, and its features."""
    corpus = plant_corpus(n_train=120, n_test=60, random_state=0)

    def named(Y: sp.csr_array, start: int) -> Corpus:
        tags = [[f"t{tag}" for tag in sp.csr_array(Y[[row]]).indices] for row in range(Y.shape[0])]
        images = [f"{start + row}.png" for row in range(Y.shape[0])]
        return Corpus.of(images, images, tags)

    development, test = named(corpus.Y_train, 0), named(corpus.Y_test, 120)
    divisions = tuple(Division(np.arange(120)[i::3], np.arange(120)[i + 1 :: 3]) for i in range(n_divisions))
    pictures = Pictures("planted", development, test, words_of(test), divisions, None, shown=shown)
    return pictures, corpus.X_train, corpus.X_test


def trials_of(folder: Path) -> Trials:
    return Trials(folder, n_jobs=1)


class Given(Encoded):
    """Rows that are there already."""

    def __init__(self, X: Any, X_test: Any) -> None:
        self._given = X, X_test

    def rows(self, pictures: Pictures, features: Any, number: int) -> SearchRows:
        return SearchRows(pictures, features, number, *self._given)


def planted_run(folder: Path, n_divisions: int = 1) -> SearchRun:
    pictures, X, X_test = planted(n_divisions, shown=(0,))
    return SearchRun(pictures, Comparison(folder, trials_of(folder / "results")), Given(X, X_test))


def judged(folder: Path, rows: SearchRows, model: str, settings: Settings) -> Judged:
    return trials_of(folder).test(rows, Method(model, model, settings))


def test_the_paper_puts_pamir_above_all_others_in_every_table() -> None:
    for table in (paper.TABLE_9, paper.TABLE_10, paper.TABLE_11, paper.TABLE_12, paper.TABLE_13):
        for shares in table.values():
            assert shares["PAMIR"] == max(shares.values())
    counts = paper.KIND_COUNTS
    assert counts["easy"] + counts["difficult"] == counts["one word"] + counts["several words"] == counts["all"]


def test_every_method_takes_its_settings() -> None:
    for method in (*PAPER_METHODS, *MORE_METHODS, AUTO):
        for settings in method.settings():
            MODELS.create(method.model, **settings)
        for settings in naming(method).settings():
            named = MODELS.create(method.model, **settings).get_params()
            assert named.items() >= NAMING.get(method.label, {}).items()
        assert method.settings()[0].items() >= (method.start or {}).items()
        assert len(STUDY.quick(method).settings()) <= 2
    assert len(naming(PAMIR).settings()) == 1


def test_blocks_are_the_papers_shares_of_a_picture() -> None:
    for ours, theirs, pixels in zip(BY_BLOCK, PAPER_BY_BLOCK, paper.TABLE_3, strict=True):
        assert ours.params["block"] == theirs.params["block"] == pixels / 384
        assert {**ours.params, **PAPER_PARAMS} == theirs.params


@pytest.mark.shared
def test_corel5k_has_the_words_and_queries_of_the_paper(shared: Path) -> None:
    rows = read_table(shared / "data/corel5k/labels.tsv")
    test = [row for row in rows if row.split == "test"]
    names = [row.image for row in test]
    corpus = Corpus.of(names, names, [list(row.tags) for row in test])
    pictures = Pictures("corel5k", corpus, corpus, words_of(corpus), (), None)
    queries = pictures.test_queries
    assert (len(pictures.words), len(queries)) == (179, 2241)
    assert np.mean(queries.n_relevant) == pytest.approx(2.37, abs=0.005)
    assert int((queries.n_words == 1).sum()) == 179


def test_development_pictures_are_divided_eight_to_one_by_each_seed(corel: Path) -> None:
    pictures = corel_pictures(corel, n_divisions=3, seed=4)
    for division in pictures.divisions:
        assert (division.train.size, division.valid.size) == (53, 7)
        np.testing.assert_array_equal(np.sort([*division.train, *division.valid]), np.arange(60))
    assert len({tuple(division.valid) for division in pictures.divisions}) == 3
    again = corel_pictures(corel, n_divisions=2, seed=5)
    np.testing.assert_array_equal(again.divisions[0].valid, pictures.divisions[1].valid)


def test_avgp_is_that_of_scikit_learn_for_each_query(tmp_path: Path) -> None:
    pictures, X, X_test = planted(shown=(3,))
    rows = SearchRows(pictures, blocks(32), 0, X, X_test)
    values = judged(tmp_path, rows, "ridge", {"alpha": 1.0}).values
    model = MODELS.create("ridge", alpha=1.0).fit(rows.train.X, rows.train.Y)
    scores = model.decision_function(X_test)
    Y = pictures.words.encode(pictures.test.tags).toarray() > 0
    counts = rows.train.Y.toarray().sum(axis=0)
    idf = np.log(rows.train.Y.shape[0] / counts)
    expected = [
        average_precision_score(Y[:, words].all(axis=1), scores[:, words] @ idf[words])
        for words in pictures.test_queries.words.toarray() > 0
    ]
    np.testing.assert_allclose(values["AvgP"], expected, atol=1e-6)
    words = pictures.test_queries.words.toarray()[3] > 0
    assert values["top"].shape == (1, 5)
    assert values["top"][0, 0] == np.argmax(scores[:, words] @ idf[words])


def test_words_are_multiplied_where_a_model_gives_probabilities(tmp_path: Path) -> None:
    pictures, X, X_test = planted()
    rows = SearchRows(pictures, blocks(32), 0, X, X_test)
    values = judged(tmp_path, rows, "mbrm", {}).values
    several = pictures.kinds["several words"]
    assert not np.array_equal(values["AvgP"][several], values[f"{PRODUCT}AvgP"][several])
    np.testing.assert_allclose(values["AvgP"][~several], values[f"{PRODUCT}AvgP"][~several])
    assert f"{PRODUCT}AvgP" not in judged(tmp_path, rows, "ridge", {}).values


def test_nothing_is_chosen_by_test_pictures(tmp_path: Path) -> None:
    run = planted_run(tmp_path)
    run.encoded = Given(run.rows(blocks(32)).X, None)
    run.choose(KNN, [blocks(32), blocks(64)])
    choice = run.choices["k-NN"]
    tried = {settings["n_neighbors"]: record["avgp"] for settings, record in choice.tried}
    assert choice.settings["n_neighbors"] == max(tried, key=tried.__getitem__)
    assert choice.features == blocks(32)


def test_figures_are_means_over_the_divisions_query_by_query(tmp_path: Path) -> None:
    run = planted_run(tmp_path, n_divisions=2)
    run.choose(KNN, [blocks(32)])
    run.judge("k-NN")
    found = run.found["k-NN"]
    first, second = (one.values["AvgP"] for one in found.judged)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(found.values["AvgP"], (first + second) / 2)


def test_five_tags_are_counted_word_by_word(tmp_path: Path) -> None:
    run = planted_run(tmp_path)
    pictures = run.pictures
    five_tags_part(run, blocks(32), [replace(KNN, box={})])
    (row,) = [row for row in run.comparison.document.tables[0]["rows"] if row[1] != "as published"]
    vocabulary = Vocabulary.from_lists(pictures.development.tags)
    rows = run.rows(blocks(32))
    model = Knn(n_neighbors=1, power=1.0).fit(rows.X, vocabulary.encode(pictures.development.tags))
    given = np.zeros((60, len(vocabulary)), bool)
    np.put_along_axis(given, model.annotate(rows.X_test, 5).ids, True, axis=1)
    right = given & (vocabulary.encode(pictures.test.tags).toarray() > 0)
    has = vocabulary.encode(pictures.test.tags).toarray().sum(axis=0)
    recalls = right.sum(axis=0)[has > 0] / has[has > 0]
    precisions = (right.sum(axis=0) / np.maximum(given.sum(axis=0), 1))[has > 0]
    assert row[2:4] == [f"{100 * precisions.mean():.2f} %", f"{100 * recalls.mean():.2f} %"]
    assert row[5] == str(int((recalls > 0).sum()))


def test_queries_to_show_are_those_named_or_chosen_without_looking_at_results() -> None:
    names = [f"{i}.png" for i in range(6)]
    tags = [["sky", "sea"], ["sky", "sea"], ["sky"], ["sky", "tree"], ["tree"], ["sea"]]
    corpus = Corpus.of(names, names, tags)
    pictures = Pictures("any", corpus, corpus, words_of(corpus), (), None)
    texts = pictures.test_queries.texts(pictures.words.tags)
    named = shown_queries(pictures, ["tree", "sea, sky"], [])
    assert [set(texts[query].split(", ")) for query in named] == [{"tree"}, {"sea", "sky"}]
    chosen = shown_queries(pictures, ["petals"], [(1, 3), (2, 1)])
    assert [set(texts[query].split(", ")) for query in chosen] == [{"sea"}, {"sky", "tree"}]


def test_a_timed_run_has_what_was_chosen_given_to_it() -> None:
    learned: dict[str, Any] = {"learned": {"epochs": 12.0, "alpha": 0.5, "C": 3.0}}
    settings: Settings = {"aggressiveness": 0.1}
    assert frozen("pamir", settings, learned) == {"aggressiveness": 0.1, "epochs": 12, "valid_share": 0.0}
    assert frozen("svm", {"C": None}, {"learned": {"C": 3.0}}) == {"C": 3.0}


def test_pamir_makes_its_queries_as_those_of_the_pictures_are_made() -> None:
    pictures = replace(planted()[0], max_words=2, max_subsets=50)
    assert _for(PAMIR, pictures).fixed == {"max_words": 2, "max_subsets": 50}


def test_the_quick_comparison_has_every_table_beside_the_papers_figures(quick: Outcome) -> None:
    results = json.loads((quick.report.parent / "results.json").read_text())
    tables = {part["caption"]: part for part in results["parts"] if isinstance(part, dict)}
    for start in ("Table I: corel5k", "Table II: drawn", "Table III on corel5k", "Table IV on corel5k", "Table V:"):
        assert any(caption.startswith(start) for caption in tables), start
    for number in ("VI", "VII on corel5k", "VIII on drawn", "IX on", "X on", "XI on", "XII on", "XIII on drawn"):
        assert any(caption.startswith(f"Table {number}") for caption in tables), number
    (results_table,) = [table for caption, table in tables.items() if caption.startswith("Table IX on corel5k")]
    rows = {row[0]: row for row in results_table["rows"]}
    assert {method.label for method in (*PAPER_METHODS, *MORE_METHODS)} <= set(rows)
    assert {"CMRM, product", "PLSA, product"} <= set(rows)
    assert rows["SVM"][-3:] == ["22.00 %", "13.80 %", "9.30 %"]
    assert all(row[1] != "–" for caption, table in tables.items() if "Table IV" in caption for row in table["rows"])
    assert all(tested["divisions"] == 2 for tested in results["tested"]["corel5k"].values())
    assert quick.unfinished == []
    report = quick.report.read_text()
    assert all(claim.order in report for claim in quick.claims)
    assert not any(
        figure in report for figure in ("10,000", "10000", "4,000", "aspects=400", "in brackets: in the paper")
    )
    for figure in ("figure-4-corel5k", "figure-5-drawn"):
        assert (quick.report.parent / "figures" / f"{figure}.png").stat().st_size > 2000


def test_a_second_run_has_nothing_left_to_do(quick: Outcome, corel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = quick.report.read_text()
    monkeypatch.setattr(Trials, "make", lambda *_, **__: pytest.fail("a model made again"))
    again = run_study("pamir", quick.report.parent, data=[corel], quick=True, n_jobs=1, minutes=0)
    assert again.unfinished == []
    assert again.report.read_text() == before


def test_without_time_nothing_is_drawn_or_encoded_and_all_is_listed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_study("pamir", tmp_path, quick=True, n_jobs=1, minutes=0)
    assert outcome.unfinished == ["The drawn library"]
    assert not (tmp_path / "data").exists()
    assert "## Not finished" in outcome.report.read_text()


def test_one_more_encoder_has_a_table_of_its_own(quick: Outcome, corel: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = sorted(path.name for path in (corel / "images").iterdir())
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(PICTURES, 8)).astype(np.float32))
    (tmp_path / "rows.names.txt").write_text("\n".join(names))
    shutil.copytree(quick.report.parent / "data", tmp_path / "out" / "data")  # what is drawn and encoded already
    outcome = run_study(
        "pamir",
        tmp_path / "out",
        data=[corel],
        models=["pamir", "cmrm", "knn"],
        encoder=f"precomputed:{tmp_path / 'rows.npy'}",
        quick=True,
        n_jobs=1,
    )
    report = outcome.report.read_text()
    assert "**Table IX on corel5k with precomputed:" in report
    assert "Left out on request: CMTT, PLSA, SVM, MBRM" in report
    assert "Without CMRM: these need counts of visterms, 0 or more" in report


def test_pictures_that_cannot_be_encoded_are_refused(corel: Path, tmp_path: Path) -> None:
    pictures = corel_pictures(corel, n_divisions=1, seed=0)
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    test = replace(pictures.test, images=[broken, *pictures.test.images[1:]])
    encoded = Encoded(Source(tmp_path, n_jobs=1, quick=True))
    with pytest.raises(DataError, match="has rows for 11 of 12 pictures of corel5k"):
        encoded.rows(replace(pictures, test=test), blocks(64), 0)


def test_models_outside_the_comparison_and_two_folders_are_refused(corel: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model 'vse_ens'; expected some of: cmrm, "):
        run_study("pamir", tmp_path, models=["vse_ens"])
    with pytest.raises(UserError, match="--data has 2 folders of Corel5k"):
        run_study("pamir", tmp_path, data=[corel, corel])


def test_the_command_gives_one_claim_a_line_and_the_report_last(quick: Outcome, corel: Path) -> None:
    folder = str(quick.report.parent)
    command = ["reproduce", "pamir", "--quick", "--jobs", "1", "--time-budget", "0", "--json", "-o", folder]
    done = run_command([*command, "--data", corel])
    assert done.returncode == 0, done.stderr
    *claims, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert claims == [claim.as_dict() for claim in quick.claims]
    assert last == {"report": str(quick.report), "unfinished": []}
