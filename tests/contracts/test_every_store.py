"""What every way to keep the rows of a catalogue promises: the k best rows, as brute force finds them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from empty_catalogues import empty_catalogue
from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.store import current_rows, lance_rows, row_index, stored_rows
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage

ORIGIN = Origin("/runs/one", "f00d")

INDEXED = 64
"""Rows from which on the catalogues here have an index; with fewer, faiss does not learn its codes."""


def filled(catalogue, U):
    records = [NewImage(f"{i}.jpeg", None, 1, 2, 3, "0") for i in range(U.shape[0])]
    for rows in (slice(0, 5), slice(5, None)):
        catalogue.add(records[rows], U[rows])
    return catalogue


def catalogue_in_memory(folder, U):
    return filled(StoredCatalogue(ORIGIN), U)


def catalogue_in_a_folder(folder, U):
    filled(empty_catalogue(folder / "catalogue", ORIGIN), U).close()
    return StoredCatalogue.open(folder / "catalogue")


def catalogue_with_gaps(folder, U):
    """Images that came and went between those that are there, and a row of each image replaced."""
    return with_gaps(empty_catalogue(folder / "catalogue", ORIGIN), U)


def with_gaps(made, U):
    """The new rows come in disorder, so that equal ones do not lie in the order of their ids."""
    n = U.shape[0]
    image = NewImage("image", None, 1, 2, 3, "0")
    made.add([image] * n, 5 * abs(U))
    if n:
        gone = made.add([image] * n, 9 * abs(U[::-1]))
        order = np.random.default_rng(5).permutation(n)
        made.set_rows(order, U[order])
        made.mark(gone, "gone")
    return made


def catalogue_with_index(folder, U):
    """Dense rows behind an index that looks into all of its lists and names every row."""
    pytest.importorskip("faiss")
    if sp.issparse(U):
        pytest.skip("an index is of dense rows")
    made = filled(empty_catalogue(folder / "catalogue", ORIGIN), U)
    assert made.build_index(U[:3]) == (U.shape[0] >= INDEXED)
    return StoredCatalogue.open(made.folder)


def catalogue_in_lance(folder, U):
    """Its rows in Lance tables, kept in memory as they are small, with gaps: see `catalogue_with_gaps`."""
    if sp.issparse(U):
        pytest.skip("a Lance table holds dense rows")
    pytest.importorskip("lancedb", reason="the extra lance is not installed")
    made = empty_catalogue(folder / "catalogue", ORIGIN)
    made.keep_in_lance()
    return with_gaps(made, U)


def catalogue_in_large_lance_tables(folder, U):
    """The same, its rows read from disk for each search, as those that memory does not hold."""
    return catalogue_in_lance(folder, U)


@pytest.fixture(autouse=True)
def _small_sizes_count_as_large(request, monkeypatch):
    build = request.node.callspec.params["build"]
    if build is catalogue_in_large_lance_tables:
        for module, name, value in (
            (lance_rows, "MAX_CACHED_BYTES", 0),
            (lance_rows, "BYTES_PER_READ", 4 * 6 * 250),
            (lance_rows, "ROWS_PER_BATCH", 100),
            (lance_rows, "ROWS_PER_BATCH", 1000),
        ):
            monkeypatch.setattr(module, name, value)
    if build is catalogue_with_index:
        monkeypatch.setattr(stored_rows, "MIN_ROWS_FOR_INDEX", INDEXED)
        for name, value in {"MIN_SPEED_UP": 0.0, "CANDIDATE_COUNTS": (10**6,), "probe_counts": lambda _: [200]}.items():
            monkeypatch.setattr(row_index, name, value)


stores = pytest.mark.parametrize(
    "build",
    [
        catalogue_in_memory,
        catalogue_in_a_folder,
        catalogue_with_gaps,
        catalogue_with_index,
        catalogue_in_lance,
        catalogue_in_large_lance_tables,
    ],
)
kinds = pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])


def whole_numbers(n, width, seed=0):
    """Rows whose products are exact in float32, with many equal scores and zeros."""
    return np.random.default_rng(seed).integers(-2, 3, (n, width)).astype(np.float32)


def brute_force(q, U, k):
    scores = np.atleast_2d(q) @ U.T
    ids = np.array([sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in scores], np.int64)
    return ids.reshape(len(scores), -1), np.take_along_axis(scores, ids, 1)


@stores
@kinds
@pytest.mark.parametrize("k", [1, 7, 100])
def test_finds_what_brute_force_finds_ties_by_the_smaller_id(tmp_path, build, kind, k, monkeypatch):
    monkeypatch.setattr(current_rows, "MAX_BLOCK_BYTES", 4 * 64 * 9)  # several blocks of rows, and of queries
    U, Q = whole_numbers(100, 6), whole_numbers(70, 6, seed=1)
    store = build(tmp_path, kind(U))
    for queries in (Q, sp.csr_array(Q)):
        found = store.search(queries, k)
        ids, scores = brute_force(Q, U, k)
        np.testing.assert_array_equal(found.ids, ids)
        np.testing.assert_array_equal(found.scores, scores)
        assert (found.ids.dtype, found.scores.dtype) == (np.int64, np.float32)


@stores
@kinds
def test_scores_are_the_dot_products_and_never_increase(tmp_path, build, kind):
    rng = np.random.default_rng(2)
    U = rng.normal(size=(200, 31)).astype(np.float32) * (rng.random((200, 31)) < 0.3)
    Q = rng.normal(size=(3, 31)).astype(np.float32)
    found = build(tmp_path, kind(U)).search(Q, 50)
    np.testing.assert_allclose(found.scores, np.take_along_axis(Q @ U.T, found.ids, 1), atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


@stores
@kinds
@pytest.mark.parametrize("share", [0.5, 0.01, 0.001], ids="{:.1%}".format)
def test_a_search_among_some_ids_finds_what_brute_force_finds_there(tmp_path, build, kind, share):
    U, Q = whole_numbers(2000, 6), whole_numbers(3, 6, seed=1)
    store = build(tmp_path, kind(U))
    rng = np.random.default_rng(3)
    among = rng.permutation(2000)[: round(share * 2000)]
    for k in (1, 10, 0):
        found = store.search(Q, k, among=[*among, 10**12, 5000])
        inside = np.sort(among)
        places, scores = brute_force(Q, U[inside], k or len(among))
        np.testing.assert_array_equal(found.ids, inside[places])
        np.testing.assert_array_equal(found.scores, scores)


@stores
def test_a_search_among_no_ids_finds_nothing_and_of_ids_that_are_no_numbers_is_refused(tmp_path, build):
    store = build(tmp_path, whole_numbers(20, 3))
    assert store.search(np.ones((2, 3)), 5, among=[]).ids.shape == (2, 0)
    assert store.search(np.ones(3), 5, among=[77, 3, 3]).ids.tolist() == [[3]]
    with pytest.raises(DataError, match="expected whole numbers"):
        store.search(np.ones(3), among=[0.5])


@stores
def test_equal_rows_come_in_the_order_of_their_ids(tmp_path, build):
    found = build(tmp_path, np.ones((10, 4), np.float32)).search(np.ones(4), 4)
    assert found.ids.tolist() == [[0, 1, 2, 3]]


@stores
def test_one_query_may_come_as_a_vector(tmp_path, build):
    U = whole_numbers(20, 5)
    store = build(tmp_path, U)
    np.testing.assert_array_equal(store.search(U[3], 5).ids, store.search(U[3:4], 5).ids)
    np.testing.assert_array_equal(store.search(U[3].tolist(), 5).ids, store.search(U[3:4], 5).ids)


@stores
def test_k_of_zero_or_beyond_the_rows_means_all(tmp_path, build):
    U = whole_numbers(12, 3)
    store = build(tmp_path, U)
    for k in (0, 12, 99):
        assert sorted(store.search(U[0], k).ids[0]) == list(range(12))
    for k in (-1, 1.5, True):
        with refused("k", value=k):
            store.search(U[0], k)


@stores
@kinds
def test_an_empty_store_finds_nothing(tmp_path, build, kind):
    store = build(tmp_path, kind(np.empty((0, 3), np.float32)))
    assert len(store) == 0
    assert store.search(np.ones((2, 3)), 5).ids.shape == (2, 0)


@stores
def test_queries_of_another_width_are_refused(tmp_path, build):
    store = build(tmp_path, whole_numbers(8, 6))
    with pytest.raises(ShapeError, match="q has 5 columns, but the rows of this store have 6"):
        store.search(np.ones(5))
    with pytest.raises(ShapeError, match="3 dimensions"):
        store.search(np.ones((1, 1, 6)))


@stores
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_queries_that_are_not_finite_are_refused(tmp_path, build, bad):
    with pytest.raises(DataError, match="q contains NaN or infinity"):
        build(tmp_path, whole_numbers(8, 2)).search([1, bad])


@pytest.mark.parametrize("build", [catalogue_in_memory, catalogue_in_a_folder, catalogue_in_lance])
@pytest.mark.parametrize(
    ("ids", "U", "error", "words"),
    [
        ([1, 1], [[1.0, 2.0], [3.0, 4.0]], DataError, "An image is given twice"),
        ([0, 1], [[1.0, 2.0]], ShapeError, "2 images, but 1 rows"),
        ([1], [[1.0]], ShapeError, "U has 1 columns"),
        ([1], [[np.nan, 1.0]], DataError, "U contains NaN"),
        ([1], [["a", "b"]], DataError, "U must be numbers"),
        ([1], [1.0, 2.0], ShapeError, "U has 1 dimensions"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_the_store_as_it_was(tmp_path, build, ids, U, error, words):
    store = build(tmp_path, np.array([[1.0, 1.0], [2.0, 0.5]], np.float32))
    with pytest.raises(error, match=words):
        store.set_rows(ids, U)
    assert store.search([1, 1], 0).ids.tolist() == [[1, 0]]
    assert (len(store), store.current_rows().width) == (2, 2)
