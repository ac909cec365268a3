"""Backups: one checked file of what people did in a catalogue, restored with rows that are computed again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import visterm
from command_line import visterm as command
from refusals import refused
from tiny_catalogues import ENCODER, draw_photos
from visterm.core.errors import CorruptFileError, StorageError
from visterm.library.backup import back_up, restore
from visterm.web.app import create_app


@pytest.fixture
def catalogue(tmp_path):
    tags = draw_photos(tmp_path / "photos")
    photos = [tmp_path / "photos" / name for name in tags]
    tagger = visterm.fit(
        photos, list(tags.values()), model="ridge", encoder="visterms", encoder_params=ENCODER, n_jobs=1
    )
    made = visterm.Catalogue.create(tmp_path / "catalogue", tagger)
    made.index(tmp_path / "photos")
    made.judge(1, tagger.vocabulary.tags[0], 1)
    made.judge(2, tagger.vocabulary.tags[0], -1)
    made.give(3, ["my own tag"])
    return made


def contents(opened):
    """Return what a person sees: searches, tags and judgements of each photo."""
    tag = opened.tagger.vocabulary.tags[0]
    hits = [(Path(hit.image).name, round(hit.score, 4)) for hit in opened.search(tag, k=50).hits]
    return hits, opened.tags(), opened.stored.tags.held(), opened.stored.tags.rejected()


def test_a_restored_catalogue_finds_and_knows_the_same(catalogue, tmp_path):
    expected = contents(catalogue)
    written = back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    assert written.bytes == (tmp_path / "b.zip").stat().st_size
    assert catalogue.stored.history.latest(1)[0].details["path"] == str(tmp_path / "b.zip")
    restored = restore(tmp_path / "b.zip", tmp_path / "again")
    assert restored.rows == restored.images == len(catalogue)
    opened = visterm.Catalogue.load(tmp_path / "again")
    opened.stored.check()
    assert contents(opened) == expected
    names = zipfile.ZipFile(tmp_path / "b.zip").namelist()
    assert not [name for name in names if name.startswith(("rows", "features", "previews"))]


def test_photos_that_moved_since_the_backup_keep_their_tags_when_they_are_indexed(catalogue, tmp_path):
    held = {Path(catalogue.image(i).record.path).name: tags for i, tags in catalogue.stored.tags.held().items()}
    back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    (tmp_path / "photos").rename(tmp_path / "moved")
    restored = restore(tmp_path / "b.zip", tmp_path / "again")
    assert restored.missing == restored.images
    opened = visterm.Catalogue.load(tmp_path / "again")
    opened.index(tmp_path / "moved")
    assert len(opened) == restored.images
    assert {Path(opened.image(i).record.path).name: tags for i, tags in opened.stored.tags.held().items()} == held


def test_an_older_backup_beside_a_newer_run_is_what_it_was(catalogue, tmp_path):
    expected = contents(catalogue)
    back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    for image_id in range(1, 8):
        catalogue.give(image_id, ["newer"])
    catalogue.learn(full=True, use_even_if_worse=True)
    restore(tmp_path / "b.zip", tmp_path / "again")
    assert contents(visterm.Catalogue.load(tmp_path / "again")) == expected
    assert "newer" in visterm.Catalogue.load(tmp_path / "catalogue").tagger.vocabulary


def test_a_disk_dies_and_an_older_backup_a_newer_run_and_photos_that_moved_are_what_is_left(catalogue, tmp_path):
    back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    said = catalogue.stored.tags.held(), catalogue.stored.tags.rejected(), catalogue.stored.tags.feedback()
    for image_id in range(1, 8):
        catalogue.give(image_id, ["since then"])
    catalogue.learn(full=True, use_even_if_worse=True)
    fingerprint = catalogue.stored.runs.current().fingerprint
    newer = shutil.copytree(tmp_path / "catalogue" / "runs" / fingerprint, tmp_path / fingerprint)
    catalogue.stored.close()
    shutil.rmtree(tmp_path / "catalogue")
    (tmp_path / "photos").rename(tmp_path / "new disk")

    restored = restore(tmp_path / "b.zip", tmp_path / "again")
    assert (restored.rows, restored.missing) == (0, restored.images)
    opened = visterm.Catalogue.load(tmp_path / "again")
    assert opened.index(tmp_path / "new disk").skipped == []
    assert (opened.stored.tags.held(), opened.stored.tags.rejected(), opened.stored.tags.feedback()) == said
    assert len(opened) == restored.images

    opened.use(visterm.Tagger.load(newer))
    assert "since then" in opened.tagger.vocabulary
    assert opened.stored.runs.current().fingerprint == newer.name
    assert len(opened.search("since then", k=7).hits) == 7  # the run knows the tag; the photos' own were lost
    assert (opened.stored.tags.held(), opened.stored.tags.feedback()) == (said[0], said[2])
    opened.stored.check()


def test_the_page_names_the_last_backup(catalogue, tmp_path):
    catalogue.stored.close()
    with TestClient(create_app(tmp_path / "catalogue"), base_url="http://127.0.0.1:8080") as client:
        assert "No backup yet" in client.get("/library").text
        for name in ("first.zip", "second.zip"):
            back_up(tmp_path / "catalogue", tmp_path / name)
        page = client.get("/library").text
    last = page[page.index("Last backup") : page.index("figures")]
    assert str(tmp_path / "second.zip") in last
    assert "first.zip" not in last


def test_damaged_and_foreign_files_are_refused_and_leave_nothing(catalogue, tmp_path):
    back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])

    def write(changed):
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            for name, content in changed.items():
                archive.writestr(name, content)

    evil = manifest | {"sha256": manifest["sha256"] | {"../evil": "0" * 64}}
    cases = [
        (files | {"catalogue.sqlite": files["catalogue.sqlite"] + b"x"}, CorruptFileError),
        ({name: content for name, content in files.items() if name != "catalogue.sqlite"}, CorruptFileError),
        (files | {"manifest.json": json.dumps(evil)}, StorageError),
        (files | {"manifest.json": json.dumps(manifest | {"format": 99})}, StorageError),
        (files | {"manifest.json": b"{}"}, StorageError),
    ]
    for changed, error in cases:
        write(changed)
        with pytest.raises(error):
            restore(tmp_path / "bad.zip", tmp_path / "again")
        assert not (tmp_path / "again").exists()
        assert not (tmp_path / "evil").exists()
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(StorageError, match="not a backup"):
        restore(tmp_path / "text.zip", tmp_path / "again")
    with pytest.raises(StorageError, match="a catalogue already"):
        restore(tmp_path / "b.zip", tmp_path / "catalogue")
    with refused("out"):
        back_up(tmp_path / "catalogue", tmp_path / "b.zip")


KILLED = """
import os, signal, sys
from visterm.core.progress import Progress
from visterm.library.backup import restore
class Killer(Progress):
    def advance(self, steps=1, note=""):
        os.kill(os.getpid(), signal.SIGKILL)
restore(sys.argv[1], sys.argv[2], progress=Killer())
"""


def test_a_restore_that_was_killed_goes_on(catalogue, tmp_path):
    expected = contents(catalogue)
    back_up(tmp_path / "catalogue", tmp_path / "b.zip")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "b.zip", tmp_path / "again"], env=os.environ, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    restore(tmp_path / "b.zip", tmp_path / "again")
    assert contents(visterm.Catalogue.load(tmp_path / "again")) == expected


def test_the_commands_write_and_restore(catalogue, tmp_path):
    code, _, err = command("backup catalogue b.zip", tmp_path)
    assert code == 0, err
    assert "Every file was checked" in err
    code, out, err = command("restore b.zip again --json", tmp_path)
    assert code == 0, err
    assert json.loads(out)["rows"] == len(catalogue)
    code, _, err = command("backup catalogue b.zip", tmp_path)
    assert code == 2
    assert "--overwrite" in err
