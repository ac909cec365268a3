"""A run of each model of this package has the same bytes for any number of threads."""

from __future__ import annotations

import pytest

from test_same_run_folders import check_bytes, installed, planted
from visterm.core.registry import RESEARCH

__all__ = ["planted"]


@pytest.mark.parametrize("model", installed(RESEARCH))
def test_a_run_has_the_same_bytes_with_one_thread_and_two(model, planted, tmp_path):
    check_bytes(model, planted, tmp_path)
