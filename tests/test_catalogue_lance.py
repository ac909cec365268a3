"""A catalogue whose rows lie in Lance tables does what one with files does; SQLite says which version counts."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp

from empty_catalogues import empty_catalogue
from object_stores import new_bucket, s3_server
from tiny_catalogue import save_catalogue
from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.store import lance_rows, row_index, stored_rows
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage
from visterm.store.segments import segments_of

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra lance is not installed")

N, WIDTH = 1200, 13
ORIGIN = Origin("", "f00d")


@pytest.fixture
def made(tmp_path):
    made = empty_catalogue(tmp_path / "catalogue", ORIGIN)
    made.keep_in_lance()
    return made


@pytest.fixture(scope="module")
def rows():
    """Rows around 30 scenes."""
    rng = np.random.default_rng(0)
    scenes = rng.standard_normal((30, WIDTH), np.float32)
    return scenes[rng.integers(0, 30, N)] + np.float32(0.3) * rng.standard_normal((N, WIDTH), np.float32)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).standard_normal((20, WIDTH), np.float32)


@pytest.fixture
def _always(monkeypatch):
    """Small segments get an index, and keep it however fast exact search is."""
    monkeypatch.setattr(stored_rows, "MIN_ROWS_FOR_INDEX", 1000)
    monkeypatch.setattr(row_index, "MIN_SPEED_UP", 0.0)


def records(n):
    return [NewImage(str(i), None, 1, 2, 3, "0") for i in range(n)]


def best(q, U, k=10):
    return np.argsort(-(q @ U.T), axis=1, kind="stable")[:, :k]


def table_names(catalogue):
    folder = catalogue.folder / "lance"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_no_rows_lie_in_files_and_the_catalogue_says_where_they_are(made):
    made.add(records(2), [[1.0, 2.0], [3.0, 4.0]])
    assert made.where_rows_are() == f"Lance tables at {made.folder / 'lance'}"
    (folder,) = (made.folder / "rows").iterdir()
    assert {file.name: file.stat().st_size for file in folder.iterdir()} == {"ids.i64": 16}
    assert StoredCatalogue.open(made.folder).current_rows().rows([1, 0]).tolist() == [[3, 4], [1, 2]]


def test_products_and_rows_are_those_of_a_catalogue_with_files(made, rows, queries, tmp_path, monkeypatch):
    monkeypatch.setattr(lance_rows, "MAX_CACHED_BYTES", 0)
    files = empty_catalogue(tmp_path / "files", ORIGIN)
    for catalogue in (made, files):
        catalogue.add(records(N), rows)
        catalogue.set_rows([5, 900], rows[:2])
        catalogue.mark([7, 8], "gone")
    few = [900, 3, 5, 3]
    assert made.current_rows().rows(few).tobytes() == files.current_rows().rows(few).tobytes()
    np.testing.assert_allclose(made.current_rows().products(queries), files.current_rows().products(queries), atol=1e-5)
    np.testing.assert_allclose(
        made.current_rows().products(queries, few), files.current_rows().products(queries, few), atol=1e-5
    )
    np.testing.assert_array_equal(made.current_rows().ids, files.current_rows().ids)
    assert not np.isin([7, 8], made.search(queries, 0).ids).any()


def test_sparse_rows_are_refused_and_nothing_is_taken_in(made):
    with pytest.raises(DataError, match="choose a model whose rows are dense"):
        made.add(records(1), sp.csr_array([[1.0, 0.0]]))
    assert (made.images.count(), len(made), table_names(made)) == (0, 0, [])


def test_a_catalogue_that_has_rows_keeps_them_where_they_are(tmp_path):
    made = empty_catalogue(tmp_path / "catalogue", ORIGIN)
    made.add(records(1), [[1.0, 2.0]])
    with pytest.raises(StorageError, match="already has rows"):
        made.keep_in_lance()
    with pytest.raises(StorageError, match="in memory only"):
        StoredCatalogue(ORIGIN).keep_in_lance()
    assert made.where_rows_are() == "files"


def test_a_transaction_that_fails_leaves_nothing_and_the_next_goes_on(made):
    made.add(records(1), [[1.0, 2.0]])

    def fail():
        with made.transaction():
            made.add(records(3), np.ones((3, 2)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(made) == 1
    made.add(records(1), [[3.0, 4.0]])
    assert made.current_rows().rows([0, 1]).tolist() == [[1, 2], [3, 4]]
    assert StoredCatalogue.open(made.folder).search([1.0, 0.0], 0).ids.tolist() == [[1, 0]]


def test_rows_of_a_transaction_that_never_ended_are_dropped_by_the_next_one_that_writes(made):
    made.add(records(1), [[1.0, 2.0]])
    script = f"""
import os
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import NewImage
catalogue = StoredCatalogue.open({str(made.folder)!r})
with catalogue.transaction():
    catalogue.add([NewImage("lost", None, 1, 2, 3, "0")] * 5, [[7.0, 7.0]] * 5)
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    (segment,) = segments_of(made.database)
    table = made._rows.lance.table(made.folder, segment.id)
    assert table.at(int(table.writable().version)).count_rows() == 6
    assert len(StoredCatalogue.open(made.folder)) == 1
    with made.writing():
        pass
    assert table.at(int(table.writable().version)).to_arrow()["vector"].to_pylist() == [[1, 2]]


