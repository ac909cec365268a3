"""The network from image features to the words' space: layers, start values, and what it is without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visterm.models.deep.dense_layers import Layer


class DeepNetwork(nn.Module):  # type: ignore[misc]
    """Fully connected layers with ReLU between them, and nothing after the last.

    `sizes` go from the features to the words' space. `dropout` is the chance of a hidden number to be left out in a
    step of training; `batch_norm` brings hidden numbers to mean 0 and deviation 1 over each batch, before the ReLU.
    Features are multiplied by `scale`. Start values are normal, with a variance of 2 over the inputs of a layer (He et
    al. 2015); in the last so that the vectors of images have length 1 in the mean square.
    """

    def __init__(
        self, sizes: Sequence[int], *, dropout: float, batch_norm: bool, scale: float, rng: np.random.Generator
    ) -> None:
        super().__init__()
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

    def forward(self, x: Tensor, drops: torch.Generator) -> Tensor:
        """Return the vectors of a batch of images, in training: features (n, n_features) to (n, dim), float32."""
        x = x * self._scale
        for place, (weights, offsets) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = torch.addmm(offsets, x, weights)
            if place == len(self.weights) - 1:
                break
            if len(self.norms):
                x = self.norms[place].train(len(x) > 1)(x)  # one image has no deviation
            x = torch.relu(x)
            if self._dropout:
                kept = torch.rand(x.shape, generator=drops, device=x.device) >= self._dropout
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


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array
