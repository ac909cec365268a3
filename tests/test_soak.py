"""The service under kills and a full disk, for as many minutes as ``VISTERM_SOAK_MINUTES`` says (2 if it is unset)."""

from __future__ import annotations

import os

import pytest

from small_disks import small_disk
from soak import soak


@pytest.mark.slow
def test_nothing_that_the_service_acknowledged_is_lost_by_kills_and_a_full_disk():
    try:
        with small_disk(2**20):
            pass
    except OSError as error:
        pytest.skip(str(error))
    figures = soak(float(os.environ.get("VISTERM_SOAK_MINUTES", "2")))
    assert figures["verdicts"] > 0
