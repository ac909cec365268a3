"""Nothing is said to be done that was not opened again: runs before they have their name, and before they are used."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run, write_tags
from tiny_networks import colour_network
from visterm import Catalogue, Tagger
from visterm.core.errors import DataError, ShapeError, StorageError, VistermError
from visterm.core.tables import ENCODERS
from visterm.learning import run as run_module
from visterm.learning.fit_request import FitRequest
from visterm.learning.run import Run
from visterm.learning.tune import tune
from visterm.models.baselines import Prior
from visterm.models.linear.ridge import Ridge

FIT = "fit photos --tags tags.csv -o {out} --model {model} --encoder-set codebook=4 --overwrite"
QUICK = "--set dim=4 --set epochs=2 --set valid_share=0"
WRITES = {
    "tags": FIT.format(out="run", model="prior"),
    "a tree": FIT.format(out="run", model="prior") + " --tree tree.csv",
    "features": "fit features --tags tags.csv -o run --model prior --overwrite",
    "features streamed": f"fit features --tags tags.csv -o run --model wsabie --memory 200MB --overwrite {QUICK}",
    "numbers": "fit --tags tags.csv -o run --encoder ids --model prior --overwrite",
    "queries": "fit photos --queries clicks.csv -o run --model pamir --encoder-set codebook=4 --overwrite",
    "words": "fit photos --tags tags.csv -o run --model sampled_tagger --word-vectors words.txt --overwrite "
    "--encoder-set codebook=4 --set epochs=1",
    "tuning": "",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Photos with a tag that all have, their features, and a run that can be opened."""
    folder = tmp_path_factory.mktemp("library")
    tags = {name: [*given, "photo"] for name, given in draw_photos(folder / "photos", 12).items()}
    write_tags(folder / "tags.csv", tags)
    (folder / "tree.csv").write_text("child,parent\nred,colour\nblue,colour\n")
    (folder / "clicks.csv").write_text("query,image\nred,000.png\nblue,002.png\nred,004.png\n")
    words = dict.fromkeys(tag for given in tags.values() for tag in given)
    (folder / "words.txt").write_text("".join(f"{word} {i} 1 2 3\n" for i, word in enumerate(words)))
    for line in (FIT.format(out="run", model="prior"), "encode photos -o features --encoder-set codebook=4"):
        assert visterm(line, folder)[0] == 0
    return folder


@pytest.fixture
def place(library, tmp_path):
    """A copy of it, for the test alone."""
    return shutil.copytree(library, tmp_path / "library")


def contents(folder):
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def refuse_learned(self):
    raise DataError("tag_rows_ has 1.25; expected at most 1")


def write(way, place):
    """Write a run in one of the ways: exit code and what is said. Only Python tunes over a run that is there."""
    if way != "tuning":
        code, _, err = visterm(WRITES[way], place)
        return code, err
    try:
        request = FitRequest(
            images=place / "features", tags=place / "tags.csv", model="wsabie", model_params={"epochs": 2},
            out=place / "run", overwrite=True,
        )  # fmt: skip
        tune(request, grid={"dim": [2, 3]})
    except VistermError as error:
        return 2, str(error)
    return 0, ""


@pytest.mark.parametrize("way", WRITES)
def test_each_way_to_write_a_run_opens_it_before_it_has_its_name(way, place, monkeypatch):
    code, err = write(way, place)
    assert code == 0, err
    before = contents(place)
    for model in (type(Tagger.load(place / "run").model), Prior):
        monkeypatch.setattr(model, "_check_learned", refuse_learned, raising=False)
    code, err = write(way, place)
    assert code == 2
    assert "The run cannot be opened again (model.json: tag_rows_ has 1.25; expected at most 1), so it is not" in err
    monkeypatch.undo()
    after = contents(place)
    assert {file for file in after if "run" in file.parts[0]} == {file for file in before if "run" in file.parts[0]}
    assert all(after[file] == content for file, content in before.items() if file.parts[0] == "run")
    assert Tagger.load(place / "run").facts["images"] == 12


def test_the_first_photo_that_can_be_read_is_annotated_and_else_a_row(place, monkeypatch):
    (place / "photos" / "000.png").write_bytes(b"no picture")
    check, examples = run_module.check_opens, []

    def checked(kind, folder, example=None):
        examples.append(example)
        check(kind, folder, example)

    monkeypatch.setattr(run_module, "check_opens", checked)
    assert visterm(WRITES["tags"], place)[0] == 3
    assert visterm(WRITES["features"], place)[0] == 0
    shutil.move(place / "photos", place / "elsewhere")
    Tagger.load(place / "run").save(place / "copy")
    assert [example and example.name for example in examples] == ["001.png", None, None]


def test_a_run_that_opens_and_cannot_annotate_is_not_written(place, monkeypatch):
    def broken(self, X):
        raise IndexError("index 3 is out of bounds")

    monkeypatch.setattr(Prior, "_image_rows", broken)
    code, _, err = visterm(WRITES["tags"], place)
    assert (code, "cannot be opened again (index 3 is out of bounds)" in err) == (2, True)


def test_python_replaces_a_run_only_if_that_is_asked_for_and_then_whole(place):
    tagger, before = Tagger.load(place / "run"), contents(place / "run")
    with pytest.raises(StorageError, match=r"run is a run already. Choose another name, or replace it: `overwrite`"):
        tagger.save(place / "run")
    for other in ("photos", "features"):
        with pytest.raises(StorageError, match="is not a run of visterm, so it is not replaced"):
            tagger.save(place / other, overwrite=True)
    assert contents(place / "run") == before
    tagger.parts = tagger.parts.changed(facts={**tagger.facts, "images": 7})
    tagger.save(place / "run", overwrite=True)
    assert Tagger.load(place / "run").facts["images"] == 7
    (place / "run" / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"did not write all that it holds \(notes.txt\)"):
        tagger.save(place / "run", overwrite=True)


