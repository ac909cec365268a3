"""The shares of an image's features sum to the score of every model of this package that explains."""

from __future__ import annotations

import pytest

from test_explain import KINDS, check_shares, explaining
from visterm.core.registry import RESEARCH


# With a kernel, scores are sums over training images: test_kernel_pamir.py
@pytest.mark.parametrize("name", [name for name in explaining(RESEARCH) if name != "kernel_pamir"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_the_features_sum_to_the_score_of_every_model_that_explains(name, kind):
    check_shares(name, kind)
