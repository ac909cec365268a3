"""What benchmarks count as memory: the peak above what was there, whatever was taken and given back before."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

from lab.cost import CLEAR, Cost

pytestmark = pytest.mark.skipif(not CLEAR.exists(), reason="memory at its peak is read on Linux only")
MB = 2**20


def take(megabytes):
    """Use memory for a moment: pages from the system, and none that this process kept of what it gave back."""
    with mmap.mmap(-1, megabytes * MB) as pages:
        for place in range(0, len(pages), mmap.PAGESIZE):
            pages[place] = 1


def test_a_peak_is_that_of_the_work_not_of_what_came_before():
    take(200)
    with Cost() as small:
        take(20)
    with Cost() as large:
        take(100)
    assert 15 * MB < small.bytes < 60 * MB
    assert 90 * MB < large.bytes < 140 * MB


def test_costs_of_pieces_that_follow_each_other_add_up_to_the_highest_peak_above_the_first_start():
    both = Cost(seconds=1.0, before=100, peak=150) + Cost(seconds=2.0, before=140, peak=300)
    assert (both.seconds, both.bytes) == (3.0, 200)
    assert (both + Cost(seconds=1.0, before=140, peak=200)).bytes == 200