def test_encoders_of_one_network_share_it_while_it_is_open(tmp_path):
    path = colour_network(tmp_path / "network.onnx")
    photos = [np.full((16, 16, 3), shade, np.uint8) for shade in (0, 90, 200)]
    encoder = ENCODERS.create("onnx", path=str(path)).fit(photos)
    twin = ENCODERS.create("onnx", path=str(path)).fit(photos)
    other = ENCODERS.create("onnx", path=str(path), views="whole").fit(photos)
    assert twin._open() is encoder._open()
    assert other._open() is not encoder._open()
    path.unlink()
    with pytest.raises(StorageError):
        ENCODERS.create("onnx", path=str(path)).fit(photos)


@pytest.fixture
def catalogue(tmp_path):
    """A catalogue with tags to learn from, whose model learns all anew."""
    tags = draw_photos(tmp_path / "photos", 24)
    run = fit_run(tmp_path / "photos", tags, tmp_path / "run", model="ridge")
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(tmp_path / "photos", tags=write_tags(tmp_path / "tags.csv", tags))
    for record in catalogue.records:
        catalogue.give(record.id, ["photo"])
    catalogue.stored.close()
    return tmp_path / "catalogue"


def still_works(catalogue, run):
    """Say that a catalogue goes on with its run: it is indexed, exported, searched, and learns."""
    photos = catalogue.with_name("photos")
    for line in (
        f"index {catalogue} {photos}",
        f"search {catalogue} red",
        f"export {catalogue} --to csv -k 3 -o {photos}.csv",
    ):
        code, _, err = visterm(line, catalogue.parent)
        assert code == 0, err
    opened = Catalogue.load(catalogue)
    assert opened.stored.origin.fingerprint == run
    assert opened.learn(full=True, use_even_if_worse=True).in_use
    assert Catalogue.load(catalogue).stored.origin.fingerprint != run


def test_a_catalogue_stays_on_its_run_where_a_new_one_cannot_be_opened(catalogue, monkeypatch):
    opened = Catalogue.load(catalogue)
    run = opened.stored.origin.fingerprint
    assert isinstance(opened.tagger.model, Ridge)
    monkeypatch.setattr(Ridge, "_check_learned", refuse_learned, raising=False)
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be opened again"):
            opened.learn(full=True, use_even_if_worse=True)
    assert [folder.name for folder in (catalogue / "runs").iterdir()] == [run]
    monkeypatch.undo()
    still_works(catalogue, run)


def test_a_catalogue_stays_on_its_run_where_a_new_one_cannot_search(catalogue, monkeypatch):
    run = Catalogue.load(catalogue).stored.origin.fingerprint

    def narrow(self, tags):
        return np.ones((len(tags), 1), np.float32)

    monkeypatch.setattr(Run, "tag_rows", narrow)
    opened = Catalogue.load(catalogue)
    with pytest.raises(ShapeError):
        opened.learn(full=True, use_even_if_worse=True)
    monkeypatch.undo()
    assert opened.search("red", 3).hits
    still_works(catalogue, run)


def test_a_catalogue_goes_over_to_no_run_that_is_damaged_where_it_keeps_it(catalogue):
    opened = Catalogue.load(catalogue)
    first = opened.stored.origin.fingerprint
    second = opened.learn(full=True, use_even_if_worse=True).run
    model = catalogue / "runs" / first / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-8])
    for go in (Catalogue.go_back, lambda opened: opened.use("1")):
        with pytest.raises(StorageError):
            go(Catalogue.load(catalogue))
    assert Catalogue.load(catalogue).stored.origin.fingerprint == second
    Catalogue.load(catalogue).use(Tagger.load(catalogue.with_name("run")))  # the same run, whole elsewhere
    assert model.read_bytes() == content
    still_works(catalogue, first)


@pytest.mark.parametrize("damage", [lambda run: (run / "model.safetensors").unlink(), shutil.rmtree])
def test_a_catalogue_is_indexed_with_its_own_run_again_where_its_copy_is_damaged(catalogue, damage):
    (copy,) = (catalogue / "runs").iterdir()
    damage(copy)
    photos = catalogue.with_name("photos")
    code, _, err = visterm(f"index {catalogue.with_name('run')} {photos} -o {catalogue}", catalogue.parent)
    assert (code, "24 unchanged" in err) == (0, True), err
    still_works(catalogue, copy.name)


def test_where_the_current_run_is_damaged_each_command_names_the_way_back_and_where_an_earlier_one_is_check_sees_it(
    catalogue,
):
    opened = Catalogue.load(catalogue)
    first = opened.stored.origin.fingerprint
    second = opened.learn(full=True, use_even_if_worse=True).run
    opened.stored.close()
    file = catalogue / "runs" / second / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 64]))
    for line in ("search {} red", "index {} photos", "tags {}", "info {}", "info {} --check"):
        code, _, err = visterm(line.format(catalogue), catalogue.parent)
        assert (code, f"Or go back to the previous run: visterm use {catalogue}" in err) == (2, True), err
    assert visterm(f"use {catalogue} --back", catalogue.parent)[0] == 0
    code, _, err = visterm(f"info {catalogue} --check", catalogue.parent)
    assert (code, f"runs/{second}/model.safetensors was changed" in err) == (2, True)
    assert "visterm use" not in err
    shutil.rmtree(file.parent)
    assert visterm(f"info {catalogue} --check", catalogue.parent)[0] == 0
    assert Catalogue.load(catalogue).stored.origin.fingerprint == first
