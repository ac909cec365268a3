"""A run of words without any tag: found by their vectors at first, then taught by what people say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from visterm import Catalogue, Tagger

SHOWN = {"rose": [1, 0, 0, 0.3], "sea": [0, 1, 0, 0.3], "grass": [0, 0, 1, 0.3]}
"""What photos show, and their features but for noise."""

TEXT = {"rose": [1, 0.2, 0, 0], "sea": [0, 1, 0.3, 0], "grass": [0.2, 0, 1, 0], "fog": [0, 0.1, 0.1, 1]}
FIT = "fit photos --words words.txt --encoder precomputed:rows.npy --model text_ridge --word-vectors text.vec -o run"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """60 photos of three things without a tag, their rows, and text vectors as wide as these."""
    (tmp_path / "photos").mkdir()
    rng, names, rows = np.random.default_rng(0), [], []
    for number in range(60):
        word = list(SHOWN)[number % 3]
        names.append(f"{word}{number}.png")
        rows.append(np.array(SHOWN[word]) + rng.normal(size=4) * 0.1)
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / "photos" / names[-1])
    np.save(tmp_path / "rows.npy", np.array(rows, np.float32))
    (tmp_path / "rows.names.txt").write_text("\n".join(names))
    (tmp_path / "words.txt").write_text("rose\nsea\nfog\n")
    (tmp_path / "text.vec").write_text("".join(f"{word} {' '.join(map(str, v))}\n" for word, v in TEXT.items()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shows(catalogue, word, k=15):
    return [str(hit.image).startswith(word) for hit in catalogue.search(word, k).hits]


def test_words_alone_make_a_run_that_searches_and_answers_teach_it(place):
    code, _, said = visterm(FIT, place)
    assert (code, "No photo has a tag" in said) == (0, True), said
    tagger = Tagger.load("run")
    assert tagger.vocabulary.tags == ["rose", "sea", "fog"]
    assert tagger.vocabulary.counts.tolist() == [0, 0, 0]
    assert tagger.calibration is None  # nothing says how often they are right
    assert visterm("index run photos -o catalogue", place)[0] == 0
    catalogue = Catalogue.load("catalogue")
    assert all(shows(catalogue, "sea"))
    rows = catalogue.stored.rows(np.arange(60)).copy()
    for word, tag in (("rose", "sunset"), ("sea", "wave")):
        for hit in catalogue.search(word, 8).hits:
            catalogue.give(hit.id, [tag])
    done = catalogue.learn()
    assert done.tags == 5  # those without photos stay
    assert all(str(hit.image).startswith("rose") for hit in catalogue.search("sunset", 10).hits)
    assert all(shows(catalogue, "sea"))
    np.testing.assert_array_equal(catalogue.stored.rows(np.arange(60)), rows)
    first = catalogue.tagger.model.tag_rows_.copy()
    assert catalogue.learn().run == done.run  # the same answers, learned once more, count once
    np.testing.assert_array_equal(catalogue.tagger.model.tag_rows_, first)


def test_words_stand_beside_the_tags_that_photos_have(place):
    names = (place / "rows.names.txt").read_text().split()
    (place / "tags.csv").write_text("image,tags\n" + "".join(f"{n},grass\n" for n in names if n.startswith("grass")))
    assert visterm(f"{FIT} --tags tags.csv", place)[0] == 0
    facts = json.loads(visterm("info run --json", place)[1])
    assert facts["tags"] == 4
    assert Tagger.load("run").vocabulary.counts.tolist() == [20, 0, 0, 0]


def test_words_need_vectors_and_a_word_without_tags_is_refused_as_before(place):
    code, _, said = visterm(FIT.replace("--word-vectors text.vec", ""), place)
    assert (code, "--word-vectors" in said) == (2, True), said
    code, _, said = visterm(FIT.replace("--words words.txt", ""), place)
    assert (code, "No tags were found" in said) == (2, True), said