def test_a_search_goes_on_with_the_rows_that_it_began_with(made, monkeypatch):
    monkeypatch.setattr(lance_rows, "MAX_CACHED_BYTES", 0)
    made.add(records(2), [[1.0, 0.0], [2.0, 0.0]])
    before = made.current_rows()
    made.add(records(1), [[3.0, 0.0]])
    made.set_rows([0], [[9.0, 0.0]])
    assert before.search([1.0, 0.0], 0).scores.tolist() == [[2, 1]]
    assert made.search([1.0, 0.0], 0).scores.tolist() == [[9, 3, 2]]


def test_compacting_writes_a_new_table_and_the_next_writer_drops_the_old(made, rows, queries):
    made.add(records(60), rows[:60])
    made.set_rows(range(0, 60, 2), rows[60:90])
    truth = rows[:60].copy()
    truth[::2] = rows[60:90]
    (old,) = table_names(made)
    assert made.compact()
    with made.writing():
        (new,) = table_names(made)
    assert new != old
    np.testing.assert_array_equal(made.search(queries, 5).ids, best(queries, truth, 5))


def test_many_small_additions_are_put_together(made, rows, queries, monkeypatch):
    monkeypatch.setattr(lance_rows, "VERSIONS_PER_COMPACTION", 7)
    for start in range(0, 60, 3):
        made.add(records(3), rows[start : start + 3])
    made.compact()
    (segment,) = segments_of(made.database)
    table = made._rows.lance.table(made.folder, segment.id)
    assert not table.needs_compaction(60)
    assert int(table.writable().version) == segment.table_version
    np.testing.assert_array_equal(StoredCatalogue.open(made.folder).search(queries, 5).ids, best(queries, rows[:60], 5))


@pytest.mark.usefixtures("_always")
def test_an_index_of_faiss_finds_the_best_and_later_rows_and_none_that_are_gone(made, rows, queries):
    made.add(records(N), rows)
    assert made.index_is_due()
    assert made.build_index(queries)
    assert not made.index_is_due()
    before = made.search(queries, 10).ids
    truth = best(queries, rows)
    shares = [np.isin(t, f).mean() for t, f in zip(truth, before, strict=True)]
    assert np.mean(shares) >= row_index.MIN_RECALL  # on the queries that it was measured on, however it was trained
    made.database.write("UPDATE indexes SET file = 'lance'")  # LanceDB's own index, of earlier versions, is not used
    assert StoredCatalogue.open(made.folder).how_it_searches() == "exact: every photo is compared"
    assert made.index_is_due()
    assert made.build_index(queries)
    gone = np.unique(before[:, :3])
    made.mark(gone.tolist(), "gone")
    late = made.add(records(1), 50 * queries[:1])
    opened = StoredCatalogue.open(made.folder)
    assert opened.how_it_searches().startswith("faiss, ")
    assert opened.how_it_searches().endswith("; 1 row since then exactly")
    found = opened.search(queries, 10)
    assert not np.isin(found.ids, gone).any()
    assert found.ids[0, 0] == late[0]
    for was, now in zip(before, found.ids, strict=True):  # three are gone and one is new, so the others stay
        assert np.isin(np.setdiff1d(was, gone), now).all()


def test_a_copy_keeps_its_rows_in_files(made, rows, queries, tmp_path):
    made.add(records(100), rows[:100])
    save_catalogue(made, tmp_path / "copy")
    copy = StoredCatalogue.open(tmp_path / "copy")
    assert copy.where_rows_are() == "files"
    os.rename(made.folder, tmp_path / "moved")  # tables in the catalogue's folder move with it
    for catalogue in (copy, StoredCatalogue.open(tmp_path / "moved")):
        np.testing.assert_array_equal(catalogue.search(queries, 5).ids, best(queries, rows[:100], 5))
    copy.add(records(1), rows[:1])


def test_two_catalogues_may_keep_their_tables_at_one_place(tmp_path):
    both = []
    for name in ("one", "two"):
        catalogue = empty_catalogue(tmp_path / name, ORIGIN)
        catalogue.keep_in_lance(str(tmp_path / "tables"))
        catalogue.add(records(1), np.full((1, 2), len(name) + len(both), float))
        both.append(catalogue)
    with both[0].writing():
        pass
    assert [catalogue.current_rows().rows([0])[0, 0] for catalogue in both] == [3, 4]


def test_a_table_that_is_gone_is_told_of(made):
    made.add(records(1), [[1.0, 2.0]])
    os.rename(made.folder / "lance", made.folder / "elsewhere")
    with pytest.raises(CorruptFileError, match="cannot be opened at"):
        StoredCatalogue.open(made.folder).search([1.0, 1.0])


def test_tables_may_lie_in_an_object_store(tmp_path, rows, queries):
    with s3_server():
        place = f"{new_bucket()}/library"
        made = empty_catalogue(tmp_path / "catalogue", ORIGIN)
        made.keep_in_lance(place)
        assert made.where_rows_are() == f"Lance tables at {place}"
        made.add(records(60), rows[:60])
        made.set_rows(range(0, 60, 2), rows[60:90])
        truth = rows[:60].copy()
        truth[::2] = rows[60:90]
        assert made.compact()
        opened = StoredCatalogue.open(made.folder)
        np.testing.assert_array_equal(opened.search(queries, 5).ids, best(queries, truth, 5))
        with opened.writing():
            assert len(lance_rows.table_names(place)) == 1
