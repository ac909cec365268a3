"""Quadruplets: those that relations allow and no others, as a stream."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.models.parts.relations import Quadruplets

# Tags: 0 wheel, 1 car, 2 window, 3 house, 4 door. Images 0-2 are of cars, 3-4 of wheels, 5 of a window, 6-7 of houses.
SINGLE = np.eye(5)[[1, 1, 1, 0, 0, 2, 3, 3]]
RELATIONS = [(0, 1), (2, 1), (2, 3), (4, 3)]


def as_tuples(block):
    return list(zip(*(column.tolist() for column in block), strict=True))


def allowed(Y, relations):
    """All quadruplets, one by one: the slow way."""
    n = range(len(Y))
    return {
        (i, whole, j, part)
        for part, whole in relations
        for i, j in product(n, n)
        if i != j and Y[i][whole] > 0 and Y[j][part] > 0
    }


def test_all_quadruplets_that_relations_allow_come_and_no_others():
    stream = Quadruplets(SINGLE, RELATIONS)
    assert stream.count == 3 * 2 + 3 * 1 + 2 * 1
    assert set(as_tuples(stream.draw(2000))) == allowed(SINGLE, RELATIONS)


def test_an_image_with_both_tags_is_not_paired_with_itself_and_all_else_is_even():
    Y = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 1]])
    relations = [(0, 1), (2, 1), (1, 0)]
    stream = Quadruplets(Y, relations)
    expected = allowed(Y, relations)
    assert stream.count == len(expected) == sum(stream.counts)
    n = 60_000
    times = Counter(as_tuples(stream.draw(n)))
    assert set(times) == expected
    of_relation = Counter((part, whole) for _, whole, _, part in expected)
    for (i, whole, j, part), count in times.items():
        share = 1 / 3 / of_relation[part, whole]
        assert abs(count - n * share) < 5 * np.sqrt(n * share), (i, whole, j, part)


def test_relations_come_equally_often():
    Y = np.eye(3)[[0] * 9 + [1] * 2 + [2]]
    relations = [(1, 0), (2, 0)]
    n = 20_000
    evenly = np.mean(Quadruplets(Y, relations).draw(n).parts == 1)
    assert evenly == pytest.approx(1 / 2, abs=0.02)


def test_the_stream_is_the_same_however_much_of_it_is_drawn():
    stream = Quadruplets(SINGLE, RELATIONS, random_state=4)
    whole = as_tuples(stream.draw(50))
    assert as_tuples(stream.draw(7)) == whole[:7]
    assert as_tuples(stream.draw(50)) == whole


def test_the_seed_decides_the_stream():
    def draw(seed):
        return as_tuples(Quadruplets(SINGLE, RELATIONS, random_state=seed).draw(40))

    assert draw(3) == draw(3) == draw(np.int64(3))
    assert draw(3) != draw(4)
    assert draw(np.random.default_rng(1)) == draw(np.random.default_rng(1))


def test_relations_without_images_are_left_out():
    stream = Quadruplets(SINGLE, [*RELATIONS, (0, 1)])
    assert stream.relations.tolist() == [[0, 1], [2, 1], [2, 3]]
    only_one_shows_both = [[1, 1, 0], [0, 0, 1]]
    assert Quadruplets(only_one_shows_both, [(0, 1), (1, 0), (0, 2)]).relations.tolist() == [[0, 2]]


def test_negative_tags_do_not_count_and_sparse_is_as_dense():
    signed = SINGLE.copy()
    signed[0] = [-1, 1, -1, 0, 0]
    signed[7, 3] = -1
    assert Quadruplets(signed, RELATIONS).count == 3 * 2 + 3 + 1
    csr = sp.csr_array(SINGLE.astype(np.int8))
    assert as_tuples(Quadruplets(csr, RELATIONS).draw(30)) == as_tuples(Quadruplets(SINGLE, RELATIONS).draw(30))


def test_a_hundred_million_quadruplets_take_the_memory_of_their_images():
    """As many images and relations as in the paper: 1,000 tags of 400 images, 771 relations."""
    Y = sp.csr_array((np.ones(400_000, np.int8), np.repeat(np.arange(1000), 400), np.arange(400_001)))
    relations = np.column_stack((np.arange(771), np.arange(771) + 200))
    stream = Quadruplets(Y, relations)
    assert stream.count == 771 * 400**2 > 100_000_000
    block = stream.draw(10_000)
    assert np.array_equal(block.object_images // 400, block.objects)
    assert np.array_equal(block.part_images // 400, block.parts)
    assert np.array_equal(block.parts + 200, block.objects)


@pytest.mark.parametrize(
    ("relations", "error", "words"),
    [
        ([(0, 9)], ShapeError, "tag column 9; expected 0 to 4"),
        ([(-1, 2)], ShapeError, "tag column -1"),
        ([(0, 1, 2)], ShapeError, "pairs"),
        ([(0.5, 1.0)], ShapeError, "pairs"),
        ([(2, 2)], DataError, "part of itself"),
        ([(4, 3)], DataError, "None of the 1 part-of relations"),
        ([], DataError, "None of the 0"),
    ],
)
def test_relations_that_cannot_be_used_are_refused(relations, error, words):
    with pytest.raises(error, match=words):
        Quadruplets(SINGLE, relations)


def test_settings_that_cannot_be_used_are_refused():
    stream = Quadruplets(SINGLE, RELATIONS)
    with refused("n", value=0):
        stream.draw(0)
