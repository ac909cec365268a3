"""Pyramids of counts against their slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from reference import histograms as slow_pyramids
from visterm_research.kernels.pyramids import pyramid_histograms


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (13, 18), (1, 30)])
def test_pyramids_equal_those_of_their_slow_twin(shape, levels):
    codes = np.random.default_rng(1).integers(0, 7, shape).astype(np.uint16)
    found = pyramid_histograms(codes, 7, levels)
    for level, expected in zip(found, slow_pyramids.pyramid_histograms(codes, 7, levels), strict=True):
        assert level.dtype == np.float32
        np.testing.assert_allclose(level, expected, atol=1e-6)


def test_codes_beyond_the_last_are_not_counted():
    counted = pyramid_histograms(np.array([[0, 1], [9, 1]], np.uint16), 2, 1)
    np.testing.assert_array_equal(counted[0], [0.25, 0.5])
