"""Several workers train the same weights: what their moves sum to, that all end alike, and as well as one alone."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from planted import plant_corpus
from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.metrics.ranking import average_precisions
from visterm.models.ranking.streamed_fit import StreamedFit
from visterm.models.ranking.worker_sync import (
    LeftAloneError,
    MeetingPlace,
    Moves,
    moves,
    sum_of_moves,
    syncs_a_window,
    take_moves,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from harness.row_windows import RowWindows

TOGETHER = [entry.name for entry in MODELS if not entry.extra and issubclass(MODELS.load(entry.name), StreamedFit)]
TOGETHER = [name for name in TOGETHER if MODELS.load(name).learns_together]


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=240, n_test=60, n_tags=12, random_state=5)


def fit_together(name, planted, n_workers, *, seed=0, checkpoints=None, valid=None, windows=RowWindows, **params):
    """Fit a model a worker, each in a thread of its own, and give them in order."""
    place = MeetingPlace(n_workers)

    def work(rank):
        model = MODELS.create(name, **{**MODELS.load(name).test_params, "random_state": seed, "n_jobs": 1, **params})
        part = windows(planted.X_train, planted.Y_train, rank, n_workers)
        kept = checkpoints[rank] if checkpoints else None
        try:
            return model.fit_stream(part, valid=valid, checkpoints=kept, exchange=place.exchange(rank))
        except BaseException:
            place.close()
            raise

    with ThreadPoolExecutor(n_workers) as pool:
        return [future.result() for future in [pool.submit(work, rank) for rank in range(n_workers)]]


# -- moves ------------------------------------------------------------------------------------------------------------


def test_moves_are_the_rows_that_changed():
    before = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    now = np.array([[1, 2], [3, 5], [4, 6]], np.float32)
    found = moves(before, now)
    assert found.rows.tolist() == [1, 2]
    assert found.change.tolist() == [[0, 1], [-1, 0]]
    assert found.movers.tolist() == [1, 1]


def test_rows_that_one_worker_moved_keep_its_move_and_others_take_the_sum():
    one = Moves(np.array([0, 2]), np.array([[1.0], [2.0]], np.float32), np.ones(2, np.int32))
    other = Moves(np.array([2, 3]), np.array([[10.0], [20.0]], np.float32), np.ones(2, np.int32))
    summed = sum_of_moves([one, other])
    assert summed.rows.tolist() == [0, 2, 3]
    assert summed.change.ravel().tolist() == [1, 12, 20]
    assert summed.movers.tolist() == [1, 2, 1]


def test_workers_who_moved_the_same_number_of_other_rows_are_not_taken_for_alike():
    one = Moves(np.array([0, 1]), np.ones((2, 1), np.float32), np.ones(2, np.int32))
    other = Moves(np.array([1, 2]), np.ones((2, 1), np.float32), np.ones(2, np.int32))
    assert sum_of_moves([one, other]).change.ravel().tolist() == [1, 2, 1]


def test_a_sum_that_is_too_long_is_brought_back_and_a_single_move_is_not_touched():
    before = np.zeros((2, 2), np.float32)
    now = np.array([[9, 9], [9, 9]], np.float32)
    summed = Moves(np.array([0, 1]), np.array([[3, 4], [3, 4]], np.float32), np.array([2, 1], np.int32))
    take_moves(before, now, summed, 1.0)
    np.testing.assert_allclose(now, [[0.6, 0.8], [3, 4]], rtol=1e-6)
    np.testing.assert_array_equal(before, now)


def test_vectors_are_summed_number_by_number():
    before, now = np.ones(3, np.float32), np.array([1, 3, 1], np.float32)
    found = moves(before, now)
    take_moves(before, now, sum_of_moves([found, found]), np.inf)
    assert now.tolist() == [1, 5, 1]


@pytest.mark.parametrize(
    ("n_pairs", "n_windows", "expected"),
    [(6400, 1, 16), (6400, 8, 2), (6400, 1000, 1), (10, 1, 10), (65_536 * 640, 10, 64), (0, 0, 1)],
)
def test_workers_meet_at_least_16_times_an_epoch_and_every_65536_pairs(n_pairs, n_windows, expected):
    assert syncs_a_window(n_pairs, n_windows) == expected


# -- meetings ---------------------------------------------------------------------------------------------------------


def test_all_leave_a_meeting_with_what_each_brought_in_the_order_of_ranks():
    place = MeetingPlace(3)
    with ThreadPoolExecutor(3) as pool:
        for turn in range(20):
            found = list(pool.map(lambda rank, turn=turn: place.exchange(rank).gather((turn, rank)), [2, 0, 1]))
            assert found == [[(turn, 0), (turn, 1), (turn, 2)]] * 3


def test_nobody_waits_for_a_worker_that_will_not_come():
    place = MeetingPlace(2)
    threading.Timer(0.05, place.close).start()
    with pytest.raises(LeftAloneError):
        place.exchange(0).gather(1)


# -- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOGETHER)
def test_workers_end_with_the_same_bytes_and_again_with_the_same(name, planted):
    runs = [fit_together(name, planted, 3, epochs=3, valid=(planted.X_test, planted.Y_test)) for _ in range(2)]
    first = runs[0][0]
    for model in [*runs[0], *runs[1]]:
        np.testing.assert_array_equal(model.tag_rows_, first.tag_rows_, strict=True)
        assert [entry["map"] for entry in model.history_] == [entry["map"] for entry in first.history_]


@pytest.mark.parametrize("step", ["sgd", "adagrad"])
def test_four_workers_learn_as_well_as_one(planted, step):
    params = {"epochs": 12, "dim": 16, "block": 8, "step": step, "learning_rate": 0.005 if step == "sgd" else 0.1}

    def judged(model):
        return np.nanmean(average_precisions(model.decision_function(planted.X_test), planted.Y_test))

    alone = MODELS.create("wsabie", n_jobs=1, **params).fit_stream(RowWindows(planted.X_train, planted.Y_train))
    together = fit_together("wsabie", planted, 4, **params)[0]
    untrained = judged(fit_together("wsabie", planted, 1, **{**params, "epochs": 1, "learning_rate": 1e-9})[0])
    assert judged(together) > 0.97 * judged(alone) > 1.5 * untrained


def test_the_measure_is_that_of_one_worker_on_all_validation_images(planted):
    model = fit_together("wsabie", planted, 3, epochs=2, average=1, valid=(planted.X_test, planted.Y_test))[0]
    found = np.nanmean(average_precisions(model.decision_function(planted.X_test), planted.Y_test))
    best = max(entry["map"] for entry in model.history_)
    assert found == pytest.approx(best, abs=1e-6)


class EveryWindow:
    """Keeps the checkpoints of all windows."""

    def __init__(self, start=None):
        self.kept, self._start = [], start

    def last(self):
        return self._start and copied(self._start)

    def offer(self, make):
        self.kept.append(copied(make()))

    keep = offer


def copied(checkpoint):
    return checkpoint._replace(arrays={name: array.copy() for name, array in checkpoint.arrays.items()})


class TwoWindows(RowWindows):
    """Cuts a worker's rows in two windows, the second of which only the first worker has."""

    def __init__(self, X, Y, rank, n_workers):
        super().__init__(X, Y, rank, n_workers)
        self._half = self._rows[0].shape[0] // (2 if rank == 0 else 1)

    def n_windows(self, epoch):
        return 2

    def epoch(self, epoch, first=0):
        X, Y = self._rows
        yield from [(X[: self._half], Y[: self._half]), (X[self._half :], Y[self._half :])][first:]


