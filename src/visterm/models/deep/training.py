"""One training of a network and a table of words: its batches, their steps, and its state to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.models.deep.network import DeepNetwork
from visterm.models.deep.objectives import Objective
from visterm.models.deep.settings import DeepSettings
from visterm.models.deep.word_table import WordTable

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

WORK_A_THREAD = 2**25
"""Multiplications a batch from which on a further thread is used: below, calling it takes longer than it helps."""

_TURN = RLock()


class DeepTraining:
    """A training under way, which can be entered before any batch: all draws are keyed by seed, epoch and batch.

    It learns from the rows `images` of `X`.
    """

    def __init__(
        self,
        network: DeepNetwork,
        table: WordTable,
        objective: Objective,
        X: Matrix,
        images: Ints,
        settings: DeepSettings,
        *,
        seed: list[int],
        device: torch.device,
    ) -> None:
        self.network, self.table = network.to(device).train(), table
        self._objective, self._X, self._images, self._settings = objective, X, images, settings
        self._seed, self._device = seed, device
        self._adam = torch.optim.Adam(
            self.network.parameters(), lr=settings.learning_rate, weight_decay=settings.l2, fused=True
        )
        self._drops = torch.Generator(device)
        self.n_batches = -(-images.size // settings.batch_size)

    def run_epoch(
        self, epoch: int, rate: float, *, first: int = 0, total: float = 0.0, after: Callable[[int, float], None]
    ) -> float:
        """Go over all images once, from batch `first` on, and return the mean loss of the batches.

        `rate` is the factor of the learning rates, `total` the sum of the losses before `first`. `after` is called
        after each batch with how many of the epoch are done, and the sum of their losses.
        """
        rng = np.random.default_rng([*self._seed, epoch])
        order = rng.permutation(self._images)
        self._objective.start_epoch(rng)
        for group in self._adam.param_groups:
            group["lr"] = self._settings.learning_rate * rate
        batches = np.array_split(order, self.n_batches) if self.n_batches else []
        for number in range(first, len(batches)):
            total += self._step(batches[number], np.random.default_rng([*self._seed, epoch, number]), rate)
            after(number + 1, total)
        return total / max(len(batches), 1)

    def state(self) -> Arrays:
        """Return all that the next batch depends on, as arrays that may change with it."""
        arrays = {f"network.{name}": _array(value) for name, value in self.network.state_dict().items()}
        for place, moments in self._adam.state_dict()["state"].items():
            arrays |= {f"adam.{place}.{name}": _array(value) for name, value in moments.items()}
        return arrays | {"table": self.table.rows, "sums": self.table.sums}

    def restore(self, arrays: Arrays) -> None:
        """Take a state back."""
        named = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        parts: dict[str, dict[str, Any]] = {"network": {}, "adam": {}}
        for name, value in named.items():
            kind, _, rest = name.partition(".")
            if kind in parts:
                parts[kind][rest] = value
        self.network.load_state_dict(parts["network"])
        moments: dict[int, dict[str, Any]] = {}
        for name, value in parts["adam"].items():
            place, _, what = name.partition(".")
            moments.setdefault(int(place), {})[what] = value
        self._adam.load_state_dict({"state": moments, "param_groups": self._adam.state_dict()["param_groups"]})
        self.table.rows[:] = arrays["table"]
        self.table.sums[:] = arrays["sums"]

    def _step(self, images: Ints, rng: np.random.Generator, rate: float) -> float:
        rows: Any = self._X[images]
        x = torch.from_numpy(np.asarray(rows.toarray() if sp.issparse(rows) else rows, np.float32)).to(self._device)
        self._drops.manual_seed(int(rng.integers(2**63)))
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._settings.half):
            f = self.network(x, self._drops)
        loss = self._objective.loss(f, images, self.table, rng)
        self._adam.zero_grad()
        loss.backward()
        moved = [*self.network.parameters(), *self.table.lent()]
        torch.nn.utils.clip_grad_norm_(moved, self._settings.max_gradient)
        self._adam.step()
        self.table.step(self._settings.tag_learning_rate * rate)
        return float(loss.detach())


@contextmanager
def torch_settings(n_jobs: int, work: int, *, half: bool) -> Iterator[None]:
    """Hold torch to as many threads as are allowed, and of use for the multiplications of a batch; put all back.

    With `half` oneDNN, which computes on the processor, is left out: on virtual machines that tell of AMX and do not
    let it run, its bfloat16 products end the process. These settings are of the whole process, so that trainings in
    several threads take turns.
    """
    with _TURN:
        threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
        torch.set_num_threads(max(1, min(n_jobs, work // WORK_A_THREAD)))
        torch.backends.mkldnn.enabled = onednn and not half
        try:
            yield
        finally:
            torch.backends.mkldnn.enabled = onednn
            torch.set_num_threads(threads)


def _array(value: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = value.detach().cpu().numpy()
    return array
