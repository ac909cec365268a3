"""A word that is part of tags finds the photos of each of these tags, and the page says which."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from PIL import Image

from served_library import served
from visterm import Catalogue, Tagger
from visterm.library.any_word import search_any_word, tags_of_words

KINDS = ("brown bear", "black bear", "sea", "tree")
N_EACH = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalogue of photos of two kinds of bears, of the sea and of trees."""
    folder = tmp_path_factory.mktemp("bears")
    rng = np.random.default_rng(0)
    looks = np.repeat(np.eye(len(KINDS)), N_EACH, axis=0) + 0.5 * rng.random((len(KINDS) * N_EACH, len(KINDS)))
    names = [f"{i:03}.jpg" for i in range(len(looks))]
    (folder / "photos").mkdir()
    for name in names:
        Image.new("RGB", (1, 1)).save(folder / "photos" / name)
    np.save(folder / "features.npy", looks.astype(np.float32))
    (folder / "features.names.txt").write_text("\n".join(names) + "\n")
    rows = zip(names, [kind for kind in KINDS for _ in range(N_EACH)], strict=True)
    (folder / "tags.csv").write_text("image,tags\n" + "".join(f"{name},{kind}\n" for name, kind in rows))
    tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model="ridge", n_jobs=1)
    tagger.fit(None, tags=folder / "tags.csv")
    assert tagger.calibration is not None
    Catalogue(tagger).add(folder / "photos").save(folder / "catalogue")
    return folder / "catalogue"


@pytest.fixture
def catalogue(folder):
    catalogue = Catalogue.load(folder, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


def kinds(found, n=2 * N_EACH):
    return {KINDS[int(hit.image.partition(".")[0]) // N_EACH] for hit in found.hits[:n]}


def test_a_word_of_tags_finds_the_photos_of_each_by_their_chance(catalogue):
    result = search_any_word(catalogue, "bear", 0)
    assert kinds(result.found) == {"brown bear", "black bear"}
    assert result.also == {"bear": ["black bear", "brown bear"]}
    chances = [hit.confidence for hit in result.found.hits]
    assert chances == sorted(chances, reverse=True)
    assert len(chances) == len(KINDS) * N_EACH


def test_after_a_minus_no_such_tag_is_wanted_and_other_words_stay(catalogue):
    assert not kinds(search_any_word(catalogue, "-bear sea", N_EACH).found, N_EACH) & {"brown bear", "black bear"}
    assert search_any_word(catalogue, "brown bear", 5).also == {}
    assert search_any_word(catalogue, "sea", 5).also == {}
    assert kinds(search_any_word(catalogue, "bear", N_EACH, sort="name").found) <= {"brown bear", "black bear"}


def test_a_tag_with_that_name_is_meant_alone(catalogue):
    catalogue.give(0, ["bear"])
    assert tags_of_words(catalogue, "bear") == {}
    catalogue.take(0, ["bear"])


def test_letters_without_accents_find_a_tag_that_has_them_unless_they_are_a_tag(catalogue):
    tags = {0: "Übung", 1: "Übung am Berg", 2: "fête foraine", 3: "Straße", 4: "année", 5: "annee"}
    for image_id, tag in tags.items():
        catalogue.give(image_id, [tag])
    try:
        assert tags_of_words(catalogue, "ubung -FETE strasse annee xyz") == {
            "ubung": ["Übung"], "FETE": ["fête foraine"],
        }  # fmt: skip
        for words, image_id in {"ubung": 0, '"fete foraine"': 2, "strasse": 3, "annee": 5}.items():
            assert search_any_word(catalogue, words, 1).found.hits[0].id == image_id
    finally:
        for image_id, tag in tags.items():
            catalogue.take(image_id, [tag])


def test_the_page_says_which_tags_are_meant(folder):
    with served(folder) as address, httpx.Client(base_url=address, timeout=600) as client:
        page = client.get("/", params={"q": "bear"}).text
        assert "bear: also black bear, brown bear." in page
        assert "likely to match" in page
