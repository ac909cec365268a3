"""Searches rank by the chance that they print: ties by score, and with an index among the photos that it proposes."""

from __future__ import annotations

import numpy as np
import pytest

from test_search_grid import fitted, library
from visterm import Catalogue
from visterm.library.search.ranking import CANDIDATES_PER_PHOTO, MIN_CANDIDATES
from visterm.store.images import NewImage


class ListedIndex:
    """An index that proposes exactly the best rows, and records how many were requested."""

    def __init__(self, rows):
        self.rows, self.n_rows, self.asked, self.proposed = rows, len(rows), [], set()

    def answers(self, k):
        return k <= 1600

    def candidates(self, q, k, n=None):
        self.asked.append(n or k)
        found = np.sort(np.argsort(-(self.rows @ q.ravel()), kind="stable")[: n or k])
        self.proposed.update(found.tolist())
        return found


@pytest.fixture
def many():
    return library("many")


def indexed(catalogue):
    [part] = catalogue.stored.current_rows().parts
    part.index = ListedIndex(np.asarray(part.rows))
    return part.index


@pytest.mark.parametrize("words", ["red blue", "red green sea light", "blue -red"])
def test_no_photo_comes_before_a_likelier_one_unless_people_gave_it_all_words(many, words):
    hits = many.search(words, 200).hits
    chances = [hit.confidence for hit in hits if hit.source is None]
    assert len(set(chances)) > 50
    assert chances == sorted(chances, reverse=True)
    by_sum = [hit.confidence for hit in many.search(words, 200, combine="sum").hits if hit.source is None]
    assert by_sum != sorted(by_sum, reverse=True)


def test_equally_likely_photos_come_by_score_and_then_in_the_order_of_entry():
    tagger = fitted()
    tagger.model.tag_rows_ = np.eye(len(tagger.vocabulary), dtype=np.float32)
    slope = np.where(np.isin(tagger.vocabulary.tags, ["red", "blue"]), 0.0, 1.0)
    tagger.parts = tagger.parts.changed(calibration=tagger.calibration._replace(slope=slope))
    catalogue = Catalogue(tagger)
    U = np.zeros((3, len(slope)), np.float32)
    U[:, tagger.vocabulary.index("red")] = [0.25, 0.75, 0.25]
    photos = [NewImage(f"{i}.jpg", f"/{i}.jpg", 1, 1, i, f"{i:064d}") for i in range(3)]
    catalogue.stored.add(photos, U)
    assert [hit.id for hit in catalogue.search("red blue", 0).hits] == [1, 0, 2]
    assert [hit.id for hit in catalogue.search("red blue", 0, combine="confidence").hits] == [0, 1, 2]


def test_an_index_proposes_photos_and_the_likeliest_of_these_come_first(many):
    exact = many.search("red blue", 1500).hits
    index = indexed(many)
    hits = many.search("red blue", 30).hits
    assert min(index.asked) >= CANDIDATES_PER_PHOTO * 30 >= MIN_CANDIDATES
    proposed = [hit for hit in exact if hit.id in index.proposed or hit.id < 16]  # people judged the first photos only
    assert len(proposed) < len(exact)
    assert [(hit.id, hit.confidence) for hit in hits] == [(hit.id, hit.confidence) for hit in proposed[:30]]
    assert [hit.id for hit in many.search("red blue", 5).hits] == [hit.id for hit in exact[:5]]


def test_a_tagged_photo_that_is_gone_is_not_among_the_proposals(many):
    many.stored.tags.give(700, ["red"], "person")
    many.stored.mark([700], "gone")
    indexed(many)
    assert 700 not in {hit.id for hit in many.search("red blue", 30).hits}


@pytest.mark.parametrize(
    "limits", [{"combine": "confidence"}, {"cutoff": True}, {"k": 0}, {"k": 101}, {"words": "red -blue"}]
)
def test_what_an_index_cannot_propose_is_found_among_all_photos(many, limits):
    arguments = {"words": "red blue", "k": 5} | limits
    before = many.search(**arguments)
    index = indexed(many)
    assert many.search(**arguments) == before
    assert index.asked == []
