"""What a run has to write of a folder of photos: the keywords that they have, and the tags that it predicts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.types import Skipped
from visterm.data.sidecars import Sidecars
from visterm.library.export.items import ExportItem, Predicted
from visterm.models.confidence.calibration import Calibration
from visterm.tagging.cutoffs import cutoff_of
from visterm.tagging.tagger import CHUNK, Tagger

MIN_CONFIDENCE = 0.5
"""Predictions of less are not written, unless another number or a precision is given."""

MOST_SCORES = 2**22
"""Held at a time."""


def items_of_run(
    tagger: Tagger,
    images: Sequence[Path],
    *,
    k: int = 0,
    min_confidence: float | None = None,
    precision: float | None = None,
    folder: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[ExportItem | Skipped]:
    """Yield what there is to write of each image.

    Parameters
    ----------
    tagger : Tagger
    images : sequence of Path
    k : int
        At most so many predictions an image, the surest; 0: all that are sure enough.
    min_confidence : float, optional
        Predictions of less are left out; 0.5 where neither this nor a precision is given.
    precision : float, optional
        Share of the predictions that shall be right, see `cutoff_of`.
    folder : Path, optional
        Names in tables are paths inside it.
    progress : Progress
        Told of each image.

    Raises
    ------
    UserError
        See `least_confidences`.
    """
    least = least_confidences(tagger.calibration, k, min_confidence, precision)
    sidecars = Sidecars()
    progress.start("export", len(images))
    try:
        for start in range(0, len(images), CHUNK):
            chunk = images[start : start + CHUNK]
            X, kept, skipped = tagger.encoder.encode(chunk, progress=Steps(progress))
            yield from skipped
            if len(kept) == 0:
                continue
            scores = scores_of(tagger, tagger.model.image_rows(X))
            for place, own in zip(kept, scores, strict=True):
                image = chunk[place]
                try:
                    given = tuple(sidecars.keywords(image).of_people)
                except DataError as error:
                    yield Skipped(str(image), f"not written: {error}")
                    continue
                found = predictions(tagger, own, k, least)
                name = os.fspath(image) if folder is None else image.relative_to(folder).as_posix()
                yield ExportItem(image, given, found, name=name)
    finally:
        progress.finish()


def least_confidences(
    calibration: Calibration | None, k: int, min_confidence: float | None, precision: float | None
) -> NDArray[np.float64] | None:
    """Return the confidence of each tag below which predictions are left out; None where only `k` counts.

    Raises
    ------
    UserError
        If there are no confidences to go by, and `k` does not say how many tags to write either.
    """
    if min_confidence is None and precision is None:
        if calibration is None and k > 0:
            return None
        min_confidence = MIN_CONFIDENCE
    cutoff = cutoff_of(calibration, precision=precision, min_confidence=min_confidence)
    return None if cutoff is None else cutoff.least


def scores_of(tagger: Tagger, U: Any) -> Iterator[NDArray[np.float32]]:
    """Yield, image by image, the scores of all tags by which confidences go, from image rows."""
    n_tags = len(tagger.vocabulary)
    columns = tagger.model.query_rows(sp.eye_array(n_tags, format="csr", dtype=np.float32)).T
    step = max(1, MOST_SCORES // max(n_tags, 1))
    for start in range(0, U.shape[0], step):
        scores: Any = U[start : start + step] @ columns
        yield from np.asarray(scores.toarray() if sp.issparse(scores) else scores, np.float32)


def predictions(
    tagger: Tagger, scores: NDArray[np.float32], k: int, least: NDArray[np.float64] | None
) -> tuple[Predicted, ...]:
    """Choose the tags of one image: the surest, or where nothing is known of that, those of the best scores."""
    calibration = tagger.calibration
    if calibration is None or least is None:
        best = np.lexsort((np.arange(len(scores)), -scores))[:k]
        return tuple(Predicted(tagger.vocabulary.tags[tag]) for tag in best)
    chances = calibration.confidences(scores)
    best = np.lexsort((np.arange(len(chances)), -chances))
    best = best[(chances >= least)[best]][: k or None]
    return tuple(Predicted(tagger.vocabulary.tags[tag], float(chances[tag])) for tag in best)
