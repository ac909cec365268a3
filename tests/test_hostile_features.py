"""Feature files whose bytes lie are refused with one line that names file and row; none reaches compiled code."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from visterm.core.errors import DataError, VistermError
from visterm.data.feature_files import ALWAYS_FINE, read_features
from visterm.data.feature_shards import Shard, read_shard, read_shard_index, shard_bytes
from visterm.models.neighbours.knn import Knn
from visterm.models.pamir.pamir import Pamir

ROWS = np.array([[1, 0, 2], [0, 3, 0]], np.float32)
SOUND = sp.csr_array(ROWS)


@pytest.fixture
def place(tmp_path):
    """A folder in which a.names.txt names two rows."""
    (tmp_path / "a.names.txt").write_text("1.jpg\n2.jpg\n", encoding="utf-8")
    return tmp_path


def npz(path, **changed):
    """Write a sparse matrix as SciPy does, with some parts exchanged."""
    parts = {"indices": SOUND.indices, "indptr": SOUND.indptr, "format": np.array(b"csr"), "shape": np.array([2, 3])}
    np.savez_compressed(path, **({"data": SOUND.data} | parts | changed))
    return path


def refusal(path):
    with pytest.raises(VistermError) as refused:
        read_features(path)
    message = str(refused.value)
    assert path.name in message
    assert "\n" not in message
    return message


def refusal_if_any(read, path):
    """Say how a file is refused, None where it can be read; any other error ends the test."""
    try:
        read(path)
    except VistermError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indices": np.array([0, 2, 10**8])}, "row 2: it has the index 100000000; expected 0 to 2"),
        ({"indices": np.array([0, 2, -(10**8)])}, "row 2: it has the index -100000000"),
        ({"indptr": np.array([0, 9, 3])}, "row 2: it ends before it begins"),
        ({"indptr": np.array([0, 2, 10**8])}, "rows of 100,000,000 in all"),
        ({"indices": np.array([0, 2])}, "3 values, 2 indices"),
        ({"data": np.array(["a", "b", "c"])}, "'data': it holds <U1; expected numbers"),
        ({"data": np.ones((3, 1))}, "'data' is float64 of shape (3, 1)"),
        ({"shape": np.array([2, 10**12])}, "the shape is (2, 1000000000000)"),
        ({"shape": np.array([10**12, 3])}, "would unpack to 8,000,000,000,000"),
        ({"shape": np.array([2, 2**27])}, "134,217,728 features (columns); row 1 has the index 2; expected at most"),
        ({"format": np.array(b"xyz")}, "in the form 'xyz'; expected csr, csc or coo"),
        ({"format": np.array(b"csc")}, "expected 4 that begin with 0"),
        ({"format": np.array(b"coo")}, "has no 'row'"),
    ],
)
def test_a_sparse_matrix_whose_parts_do_not_fit_is_refused(changed, message, place):
    assert message in refusal(npz(place / "a.npz", **changed))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_are_read_in_the_forms_that_scipy_saves(form, place):
    sp.save_npz(place / "a.npz", SOUND.asformat(form))
    np.testing.assert_array_equal(read_features(place / "a.npz").rows.todense(), ROWS)


def test_places_outside_of_a_coo_matrix_are_refused(place):
    parts = {"data": np.ones(2), "row": np.array([0, 5]), "col": np.array([0, 1]), "shape": np.array([2, 3])}
    np.savez(place / "a.npz", format=np.array(b"coo"), **parts)
    assert "value 2 is in row 5; expected 0 to 1" in refusal(place / "a.npz")


def test_a_zip_bomb_is_refused_by_the_sizes_in_its_directory(place):
    npz(place / "a.npz", data=np.zeros(ALWAYS_FINE // 4 + 1, np.float32))
    assert (place / "a.npz").stat().st_size < ALWAYS_FINE // 500
    assert "would unpack to" in refusal(place / "a.npz")


def test_a_directory_that_names_another_size_than_is_packed_is_refused(place):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        with zipfile.ZipFile(npz(place / "a.npz")) as sound:
            for name in sound.namelist():
                archive.writestr(name, sound.read(name))
        archive.getinfo("data.npy").file_size -= 4
    (place / "a.npz").write_bytes(content.getvalue())
    assert "cannot be read as a sparse matrix" in refusal(place / "a.npz")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_sparse_matrix_that_has_a_place_twice_is_refused_in_any_form(form, place):
    twice = {
        "csr": {"indices": np.array([0, 2, 2]), "indptr": np.array([0, 1, 3])},
        "csc": {"indices": np.array([0, 1, 1]), "indptr": np.array([0, 1, 3, 3])},
        "coo": {"row": np.array([0, 1, 1]), "col": np.array([0, 2, 2])},
    }[form]
    message = refusal(npz(place / "a.npz", format=np.array(form), **twice))
    assert f"row 2: it has the index {1 if form == 'csc' else 2} twice" in message


@pytest.mark.parametrize("ending", [".svm", ".npz", ".parquet"])
def test_an_index_far_beyond_the_others_is_refused_before_a_model_makes_room_for_it(ending, place):
    path, largest = place / f"a{ending}", 2**26 - 1
    if ending == ".svm":
        path.write_text(f"0 0:1 5:1\n0 {largest}:1\n", encoding="utf-8")
    elif ending == ".npz":
        npz(path, indices=np.array([0, 5, largest]), shape=np.array([2, largest + 1]))
    else:
        columns = {"indices": [[0, 5], [largest]], "values": [[1.0, 1], [1]]}
        pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], **columns}), path)
    assert "row 2 has the index 67108863; expected at most 1,048,576, as only 3 of them have numbers" in refusal(path)


@pytest.mark.parametrize("shape", [(2, 10**15), (10**12, 3), (-2, 3), (2**62, 2**62)])
def test_a_header_that_promises_more_than_the_file_has_is_refused(shape, place):
    with (place / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.write(ROWS.tobytes())
    assert "it breaks off: the header promises float32" in refusal(place / "a.npy")


@pytest.mark.parametrize("array", [np.array([[{}]]), np.array([["a"]]), np.zeros(3), np.zeros((2, 2), "M8[s]")])
def test_a_numpy_file_of_anything_but_a_matrix_of_numbers_is_refused(array, place):
    np.save(place / "a.npy", array, allow_pickle=True)
    assert "expected a matrix of numbers" in (said := refusal(place / "a.npy")) or "Python objects" in said


def test_a_matrix_by_columns_is_mapped_as_it_is(place):
    np.save(place / "a.npy", np.asfortranarray(ROWS))
    np.testing.assert_array_equal(read_features(place / "a.npy").rows, ROWS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"indices": [[0, 2], [5, 5]], "values": [[1.0, 1], [1, 1]]}, "row 2: it has the index 5 twice"),
        ({"indices": [[0, 2], [1]], "values": [[1.0, 1], [1, 1]]}, "row 2: it has 1 indices and 2 values"),
        ({"indices": [[0, 2], [-1]], "values": [[1.0, 1], [1]]}, "row 2: it has the index -1; expected 0 or more."),
        ({"indices": [[-1], []], "values": [[1.0], []]}, "row 1: it has the index -1; expected 0 or more."),
        ({"indices": [[0, 2], [2**40]], "values": [[1.0, 1], [1]]}, "row 2: it has the index 1099511627776"),
        ({"indices": [[0, 2], [10**8]], "values": [[1.0, 1], [1]]}, "row 2 has the index 100000000; expected at most"),
        ({"indices": [[0, 2], None], "values": [[1.0, 1], [1]]}, "row 2: it is missing (null)"),
        ({"indices": [[0, 2], [None]], "values": [[1.0, 1], [1]]}, "row 2: a number is missing (null)"),
        ({"indices": [["0"], ["1"]], "values": [[1.0], [1]]}, "string>; expected lists of whole numbers"),
        ({"indices": [[0.5], [1]], "values": [[1.0], [1]]}, "expected lists of whole numbers"),
        ({"indices": [[0], [1]], "values": [["1"], ["2"]]}, "expected lists of numbers"),
        ({"features": [[1.0, 2], [3]]}, "row 2: it has 1 numbers, and the first row has 2"),
        ({"features": [[1.0, 2], None]}, "row 2: it is missing (null)"),
        ({"features": [[1.0, 2], [3, None]]}, "row 2: a number is missing (null)"),
        ({"features": [["1", "2"], ["3", "4"]]}, "expected lists of numbers"),
        ({"features": ["1,2", "3,4"]}, "has the type string; expected lists of numbers"),
    ],
)
def test_a_parquet_file_whose_rows_cannot_be_used_is_refused_with_the_row(columns, message, place):
    pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], **columns}), place / "a.parquet")
    assert message in refusal(place / "a.parquet")


def test_damaged_pages_and_texts_of_parquet_are_refused(place):
    table = pa.table({"image": ["1.jpg", "2.jpg"], "features": [[1.0, 2], [3, 4]]})
    pq.write_table(table, place / "a.parquet", compression="none")
    content = (place / "a.parquet").read_bytes()
    (place / "a.parquet").write_bytes(content.replace(b"1.jpg", b"\xff\xfe\xfdpg"))
    assert "cannot be read as Parquet" in refusal(place / "a.parquet")
    for at in range(4, len(content) - 8, 3):
        (place / "a.parquet").write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        assert "a.parquet" in (refusal_if_any(read_features, place / "a.parquet") or "a.parquet")


def test_a_parquet_file_that_holds_far_more_numbers_than_bytes_is_refused(place):
    zeros = pa.array(np.zeros(ALWAYS_FINE // 4 + 2, np.float32))
    rows = pa.FixedSizeListArray.from_arrays(zeros, len(zeros) // 2)
    pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], "features": rows}), place / "a.parquet")
    assert "would unpack to" in refusal(place / "a.parquet")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("1000000000000:1", "line 2: '1000000000000:1' has too large an index; expected at most 67,108,863"),
        ("100000000:1", "line 2: '100000000:1' has too large an index"),
        ("99999999999999999999:1", "line 2"),
        ("-1:1", "line 2: '-1:1' does not begin with an index"),
        ("0:1", "line 2: '0:1' comes after the index 1"),
        ("1:2", "line 2: '1:2' comes after the index 1; expected indices in ascending order"),
        ("3:nan", "line 2: '3:nan' has a number that is not finite"),
        ("3:-inf", "line 2: '3:-inf' has a number that is not finite"),
        ("3:sea", "line 2: '3:sea' does not end with a number"),
        ("sea:3", "line 2: 'sea:3' does not begin with an index"),
        ("3", "line 2: '3' does not end with a number"),
    ],
)
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_a_line_of_svmlight_that_cannot_be_used_is_named(name, pair, message, place):
    text = f"0 1:1 2:2 # the first\n0 1:1 {pair}\n".encode()
    (place / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert message in refusal(place / name)


def test_a_gzipped_bomb_is_not_unpacked_to_its_end(place):
    with gzip.open(place / "a.svm.gz", "wb") as file:
        file.write(b"0 1:1" + b" " * (ALWAYS_FINE + 2**20))
    assert "would unpack to" in refusal(place / "a.svm.gz")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.svm.gz"])
@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_are_refused_or_read_and_nothing_else(name, seed, place):
    path = place / name
    if name == "a.npy":
        np.save(path, ROWS)
    elif name == "a.npz":
        sp.save_npz(path, SOUND)
    else:
        path.write_bytes(gzip.compress(b"0 1:1 2:2\n0 3:1\n"))
    content = path.read_bytes()
    rng = np.random.default_rng(seed)
    for _ in range(60):
        changed = bytearray(content)
        for at in rng.integers(0, len(changed), rng.integers(1, 5)):
            changed[at] = rng.choice([0, 1, 0x7F, 0xFF, int(rng.integers(256))])
        path.write_bytes(bytes(changed[: int(rng.integers(1, len(changed) + 1))] if rng.random() < 0.2 else changed))
        assert "a." in (refusal_if_any(read_features, path) or name)


@pytest.mark.parametrize("rows", [ROWS, SOUND])
def test_a_damaged_shard_is_refused_by_a_line(rows, tmp_path):
    sound = shard_bytes(Shard(["1.jpg", "2.jpg"], ["a", "b"], rows))
    path = tmp_path / "part-0.parquet"
    for at in range(4, len(sound) - 8, 9):
        path.write_bytes(sound[:at] + b"\xff" + sound[at + 1 :])
        for read in (read_shard, read_shard_index):
            refusal_if_any(read, path)


@pytest.mark.parametrize("names", [[1, 2], ["1.jpg", None]])
def test_a_shard_whose_names_are_no_texts_is_refused(names, tmp_path):
    table = pa.table({"file_name": names, "sha256": ["a", "b"], "features": [[1.0], [2.0]]})
    pq.write_table(table, tmp_path / "part-0.parquet")
    with pytest.raises(VistermError, match="the column 'file_name' is"):
        read_shard(tmp_path / "part-0.parquet")


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize(("part", "at", "value"), [("indices", 1, 10**6), ("indices", 1, -3), ("indptr", 2, 10**6)])
@pytest.mark.parametrize("model", [Pamir(kernel="precomputed"), Knn()], ids=str)
def test_a_damaged_sparse_matrix_is_refused_in_python_as_in_files(model, part, at, value, form):
    """As a kernel made elsewhere, as features, and as tags."""
    damaged, tags = form(np.eye(8, dtype=np.float32)), np.eye(8, dtype=np.float32)[:, :3]
    getattr(damaged, part)[at] = value
    with pytest.raises(DataError, match="is damaged"):
        model.fit(damaged, tags)
    with pytest.raises(DataError, match="is damaged"):
        model.fit(np.eye(8, dtype=np.float32), damaged)
