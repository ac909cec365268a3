"""A word that no photo has as a tag finds photos at once, by the text tower of the network that encodes them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from command_line import run_command
from fakes.immich_ml import immich_ml
from visterm.core.errors import StorageError, UnknownNameError, UserError
from visterm.core.tables import MODELS
from visterm.encoders.named import users_table
from visterm.models.abilities import rows_of_words
from visterm.models.blend.stacked import stacked_tag_rows
from visterm.tagging.tagger import Tagger

COLOURS = ["red", "lime", "blue", "yellow"]


@pytest.fixture(scope="module")
def server():
    with immich_ml() as running:
        yield running


@pytest.fixture(scope="module")
def library(tmp_path_factory, server):
    """Photos of four colours under noise, of which two have tags; a run of text_ridge, and a catalogue."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "photos").mkdir()
    rng = np.random.default_rng(1)
    lines = ["image,tag"]
    for i in range(48):
        colour = COLOURS[i % 4]
        plain = np.asarray(Image.new("RGB", (50, 40), colour), float)
        pixels = np.clip(plain + rng.normal(0, 40, (40, 50, 3)) + rng.normal(0, 30, 3), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{colour}{i}.png")
        tags = {"red": ["red", "warm"], "lime": ["lime"]}.get(colour, ["other"])
        lines += [f"{colour}{i}.png,{tag}" for tag in tags]
    (folder / "tags.csv").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISTERM_STORES", server.url)
        said = ""
        for line in [
            ["fit", folder / "photos", "--tags", folder / "tags.csv", "-o", folder / "run", "--model", "text_ridge",
             "--min-count", 1, "--encoder", f"immich:{server.url}"],
            ["index", folder / "run", folder / "photos", "-o", folder / "catalogue"],
        ]:  # fmt: skip
            done = run_command(line)
            assert done.returncode == 0, done.stderr
            said += done.stdout + done.stderr
        (folder / "said").write_text(said)
        yield folder


def search(library, words):
    done = run_command(["search", library / "catalogue", "--json", "-k", 0, "--", words])
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def colours(library, words):
    return [hit["image"].rstrip("0123456789.png") for hit in search(library, words)]


def test_a_word_that_is_no_tag_finds_its_photos_first(library):
    for word in ["blue", "yellow", "red"]:
        assert colours(library, word)[:12] == [word] * 12


def test_a_word_with_a_minus_is_last(library):
    assert colours(library, "-blue")[-12:] == ["blue"] * 12
    assert colours(library, "other -yellow")[:12] == ["blue"] * 12


def test_the_output_says_which_words_have_no_training_images(library):
    assert {tuple(hit["untrained"]) for hit in search(library, "blue red -yellow")} == {("blue", "yellow")}
    told = run_command(["search", library / "catalogue", "blue red"])
    assert "No training images, found by their vectors and without confidence: blue\n" in told.stderr


def test_words_in_a_row_that_are_no_tags_are_one_phrase(library, server):
    before = len(server.predicted)
    assert {tuple(hit["untrained"]) for hit in search(library, "very blue red quite -deep yellow")} == {
        ("very blue", "quite", "deep", "yellow")
    }
    texts = {asked["text"] for asked in server.predicted[before:]}
    assert "a photo of very blue." in texts
    assert colours(library, "very blue")[:12] == ["blue"] * 12


def test_words_can_be_added_to_the_dictionary_and_are_then_annotated(library, tmp_path):
    shutil.copytree(library / "run", tmp_path / "run")
    (tmp_path / "words.txt").write_text("blue\nvery yellow\n")
    done = run_command(["tags", tmp_path / "run", "--add", tmp_path / "words.txt"])
    assert done.returncode == 0, done.stderr
    told = run_command(["annotate", tmp_path / "run", library / "photos" / "yellow3.png", "--added", "-k", 0, "--json"])
    tags = [tag["tag"] for tag in json.loads(told.stdout)["tags"]]
    assert tags.index("very yellow") < tags.index("blue")


def test_fit_says_where_vectors_come_from_and_info_too(library):
    said = " ".join((library / "said").read_text().split())
    assert "Word vectors of the encoder's text tower (english): 512 numbers for 4 tags, which is all." in said
    assert "encoder" in run_command(["info", library / "run"]).stdout


def test_a_word_is_sent_once_however_often_and_in_whichever_run_it_is_searched(library, server):
    search(library, "blue")
    before = len(server.predicted)
    search(library, "blue")
    assert server.predicted[before:] == []
    search(library, "husky")
    texts = sorted(asked["text"] for asked in server.predicted[before:])
    assert texts == ["a photo of a husky.", "a photo of husky.", "husky", "this is a photo of husky."]


def test_words_are_said_in_the_language_of_the_run_whatever_the_file_says_later(library, server, tmp_path, monkeypatch):
    photos = sorted(map(str, (library / "photos").glob("*.png")))
    tags = [[photo.rpartition("/")[2].rstrip("0123456789.png")] for photo in photos]
    tagger = Tagger(encoder=f"immich:{server.url}", model="text_ridge")
    tagger.fit(photos, tags, word_vectors="encoder:german")
    tagger.save(tmp_path / "run")
    prompts = users_table().with_name("prompts.toml")
    prompts.write_text('[german]\nprompts = ["mein {}"]\n')
    try:
        before = len(server.predicted)
        Tagger.load(tmp_path / "run").query_weights("rotkehlchen")
        assert "ein Foto von rotkehlchen." in [asked["text"] for asked in server.predicted[before:]]
    finally:
        prompts.unlink()


def test_words_of_another_model_than_the_fits_are_refused(library, tmp_path):
    tagger = Tagger.load(library / "run")
    tagger.words.source = replace(tagger.words.source, sha256="0" * 64)
    with pytest.raises(StorageError, match="text tower of this run's encoder has changed since the fit"):
        tagger.query_weights("blue")


def test_a_blend_with_text_ridge_in_it_finds_words_that_are_no_tags_too(library, server):
    photos = sorted(map(str, (library / "photos").glob("*.png")))
    names = [photo.rpartition("/")[2].rstrip("0123456789.png") for photo in photos]
    tags = [["other" if name in ("blue", "yellow") else name] for name in names]
    candidates = [["knn", {"n_neighbors": 3}], ["text_ridge", {}]]
    tagger = Tagger(encoder=f"immich:{server.url}", model="auto", model_params={"candidates": candidates})
    tagger.fit(photos, tags)
    model = tagger.model
    model.weights_ = np.maximum(model.weights_, 0.5)  # whichever was better on a few photos
    model.tag_rows_ = stacked_tag_rows(model.members_, model.weights_ / model.scales_, 0)
    rows = model.image_rows(tagger.encoder.transform(photos))
    for word in ["blue", "yellow"]:
        row = tagger.query_weights(word).outside.rows[0]
        assert row.shape == (model.tag_rows_.shape[1],)
        scores = np.asarray(rows @ row)
        assert {names[i] for i in np.argsort(-scores)[:12]} == {word}
    [at] = [i for i, member in enumerate(model.members_) if MODELS.name_of(member) == "text_ridge"]
    text, X = model.members_[at], tagger.encoder.transform(photos)
    alone = text.image_rows(X) @ text.tag_rows_from(text.text_rows_).T
    both = rows @ rows_of_words(model, text.text_rows_).T
    np.testing.assert_allclose(both, alone * model.weights_.sum() / model.scales_[at], rtol=1e-4, atol=1e-5)


def test_another_model_says_which_one_knows_words_that_are_no_tags(library, server, tmp_path):
    done = run_command(["fit", library / "photos", "--tags", library / "tags.csv", "-o", tmp_path / "run", "--model",
                        "ridge", "--encoder", f"immich:{server.url}"])  # fmt: skip
    assert done.returncode == 0, done.stderr
    with pytest.raises(UnknownNameError, match=r"The model 'ridge' knows only its tags.*text_ridge"):
        Tagger.load(tmp_path / "run").query_weights("blue")
    with pytest.raises(UserError, match="'visterms' has no text tower, so words have no vectors"):
        Tagger(model="text_ridge").fit(sorted((library / "photos").glob("*.png")), [["a"]] * 48, word_vectors="encoder")
