"""The table of words learns by the rows that were drawn, and no other is read or moved."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from visterm.models.deep.word_table import WordTable

CPU = torch.device("cpu")


def test_only_drawn_rows_move_each_once_by_the_sum_of_its_gradients():
    before = np.arange(12, dtype=np.float32).reshape(6, 2)
    table = WordTable(before.copy(), trainable=True, device=CPU)
    rows = table.take(np.array([[4, 1], [4, 2]]))
    (rows * torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[3.0, -4.0], [0.0, 0.0]]])).sum().backward()
    table.step(0.1)
    expected = before.copy()
    # Row 4 has the gradients (3, 4) and (3, -4): sum (6, 0), mean square 18. Row 1: (0, 2), mean square 2. Row 2: none.
    expected[4] -= np.float32(0.1) * np.array([6, 0]) / np.sqrt(18)
    expected[1] -= np.float32(0.1) * np.array([0, 2]) / np.sqrt(2)
    np.testing.assert_allclose(table.rows, expected, rtol=1e-6)
    assert table.sums.tolist() == [0, 2, 0, 0, 18, 0]
    assert table.taken == []


def test_steps_grow_shorter_with_the_squares_that_a_row_has_seen():
    table = WordTable(np.zeros((2, 4), np.float32), trainable=True, device=CPU)
    lengths = []
    for _ in range(4):
        before = table.rows[1].copy()
        table.take(np.array([1])).sum().backward()
        table.step(0.5)
        lengths.append(float(np.abs(table.rows[1] - before).max()))
    np.testing.assert_allclose(lengths, 0.5 / np.sqrt([1, 2, 3, 4]), rtol=1e-6)


def test_fixed_vectors_are_lent_without_a_gradient_and_stay():
    table = WordTable(np.ones((3, 2), np.float32), trainable=False, device=CPU)
    rows = table.take(np.array([0, 2]))
    assert not rows.requires_grad
    table.step(1.0)
    assert (table.rows == 1).all()
    assert table.sums.size == 0


def test_a_step_needs_memory_for_the_drawn_rows_and_not_for_the_table():
    table = WordTable(np.zeros((200_000, 64), np.float32), trainable=True, device=CPU)  # 51 MB
    tags = np.arange(0, 200_000, 1000)
    table.take(tags).sum().backward()
    table.step(0.1)  # compiles
    tracemalloc.start()
    rows = table.take(tags)
    rows.sum().backward()
    assert rows.grad.shape == (200, 64)
    table.step(0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert np.flatnonzero(table.rows.any(axis=1)).tolist() == tags.tolist()
