"""Confidences of scores: sigmoids, searches by several words, cut-offs, and where the held-out scores come from."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import visterm
from planted import plant_corpus
from reference.calibration import confidence, expected_f1
from visterm.cli.command_line import app
from visterm.cli.output import by_confidence, percent
from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.types import Hit, Tag
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.evaluation.query_evaluation import evaluate_queries
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import HeldOutScores, expectations, held_out_scores, unfitted, what_to_expect
from visterm.learning.learned import CALIBRATION
from visterm.library.catalogue import Catalogue
from visterm.library.search.ranking import contenders
from visterm.models.confidence import fit_calibration as fitting
from visterm.models.confidence.calibration import Calibration, Curve, HeldOutChances, expected_f1_cutoff
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm.models.stopping import HeldOutFit
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.tagging.tagger import Tagger

THREE = Calibration(np.array([2.0, 0.5, 1.0]), np.array([-1.0, 0.0, 1.0]), 0.4, 100)


def drawn(n=3000, slopes=(2.0, 0.5, 4.0), offsets=(-3.0, -1.0, -2.0), seed=0):
    """Draw scores, and tags as often as the sigmoids of the scores say."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.5, 1.0, (n, len(slopes))).astype(np.float32)
    return scores, sp.csr_array(rng.random(scores.shape) < expit(scores * slopes + offsets), dtype=np.float32)


def test_a_confidence_is_the_sigmoid_of_the_score():
    np.testing.assert_allclose(THREE.confidences([[0.5, 0.0, -1.0]]), [[0.5, 0.5, 0.5]])
    np.testing.assert_allclose(THREE.confidences([np.log(3)], [2]), [3 * np.e / (1 + 3 * np.e)])


@pytest.mark.parametrize(("tags", "signs"), [([0], [1]), ([0, 1], [0.8, 0.6]), ([2, 0, 1], [1, -1, 1]), ([1], [-1])])
def test_a_search_is_as_likely_as_its_words_together_and_none_that_is_unwanted(tags, signs):
    scores = np.random.default_rng(1).normal(size=(4, len(tags)))
    expected = [confidence(THREE, row, tags, signs) for row in scores]
    np.testing.assert_allclose(np.exp(THREE.log_confidences(THREE.log_odds(scores, tags), signs)), expected)


def test_where_each_tag_has_many_images_its_chances_are_those_of_logistic_regression():
    scores, Y = drawn(slopes=(2.0, 2.0, 2.0), offsets=(-3.0, 0.5, -1.0))
    chances = fit_calibration(scores, Y, Y, prior=1e-6).confidences(scores)
    for tag in range(3):
        alone = LogisticRegression(C=np.inf).fit(scores[:, [tag]], Y.toarray()[:, tag])
        np.testing.assert_allclose(chances[:, tag], alone.predict_proba(scores[:, [tag]])[:, 1], atol=0.04)


def test_a_tag_of_few_images_holds_to_the_line_that_all_share_and_the_rarer_needs_a_higher_score():
    scores, Y = drawn(400, slopes=(2.0, 2.0, 2.0), offsets=(-1.0, -2.0, -3.0))
    offsets = fit_calibration(scores, Y, Y, prior=1e9).offset
    assert offsets[0] > offsets[1] > offsets[2]
    others = Y * np.array([0, 1, 1])  # the first is given much more often than among the images learned from
    firm, usual, loose = (fit_calibration(scores, Y, others, prior=prior).offset for prior in (1e9, 30, 1e-6))
    assert firm[0] < usual[0] < loose[0]


def test_lines_have_the_log_odds_among_all_images_that_the_model_in_use_has_learned_from():
    scores, Y = drawn(1000, slopes=(2.0, 2.0, 2.0), offsets=(-1.0, -2.0, -3.0))
    counts = np.asarray(Y.sum(axis=0)).ravel().astype(int)
    same, more_of_one = (fit_calibration(scores, Y, Y, rows).offset for rows in (counts, counts * [2, 2, 5]))
    gained = more_of_one - same
    assert gained[2] > gained[:2].max() + 0.5


