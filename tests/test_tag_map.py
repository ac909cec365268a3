"""The map of tags puts tags with like vectors together."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from visterm.core.errors import UserError
from visterm.core.vocabulary import Vocabulary
from visterm.models.neighbours.knn import Knn
from visterm.tagging.tag_map import tag_map


def vocabulary(n_tags: int) -> Vocabulary:
    return Vocabulary.from_lists([[f"tag {i:02d}"] for i in range(n_tags)])


def model(vectors) -> SimpleNamespace:
    return SimpleNamespace(tag_rows_=np.asarray(vectors, np.float32))


def test_tags_of_one_direction_lie_together_whatever_their_length():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 8)
    vectors = 10 * np.eye(12)[groups] + 0.1 * rng.standard_normal((24, 12))
    vectors *= rng.uniform(0.1, 10, (24, 1))
    places = np.array([(tag.x, tag.y) for tag in tag_map(model(vectors), vocabulary(24))])
    assert places.min() == 0.0
    assert places.max() == 1.0
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (groups[apart.argmin(axis=1)] == groups).all()


def test_the_same_seed_gives_the_same_map():
    vectors = np.random.default_rng(1).standard_normal((10, 5))
    assert tag_map(model(vectors), vocabulary(10)) == tag_map(model(vectors), vocabulary(10))


@pytest.mark.parametrize("n_tags", [1, 2, 3])
def test_a_few_tags_have_places_too(n_tags):
    placed = tag_map(model(np.eye(4)[:n_tags]), vocabulary(n_tags))
    assert [tag.tag for tag in placed] == [f"tag {i:02d}" for i in range(n_tags)]
    assert all(0 <= tag.x <= 1 and 0 <= tag.y <= 1 and tag.images == 1 for tag in placed)


def test_tags_that_are_all_the_same_lie_in_the_middle():
    assert {(tag.x, tag.y) for tag in tag_map(model(np.ones((6, 3))), vocabulary(6))} == {(0.5, 0.5)}


def test_a_model_without_vectors_of_tags_has_no_map():
    tags = vocabulary(3)
    fitted = Knn().fit(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))
    with pytest.raises(UserError, match="'knn' of this run has no vectors"):
        tag_map(fitted, tags)
