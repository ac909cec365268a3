"""Rows in a Lance table: versions that count, an index measured before it is kept, and a table in an object store."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from object_stores import new_bucket, s3_server
from visterm.core.errors import CorruptFileError, DataError, MissingExtraError
from visterm.store import lance_rows, lance_table, row_index
from visterm.store.exact import ExactStore
from visterm.store.lance_store import LanceStore
from visterm.store.lance_table import LanceTable

pytest.importorskip("lancedb", reason="the extra lance is not installed")

N, WIDTH = 3000, 13


@pytest.fixture(scope="module")
def rows():
    """Rows around 60 scenes."""
    rng = np.random.default_rng(0)
    scenes = rng.standard_normal((60, WIDTH), np.float32)
    return scenes[rng.integers(0, 60, N)] + np.float32(0.3) * rng.standard_normal((N, WIDTH), np.float32)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).standard_normal((30, WIDTH), np.float32)


@pytest.fixture(params=[2**28, 0], ids=["kept in memory", "read for each search"])
def _however_large(request, monkeypatch):
    monkeypatch.setattr(lance_rows, "KEPT_BYTES", request.param)
    monkeypatch.setattr(lance_rows, "READ_BYTES", 4 * WIDTH * 250)
    monkeypatch.setattr(lance_rows, "AT_ONCE", 100)
    monkeypatch.setattr(lance_table, "AT_ONCE", 100)


def recall(found, q, U, k):
    best = np.argsort(-(q @ U.T), axis=1)[:, :k]
    return np.mean([np.isin(b, f).mean() for b, f in zip(best, found, strict=True)])


@pytest.mark.usefixtures("_however_large")
def test_a_search_gives_the_same_bytes_as_the_exact_store(tmp_path, rows, queries):
    exact, table = ExactStore(), LanceStore(str(tmp_path))
    for start in (0, 1000):
        for store in (exact, table):
            store.add(np.arange(start, start + 1000) * 3, rows[start : start + 1000])
    for among in (None, np.arange(0, 6000, 9), [5997, 3, 0, 4]):
        for one, other in zip(
            exact.search(queries, 7, among=among), table.search(queries, 7, among=among), strict=True
        ):
            assert one.tobytes() == other.tobytes()


def test_sparse_rows_and_ids_that_are_there_are_refused_and_leave_the_store_as_it_was(tmp_path):
    store = LanceStore(str(tmp_path))
    store.add([4, 2], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(DataError, match="a Lance table holds dense ones"):
        store.add([5], sp.csr_array([[1.0, 0.0]]))
    with pytest.raises(DataError, match="The id 4 is in the store already"):
        store.add([4], [[1.0, 0.0]])
    assert LanceStore(str(tmp_path)).search([1, 0], 0).ids.tolist() == [[4, 2]]


@pytest.mark.usefixtures("_however_large")
def test_an_index_finds_nearly_all_of_the_best_with_the_scores_of_exact_search(tmp_path, rows, queries, monkeypatch):
    monkeypatch.setattr(row_index, "PAYS", 0.0)
    store = LanceStore(str(tmp_path))
    store.add(np.arange(N), rows)
    assert store.build_index(queries[:20], least=1000)
    assert store._settings.probed < store._settings.lists
    found = store.search(queries, 10)
    assert recall(found.ids, queries, rows, 10) >= 0.95
    np.testing.assert_allclose(found.scores, np.take_along_axis(queries @ rows.T, found.ids, 1), atol=1e-5)
    assert recall(store.search(queries[:3], 0).ids, queries[:3], rows, N) == 1
    few = np.arange(0, N, 50)
    assert recall(store.search(queries, 10, among=few).ids // 50, queries, rows[few], 10) == 1


def test_an_index_that_does_not_pay_is_dropped(tmp_path, rows, queries, monkeypatch):
    monkeypatch.setattr(row_index, "PAYS", 1e9)
    store = LanceStore(str(tmp_path))
    store.add(np.arange(N), rows)
    assert not store.build_index(queries[:5], least=1000)
    assert not store.build_index(least=N + 1)
    assert list(LanceTable(str(tmp_path), "rows").writable().list_indices()) == []


def test_rows_that_were_added_to_a_version_that_does_not_count_are_written_over(tmp_path):
    table = LanceTable(str(tmp_path), "rows")
    made = table.create(2)
    kept = table.append(made, 0, np.array([7]), np.ones((1, 2), np.float32))
    table.append(kept, 1, np.array([8, 9]), np.zeros((2, 2), np.float32))
    version = table.append(kept, 1, np.array([5]), np.full((1, 2), 3, np.float32))
    assert table.at(version).to_arrow()["id"].to_pylist() == [7, 5]
    assert table.at(kept).to_arrow()["id"].to_pylist() == [7]


def test_tidying_keeps_rows_and_their_order_and_the_version_before(tmp_path, rows):
    table = LanceTable(str(tmp_path), "rows")
    version = table.create(WIDTH)
    for start in range(0, 200, 10):
        before = version
        version = table.append(version, start, np.arange(start, start + 10), rows[start : start + 10])
    assert table.is_untidy(200)
    tidy, _ = table.tidy(version)
    assert not table.is_untidy(200)
    table.forget_old_versions()
    assert table.at(tidy).stats()["fragment_stats"]["num_fragments"] == 1
    assert table.at(tidy).to_arrow()["row"].to_pylist() == list(range(200))
    assert table.at(before).count_rows() == 190


def test_a_table_or_a_version_that_is_gone_is_told_of(tmp_path):
    table = LanceTable(str(tmp_path), "rows")
    with pytest.raises(CorruptFileError, match="The table rows of rows cannot be opened"):
        table.latest()
    table.create(3)
    with pytest.raises(CorruptFileError, match="has no version 77"):
        table.at(77)


def test_without_lancedb_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtraError, match=r"visterm\[lance\]"):
        LanceStore(str(tmp_path / "another place"))


def test_a_table_may_lie_in_an_object_store(rows, queries):
    with s3_server():
        place = f"{new_bucket()}/rows"
        store = LanceStore(place)
        for start in (0, 100):
            store.add(np.arange(start, start + 100), rows[start : start + 100])
        best = np.argsort(-(queries @ rows[:200].T), axis=1)[:, :5]
        np.testing.assert_array_equal(LanceStore(place).search(queries, 5).ids, best)
