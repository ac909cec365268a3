"""A crafted catalogue: rows, ids, widths and indexes that cannot be are refused before anything follows them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from empty_catalogues import empty_catalogue
from visterm.core.errors import CorruptFileError
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage

DENSE = np.random.default_rng(3).random((12, 4)).astype(np.float32)
SPARSE = sp.csr_array(np.where(DENSE > 0.5, DENSE, 0))


@pytest.fixture
def make(tmp_path):
    """Make a catalogue, change its files or tables, and take the checksums anew, as whoever crafts one does."""

    def make(U, craft):
        stored = empty_catalogue(tmp_path / "catalogue", Origin("", "f00d"))
        stored.add([NewImage(f"{i}.jpg", f"/photos/{i}.jpg", 10, 4, 3, "ab") for i in range(U.shape[0])], U)
        (segment,) = (stored.folder / "rows").iterdir()
        stored.database.write("DELETE FROM row_sums")
        stored.database.write("PRAGMA ignore_check_constraints = 1")
        craft(stored.database, segment)
        stored.close()
        return stored.folder

    return make


def changed(name, kind, at, value):
    def craft(_, segment):
        numbers = np.fromfile(segment / name, kind)
        numbers[at] = value
        numbers.tofile(segment / name)

    return craft


def written(statement):
    return lambda database, _: database.write(statement)


@pytest.mark.parametrize(
    ("U", "craft", "message"),
    [
        (SPARSE, changed("indices.i32", np.int32, 5, 10**8), "it has the index 100000000; expected 0 to 3"),
        (SPARSE, changed("indices.i32", np.int32, 5, -(10**8)), "it has the index -100000000"),
        (SPARSE, changed("indptr.i64", np.int64, 4, 10**12), "ends before it begins"),
        (SPARSE, changed("indptr.i64", np.int64, 0, -7), "begin with 0"),
        (SPARSE, changed("indptr.i64", np.int64, -1, 2**62), "holds .* numbers where"),
        (SPARSE, written("UPDATE segments SET width = 1"), "expected 0 to 0"),
        (SPARSE, written("UPDATE segments SET width = 1099511627776"), "at most 2,147,483,647"),
        (DENSE, written("UPDATE segments SET width = -4"), "at most 2,147,483,647"),
        (DENSE, written("UPDATE segments SET width = 1099511627776"), "at most 2,147,483,647"),
        (DENSE, changed("ids.i64", np.int64, 3, -(2**63)), "images -9223372036854775808 to 11; expected 0 to 11"),
        (DENSE, changed("ids.i64", np.int64, 3, 2**62), "of the images 0 to 4611686018427387904; expected 0 to 11"),
        (DENSE, written("INSERT INTO dead_rows VALUES (1, 4000000000)"), "names row 4000000000 .* has 12 rows"),
        (DENSE, written("INSERT INTO dead_rows VALUES (1, -1)"), "names row -1"),
        (DENSE, written("UPDATE rows SET row = 99 WHERE image_id = 3"), "names row 99"),
    ],
)
def test_rows_that_cannot_be_are_refused_when_they_are_read(make, U, craft, message):
    def craft_and_lose_a_photo(database, segment):
        craft(database, segment)
        database.write("UPDATE images SET state = 'gone' WHERE id = 3")

    folder = make(U, craft_and_lose_a_photo)
    with pytest.raises(CorruptFileError, match=message):
        StoredCatalogue.open(folder).search(np.ones(4, np.float32), 5)


def test_rows_of_one_run_that_differ_in_width_are_refused(make):
    def craft(database, segment):
        database.write("INSERT INTO segments SELECT 9, run_id, kind, 2, 6, NULL FROM segments")
        (segment.parent / "9").mkdir()
        for name in ("ids.i64", "rows.f32"):
            (segment.parent / "9" / name).write_bytes((segment / name).read_bytes())

    with pytest.raises(CorruptFileError, match="4 and 2 numbers wide"):
        StoredCatalogue.open(make(DENSE, craft)).search(np.ones(4, np.float32), 5)


def test_sparse_rows_are_not_written_where_a_pointer_out_of_the_files_says(make):
    folder = make(SPARSE, changed("indptr.i64", np.int64, -1, 2**40))
    with pytest.raises(CorruptFileError, match="numbers where"):
        StoredCatalogue.open(folder).add([NewImage("x.jpg", "/photos/x.jpg", 10, 4, 3, "ab")], SPARSE[:1])
    assert max(path.stat().st_size for path in folder.rglob("*.[fi]??")) < 10_000


def index_of(file, n_rows=12, **changes):
    facts = {"n_rows": 12, "lists": 1, "probed": 1, "fetched": 5, "recall": 1.0, "seconds": 0.0, "exact_seconds": 1.0}
    facts |= changes
    return written(f"INSERT INTO indexes VALUES (1, '{file}', {n_rows}, '{json.dumps(facts)}')")


@pytest.mark.parametrize(
    ("craft", "message"),
    [
        (index_of("../../../elsewhere.faiss"), "as the index of"),
        (index_of("12.faiss", n_rows=13), "claims to cover 13"),
        (index_of("12.faiss", probed="many"), "record of an index is damaged"),
        (index_of("12.faiss", fetched=10**12), "record of an index is damaged"),
        (index_of("12.faiss", more=1), "record of an index is damaged"),
    ],
)
def test_an_index_that_cannot_be_of_the_rows_is_refused(make, craft, message):
    with pytest.raises(CorruptFileError, match=message):
        StoredCatalogue.open(make(DENSE, craft)).search(np.ones(4, np.float32), 5)


def lance_table(**changed):
    """A table of 12 rows as LanceDB takes it, with some columns exchanged; None: without it."""
    pa = pytest.importorskip("pyarrow")
    columns = {
        "row": pa.array(range(12), pa.int64()),
        "id": pa.array(range(12), pa.int64()),
        "vector": pa.array(DENSE.tolist(), pa.list_(pa.float32(), 4)),
    } | {name: make(pa) for name, make in changed.items()}
    return pa.table({name: column for name, column in columns.items() if column is not None})


@pytest.mark.parametrize("kept_bytes", [2**28, 0], ids=["kept in memory", "read in blocks"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row": lambda pa: pa.array(map(str, range(12)))}, "a column 'row' of string"),
        ({"row": lambda pa: pa.array([*range(11), -1], pa.int64())}, "rows at the positions -1 to 10"),
        ({"row": lambda pa: pa.array([*range(11), 99], pa.int64())}, "rows at the positions 0 to 99"),
        ({"row": lambda pa: pa.array([*range(11), 3], pa.int64())}, "or some twice"),
        ({"row": lambda pa: None}, "a column 'row' of nothing"),
        ({"vector": lambda pa: pa.array(DENSE[:, :3].tolist(), pa.list_(pa.float32(), 3))}, "a column 'vector' of"),
        ({"vector": lambda pa: pa.array(DENSE.tolist(), pa.list_(pa.float64(), 4))}, "a column 'vector' of"),
        ({"vector": lambda pa: pa.array([["a"] * 4] * 12)}, "a column 'vector' of"),
        ({"vector": lambda pa: pa.array([[np.inf] * 4] * 12, pa.list_(pa.float32(), 4))}, "undefined numbers"),
    ],
)
def test_a_crafted_lance_table_is_refused_in_one_line(changed, message, kept_bytes, tmp_path, monkeypatch):
    lancedb = pytest.importorskip("lancedb", reason="the extra lance is not installed")
    monkeypatch.setattr("visterm.store.lance_rows.MAX_CACHED_BYTES", kept_bytes)
    stored = empty_catalogue(tmp_path / "catalogue", Origin("", "f00d"))
    stored.keep_in_lance()
    stored.add([NewImage(f"{i}.jpg", f"/photos/{i}.jpg", 10, 4, 3, "ab") for i in range(12)], DENSE)
    (folder,) = (stored.folder / "lance").iterdir()
    crafted = lancedb.connect(str(folder.parent)).create_table(folder.stem, lance_table(**changed), mode="overwrite")
    stored.database.write("UPDATE segments SET table_version = ?", (crafted.version,))
    stored.close()
    with pytest.raises(CorruptFileError, match=message) as refused:
        StoredCatalogue.open(stored.folder).search(np.ones(4, np.float32), 5)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["rows.f32", "ids.i64"])
def test_a_file_of_rows_that_is_gone_is_told_with_what_to_do(name, make):
    folder = make(DENSE, lambda _, segment: (segment / name).unlink())
    advice = rf"{name} cannot be read: No such file or directory\. Restore the catalogue from a backup, or index"
    with pytest.raises(CorruptFileError, match=advice):
        StoredCatalogue.open(folder).search(np.ones(4, np.float32), 5)
