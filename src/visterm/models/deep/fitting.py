"""One fit of a deep tagger: train until the validation MAP stops rising, then on all images; can be resumed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from visterm.core.errors import StorageError
from visterm.core.persist import load_arrays, new_folder, open_folder, read_json, save_arrays, write_json
from visterm.core.progress import Progress
from visterm.core.threads import resolve_jobs
from visterm.core.types import Matrix
from visterm.encoders.torch_loading import torch_device
from visterm.models.deep.training import Arrays, DeepNetwork, DeepTraining, Ints, torch_settings
from visterm.models.deep.word_table import BLOCK_ROWS, WordTable, start_vectors
from visterm.models.epochs import TrainingState, Validation
from visterm.models.stopping import HeldOutFit, OnEpoch, hold_out

FOLDER_KIND = "checkpoint"
HOLD_OUT_PHASE, FIRST_PHASE, SECOND_PHASE = 0, 1, 2  # Phases of a fit: each is a part of the seeds of its random draws


class CheckpointContents(NamedTuple):
    """The contents of a checkpoint."""

    numbers: dict[str, Any]  # Values for JSON
    arrays: Arrays


class TrainingCheckpoint:
    """The state of a training, saved in a folder (None: not saved); a failed write keeps the previous state.

    `training` identifies the training by JSON values: settings, and fingerprints of data.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, training: dict[str, Any]) -> None:
        self._folder = None if folder is None else Path(folder)
        self._training = json.loads(json.dumps(training))  # as read from a file: tuples become lists

    def read(self) -> CheckpointContents | None:
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
        return CheckpointContents(stored["numbers"], load_arrays(folder / "arrays.safetensors"))

    def write(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        """Save a state, which replaces the previous state."""
        if self._folder is None:
            return
        with new_folder(self._folder, FOLDER_KIND) as folder:
            write_json(folder / "training.json", {"training": self._training, "numbers": numbers})
            save_arrays(
                folder / "arrays.safetensors", {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            )

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
        self._checkpoint, self._stored = checkpoint, checkpoint.read()
        self._seed = self._stored.numbers["seed"] if self._stored else seed
        self._device = torch_device(model.device)
        self._first_training: CheckpointContents = CheckpointContents({}, {})

    def run(self, valid: Validation | None) -> None:
        """Train, with early stopping if there are validation rows or enough images, and remove the checkpoint."""
        model = self._model
        all_images = np.arange(self._X.shape[0])
        rng = np.random.default_rng([self._seed, HOLD_OUT_PHASE])
        share = model.share_to_hold_out if valid is None else 0.0
        training_ids, held_out = hold_out(all_images.size, share, rng)
        model.n_held_out_ = held_out.size
        if held_out.size == 0:
            self._train(FIRST_PHASE, all_images, valid, model.epochs)
        else:
            self._train_twice(training_ids, held_out, all_images)
        self._checkpoint.remove()

    def _train_twice(self, training_ids: Ints, held_out: Ints, images: Ints) -> None:
        """Find the best number of epochs with held-out images, then train on all images for this number of epochs."""
        model, stored = self._model, self._stored
        if stored is None or stored.numbers["phase"] == FIRST_PHASE:
            self._train(FIRST_PHASE, training_ids, (self._X[held_out], self._Y[held_out]), model.epochs)
            rows = {"held.image_rows": model._image_rows(self._X[held_out]), "held.tag_rows": model.tag_rows_}
            self._first_training = CheckpointContents({"history": model.history_, "epochs": model.n_epochs_}, rows)
        else:
            rows = {name: array for name, array in stored.arrays.items() if name.startswith("held.")}
            self._first_training = CheckpointContents(stored.numbers["first"], rows)
        arrays = self._first_training.arrays
        self._train(SECOND_PHASE, images, None, self._first_training.numbers["epochs"])
        model.history_ = self._first_training.numbers["history"]
        model._held_out = HeldOutFit(held_out, arrays["held.image_rows"], arrays["held.tag_rows"])

    def _train(self, phase: int, images: Ints, validation: Validation | None, epochs: int) -> None:
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

            measure = model._measure_map(validation)
            model._epochs(state, epochs, measure, run_epoch, monitor=self._monitor, on_epoch=self._on_epoch)

    def _training(self, phase: int, images: Ints) -> DeepTraining:
        model = self._model
        rng = np.random.default_rng([self._seed, phase])
        score = model._start_score(self._Y)
        rows, model.vector_scale_ = start_vectors(
            model.known("word_vectors"), self._Y.shape[1], model.dim, rng, shared_bias=bool(score)
        )
        network = DeepNetwork(
            [self._X.shape[1], *model.hidden, rows.shape[1]],
            dropout=model.dropout,
            batch_norm=model.batch_norm,
            scale=model.scale_,
            rng=rng,
        )
        if score:  # the offset whose products with the rows are nearest to the score
            sample = rows[:BLOCK_ROWS].astype(np.float64)
            offset = np.linalg.lstsq(sample, np.full(len(sample), score), rcond=1e-3)[0]
            network.offsets[-1].data += torch.from_numpy(np.asarray(offset, np.float32))
        table = WordTable(rows, trainable=model._words_move(), device=self._device)
        tagged_images = images[np.diff(self._Y.indptr)[images] > 0]
        return DeepTraining(
            network, table, model._objective(self._Y), self._X, tagged_images, model,
            seed=[self._seed, phase], device=self._device,
        )  # fmt: skip

    def _start_state(self, phase: int, training: DeepTraining) -> DeepState:
        state, stored = DeepState(), self._stored
        if stored is None or stored.numbers["phase"] != phase:
            return state
        training.restore(stored.arrays)
        numbers = stored.numbers
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
            "first": self._first_training.numbers,
        }
        arrays: Arrays = training.state() | self._first_training.arrays
        arrays |= {f"best.{number}": array for number, array in enumerate(state.best_weights)}
        self._checkpoint.write(numbers, arrays)
