"""A catalogue keeps what is known of each image; what was committed is there, and nothing else."""

from __future__ import annotations

import gc
import hashlib
import os
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

from empty_catalogues import empty_catalogue
from tiny_catalogue import save_catalogue
from visterm.core.errors import CorruptFileError, DataError, ShapeError, StorageError
from visterm.core.types import Skipped
from visterm.library.records import read_records
from visterm.store.catalogue import DATABASE, Origin, StoredCatalogue
from visterm.store.images import NewImage
from visterm.store.segments import SegmentFolder

ORIGIN = Origin("/runs/one", "f00d")


def records_of(*names):
    return [NewImage(name, f"/photos/{name}", 10, 4, 3, "ab", ("sky", "größe")) for name in names]


def found(catalogue, q, **limits):
    """The names of what a search finds, best first."""
    return [one.name for one in catalogue.locations(catalogue.search(q, 0, **limits).ids[0])]


def in_memory(folder):
    return StoredCatalogue(ORIGIN)


def on_disk(folder):
    return empty_catalogue(folder / "catalogue", ORIGIN)


kinds = pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])


@pytest.fixture(params=[in_memory, on_disk])
def small(request, tmp_path):
    made = request.param(tmp_path)
    made.add(records_of("a.jpeg", "b.jpeg"), np.array([[1, 0], [0, 1]], np.float32))
    yield made
    made.close()


@pytest.fixture
def stored(tmp_path):
    made = on_disk(tmp_path)
    made.add(records_of("a.jpeg", "b.jpeg"), np.array([[1, 0], [0, 1]], np.float32))
    yield made
    made.close()