def test_the_surest_scores_keep_their_order_where_the_many_others_follow_another_rule():
    rng = np.random.default_rng(4)
    counts = rng.integers(5, 400, 60)
    scores = rng.beta(0.3, 3, (1500, 60)).astype(np.float32)
    log_odds = np.log(counts / 1500)
    chances = np.where(scores > 0.3, scores, 0.3 * expit(8 * scores + log_odds) * 2)
    Y = sp.csr_array(rng.random(scores.shape) < chances, dtype=np.float32)
    others = sp.csr_array(rng.random((1500, 60)) < counts / 1500, dtype=np.float32)
    promised = fit_calibration(scores, Y, others).confidences(scores)
    surest = promised >= np.sort(promised.ravel())[-500]
    assert scores[surest].mean() > 0.99 * np.sort(scores.ravel())[-500:].mean()


def test_scores_that_speak_against_all_tags_say_nothing():
    scores, Y = drawn(600, slopes=(3.0, 3.0, -3.0), offsets=(-2.0, -2.0, -2.0))
    assert (fit_calibration(scores, Y, Y).slope > 0).all()
    wrong = fit_calibration(-scores[:, :2], Y[:, :2], Y[:, :2])
    np.testing.assert_allclose(wrong.slope, 0, atol=1e-3)


def test_confidences_do_not_depend_on_the_scale_of_the_scores():
    scores, Y = drawn(500)
    plain, large = fit_calibration(scores, Y, Y), fit_calibration(1000 * scores + 7, Y, Y)
    np.testing.assert_allclose(large.confidences(1000 * scores + 7), plain.confidences(scores), atol=2e-3)


def test_a_tag_whose_scores_speak_against_it_keeps_the_common_line():
    scores, Y = drawn(600, slopes=(3.0, 3.0, -3.0), offsets=(-2.0, -2.0, -2.0))
    assert (fit_calibration(scores, Y, Y).slope > 0).all()
    wrong = fit_calibration(-scores[:, :2], Y[:, :2], Y[:, :2])
    np.testing.assert_allclose(wrong.slope, 0, atol=1e-3)


def test_a_sample_of_the_tags_that_images_lack_weighs_as_much_as_all_of_them(monkeypatch):
    scores, Y = drawn(4000)
    whole = fit_calibration(scores, Y, Y).confidences(scores)
    monkeypatch.setattr(fitting, "MAX_CASES", 6000)
    np.testing.assert_allclose(fit_calibration(scores, Y, Y).confidences(scores).mean(0), whole.mean(0), rtol=0.05)


@pytest.mark.parametrize(("copied", "low", "high"), [(True, 0.9, 1.0), (False, 0.0, 0.15)])
def test_words_that_bring_each_other_are_told_from_those_that_do_not(copied, low, high):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(1500, 2)).astype(np.float32)
    own = rng.random(scores.shape) < expit(2.0 * scores - 1.0)
    if copied:
        scores[:, 1], own[:, 1] = scores[:, 0], own[:, 0]
    Y = sp.csr_array(own, dtype=np.float32)
    assert low <= fit_calibration(scores, Y, Y).together <= high


def test_of_few_images_nothing_is_known():
    scores, Y = drawn(19, offsets=(9.0, 9.0, -9.0))
    assert fit_calibration(scores, Y, Y) is None


def test_the_cut_is_where_f1_is_expected_to_be_largest():
    assert expected_f1_cutoff([0.9, 0.8, 0.1]) == 2  # 2 · 1.7 / (2 + 1.8) = 0.89, 0.64 at 1 and 0.75 at 3
    assert expected_f1_cutoff([0.0, 0.0]) == 0
    assert expected_f1_cutoff([]) == 0
    chances = [0.95, 0.9, 0.8, 0.45, 0.2, 0.1, 0.05]
    exact = [expected_f1(chances, k) for k in range(1, len(chances) + 1)]
    assert expected_f1_cutoff(chances) == 1 + int(np.argmax(exact))


def rows_of(corpus, valid=None):
    vocabulary = Vocabulary([f"tag {i}" for i in range(corpus.Y_train.shape[1])])
    return TrainingRows(vocabulary, corpus.X_train, corpus.Y_train, valid, [])


