"""`visterm evaluate --queries`: the protocol of the PAMIR paper on runs, in Python and from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from planted import plant_corpus
from refusals import refused
from test_cli import visterm
from visterm import Catalogue, Tagger
from visterm.core.errors import DataError, UserError
from visterm.core.queries import weigh_words
from visterm.data.corpus import Corpus
from visterm.data.tag_queries import QueryRow, queries_of_tags, read_query_file
from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run
from visterm.evaluation.query_evaluation import evaluate_queries, learned_part
from visterm.metrics.retrieval import rank_queries
from visterm.metrics.significance import compare_pairs, interval_of

WORDS = [f"word{letter}" for letter in "abcdefghijkl"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Planted features in a file, and a table of tags with splits, for the encoder `precomputed`."""
    folder = tmp_path_factory.mktemp("queries")
    planted = plant_corpus(n_train=200, n_test=80, random_state=6)
    X = np.concatenate([planted.X_train, planted.X_test])
    Y = np.concatenate([planted.Y_train.toarray(), planted.Y_test.toarray()])
    names = [f"{i}.jpg" for i in range(len(X))]
    np.save(folder / "features.npy", X)
    (folder / "features.names.txt").write_text("\n".join(names), encoding="utf-8")
    with (folder / "tags.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "tags", "split"])
        for i, row in enumerate(Y):
            table.writerow([names[i], ";".join(WORDS[t] for t in np.flatnonzero(row)), "train" if i < 200 else "test"])
    return folder, planted


@pytest.fixture(scope="module")
def runs(library):
    """PAMIR and the tag frequencies, saved."""
    folder, _ = library
    corpus = Corpus.read_names(folder / "tags.csv")
    for model, settings in (("pamir", {"epochs": 20}), ("prior", {})):
        features = f"precomputed:{folder / 'features.npy'}"
        tagger = Tagger(encoder=features, model=model, model_params=settings, n_jobs=1)
        tagger.fit(corpus).save(folder / model)
    return folder / "pamir", folder / "prior"


def measured(library):
    corpus = Corpus.read_names(library[0] / "tags.csv")
    return corpus.select("test"), learned_part(corpus)


def test_the_measures_are_those_of_the_models_scores_with_idf_weights(library, runs):
    _, planted = library
    tagger = Tagger.load(runs[0])
    corpus, learned = measured(library)
    found = evaluate_queries([tagger], corpus, learned=learned, min_count=1, combine="sum")
    queries = queries_of_tags(planted.Y_test)
    counts = np.asarray(planted.Y_train.sum(axis=0)).ravel()
    weights = queries.words.toarray() * -np.log(counts / 200)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    expected = rank_queries(tagger.model.decision_function(planted.X_test), weights, queries.relevant)
    np.testing.assert_allclose(found.values[0]["AvgP"], expected.average_precision())
    assert found.texts == queries.texts(WORDS)
    interval = interval_of(found.values[0]["AvgP"])
    assert interval.low < interval.mean < interval.high
    assert interval.mean == found.mean("AvgP") == pytest.approx(expected.average_precision().mean())


def test_queries_are_seen_if_an_image_learned_from_has_all_their_words(library, runs):
    _, planted = library
    corpus, learned = measured(library)
    found = evaluate_queries([Tagger.load(runs[0])], corpus, learned=learned, max_words=None)
    captions = [set(np.flatnonzero(row)) for row in planted.Y_train.toarray()]
    queries = [{WORDS.index(word) for word in text.split(", ")} for text in found.texts]
    seen = [any(query <= caption for caption in captions) for query in queries]
    assert found.kinds["seen"].tolist() == seen
    assert found.kinds["test only"].sum() == len(queries) - sum(seen) > 0
    assert "seen" not in evaluate_queries([Tagger.load(runs[0])], corpus).kinds


def test_two_runs_are_compared_on_the_same_queries(library, runs):
    corpus, _ = measured(library)
    found = evaluate_queries([Tagger.load(run) for run in runs], corpus)
    [pair] = compare_pairs([values["AvgP"] for values in found.values])
    assert pair.better() == 1
    assert pair.difference.low > 0
    assert pair.difference.n == len(found.texts)


def test_queries_of_a_file_are_judged_as_it_says(library, runs, tmp_path):
    corpus, _ = measured(library)
    file = tmp_path / "clicks.csv"
    file.write_text(
        'query,image,relevance\n"worda, wordb",200.jpg,1\n"worda, wordb",201.jpg,0\nwordc -worda,205.jpg,1\n'
        'no such thing,206.jpg,1\n12" ruler,206.jpg,1\nworda,1.jpg,1\n',
        encoding="utf-8",
    )
    found = evaluate_queries([Tagger.load(runs[0])], corpus, read_query_file(file))
    assert found.texts == ["worda, wordb", "wordc -worda"]
    assert found.n_relevant.tolist() == [1, 1]
    assert found.left_out == 3


def test_a_word_that_is_twice_in_a_query_of_a_file_weighs_as_much_as_in_a_search(library, runs):
    corpus, _ = measured(library)
    tagger, text = Tagger.load(runs[0]), "worda worda wordb"
    found = evaluate_queries([tagger], corpus, [QueryRow(text, "200.jpg", 1.0), QueryRow(text, "201.jpg", 0.0)])
    typed = weigh_words(tagger.vocabulary.query(text).weights, tagger.idf)
    np.testing.assert_array_equal(found.searches[0].weights.toarray(), typed.toarray())


def test_graded_relevances_of_a_file_are_measured_by_ndcg_and_shown(library, runs, tmp_path):
    folder, _ = library
    corpus, _ = measured(library)
    file = tmp_path / "clicks.csv"
    lines = [f"{query},{image}.jpg,{clicks}" for query in ("worda", "wordb") for image, clicks in ((200, 3), (203, 1))]
    file.write_text("query,image,relevance\n" + "\n".join(lines), encoding="utf-8")
    found = evaluate_queries([Tagger.load(runs[0])], corpus, read_query_file(file))
    assert (found.values[0]["nDCG10"] <= 1).all()
    asked = ("--tags", folder / "tags.csv", "--queries", file, "--report", "report")
    shown = visterm("evaluate", runs[0], *asked, cwd=tmp_path)
    assert f"{found.mean('nDCG10'):.3f}" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert shown.stdout.splitlines()[0].split()[:6] == ["queries", "number", "AvgP", "BEP", "P10", "nDCG10"]
    assert f"{found.mean('nDCG10'):.4f}" in shown.stdout.splitlines()[1]


def test_nothing_to_measure_is_said_with_what_to_check(library, runs, tmp_path):
    corpus, _ = measured(library)
    file = tmp_path / "q.csv"
    file.write_text("query,image\nworda,nowhere.jpg\n", encoding="utf-8")
    tagger = Tagger.load(runs[0])
    with pytest.raises(DataError, match="Check that the query file has the same photo names as the tag file"):
        evaluate_queries([tagger], corpus, read_query_file(file))
    with pytest.raises(DataError, match="words that the run knows and at least 1000 of these photos have"):
        evaluate_queries([tagger], corpus, min_count=1000)
    with pytest.raises(DataError, match="There are no photos to measure on"):
        evaluate_queries([tagger], corpus.subset([]))


def test_the_command_prints_kinds_of_queries_and_who_is_better(library, runs, tmp_path):
    folder, _ = library
    tags = ("--tags", folder / "tags.csv", "--queries", "tags", "--against", runs[1])
    [answer] = [
        json.loads(line) for line in visterm("evaluate", runs[0], *tags, "--json", cwd=tmp_path).stdout.splitlines()
    ]
    assert set(answer["runs"][0]["kinds"]) >= {"all", "easy", "difficult", "one word", "several words", "seen"}
    assert answer["runs"][0]["kinds"]["all"]["queries"] == answer["queries"]
    assert (answer["pairs"][0]["first"], answer["pairs"][0]["second"]) == (str(runs[0]), str(runs[1]))
    assert answer["pairs"][0]["AvgP"]["better"] == 1
    assert answer["pairs"][0]["AvgP"]["wilcoxon_p"] == answer["pairs"][0]["AvgP"]["holm_p"] < 0.05
    shown = visterm("evaluate", runs[0], *tags, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert f"AvgP: {runs[0]} is better than {runs[1]} (Wilcoxon p = " in shown.stdout


def test_words_are_combined_and_limited_only_in_searches_by_what_a_model_can(library, runs):
    request = {"runs": runs[:1], "tags": library[0] / "tags.csv"}
    with refused("combine", value="product"):
        evaluate_run(EvaluateRequest(**request, combine="product"))
    with pytest.raises(UserError, match="are not probabilities"):
        evaluate_run(EvaluateRequest(**request, queries="tags", combine="product"))
    measured = evaluate_run(EvaluateRequest(**request, queries="tags", max_words=1)).values
    assert "several words" not in measured["runs"][0]["kinds"]


def test_options_that_do_not_go_together_are_one_line_errors(library, runs, tmp_path):
    folder, _ = library
    for options, message in (
        (("--queries", "tags", "--metric", "map"), "--metric and --queries do not go together"),
        (("--queries", tmp_path / "none.csv"), "There is no query file"),
    ):
        done = visterm("evaluate", runs[0], "--tags", folder / "tags.csv", *options, cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("plugin")
def test_a_product_of_probabilities_finds_what_a_search_by_it_finds(tmp_path):
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 2, size=(40, 2))
    pictures, tags = [], []
    for i, (bright, wide) in enumerate(kinds):
        pixels = rng.integers(0, 60, size=(32, 32 + 32 * wide, 3)) + 180 * bright
        path = tmp_path / f"{i}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        pictures.append(path)
        tags.append([("dark", "bright")[bright], ("square", "wide")[wide]])
    tagger = Tagger(model="likely_tags", encoder_params={"codebook": 20}, n_jobs=1).fit(pictures[:24], tags[:24])
    names = [str(path) for path in pictures[24:]]
    held = Corpus.of(pictures[24:], names, tags[24:])
    found = evaluate_queries([tagger], held, combine="product")
    catalogue = Catalogue(tagger).add(Corpus.of(pictures[24:], names, [[]] * len(names)))
    query = found.texts.index("bright, wide")
    hits = catalogue.search(["bright", "wide"], 5, combine="product").hits
    [best] = found.best_images([query], 5)
    assert [held.names[image] for image in best.ids] == [hit.image for hit in hits]
    assert best.scores.tolist() == pytest.approx([hit.score for hit in hits], rel=1e-5)
    everything = [hit.image for hit in catalogue.search(["bright", "wide"], 0, combine="product").hits]
    ranks = [rank for rank, name in enumerate(everything, 1) if {"bright", "wide"} <= set(tags[int(Path(name).stem)])]
    expected = np.mean([(place + 1) / rank for place, rank in enumerate(ranks)])
    assert found.values[0]["AvgP"][query] == pytest.approx(expected)


def test_a_file_of_queries_needs_no_tags_and_images_learned_from_are_reported(library, runs, tmp_path):
    folder, _ = library
    file = tmp_path / "clicks.csv"
    file.write_text("query,image\nworda,200.jpg\nworda,3.jpg\nwordb,201.jpg\n", encoding="utf-8")
    (tmp_path / "photos").mkdir()
    for i in (3, 200, 201):
        Image.new("RGB", (1, 1)).save(tmp_path / "photos" / f"{i}.jpg")
    done = visterm("evaluate", runs[0], "photos", "--queries", file, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["queries"] == 2
    assert "The run has learned from 1 of these 3 photos" in done.stderr
    split = visterm("evaluate", runs[0], "--tags", folder / "tags.csv", "--queries", "tags", "--json", cwd=tmp_path)
    assert "learned from" not in split.stderr


def test_usual_metrics_that_are_not_defined_of_one_tag_are_left_out_unless_requested(library, tmp_path):
    folder, _ = library
    (tmp_path / "one.csv").write_text("image,tags\n" + "".join(f"{i}.jpg,worda\n" for i in range(4)), encoding="utf-8")
    tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model="prior", n_jobs=1)
    tagger.fit(None, tmp_path / "one.csv").save(tmp_path / "run")
    call = ("evaluate", "run", "--tags", "one.csv", "--json")
    done = visterm(*call, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values["map"] == 1
    assert "auc" not in values
    assert "Left out: auc has nothing to average" in done.stderr
    assert visterm(*call, "--metric", "auc", cwd=tmp_path).returncode == 2