def test_a_record_holds_place_size_hash_and_tags_of_a_file(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (40, 20)).save(tmp_path / "turned.jpeg", exif=exif)
    monkeypatch.chdir(tmp_path)
    (record,) = read_records(["turned.jpeg"], ["my photo"], [["sun", "sea"]])
    data = (tmp_path / "turned.jpeg").read_bytes()
    expected = NewImage(
        name="my photo",
        path=str(tmp_path / "turned.jpeg"),
        n_bytes=len(data),
        width=20,
        height=40,
        sha256=hashlib.sha256(data).hexdigest(),
        tags=("sun", "sea"),
        mtime_ns=(tmp_path / "turned.jpeg").stat().st_mtime_ns,
        file_type="jpeg",
        camera="",
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
    assert record == NewImage("image 0", None, 60, 5, 4, hashlib.sha256(pixels.tobytes()).hexdigest())


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


@kinds
@pytest.mark.parametrize("make", [in_memory, on_disk])
def test_a_catalogue_comes_back_as_it_was_saved(tmp_path, kind, make):
    U = np.array([[1, 0, 2], [0, 0, 0], [3, 1, 0]], np.float32)
    made = make(tmp_path)
    made.add(records_of("a.jpeg", "b.jpeg"), kind(U[:2]))
    made.add(records_of("c.jpeg"), kind(U[2:]))
    save_catalogue(made, tmp_path / "saved")
    opened = StoredCatalogue.open(tmp_path / "saved")
    assert opened.images.all() == made.images.all()
    assert [one.name for one in opened.locations([2, 0])] == ["c.jpeg", "a.jpeg"]
    assert opened.tags.held() == {0: ["größe", "sky"], 1: ["größe", "sky"], 2: ["größe", "sky"]}
    assert (opened.origin, len(opened), opened.current_rows().width) == (ORIGIN, 3, 3)
    assert opened.search([1, 1, 1], 0).scores.tolist() == [[4, 3, 0]]
    assert found(opened, [0, 0, 1]) == ["a.jpeg", "b.jpeg", "c.jpeg"]
    assert opened.database.check() == []


def test_what_was_added_is_there_without_saving(stored):
    stored.add(records_of("c.jpeg"), np.array([[5, 5]], np.float32))
    stored.close()
    again = StoredCatalogue.open(stored.folder)
    assert found(again, [1, 0.5]) == ["c.jpeg", "a.jpeg", "b.jpeg"]


def test_a_catalogue_that_nobody_holds_has_no_files_open(stored):
    """A copy of the folder would otherwise meet files that disappear when garbage is collected."""
    folder = stored.folder
    log = folder / f"{DATABASE}-wal"
    again = StoredCatalogue.open(folder)
    stored.close()
    assert log.exists()
    gc.disable()
    try:
        del again
        assert not log.exists()
    finally:
        gc.enable()


def test_rows_of_an_opened_catalogue_stay_in_the_file(stored):
    with pytest.raises(ValueError, match="read-only"):
        stored.current_rows().parts[0].rows[0, 0] = 5


def test_one_process_sees_what_another_has_committed(stored):
    reader = StoredCatalogue.open(stored.folder)
    assert found(reader, [1, 0]) == ["a.jpeg", "b.jpeg"]
    stored.add(records_of("c.jpeg"), np.array([[5, 5]], np.float32))
    assert found(reader, [1, 0]) == ["c.jpeg", "a.jpeg", "b.jpeg"]
    with stored.transaction():
        stored.add(records_of("d.jpeg"), np.array([[9, 9]], np.float32))
        assert found(stored, [1, 0])[0] == "d.jpeg"
        assert found(reader, [1, 0])[0] == "c.jpeg"


@kinds
@pytest.mark.parametrize("make", [in_memory, on_disk])
def test_a_transaction_that_fails_leaves_nothing_behind(tmp_path, kind, make):
    made = make(tmp_path)
    made.add(records_of("a.jpeg"), kind(np.array([[1, 0]], np.float32)))

    def add_and_fail():
        with made.transaction():
            made.add(records_of("b.jpeg"), kind(np.array([[7, 7]], np.float32)))
            assert found(made, [1, 0]) == ["b.jpeg", "a.jpeg"]
            raise KeyError

    with pytest.raises(KeyError):
        add_and_fail()
    assert found(made, [1, 0]) == ["a.jpeg"]
    made.add(records_of("c.jpeg"), kind(np.array([[2, 3]], np.float32)))
    assert found(made, [1, 0]) == ["c.jpeg", "a.jpeg"]
    assert made.search([1, 1], 1).scores.tolist() == [[5]]


def test_names_that_are_not_unicode_survive(tmp_path):
    name = b"caf\xe9.jpeg".decode("utf-8", "surrogateescape")  # as Python reads a file name in Latin-1
    made = on_disk(tmp_path)
    made.add(records_of(name, "two\nlines\u2028.jpeg"), np.eye(2, dtype=np.float32))
    made.skipped.add([Skipped(name, "empty")])
    opened = StoredCatalogue.open(made.folder)
    assert [image.name for image in opened.images.all()] == [name, "two\nlines\u2028.jpeg"]
    assert opened.images.by_path(f"/photos/{name}").id == 0
    assert opened.skipped.all() == [Skipped(name, "empty")]


def test_images_that_are_gone_are_not_found_until_they_are_back(small):
    small.add(records_of("c.jpeg"), np.array([[2, 2]], np.float32))
    small.mark([0, 2], "gone")
    assert (found(small, [1, 0]), len(small)) == (["b.jpeg"], 1)
    assert small.current_rows().ids.tolist() == [1]
    assert small.search([1, 0], among=[0, 1, 2]).ids.tolist() == [[1]]
    small.mark([2], "here")
    assert found(small, [1, 0]) == ["c.jpeg", "b.jpeg"]


def test_the_last_row_of_an_image_counts(small):
    small.set_rows([0], np.array([[-1, 7]], np.float32))
    assert small.search([0, 1], 0).ids.tolist() == [[0, 1]]
    assert small.search([0, 1], 0).scores.tolist() == [[7, 1]]
    assert small.current_rows().rows([1, 0, 1]).tolist() == [[0, 1], [-1, 7], [0, 1]]
    assert small.current_rows().products([0, 1], [1, 0]).tolist() == [[1], [7]]
    assert small.current_rows().products([[0, 1], [1, 0]]).tolist() == [[7, -1], [1, 0]]


@kinds
def test_dead_rows_are_left_out_when_a_catalogue_is_compacted(tmp_path, kind):
    made = on_disk(tmp_path)
    rng = np.random.default_rng(0)
    U = rng.standard_normal((40, 6)).astype(np.float32) * (rng.random((40, 6)) < 0.5)
    made.add(records_of(*map(str, range(40))), kind(U))
    assert not made.compact()
    for start in (0, 5, 3):
        U[start : start + 10] += 1
        made.set_rows(range(start, start + 10), kind(U[start : start + 10]))
    made.mark([39], "gone")
    reader = StoredCatalogue.open(made.folder)
    before = reader.search(U[:5], 0)
    assert made.compact()
    for catalogue in (reader, made, StoredCatalogue.open(made.folder)):
        after = catalogue.search(U[:5], 0)
        np.testing.assert_array_equal(after.ids, before.ids)
        np.testing.assert_array_equal(after.scores, before.scores)
    (folder,) = (made.folder / "rows").iterdir()
    assert os.path.getsize(folder / "ids.i64") == 8 * 40
    made.mark([39], "here")
    assert len(made) == 40
    assert made.database.check() == []


def test_each_run_has_its_own_rows_and_the_current_one_is_searched(small):
    later = small.runs.add("beef", "enc")
    small.set_rows([0, 1], np.array([[1, 2, 3], [3, 2, 1]], np.float32), run_id=later)
    assert small.current_rows().width == 2
    assert small.images.without_rows(later) == []
    small.use_run(later)
    assert (small.current_rows().width, found(small, [1, 0, 0])) == (3, ["b.jpeg", "a.jpeg"])
    small.add(records_of("c.jpeg"), np.array([[9, 9, 9]], np.float32))
    assert found(small, [1, 0, 0])[0] == "c.jpeg"
    moved_tags = small.runs.add("cafe", "enc", rows_of=later)
    small.use_run(moved_tags)
    assert (small.origin.fingerprint, len(small)) == ("cafe", 3)


def test_an_image_without_a_row_is_refused_where_its_row_is_asked_for(small):
    with pytest.raises(DataError, match="image 5 has no row"):
        small.current_rows().rows([0, 5])
    with pytest.raises(DataError, match="image 5 has no row"):
        small.current_rows().products([1, 0], [5])


def test_records_and_rows_must_be_as_many_and_of_one_width(small):
    with pytest.raises(ShapeError, match="1 images, but 2 rows"):
        small.add(records_of("c.jpeg"), np.eye(2))
    with pytest.raises(ShapeError, match="U has 3 columns, but the rows of this store have 2"):
        small.add(records_of("c.jpeg"), np.ones((1, 3)))
    with pytest.raises(DataError, match="NaN"):
        small.add(records_of("c.jpeg"), [[np.nan, 1]])
    with pytest.raises(DataError, match="twice"):
        small.set_rows([0, 0], np.eye(2))
    assert (len(small), small.images.count()) == (2, 2)


def test_a_file_is_in_a_catalogue_once(small):
    with pytest.raises(sqlite3.IntegrityError):
        small.add(records_of("a.jpeg"), np.ones((1, 2)))
    assert len(small) == 2


def test_a_failure_while_saving_leaves_the_old_catalogue(tmp_path, stored, monkeypatch):
    def fail(self, *rows):
        (self.folder / "half").write_bytes(b"x")
        raise OSError("disk full")

    other = StoredCatalogue(Origin("/runs/two", "beef"))
    other.add(records_of("z.jpeg"), np.ones((1, 2)))
    monkeypatch.setattr(SegmentFolder, "append", fail)
    with pytest.raises(OSError, match="disk full"):
        save_catalogue(other, stored.folder)
    assert StoredCatalogue.open(stored.folder).origin == ORIGIN
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]


