"""Words that are no tags are moved to where they keep their relations to the tags, which training moved."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit

from reference.moved_words import kept_relations
from visterm.models.deep import moved_words
from visterm.models.deep.moved_words import move_words


def drawn(n_words=5, n_tags=8, width=3, new_width=3, seed=0):
    """Old vectors of words and tags, and new ones of the tags: partly kept, partly anything."""
    rng = np.random.default_rng(seed)
    old_words, old_tags = rng.normal(size=(n_words, width)), rng.normal(size=(n_tags, width))
    return old_words, old_tags, old_tags @ rng.normal(size=(width, new_width)) + rng.normal(size=(n_tags, new_width))


@pytest.mark.parametrize("new_width", [3, 2, 4])
def test_the_sum_of_the_paper_is_as_large_as_a_general_optimiser_makes_it(new_width, monkeypatch):
    monkeypatch.setattr(moved_words, "TOLERANCE", 1e-9)
    given = drawn(new_width=new_width)
    moved = move_words(*given)
    assert moved.shape == (5, new_width)
    assert moved.dtype == np.float32

    def loss(flat):
        return -kept_relations(flat.reshape(5, new_width), *given)

    best = minimize(loss, moved.astype(np.float64).ravel(), method="BFGS")
    assert loss(moved.astype(np.float64).ravel()) == pytest.approx(best.fun, rel=1e-5)
    assert moved == pytest.approx(best.x.reshape(5, new_width), abs=0.02)


def test_moved_words_keep_more_of_their_relations_than_unmoved_ones():
    old_words, old_tags, new_tags = drawn()
    moved = move_words(old_words, old_tags, new_tags).astype(np.float64)
    assert kept_relations(moved, old_words, old_tags, new_tags) > 10 + kept_relations(
        old_words, old_words, old_tags, new_tags
    )


def test_words_follow_a_space_that_was_turned(monkeypatch):
    monkeypatch.setattr(moved_words, "MAX_SWEEPS", 500)
    monkeypatch.setattr(moved_words, "TOLERANCE", 1e-10)
    # All products are then kept, so the words belong where the turn brings them.
    rng = np.random.default_rng(1)
    old_words, old_tags = rng.normal(size=(20, 4)), rng.normal(size=(30, 4))
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    moved = move_words(old_words, old_tags, old_tags @ turn)
    assert moved == pytest.approx(old_words @ turn, abs=0.02)


def test_one_word_and_one_tag_meet_where_both_relations_balance(monkeypatch):
    monkeypatch.setattr(moved_words, "TOLERANCE", 0)

    # The tag (1, 0) became (2, 0). The word (x, 0) wants 2x = 0.5 with the tag, and x² = 0.25 with itself.
    def slope(x):
        return 2 * (expit(0.5) - expit(2 * x)) + 2 * x * (expit(0.25) - expit(x * x))

    moved = move_words([[0.5, 0.0]], [[1.0, 0.0]], [[2.0, 0.0]])
    assert moved == pytest.approx(np.array([[brentq(slope, 0, 1), 0.0]]), abs=1e-3)


def test_with_a_penalty_the_sum_less_the_squares_is_as_large_as_a_general_optimiser_makes_it(monkeypatch):
    monkeypatch.setattr(moved_words, "TOLERANCE", 1e-9)
    old_words, old_tags, new_tags = drawn()
    moved = move_words(old_words, old_tags, new_tags, penalty=0.5).astype(np.float64)
    of_a_direction = 0.5 * np.sum(np.square(new_tags.astype(np.float32))) / 4 / 3  # a quarter of the squares, 3 of them

    def loss(flat):
        rows = flat.reshape(5, 3)
        return of_a_direction / 2 * np.sum(rows**2) - kept_relations(rows, old_words, old_tags, new_tags)

    best = minimize(loss, moved.ravel(), method="BFGS")
    assert moved == pytest.approx(best.x.reshape(5, 3), abs=0.02)
    assert np.linalg.norm(moved) < 0.9 * np.linalg.norm(move_words(old_words, old_tags, new_tags))


def test_about_the_means_shared_parts_of_words_and_tags_change_nothing():
    old_words, old_tags, new_tags = drawn()
    moved = move_words(old_words, old_tags, new_tags, about_means=True, penalty=1)
    shifted = move_words(old_words + 2, old_tags + 2, new_tags - 3, about_means=True, penalty=1)
    assert shifted == pytest.approx(moved, abs=1e-4)
    assert move_words(old_words + 2, old_tags + 2, new_tags - 3, penalty=1) != pytest.approx(moved, abs=0.1)
    by_hand = old_words - old_tags.mean(0), old_tags - old_tags.mean(0), new_tags - new_tags.mean(0)
    assert moved == pytest.approx(move_words(*by_hand, penalty=1), abs=1e-4)


def test_blocks_do_not_change_the_result(monkeypatch):
    given = drawn(n_words=11)
    whole = move_words(*given)
    monkeypatch.setattr(moved_words, "BLOCK_FLOATS", 40)  # two words at a time
    assert move_words(*given) == pytest.approx(whole, abs=1e-4)


def test_drawn_partners_bring_words_near_to_where_all_bring_them(monkeypatch):
    monkeypatch.setattr(moved_words, "MAX_PARTNERS", 40)
    monkeypatch.setattr(moved_words, "MAX_SWEEPS", 300)
    monkeypatch.setattr(moved_words, "TOLERANCE", 1e-9)
    rng = np.random.default_rng(2)
    old_words, old_tags = rng.normal(size=(150, 3)), rng.normal(size=(120, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    moved = move_words(old_words, old_tags, old_tags @ turn)
    assert moved == pytest.approx(old_words @ turn, abs=0.1)
    again = move_words(old_words, old_tags, old_tags @ turn)
    assert np.array_equal(moved, again)


def test_a_direction_without_tags_stays_empty():
    old_words, old_tags, new_tags = drawn(new_width=2)
    moved = move_words(old_words, old_tags, np.hstack([new_tags, np.zeros((8, 1))]))
    assert not moved[:, 2].any()


def test_no_words_are_no_error():
    assert move_words(np.empty((0, 2)), [[1.0, 0.0]], [[1.0, 0.0, 0.0]]).shape == (0, 3)
