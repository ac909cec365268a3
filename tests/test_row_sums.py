"""Rows whose bytes flipped are noticed: all by `visterm info --check`, some when a catalogue is opened."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import run_command
from empty_catalogues import empty_catalogue
from tiny_catalogue import make_tiny_catalogue
from visterm.core.errors import CorruptFileError
from visterm.data.feature_shards import read_shard, shard_bytes
from visterm.library.info import check
from visterm.store import stored_rows
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage

ORIGIN = Origin("", "f00d")
DENSE = np.random.default_rng(3).random((40, 4)).astype(np.float32)
SPARSE = sp.csr_array(np.where(DENSE > 0.5, DENSE, 0))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(stored_rows, "BLOCK_BYTES", 64)  # four dense rows


def catalogue(folder, U):
    made = empty_catalogue(folder / "catalogue", ORIGIN)
    for start in (0, 25):  # in two transactions
        part = U[start : start + 25]
        names = [f"{start + i}.jpg" for i in range(part.shape[0])]
        made.add([NewImage(name, f"/photos/{name}", 10, 4, 3, "ab") for name in names], part)
    return made


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def segment(stored):
    (folder,) = (stored.folder / "rows").iterdir()
    return folder


@pytest.mark.parametrize(
    ("U", "name"),
    [(DENSE, "rows.f32"), (DENSE, "ids.i64")]
    + [(SPARSE, name) for name in ("data.f32", "indices.i32", "indptr.i64", "ids.i64")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_flipped_bit_anywhere_in_the_rows_is_found_by_a_check(U, name, tmp_path, small_blocks):
    stored = catalogue(tmp_path, U)
    stored.check()
    path = segment(stored) / name
    for at in (0, path.stat().st_size // 2, path.stat().st_size - 8):
        flip(path, at)
        with pytest.raises(CorruptFileError, match=r"rows|numbers|damaged"):
            StoredCatalogue.open(stored.folder).check()
        flip(path, at)
    stored.check()
    stored.close()


def test_opening_samples_some_blocks(tmp_path, small_blocks, monkeypatch):
    stored = catalogue(tmp_path, DENSE)
    stored.close()
    path = segment(stored) / "rows.f32"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptFileError, match=r"rows.f32: rows .* Restore"):
        StoredCatalogue.open(stored.folder)
    monkeypatch.setattr(stored_rows, "SAMPLED_BLOCKS", 0)
    StoredCatalogue.open(stored.folder).close()


def test_rows_that_are_compacted_or_saved_or_written_over_keep_checksums(tmp_path, small_blocks):
    stored = catalogue(tmp_path, DENSE)
    stored.set_rows(list(range(30)), -DENSE[:30])
    stored.check()
    assert stored.compact()
    stored.check()
    (tmp_path / "copy").mkdir()
    stored.write_into(tmp_path / "copy")
    stored.close()


def test_the_command_checks_and_names_what_has_no_checksum_and_what_is_damaged(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    done = run_command(["info", tiny.folder, "--check"])
    assert (
        "checked: no damage: the rows and the runs are unchanged, all features can be read, and the database passes"
        in done.stdout
    )
    stored = StoredCatalogue.open(tiny.folder)
    path = segment(stored) / "rows.f32"
    flip(path, 5)
    done = run_command(["info", tiny.folder, "--check"])
    assert done.returncode == 2
    assert "rows.f32: rows 0 to 23 are not what was written" in done.stderr
    stored.database.write("DELETE FROM row_sums")
    stored.close()
    done = run_command(["info", tiny.folder, "--check"])
    assert done.returncode == 2
    assert "ids.i64: 24 rows have no checksum in" in done.stderr


def not_a_number(folder, database):
    (file,) = (folder / "features").rglob("*.safetensors")
    shard = read_shard(file)
    shard.rows.data[7] = np.nan
    file.write_bytes(shard_bytes(shard))


def other_images(folder, database):
    (file,) = (folder / "features").rglob("*.safetensors")
    shard = read_shard(file)
    file.write_bytes(shard_bytes(shard._replace(names=shard.names[::-1])))


def gone(folder, database):
    next((folder / "features").rglob("*.safetensors")).unlink()


def broken_reference(folder, database):
    with sqlite3.connect(folder / "catalogue.sqlite") as connection:  # which does not look at foreign keys unasked
        connection.execute("UPDATE features SET image_id = 999 WHERE image_id = 3")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (not_a_number, r"part-\w+.safetensors is damaged: row \d+ is missing or not finite"),
        (other_images, r"part-\w+.safetensors is damaged: it has other images than its name says"),
        (gone, r"part-\w+.safetensors cannot be read"),
        (lambda _, database: database.write("UPDATE features SET row = 24 WHERE row = 3"), "row 24 is missing"),
        (broken_reference, r"is damaged: foreign key broken: \('features'"),
    ],
    ids=["a number", "the images", "a file", "a place", "the database"],
)
def test_a_check_of_a_catalogue_finds_damaged_features_and_references(damage, message, tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    stored = StoredCatalogue.open(tiny.folder)
    damage(tiny.folder, stored.database)
    stored.close()
    with pytest.raises(CorruptFileError, match=message) as caught:
        check(tiny.folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("old", "new"), [(b"/000.jpg", b"/0p0.jpg"), (b"stripes", b"stripep")], ids=["path", "tag"])
def test_a_changed_value_that_an_index_has_is_damage(old, new, tmp_path):
    place = make_tiny_catalogue(tmp_path, n_images=101)
    file = place.folder / "catalogue.sqlite"
    content = file.read_bytes()
    assert content.count(old) > 1
    file.write_bytes(content.replace(old, new, 1))
    done = run_command(["info", place.folder, "--check"])
    assert (done.returncode, "is damaged" in done.stderr) == (2, True)


def test_what_has_no_checksum_is_said(tmp_path):
    place = make_tiny_catalogue(tmp_path, n_images=4)
    out = run_command(["info", place.folder, "--check"]).stdout
    assert "Not checked: values of the database that are in no index (sizes, dates, scores), and seconds of" in out
    (run,) = (place.folder / "runs").iterdir()
    assert "Not checked: seconds of training (model.times.json)" in run_command(["info", run, "--check"]).stdout
