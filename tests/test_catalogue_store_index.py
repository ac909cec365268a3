"""An index names rows that hold nearly all of the best; scores stay right, and rows outside it are found exactly."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from empty_catalogues import empty_catalogue
from visterm.core.errors import CorruptFileError, MissingExtraError, StorageError
from visterm.library.runs import sample_queries
from visterm.models.linear.ridge import Ridge
from visterm.store import current_rows, row_index, stored_rows
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.current_rows import ArrayPart
from visterm.store.images import NewImage
from visterm.store.row_index import RowIndex, build_index, cautious_recall, read_index

pytest.importorskip("faiss")

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


@pytest.fixture(scope="module")
def index(rows, queries):
    return build_index(ArrayPart(np.arange(N), rows), queries[:20])


@pytest.fixture
def always(monkeypatch):
    """Small segments get an index, and keep it however fast exact search is."""
    monkeypatch.setattr(stored_rows, "MIN_ROWS_FOR_INDEX", 1000)
    monkeypatch.setattr(row_index, "MIN_SPEED_UP", 0.0)


def recall(found, q, U, k):
    best = np.argsort(-(q @ U.T), axis=1)[:, :k]
    return np.mean([np.isin(b, f).mean() for b, f in zip(best, found, strict=True)])


def catalogue_of(folder, U):
    made = empty_catalogue(folder / "catalogue", Origin("", "f00d"))
    made.add([NewImage(str(i), None, 1, 2, 3, "0") for i in range(len(U))], U)
    return made


def test_few_candidates_hold_nearly_all_of_the_best_on_queries_it_was_not_measured_on(index, rows, queries):
    named = [index.candidates(q[None, :], 10) for q in queries[20:]]
    assert recall(named, queries[20:], rows, 10) >= 0.93
    assert max(map(len, named)) < N / 7
    assert all((np.diff(places) > 0).all() for places in named)
    assert index.settings.recall >= 0.98


def test_what_queries_find_counts_less_a_standard_error():
    assert cautious_recall([1.0, 0.8]) == pytest.approx(0.9 - 0.1)
    assert cautious_recall([0.7]) == pytest.approx(0.7)
    assert cautious_recall([0.0, 0.1]) == pytest.approx(0.0)


@pytest.mark.parametrize("n_tags", [2, 7, 301])
def test_an_index_is_measured_on_searches_for_two_tags(n_tags):
    rng = np.random.default_rng(0)
    Y = sp.csr_array(np.vstack([np.eye(n_tags, dtype=np.float32)] * 2))
    model = Ridge().fit(rng.standard_normal((2 * n_tags, 3), np.float32), Y)
    V = model.query_rows(sp.csr_array(np.eye(n_tags, dtype=np.float32)))
    V = V.toarray() if sp.issparse(V) else V
    queries = sample_queries(model, np.arange(n_tags))
    first, second = np.triu_indices(n_tags, 1)
    pairs = V[first] + V[second]
    assert len(queries) == min(200, n_tags)
    assert all(np.isclose(q, pairs, atol=1e-5).all(axis=1).any() for q in queries)


class Uncopied(np.ndarray):
    """Rows of which no part may be copied."""

    def __getitem__(self, key):
        assert self.ndim == 1
        return super().__getitem__(key)


def test_all_products_are_kept_and_made_without_a_copy_of_the_rows_that_are_not_hidden():
    rows = np.array([[1, 0], [2, 5], [0, 3], [4, 1]], np.float32).view(Uncopied)
    part, q = ArrayPart(np.arange(4), rows, np.array([1])), np.array([[1, 2]], np.float32)
    for _ in range(2):
        assert part.products(q).tolist() == [[1], [6], [6]]
        part.rows = np.zeros_like(rows)  # what was kept counts


def test_an_index_is_not_asked_for_many_results(index, rows, queries, monkeypatch):
    part, calls = ArrayPart(np.arange(N), rows, index=index), []
    monkeypatch.setattr(RowIndex, "candidates", lambda self, q, k: calls.append(k) or np.arange(N))
    for k in (current_rows.MAX_K, current_rows.MAX_K + 1):
        assert part.best(queries[:1], k).ids.shape == (1, k)
    assert calls == [current_rows.MAX_K]


def test_it_comes_back_as_it_was_written(index, queries, tmp_path):
    index.write(tmp_path / "rows.faiss")
    again = RowIndex(index.settings, partial(read_index, tmp_path / "rows.faiss", index.settings, WIDTH))
    for q in queries[:, None, :]:
        np.testing.assert_array_equal(again.candidates(q, 10), index.candidates(q, 10))
    assert [file.name for file in tmp_path.iterdir()] == ["rows.faiss"]


def test_searches_at_the_same_time_read_an_index_once(index, queries):
    n_threads, reads = 4, []
    begin = threading.Barrier(n_threads)

    def read():
        reads.append(index.faiss_index)
        time.sleep(0.05)  # the other threads need it meanwhile
        return reads[-1]

    shared = RowIndex(index.settings, read)

    def search(q):
        begin.wait()
        return shared.candidates(q[None, :], 10)

    with ThreadPoolExecutor(n_threads) as pool:
        found = list(pool.map(search, queries[:n_threads]))
    assert len(reads) == 1
    for q, places in zip(queries, found, strict=False):
        np.testing.assert_array_equal(places, index.candidates(q[None, :], 10))


def test_a_damaged_index_is_noticed(index, tmp_path):
    (tmp_path / "rows.faiss").write_bytes(b"not an index")
    with pytest.raises(CorruptFileError, match="is not an index of rows"):
        read_index(tmp_path / "rows.faiss", index.settings, WIDTH)
    index.write(tmp_path / "rows.faiss")
    other = replace(index.settings, n_rows=5)
    with pytest.raises(CorruptFileError, match="covers 3000 rows of 13, not 5 of 13"):
        read_index(tmp_path / "rows.faiss", other, WIDTH)
    with pytest.raises(CorruptFileError, match="rows of 13, not 3000 of 8"):
        read_index(tmp_path / "rows.faiss", index.settings, 8)


def test_an_index_that_names_rows_beyond_those_it_covers_is_noticed(index, queries):
    lying = RowIndex(replace(index.settings, n_rows=1001), lambda: index.faiss_index)
    with pytest.raises(CorruptFileError, match="covers 1001 rows"):
        [lying.candidates(q, 10) for q in queries[:, None, :]]


def test_what_a_catalogue_finds_by_it_has_the_scores_of_exact_search(always, rows, queries, tmp_path):
    made = catalogue_of(tmp_path, rows)
    assert made.build_index(queries[:20])
    found = made.search(queries, 10)
    assert recall(found.ids, queries, rows, 10) >= 0.97
    np.testing.assert_allclose(found.scores, np.take_along_axis(queries @ rows.T, found.ids, 1), atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert recall(made.search(queries[:3], 0).ids, queries[:3], rows, N) == 1


def test_where_rows_have_no_structure_an_index_does_not_pay():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((1500, 40), np.float32)
    assert not build_index(ArrayPart(np.arange(1500), U), rng.standard_normal((5, 40), np.float32)).settings.is_useful


def test_a_catalogue_keeps_its_index_and_finds_rows_that_came_after_it_and_none_that_are_gone(
    always, rows, queries, tmp_path
):
    made = catalogue_of(tmp_path, rows)
    assert made.index_is_due()
    assert made.build_index(queries[:20])
    assert not made.index_is_due()
    best = made.search(queries, 3).ids
    made.mark(np.unique(best).tolist(), "gone")
    late = made.add([NewImage("late", None, 1, 2, 3, "0")], 50 * queries[:1])
    opened = StoredCatalogue.open(made.folder)
    assert opened.how_it_searches().startswith("faiss, ")
    assert opened.how_it_searches().endswith("; 1 row since then exactly")
    found = opened.search(queries, 10)
    assert not np.isin(found.ids, best).any()
    assert found.ids[0, 0] == late[0]
    here = np.setdiff1d(np.arange(N + 1), best)
    left = np.concatenate([rows, 50 * queries[:1]])[here]
    truth = here[np.argsort(-(queries @ left.T), axis=1)[:, :10]]
    assert np.mean([np.isin(t, f).mean() for t, f in zip(truth, found.ids, strict=True)]) >= 0.95


def test_an_index_is_due_again_when_a_fifth_of_the_rows_are_outside(always, rows, queries, tmp_path):
    made = catalogue_of(tmp_path, rows[:1200])
    made.build_index(queries[:5])
    made.add([NewImage("x", None, 1, 2, 3, "0")] * 290, rows[1200:1490])
    assert not made.index_is_due()
    made.add([NewImage("x", None, 1, 2, 3, "0")] * 20, rows[1490:1510])
    assert made.index_is_due()
    made.build_index(queries[:5])
    assert [file.name for file in made.folder.glob("rows/*/*.faiss")] == ["1510.faiss"]


def test_an_index_that_does_not_pay_is_not_kept_but_what_was_measured_is(monkeypatch, rows, queries, tmp_path):
    monkeypatch.setattr(stored_rows, "MIN_ROWS_FOR_INDEX", 1000)
    monkeypatch.setattr(row_index, "MIN_SPEED_UP", 1e9)
    made = catalogue_of(tmp_path, rows[:1200])
    assert not made.build_index(queries[:5])
    assert not list(made.folder.glob("rows/*/*.faiss"))
    assert made.how_it_searches().startswith("exactly: an index does not pay here (")
    assert not made.index_is_due()
    facts = json.loads(made.database.value("SELECT facts FROM indexes"))
    assert facts["n_rows"] == 1200


def test_without_faiss_search_is_exact_and_says_so(always, rows, queries, tmp_path, monkeypatch):
    made = catalogue_of(tmp_path, rows[:1200])
    made.build_index(queries[:5])
    monkeypatch.setitem(sys.modules, "faiss", None)
    opened = StoredCatalogue.open(made.folder)
    assert recall(opened.search(queries, 10).ids, queries, rows[:1200], 10) == 1
    assert "faiss is not installed" in opened.how_it_searches()
    with pytest.raises(MissingExtraError, match=r"visterm\[faiss\]"):
        opened.build_index(queries)


def test_a_catalogue_in_memory_has_no_index(queries):
    with pytest.raises(StorageError, match="in memory only"):
        StoredCatalogue(Origin("", "f00d")).build_index(queries)
