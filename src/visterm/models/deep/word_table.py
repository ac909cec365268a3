"""The vectors of words as training has them: in the processor's memory, of which only drawn rows go to the network."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from visterm.kernels.row_moves import move_all_rows, move_drawn_rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class WordTable:
    """A table of vectors that stays where it is, and learns by row-wise Adagrad (section 3.2).

    A batch takes the rows that it drew, as a tensor of its own on the network's device; their gradients come back and
    move those rows alone (unless `moving` is False). So neither a gradient nor a moment of the size of the table ever
    exists, but for costs that take all rows: Adagrad remembers one number a row in `sums`, the sum of the mean squares
    of its gradients. `rows`, float32 (n_tags, dim), are changed in place.
    """

    def __init__(self, rows: Floats, *, moving: bool, device: torch.device) -> None:
        self.rows = rows
        self.sums: Floats = np.zeros(len(rows) if moving else 0, np.float32)
        self.moving = moving
        self._device = device
        self._taken: list[tuple[Ints | None, torch.Tensor]] = []

    def take(self, tags: Ints) -> torch.Tensor:
        """Return rows for the network to use until `step`, shape (*tags.shape, dim)."""
        return self._lend(tags.reshape(-1), torch.from_numpy(self.rows[tags]).to(self._device))

    def take_all(self) -> torch.Tensor:
        """Return all rows, shape (n_tags, dim)."""
        return self._lend(None, torch.from_numpy(self.rows).to(self._device))

    def lent(self) -> list[torch.Tensor]:
        """Return the tensors that were taken since the last step, which have gradients now."""
        return [leaf for _, leaf in self._taken]

    def step(self, rate: float) -> None:
        """Move the rows that were taken, down their gradients, and forget that they were."""
        for tags, leaf in self._taken:
            if leaf.grad is None:
                continue
            gradients = np.ascontiguousarray(leaf.grad.reshape(-1, self.rows.shape[1]).cpu().numpy())
            if tags is None:
                move_all_rows(self.rows, self.sums, gradients, rate)
            else:
                move_drawn_rows(self.rows, self.sums, tags, _stable_order(tags), gradients, rate)
        self._taken = []

    def _lend(self, tags: Ints | None, leaf: torch.Tensor) -> torch.Tensor:
        """Note the rows of tags (None: all, in order), whose gradients `step` moves them by."""
        if self.moving:
            self._taken.append((tags, leaf.requires_grad_()))
        return leaf


def _stable_order(tags: Ints) -> Ints:
    """Return what sorts tags stably: as `argsort` does, in a fifth of its time, since plain numbers sort faster."""
    keys = tags * tags.size + np.arange(tags.size)
    keys.sort()
    return keys % tags.size
