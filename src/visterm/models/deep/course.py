"""The course of a deep tagger's fit: epochs until the validation MAP stops rising, then on all images; checkpoints."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.progress import Progress
from visterm.core.threads import resolve_jobs
from visterm.core.types import Matrix
from visterm.encoders.torch_network import torch_device
from visterm.metrics.ranking import average_precisions
from visterm.models.deep.checkpoint import Arrays, Kept, TrainingCheckpoint
from visterm.models.deep.data_parallel import ALONE, DataParallel, part_of
from visterm.models.deep.dense_layers import Layer
from visterm.models.deep.network import DeepNetwork
from visterm.models.deep.training import DeepTraining, Steps, torch_settings
from visterm.models.deep.word_table import WordTable
from visterm.models.epochs import rate_factor
from visterm.models.stopping import BestWeights, HeldOutFit, OnEpoch, hold_out, says_stop

HOLDING_OUT, FIRST, SECOND = 0, 1, 2
"""What random draws of the fit are keyed by, beside its seed."""

Validation = tuple[Matrix, sp.csr_array]


class Place(NamedTuple):
    """How far a training is: batches of an epoch that are done, the sum of their losses, and the epochs before."""

    epoch: int
    batch: int
    total: float
    history: list[dict[str, Any]]


class DeepCourse:
    """One fit of a deep tagger.

    Parameters
    ----------
    model : DeepTagger
        Its settings are used, and its learned attributes set.
    X : array or CSR of float32, shape (n_images, n_features)
    Y : csr_array, shape (n_images, n_tags)
    seed : int
        Of all draws; that of the checkpoint, where there is one, stands for it.
    checkpoint : TrainingCheckpoint
    together : DataParallel
        The processes that train; the first alone writes checkpoints, which all can read.
    monitor : Progress

    Raises
    ------
    StorageError
        If the processes do not see the same checkpoint.
    """

    def __init__(
        self,
        model: Any,
        X: Matrix,
        Y: sp.csr_array,
        *,
        seed: int,
        checkpoint: TrainingCheckpoint,
        together: DataParallel,
        monitor: Progress,
    ) -> None:
        self._model, self._X, self._Y, self._monitor = model, X, Y, monitor
        self._checkpoint, self._kept, self._together = checkpoint, checkpoint.read(), together
        _check_agreed(self._kept, together)
        self._seed = self._kept.numbers["seed"] if self._kept else together.agreed(seed)
        self._device = torch_device(model.device)
        self._first: Kept = Kept({}, {})
        self._on_epoch: OnEpoch | None = None

    def run(self, valid: Validation | None, on_epoch: OnEpoch | None = None) -> None:
        """Train, by validation rows where there are any or enough images to hold some out, and leave no checkpoint."""
        model, self._on_epoch = self._model, on_epoch
        every = np.arange(self._X.shape[0])
        if valid is None:
            rng = np.random.default_rng([self._seed, HOLDING_OUT])
            trained, held = hold_out(every.size, model.valid_share, rng)
        else:
            trained, held = every, every[:0]
        model.n_held_out_ = held.size
        if held.size == 0:
            self._train(FIRST, every, valid, model.epochs)
        else:
            self._train_twice(trained, held, every)
        if self._together.rank == 0:
            self._checkpoint.remove()

    def _train_twice(self, trained: NDArray[np.int64], held: NDArray[np.int64], every: NDArray[np.int64]) -> None:
        """Train on some images and stop by those held out, then on all for as many epochs as were best."""
        model, kept = self._model, self._kept
        if kept is None or kept.numbers["phase"] == FIRST:
            self._train(FIRST, trained, (self._X[held], self._Y[held]), model.epochs)
            rows = {"held.image_rows": model._image_rows(self._X[held]), "held.tag_rows": model.tag_rows_}
            self._first = Kept({"history": model.history_, "epochs": model.n_epochs_}, rows)
        else:
            rows = {name: array for name, array in kept.arrays.items() if name.startswith("held.")}
            self._first = Kept(kept.numbers["first"], rows)
        arrays = self._first.arrays
        self._train(SECOND, every, None, self._first.numbers["epochs"])
        model.history_ = self._first.numbers["history"]
        model._held_out = HeldOutFit(held, arrays["held.image_rows"], arrays["held.tag_rows"])

    def _train(self, phase: int, images: NDArray[np.int64], judged: Validation | None, epochs: int) -> None:
        """Run epochs from start values, or from the checkpoint, and publish the best weights or the last."""
        model = self._model
        n_jobs, work = resolve_jobs(model.n_jobs), model._work(self._X.shape[1], self._Y.shape[1])
        with torch_settings(n_jobs, work, half=model.half):
            training = self._training(phase, images)
            best, place = self._enter(phase, training)
            measure = _measure(model, judged, self._together)
            self._monitor.start("train", epochs)
            self._monitor.advance(len(place.history))
            model.history_ = list(place.history)
            try:
                while len(model.history_) < epochs and not (best.epoch and best.exhausted):
                    self._run_epoch(phase, training, best, place, measure)
                    if says_stop(self._on_epoch, model.history_[-1]):
                        break
                    place = Place(place.epoch + 1, 0, 0.0, model.history_)
            finally:
                self._monitor.finish()
        model.n_epochs_ = best.epoch or len(model.history_)
        if best.weights:
            *layers, rows = best.weights
            pairs = zip(layers[::2], layers[1::2], strict=True)
            model._publish([Layer(weights, offsets) for weights, offsets in pairs], rows)
        else:
            model._publish(training.network.layers(), training.table.rows)

    def _run_epoch(self, phase: int, training: DeepTraining, best: BestWeights, place: Place, measure: Any) -> None:
        model = self._model
        start = time.perf_counter()

        def after(batch: int, total: float) -> None:
            done = (place.epoch - 1) * training.n_batches + batch
            if model.checkpoint is not None and done % model.checkpoint_batches == 0:
                self._keep(phase, training, best, place._replace(batch=batch, total=total))

        rate = rate_factor(model.schedule, place.epoch, model.epochs)
        loss = training.run_epoch(place.epoch, rate, first=place.batch, total=place.total, after=after)
        layers = training.network.layers()
        model._publish(layers, training.table.rows)
        model._refuse_non_finite()
        found = None if measure is None else measure()
        seconds = time.perf_counter() - start
        model.history_.append({"epoch": place.epoch, "loss": loss, "map": found, "seconds": seconds})
        if found is None:
            self._monitor.advance(1, f"loss {loss:.3f}")
            return
        best.offer(found, *(array for layer in layers for array in layer), training.table.rows)
        self._monitor.advance(1, f"MAP {found:.3f}, best {best.value:.3f} after {best.epoch}")

    def _training(self, phase: int, images: NDArray[np.int64]) -> DeepTraining:
        model = self._model
        rng = np.random.default_rng([self._seed, phase])
        rows = model._start_rows(self._Y.shape[1], rng)
        network = DeepNetwork(
            [self._X.shape[1], *model.hidden, rows.shape[1]],
            dropout=model.dropout,
            batch_norm=model.batch_norm,
            scale=model.scale_,
            rng=rng,
            together=self._together,
        )
        steps = Steps(
            batch_size=model.batch_size,
            learning_rate=model.learning_rate,
            tag_learning_rate=model.tag_learning_rate,
            l2=model.l2,
            max_gradient=model.max_gradient,
            half=model.half,
        )
        table = WordTable(rows, moving=model._words_move(), device=self._device)
        with_tags = images[np.diff(self._Y.indptr)[images] > 0]
        objective = model._objective(self._Y)
        key = [self._seed, phase]
        where: Any = {"device": self._device, "together": self._together}
        return DeepTraining(network, table, objective, self._X, with_tags, steps, seed=key, **where)

    def _enter(self, phase: int, training: DeepTraining) -> tuple[BestWeights, Place]:
        """Begin, or go on where the checkpoint is."""
        best = BestWeights(self._model.patience)
        kept = self._kept
        if kept is None or kept.numbers["phase"] != phase:
            return best, Place(1, 0, 0.0, [])
        training.restore(kept.arrays)
        numbers = kept.numbers
        weights = [np.array(kept.arrays[f"best.{place}"]) for place in range(numbers["best"]["arrays"])]
        best.resume(numbers["best"]["epoch"], numbers["best"]["value"], len(numbers["history"]), weights)
        return best, Place(numbers["epoch"], numbers["batch"], numbers["total"], numbers["history"])

    def _keep(self, phase: int, training: DeepTraining, best: BestWeights, place: Place) -> None:
        if self._together.rank > 0:
            return
        numbers = {
            "seed": self._seed,
            "phase": phase,
            **place._asdict(),
            "best": {"epoch": best.epoch, "value": best.value if best.epoch else 0.0, "arrays": len(best.weights)},
            "first": self._first.numbers,
        }
        arrays: Arrays = training.state() | self._first.arrays
        arrays |= {f"best.{number}": array for number, array in enumerate(best.weights)}
        self._checkpoint.write(numbers, arrays)


def _measure(model: Any, judged: Validation | None, together: DataParallel) -> Any:
    """Return what measures the published weights on validation images, each process on its part; None without tags."""
    if judged is None:
        return None
    X, Y = judged
    rows = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr))
    if rows.size == 0:
        return None
    if rows.size < together.size:  # all measure them: every process needs a row
        together = ALONE
    mine = rows[part_of(rows.size, together.rank, together.size).rows]
    X, Y = X[mine], Y[mine]

    def measure() -> float:
        found = torch.from_numpy(average_precisions(model.score_blocks(X), Y))
        return float(np.nanmean(together.gathered(found, rows.size).numpy()))

    return measure


def _check_agreed(kept: Kept | None, together: DataParallel) -> None:
    """Refuse to go on where the processes would do so from different places."""
    told = b"" if kept is None else json.dumps(kept.numbers, sort_keys=True).encode()
    number = int.from_bytes(hashlib.sha256(told).digest()[:7], "big")
    differ = int(together.total(torch.tensor(float(number != together.agreed(number)))))
    if differ:
        raise StorageError(
            f"{differ} of {together.size} workers do not see the checkpoint that the first one sees. Name a folder for "
            "it on a disk that all machines share."
        )
