"""Runs that learn from queries: `Tagger.fit`, `visterm fit --queries`; weights of words from other texts."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

from planted import plant_corpus
from refusals import refused
from test_cli import visterm
from visterm import Catalogue, Tagger, fit
from visterm.core.errors import DataError, TagFileError
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_queries import QueryRow, queries_of_tags
from visterm.data.text_files import count_texts
from visterm.features.training_rows import read_corpus
from visterm.learning.query_rows import query_rows
from visterm.models.pamir.pamir import Pamir

WORDS = [f"word{letter}" for letter in "abcdefghijkl"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Planted features in a file, a table of tags with splits, and clicks for queries made of the training tags."""
    folder = tmp_path_factory.mktemp("library")
    planted = plant_corpus(n_train=200, n_test=60, random_state=6)
    Y = np.concatenate([planted.Y_train.toarray(), planted.Y_test.toarray()])
    names = [f"{i}.jpg" for i in range(len(Y))]
    np.save(folder / "features.npy", np.concatenate([planted.X_train, planted.X_test]))
    (folder / "features.names.txt").write_text("\n".join(names), encoding="utf-8")
    made = queries_of_tags(planted.Y_train)
    with (folder / "tags.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "tags", "split"])
        for i, row in enumerate(Y):
            table.writerow([names[i], ";".join(WORDS[t] for t in np.flatnonzero(row)), "train" if i < 200 else "test"])
    with (folder / "clicks.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["query", "image", "clicks"])
        for text, images in zip(made.texts(WORDS), made.relevant, strict=True):
            table.writerows([text.replace(", ", " "), names[i], 3] for i in images.indices)
    return folder, planted


def tagger_of(folder, **settings):
    return Tagger(
        encoder=f"precomputed:{folder / 'features.npy'}",
        model="pamir",
        model_params={"epochs": 8},
        n_jobs=1,
        **settings,
    )


def test_queries_of_the_tags_teach_what_the_tags_do(library):
    folder, planted = library
    tagger = tagger_of(folder).fit(None, None, queries=folder / "clicks.csv")
    assert tagger.vocabulary.tags == WORDS
    np.testing.assert_array_equal(tagger.vocabulary.counts, planted.Y_train.sum(axis=0))
    made = queries_of_tags(planted.Y_train)
    idf = inverse_frequencies(np.asarray(planted.Y_train.sum(axis=0)), 200)
    model = Pamir(epochs=8, n_jobs=1).fit_queries(planted.X_train, weigh_words(made.words, idf), made.relevant)
    # The order of the queries in the file is another, so that other triplets are drawn: the same in kind.
    ours, theirs = (each.decision_function(planted.X_test) for each in (tagger.model, model))
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9
    assert tagger.facts["queries"] == len(made)
    assert tagger.facts["images"] == 200


def test_the_run_is_saved_annotates_and_is_evaluated_as_any_other(library, tmp_path):
    folder, _ = library
    tagger_of(folder).fit(None, None, queries=folder / "clicks.csv").save(tmp_path / "run")
    again = Tagger.load(tmp_path / "run")
    assert again.calibration is not None
    assert again.calibration.slope.shape == (12,)
    [tagged] = again.annotate(["205.jpg"], k=3).images
    assert len(tagged.tags) == 3
    done = visterm("evaluate", "run", "--tags", folder / "tags.csv", "--queries", "tags", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["queries"] > 20


def test_words_are_those_of_the_queries_or_with_tags_those_that_are_tags(library):
    folder, _ = library
    lines = [
        QueryRow('worda "Red  Car" -wordb', "0.jpg", 1.0),
        QueryRow("WORDA red", "1.jpg", 2.0),
        QueryRow("worda red", "1.jpg", 0.0),
        QueryRow("red car", "2.jpg", 1.0),
        QueryRow("wordc", "250.jpg", 1.0),
        QueryRow("worda", "nowhere.jpg", 1.0),
        QueryRow("unasked", "3.jpg", 0.0),
    ]
    encoder = tagger_of(folder).encoder
    corpus = read_corpus(encoder, None, folder / "tags.csv")
    found = query_rows(encoder, corpus, lines)
    assert found.rows.vocabulary.tags == ["red", "Red Car", "WORDA"]
    assert found.rows.vocabulary.counts.tolist() == [1, 2, 2]
    # As typed; then what they mean: a phrase that was quoted once is found without quotes too.
    assert found.learned.words.toarray().tolist() == [[0, 1, 1], [1, 0, 1], [0, 1, 0]]
    assert [row.indices.tolist() for row in found.learned.relevant] == [[0], [1], [2]]
    assert found.facts == {"queries": 3, "queries left out": 4, "images of queries not there": 2}
    found = query_rows(encoder, corpus, lines, only_tags=True)
    assert found.rows.vocabulary.tags == ["worda"]
    n_given = sum("worda" in tags for tags in corpus.select("train").tags)
    assert found.rows.vocabulary.counts.tolist() == [n_given]
    assert found.learned.words.toarray().tolist() == [[1], [1]]


def test_images_of_the_split_valid_and_their_queries_say_when_to_stop(library):
    folder, _ = library
    corpus = Corpus.read_names(folder / "tags.csv")
    corpus.splits[150:200] = ["valid"] * 50
    tagger = tagger_of(folder).fit(corpus, "given", queries=folder / "clicks.csv")
    assert tagger.facts["images"] == 150
    assert tagger.facts["validation images"] == 50
    assert tagger.model.history_[0]["map"] > 0
    assert tagger.learned_images.count(["0.jpg", "199.jpg", "200.jpg"]) == 2


def test_images_of_a_folder_are_learned_from_under_the_names_that_queries_give_them(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for kind, low in (("red", (150, 0, 0)), ("blue", (0, 0, 150))):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 60, (32, 32, 3)) + np.array(low)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / kind / f"{kind}{i}.png")
            lines.append(f"{kind} things,{kind}{i}.PNG" if i % 2 else f"{kind},{kind}/{kind}{i}.png")
    (tmp_path / "clicks.csv").write_text("\n".join(["query,image", *lines, "red,gone.png"]), encoding="utf-8")
    settings = ("--encoder-set", "colours=8", "--encoder-set", "codebook=60", "--set", "epochs=20")
    call = ("fit", "photos", "--queries", "clicks.csv", "--model", "pamir", "-o", "run", *settings)
    done = visterm(*call, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Learned 3 tags from 16 photos and 4 queries" in done.stderr
    assert "The queries name 1 image that the fit did not learn from" in done.stderr
    catalogue = Catalogue(Tagger.load(tmp_path / "run")).add(tmp_path / "photos")
    assert all("red" in hit.image for hit in catalogue.search("red", k=6).hits)
    assert all("blue" in hit.image for hit in catalogue.search("blue", k=6).hits)


def test_what_cannot_learn_from_queries_is_refused_with_what_can(library):
    folder, _ = library
    with refused("model", value="ridge"):
        tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model="ridge")
        tagger.fit(None, None, queries=folder / "clicks.csv")
    with refused("encoder", value="ids"):
        Tagger(encoder="ids", model="pamir").fit(None, None, queries=folder / "clicks.csv")
    with refused("images"):
        Tagger(model="pamir").fit(None, None, queries=folder / "clicks.csv")
    with refused("min_count", value=1, error=DataError):
        tagger_of(folder).fit(None, None, queries=[QueryRow("worda", "1.jpg", 0)])


def test_texts_are_counted_whatever_their_case_and_stops(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("A polar bear, in SNOW.\n\nSnow (snow!)\nthe bear's Polar\ncaf\u00e9 close-up\n", encoding="utf-8")
    vocabulary = Vocabulary(["snow", "polar bear", "bear", "Cafe\u0301", "close-up", "sea", "!?"])
    found = count_texts(file, vocabulary)
    assert found.n_texts == 4
    assert found.counts.tolist() == [2, 1, 2, 1, 1, 0, 0]
    np.testing.assert_allclose(found.idf, np.log([2, 4, 2, 4, 4, 4, 4]), rtol=1e-6)
    with_alias = Vocabulary(["snow", "bear"], aliases={"polar bear": "bear", "close-up": "bear"})
    assert count_texts(file, with_alias).counts.tolist() == [2, 3]
    file.write_text("\n \n", encoding="utf-8")
    with pytest.raises(TagFileError, match="has no text"):
        count_texts(file, vocabulary)
    file.write_text("nothing of this\n", encoding="utf-8")
    with pytest.raises(TagFileError, match=r"None of the 7 tags \(such as 'snow'\)"):
        count_texts(file, vocabulary)


@pytest.mark.parametrize("of", ["queries", "tags"])
def test_words_weigh_by_a_reference_corpus_where_one_is_given(library, tmp_path, of):
    folder, _ = library
    (tmp_path / "texts.txt").write_text("worda wordb\nworda\nworda\nworda wordc\n", encoding="utf-8")
    seen = []

    class Watched(Pamir):
        def fit_queries(self, X, Q, R, **more):
            seen.append(Q)
            return super().fit_queries(X, Q, R, **more)

    tagger = tagger_of(folder)
    tagger.parts = tagger.parts.changed(model=Watched(epochs=2, n_jobs=1))
    if of == "queries":
        tagger.fit(None, None, queries=folder / "clicks.csv", idf=tmp_path / "texts.txt", calibrate=False)
    else:
        tagger.fit(None, folder / "tags.csv", idf=tmp_path / "texts.txt", calibrate=False)
    # worda is in all texts and weighs nothing beside others, wordb is in one of four, wordd in none: as if in one.
    weights = tagger.query_weights("worda wordb wordd").weights.toarray()[0]
    np.testing.assert_allclose(weights[[0, 1, 3]], [0, np.sqrt(1 / 2), np.sqrt(1 / 2)], rtol=1e-6)
    [learned] = seen
    rows = learned.toarray()
    assert set(rows[rows[:, 0] != 0][:, 0].tolist()) == {1.0}  # only in queries of worda alone


def test_the_reference_corpus_is_kept_with_the_run(library, tmp_path):
    folder, _ = library
    (tmp_path / "texts.txt").write_text("worda wordb\nworda\nworda\nworda wordc\n", encoding="utf-8")
    encoder = f"precomputed:{folder / 'features.npy'}"
    fit(tags=folder / "tags.csv", encoder=encoder, model="prior", idf=tmp_path / "texts.txt", out=tmp_path / "run")
    tagger = Tagger.load(tmp_path / "run")
    np.testing.assert_allclose(tagger.query_weights("worda wordb").weights.toarray()[0, :2], [0, 1], atol=1e-6)
    assert tagger.facts["texts of the reference corpus"] == 4
