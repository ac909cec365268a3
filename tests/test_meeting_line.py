"""Workers of other processes come to a meeting place by connections."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import numpy as np
import pytest

from visterm.models.ranking.worker_sync import Exchange, LeftAloneError, MeetingPlace, Moves
from visterm.tagging.streamed_fit_together import Caller, open_line


def moved(rows, change):
    return Moves(np.array(rows), np.array(change, np.float32), np.ones(len(rows), np.int32))


def test_the_first_worker_and_those_by_line_leave_with_the_same_sum():
    place = MeetingPlace(3)
    caller = Caller(open_line(place, "127.0.0.1"))
    brought = [moved([0, 2], [[1, 1], [2, 2]]), moved([2], [[10, 20]]), moved([5], [[7, 0]])]
    ways = [place.meet, caller.meet, caller.meet]
    with ThreadPoolExecutor(3) as pool:
        met = [pool.submit(Exchange(rank, 3, ways[rank]).sum_moves, [brought[rank]]) for rank in range(3)]
        for one in met:
            (summed,) = one.result(30)
            np.testing.assert_array_equal(summed.rows, [0, 2, 5])
            np.testing.assert_array_equal(summed.change, [[1, 1], [12, 22], [7, 0]])
            np.testing.assert_array_equal(summed.movers, [1, 2, 1])


def test_large_messages_arrive_whole():
    place = MeetingPlace(2)
    caller = Caller(open_line(place, "127.0.0.1"))
    values = [np.arange(1_000_000, dtype=np.float32), np.arange(3)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            met = [pool.submit(way, rank, "gather", values[rank]) for rank, way in enumerate([place.meet, caller.meet])]
            for one in met:
                for found, expected in zip(one.result(30), values, strict=True):
                    np.testing.assert_array_equal(found, expected)


def test_a_worker_whose_connection_ends_leaves_the_others_alone():
    place = MeetingPlace(3)
    line = open_line(place, "127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(place.meet, 0, "gather", 1), pool.submit(Caller(line).meet, 1, "gather", 1)]
        threading.Timer(0.2, Caller(line).close).start()
        for one in waiting:
            with pytest.raises(LeftAloneError):
                one.result(30)


def test_who_does_not_know_the_key_is_not_let_in_and_disturbs_nobody():
    place = MeetingPlace(2)
    line = open_line(place, "127.0.0.1")
    with pytest.raises(AuthenticationError):
        Client((line.host, line.port), authkey=b"another")
    caller = Caller(line)
    with ThreadPoolExecutor(2) as pool:
        met = [pool.submit(way, rank, "gather", rank) for rank, way in enumerate([place.meet, caller.meet])]
        assert [one.result(30) for one in met] == [[0, 1], [0, 1]]


def test_a_place_that_is_gone_is_reported():
    line = open_line(MeetingPlace(2), "127.0.0.1")
    with pytest.raises(LeftAloneError, match="gone"):
        Caller(line._replace(port=1)).meet(0, "gather", 1)
    with contextlib.closing(Caller(line._replace(port=1))):
        pass
