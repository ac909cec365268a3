"""`auto` over features of several kinds: models of one block beside models of all, and which are worth trying."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.models.blend.auto import Auto
from visterm.models.blend.candidates import ColumnSet, column_sets
from visterm.models.blend.trials import MemberTrial, in_turn, shortlist
from visterm.models.linear.ridge import Ridge
from visterm.models.neighbours.distances import read_blocks

KNN = ("knn", {"n_neighbors": 10, "power": 2})
RIDGE = ("ridge", {"alpha": 1.0})


class Kinds:
    """Rows of two kinds side by side: full ones that know the first tags, and bags that know the last ones."""

    def __init__(self):
        rng = np.random.default_rng(4)
        full, bags = plant_corpus(n_tags=6, random_state=1), plant_corpus(n_tags=6, random_state=2)
        signs = rng.normal(size=(full.X_train.shape[1], 12)).astype(np.float32)
        self.widths = [12, bags.X_train.shape[1]]
        self.X_train, self.X_test = (
            np.hstack([one @ signs, self.bag(two)])
            for one, two in ((full.X_train, bags.X_train), (full.X_test, bags.X_test))
        )
        self.Y_train, self.Y_test = (
            sp.csr_array(sp.hstack(pair)) for pair in ((full.Y_train, bags.Y_train), (full.Y_test, bags.Y_test))
        )

    @staticmethod
    def bag(rows):
        """Only the largest values stay."""
        return np.where(np.abs(rows) < np.quantile(np.abs(rows), 0.93), 0, rows).astype(np.float32)


@pytest.fixture(scope="module")
def kinds():
    return Kinds()


def trial(name, kind, block, both=None):
    made = MemberTrial(name, Ridge(), {}, kind, ColumnSet(block, 0, 1, 1))
    if both is not None:
        made.map = made.word_map = both / 2
    return made


def test_columns_are_all_and_each_block_and_well_filled_blocks_are_arrays(kinds):
    X = np.array([[1, 2, 0, 0, 0], [3, 4, 0, 5, 0]], np.float32)
    for form in (np.asarray, sp.csr_array):
        sets = column_sets(form(X), [2, 3])
        assert [(each.block, each.first, each.stop) for each in sets] == [(0, 0, 5), (1, 0, 2), (2, 2, 5)]
        np.testing.assert_array_equal(sets[1].of(form(X)), X[:, :2])
        assert isinstance(sets[1].of(form(X)), np.ndarray)
    filled = [each.dense for each in column_sets(kinds.X_train, kinds.widths)]
    assert filled[1:] == [1, 0]
    bags = column_sets(kinds.X_train, kinds.widths)[2].of(kinds.X_train)
    assert sp.issparse(bags)
    np.testing.assert_array_equal(bags.toarray(), kinds.X_train[:, 12:])


def test_all_columns_are_an_array_if_a_block_is_and_left_out_if_that_is_too_large(monkeypatch):
    X = sp.csr_array(np.eye(20, 15, dtype=np.float32))
    filled = sp.csr_array(np.ones((20, 2), np.float32))
    of_bags = column_sets(X, [5, 10])[0].of(X)
    assert of_bags is X
    both = sp.csr_array(sp.hstack([X, filled]))
    everything = column_sets(both, [15, 2])[0].of(both)
    assert isinstance(everything, np.ndarray)
    np.testing.assert_array_equal(everything, both.toarray())
    monkeypatch.setattr("visterm.models.blend.candidates.MAX_DENSE_BYTES", 4 * 20 * 17 - 1)
    assert [each.block for each in column_sets(both, [15, 2])] == [1, 2]
    assert [each.block for each in column_sets(both.toarray(), [15, 2])] == [0, 1, 2]


@pytest.mark.parametrize("blocks", [None, [5], [(0, 5)]])
def test_of_one_block_there_are_only_all_columns_as_they_come(blocks):
    X = sp.csr_array(np.ones((2, 5), np.float32))
    (everything,) = column_sets(X, blocks)
    assert everything.of(X) is X


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_blend_is_the_sum_of_models_of_which_each_reads_its_own_block(form, kinds):
    X, Y, valid = form(kinds.X_train), kinds.Y_train, (form(kinds.X_test), kinds.Y_test)
    model = Auto(candidates=[RIDGE], blocks=kinds.widths, lift=0).fit(X, Y, valid=valid)
    judged = np.flatnonzero((valid[1].toarray() > 0).any(axis=1))
    slices = {None: slice(None), 1: slice(0, 12), 2: slice(12, None)}
    assert [entry["block"] for entry in model.report_] == [None, 1, 2]
    expected = 0
    for entry in model.report_:
        columns = slices[entry["block"]]
        member = Ridge(alpha=1.0).fit(kinds.X_train[:, columns], Y)
        seen = member.decision_function(kinds.X_test[judged][:, columns]).astype(float)
        scores = member.decision_function(kinds.X_test[:, columns])
        expected = expected + entry["weight"] * (scores - seen.mean()) / seen.std()
    np.testing.assert_allclose(model.decision_function(valid[0]), expected, rtol=1e-3, atol=1e-3)
    used = [entry["block"] or 0 for entry in model.report_ if entry["weight"] > 0]
    np.testing.assert_array_equal(model.columns_[:, 0], used)


def test_models_of_both_kinds_are_blended_where_each_knows_tags_of_its_own(kinds, tmp_path):
    model = Auto(candidates=[("knn", {})], blocks=kinds.widths).fit(sp.csr_array(kinds.X_train), kinds.Y_train)
    best = max(entry["map"] + entry["word_map"] for entry in model.report_ if entry["model"] == "knn")
    assert len(model.members_) > 1
    assert model.valid_map_ + model.valid_word_map_ > best + 0.02
    for member, (_, _, _, dense) in zip(model.members_, model.columns_.tolist(), strict=True):
        assert not hasattr(member, "rows_") or sp.issparse(member.rows_) == (not dense)
    assert model.report_[1]["block"] == 1
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(kinds.X_test), model.decision_function(kinds.X_test))


def test_the_first_candidate_is_tried_everywhere_and_the_others_where_it_did_best():
    trials = [trial(name, kind, block) for block in range(5) for kind, name in enumerate(("knn", "ridge", "prior"))]
    done = []
    for each in in_turn(trials):
        if not each.reason:
            each.map = each.word_map = {0: 0.3, 1: 0.1, 2: 0.4, 3: 0.2, 4: 0.25}[each.columns.block]
            done.append((each.name, each.columns.block))
    assert done[:5] == [("knn", block) for block in range(5)]
    assert done[5:] == [("ridge", 2), ("ridge", 0), ("ridge", 4), ("prior", 2), ("prior", 0), ("prior", 4)]
    left_out = {(each.name, each.columns.block) for each in trials if each.reason}
    assert left_out == {("ridge", 1), ("ridge", 3), ("prior", 1), ("prior", 3)}
    assert trials[4].reason == "left out: knn did better on other columns"


def test_six_models_are_weighed_the_best_of_each_block_among_them():
    fitted = [trial("a", kind, 0, 1 - kind / 100) for kind in range(7)] + [trial("b", 0, 1, 0.2), trial("c", 1, 1, 0.1)]
    assert [(each.name, each.position) for each in shortlist(fitted)] == [("a", k) for k in range(5)] + [("b", 0)]


@pytest.mark.parametrize("blocks", [[3, 4], "12"])
def test_blocks_that_do_not_fit_are_refused(blocks, kinds):
    with refused("blocks", value=blocks):
        Auto(blocks=blocks, candidates=[RIDGE]).fit(kinds.X_train, kinds.Y_train)


def test_images_known_only_by_number_have_no_blocks():
    Y = plant_corpus(n_tags=12, random_state=3).Y_train[:60]
    assert [entry["model"] for entry in Auto(blocks=[3, 4]).fit(None, Y).report_][:2] == ["ease", "wsabie"]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (None, [slice(0, 6)]),
        ([2, 4], [slice(0, 2), slice(2, 6)]),
        ((np.int64(6),), [slice(0, 6)]),
        ([(0, 3), [1, 6]], [slice(0, 3), slice(1, 6)]),
    ],
)
def test_blocks_are_widths_or_pairs(blocks, expected):
    assert read_blocks(blocks, 6) == expected


@pytest.mark.parametrize("blocks", [[], "26", [2, (0, 3)], [0, 6], [-1, 7], [True], [(3, 3)], [(0, 1, 2)], 6, [2.0, 4]])
def test_blocks_that_cannot_be_are_refused_with_what_is_accepted(blocks):
    with refused("blocks", value=blocks):
        Auto(blocks=blocks).check_settings()


@pytest.mark.parametrize("blocks", [[2, 5], [(0, 7)]])
def test_blocks_that_do_not_fit_the_features_are_refused(blocks):
    with refused("blocks", value=blocks):
        read_blocks(blocks, 6)