@pytest.mark.parametrize(("name", "chosen"), [("knn", ["n_neighbors", "power"]), ("kernel_ridge", ["alpha", "gamma"])])
def test_copies_that_are_judged_in_place_of_a_model_score_with_the_settings_that_it_chose(name, chosen):
    corpus = plant_corpus(n_train=240, random_state=2)
    model = MODELS.create(name).fit(corpus.X_train, corpus.Y_train)
    blend = MODELS.create("auto", candidates=[(name, {})]).fit(corpus.X_train, corpus.Y_train)
    for copy, fitted in ((unfitted(model), model), (unfitted(blend).candidates[0], blend.members_[0])):
        assert [getattr(copy, setting) for setting in chosen] == [getattr(fitted, f"{setting}_") for setting in chosen]


def test_a_copy_of_a_blend_keeps_its_weights_its_lift_and_the_offsets_of_tags():
    corpus = plant_corpus(n_train=240, n_test=20, n_tags=12, random_state=5)
    candidates = [("knn", {}), ("ridge", {}), ("wsabie", {"dim": 8, "epochs": 10})]
    blend = MODELS.create("auto", candidates=candidates, lift=None, n_jobs=1).fit(corpus.X_train, corpus.Y_train)
    blend._centre = 0.5  # as if it were chosen with the lift
    copy = unfitted(blend).fit(corpus.X_train[:180], corpus.Y_train[:180])
    used = np.flatnonzero(blend.weights_)
    assert [type(member) for member in copy.members_] == [type(blend.members_[m]) for m in used]
    np.testing.assert_allclose(copy.weights_, blend.weights_[used])
    assert (copy.lift_, copy._centre) == (blend.lift_, 0.5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ridge", {}),
        ("ensemble", {"members": [("ridge", {}), ("knn", {})]}),
        ("wsabie", {"dim": 8, "epochs": 8, "valid_share": 0.25}),
        ("pamir", {"epochs": 5, "valid_share": 0.25}),
    ],
)
def test_confidences_hold_for_new_images_whether_or_not_the_model_holds_some_out(name, settings):
    corpus = plant_corpus(n_train=240, n_test=240, noise=0.6, random_state=2)
    model = MODELS.create(name, **settings).fit(corpus.X_train, corpus.Y_train)
    found = fit_calibration(*held_out_scores(model, rows_of(corpus)))
    # each fifth in turn, but where fits on the others could hold out too few to stop by
    assert found.n_images == (60 if "valid_share" in settings else 240)
    P, right = found.confidences(model.decision_function(corpus.X_test)), corpus.Y_test.toarray() > 0
    for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1)):
        inside = (low <= P) & (high > P)
        assert not inside.any() or abs(P[inside].mean() - right[inside].mean()) < 0.15


@pytest.mark.parametrize("n", [60, 110, 400])
def test_what_a_blend_of_few_images_promises_is_not_that_of_fits_on_another_scale(n):
    corpus = plant_corpus(n_train=n, n_test=400, noise=0.6, random_state=3)
    model = MODELS.create("auto", n_jobs=1, random_state=0).fit(corpus.X_train, corpus.Y_train)
    held_out = held_out_scores(model, rows_of(corpus))
    assert held_out.scores.shape[0] == n
    chances, right = (
        fit_calibration(*held_out).confidences(model.decision_function(corpus.X_test)),
        corpus.Y_test.toarray() > 0,
    )
    sure = chances >= 0.3
    assert chances[sure].mean() - right[sure].mean() < 0.05


def test_a_model_gives_what_it_knows_of_held_out_images_once():
    corpus = plant_corpus(n_train=240)
    model = MODELS.create("wsabie", dim=8, epochs=4, valid_share=0.25).fit(corpus.X_train, corpus.Y_train)
    held = model.take_held_out()
    assert isinstance(held, HeldOutFit)
    assert held.images.size == 60
    assert model.take_held_out() is None
    model.fit(corpus.X_train, corpus.Y_train)
    model.fit(corpus.X_train, corpus.Y_train, valid=(corpus.X_test, corpus.Y_test))
    assert model.take_held_out() is None


