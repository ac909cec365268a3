"""Zero-shot tagging and tagging across corpora, on planted corpora whose word vectors say what images look like."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch")

from visterm.core.errors import DataError, ShapeError, UserError
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.zero_shot.across_corpora import across_corpora, join_near
from visterm_research.zero_shot.arms import ZeroShotArm, has_common, zero_shot
from visterm_research.zero_shot.held_out import TagSplit, seen_rows, split_tags, zero_shot_measures
from visterm_research.zero_shot.vectors import prepared, tag_list_vectors, with_common, word_sources

SMALL = {"hidden": [32], "epochs": 20, "batch_size": 32, "learning_rate": 0.01, "dropout": 0.0, "device": "cpu"}


def planted(names: list[str], meanings: np.ndarray, look: np.ndarray, seed: int, name: str = "planted") -> Problem:
    """Draw images of two tags each, that look as the meanings of their tags together."""
    rng = np.random.default_rng(seed)
    parts = []
    for n_images in (200, 60, 60):
        Y = np.zeros((n_images, len(names)), np.float32)
        for row in Y:
            row[rng.choice(len(names), 2, replace=False)] = 1
        X = (Y @ meanings @ look + 0.1 * rng.standard_normal((n_images, look.shape[1]))).astype(np.float32)
        parts.append(Rows(X, sp.csr_array(Y)))
    return Problem(name, "planted", names, *parts)


@pytest.fixture(scope="module")
def world() -> tuple[Problem, np.ndarray]:
    rng = np.random.default_rng(0)
    meanings = rng.standard_normal((40, 5)).astype(np.float32)
    look = rng.standard_normal((5, 20)).astype(np.float32)
    return planted([f"t{i}" for i in range(40)], meanings, look, 1), meanings


# -- the split ------------------------------------------------------------------------------------------------------


def test_a_share_of_the_tags_is_held_out_and_another_seed_holds_out_others():
    split = split_tags(10, share=0.2, seed=0)
    assert split.held_out.size == 2
    assert sorted([*split.seen, *split.held_out]) == list(range(10))
    draws = {tuple(split_tags(10, share=0.2, seed=seed).held_out) for seed in range(20)}
    assert len(draws) > 5


def test_a_share_that_leaves_a_side_empty_is_refused():
    with pytest.raises(UserError, match="holds out 0 of 3 tags"):
        split_tags(3, share=0.1)
    with pytest.raises(UserError, match="holds out 3 of 3"):
        split_tags(3, share=0.9)


def test_training_rows_say_nothing_of_held_out_tags():
    Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    rows = seen_rows(Rows(np.arange(3.0)[:, None], Y), TagSplit(np.array([0, 2]), np.array([1])))
    assert rows.X.ravel().tolist() == [0, 2]  # image 1 has the held-out tag alone
    assert rows.Y.toarray().tolist() == [[1, 0], [0, 1]]


# -- measures -------------------------------------------------------------------------------------------------------


def test_measures_are_those_counted_by_hand():
    split = TagSplit(np.arange(6), np.arange(6, 12))
    Y = np.zeros((3, 12), np.float32)
    Y[0, [0, 6, 7]] = 1
    Y[1, [1, 2]] = 1  # no held-out tag
    Y[2, [3, 11]] = 1
    scores = np.tile(np.linspace(1, 0.1, 6), (3, 2))  # of both sides the first is best, the last is sixth
    scores[:, :6] += 1
    found = zero_shot_measures(scores.astype(np.float32), sp.csr_array(Y), split)
    np.testing.assert_allclose(found["held-out p@5"], [2 / 5, np.nan, 0])
    np.testing.assert_allclose(found["held-out r@5"], [1, np.nan, 0])
    np.testing.assert_allclose(found["held-out chance"], [2 / 6 * 5 / 5, np.nan, 1 / 6])
    np.testing.assert_allclose(found["all p@5"], [1 / 5, np.nan, 1 / 5])
    np.testing.assert_allclose(found["all r@5"], [1 / 3, np.nan, 1 / 2])
    np.testing.assert_allclose(found["all held-out p@5"], [0, np.nan, 0])
    np.testing.assert_allclose(found["word chance"], [1 / 3, 1 / 3, *[np.nan] * 3, 1 / 3])
    handicapped = zero_shot_measures(scores.astype(np.float32), sp.csr_array(Y), split, handicap=5)
    np.testing.assert_allclose(handicapped["all held-out p@5"], [2 / 5, np.nan, 0])
    np.testing.assert_allclose(handicapped["held-out p@5"], found["held-out p@5"])


def test_chance_is_what_random_scores_reach():
    rng = np.random.default_rng(0)
    Y = sp.csr_array((rng.random((2000, 30)) < 0.1).astype(np.float32))
    found = zero_shot_measures(rng.random((2000, 30)).astype(np.float32), Y, TagSplit(np.arange(20), np.arange(20, 30)))
    assert np.nanmean(found["held-out p@5"]) == pytest.approx(np.nanmean(found["held-out chance"]), rel=0.05)


# -- vectors --------------------------------------------------------------------------------------------------------


def test_prepared_vectors_have_mean_nought_and_length_one():
    given = np.array([[3.0, 0], [1, 0], [0, 0], [2, 3]], np.float32)
    rows = prepared(given)
    assert rows[2].tolist() == [0, 0]  # a word without a vector
    centred = np.array([[1, -1], [-1, -1], [0, 2]]) / np.array([[2**0.5], [2**0.5], [2]])
    np.testing.assert_allclose(rows[[0, 1, 3]], centred, atol=1e-6)
    assert with_common(rows)[:, 2].tolist() == [1, 1, 0, 1]


def test_learned_vectors_read_the_tag_lists_of_held_out_tags_too():
    lists = np.zeros((40, 6), np.float32)
    lists[:20, [0, 1, 2]] = 1
    lists[20:, [3, 4, 5]] = 1
    found = prepared(tag_list_vectors([f"t{i}" for i in range(6)], sp.csr_array(lists), dim=2))
    cosines = found @ found.T
    assert cosines[0, 1] > 0.9 > 0 > cosines[0, 3]


def test_without_the_extra_there_are_no_sentence_vectors(monkeypatch: pytest.MonkeyPatch):
    from visterm.encoders import word_rows as sentences

    sentences._network.cache_clear()
    monkeypatch.setattr(sentences, "SENTENCE_PACKAGE", "no_such_package")
    found = word_sources(["a", "b"], sp.csr_array(np.ones((2, 2), np.float32)), dim=2)
    assert list(found) == ["learned", "random"]


# -- zero-shot ------------------------------------------------------------------------------------------------------


def test_true_vectors_find_tags_that_no_image_had_and_random_ones_do_not(world: tuple[Problem, np.ndarray]):
    problem, meanings = world
    drawn = np.random.default_rng(1).standard_normal(meanings.shape).astype(np.float32)
    arms = [
        ZeroShotArm(source, "sampled_tagger", source, {**SMALL, "fixed_vectors": True}) for source in ("true", "drawn")
    ]
    found = zero_shot(problem, {"true": prepared(meanings), "drawn": prepared(drawn)}, arms, seeds=(0, 1))
    assert [(one.arm.label, one.seed) for one in found] == [("true", 0), ("drawn", 0), ("true", 1), ("drawn", 1)]
    true, random = (
        np.mean(
            [one.metrics["held-out p@5"] / one.metrics["held-out chance"] for one in found if one.arm.label == label]
        )
        for label in ("true", "drawn")
    )
    best = 5 / 8  # of 8 held-out tags five are given: at most all of an image's
    assert true > 0.85 / best  # chance finds 5 of 8
    assert random < 1.15


def test_arms_that_differ_in_the_handicap_share_a_fit_and_the_handicap_brings_held_out_tags_up(
    world: tuple[Problem, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    problem, meanings = world
    fits = []
    from visterm_research.zero_shot import arms as module

    fit = module.fit_arm
    monkeypatch.setattr(module, "fit_arm", lambda *args, **kwargs: fits.append(1) or fit(*args, **kwargs))
    arms = [
        ZeroShotArm(f"{moved} {handicap}", "sampled_tagger", "true", SMALL, moved=moved, handicap=handicap)
        for moved, handicap in ((True, 0.0), (True, 4.0), (False, 0.0))
    ]
    moved, raised, still = zero_shot(problem, {"true": prepared(meanings)}, arms, seeds=(0,), on="valid")
    assert len(fits) == 1
    assert raised.metrics["all held-out p@5"] > moved.metrics["all held-out p@5"]
    assert raised.metrics["word map"] == moved.metrics["word map"] != still.metrics["word map"]


def test_vectors_that_stay_have_the_common_number_unless_an_arm_says_otherwise():
    for model, settings, common in (
        ("sampled_tagger", {}, False),
        ("sampled_tagger", {"fixed_vectors": True}, True),
        ("fast0tag", {}, True),
        ("fast0tag", {"fixed_vectors": False}, False),
        ("average_word_vector", {}, False),
    ):
        assert has_common(ZeroShotArm("x", model, "learned", settings)) == common
    assert has_common(ZeroShotArm("x", "average_word_vector", "learned", common=True))


def test_what_cannot_be_run_is_refused(world: tuple[Problem, np.ndarray]):
    arm = ZeroShotArm("x", "sampled_tagger", "true", SMALL)
    with pytest.raises(UserError, match="no word vectors 'true'; there are: learned"):
        zero_shot(world[0], {"learned": world[1]}, [arm])
    with pytest.raises(UserError, match="on is 'train'"):
        zero_shot(world[0], {"true": world[1]}, [arm], on="train")


# -- across corpora -------------------------------------------------------------------------------------------------


def test_tags_are_joined_by_name_and_others_by_the_nearest_vector():
    ours = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    theirs = np.array([[0, 1], [0.9, 0.1], [-1, -1], [0, 0]], np.float32)
    joined = join_near(["Dog", "house", "x"], ["dog", "hound", "sea", "y"], ours, theirs)
    assert joined.run_columns.tolist() == [0, 0, -1, -1]  # the name counts for more than the vector
    assert joined.is_by_name.tolist() == [True, False, False, False]
    with pytest.raises(ShapeError, match="source has 1 tags, but 3 vectors"):
        join_near(["Dog"], ["dog"], ours, theirs[:1])


def test_a_model_of_one_corpus_tags_another_by_names_and_by_words(world: tuple[Problem, np.ndarray]):
    rng = np.random.default_rng(0)
    meanings = np.vstack([world[1], rng.standard_normal((10, 5))]).astype(np.float32)
    look = np.random.default_rng(3).standard_normal((5, 20)).astype(np.float32)
    names = [f"t{i}" for i in range(40)]
    source = planted(names, meanings[:40], look, 1, "source")
    target = planted([*names[:20], *(f"u{i}" for i in range(10))], meanings[[*range(20), *range(40, 50)]], look, 2)
    rows = with_common(prepared(meanings))
    vectors = {"source": rows[:40], "target": rows[[*range(20), *range(40, 50)]]}
    found = across_corpora(source, target, "sampled_tagger", {**SMALL, "fixed_vectors": True}, vectors, least_cosine=2)
    assert found["name"]["tags"] == found["vector"]["tags"] == 20
    assert found["words"]["tags"] == 30
    assert found["name"]["share"] == pytest.approx(2 / 3, abs=0.1)
    assert found["name"]["r@5"] < found["name"]["share"]  # all that names could find
    assert found["words"]["r@5"] > found["name"]["r@5"] + 0.1
    p, r = found["words"]["p@5"], found["words"]["r@5"]
    assert found["words"]["f1"] == pytest.approx(2 * p * r / (p + r))
    alone = across_corpora(source, target, "ridge", {})
    assert list(alone) == ["name"]


def test_corpora_that_nothing_joins_are_refused(world: tuple[Problem, np.ndarray]):
    problem = world[0]
    other = Problem("other", "", [f"z{i}" for i in range(40)], problem.train, problem.valid, problem.test)
    with pytest.raises(DataError, match="planted and other have no tag of the same name"):
        across_corpora(problem, other, "sampled_tagger", SMALL)
    narrow = Rows(problem.test.X[:, :3], problem.test.Y)
    with pytest.raises(ShapeError, match="20 features, those of narrow 3"):
        across_corpora(problem, Problem("narrow", "", problem.tags, narrow, narrow, narrow), "ridge", {})
