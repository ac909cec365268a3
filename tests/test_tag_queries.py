"""Queries from tags: the sets that images have, who is relevant, samples past a limit, and the counts of the paper."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import scipy.sparse as sp

from reference.queries import tag_queries
from visterm.core.errors import ShapeError, UserError
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_queries import Queries, queries_of_tags, relevant_images

BEACH, SEA, SKY, SNOW = range(4)


def tags_as_matrix(tag_sets, n_tags):
    Y = np.zeros((len(tag_sets), n_tags))
    for i, tags in enumerate(tag_sets):
        Y[i, list(tags)] = 1
    return Y


def as_dict(queries):
    words, relevant = queries.words, queries.relevant
    return {tuple(words[[q]].indices.tolist()): relevant[[q]].indices.tolist() for q in range(len(queries))}


def drawn_tag_sets(rng, n_images, n_tags, most):
    return [rng.permutation(n_tags)[: rng.integers(0, most + 1)].tolist() for _ in range(n_images)]


def test_every_set_of_tags_of_an_image_is_a_query_and_relevant_are_the_images_that_have_them_all():
    queries = queries_of_tags(tags_as_matrix([(BEACH, SEA), (SEA, SKY), ()], 4))
    assert as_dict(queries) == {(BEACH,): [0], (SEA,): [0, 1], (SKY,): [1], (BEACH, SEA): [0], (SEA, SKY): [1]}
    assert queries.n_words.tolist() == [1, 1, 1, 2, 2]
    assert queries.texts(["beach", "sea", "sky", "snow"])[-1] == "sea, sky"


@pytest.mark.parametrize("max_words", [1, 2, 3, None])
def test_queries_are_those_of_plain_sets(max_words):
    tag_sets = drawn_tag_sets(np.random.default_rng(0), 40, 9, 6)
    queries = queries_of_tags(tags_as_matrix(tag_sets, 9), max_words=max_words)
    expected = tag_queries(tag_sets, max_words)
    assert as_dict(queries) == expected
    assert list(as_dict(queries)) == sorted(expected, key=lambda query: (len(query), query))


def test_only_given_tags_count_not_denied_ones():
    assert as_dict(queries_of_tags([[1, -1, 1]])) == {(0,): [0], (2,): [0], (0, 2): [0]}


def test_images_without_tags_make_no_queries():
    queries = queries_of_tags(np.zeros((3, 4)))
    assert len(queries) == 0
    assert queries.words.shape == (0, 4)
    assert queries.relevant.shape == (0, 3)


def test_past_the_limit_each_image_gives_as_many_random_sets_and_relevance_stays_exact():
    rng = np.random.default_rng(1)
    tag_sets = [*drawn_tag_sets(rng, 30, 12, 3), *(rng.permutation(40)[:25].tolist() for _ in range(4))]
    Y = tags_as_matrix(tag_sets, 40)
    queries = queries_of_tags(Y, max_words=None, max_subsets=300, random_state=5)
    assert (queries.n_words == 1).sum() == (Y.sum(axis=0) > 0).sum()
    assert 100 < (queries.n_words > 1).sum() <= 300
    for query, images in as_dict(queries).items():
        assert images == [i for i, own in enumerate(tag_sets) if set(query) <= set(own)]
        assert images
    small = as_dict(queries_of_tags(tags_as_matrix(tag_sets[:30], 40), max_words=None))
    assert small.keys() <= as_dict(queries).keys()


def test_samples_are_drawn_by_the_seed():
    Y = np.ones((2, 30))
    first, again, other = (
        as_dict(queries_of_tags(Y, max_words=4, max_subsets=50, random_state=seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.keys() != other.keys()


def test_a_sampled_set_of_any_size_is_as_likely_as_any_other():
    queries = queries_of_tags(np.ones((1, 12)), max_words=3, max_subsets=200, random_state=0)
    pairs, triples = (int((queries.n_words == width).sum()) for width in (2, 3))
    assert triples / pairs == pytest.approx(220 / 66, rel=0.35)


def test_an_image_with_thousands_of_tags_is_sampled_too():
    queries = queries_of_tags(np.ones((1, 3000)), max_words=None, max_subsets=10)
    assert queries.n_words.max() > 1000


def test_queries_among_some_images_are_those_with_a_relevant_image_there():
    queries = queries_of_tags(tags_as_matrix([(BEACH, SEA), (SEA, SKY), (SKY,)], 4))
    assert as_dict(queries.among(np.array([2, 1]))) == {(SEA,): [1], (SKY,): [0, 1], (SEA, SKY): [1]}


def test_words_of_other_images_find_their_images_here_or_none():
    words = sp.csr_array([[1, 0, 1], [0, 1, 0], [0, 0, 0]])
    found = relevant_images(words, [[1, 0, 1], [1, 0, 0], [1, 1, 1]])
    assert found.toarray().tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 0]]
    with pytest.raises(ShapeError, match="The queries have 3 tags, but the images 2"):
        relevant_images(words, np.eye(2))


def test_a_set_of_no_words_and_a_limit_of_none_are_refused():
    with pytest.raises(UserError, match="max_words is 0; expected a whole number of 1 or more, or None"):
        queries_of_tags(np.eye(2), max_words=0)
    with pytest.raises(UserError, match="max_subsets is 0"):
        queries_of_tags(np.eye(2), max_subsets=0)
    with pytest.raises(ShapeError, match="`words` has 2 queries, but `relevant` 3"):
        Queries(sp.csr_array((2, 4)), sp.csr_array((3, 5)))


def test_rare_words_weigh_more_and_every_query_has_unit_length():
    idf = inverse_frequencies([1, 2, 4, 0], 4)
    np.testing.assert_allclose(idf, np.log([4, 2, 1, 4]), rtol=1e-6)
    weights = weigh_words([[1, 1, 0, 0], [0, -1, 0, 0], [0, 0, 0, 0]], idf).toarray()
    np.testing.assert_allclose(weights[0], [2 / np.sqrt(5), 1 / np.sqrt(5), 0, 0], rtol=1e-6)
    np.testing.assert_allclose(weights[1:], [[0, -1, 0, 0], [0, 0, 0, 0]])


def test_words_that_all_captions_have_weigh_alike_where_a_query_has_no_other():
    idf = np.array([0, 0, 3], np.float32)
    weights = weigh_words([[1, 1, 0], [1, 0, 1]], idf).toarray()
    np.testing.assert_allclose(weights, [[np.sqrt(0.5), np.sqrt(0.5), 0], [0, 0, 1]], rtol=1e-6)


@pytest.mark.shared
def test_the_test_images_of_corel5k_give_the_papers_own_numbers_of_queries(shared):
    with (shared / "data" / "corel5k" / "labels.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["split"] == "test"]
    captions = [row["labels"].split(",") for row in rows]
    vocabulary = Vocabulary.from_lists(captions, min_count=2)
    queries = queries_of_tags(vocabulary.encode(captions), max_words=None)
    assert len(captions) == 499
    assert len(queries) == 2241
    assert (queries.n_words == 1).sum() == len(vocabulary) == 179
    assert round(queries.n_relevant.mean(), 2) == 2.37
    assert (queries.n_relevant >= 3).sum() == 419
    assert round(queries.n_words.mean(), 2) == 2.51