def test_what_it_knows_comes_from_a_fit_without_them():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(240, 300)).astype(np.float32), sp.csr_array((rng.random((240, 4)) < 0.4).astype(np.float32))
    model = MODELS.create("wsabie", init="random", epochs=20, valid_share=0.25).fit(
        X, Y
    )  # by chance: it can but memorise
    held = model.take_held_out()
    places = np.arange(60)
    right = Y[held.images].toarray().ravel() > 0
    assert roc_auc_score(right, held.scores(places).ravel()) < 0.65
    assert roc_auc_score(right, model.decision_function(X[held.images]).ravel()) > 0.75


def test_rows_of_the_split_valid_come_before_all_others():
    corpus = plant_corpus(n_train=240, n_test=70)
    rows = rows_of(corpus, (corpus.X_test, corpus.Y_test))
    model = MODELS.create("ridge").fit(corpus.X_train, corpus.Y_train)
    scores = model.decision_function(corpus.X_test)
    np.testing.assert_allclose(
        fit_calibration(*held_out_scores(model, rows)).slope,
        fit_calibration(scores, corpus.Y_test, rows.Y).slope,
        rtol=1e-4,
    )
    assert held_out_scores(model, rows._replace(by_number=True)) is None
    few = rows._replace(X=rows.X[:19], Y=rows.Y[:19], valid=None)
    assert held_out_scores(model, few) is None


