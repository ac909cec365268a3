"""The network from image features to the words' space: layers, start values, and what it is without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visterm.models.deep.data_parallel import ALONE, DataParallel, Part, part_of
from visterm.models.deep.dense_layers import Layer


class DeepNetwork(nn.Module):  # type: ignore[misc]
    """Fully connected layers with ReLU between them, and nothing after the last.

    `sizes` go from the features to the words' space. `dropout` is the chance of a hidden number to be left out in a
    step of training; `batch_norm` brings hidden numbers to mean 0 and deviation 1 over each batch, before the ReLU.
    Features are multiplied by `scale`. Start values are normal, with a variance of 2 over the inputs of a layer (He et
    al. 2015); in the last so that the vectors of images have length 1 in the mean square. `together` are the processes
    that a batch is parted over: dropout and norms are those of the whole batch.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        dropout: float,
        batch_norm: bool,
        scale: float,
        rng: np.random.Generator,
        together: DataParallel = ALONE,
    ) -> None:
        super().__init__()
        self._together = together
        self._dropout, self._scale = dropout, scale
        steps = list(pairwise(sizes))
        gains = [2.0] * (len(steps) - 1) + [1.0 / sizes[-1]]
        starts = [
            rng.standard_normal(step, np.float32) * np.float32(math.sqrt(gain / step[0]))
            for step, gain in zip(steps, gains, strict=True)
        ]
        self.weights = nn.ParameterList([torch.from_numpy(start) for start in starts])
        self.offsets = nn.ParameterList([torch.zeros(size) for size in sizes[1:]])
        self.norms = nn.ModuleList([nn.BatchNorm1d(size) for size in sizes[1:-1]] if batch_norm else [])

    def forward(self, x: Tensor, drops: torch.Generator, part: Part | None = None) -> Tensor:
        """Return the vectors of images, in training: features (n, n_features) to (n, dim), float32.

        They are those of a part of a batch, or without one a batch by themselves.
        """
        part = part or part_of(len(x), 0, 1)
        x = x * self._scale
        for place, (weights, offsets) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = torch.addmm(offsets, x, weights)
            if place == len(self.weights) - 1:
                break
            if len(self.norms):
                self.norms[place].train(part.n > 1)  # one image has no deviation
                x = shared_norm(self.norms[place], x, part.n, self._together)
            x = torch.relu(x)
            if self._dropout:
                chances = torch.rand((part.n, x.shape[1]), generator=drops, device=x.device)
                kept = chances[part.rows] >= self._dropout
                x = x * kept / (1 - self._dropout)
        return x.float()

    def layers(self) -> list[Layer]:
        """Return weights and offsets as NumPy computes with them, norms and scale within; on the CPU mostly views."""
        found = []
        for place, (weights, offsets) in enumerate(zip(self.weights, self.offsets, strict=True)):
            W, b = _array(weights), _array(offsets)
            if place < len(self.norms):
                norm = self.norms[place]
                factor = _array(norm.weight) / np.sqrt(_array(norm.running_var) + np.float32(norm.eps))
                W, b = W * factor, (b - _array(norm.running_mean)) * factor + _array(norm.bias)
            found.append(Layer(W, b))
        return found


def shared_norm(norm: nn.BatchNorm1d, x: Tensor, n: int, together: DataParallel) -> Tensor:
    """Bring numbers (n_part, width) to mean 0 and deviation 1 over a whole batch of `n`, as `norm` does in one process.

    In training its running means move, in every process alike. Torch's own way for several processes, `SyncBatchNorm`,
    is for GPUs alone.
    """
    if together.size == 1 or not norm.training:
        return norm(x)
    mean = together.total(x.sum(0)) / n
    variance = together.total((x - mean).square().sum(0)) / n
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (n / (n - 1)), norm.momentum)  # as torch keeps it: unbiased
    return (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array
