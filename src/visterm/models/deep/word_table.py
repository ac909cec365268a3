"""The vectors of words as training has them: in the processor's memory, of which only drawn rows go to the network."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from visterm.kernels.row_moves import move_all_rows, move_drawn_rows
from visterm.models.deep.data_parallel import DataParallel, Part

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class _Lent(NamedTuple):
    """Rows that a batch took."""

    tags: Ints | None  # Whose they are; None: all rows, in order
    leaf: Any  # The tensor, which has a gradient later
    a_row_an_image: bool  # The parts of a batch then took different ones


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
        self._taken: list[_Lent] = []

    def take(self, tags: Ints, part: Part | None = None) -> torch.Tensor:
        """Return rows for the network to use until `step`, shape (*tags.shape, dim).

        With a part of a batch, `tags` are of the whole batch, an image a row, and the rows of the part's are given.
        """
        own = tags if part is None else tags[part.rows]
        return self._lend(tags.reshape(-1), torch.from_numpy(self.rows[own]).to(self._device), a_row_an_image=True)

    def take_distinct(self, tags: Ints) -> torch.Tensor:
        """Return the rows of tags that differ, shape (n_tags, dim); parts of a batch all take the same."""
        return self._lend(tags, torch.from_numpy(self.rows[tags]).to(self._device))

    def take_all(self) -> torch.Tensor:
        """Return all rows, shape (n_tags, dim)."""
        return self._lend(None, torch.from_numpy(self.rows).to(self._device))

    def lent(self) -> list[torch.Tensor]:
        """Return the tensors that were taken since the last step, which have gradients now."""
        return [lent.leaf for lent in self._taken]

    def meet(self, together: DataParallel, n: int) -> None:
        """Have the gradients of the parts of a batch of n images be those of the whole batch, in every process.

        Those of drawn rows are gathered, which rows they are of is known: what is sent does not grow with the table.
        """
        if together.size == 1:
            return
        for place, lent in enumerate(self._taken):
            gradient = lent.leaf.grad
            if gradient is not None:
                summed = together.gathered(gradient, n) if lent.a_row_an_image else together.total(gradient)
                whole = torch.empty_like(summed)
                whole.grad = summed / together.size
                self._taken[place] = lent._replace(leaf=whole)

    def step(self, rate: float) -> None:
        """Move the rows that were taken, down their gradients, and forget that they were."""
        for tags, leaf, _ in self._taken:
            if leaf.grad is None:
                continue
            gradients = np.ascontiguousarray(leaf.grad.reshape(-1, self.rows.shape[1]).cpu().numpy())
            if tags is None:
                move_all_rows(self.rows, self.sums, gradients, rate)
            else:
                move_drawn_rows(self.rows, self.sums, tags, _stable_order(tags), gradients, rate)
        self._taken = []

    def _lend(self, tags: Ints | None, leaf: torch.Tensor, *, a_row_an_image: bool = False) -> torch.Tensor:
        if self.moving:
            self._taken.append(_Lent(tags, leaf.requires_grad_(), a_row_an_image))
        return leaf


def _stable_order(tags: Ints) -> Ints:
    """Return what sorts tags stably: as `argsort` does, in a fifth of its time, since plain numbers sort faster."""
    keys = tags * tags.size + np.arange(tags.size)
    keys.sort()
    return keys % tags.size
