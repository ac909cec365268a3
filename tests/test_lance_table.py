"""A table of LanceDB: which version counts, and how it is tidied."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from visterm.core.errors import CorruptFileError, MissingExtraError
from visterm.store.lance_rows import LanceTable

if find_spec("lancedb") is None:
    pytest.skip("the extra lance is not installed", allow_module_level=True)

N, WIDTH = 3000, 13


@pytest.fixture(scope="module")
def rows():
    """Rows around 60 scenes."""
    rng = np.random.default_rng(0)
    scenes = rng.standard_normal((60, WIDTH), np.float32)
    return scenes[rng.integers(0, 60, N)] + np.float32(0.3) * rng.standard_normal((N, WIDTH), np.float32)


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
    assert table.needs_compaction(200)
    tidy = table.compact(version)
    assert not table.needs_compaction(200)
    table.delete_old_versions()
    assert table.at(tidy).stats()["fragment_stats"]["num_fragments"] == 1
    assert table.at(tidy).to_arrow()["row"].to_pylist() == list(range(200))
    assert table.at(before).count_rows() == 190


def test_a_table_or_a_version_that_is_gone_is_reported(tmp_path):
    table = LanceTable(str(tmp_path), "rows")
    with pytest.raises(CorruptFileError, match="The table rows cannot be opened"):
        table.writable()
    table.create(3)
    with pytest.raises(CorruptFileError, match="does not have its current version 77"):
        table.at(77)


def test_without_lancedb_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtraError, match=r"visterm\[lance\]"):
        LanceTable(str(tmp_path / "another place"), "rows")
