"""A catalogue keeps what is known of each image, and is whole on disk or not there."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

from visterm.core.errors import CorruptFileError, EncoderMismatchError, ShapeError, StorageError
from visterm.core.persist import MANIFEST, file_hash, read_json, write_json
from visterm.core.types import Skipped
from visterm.store import catalogue as catalogue_module
from visterm.store.catalogue import Origin, StoredCatalogue, open_catalogue, write_catalogue
from visterm.store.records import Record, Records, read_records

ORIGIN = Origin("/runs/one", "f00d")


def records_of(*names):
    return [Record(name, f"/photos/{name}", 10, 4, 3, "ab", ("sky", "größe")) for name in names]


@pytest.fixture
def small():
    made = StoredCatalogue(ORIGIN)
    made.add(records_of("a.jpeg", "b.jpeg"), np.array([[1, 0], [0, 1]], np.float32))
    return made


def test_a_record_holds_place_size_hash_and_tags_of_a_file(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (40, 20)).save(tmp_path / "turned.jpeg", exif=exif)
    monkeypatch.chdir(tmp_path)
    (record,) = read_records(["turned.jpeg"], ["my photo"], [["sun", "sea"]])
    data = (tmp_path / "turned.jpeg").read_bytes()
    expected = Record(
        name="my photo",
        path=str(tmp_path / "turned.jpeg"),
        n_bytes=len(data),
        width=20,
        height=40,
        sha256=hashlib.sha256(data).hexdigest(),
        tags=("sun", "sea"),
    )
    assert record == expected


def test_a_turned_tiff_has_the_size_that_people_see(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.new("RGB", (40, 20)).save(tmp_path / "turned.tiff", exif=exif)
    (record,) = read_records([tmp_path / "turned.tiff"], ["x"], [[]])
    assert (record.width, record.height) == (20, 40)


def test_an_image_given_as_an_array_has_no_place_but_a_hash():
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    (record,) = read_records([pixels], ["image 0"], [[]])
    assert record == Record("image 0", None, 60, 5, 4, hashlib.sha256(pixels.tobytes()).hexdigest())


def test_records_come_in_the_order_of_the_images_for_any_number_of_threads(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(7)]
    for i, path in enumerate(paths):
        Image.new("RGB", (i + 1, 2)).save(path)
    names, tags = [path.name for path in paths], [[]] * 7
    one = read_records(paths, names, tags, n_jobs=1)
    assert [record.width for record in one] == [1, 2, 3, 4, 5, 6, 7]
    assert read_records(paths, names, tags, n_jobs=3) == one


def test_a_file_that_is_gone_is_skipped_with_the_reason(tmp_path):
    Image.new("RGB", (1, 2)).save(tmp_path / "there.png")
    gone, there = read_records([tmp_path / "gone.png", tmp_path / "there.png"], ["gone", "there"], [[], []])
    assert gone == Skipped(str(tmp_path / "gone.png"), "no such file")
    assert there.name == "there"


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_catalogue_comes_back_as_it_was_written(tmp_path, kind):
    U = np.array([[1, 0, 2], [0, 0, 0], [3, 1, 0]], np.float32)
    made = StoredCatalogue(ORIGIN)
    made.add(records_of("a.jpeg", "b.jpeg"), kind(U[:2]))
    made.add(records_of("c.jpeg"), kind(U[2:]))
    write_catalogue(tmp_path / "catalogue", made)
    opened = open_catalogue(tmp_path / "catalogue")
    assert list(opened.records) == records_of("a.jpeg", "b.jpeg", "c.jpeg")
    assert [opened.records.name(i) for i in (2, 0)] == ["c.jpeg", "a.jpeg"]
    assert opened.origin == ORIGIN
    assert opened.search([1, 1, 1], 0).scores.tolist() == [[4, 3, 0]]
    assert [opened.records[i].name for i in opened.search([0, 0, 1], 1).ids[0]] == ["a.jpeg"]


def test_rows_of_an_opened_catalogue_stay_in_the_file(tmp_path, small):
    write_catalogue(tmp_path / "catalogue", small)
    (part,) = open_catalogue(tmp_path / "catalogue")._parts
    with pytest.raises(ValueError, match="read-only"):
        part[0, 0] = 5


def test_an_opened_catalogue_takes_more_images_and_is_written_over_itself(tmp_path, small):
    write_catalogue(tmp_path / "catalogue", small)
    opened = open_catalogue(tmp_path / "catalogue")
    opened.add(records_of("c.jpeg"), np.array([[5, 5]], np.float32))
    write_catalogue(tmp_path / "catalogue", opened)
    again = open_catalogue(tmp_path / "catalogue")
    assert [record.name for record in again.records] == ["a.jpeg", "b.jpeg", "c.jpeg"]
    assert again.search([1, 0.5], 0).ids.tolist() == [[2, 0, 1]]


def test_names_that_are_not_unicode_survive(tmp_path):
    name = b"caf\xe9.jpeg".decode("utf-8", "surrogateescape")  # as Python reads a file name in Latin-1
    made = StoredCatalogue(ORIGIN)
    made.add(records_of(name, "two\nlines\u2028.jpeg"), np.eye(2, dtype=np.float32))
    write_catalogue(tmp_path / "catalogue", made)
    assert [r.name for r in open_catalogue(tmp_path / "catalogue").records] == [name, "two\nlines\u2028.jpeg"]


def test_records_and_rows_must_be_as_many(small):
    with pytest.raises(ShapeError, match="1 records, but 2 rows"):
        small.add(records_of("c.jpeg"), np.eye(2))
    assert len(small) == 2


def test_rows_of_another_run_are_refused(small):
    small.check_origin("f00d")
    with pytest.raises(EncoderMismatchError, match=r"made by /runs/one \(f00d\), not by this run \(beef\)"):
        small.check_origin("beef")


def test_a_failure_while_writing_leaves_the_old_catalogue(tmp_path, small, monkeypatch):
    write_catalogue(tmp_path / "catalogue", small)

    def fail(folder, name, U):
        (folder / "half.npy").write_bytes(b"x")
        raise OSError("disk full")

    monkeypatch.setattr(catalogue_module, "write_rows", fail)
    with pytest.raises(OSError, match="disk full"):
        write_catalogue(tmp_path / "catalogue", StoredCatalogue(Origin("/runs/two", "beef")))
    assert open_catalogue(tmp_path / "catalogue").origin == ORIGIN
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]


def test_something_else_is_neither_opened_nor_replaced(tmp_path, small):
    with pytest.raises(StorageError, match="no catalogue at"):
        open_catalogue(tmp_path / "none")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a catalogue of visterm"):
        write_catalogue(tmp_path / "photos", small)
    assert (tmp_path / "photos" / "a.txt").read_text() == "mine"


@pytest.mark.parametrize("file", ["images.jsonl", "rows.npy", "catalogue.json"])
def test_a_changed_file_is_noticed(tmp_path, small, file):
    write_catalogue(tmp_path / "catalogue", small)
    path = tmp_path / "catalogue" / file
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptFileError, match=file):
        open_catalogue(tmp_path / "catalogue")


def signed_anew(folder):
    manifest = read_json(folder / MANIFEST)
    manifest["sha256"] = {name: file_hash(folder / name) for name in manifest["sha256"]}
    write_json(folder / MANIFEST, manifest)


def test_files_that_do_not_fit_each_other_are_noticed_though_their_checksums_hold(tmp_path, small):
    write_catalogue(tmp_path / "catalogue", small)
    (tmp_path / "catalogue" / "images.jsonl").write_text(json.dumps({"name": "a"}) + "\n")
    signed_anew(tmp_path / "catalogue")
    with pytest.raises(CorruptFileError, match="1 records and 2 rows"):
        open_catalogue(tmp_path / "catalogue")


def test_pickled_arrays_are_never_loaded(tmp_path, small):
    write_catalogue(tmp_path / "catalogue", small)
    np.save(tmp_path / "catalogue" / "rows.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    signed_anew(tmp_path / "catalogue")
    with pytest.raises(CorruptFileError, match="cannot be read as an array"):
        open_catalogue(tmp_path / "catalogue")


def test_a_broken_line_of_records_is_named(tmp_path):
    (tmp_path / "images.jsonl").write_text('{"name": "a"}\n')
    with pytest.raises(CorruptFileError, match="Line 1"):
        Records.open(tmp_path / "images.jsonl")[0]


def test_records_are_a_sequence():
    records = Records(records_of("a", "b", "c"))
    assert [record.name for record in records[1:]] == ["b", "c"]
    assert records[-1].name == "c"
    assert len(records) == 3
    with pytest.raises(IndexError):
        records[3]
