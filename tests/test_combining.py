"""Words of a search combined by the product of their probabilities: by hand, and through a catalogue."""

from __future__ import annotations

import numpy as np
import pytest

from refusals import refused
from visterm.core.errors import UserError
from visterm.core.queries import log_probabilities, part_signs
from visterm.library.catalogue import Catalogue
from visterm.metrics.retrieval import rank_queries
from visterm.tagging.tagger import Tagger

pytestmark = pytest.mark.usefixtures("plugin")

VISTERMS = {"colours": 8, "codebook": 60, "sample_blocks": 4000}


def score(weights, P):
    return part_signs([weights]) @ log_probabilities(np.array(P)).T


def test_wanted_words_multiply_by_their_weights_and_others_by_what_is_left_to_1():
    found = score([2, 0, -0.5], [[0.5, 0.9, 0.2], [0.1, 0.0, 1.0]])
    expected = [[2 * np.log(0.5) + 0.5 * np.log(0.8), 2 * np.log(0.1) + 0.5 * np.log(1e-9)]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_one_word_alone_brings_an_image_up_by_the_sum_but_not_by_the_product():
    both, one = [0.3, 0.3], [0.9, 0.01]
    assert sum(one) > sum(both)
    first, second = score([1, 1], [both, one])[0]
    assert first > second


def test_queries_are_measured_by_the_product_with_logs_for_scores():
    P = np.array([[0.9, 0.01], [0.3, 0.3], [0.2, 0.2]])
    by_sum = rank_queries(P.astype(np.float32), [[1, 1]], [[0, 1, 0]])
    by_product = rank_queries(log_probabilities(P), part_signs([[1, 1]]), [[0, 1, 0]])
    assert (by_sum.average_precision().tolist(), by_product.average_precision().tolist()) == ([0.5], [1.0])


@pytest.fixture(scope="module")
def catalogue(small_library):
    tagger = Tagger(model="likely_tags", encoder_params=VISTERMS, n_jobs=1)
    tagger.fit(small_library.images, small_library.tags_file)
    return Catalogue(tagger).add(small_library.images)


def test_a_catalogue_ranks_by_the_product_of_all_words(catalogue):
    words = "tree sky -sea"
    found = catalogue.search(words, 0, combine="product").hits
    alone = {
        word: {hit.image: hit.score for hit in catalogue.search([word], 0).hits} for word in ("tree", "sky", "sea")
    }
    query = catalogue.tagger.query_weights(words)
    weight = dict(
        zip((catalogue.tagger.vocabulary.tags[i] for i in query.weights.indices), query.weights.data, strict=True)
    )
    expected = {
        image: weight["tree"] * np.log(alone["tree"][image])
        + weight["sky"] * np.log(alone["sky"][image])
        - weight["sea"] * np.log(1 - alone["sea"][image])
        for image in alone["tree"]
    }
    assert {hit.image for hit in found} == set(expected)
    np.testing.assert_allclose([hit.score for hit in found], [expected[hit.image] for hit in found], rtol=1e-4)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    first = catalogue.search(words, 3, combine="product").hits
    assert [hit.image for hit in first] == [hit.image for hit in found[:3]]


def test_by_one_word_the_product_ranks_as_the_sum_does(catalogue):
    by_sum, by_product = (catalogue.search("tree", 0, combine=how).hits for how in ("sum", "product"))
    assert [hit.image for hit in by_sum[:20]] == [hit.image for hit in by_product[:20]]


def test_another_way_to_combine_and_models_without_probabilities_are_refused(catalogue, small_library):
    with pytest.raises(UserError, match="combine is 'max'"):
        catalogue.search("tree", combine="max")
    with pytest.raises(UserError, match="combine is 'max'"):
        catalogue.search("tree", combine="max", cutoff=True)
    tagger = Tagger(model="prior", encoder_params=VISTERMS, n_jobs=1)
    photos = sorted(small_library.images.iterdir())[:30]
    tagger.fit(photos, [["tree"]] * 30)
    with refused("combine", value="product"):
        Catalogue(tagger).add(photos).search("tree", combine="product")
