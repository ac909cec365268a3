"""Processes that work together by Ray Train: one that is lost, and errors that end workers on purpose."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytest.importorskip("ray", reason="wants the package ray (extra ray)")

from visterm.cluster.train_group import run_group
from visterm.core.errors import DivergedError
from visterm.core.executor import Group
from visterm.core.progress import SILENT

pytestmark = pytest.mark.slow


def test_when_a_worker_is_lost_all_begin_again_and_go_on(ray_engine, tmp_path):
    def work(together, progress):
        from ray.train.collective import barrier

        (tmp_path / f"begun.{together.rank}.{time.time_ns()}").touch()
        barrier()
        if together.rank == 1 and len(list(tmp_path.glob("begun.1.*"))) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        barrier()
        return together

    assert run_group(work, Group(2, 1), tmp_path, SILENT) == (0, 2, 1)
    assert [len(list(tmp_path.glob(f"begun.{rank}.*"))) for rank in range(2)] == [2, 2]


def test_an_error_of_one_worker_ends_the_job_and_those_that_wait_for_it(ray_engine, tmp_path):
    def work(together, progress):
        from ray.train.collective import barrier

        if together.rank == 1:
            raise DivergedError("It went to infinity.")
        barrier()

    with pytest.raises(DivergedError, match=r"It went to infinity\.") as caught:
        run_group(work, Group(2, 1), tmp_path, SILENT)
    assert "In a worker:" in caught.value.__notes__[0]


def test_what_a_killed_command_left_is_swept_and_nothing_stays(ray_engine, tmp_path):
    (tmp_path / "told.1").mkdir()
    assert run_group(lambda member, progress: member.broadcast("said"), Group(1, 1), tmp_path, SILENT) == "said"
    assert list(tmp_path.iterdir()) == []
