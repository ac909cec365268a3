"""A run of words without any tag: found by their vectors at first, then taught by what people say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from visterm import Catalogue, Tagger, fit
from visterm.core.errors import ShapeError
from visterm.encoders.by_name import Precomputed

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
    assert "3 words, found by their vectors; no confidences until photos are tagged." in said
    assert "Next: visterm index run photos -o CATALOGUE" in said
    assert not {"Learned", "Read"} & set(said.split())
    tagger = Tagger.load("run")
    assert tagger.vocabulary.tags == ["rose", "sea", "fog"]
    assert tagger.vocabulary.counts.tolist() == [0, 0, 0]
    assert tagger.calibration is None  # nothing says how often they are right
    assert visterm("index run photos -o catalogue", place)[0] == 0
    catalogue = Catalogue.load("catalogue")
    assert all(shows(catalogue, "sea"))
    assert list(catalogue.search("sea -fog grass").untrained) == ["sea", "fog", "grass"]
    rows = catalogue.stored.current_rows().rows(np.arange(60)).copy()
    for word, tag in (("rose", "sunset"), ("sea", "wave")):
        for hit in catalogue.search(word, 8).hits:
            catalogue.give(hit.id, [tag])
    done = catalogue.learn()
    assert done.tags == 5  # those without photos stay
    assert done.images == 16  # all that have answers: too few to hold some out
    assert catalogue.tagger.model.gram_[-1, -1] > 40  # what the others look like is learned, too
    found = catalogue.search("sunset", 10)
    assert (all(str(hit.image).startswith("rose") for hit in found.hits), list(found.untrained)) == (True, [])
    assert list(catalogue.search("sunset fog").untrained) == ["fog"]
    assert all(shows(catalogue, "sea"))
    np.testing.assert_array_equal(catalogue.stored.current_rows().rows(np.arange(60)), rows)
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
    assert (code, "'precomputed' has no text tower" in said, "--model" in said) == (2, True, False), said
    code, _, said = visterm(FIT.replace("text_ridge", "ridge").replace("--word-vectors text.vec", ""), place)
    assert (code, "Choose text_ridge as the --model." in said) == (2, True), said
    code, _, said = visterm(FIT.replace("--words words.txt", ""), place)
    assert (code, "No tags were found" in said) == (2, True), said


def test_words_with_neither_vector_nor_photo_are_left_out(place):
    names = (place / "rows.names.txt").read_text().split()
    (place / "tags.csv").write_text("image,tags\n" + "".join(f"{n},zorb\n" for n in names if n.startswith("grass")))
    (place / "words.txt").write_text("xyzzy\nrose\nzorb\nplugh\n")
    code, _, said = visterm(f"{FIT} --tags tags.csv", place)
    assert (code, "2 words with neither a vector nor a photo (such as 'xyzzy', 'plugh')" in said) == (0, True), said
    assert Tagger.load("run").vocabulary.tags == ["zorb", "rose"]
    (place / "tags.csv").write_text((place / "tags.csv").read_text().replace("zorb", "grass"))
    (place / "words.txt").write_text("xyzzy\n")
    code, _, said = visterm(f"{FIT} --tags tags.csv --overwrite", place)
    assert (code, "No word of --words (such as 'xyzzy') has a vector" in said) == (2, True), said
    code, _, said = visterm(f"{FIT} --overwrite", place)
    assert (code, "No tag (such as 'xyzzy') has a vector" in said) == (2, True), said


@pytest.mark.parametrize(
    ("words", "told"),
    [(b"rose\n-sea\n", "'-sea' begins with '-'"), (b"rose, sea\nfog; sea\ngrass\n", "expected one word or phrase per"),
     (b"ros\xe9\n", "Save it as 'UTF-8'.")],
)  # fmt: skip
def test_files_of_words_that_are_none_are_refused(place, words, told):
    (place / "words.txt").write_bytes(words)
    code, _, said = visterm(FIT, place)
    assert (code, told in said) == (2, True), said


def test_vectors_of_another_width_are_refused_before_photos_are_encoded(place, monkeypatch):
    (place / "text.vec").write_text("rose 1 2 3 4 5\nsea 1 2 3 4 6\nfog 5 4 3 2 1\n")
    encoded, encode = [], Precomputed.encode
    monkeypatch.setattr(
        Precomputed, "encode", lambda self, images, **how: [encoded.append(len(images)), encode(self, images, **how)][1]
    )
    with pytest.raises(ShapeError, match="have 5 numbers, and the rows of images 4"):
        fit(
            "photos", words=["rose", "sea"], encoder="precomputed:rows.npy", model="text_ridge", word_vectors="text.vec"
        )
    assert encoded == [8]


def test_fits_say_what_they_do_without(place):
    names = (place / "rows.names.txt").read_text().split()
    (place / "tags.csv").write_text("image,tags\n" + "".join(f"{n},grass\n" for n in names[:9]))
    code, _, said = visterm(
        "fit photos --tags tags.csv --encoder precomputed:rows.npy --model text_ridge -o run", place
    )
    assert code == 0
    assert "'precomputed' has no text tower: text_ridge learns from photos alone and finds no other words." in said
    assert "No confidences: fewer than 20 tagged photos could be held out, or all have the same tags." in said
