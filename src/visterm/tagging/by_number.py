"""Images known only by number: learning from their tags, and the new tags that each might have."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_generator
from visterm.core.progress import Progress
from visterm.core.types import Matrix, Ranking
from visterm.features.training_rows import TrainingRows
from visterm.models.stopping import MIN_HELD_OUT
from visterm.tagging.tuning.validation import can_stop, fit_judged, fit_on_all, part_rows


def learn_by_number(model: Any, rows: TrainingRows, progress: Progress) -> Any:
    """Fit a model on tags of images known by number; epochs are chosen by tags held out, then all tags are learned.

    One tag of each of `valid_share` of the images is held out, of those with two or more; of less than 50 images it
    would say little, and all epochs are run. Held-out tags of a split "valid" are only judged by.
    """
    if rows.valid is not None:
        rng = as_generator(0)  # nothing is drawn: the split says what is held out
        return fit_judged(model, part_rows(rows, 0, rng), "map", progress).model
    share = getattr(model, "valid_share", 0)
    several = int((np.diff(sp.csr_array(rows.Y > 0).indptr) > 1).sum())
    if not can_stop(model) or min(several, round(share * rows.X.shape[0])) < MIN_HELD_OUT:
        return fit_on_all(model, rows, None, [], progress)
    parts = part_rows(rows, share, as_generator(getattr(model, "random_state", None)))
    judged = fit_judged(model, parts, "map", progress)
    return fit_on_all(model, rows, judged.epochs, judged.history, progress)


def new_tags(model: Any, X: Matrix, k: int, known: sp.csr_array) -> list[Ranking]:
    """Rank the tags that images were not told of, each image's in a ranking of its own, of at most `k`."""
    known = sp.csr_array(known)
    most = int(np.diff(known.indptr).max(initial=0))
    ids, scores = model.annotate(X, k + most if k else 0)
    found = []
    for row in range(X.shape[0]):
        told = known.indices[known.indptr[row] : known.indptr[row + 1]]
        new = np.flatnonzero(~np.isin(ids[row], told))[: k or None]
        found.append(Ranking(ids[row, new], scores[row, new]))
    return found
