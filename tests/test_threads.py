"""Threads that share out the parts of a job: all parts once, in order, errors told, and places that they may use."""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType

import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from visterm.core import threads
from visterm.core.threads import Team, one_blas_thread, standing_team


def blas_threads():
    return {library["num_threads"] for library in threadpool_info()}


def test_blas_has_one_thread_for_a_while_and_then_as_many_as_before():
    with threadpool_limits(2):
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == before == {2}


def test_libraries_with_threads_are_looked_for_again_only_after_an_import(monkeypatch):
    looked = []
    monkeypatch.setattr(threads, "ThreadpoolController", lambda: looked.append(1) or ThreadpoolController())
    threads._libraries.cache_clear()
    for _ in range(3):
        with one_blas_thread():
            pass
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "imported_just_now", ModuleType("imported_just_now"))
    with one_blas_thread():
        assert len(looked) == 2


def test_parts_are_run_once_each_by_a_few_threads_that_are_kept():
    threads = set()

    def part(i):
        threads.add(threading.get_ident())
        return i * i

    for _ in range(5):
        assert standing_team(3).run(part, 20) == [i * i for i in range(20)]
    assert len(threads) <= 3


def test_an_error_in_a_part_is_raised_and_the_threads_serve_on():
    def part(i):
        if i == 1:
            raise ValueError("no part 1")
        return i

    for _ in range(3):
        with pytest.raises(ValueError, match="no part 1"):
            standing_team(2).run(part, 2)
    assert standing_team(2).run(str, 3) == ["0", "1", "2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own():
    standing_team(2).run(str, 4)
    child = os.fork()
    if child == 0:
        ended = standing_team(2).run(str, 4) == ["0", "1", "2", "3"]
        os._exit(0 if ended else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_part_may_use_the_team_that_runs_it():
    team = standing_team(2)
    assert team.run(lambda i: sum(team.run(lambda j: i * j, 4)), 4) == [0, 6, 12, 18]


def test_a_team_ends_its_threads():
    with Team(3) as team:
        team.run(str, 9)
    assert not [thread for thread in threading.enumerate() if thread in team._pool._threads]
