"""One fit of a deep tagger: train until the validation MAP stops rising, then on all images; can be resumed."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visterm.core.errors import StorageError
from visterm.core.persist import load_arrays, new_folder, open_folder, read_json, save_arrays, write_json
from visterm.core.products import dense
from visterm.core.threads import resolve_jobs
from visterm.core.types import Arrays, Floats, Ints, Matrix, Place
from visterm.encoders.torch_loading import torch_device
from visterm.models.deep.word_table import BLOCK_ROWS, WordTable, start_vectors
from visterm.models.epochs import TrainingState
from visterm.models.ranking.training import Checkpoint
from visterm.models.stopping import HeldOutFit, Judged, Watch, hold_out

WORK_PER_THREAD = 2**25  # Minimum number of multiplications per batch and thread, for another thread to be worthwhile
_SETTINGS_LOCK = RLock()
FOLDER_KIND = "checkpoint"
HOLD_OUT_PHASE, FIRST_PHASE, SECOND_PHASE = 0, 1, 2  # Phases of a fit: each is a part of the seeds of its random draws


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

    def layers(self) -> list[tuple[Floats, Floats]]:
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


class TrainingCheckpoint:
    """The state of a training, saved in a folder (None: not saved); a failed write keeps the previous state.

    `training` identifies the training by JSON values: settings, and fingerprints of data.
    """

    def __init__(self, folder: Place | None, training: dict[str, Any]) -> None:
        self._folder = None if folder is None else Path(folder)
        self._training = json.loads(json.dumps(training))  # as read from a file: tuples become lists

    def read(self) -> Checkpoint | None:
        """Return the state, or None if there is no checkpoint.

        Raises StorageError if the checkpoint belongs to another training, whose differences the message lists; or if a
        file has changed.
        """
        if self._folder is None or not self._folder.exists():
            return None
        folder = open_folder(self._folder, FOLDER_KIND)
        stored = read_json(folder / "training.json")
        stored_training = stored["training"]
        differences = [
            f"{key} ({stored_training.get(key)!r}, now {self._training.get(key)!r})"
            for key in sorted({*stored_training, *self._training})
            if stored_training.get(key) != self._training.get(key)
        ]
        if differences:
            raise StorageError(
                f"The checkpoint {self._folder} is of another training; different: {', '.join(differences)}. "
                "Resume it with its own settings and data, remove it, or choose another folder."
            )
        return Checkpoint(stored["numbers"], load_arrays(folder / "arrays.safetensors"))

    def write(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Save a state, which replaces the previous state."""
        if self._folder is None:
            return
        with new_folder(self._folder, FOLDER_KIND) as folder:
            write_json(folder / "training.json", {"training": self._training, "numbers": numbers})
            save_arrays(folder / "arrays.safetensors", {name: np.ascontiguousarray(a) for name, a in arrays.items()})

    def remove(self) -> None:
        """Remove the folder at the end of the training."""
        if self._folder is not None and self._folder.exists():
            shutil.rmtree(open_folder(self._folder, FOLDER_KIND))


@dataclass(kw_only=True, eq=False)
class DeepState(TrainingState):
    """The state of a training within its epochs."""

    batch: int = 0  # Number of finished batches of the epoch
    total: float = 0.0  # The sum of the losses of these batches


