"""A problem of annotation: rows to learn from, to choose settings by and to judge by, and the metrics of a model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.packing import digest_of, key_of, learned_parts
from visterm.core.progress import Progress
from visterm.core.types import Matrix
from visterm.metrics import average_precisions, measure
from visterm.models import Annotator
from visterm.tagging import EarlyStopping
from visterm_research.comparison.methods import Method
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import Settings
from visterm_research.comparison.trials import Choice, Trials, fit_rows

CURVE = tuple(range(1, 11))
"""The k of the precision curves (WSABIE, Figure 1)."""

METRICS = ("map", "auc", "r@1", "r@5", "r@10", *(f"p@{k}" for k in CURVE))
SIBLING_METRICS = tuple(f"psib@{k}" for k in CURVE)

COST_IMAGES, COST_ROUNDS, COST_TAGS = 200, 5, 10
"""Images that are annotated together to time it, how often, and the tags that each is given."""


@dataclass(frozen=True)
class Rows:
    """Features of images and what a model is judged by.

    Attributes
    ----------
    X : array or csr_array, shape (n_images, n_features)
    Y : csr_array, shape (n_images, n_tags)
        Above 0: right.
    known : csr_array, shape (n_images, n_tags), optional
        Tags of these images that the model learned from: left out of their rankings.
    """

    X: Matrix
    Y: sp.csr_array
    known: sp.csr_array | None = None


@dataclass(frozen=True)
class Problem:
    """One data set, ready to be learned.

    Attributes
    ----------
    name : str
        Short, as it names folders: "corel5k".
    what : str
        A line on where it comes from and how it was parted.
    tags : list of str
        The columns of every `Y`.
    train, valid, test : Rows
    siblings : csr_array, shape (n_tags, n_tags), optional
        S of WSABIE's section 4: 1 where two tags are the same or share a parent.
    by_number : bool
        Whether images have no features but their number: the rows of `X` are those of an identity matrix, and the
        images of `valid` and `test` are among those of `train`.
    test_names : list of str
        What the test images are called, for examples; empty where they have no names.
    test_images : list of paths
        Where they lie, for pictures; empty where there are none.
    """

    name: str
    what: str
    tags: list[str]
    train: Rows
    valid: Rows
    test: Rows
    siblings: sp.csr_array | None = None
    by_number: bool = False
    test_names: list[str] = field(default_factory=list)
    test_images: list[Any] = field(default_factory=list)

    measure: ClassVar[str] = "map"
    criteria: ClassVar[Sequence[str]] = ("map",)

    @cached_property
    def fingerprint(self) -> str:
        """Name what a fit depends on: changes whenever a training or validation row does."""
        return digest_of([self.train.X, self.train.Y, self.valid.X, self.valid.Y, self.valid.known])

    @cached_property
    def test_fingerprint(self) -> str:
        """Name the rows of the final judgement."""
        return digest_of([self.test.X, self.test.Y, self.test.known, self.siblings])

    @property
    def nonzeros(self) -> float:
        """Mean number of features of an image that are not zero (d₀ below; d with a slashed 0 in WSABIE's Table 6)."""
        return mean_nonzeros(self.train.X)

    def about(self, method: Method, settings: Settings) -> Record:
        """Return what stands in a record for people."""
        return {"model": method.model, "settings": settings}

    def shared(self) -> dict[str, Any]:
        """Return that nothing is held out, where the images of the validation rows are among the training rows."""
        return {"valid_share": 0.0} if self.by_number else {}

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model; one of images by number stops early by rankings without its known tags."""
        if not self.by_number:
            return fit_rows(model, self.train, self.valid, progress)
        if not hasattr(model, "patience"):
            began = time.perf_counter()
            model.fit(self.train.X, self.train.Y, monitor=progress)
            return model, {"seconds": time.perf_counter() - began, "epoch": getattr(model, "n_epochs_", None)}
        stopping = EarlyStopping(model, lambda one: validation_map(one, self.valid), int(model.patience), progress)
        began = time.perf_counter()
        model.fit(self.train.X, self.train.Y, monitor=progress, on_epoch=stopping)
        points = [_point(entry, *point) for entry, point in zip(model.history_, stopping.curve, strict=True)]
        fit = {"seconds": time.perf_counter() - began, "epoch": stopping.best_epoch, "curve": points}
        return stopping.best, {"map": stopping.curve[stopping.best_epoch - 1][1], **fit}

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure MAP over the validation images, with the curve of the training."""
        if "map" in fit:
            return fit
        history = getattr(model, "history_", [])
        clock = np.cumsum([entry["seconds"] for entry in history])
        curve = [_point(entry, float(at), entry["map"]) for entry, at in zip(history, clock, strict=True)]
        return {"map": validation_map(model, self.valid), **fit, "curve": curve}

    def score(self, measured: Any, _criterion: str) -> float:
        """Return the MAP."""
        return float(measured)

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Name a judgement by its fit and the test rows."""
        return key_of(trials.key(self, choice.method.model, choice.settings), self.test_fingerprint)

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Measure the metrics of every test image, and what annotating costs."""
        values = judge_rows(model, self.test, self.siblings)
        metrics = {name: float(np.nanmean(array)) for name, array in values.items()}
        cost = measure_cost(model, self.test.X, trials.seed)
        record = {"arm": choice.method.label, "settings": choice.settings, "metrics": metrics, "cost": cost}
        return record, values


def mean_nonzeros(X: Any) -> float:
    """Return the mean number of features of an image that are not zero."""
    stored = int(X.nnz) if sp.issparse(X) else int(np.count_nonzero(X))
    return stored / max(1, int(X.shape[0]))


def validation_map(model: Annotator, rows: Rows) -> float:
    """Return MAP over images: what every setting is chosen by."""
    return float(np.nanmean(average_precisions(model.score_blocks(rows.X), rows.Y, exclude=rows.known)))


def judge_rows(model: Annotator, rows: Rows, siblings: sp.csr_array | None) -> dict[str, NDArray[np.float64]]:
    """Return all metrics image by image; those of siblings where it is known which tags are.

    Returns
    -------
    dict of str to ndarray of float64, shape (n_images,)
        NaN where an image has no right tag.
    """
    metrics = METRICS if siblings is None else (*METRICS, *SIBLING_METRICS)
    return measure(lambda: model.score_blocks(rows.X), rows.Y, metrics, exclude=rows.known, siblings=siblings)


def measure_cost(model: Annotator, X: Matrix, seed: int) -> dict[str, float]:
    """Time a model on a few test images, and count the bytes of its learned arrays.

    Returns
    -------
    dict of str to float
        ``alone``: median seconds of annotating one image by itself with its best 10 tags; ``batch``: seconds an image
        where up to 200 are annotated together, the median of 5 rounds; ``bytes``.
    """
    some = X[np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:COST_IMAGES])]
    n_images = some.shape[0]

    def seconds(images: Matrix) -> float:
        began = time.perf_counter()
        model.annotate(images, COST_TAGS)
        return time.perf_counter() - began

    seconds(some)
    alone = [seconds(some[row : row + 1]) for row in range(n_images)]
    batch = [seconds(some) / n_images for _ in range(COST_ROUNDS)]
    n_bytes = sum(part.nbytes for _, part in learned_parts(model, ""))
    return {"alone": float(np.median(alone)), "batch": float(np.median(batch)), "bytes": float(n_bytes)}


def _point(entry: Any, seconds: float, found: float | None) -> Record:
    """Return one epoch of a training curve."""
    drawn = {name: entry.get(name) for name in ("draws", "violated")}
    return {"epoch": entry["epoch"], "seconds": seconds, "map": found, **drawn}
