"""What is believed of parts: by scores written down here, and relations that say which way."""

from __future__ import annotations

import numpy as np
import pytest

from visterm.app.part_beliefs import PartBeliefs

HOUSE, CASTLE, TOWER, ROOF, MOON = range(5)
KNOWN = [(TOWER, CASTLE), (ROOF, CASTLE), (ROOF, TOWER), (ROOF, HOUSE)]


class Scored:
    """A model whose beliefs are a table, (whole, part)."""

    def __init__(self, table, directed, part_of=()):
        self.table = np.asarray(table, np.float32)
        self.directed = directed
        self.part_of_ = np.array(part_of, np.int64).reshape(-1, 2)

    def get_params(self, deep=True):
        return {"directed": self.directed}

    def annotate_pairs(self, X_object, X_part, k=5, *, objects=None, parts=None):
        raise NotImplementedError

    def relation_scores(self, wholes):
        return self.table[wholes]


def table(**pairs):
    """Make a symmetric table of 5 tags; keys are two of their letters."""
    letters = "hctrm"
    found = np.full((5, 5), -1.0)
    for two, score in pairs.items():
        i, j = map(letters.index, two)
        found[i, j] = found[j, i] = score
    return found


def test_a_pair_without_direction_is_listed_once_and_the_whole_is_what_is_more_often_one():
    # Castle: 2 of 2; house: 1 of 1; tower: 1 of 2; moon: nothing known, counts as half; roof: 0 of 3.
    model = Scored(table(ht=0.9, hc=0.8, rm=0.7, mt=0.6, ct=0.95, mh=-0.5), False, KNOWN[:1])
    found = PartBeliefs(model, KNOWN, 5).unknown(0)
    assert [(pair.part, pair.whole) for pair in found] == [
        (TOWER, HOUSE),
        (HOUSE, CASTLE),  # both always wholes; the castle in more relations
        (ROOF, MOON),
        (MOON, TOWER),  # both half; the tower is a whole in one relation more
    ]
    assert [pair.score for pair in found] == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert PartBeliefs(model, KNOWN, 5).unknown(2) == found[:2]


def test_a_model_with_directions_is_taken_at_its_word_but_for_the_reverse_of_what_is_known():
    scores = np.full((5, 5), -1.0)
    scores[MOON, HOUSE], scores[HOUSE, MOON], scores[ROOF, HOUSE], scores[TOWER, TOWER] = 0.5, 0.25, 0.9, 0.9
    found = PartBeliefs(Scored(scores, True, KNOWN), [], 5).unknown(0)
    assert found == [(HOUSE, MOON, 0.5), (MOON, HOUSE, 0.25)]


def test_what_is_known_stays_possible_whatever_the_counts_say():
    # The tower is a whole in fewer of its relations than the house, and is said to be one of it all the same.
    beliefs = PartBeliefs(Scored(table(ht=0.4), False, [(HOUSE, TOWER)]), KNOWN, 5)
    assert beliefs.scores(np.array([TOWER]))[0, HOUSE] == np.float32(0.4)
    assert beliefs.scores(np.array([HOUSE]))[0, TOWER] == -np.inf
    assert beliefs.parts_of(TOWER).tolist() == [HOUSE, ROOF]


def test_blocks_of_wholes_give_what_one_block_gives(monkeypatch):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(5, 5)).astype(np.float32)
    beliefs = PartBeliefs(Scored(scores, True, KNOWN), KNOWN, 5)
    whole = beliefs.unknown(0)
    monkeypatch.setattr("visterm.app.part_beliefs.BLOCK", 2)
    assert beliefs.unknown(0) == whole
    told = {*KNOWN, *((b, a) for a, b in KNOWN)}
    expected = [
        (-scores[w, p], w, p) for w in range(5) for p in range(5) if w != p and (p, w) not in told and scores[w, p] > 0
    ]
    assert [(pair.whole, pair.part) for pair in whole] == [(w, p) for _, w, p in sorted(expected)]
