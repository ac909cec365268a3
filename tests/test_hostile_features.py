"""Feature files whose bytes lie are refused with one line that names file and row; none reaches compiled code."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import save

from visterm.core.errors import CorruptFileError, DataError, VistermError
from visterm.data.feature_files import read_features
from visterm.data.feature_shards import Shard, read_shard, read_shard_index, shard_bytes, shard_row_bytes
from visterm.data.matrix_files import ALWAYS_ALLOWED_BYTES
from visterm.models.neighbours.knn import Knn
from visterm.models.pamir.pamir import Pamir

ROWS = np.array([[1, 0, 2], [0, 3, 0]], np.float32)
SOUND = sp.csr_array(ROWS)
HASHES = ["0a" * 32, "0b" * 32]


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
        ({"indices": np.array([0.0, 2.0, 1.0])}, "'indices': it holds float64; expected whole numbers"),
        ({"data": np.ones((3, 1))}, "'data' is float64 of shape (3, 1)"),
        ({"shape": np.array([2, 10**12])}, "the shape is (2, 1000000000000)"),
        ({"shape": np.array([10**12, 3])}, "would unpack to 8,000,000,000,000"),
        ({"shape": np.array([2, 2**27])}, "with numbers; row 1 has the index 2; expected at most 1,048,576"),
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
    assert "the values are in rows 0 to 5 of 2" in refusal(place / "a.npz")


def test_a_zip_bomb_is_refused_by_the_sizes_in_its_directory(place):
    npz(place / "a.npz", data=np.zeros(ALWAYS_ALLOWED_BYTES // 4 + 1, np.float32))
    assert (place / "a.npz").stat().st_size < ALWAYS_ALLOWED_BYTES // 500
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


@pytest.mark.parametrize("ending", [".svm", ".npz"])
def test_an_index_far_beyond_the_others_is_refused_before_a_model_makes_room_for_it(ending, place):
    path, largest = place / f"a{ending}", 2**26 - 1
    if ending == ".svm":
        path.write_text(f"0 0:1 5:1\n0 {largest}:1\n", encoding="utf-8")
    else:
        npz(path, indices=np.array([0, 5, largest]), shape=np.array([2, largest + 1]))
    assert "3 with numbers; row 2 has the index 67108863; expected at most 1,048,576" in refusal(path)


@pytest.mark.parametrize("shape", [(2, 10**15), (10**12, 3), (-2, 3), (2**62, 2**62)])
def test_a_header_that_promises_more_than_the_file_has_is_refused(shape, place):
    with (place / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.write(ROWS.tobytes())
    assert "it is truncated: the header promises float32" in refusal(place / "a.npy")


@pytest.mark.parametrize("array", [np.array([[{}]]), np.array([["a"]]), np.zeros(3), np.zeros((2, 2), "M8[s]")])
def test_a_numpy_file_of_anything_but_a_matrix_of_numbers_is_refused(array, place):
    np.save(place / "a.npy", array, allow_pickle=True)
    assert "expected a matrix of numbers" in (said := refusal(place / "a.npy")) or "Python objects" in said


def test_a_matrix_by_columns_is_mapped_as_it_is(place):
    np.save(place / "a.npy", np.asfortranarray(ROWS))
    np.testing.assert_array_equal(read_features(place / "a.npy").rows, ROWS)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("1000000000000:1", "line 2: '1000000000000:1'; expected INDEX:NUMBER with an index of 2 to 67,108,863"),
        ("100000000:1", "line 2: '100000000:1'; expected INDEX:NUMBER"),
        ("99999999999999999999:1", "line 2"),
        ("-1:1", "line 2: '-1:1'; expected INDEX:NUMBER"),
        ("0:1", "line 2: '0:1'; expected INDEX:NUMBER with an index of 2"),
        ("1:2", "line 2: '1:2'; expected INDEX:NUMBER with an index of 2 to 67,108,863, in ascending order"),
        ("3:nan", "line 2: '3:nan'; expected INDEX:NUMBER"),
        ("3:-inf", "line 2: '3:-inf'; expected INDEX:NUMBER"),
        ("3:sea", "line 2: '3:sea'; expected INDEX:NUMBER"),
        ("sea:3", "line 2: 'sea:3'; expected INDEX:NUMBER"),
        ("3", "line 2: '3'; expected INDEX:NUMBER"),
    ],
)
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_a_line_of_svmlight_that_cannot_be_used_is_named(name, pair, message, place):
    text = f"0 1:1 2:2 # the first\n0 1:1 {pair}\n".encode()
    (place / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert message in refusal(place / name)


def test_a_gzipped_bomb_is_not_unpacked_to_its_end(place):
    with gzip.open(place / "a.svm.gz", "wb") as file:
        file.write(b"0 1:1" + b" " * (ALWAYS_ALLOWED_BYTES + 2**20))
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
    sound = shard_bytes(Shard(["1.jpg", "2.jpg"], HASHES, rows))
    path = tmp_path / "part-0.safetensors"
    for at in range(len(sound)):
        for changed in (sound[:at] + b"\xff" + sound[at + 1 :], sound[:at] + b"0" + sound[at + 1 :], sound[:at]):
            path.write_bytes(changed)
            for read in (read_shard, read_shard_index, shard_row_bytes):
                message = refusal_if_any(read, path) or "part-0.safetensors"
                assert "part-0.safetensors" in message
                assert "\n" not in message


def shard_of(**changed):
    """Write the arrays of a sound shard, with some exchanged; None leaves an array out."""
    names = np.frombuffer(b'["1.jpg","2.jpg"]', np.uint8)
    arrays = {"features": ROWS, "file_name": names, "sha256": np.zeros((2, 32), np.uint8)} | changed
    return save({name.replace("_of_", ":"): array for name, array in arrays.items() if array is not None})


def texts(text):
    return np.frombuffer(text, np.uint8)


CSR = {
    "features": None,
    "features_of_data": SOUND.data,
    "features_of_indices": SOUND.indices,
    "features_of_indptr": SOUND.indptr,
    "features_of_shape": np.array(SOUND.shape),
}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": None}, "features lacks a part of a sparse matrix; expected data, indices, indptr, shape"),
        ({"file_name": None}, r"\['file_name'\] is"),
        ({"features": ROWS.astype(np.float64)}, r"\['dtype'\] is 'F64'; expected a text of the form F32"),
        ({"features": ROWS[0]}, r"\['shape'\] is .* expected a list"),
        ({"features": ROWS[:1]}, "it has 1 rows and 2 names"),
        ({"sha256": np.zeros((3, 32), np.uint8)}, "'file_name' is not a list with a name for each of the 3 hashes"),
        ({"file_name": texts(b'["1.jpg",2]')}, "'file_name' is not a list"),
        ({"file_name": texts(b'{"1.jpg":0,"2.jpg":0}')}, "'file_name' is not a list"),
        ({"file_name": texts(b'["1.jpg","2')}, "Unterminated string"),
        ({"file_name": texts(b'["\xff","2.jpg"]')}, "can't decode byte 0xff"),
        ({"file_name": texts(b"[" * 10**6)}, "recursion"),
        (CSR | {"features_of_indices": np.int32([0, 2, 10**8])}, "row 2: it has the index 100000000; expected 0 to 2"),
        (CSR | {"features_of_indptr": np.int32([0, 9, 3])}, "row 2: it ends before it begins"),
        (CSR | {"features_of_shape": np.array([2, 2**40])}, "the shape is"),
        (CSR | {"features_of_shape": np.array([2**40, 3])}, "expected 1,099,511,627,777 that begin with 0"),
    ],
)
def test_a_shard_whose_arrays_do_not_fit_is_refused(arrays, message, tmp_path):
    (tmp_path / "part-0.safetensors").write_bytes(shard_of(**arrays))
    with pytest.raises(
        CorruptFileError, match=f"part-0.safetensors cannot be read as a shard of features: .*{message}"
    ):
        read_shard(tmp_path / "part-0.safetensors")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"shape":[2,3]', b'"shape":[9,3]'),
        (b'"shape":[2,3]', b'"shape":[2,3000000000000]'),
        (b'"shape":[2,3]', b'"shape":[-2,-3]'),
        (b'"data_offsets":[0,24]', b'"data_offsets":[1,25]'),
        (b'"data_offsets":[0,24]', b'"data_offsets":[24,0]'),
        (b'"data_offsets":[0,24]', b'"data_offsets":[2400,2424]'),
        (b'"data_offsets":[0,24]', b'"data_offsets":[-24,0]'),
    ],
)
def test_a_header_that_promises_other_bytes_than_a_shard_has_is_refused(before, after, tmp_path):
    sound = shard_of()
    n_bytes = int.from_bytes(sound[:8], "little")
    header = sound[8 : 8 + n_bytes].replace(before, after)
    assert header != sound[8 : 8 + n_bytes]
    header += b" " * (-len(header) % 8)
    (tmp_path / "part-0.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + sound[8 + n_bytes :])
    with pytest.raises(CorruptFileError, match="cannot be read as a shard of features"):
        read_shard(tmp_path / "part-0.safetensors")


@pytest.mark.parametrize("n_bytes", [0, 7, 10**6, 2**63])
def test_a_header_of_another_length_than_written_is_refused(n_bytes, tmp_path):
    (tmp_path / "part-0.safetensors").write_bytes(n_bytes.to_bytes(8, "little") + shard_of()[8:])
    with pytest.raises(CorruptFileError, match="cannot be read as a shard of features"):
        read_shard(tmp_path / "part-0.safetensors")


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize(("part", "at", "value"), [("indices", 1, 10**6), ("indices", 1, -3), ("indptr", 2, 10**6)])
@pytest.mark.parametrize("model", [Pamir(), Knn()], ids=str)
def test_a_damaged_sparse_matrix_is_refused_in_python_as_in_files(model, part, at, value, form):
    """As features, and as tags."""
    damaged, tags = form(np.eye(8, dtype=np.float32)), np.eye(8, dtype=np.float32)[:, :3]
    getattr(damaged, part)[at] = value
    with pytest.raises(DataError, match="is damaged"):
        model.fit(damaged, tags)
    with pytest.raises(DataError, match="is damaged"):
        model.fit(np.eye(8, dtype=np.float32), damaged)
