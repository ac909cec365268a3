"""One fit of a deep tagger: train until the validation MAP stops rising, then on all images; can be resumed."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.persist import load_arrays, new_folder, open_folder, read_json, save_arrays, write_json
from visterm.core.progress import Progress
from visterm.core.threads import resolve_jobs
from visterm.core.types import Matrix
from visterm.encoders.torch_loading import torch_device
from visterm.models.deep.training import Arrays, DeepNetwork, DeepTraining, torch_settings
from visterm.models.deep.word_table import WordTable, offset_for, start_vectors
from visterm.models.epochs import EpochLoss, TrainingState, Validation
from visterm.models.stopping import HeldOutFit, OnEpoch, hold_out

KIND = "checkpoint"
HOLDING_OUT, FIRST, SECOND = 0, 1, 2  # Phases of the fit, which are a part of the seeds of their random draws


class CheckpointContents(NamedTuple):
    """The contents of a checkpoint."""

    numbers: dict[str, Any]  # Values for JSON
    arrays: Arrays


class TrainingCheckpoint:
    """The saved state of a training in a folder (None: not saved), replaced completely or not at all.

    `training` identifies the training by JSON values: settings, and fingerprints of data.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, training: dict[str, Any]) -> None:
        self._folder = None if folder is None else Path(folder)
        self._training = json.loads(json.dumps(training))  # as read from a file: tuples become lists

    def read(self) -> CheckpointContents | None:
        """Return the state, or None if there is no checkpoint.

        Raises StorageError if the checkpoint is of another training, with the differences; or if a file has changed.
        """
        if self._folder is None or not self._folder.exists():
            return None
        folder = open_folder(self._folder, KIND)
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
                "Train as then to go on with it, remove it, or choose another folder."
            )
        return CheckpointContents(stored["numbers"], load_arrays(folder / "arrays.safetensors"))

    def write(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Save a state, which replaces the previous state."""
        if self._folder is None:
            return
        with new_folder(self._folder, KIND) as folder:
            write_json(folder / "training.json", {"training": self._training, "numbers": numbers})
            save_arrays(
                folder / "arrays.safetensors", {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            )

    def remove(self) -> None:
        """Remove the folder at the end of the training."""
        if self._folder is not None and self._folder.exists():
            shutil.rmtree(open_folder(self._folder, KIND))


@dataclass(kw_only=True, eq=False)
class DeepState(TrainingState):
    """The state of a training within its epochs."""

    batch: int = 0  # Number of finished batches of the epoch
    total: float = 0.0  # The sum of their losses


class DeepFit:
    """One fit of a deep tagger: uses its settings, and sets its learned attributes.

    `X` is (n_images, n_features), `Y` (n_images, n_tags). All draws depend on `seed`, or on the seed of the checkpoint
    if there is one.
    """

    def __init__(
        self,
        model: Any,
        X: Matrix,
        Y: sp.csr_array,
        seed: int,
        checkpoint: TrainingCheckpoint,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self._model, self._X, self._Y, self._monitor, self._on_epoch = model, X, Y, monitor, on_epoch
        self._checkpoint, self._kept = checkpoint, checkpoint.read()
        self._seed = self._kept.numbers["seed"] if self._kept else seed
        self._device = torch_device(model.device)
        self._first: CheckpointContents = CheckpointContents({}, {})

    def run(self, valid: Validation | None) -> None:
        """Train, with early stopping if there are validation rows or enough images, and remove the checkpoint."""
        model = self._model
        all_images = np.arange(self._X.shape[0])
        if valid is None:
            rng = np.random.default_rng([self._seed, HOLDING_OUT])
            trained, held_out = hold_out(all_images.size, model.share_to_hold_out, rng)
        else:
            trained, held_out = all_images, all_images[:0]
        model.n_held_out_ = held_out.size
        if held_out.size == 0:
            self._train(FIRST, all_images, valid, model.epochs)
        else:
            self._train_twice(trained, held_out, all_images)
        self._checkpoint.remove()

    def _train_twice(self, trained: NDArray[np.int64], held_out: NDArray[np.int64], images: NDArray[np.int64]) -> None:
        """Train on a part of the images, stop by the held-out ones, then train on all for the best number of epochs."""
        model, kept = self._model, self._kept
        if kept is None or kept.numbers["phase"] == FIRST:
            self._train(FIRST, trained, (self._X[held_out], self._Y[held_out]), model.epochs)
            rows = {"held.image_rows": model._image_rows(self._X[held_out]), "held.tag_rows": model.tag_rows_}
            self._first = CheckpointContents({"history": model.history_, "epochs": model.n_epochs_}, rows)
        else:
            rows = {name: array for name, array in kept.arrays.items() if name.startswith("held.")}
            self._first = CheckpointContents(kept.numbers["first"], rows)
        arrays = self._first.arrays
        self._train(SECOND, images, None, self._first.numbers["epochs"])
        model.history_ = self._first.numbers["history"]
        model._held_out = HeldOutFit(held_out, arrays["held.image_rows"], arrays["held.tag_rows"])

    def _train(self, phase: int, images: NDArray[np.int64], validation: Validation | None, epochs: int) -> None:
        """Run epochs from start values, or from the checkpoint, and publish the best or the last weights."""
        model = self._model
        n_jobs, work = resolve_jobs(model.n_jobs), model._work(self._X.shape[1], self._Y.shape[1])
        with torch_settings(n_jobs, work, half=model.half):
            training = self._training(phase, images)
            state = self._start_state(phase, training)

            def after(batch: int, total: float) -> None:
                state.batch, state.total = batch, total
                done = (state.epoch - 1) * training.n_batches + batch
                if model.checkpoint is not None and done % model.checkpoint_batches == 0:
                    self._keep(phase, training, state)

            measure = model._measure_map(validation)
            epoch_rates = model._epochs(state, epochs, measure, monitor=self._monitor, on_epoch=self._on_epoch)
            with closing(epoch_rates):
                for rate in epoch_rates:
                    loss = training.run_epoch(state.epoch, rate, first=state.batch, total=state.total, after=after)
                    state.batch, state.total, state.means_of_epoch = 0, 0.0, EpochLoss(loss)
                    layers = [array for layer in training.network.layers() for array in layer]
                    state.published = (*layers, training.table.rows)
                    model._publish(*state.published)
                    model._refuse_non_finite()

    def _training(self, phase: int, images: NDArray[np.int64]) -> DeepTraining:
        model = self._model
        rng = np.random.default_rng([self._seed, phase])
        score = model._start_score(self._Y)
        rows, model.vector_scale_ = start_vectors(
            model.known("word_vectors"), self._Y.shape[1], model.dim, rng, common=bool(score)
        )
        network = DeepNetwork(
            [self._X.shape[1], *model.hidden, rows.shape[1]],
            dropout=model.dropout,
            batch_norm=model.batch_norm,
            scale=model.scale_,
            rng=rng,
        )
        if score:
            network.offsets[-1].data += torch.from_numpy(offset_for(rows, score))
        table = WordTable(rows, moving=model._words_move(), device=self._device)
        with_tags = images[np.diff(self._Y.indptr)[images] > 0]
        return DeepTraining(
            network, table, model._objective(self._Y), self._X, with_tags, model,
            seed=[self._seed, phase], device=self._device,
        )  # fmt: skip

    def _start_state(self, phase: int, training: DeepTraining) -> DeepState:
        state, kept = DeepState(), self._kept
        if kept is None or kept.numbers["phase"] != phase:
            return state
        training.restore(kept.arrays)
        numbers = kept.numbers
        best = numbers["best"]
        if best["epoch"]:
            state.best_epoch, state.best_value = best["epoch"], best["value"]
            state.best_weights = tuple(np.array(kept.arrays[f"best.{number}"]) for number in range(best["arrays"]))
        state.epoch, state.batch, state.total = numbers["epoch"], numbers["batch"], numbers["total"]
        state.history = list(numbers["history"])
        return state

    def _keep(self, phase: int, training: DeepTraining, state: DeepState) -> None:
        best_value = state.best_value if state.best_epoch else 0.0
        numbers = {
            "seed": self._seed,
            "phase": phase,
            "epoch": state.epoch,
            "batch": state.batch,
            "total": state.total,
            "history": state.history,
            "best": {"epoch": state.best_epoch, "value": best_value, "arrays": len(state.best_weights)},
            "first": self._first.numbers,
        }
        arrays: Arrays = training.state() | self._first.arrays
        arrays |= {f"best.{number}": array for number, array in enumerate(state.best_weights)}
        self._checkpoint.write(numbers, arrays)
