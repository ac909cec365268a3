"""Words of a search that are not tags but name photos: files, folders, cameras, years and months; and stop words."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from starlette.testclient import TestClient

from command_line import visterm
from test_search_grid import fitted
from visterm import Catalogue
from visterm.core.errors import UnknownNameError
from visterm.library.search.photo_names import MAX_LOOKED_UP, complete_names
from visterm.store.images import NewImage
from visterm.web.app import create_app

PHOTOS = [
    ("2019/北京旅行/IMG_1234.jpg", "2019-07-03T10:00:00", "Canon EOS 5D"),
    ("2019/New York/dog on pier.jpg", "2019-12-24T10:00:00", "Apple iPhone 12"),
    (unicodedata.normalize("NFD", "Zürich/DSC00042.JPG"), "2021-07-09T10:00:00", "Canon EOS 90D"),
    ("scans/carnival_2019.tif", None, ""),
]
PLACES = {2: "Limmat, Zürich, Schweiz", 3: "Åre, Sverige"}


@pytest.fixture
def catalogue():
    tagger = fitted()
    catalogue = Catalogue(tagger)
    photos = [
        NewImage(name, f"/library/{name}", 1, 1, i, f"{i:064d}", taken=taken, camera=camera, place=PLACES.get(i, ""))
        for i, (name, taken, camera) in enumerate(PHOTOS)
    ]
    U = np.random.default_rng(0).standard_normal((len(PHOTOS), len(tagger.vocabulary)), np.float32)
    catalogue.stored.add(photos, U)
    return catalogue


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("北京", [0]), ("img_1234", [0]), ("1234", [0]), ("IMG_1234.jpg", [0]), ("zürich", [2]), ("ZÜRICH", [2]),
        ("2019-07", [0]), ("2019-12-24", [1]), ("2021", [2]), ("-2019 5d", []),
        ("2019", [0, 1, 3]), ("2019 -北京", [1, 3]), ("2021 90d", [2]), ("DSC00042", [2]), ("åre", [3]),
    ],
)  # fmt: skip
def test_numbers_and_words_in_other_letters_name_photos(catalogue, words, ids):
    found = catalogue.search(words, 0)
    assert sorted(hit.id for hit in found.hits) == ids
    assert (found.unknown, found.n_found) == ([], len(ids))
    assert all(hit.confidence is None for hit in found.hits)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("canon", [0, 2]),
        ("july", [0, 2]),
        ("jul 2021", [2]),
        ("new york", [1]),
        ('"New York"', [1]),
        ('"Canon EOS 90D"', [2]),
        ("pier", [1]),
        ("schweiz", [2]),
        ("sverige 2019", [3]),
        ("-canon 2019", [1, 3]),
    ],
)
def test_plain_words_name_photos_in_a_run_that_knows_no_meaning_of_words_but_tags(catalogue, words, ids):
    tagger = catalogue.tagger
    tagger.parts = tagger.parts.changed(words=type(tagger.words)())
    assert sorted(hit.id for hit in catalogue.search(words, 0).hits) == ids


def test_words_in_the_middle_of_another_and_wildcards_name_nothing(catalogue):
    for word in ("car", "234", "100%", "img%", "k", "anon", "_"):
        with pytest.raises(UnknownNameError):
            catalogue.search(word)


def test_names_narrow_a_search_by_tags_and_its_scores_are_those_of_the_tags(catalogue):
    everything = {hit.id: hit for hit in catalogue.search("red blue", 0).hits}
    found = catalogue.search("red 2019 blue", 0)
    assert found.names == ["2019"]
    for hit in found.hits:
        assert hit.confidence == pytest.approx(everything[hit.id].confidence, rel=1e-6)
    assert [hit.id for hit in found.hits] == [i for i in everything if i in (0, 1, 3)]
    assert {share.word for share in catalogue.shares("red 2019 blue", [0])[0]} == {"red", "blue"}
    assert catalogue.shares("2019", [0, 1]) == [[], []]


def test_a_tag_comes_before_a_name(catalogue):
    catalogue.give(2, ["2019"])
    assert [hit.id for hit in catalogue.search("2019", 0).hits] == [2]


def test_stop_words_are_neither_reported_nor_taken_for_tags(catalogue):
    found = catalogue.search("the red on a blue", 0)
    assert found.unknown == []
    assert [hit.id for hit in found.hits] == [hit.id for hit in catalogue.search("red blue", 0).hits]
    catalogue.give(0, ["on"])
    assert [hit.id for hit in catalogue.search("on", 1).hits] == [0]


def test_a_search_for_stop_words_alone_is_refused(catalogue):
    with pytest.raises(UnknownNameError, match="Unknown tag 'the'"):
        catalogue.search("the")


def test_an_unknown_word_is_answered_with_the_five_most_frequent_tags(catalogue):
    with pytest.raises(UnknownNameError) as caught:
        catalogue.search("qqqq")
    assert str(caught.value).count(",") == 4
    assert "Did you mean 'green'?" in catalogue.tagger.vocabulary.unknown_words(["gren"])


def test_a_long_text_looks_up_some_of_its_words_only(catalogue):
    read, rows = [], catalogue.stored.database.rows
    catalogue.stored.database.rows = lambda statement, *values: read.append(statement) or rows(statement, *values)
    catalogue.search("2019 red " + " ".join(f"x{i}" for i in range(100)))
    assert sum("LIKE" in statement for statement in read) == MAX_LOOKED_UP


def test_names_are_completed_with_their_photos(catalogue):
    def names(typed, k=10):
        return [(name.tag, name.images, name.kind) for name in complete_names(catalogue.stored.database, typed, k)]

    assert names("20", 1) == [("2019", 2, "folder")]
    assert ("2019-07", 1, "month") in names("2019")
    assert names("york") == [("New York", 1, "folder")]
    assert names("eos") == [("Canon EOS 5D", 1, "camera"), ("Canon EOS 90D", 1, "camera")]
    assert names("schw") == [("Schweiz", 1, "place")]
    assert names("") == names("img") == []


def test_the_terminal_and_the_api_search_names_as_python_does(catalogue, tmp_path):
    found = catalogue.search("2019 -北京", 0)
    catalogue.save(tmp_path / "catalogue")
    names = [hit.image for hit in found.hits]
    code, out, err = visterm("search catalogue '2019 -北京' -k 0", tmp_path)
    assert (code, [line for line in out.splitlines() if line]) == (0, names)
    assert "Found in names, folders, places, dates or cameras: 2019, 北京" in err
    with TestClient(create_app(tmp_path / "catalogue"), base_url="http://127.0.0.1") as client:
        answer = client.get("/api/v1/search", params={"q": "2019 -北京"}).json()
    assert [hit["image"] for hit in answer["hits"]] == names
    assert answer["names"] == found.names == ["2019", "北京"]
