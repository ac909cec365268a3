"""One tag of an image held out, to choose settings and to judge by."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.data.tag_queries import hold_one_out


def test_one_tag_is_held_out_of_each_image_that_has_two() -> None:
    Y = sp.csr_array(np.array([[1, 1, 0, -1], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], np.float32))
    held = hold_one_out(Y, np.random.default_rng(3))
    assert held.images.tolist() == [0, 2]
    assert held.held.sum(axis=1).tolist() == [1, 1]
    np.testing.assert_array_equal(held.known.toarray(), held.rest.toarray()[[0, 2]])
    together = held.rest.toarray()
    together[held.images] += held.held.toarray()
    np.testing.assert_array_equal(together, Y.toarray())


def test_held_out_tags_are_drawn_evenly_from_an_image_and_from_as_many_images_as_asked() -> None:
    Y = sp.csr_array(np.ones((3000, 3), np.float32))
    counts = np.asarray(hold_one_out(Y, np.random.default_rng(0)).held.sum(axis=0)).ravel()
    assert abs(counts - 1000).max() < 120
    assert hold_one_out(Y, np.random.default_rng(0), at_most=10).images.size == 10


def test_nothing_can_be_held_out_of_images_with_one_tag() -> None:
    with pytest.raises(DataError, match="No image has two tags"):
        hold_one_out(sp.csr_array(np.eye(4, dtype=np.float32)), np.random.default_rng(0))
