"""What is believed of parts: by scores written down here, and relations that say which way."""

from __future__ import annotations

import numpy as np
import pytest

from visterm.core.vocabulary import Vocabulary
from visterm.learning.relations import WordRelations
from visterm.tagging.part_relations import PartBeliefs

HOUSE, CASTLE, TOWER, ROOF, MOON = range(5)
KNOWN = [(TOWER, CASTLE), (ROOF, CASTLE), (ROOF, TOWER), (ROOF, HOUSE)]


class Scored:
    """A model whose beliefs are a table, (whole, part)."""

    def __init__(self, table, directed, part_of=(), shared=True):
        self.table = np.asarray(table, np.float32)
        self.settings = {"directed": directed, "shared": shared}
        self.part_of_ = np.array(part_of, np.int64).reshape(-1, 2)

    def get_params(self, deep=True):
        return self.settings

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
    # Castle and house are always wholes, the tower is one in 1 of 2, the roof never; nothing is known of the moon.
    model = Scored(table(ht=0.9, hc=0.8, rm=0.7, mt=0.6, ct=0.95, mh=-0.5), False, KNOWN[:1])
    found = PartBeliefs(model, KNOWN, 5).predicted(0)
    assert [pair[:2] for pair in found] == [
        (TOWER, HOUSE),  # house and castle are no parts, however near they are
        (ROOF, MOON),
        (MOON, TOWER),  # both half; the tower is a whole in one relation more
    ]
    assert [score for *_, score in found] == pytest.approx([0.9, 0.7, 0.6])
    assert PartBeliefs(model, KNOWN, 5).predicted(2) == found[:2]


def test_tags_without_relations_are_left_out_where_only_relations_teach_their_vectors():
    model = Scored(table(ht=0.9, rm=0.7, mt=0.6), False, KNOWN, shared=False)
    assert [pair[:2] for pair in PartBeliefs(model, [], 5).predicted(0)] == [(TOWER, HOUSE)]


def test_a_model_with_directions_is_taken_at_its_word_among_what_can_be():
    scores = np.full((5, 5), -1.0)
    scores[HOUSE, TOWER], scores[TOWER, HOUSE], scores[CASTLE, MOON], scores[MOON, ROOF] = 0.25, 0.5, 0.4, 0.3
    scores[TOWER, CASTLE], scores[TOWER, TOWER], scores[HOUSE, ROOF] = 0.9, 0.9, 0.9
    found = PartBeliefs(Scored(scores, True, KNOWN), [], 5).predicted(0)
    assert [pair[:2] for pair in found] == [(ROOF, MOON), (TOWER, HOUSE)]


def test_nothing_is_part_of_what_it_is_a_kind_of_nor_the_other_way_round():
    model = Scored(table(ht=0.9, rm=0.7), False, KNOWN)
    for kinds in ([(TOWER, HOUSE)], [(HOUSE, TOWER)]):
        found = PartBeliefs(model, [], 5, kinds).predicted(0)
        assert [pair[:2] for pair in found] == [(ROOF, MOON)]


def test_kinds_reach_over_words_that_are_no_tags():
    is_a = [("oak", "tree"), ("Tree", "plant"), ("plant", "being"), ("being", "tree")]
    kinds = WordRelations(is_a=is_a).ancestor_columns(Vocabulary(["being", "oak", "plant"]))
    assert kinds.tolist() == [[0, 2], [1, 0], [1, 2], [2, 0]]


def test_what_is_known_stays_possible_whatever_the_counts_say():
    # The tower is a whole in fewer of its relations than the house, and is said to be one of it all the same.
    beliefs = PartBeliefs(Scored(table(ht=0.4), False, [(HOUSE, TOWER)]), KNOWN, 5)
    assert beliefs.scores(np.array([TOWER]))[0, HOUSE] == np.float32(0.4)
    assert beliefs.scores(np.array([HOUSE]))[0, TOWER] == -np.inf
    assert beliefs.parts_of(TOWER).tolist() == [HOUSE, ROOF]


def test_blocks_of_wholes_give_what_one_block_gives(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    told = [(0, 4), (1, 5), (2, 6), (3, 4), (0, 2), (1, 3)]
    beliefs = PartBeliefs(Scored(scores, True, told), [], 8)
    whole = beliefs.predicted(0)
    monkeypatch.setattr("visterm.tagging.part_relations.BLOCK_SIZE", 3)
    assert beliefs.predicted(0) == whole
    assert beliefs.predicted(4) == whole[:4]
    expected = [
        (-scores[w, p], w, p)
        for p in (0, 1, 2, 3)
        for w in (2, 3, 4, 5, 6, 7)  # of 7 nothing is known
        if p != w and not {(p, w), (w, p)} & set(told) and scores[w, p] > 0
    ]
    assert [(w, p) for p, w, _ in whole] == [(w, p) for _, w, p in sorted(expected)]


def test_what_the_kin_of_a_tag_have_counts_as_much_as_known_relations_do_on_average():
    # 0 and 1 have the part 4, and 2 is of their kind, 3; the model says 0.2 of both known relations.
    scores = np.full((5, 5), -0.1)
    scores[0, 4] = scores[1, 4] = 0.2
    known, kinds = [(4, 0), (4, 1)], [(0, 3), (1, 3), (2, 3)]
    model = Scored(scores, True, known)
    found = PartBeliefs(model, known, 5, kinds).scores(np.array([2]))
    assert found[0, 4] == pytest.approx(-0.1 + 0.2)
    assert PartBeliefs(model, known, 5).scores(np.array([2]))[0, 4] == pytest.approx(-0.1)


def test_kin_are_two_others_of_a_kind_with_known_parts_and_the_kind_that_has_most_counts():
    known = np.array([(6, 0), (6, 1), (7, 1), (7, 2)])
    kinds = np.array([(0, 4), (1, 4), (2, 4), (3, 4), (0, 5), (3, 5)])  # of kind 5 only 0 has known parts beside 3
    beliefs = PartBeliefs(Scored(np.zeros((8, 8)), True, known), known, 8, kinds)
    shares = beliefs.shares_of_kind(np.array([3, 0, 6]))
    np.testing.assert_allclose(shares[0, 6:], [2 / 3, 2 / 3])
    np.testing.assert_allclose(shares[1, 6:], [1 / 2, 1])  # of 1 and 2
    assert shares[2].max() == 0