def test_something_else_is_neither_opened_nor_replaced(tmp_path, stored):
    with pytest.raises(StorageError, match="no catalogue at"):
        StoredCatalogue.open(tmp_path / "none")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a catalogue of visterm"):
        save_catalogue(stored, tmp_path / "photos")
    assert (tmp_path / "photos" / "a.txt").read_text() == "mine"


def test_a_damaged_database_is_noticed(stored):
    stored.close()
    (stored.folder / DATABASE).write_bytes(b"this is not a database" * 100)
    with pytest.raises(CorruptFileError, match="is not a catalogue's database"):
        StoredCatalogue.open(stored.folder)
    (stored.folder / DATABASE).unlink()
    with pytest.raises(CorruptFileError, match=f"{DATABASE} is missing"):
        StoredCatalogue.open(stored.folder)


@pytest.mark.parametrize("name", ["rows.f32", "ids.i64"])
def test_rows_that_were_cut_off_are_noticed(stored, name):
    (file,) = (stored.folder / "rows").glob(f"*/{name}")
    os.truncate(file, 8)
    with pytest.raises(CorruptFileError, match=f"{name} holds . numbers where . are committed"):
        StoredCatalogue.open(stored.folder)


def test_rows_that_were_not_committed_are_cut_before_more_are_written(stored):
    (file,) = (stored.folder / "rows").glob("*/rows.f32")
    with file.open("ab") as rows:
        rows.write(bytes(1000))
    (stored.folder / "rows" / "77").mkdir()
    with stored.writing():
        assert file.stat().st_size == 4 * 4
        assert [folder.name for folder in (stored.folder / "rows").iterdir()] == [file.parent.name]


HOLDS_THE_LOCK = """
import sys
from visterm.store.catalogue import StoredCatalogue
with StoredCatalogue.open(sys.argv[1]).writing():
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_that_writes_rows_is_told_who_is_at_it_until_that_one_is_gone(stored):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS_THE_LOCK, str(stored.folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "holds\n"
        with pytest.raises(StorageError, match=rf"in use by process {child.pid} on .* since 20\d\d-"):
            stored.add(records_of("c.jpeg"), np.ones((1, 2)))
        assert found(stored, [1, 0]) == ["a.jpeg", "b.jpeg"]
        stored.tags.judge(0, "sky", -1)
        child.kill()
    stored.add(records_of("c.jpeg"), np.ones((1, 2)))
    assert len(stored) == 3


def test_rows_are_not_written_inside_a_transaction_of_the_tables_alone(stored):
    with pytest.raises(StorageError, match=r"inside StoredCatalogue\.transaction"), stored.database.transaction():
        stored.add(records_of("c.jpeg"), np.ones((1, 2)))
    assert len(stored) == 2


def test_threads_search_while_others_add(small):
    n_each, errors = 8, []

    def add(first):
        for i in range(first, first + n_each):
            small.add(records_of(f"{i}.png"), np.array([[i, 1]], np.float32))

    def search():
        for _ in range(20):
            ids, scores = small.search([1, 0], 0)
            if not (scores[0][ids[0] > 1] >= 10).all():
                errors.append(scores)

    threads = [threading.Thread(target=add, args=(100 * i + 10,)) for i in range(2)]
    threads += [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(small.search([1, 0], 0).scores[0]) == [0, 1, *range(10, 18), *range(110, 118)]
