"""Features in Parquet, which another program made: the extra `parquet` reads them, and an error says so without it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from test_hostile_features import refusal, refusal_if_any
from visterm.core.errors import DataError, MissingExtraError, UnknownNameError
from visterm.data.feature_files import read_features
from visterm.data.matrix_files import ALWAYS_ALLOWED_BYTES
from visterm.encoders.by_name import Precomputed

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")

NAMES = ["sea/1.jpg", "sea/2.jpg", "3.jpg", "Île.jpg"]
ROWS = np.array([[1, 0, 0.5], [0, 2, 0], [0, 0, 0], [-1, 0.25, 3]], np.float32)


def write_parquet(folder, column="features", names="file_name", kind=None, **more):
    lists = pa.array(ROWS.tolist(), kind or pa.list_(pa.float32()))
    pq.write_table(pa.table({names: NAMES, column: lists, **more}), folder / "features.parquet")
    return folder / "features.parquet"


def write_sparse_parquet(folder):
    indices = [np.flatnonzero(row).tolist() for row in ROWS]
    values = [row[row != 0].tolist() for row in ROWS]
    path = folder / "features.parquet"
    pq.write_table(pa.table({"image": NAMES, "indices": indices, "values": values}), path)
    return path


def write_parquet_parts(folder):
    (folder / "parts").mkdir()
    for i in range(2):
        half = slice(2 * i, 2 * i + 2)
        table = pa.table({"name": NAMES[half], "clip": ROWS[half].tolist()})
        pq.write_table(table, folder / "parts" / f"{i}.parquet")
    (folder / "parts" / "README.md").write_text("not a part")
    return folder / "parts"


FORMATS = {
    "lists": write_parquet,
    "fixed lists": lambda folder: write_parquet(folder, kind=pa.list_(pa.float32(), 3)),
    "float64": lambda folder: write_parquet(folder, kind=pa.large_list(pa.float64())),
    "a column of another name": lambda folder: write_parquet(folder, "embedding", width=[1, 2, 3, 4]),
    "sparse": write_sparse_parquet,
    "a folder": write_parquet_parts,
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_gives_the_same_rows_by_name(form, tmp_path):
    encoder = Precomputed(path=FORMATS[form](tmp_path)).fit(NAMES)
    rows = encoder.transform(NAMES[::-1])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows.toarray() if sp.issparse(rows) else rows, ROWS[::-1])


def test_names_of_rows_may_lie_in_a_file(tmp_path):
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")
    assert read_features(write_parquet(tmp_path), names=tmp_path / "names.txt").names == ["a", "b", "c", "d"]


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
    path = write_parquet(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "visterm.data.parquet_files", raising=False)
    with pytest.raises(MissingExtraError, match=r"features\.parquet .* pip install 'visterm\[parquet\]'"):
        read_features(path)


def damaged(folder):
    (folder / "features.parquet").write_bytes(b"PAR1")
    return folder / "features.parquet"


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (damaged, {}, DataError, "cannot be read as Parquet"),
        (write_parquet, {"column": "featurs"}, UnknownNameError, "Did you mean 'features'"),
        (write_parquet, {"name_column": "nam"}, UnknownNameError, "column of .* 'nam'"),
        (lambda f: write_parquet(f, names="key"), {}, DataError, "none of file_name, image"),
        (lambda f: write_parquet(f, "a", b=ROWS.tolist()), {}, DataError, "2 columns of lists"),
        (lambda f: f, {}, DataError, "There are no Parquet files in the folder"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(make, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        read_features(make(tmp_path), **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"indices": [[0, 2], [5, 5]], "values": [[1.0, 1], [1, 1]]}, "row 2: it has the index 5 twice"),
        ({"indices": [[0, 2], [1]], "values": [[1.0, 1], [1, 1]]}, "row 2: it has 1 indices and 2 values"),
        ({"indices": [[0, 2], [-1]], "values": [[1.0, 1], [1]]}, "row 2: it has the index -1; expected 0 to 2"),
        ({"indices": [[-1], []], "values": [[1.0], []]}, "row 1: it has the index -1; expected none"),
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
        ({"features": [[1.0], [2.0]], "image": ["1.jpg", None]}, "no name in row 2"),
        ({"indices": [[0, 5], [2**26 - 1]], "values": [[1.0, 1], [1]]}, "3 with numbers"),
    ],
)
def test_a_parquet_file_whose_rows_cannot_be_used_is_refused_with_the_row(columns, message, tmp_path):
    pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], **columns}), tmp_path / "a.parquet")
    assert message in refusal(tmp_path / "a.parquet")


@pytest.mark.parametrize(("cell", "message"), [(None, "is missing"), ([1.0, None], "a number is missing")])
def test_the_row_of_a_hole_is_counted_over_all_parts_of_a_column(cell, message, tmp_path):
    table = pa.table({"image": list("abcdef"), "features": [[1.0, 2], [3, 4], [5, 6], [7, 8], cell, [9, 10]]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert f"row 5: {'it ' if cell is None else ''}{message} (null)" in refusal(tmp_path / "a.parquet")


def test_a_column_of_tensors_is_a_column_of_lists(tmp_path):
    rows = pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS)
    pq.write_table(pa.table({"image": NAMES, "features": rows}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(read_features(tmp_path / "a.parquet").rows, ROWS)


def test_damaged_pages_and_texts_of_parquet_are_refused(tmp_path):
    table = pa.table({"image": ["1.jpg", "2.jpg"], "features": [[1.0, 2], [3, 4]]})
    pq.write_table(table, tmp_path / "a.parquet", compression="none")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content.replace(b"1.jpg", b"\xff\xfe\xfdpg"))
    assert "cannot be read as Parquet" in refusal(tmp_path / "a.parquet")
    for at in range(4, len(content) - 8, 3):
        (tmp_path / "a.parquet").write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        assert "a.parquet" in (refusal_if_any(read_features, tmp_path / "a.parquet") or "a.parquet")


def test_a_parquet_file_that_holds_far_more_numbers_than_bytes_is_refused(tmp_path):
    zeros = pa.array(np.zeros(ALWAYS_ALLOWED_BYTES // 4 + 2, np.float32))
    rows = pa.FixedSizeListArray.from_arrays(zeros, len(zeros) // 2)
    pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], "features": rows}), tmp_path / "a.parquet")
    assert "would unpack to" in refusal(tmp_path / "a.parquet")
