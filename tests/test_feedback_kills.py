"""Kills (SIGKILL) between what people say and what is learned from it: nothing acknowledged is lost.

Those of `test_catalogue_kills.py` take seconds, and are tried each time.
"""

from __future__ import annotations

import pytest

from feedback_kills import Kills


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    return Kills(tmp_path_factory.mktemp("kills"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_after_kills_all_that_was_acknowledged_is_there_and_is_learned(kills, seed):
    kills.seed(seed)
    assert kills.acknowledged > 0