class DeepFit:
    """One fit of a deep tagger: uses the settings of `model`, and sets its learned attributes.

    `X` is (n_images, n_features), `Y` (n_images, n_tags). All draws depend on `seed`, or on the seed of the checkpoint
    if there is one.
    """

    def __init__(
        self, model: Any, X: Matrix, Y: sp.csr_array, seed: int, checkpoint: TrainingCheckpoint, watch: Watch
    ) -> None:
        self._model, self._X, self._Y, self._watch = model, X, Y, watch
        self._checkpoint, self._stored = checkpoint, checkpoint.read()
        self._seed = self._stored.facts["seed"] if self._stored else seed
        self._device = torch_device(model.device)
        self._first_training: Checkpoint = Checkpoint({}, {})

    def run(self, valid: Judged) -> None:
        """Train, with early stopping if there are validation rows or enough images, and remove the checkpoint."""
        model = self._model
        all_images = np.arange(self._X.shape[0])
        rng = np.random.default_rng([self._seed, HOLD_OUT_PHASE])
        training_ids, held_out = hold_out(all_images.size, model.share_to_hold_out if valid is None else 0.0, rng)
        model.n_held_out_ = held_out.size
        if held_out.size == 0:
            self._train(FIRST_PHASE, all_images, valid, model.epochs)
        else:
            self._train_twice(training_ids, held_out, all_images)
        self._checkpoint.remove()

    def _train_twice(self, training_ids: Ints, held_out: Ints, images: Ints) -> None:
        """Find the best number of epochs with held-out images, then train on all images for this number of epochs."""
        model, stored = self._model, self._stored
        if stored is None or stored.facts["phase"] == FIRST_PHASE:
            self._train(FIRST_PHASE, training_ids, (self._X[held_out], self._Y[held_out]), model.epochs)
            rows = {"held.image_rows": model._image_rows(self._X[held_out]), "held.tag_rows": model.tag_rows_}
            self._first_training = Checkpoint({"history": model.history_, "epochs": model.n_epochs_}, rows)
        else:
            rows = {name: array for name, array in stored.arrays.items() if name.startswith("held.")}
            self._first_training = Checkpoint(stored.facts["first"], rows)
        arrays = self._first_training.arrays
        self._train(SECOND_PHASE, images, None, self._first_training.facts["epochs"])
        model.history_ = self._first_training.facts["history"]
        model._held_out = HeldOutFit(held_out, arrays["held.image_rows"], arrays["held.tag_rows"])

    def _train(self, phase: int, images: Ints, validation: Judged, epochs: int) -> None:
        """Run epochs from start values, or from the checkpoint; keep the best weights or, unmeasured, the last."""
        model = self._model
        n_jobs, work = resolve_jobs(model.n_jobs), model._work(self._X.shape[1], self._Y.shape[1])
        with torch_settings(n_jobs, work, half=model.half):
            training = self._training(phase, images)
            state = self._start_state(phase, training)

            def after_batch(batch: int, total: float) -> None:
                state.batch, state.total = batch, total
                n_batches_done = (state.epoch - 1) * training.n_batches + batch
                if model.checkpoint is not None and n_batches_done % model.checkpoint_batches == 0:
                    self._save(phase, training, state)

            def run_epoch(rate: float) -> None:
                loss = training.run_epoch(state.epoch, rate, state.batch, state.total, after_batch)
                state.batch, state.total, state.means_of_epoch = 0, 0.0, {"loss": loss}
                layers = [array for layer in training.network.layers() for array in layer]
                state.published = (*layers, training.table.rows)
                model._publish(*state.published)
                model._refuse_non_finite()

            model._epochs(state, epochs, model._measure_map(validation), run_epoch, watch=self._watch)

    def _training(self, phase: int, images: Ints) -> DeepTraining:
        model = self._model
        rng = np.random.default_rng([self._seed, phase])
        score = model._start_score(self._Y)
        rows, model.vector_scale_ = start_vectors(
            model.known("word_vectors"), self._Y.shape[1], model.dim, rng, shared_bias=bool(score)
        )
        network = DeepNetwork(
            [self._X.shape[1], *model.hidden, rows.shape[1]],
            dropout=model.dropout, batch_norm=model.batch_norm, scale=model.scale_, rng=rng,
        )  # fmt: skip
        if score:  # the offset whose products with the rows are nearest to the score
            sample = rows[:BLOCK_ROWS].astype(np.float64)
            offset = np.linalg.lstsq(sample, np.full(len(sample), score), rcond=1e-3)[0]
            network.offsets[-1].data += torch.from_numpy(np.asarray(offset, np.float32))
        table = WordTable(rows, trainable=model._words_move(), device=self._device)
        return DeepTraining(
            network, table, model._objective(self._Y), self._X, images[np.diff(self._Y.indptr)[images] > 0], model,
            seed=[self._seed, phase], device=self._device,
        )  # fmt: skip

    def _start_state(self, phase: int, training: DeepTraining) -> DeepState:
        state, stored = DeepState(), self._stored
        if stored is None or stored.facts["phase"] != phase:
            return state
        training.restore(stored.arrays)
        numbers = stored.facts
        best = numbers["best"]
        if best["epoch"]:
            state.best_epoch, state.best_value = best["epoch"], best["value"]
            state.best_weights = tuple(np.array(stored.arrays[f"best.{number}"]) for number in range(best["arrays"]))
        state.epoch, state.batch, state.total = numbers["epoch"], numbers["batch"], numbers["total"]
        state.history = list(numbers["history"])
        return state

    def _save(self, phase: int, training: DeepTraining, state: DeepState) -> None:
        best_value = state.best_value if state.best_epoch else 0.0
        numbers = {
            "seed": self._seed,
            "phase": phase,
            "epoch": state.epoch,
            "batch": state.batch,
            "total": state.total,
            "history": state.history,
            "best": {"epoch": state.best_epoch, "value": best_value, "arrays": len(state.best_weights)},
            "first": self._first_training.facts,
        }
        arrays: Arrays = training.state() | self._first_training.arrays
        arrays |= {f"best.{number}": array for number, array in enumerate(state.best_weights)}
        self._checkpoint.write(numbers, arrays)
