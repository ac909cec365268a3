"""Find scores of images that a model has not learned from, and fit confidences to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix
from visterm.features.training_rows import TrainingRows
from visterm.models.abilities import HoldsOut
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.fit_calibration import MIN_IMAGES, fit_calibration
from visterm.models.stopping import visible_columns

SHARE = 0.2
"""Of the images, left out of the fit of a copy where the model itself holds none out."""

MOST_IMAGES = 2000
MOST_SCORES = 2**24
"""Held at a time: where there are very many tags, fewer images are looked at."""


def calibrate(
    model: Annotator, rows: TrainingRows, *, seed: int = 0, progress: Progress = SILENT
) -> Calibration | None:
    """Fit confidences to the scores of images that were not learned from, as cheaply as the model allows.

    These are the first there are of: the rows of the split "valid"; the images that the model held out of a first fit
    to choose when to stop, with the scores of that fit; a fifth of the images, with the scores of a copy of the model
    that is fitted on the others, which about doubles the time of fitting. In the first two cases the images have chosen
    the epoch, and so look a little better than new ones; in the last two the fit that is judged has seen fewer images
    than the model that is used, and looks a little worse.

    Parameters
    ----------
    model : Annotator
        Fitted on the rows. What it knows of held-out images is taken from it.
    rows : TrainingRows
    seed : int
        Of the images looked at, where there are more than 2,000.
    progress : Progress
        Takes the steps of the fit of a copy.

    Returns
    -------
    Calibration or None
        None for images known by number, and where less than 20 images with tags can be spared.
    """
    rng = np.random.default_rng(seed)
    held = model.take_held_out() if isinstance(model, HoldsOut) else None
    if rows.by_number:
        return None
    if rows.valid is not None:
        X_valid, Y_valid = rows.valid
        places = _some(X_valid.shape[0], Y_valid.shape[1], rng)
        return fit_calibration(_search_scores(model, X_valid[places]), Y_valid[places], rows.Y, seed=seed)
    n_images, n_tags = rows.Y.shape
    if held is not None:
        places = _some(len(held.images), n_tags, rng)
        others = np.setdiff1d(np.arange(n_images), held.images)
        return fit_calibration(held.scores(places), rows.Y[held.images[places]], rows.Y[others], seed=seed)
    left_out = np.sort(rng.permutation(n_images)[: round(SHARE * n_images)])
    left_out = left_out[_some(left_out.size, n_tags, rng)]
    others = np.setdiff1d(np.arange(n_images), left_out)
    tagged, learned = (int((np.diff(sp.csr_array(rows.Y[part] > 0).indptr) > 0).sum()) for part in (left_out, others))
    if min(tagged, learned) < MIN_IMAGES:
        return None
    copy = _unfitted(model)
    copy.fit(visible_columns(copy, rows.X[others], others), rows.Y[others], monitor=progress)
    scores = _search_scores(copy, visible_columns(copy, rows.X[left_out], others))
    return fit_calibration(scores, rows.Y[left_out], rows.Y[others], seed=seed)


def _unfitted(model: Annotator) -> Any:
    """Copy a model without what it learned; what a blend has chosen of models and weights need not be chosen again."""
    copy = clone(model)
    params = model.get_params(deep=False)
    if "candidates" in params:
        copy.set_params(candidates=[clone(member) for member in model.members_], budget=None)
    elif "weights" in params and "members" in params:
        copy.set_params(weights=model.weights_.tolist())
    return copy


def _search_scores(model: Annotator, X: Matrix) -> NDArray[np.float32]:
    """Return the scores by which a search for each tag ranks images; blends may rank the tags of an image by others."""
    rows = model.query_rows(sp.eye_array(model.n_tags_, format="csr", dtype=np.float32))
    scores: Any = model.image_rows(X) @ rows.T
    return np.ascontiguousarray(scores.toarray() if sp.issparse(scores) else scores, np.float32)


def _some(n_images: int, n_tags: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose as many images as their scores may take room."""
    most = min(MOST_IMAGES, max(1, MOST_SCORES // max(n_tags, 1)))
    return np.arange(n_images) if n_images <= most else np.sort(rng.permutation(n_images)[:most])
