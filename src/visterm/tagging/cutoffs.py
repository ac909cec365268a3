"""How many tags an image is given: those above a cut-off that the run's held-out images chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_number
from visterm.core.errors import UserError
from visterm.core.types import Matrix
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.cutoffs import Cutoff, cutoff_at, cutoff_for_precision, cutoff_of_best_f1


def cutoff_of(
    calibration: Calibration | None,
    *,
    precision: float | None = None,
    best_f1: bool = False,
    min_confidence: float | None = None,
) -> Cutoff | None:
    """Choose the cut-off that is asked for; None where none is.

    Parameters
    ----------
    calibration : Calibration or None
        Of the run.
    precision : float, optional
        Each tag is given down to this expected precision over the held-out images, see `cutoff_for_precision`.
    best_f1 : bool
        All tags are given down to the confidence of the best F1.
    min_confidence : float, optional
        All tags are given down to this confidence. Beside one of the others, the higher one of each tag counts.

    Raises
    ------
    UserError
        If a number is out of its range, both precision and F1 are asked for, or the run does not know what it takes.
    """
    if precision is not None:
        check_number(precision, "precision", above=0, below=1)
    if min_confidence is not None:
        check_number(min_confidence, "min_confidence", least=0, most=1)
    if precision is not None and best_f1:
        raise UserError("A wanted precision and the best F1 are two cut-offs. Leave one of the two out.")
    if precision is None and not best_f1 and min_confidence is None:
        return None
    if calibration is None:
        raise UserError(
            "This run has no calibration, so nothing is known of how likely its tags are right. Fit the run anew "
            "(visterm fit, of 100 or more images with tags known by pixels or features, without --no-calibration), or "
            "ask for a number of tags (-k)."
        )
    n_tags = calibration.slope.size
    found = cutoff_at(0.0 if min_confidence is None else min_confidence, n_tags)
    if precision is None and not best_f1:
        return found
    if calibration.held_out is None:
        raise UserError(
            "This run was written before runs kept what cut-offs are chosen by. Fit the run anew, or give the "
            "confidence yourself (--min-confidence)."
        )
    chosen = (
        cutoff_of_best_f1(calibration.held_out)
        if precision is None
        else cutoff_for_precision(calibration.held_out, precision)
    )
    return Cutoff(np.maximum(chosen.least, found.least), chosen.wanted)


def tags_above(
    model: Any, X: Matrix, calibration: Calibration, cutoff: Cutoff, k: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield the tags of each image above the cut-off, best first by their scores, with these; `k` at most, 0: all."""
    for _, block in model.score_blocks(X):
        given = calibration.confidences(block) >= cutoff.least
        for scores, above in zip(block, given, strict=True):
            ids = np.flatnonzero(above)
            ids = ids[np.lexsort((ids, -scores[ids]))][: k or None]
            yield ids, scores[ids]
