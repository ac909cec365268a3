"""Vectors that tags start a training with: read from a memory map without staying in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from visterm.models.deep.word_table import start_vectors

STATUS = Path("/proc/self/status")


def file_bytes() -> int:
    """Say how many bytes of files this process has mapped into its memory."""
    lines = STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile"))


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc, as Linux has it")
def test_a_read_only_map_of_vectors_does_not_stay_in_memory(tmp_path):
    np.save(tmp_path / "words.npy", np.ones((40_000, 250), np.float32))  # 40 MB
    words = np.load(tmp_path / "words.npy", mmap_mode="r")
    before = file_bytes()
    rows, _ = start_vectors(words, 40_000, None, np.random.default_rng(0))
    assert file_bytes() - before < 10e6
    assert words.sum() == 10e6  # and can be read again
    assert file_bytes() - before > 35e6
    np.testing.assert_allclose(rows, 250**-0.5, rtol=1e-6)


def test_changes_of_a_map_that_are_in_no_file_are_kept(tmp_path):
    np.save(tmp_path / "words.npy", np.ones((100, 4), np.float32))
    words = np.load(tmp_path / "words.npy", mmap_mode="c")
    words[:50] = 3
    rows, factor = start_vectors(words, 100, None, np.random.default_rng(0))
    assert words[0, 0] == 3
    np.testing.assert_allclose(rows[0], 3 * factor, rtol=1e-6)
    np.testing.assert_allclose(rows[99], factor, rtol=1e-6)