N = 160


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Photos of one pixel with features and tags: a run of ridge over them, and a catalogue."""
    folder = tmp_path_factory.mktemp("calibrated")
    corpus = plant_corpus(n_train=N, n_tags=6, noise=0.5, random_state=4)
    names = [f"{i:03d}.png" for i in range(N)]
    (folder / "photos").mkdir()
    for name in names:
        Image.new("RGB", (1, 1)).save(folder / "photos" / name)
    np.save(folder / "features.npy", corpus.X_train)
    (folder / "features.names.txt").write_text("\n".join(names) + "\n")
    given = [[f"t{tag}" for tag in np.flatnonzero(row)] for row in corpus.Y_train.toarray()]
    (folder / "tags.jsonl").write_text(
        "".join(json.dumps({"image": n, "tags": t}) + "\n" for n, t in zip(names, given, strict=True))
    )
    tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model="ridge", n_jobs=1)
    tagger.fit(None, tags=folder / "tags.jsonl")
    tagger.save(folder / "run")
    catalogue = Catalogue(tagger).add(folder / "photos")
    catalogue.save(folder / "catalogue")
    return folder, catalogue, dict(zip(names, given, strict=True))


def test_a_run_keeps_its_calibration_and_info_says_on_how_many_images(library):
    folder, catalogue, _ = library
    opened = Tagger.load(folder / "run")
    np.testing.assert_array_equal(opened.calibration.slope, catalogue.tagger.calibration.slope)
    assert opened.calibration[2:4] == catalogue.tagger.calibration[2:4]
    for part in ("curve", "held_out"):
        before, after = (getattr(run.calibration, part) for run in (catalogue.tagger, opened))
        for kept, made in zip(after, before, strict=True):
            np.testing.assert_array_equal(kept, made)
    assert opened.facts["calibration images"] == N
    again = Catalogue.load(folder / "catalogue")
    assert again.search("t0 t1 -t2", 5) == catalogue.search("t0 t1 -t2", 5)


def test_every_hit_has_its_confidence_and_by_one_word_both_orders_agree(library):
    _, catalogue, _ = library
    by_score, by_confidence = (catalogue.search("t0", 0, combine=how).hits for how in ("sum", "confidence"))
    assert [hit.confidence for hit in by_score] == sorted((hit.confidence for hit in by_score), reverse=True)
    assert {hit.image: round(hit.confidence, 9) for hit in by_score} == {
        hit.image: round(hit.confidence, 9) for hit in by_confidence
    }
    logs = np.log([hit.confidence for hit in by_confidence])
    np.testing.assert_allclose([hit.score for hit in by_confidence], logs, rtol=1e-5)
    assert by_score == catalogue.search("t0", 0).hits


def test_a_cut_off_shows_the_likely_images_only(library):
    _, catalogue, given = library
    whole = catalogue.search("t0", 0, combine="confidence")
    assert whole.n_likely is None
    found = catalogue.search("t0", 0, cutoff=True)
    assert found.hits == whole.hits[: found.n_likely]
    assert found.n_likely == expected_f1_cutoff([hit.confidence for hit in whole.hits])
    right = sum("t0" in given[hit.image.rpartition("/")[2]] for hit in found.hits)
    n_relevant = sum("t0" in tags for tags in given.values())
    assert 2 * right / (found.n_likely + n_relevant) > 0.7
    least = catalogue.search("t0 t1", 3, min_confidence=0.2)
    assert len(least.hits) == min(3, least.n_likely)
    assert all(hit.confidence >= 0.2 for hit in least.hits)
    both = catalogue.search("t0", 0, cutoff=True, min_confidence=0.9)
    assert both.n_likely == sum(hit.confidence >= 0.9 for hit in found.hits)


@pytest.mark.parametrize("limits", [{}, {"min_confidence": 0.2}, {"cutoff": True}], ids=["half", "a fifth", "cut-off"])
def test_a_sorted_search_lists_the_likely_images_by_name_with_their_confidences(library, limits):
    _, catalogue, _ = library
    found = catalogue.search("t0", 0, sort="name", **limits)
    likely = catalogue.search("t0", 0, **(limits or {"min_confidence": 0.5})).hits
    assert 0 < len(found.hits) == found.n_found < len(catalogue)
    assert [hit.image for hit in found.hits] == sorted(hit.image for hit in likely)
    chances = {hit.image: round(hit.confidence, 9) for hit in likely}
    assert {hit.image: round(hit.confidence, 9) for hit in found.hits} == chances
    assert catalogue.search("t0", 3, sort="name", **limits).hits == found.hits[:3]
    assert catalogue.search("t0", 3).n_found == len(catalogue)


@pytest.mark.parametrize("name", ["ridge", "knn", "kernel_ridge"])
def test_a_word_with_a_minus_leaves_images_of_the_wanted_word_on_top_whatever_the_scores_look_like(library, name):
    folder, _, given = library
    tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model=name, n_jobs=1)
    tagger.fit(None, tags=folder / "tags.jsonl")
    other = Catalogue(tagger).add(folder / "photos")

    def n_right(combine):
        shown = [given[hit.image.rpartition("/")[2]] for hit in other.search("t0 -t1", 10, combine=combine).hits]
        return sum("t0" in tags and "t1" not in tags for tags in shown)

    assert n_right(None) >= 9
    assert n_right(None) >= n_right("sum")


def test_queries_are_measured_by_confidence_as_a_search_ranks_by_it(library):
    folder, catalogue, given = library
    photos = sorted((folder / "photos").iterdir())
    corpus = Corpus.of(photos, [path.name for path in photos], [given[path.name] for path in photos])
    found = evaluate_queries([catalogue.tagger], corpus)
    query = found.texts.index("t0, t1")
    hits = catalogue.search(["t0", "t1"], 20).hits
    [best] = found.best_images([query], 20)
    assert best.scores.tolist() == pytest.approx([hit.score for hit in hits], rel=1e-4)
    assert {corpus.names[image] for image in best.ids} == {hit.image for hit in hits}
    bare = Tagger.from_parts(catalogue.tagger.encoder, catalogue.tagger.model, catalogue.tagger.vocabulary)
    with pytest.raises(UserError, match="needs a run with confidences, and this run has none"):
        evaluate_queries([bare], corpus, combine="confidence")
    by_sum = [evaluate_queries([bare], corpus, combine=how).values[0]["AvgP"] for how in (None, "sum")]
    np.testing.assert_array_equal(*by_sum)


def test_a_tag_or_a_photo_at_the_prompt_shows_its_confidence_or_else_its_score():
    assert repr(Tag("leaf", 2.82, confidence=0.488)) == "Tag('leaf', confidence=0.49)"
    assert repr(Tag("leaf", 2.8214)) == "Tag('leaf', score=2.82)"
    assert repr(Hit("7.jpg", -0.204, 0.815, id=6)) == "Hit('7.jpg', confidence=0.81, id=6)"


def test_tags_for_people_are_in_the_order_of_the_number_that_is_shown():
    tags = [Tag("water", 3.31, confidence=0.07), Tag("leaf", 2.82, confidence=0.49)]
    assert [tag.tag for tag in by_confidence(tags)] == ["leaf", "water"]
    assert [tag.tag for tag in by_confidence([*tags, Tag("added", 2.0, trained=False)])] == ["water", "leaf", "added"]


def test_confidences_are_shown_in_whole_percent():
    assert [percent(chance) for chance in (0, 0.001, 0.07, 0.9999, 1)] == ["0%", "<1%", "7%", ">99%", "100%"]


def test_a_tag_is_predicted_where_it_is_more_likely_right_than_wrong(library):
    _, catalogue, _ = library
    for count in catalogue.tags():
        found = catalogue.search(count.tag, 0, min_confidence=PREDICTED_FROM)
        assert count.predicted == found.n_likely == len(catalogue.browse(Filter(predicted=(count.tag,)), 0).hits)


def test_without_a_calibration_a_cut_off_says_to_fit_anew_and_plain_searches_go_on(library, tmp_path):
    folder, catalogue, _ = library
    old = Tagger.from_parts(catalogue.tagger.encoder, catalogue.tagger.model, catalogue.tagger.vocabulary)
    old.save(tmp_path / "old")
    assert not (tmp_path / "old" / CALIBRATION).exists()
    plain = Catalogue(Tagger.load(tmp_path / "old")).add(folder / "photos")
    assert all(hit.confidence is None and "confidence" not in hit.as_dict() for hit in plain.search("t0 -t1").hits)
    assert plain.search("t0 t1", 0) == plain.search("t0 t1", 0, combine="sum")
    plain.save(tmp_path / "catalogue")
    for words, n_notes in (("t0 t1", 1), ("t0", 0)):
        done = CliRunner().invoke(app, ["search", str(tmp_path / "catalogue"), words])
        assert done.stderr.count("no confidences, so photos are ranked by the sum of scores") == n_notes
    for asked in ({"cutoff": True}, {"min_confidence": 0.5}, {"combine": "confidence"}):
        with pytest.raises(UserError, match="needs a run with confidences"):
            plain.search("t0", **asked)
    with pytest.raises(UserError, match=r"`combine` is .sum.\. Leave one of the two out"):
        catalogue.search("t0", cutoff=True, combine="sum")
    with pytest.raises(UserError, match=r"min_confidence is 1\.5"):
        catalogue.search("t0", min_confidence=1.5)


def test_the_commands_fit_without_a_calibration_and_search_down_to_the_cut_off(library, tmp_path):
    folder, catalogue, _ = library
    run = CliRunner()
    asked = ["search", str(folder / "catalogue"), "t0", "-k", "0"]
    done = run.invoke(app, [*asked, "--cutoff", "--json"])
    found = catalogue.search("t0", 0, cutoff=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [hit.as_dict() for hit in found.hits]
    assert f"Above the cut-off: {found.n_likely} photos" in done.stderr
    some = run.invoke(app, [*asked[:-1], "2", "--min-confidence", "0.1"])
    assert len(some.stdout.splitlines()) == 2
    assert "%" in some.stdout
    assert "(-k 0 shows all)" in some.stderr
    told: list[str] = []
    features = f"precomputed:{folder / 'features.npy'}"
    visterm.fit(tags=folder / "tags.jsonl", encoder=features, model="ridge", calibrate=False, out=tmp_path / "run",
                say=told.append)  # fmt: skip
    assert Tagger.load(tmp_path / "run").calibration is None
    assert "On new photos" not in " ".join(told)


def test_a_fit_says_in_three_lines_what_was_learned_and_what_to_expect_of_new_photos(library, tmp_path):
    folder, *_ = library
    source = ["--tags", str(folder / "tags.jsonl"), "--encoder", f"precomputed:{folder / 'features.npy'}"]
    done = CliRunner().invoke(app, ["fit", *source, "-o", str(tmp_path / "run"), "--json"])
    facts = json.loads(done.stdout)
    read, learned, expect = done.stderr.splitlines()
    assert read.startswith("Read 6 tags")
    assert re.fullmatch(
        r"Learned 6 tags from \d+ photos in .+ s with .+ \(\d+%\), chosen from \d+ models\. The run is in .*run\.",
        learned,
    )
    right, given = facts["right of 5 tags"], facts["tags of a photo"]
    assert expect.startswith(
        f"On new photos, about {right:.1f} of the 5 best tags are right (people gave {given:.1f}); "
    )
    assert f"{facts['tags at precision 0.9']:.1f} tags per photo. Measured on {facts['calibration images']} " in expect
    assert expect.endswith(
        f"No confidence is above {facts['highest confidence']:.1%}: as sure as the {facts['surest held-out tags']} "
        "surest held-out tags allow."
    )


def test_what_to_expect_counts_right_tags_of_the_best_five_and_sure_ones():
    scores = np.array([[9, 8, 7, 6, 5, 4], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1]], np.float32)
    Y = np.array([[1, 1, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0], [0] * 6])  # 2 of 2 right, 0 of 1; nobody tagged the last
    given = np.arange(200).reshape(100, 2) % 3 == 0
    held = HeldOutChances.of(np.where(given, 0.99, 0.01), given)
    curve = Curve(np.zeros(1), np.zeros(1), 1.0, np.log(9), 40)
    found = expectations(HeldOutScores(scores, Y, Y), THREE._replace(held_out=held, curve=curve))
    assert found.pop("highest confidence") == pytest.approx(0.9)
    assert found == {
        "right of 5 tags": 1.0, "tags of a photo": 2.0, "tags at precision 0.9": given.sum() / 100,
        "surest held-out tags": 40,
    }  # fmt: skip
    below = sp.eye_array(6) + sp.csr_array(([1, 1], ([0, 0], [1, 5])), shape=(6, 6))  # the first is above two others
    of_tree = expectations(HeldOutScores(scores, Y, Y), THREE._replace(held_out=held, curve=curve), below)
    assert of_tree["tags of a photo without those above"] == 1.5
    line = what_to_expect(of_tree | {"tags": 6, "calibration images": 3})
    assert "(people gave 1.5, 2.0 with the tags above them)" in line


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("together", [0.0, 0.4, 1.0])
def test_no_image_that_may_be_among_the_best_is_passed_over(together, certain):
    rng = np.random.default_rng(int(10 * together) + certain)
    curve = Curve(np.array([-2.0, 0.0, 3.0]), np.array([-3.0, -0.2, 1.0]), 1.3, 1.2)
    slope, offset = np.array([2.0, 0.0, 7.0]), np.array([-1.0, 0.5, -3.0])
    calibration = Calibration(slope, offset, together, 100, curve)
    for signs in ([1, 1, -1], [-1, 1, -1], [1, 1, 1], [-1, -1, -1], [1], [-1]):
        scores = rng.standard_normal((5000, len(signs))).astype(np.float32) ** 3
        scores[rng.integers(0, 5000, 2000)] = scores[7]  # many are equal
        sure = rng.random(scores.shape) < 0.001 if certain else None
        tags = np.arange(len(signs))
        logs = calibration.log_confidences(calibration.log_odds(scores, tags), signs, sure)
        for k in (1, 50, 1200):
            kept = contenders(calibration, scores, tags, signs, k, sure)
            best = np.flatnonzero(logs >= np.sort(logs)[-k])
            assert np.isin(best, kept).all()
            left_out, n_best = np.union1d(best[:700], np.arange(0, 5000, 9)), min(k, 3000)
            kept = contenders(calibration, scores, tags, signs, n_best, sure, left_out)
            remaining = np.delete(np.arange(5000), left_out)
            best = remaining[logs[remaining] >= np.sort(logs[remaining])[-n_best]]
            assert np.isin(best, kept).all()
            assert not np.isin(kept, left_out).any()
    scores = rng.standard_normal((5000, 2)).astype(np.float32)
    assert len(contenders(calibration, scores, np.array([0, 2]), [1, -1], 50)) < 100
