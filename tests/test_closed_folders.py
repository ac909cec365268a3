"""A sub-folder that may not be listed is left out, counted and named, and what is known of its photos stays."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from closed_folders import close
from tiny_catalogues import ENCODER, draw_photo, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import DataError
from visterm.core.types import Skipped
from visterm.data.corpus import Corpus
from visterm.data.image_folders import find_images
from visterm.data.tag_files import find_tags
from visterm.features.job import encode_folder
from visterm.features.stored import Features

REASON = "folder that cannot be listed: Permission denied"
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>sea</rdf:li></rdf:Bag>'
    "</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run", model="prior")


@pytest.fixture
def photos(tmp_path):
    """Eight photos, and three in a sub-folder."""
    draw_photos(tmp_path / "photos", 8)
    for number in range(3):
        draw_photo(tmp_path / "photos" / "lost+found" / f"{number}.png", "red", 100 + number)
    return tmp_path / "photos"


@pytest.fixture
def closed(photos):
    return photos / "lost+found"


def visterm(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_catalogue_keeps_the_photos_of_a_closed_folder_and_takes_it_up_when_it_opens(run, photos, closed, tmp_path):
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    assert catalogue.index(photos).new == 11
    with pytest.MonkeyPatch.context() as patch:
        close(patch, closed)
        for _ in range(2):
            done = catalogue.index(photos)
            assert (done.gone, done.kept, done.skipped) == (0, 8, [Skipped(str(closed), REASON)])
        assert len(catalogue) == 11
        assert catalogue.skipped == [Skipped(str(closed), REASON)]
    (closed / "0.png").unlink()
    done = catalogue.index(photos)
    assert (done.gone, done.kept, done.skipped, catalogue.skipped) == (1, 10, [], [])


def test_a_closed_folder_is_counted_once_and_its_photos_are_not_said_to_be_gone(run, photos, closed, monkeypatch):
    monkeypatch.chdir(photos.parent)
    for path in (photos / "000.png", closed / "0.png"):
        path.with_name(f"{path.name}.xmp").write_text(XMP)
    index = ("index", run, "photos", "--tags", "xmp", "-o", "catalogue")
    assert visterm(*index).exit_code == 0
    close(monkeypatch, closed)
    again = visterm(*index)
    assert (again.exit_code, "Skipped 1 folder (1 folder that cannot be listed)" in again.output) == (3, True)
    exported = visterm("export", "catalogue", "-k", "1", "--dry-run")
    assert "Skipped lost+found/0.png: no permission" in exported.output


def test_a_folder_of_texts_that_may_not_be_listed_is_not_said_to_be_empty_only(photos, tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    close(monkeypatch, tmp_path / "texts")
    with pytest.raises(DataError, match=r"The folder .*texts cannot be listed: Permission denied"):
        find_tags(tmp_path / "texts", photos)


def test_commands_go_on_without_a_closed_folder_name_it_and_end_with_3(run, photos, closed, tmp_path, monkeypatch):
    tags = write_tags(tmp_path / "tags.csv", {f"{number:03d}.png": ["sea"] for number in range(8)})
    settings = [word for name, value in ENCODER.items() for word in ("--encoder-set", f"{name}={json.dumps(value)}")]
    known = write_tags(tmp_path / "known.csv", {"000.png": ["red"], "001.png": ["cool"]})
    close(monkeypatch, closed)
    commands = [
        ("index", run, photos, "-o", tmp_path / "catalogue"),
        ("index", run, photos, "-o", tmp_path / "tagged", "--tags", tags),
        ("encode", photos, "-o", tmp_path / "features", "--encoder", run),
        ("annotate", run, photos),
        ("annotate", run, photos, "-o", tmp_path / "annotations"),
        ("fit", photos, "--tags", tags, "-o", tmp_path / "new", "--model", "prior", "--encoder", "visterms", *settings),
        ("evaluate", run, photos, "--tags", known),
        ("export", run, photos, "--to", "csv", "-k", "3", "-o", tmp_path / "out.csv"),
    ]
    for command in commands:
        result = visterm(*command)
        assert result.exit_code == 3, (command, result.output)
        assert "lost+found: folder that cannot be listed: Permission denied" in result.output, command
        assert "Skipped 1 folder (1 folder that cannot be listed)" in result.output, command


def test_python_lists_a_closed_folder_among_what_was_skipped(run, photos, closed, monkeypatch):
    close(monkeypatch, closed)
    tagger = Tagger.load(run, n_jobs=1)
    images, skipped = tagger.annotate(photos)
    assert (len(images), skipped) == (8, [Skipped(str(closed), REASON)])
    assert Catalogue(tagger).index(photos).skipped == [Skipped(str(closed), REASON)]
    with pytest.raises(DataError, match=r"lost\+found cannot be listed: Permission denied"):
        find_images(photos)


def test_features_keep_the_rows_of_a_closed_folder(run, photos, closed, tmp_path, monkeypatch):
    first = encode_folder(photos, tmp_path / "features", run=run, n_jobs=1)
    close(monkeypatch, closed)
    again = encode_folder(photos, tmp_path / "features", n_jobs=1)
    assert (first.rows, again.rows, again.encoded, again.gone, again.skipped) == (11, 11, 0, 0, 1)
    assert [name for name in Features(tmp_path / "features").corpus().names if name.startswith("lost+found/")]


def test_a_folder_that_was_named_must_open(run, closed, monkeypatch):
    close(monkeypatch, closed)
    with pytest.raises(DataError, match="cannot be listed"):
        Tagger.load(run, n_jobs=1).annotate(closed)
    with pytest.raises(DataError, match="cannot be listed: Permission denied"):
        Catalogue(Tagger.load(run, n_jobs=1)).index(closed)


def test_of_a_folder_with_nothing_but_a_closed_one_the_message_names_it(run, closed, tmp_path, monkeypatch):
    (tmp_path / "empty" / "private").mkdir(parents=True)
    close(monkeypatch, tmp_path / "empty" / "private")
    with pytest.raises(DataError, match=r"no files that can be listed\. .*private is a folder that cannot be listed"):
        Catalogue(Tagger.load(run, n_jobs=1)).index(tmp_path / "empty")


def test_texts_that_may_not_be_read_are_left_out_and_counted(photos, tmp_path, monkeypatch):
    for name in ("000", "001"):
        (photos / f"{name}.txt").write_text("sea")
    for name in ("000", "private/0"):
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text("sky")
    close(monkeypatch, photos / "001.txt", tmp_path / "texts" / "private")
    beside = Corpus.read(photos)
    assert beside.names == ["000.png"]
    reason = "tag file that may not be read: Permission denied"
    assert beside.skipped == [Skipped(str(photos / "001.txt"), reason)]
    in_folder = find_tags(tmp_path / "texts", photos)
    assert [row.image for row in in_folder.records] == ["000.png"]
    assert in_folder.skipped == [Skipped(str(tmp_path / "texts" / "private"), REASON)]


def test_sidecars_that_may_not_be_read_are_left_out_and_keep_what_is_known(run, photos, tmp_path, monkeypatch):
    for name in ("000", "001"):
        (photos / f"{name}.png.xmp").write_text(XMP)
    catalogue = tmp_path / "catalogue"
    assert visterm("index", run, photos, "--tags", "xmp", "-o", catalogue).exit_code == 0
    close(monkeypatch, photos / "001.png.xmp")
    result = visterm("index", catalogue, photos, "--tags", "xmp")
    assert result.exit_code == 3, result.output
    assert "001.png.xmp: tag file that may not be read: Permission denied" in result.output
    assert "Skipped 1 tag file (1 tag file that may not be read)" in result.output
    assert [tag.given for tag in Catalogue.load(catalogue).tags() if tag.tag == "sea"] == [2]
