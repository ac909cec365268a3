"""A network from image features to the words' space, and its reproducible training with a table of words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visterm.core.products import dense
from visterm.core.types import Matrix
from visterm.models.deep.word_table import WordTable

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

WORK_PER_THREAD = 2**25  # Minimum number of multiplications per batch and thread, for another thread to be worthwhile
_SETTINGS_LOCK = RLock()


class DeepNetwork(nn.Module):  # type: ignore[misc]
    """Fully connected layers with ReLU between them, and a linear last layer.

    `sizes` are those of the features, the hidden layers and the words' space. `dropout` is the probability of dropping
    a hidden unit in a training step; `batch_norm` normalizes hidden units to mean 0 and deviation 1 over each batch,
    before the ReLU. Features are multiplied by `scale`. Start values are normal, with the variance 2 / n_inputs (He et
    al. 2015); in the last layer, the variance gives the vectors of images the root mean square length 1.
    """

    def __init__(
        self, sizes: Sequence[int], *, dropout: float, batch_norm: bool, scale: float, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self._dropout, self._scale = dropout, scale
        steps = list(pairwise(sizes))
        gains = [2.0] * (len(steps) - 1) + [1.0 / sizes[-1]]
        start_weights = [
            rng.standard_normal(step, np.float32) * np.float32(math.sqrt(gain / step[0]))
            for step, gain in zip(steps, gains, strict=True)
        ]
        self.weights = nn.ParameterList([torch.from_numpy(weights) for weights in start_weights])
        self.offsets = nn.ParameterList([torch.zeros(size) for size in sizes[1:]])
        self.norms = nn.ModuleList([nn.BatchNorm1d(size) for size in sizes[1:-1]] if batch_norm else [])

    def forward(self, x: Tensor, dropout_generator: torch.Generator) -> Tensor:
        """Return the vectors of a batch of images in training: from features, (n, n_features), to (n, dim), float32."""
        x = x * self._scale
        for layer, (weights, offsets) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = torch.addmm(offsets, x, weights)
            if layer == len(self.weights) - 1:
                break
            if len(self.norms):
                x = self.norms[layer].train(len(x) > 1)(x)  # a single image has no deviation
            x = torch.relu(x)
            if self._dropout:
                mask = torch.rand(x.shape, generator=dropout_generator, device=x.device) >= self._dropout
                x = x * mask / (1 - self._dropout)
        return x.float()

    def layers(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return weights and offsets as NumPy arrays (views if possible), which include the batch norms."""
        layers = []
        for number, (weights, offsets) in enumerate(zip(self.weights, self.offsets, strict=True)):
            W, b = _array(weights), _array(offsets)
            if number < len(self.norms):
                norm = self.norms[number]
                factor = _array(norm.weight) / np.sqrt(_array(norm.running_var) + np.float32(norm.eps))
                W, b = W * factor, (b - _array(norm.running_mean)) * factor + _array(norm.bias)
            layers.append((W, b))
        return layers


class DeepTraining:
    """A training that can be resumed before any batch: all draws are seeded with `seed`, the epoch and the batch.

    It trains on the rows `images` of `X` with an objective such as `SampledObjective`: ``start_epoch(rng)`` makes the
    draws of an epoch, and ``loss(f, images, table, rng)`` returns the mean cost of a batch of images, whose vectors are
    `f` (n, dim), with tag rows from `table`.
    """

    def __init__(
        self,
        network: DeepNetwork,
        table: WordTable,
        objective: Any,
        X: Matrix,
        images: Ints,
        settings: Any,
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
        self._dropout_generator = torch.Generator(device)
        self.n_batches = -(-images.size // settings.batch_size)

    def run_epoch(
        self, epoch: int, rate: float, first_batch: int, total: float, after_batch: Callable[[int, float], None]
    ) -> float:
        """Train on all images once, starting with batch `first_batch`, and return the mean loss of the batches.

        `rate` is the factor of the learning rates, `total` the sum of the losses of earlier batches. `after_batch` is
        called after each batch with the number of finished batches of the epoch, and the sum of their losses.
        """
        rng = np.random.default_rng([*self._seed, epoch])
        order = rng.permutation(self._images)
        self._objective.start_epoch(rng)
        for group in self._adam.param_groups:
            group["lr"] = self._settings.learning_rate * rate
        batches = np.array_split(order, self.n_batches) if self.n_batches else []
        for number in range(first_batch, len(batches)):
            total += self._step(batches[number], np.random.default_rng([*self._seed, epoch, number]), rate)
            after_batch(number + 1, total)
        return total / max(len(batches), 1)

    def state(self) -> Arrays:
        """Return everything that the next batch depends on, as arrays; the next batch may change them."""
        arrays = {f"network.{name}": _array(value) for name, value in self.network.state_dict().items()}
        for parameter, moments in self._adam.state_dict()["state"].items():
            arrays |= {f"adam.{parameter}.{name}": _array(value) for name, value in moments.items()}
        return arrays | {"table": self.table.rows, "sums": self.table.sums}

    def restore(self, arrays: Arrays) -> None:
        """Restore the state that `state` returned."""
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        parts: dict[str, dict[str, Any]] = {"network": {}, "adam": {}}
        for name, value in tensors.items():
            kind, _, key = name.partition(".")
            if kind in parts:
                parts[kind][key] = value

        self.network.load_state_dict(parts["network"])
        moments: dict[int, dict[str, Any]] = {}
        for name, value in parts["adam"].items():
            parameter, _, moment = name.partition(".")
            moments.setdefault(int(parameter), {})[moment] = value
        self._adam.load_state_dict({"state": moments, "param_groups": self._adam.state_dict()["param_groups"]})
        self.table.rows[:] = arrays["table"]
        self.table.sums[:] = arrays["sums"]

    def _step(self, images: Ints, rng: np.random.Generator, rate: float) -> float:
        x = torch.from_numpy(np.asarray(dense(self._X[images]), np.float32)).to(self._device)
        self._dropout_generator.manual_seed(int(rng.integers(2**63)))
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._settings.half):
            f = self.network(x, self._dropout_generator)
        loss = self._objective.loss(f, images, self.table, rng)
        self._adam.zero_grad()
        loss.backward()
        trained_tensors = [*self.network.parameters(), *(leaf for _, leaf in self.table.taken)]
        torch.nn.utils.clip_grad_norm_(trained_tensors, self._settings.max_gradient)
        self._adam.step()
        self.table.step(self._settings.tag_learning_rate * rate)
        return float(loss.detach())


@contextmanager
def torch_settings(n_jobs: int, work: int, *, half: bool) -> Iterator[None]:
    """Limit torch's threads to `n_jobs`, and to the number that is useful for a batch; restore them at the end.

    `work` is the number of multiplications per batch. With `half`, oneDNN is disabled: on virtual machines that
    announce AMX but don't allow it, its bfloat16 products crash the process. These settings are global to the process,
    so trainings in several threads take turns.
    """
    with _SETTINGS_LOCK:
        threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
        torch.set_num_threads(max(1, min(n_jobs, work // WORK_PER_THREAD)))
        torch.backends.mkldnn.enabled = onednn and not half
        try:
            yield
        finally:
            torch.backends.mkldnn.enabled = onednn
            torch.set_num_threads(threads)


def _array(value: Tensor) -> NDArray[Any]:
    return np.asarray(value.detach().cpu().numpy())
