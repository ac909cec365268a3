"""PAMIR on pairs of tags beside PAMIR on whole queries."""

from __future__ import annotations

import pytest

from planted import plant_corpus
from visterm.data.tag_queries import queries_of_tags
from visterm.metrics.retrieval import rank_queries
from visterm.models.abilities import LearnsQueries
from visterm.models.pamir.pamir import Pamir
from visterm_research.models.pamir.pamir_ia import PamirIa


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=400, random_state=4)


def average_precision(model, planted, *, least_words=1):
    queries = queries_of_tags(planted.Y_test)
    kept = queries.n_words >= least_words
    scores = model.decision_function(planted.X_test)
    return rank_queries(scores, queries.words[kept], queries.relevant[kept]).average_precision().mean()


def test_it_ranks_images_for_several_words_better_than_tags_ranked_within_images(planted):
    pamir, annotator = Pamir(epochs=40).fit(planted.X_train, planted.Y_train), PamirIa(epochs=40)
    annotator.fit(planted.X_train, planted.Y_train)
    assert average_precision(pamir, planted) > average_precision(annotator, planted)
    assert average_precision(pamir, planted, least_words=2) > 0.5


def test_it_learns_no_queries():
    assert not isinstance(PamirIa(), LearnsQueries)
