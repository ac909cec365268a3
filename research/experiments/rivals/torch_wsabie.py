"""WSABIE as one writes it in PyTorch: blocks of pairs, draws in rounds until one violates, autograd, sparse SGD."""

from __future__ import annotations

import time

import numpy as np
import torch
from answers import serve
from torch.nn import functional

ROUND = 16
"""Draws of the first round; each further round has four times as many, for the pairs that still look for a violator."""


class Training:
    """One set of images, tags and start weights."""

    def load(self, arrays: str, threads: int) -> None:
        torch.set_num_threads(threads)
        held = {name: torch.from_numpy(array) for name, array in np.load(arrays).items()}
        self.start, self.cols, self.vals = held["start"], held["cols"].long(), held["vals"]
        self.own_start, self.own_tags = held["own_start"], held["own_tags"].long()
        self.V, self.W = held["V"], held["W"]
        self.images = torch.repeat_interleave(torch.arange(len(self.own_start) - 1), self.own_start.diff())

    def train(self, pairs: int, block: int, rate: float, max_norm: float, max_trials: int, seed: int) -> dict:
        """Visit so many pairs from the start weights, and give the seconds."""
        torch.manual_seed(seed)
        V, W = self.V.clone().requires_grad_(), self.W.clone().requires_grad_()
        step = torch.optim.SGD([V, W], lr=rate)
        n_tags = len(W)
        rank_weights = torch.cat([torch.zeros(1), torch.cumsum(1 / torch.arange(1, n_tags + 1), 0)])
        order = torch.randperm(len(self.images))[:pairs]
        start = time.perf_counter()
        for examples in order.split(block):
            images, tags = self.images[examples], self.own_tags[examples]
            cols, vals, offsets = self._rows(images)
            U = functional.embedding_bag(cols, V, offsets, mode="sum", per_sample_weights=vals, sparse=True)
            violators, trials = self._draw(U.detach(), W.detach(), images, tags, max_trials)
            active = violators >= 0
            if not active.any():
                continue
            own = self.own_start[images + 1] - self.own_start[images]
            weights = rank_weights[(n_tags - own[active]) // trials[active]]
            true = functional.embedding(tags[active], W, sparse=True)
            drawn = functional.embedding(violators[active], W, sparse=True)
            margins = 1 - (U[active] * (true - drawn)).sum(1)
            step.zero_grad()
            (weights * margins.relu()).sum().backward()
            step.step()
            with torch.no_grad():
                for rows, touched in ((V, cols), (W, torch.cat([tags[active], violators[active]]))):
                    which = touched.unique()
                    rows[which] = torch.renorm(rows[which], 2, 0, max_norm)
        return {"seconds": time.perf_counter() - start}

    def _rows(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lengths = self.start[images + 1] - self.start[images]
        offsets = lengths.cumsum(0) - lengths
        stored = torch.arange(int(lengths.sum())) + torch.repeat_interleave(self.start[images] - offsets, lengths)
        return self.cols[stored], self.vals[stored], offsets

    def _draw(
        self, U: torch.Tensor, W: torch.Tensor, images: torch.Tensor, tags: torch.Tensor, max_trials: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw tags that the images do not have, until one violates the margin."""
        violators, trials = torch.full_like(tags, -1), torch.zeros_like(tags)
        limits = (U * W[tags]).sum(1) - 1
        own = self.own_start[images + 1] - self.own_start[images]
        padded = torch.full((len(tags), int(own.max())), -1)
        inside = torch.arange(padded.shape[1]) < own[:, None]
        padded[inside] = self.own_tags[(self.own_start[images][:, None] + torch.arange(padded.shape[1]))[inside]]
        looking = torch.arange(len(tags))
        size = ROUND
        while len(looking):
            drawn = torch.randint(len(W), (len(looking), size))
            absent = (drawn[:, :, None] != padded[looking][:, None, :]).all(2)
            scores = torch.bmm(W[drawn], U[looking][:, :, None])[:, :, 0]
            counts = trials[looking][:, None] + absent.cumsum(1)
            violates = absent & (scores > limits[looking][:, None]) & (counts <= max_trials)
            found = violates.any(1)
            at = violates.int().argmax(1)
            rows = torch.arange(len(looking))
            violators[looking[found]] = drawn[rows, at][found]
            trials[looking] = torch.where(found, counts[rows, at], counts[:, -1])
            looking = looking[~found & (counts[:, -1] < max_trials)]
            size *= 4
        return violators, trials.clamp(min=1)


if __name__ == "__main__":
    training = Training()
    serve({"version": lambda: {"version": torch.__version__}, "load": training.load, "train": training.train})