@pytest.mark.parametrize("name", ["wsabie", "warp_linear", "vse_ens"])
def test_workers_go_on_from_the_first_ones_checkpoint_to_the_same_bytes(name, planted):
    how = {"epochs": 3, "windows": TwoWindows, "valid": (planted.X_test, planted.Y_test)}
    if name == "wsabie":
        how["step"] = "adagrad"
    first, second = EveryWindow(), EveryWindow()
    whole = fit_together(name, planted, 2, checkpoints=[first, second], **how)[0]
    assert len(first.kept) == 3 * 3 + 1  # two windows and an end each epoch, and the last
    for start in (first.kept[0], first.kept[4], first.kept[-1]):
        again = fit_together(name, planted, 2, checkpoints=[EveryWindow(start), EveryWindow(start)], **how)[1]
        np.testing.assert_array_equal(again.tag_rows_, whole.tag_rows_, strict=True)


def test_the_last_checkpoint_is_all_that_a_model_needs_to_be_finished(planted):
    kept = EveryWindow()
    whole = fit_together("wsabie", planted, 2, checkpoints=[kept, None], epochs=2)[0]
    params = {**MODELS.load("wsabie").test_params, "epochs": 2}
    alone = MODELS.create("wsabie", **params).fit_stream(
        RowWindows(planted.X_train, planted.Y_train), checkpoints=EveryWindow(kept.kept[-1])
    )
    np.testing.assert_array_equal(alone.tag_rows_, whole.tag_rows_, strict=True)


def test_workers_of_different_seeds_are_told_apart(planted):
    place = MeetingPlace(2)

    def work(rank):
        windows = RowWindows(planted.X_train, planted.Y_train, rank, 2)
        with pytest.raises(UserError, match="random_state differs"):
            MODELS.create("wsabie", random_state=rank).fit_stream(windows, exchange=place.exchange(rank))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
