"""A deep tagger learns in several processes: each computes its part of every batch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import UserError
from visterm.core.executor import Executor, Member
from visterm.core.packing import json_params
from visterm.core.progress import Progress
from visterm.core.tables import MODELS
from visterm.core.wording import first_or
from visterm.features.streaming.handed_over import read_matrix, write_matrix
from visterm.features.training_rows import TrainingRows
from visterm.models.abilities import FitsTogether
from visterm.models.base import Annotator
from visterm.models.deep.checkpoint import matrix_fingerprint

STATE, ROWS = "state", "rows"
MATRICES = ("X", "Y", "valid_X", "valid_Y", "words")

OF_SPEED = ("checkpoint", "checkpoint_batches", "device", "n_jobs")
"""Settings that a checkpoint may be gone on with whatever they are."""


class DeepFit(NamedTuple):
    """What a worker has to know; everything large lies in the folder."""

    model: Annotator  # With its settings, not fitted
    folder: Path  # With the rows (`write_matrix`)

    def run(self, member: Member, progress: Progress) -> dict[str, Any] | None:
        """Fit in step with the others; the first gives what the model has learned."""
        import torch.distributed as dist

        from visterm.models.deep.torch_data_parallel import TorchDataParallel

        model = self.model
        model.set_params(n_jobs=member.n_threads)
        _join(member)
        try:
            X, Y, X_valid, Y_valid, words = (read_matrix(self.folder, name) for name in MATRICES)
            if words is not None:
                model.set_params(word_vectors=words)
            valid = None if X_valid is None else (X_valid, Y_valid)
            model.fit_together(X, Y, TorchDataParallel(), valid=valid, monitor=progress)
        finally:
            dist.destroy_process_group()
        return _learned(model) if member.rank == 0 else None


def check_fits_together(model: Annotator) -> None:
    """Refuse a model that cannot learn in several processes. Raises UserError if so; it names those that can."""
    params = model.get_params(deep=False)
    if not isinstance(model, FitsTogether):
        kinds = {entry.name: MODELS.load(entry.name) for entry in MODELS}
        able = [name for name, kind in kinds.items() if issubclass(kind, FitsTogether)]
        of_features = [name for name, kind in kinds.items() if getattr(kind, "learns_together", False)]
        raise UserError(
            f"--ray needs another model than {MODELS.name_of(model)}: add --model {first_or(able)}, from features also "
            f"{first_or(of_features)}; or leave --ray out."
        )
    device = params.get("device", "cpu")
    if device not in ("auto", "cpu"):
        raise UserError(f"Workers compute on processors, and device is '{device}'. Leave --ray out to train on a GPU.")


def fit_on_machines(model: Annotator, rows: TrainingRows, executor: Executor, folder: Path, progress: Progress) -> int:
    """Fit a model as its `fit` does, to the same weights but for rounding, in the processes of an executor.

    All rows are written to the folder once, and are mapped into the processes' memory from there: a disk that all
    machines share. The state is kept in it every `checkpoint_batches` batches: from there a job goes on after a worker,
    a machine or the command is lost. In the end the folder is removed.

    Returns how many processes began; 0 if all was learned here, as there is one batch an epoch. Raises UserError if the
    model cannot (`check_fits_together`), the images are known by number, or the executor has no machines; StorageError
    if workers were lost again and again, or do not see the folder.
    """
    check_fits_together(model)
    if rows.by_number:
        raise UserError("Images known by number are learned from in one process, as each has a row of its own here.")
    if rows.X.shape[0] <= model.batch_size:
        model.fit(rows.X, rows.Y, valid=rows.valid, monitor=progress)
        return 0
    folder = folder.absolute()
    given = _matrices(model, rows)
    of = _named(model, given)
    with executor.connect() as there:
        group = there.group
        group = group._replace(n_workers=max(1, min(group.n_workers, model.batch_size // 2)))  # the least of a batch
        _sweep(folder, kept=of)
        try:
            (folder / ROWS).mkdir(parents=True)
            for name, matrix in given.items():
                if matrix is not None:
                    write_matrix(folder / ROWS, name, matrix)
            sent = _unfitted(model, folder / f"{STATE}.{of}")
            found = executor.run_together(DeepFit(sent, folder / ROWS).run, group, folder, progress)
        finally:
            _sweep(folder, kept=of)
    for name in _learned(model):
        delattr(model, name)
    for name, value in (found or {}).items():
        setattr(model, name, value)
    _sweep(folder, kept="")
    return group.n_workers


def _join(member: Member) -> None:
    """Meet the other processes: torch's own way to talk among them, by gloo."""
    import torch.distributed as dist

    store, place = None, ("", 0)
    if member.rank == 0:
        store = dist.TCPStore(member.host, 0, is_master=True, wait_for_workers=False)  # at a port that is free
        place = member.host, store.port
    place = member.broadcast(place)
    store = store or dist.TCPStore(*place, is_master=False)
    dist.init_process_group("gloo", store=store, rank=member.rank, world_size=member.size)


def _learned(model: Annotator) -> dict[str, Any]:
    """Return all that a fit has set."""
    return {
        name: value
        for name, value in vars(model).items()
        if name == "_held_out" or (name.endswith("_") and not name.startswith("_"))
    }


def _matrices(model: Annotator, rows: TrainingRows) -> dict[str, Any]:
    X_valid, Y_valid = rows.valid or (None, None)
    return dict(zip(MATRICES, (rows.X, rows.Y, X_valid, Y_valid, model.word_vectors), strict=True))


def _named(model: Annotator, given: Mapping[str, Any]) -> str:
    """Name a training by its settings and rows, so that another one does not go on from its checkpoint."""
    settings = {name: value for name, value in json_params(model).items() if name not in OF_SPEED}
    prints = [None if matrix is None else matrix_fingerprint(matrix) for matrix in given.values()]
    return hashlib.sha256(json.dumps([MODELS.name_of(model), settings, prints]).encode()).hexdigest()[:16]


def _unfitted(model: Annotator, state: Path) -> Any:
    """Make the model that is sent: word vectors lie among the rows, and a folder for checkpoints is there."""
    params = model.get_params(deep=False)
    changed = {"word_vectors": None, "device": "cpu", "checkpoint": os.path.abspath(params["checkpoint"] or state)}
    return type(model)(**{**params, **changed})


def _sweep(folder: Path, *, kept: str) -> None:
    """Remove what trainings put into the folder, but for checkpoints of one; and the folder, if nothing is left."""
    for pattern in (f"{STATE}.*", f".{STATE}.*", ROWS):
        for old in folder.glob(pattern):
            if not (kept and kept in old.name):
                shutil.rmtree(old, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
