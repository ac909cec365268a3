"""Find scores of images that a model has not learned from, and fit confidences to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.estimator import clone
from visterm.core.products import dense
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix
from visterm.features.training_rows import TrainingRows
from visterm.kernels.topk import top_k
from visterm.learning.learned import Learned
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.cutoffs import cutoff_for_precision
from visterm.models.confidence.fit_calibration import MIN_IMAGES, fit_calibration
from visterm.models.stopping import visible_columns

N_FOLDS = 5  # Each is left out of the fit of a copy, where the model itself holds too few images out
FEW = 300  # Held-out images from which on the others need not be held out in turn
MOST_IMAGES = 2000
MOST_SCORES = 2**24  # Held at a time: where there are very many tags, fewer images are looked at
RIGHT_OF_5 = "right of 5 tags"
TAGS_A_PHOTO = "tags of a photo"
SURE_TAGS = "tags at precision 0.9"
HIGHEST, N_SUREST = "highest confidence", "surest held-out tags"  # Names of what to expect, among the facts of a run


class HeldOutScores(NamedTuple):
    """Scores of images that were not learned from, their tags, and the tags of those that were learned from."""

    scores: NDArray[np.float32]  # shape (n_held_out, n_tags)
    Y: Any  # CSR, shape (n_held_out, n_tags)
    others: Any  # CSR, shape (n_learned, n_tags)
    counts: Any = None  # shape (n_tags,): training images, those held out of them included; None: those of `others`


def with_confidences(learned: Learned, rows: TrainingRows, progress: Progress = SILENT) -> Learned:
    """Return what was learned from rows with confidences, and with what new images can expect among the facts.

    Confidences are fitted to scores of images that were not learned from; there are none where these are too few.
    """
    held_out = held_out_scores(learned.model, rows, progress=progress)
    raised = None if learned.tree is None else learned.tree.raised
    calibration = None if held_out is None else fit_calibration(*held_out, raised=raised)
    if held_out is None or calibration is None:
        return learned
    facts = {"calibration images": calibration.n_images, **expectations(held_out, calibration)}
    return learned.changed(calibration=calibration, facts={**learned.facts, **facts})


def expectations(held_out: HeldOutScores, calibration: Calibration) -> dict[str, float]:
    """Return means of images: right ones of the five best tags, tags that people gave, tags at a precision of 0.9.

    Beside them, what no confidence is above, and on how many held-out entries that rests.
    """
    given = sp.csr_array(held_out.Y) > 0
    tagged = np.flatnonzero(np.diff(given.indptr))
    best = top_k(held_out.scores[tagged], min(5, given.shape[1]))[0]
    right = float(np.mean([np.isin(best[i], given[[image]].indices).sum() for i, image in enumerate(tagged)]))
    held_chances, curve = calibration.held_out, calibration.curve
    assert held_chances is not None
    assert curve is not None
    n_sure = int((held_chances.chances >= cutoff_for_precision(held_chances, 0.9).least[held_chances.tags]).sum())
    return {
        RIGHT_OF_5: right,
        TAGS_A_PHOTO: float(np.diff(given.indptr)[tagged].mean()),
        SURE_TAGS: n_sure / calibration.n_images,
        HIGHEST: 1 / (1 + math.exp(-curve.bound)),
        N_SUREST: curve.n_top,
    }


def what_to_expect(facts: Mapping[str, Any]) -> str:
    """Return the sentences for people that end a fit, of the `expectations` among the facts of a run."""
    sure = f"{facts[SURE_TAGS]:.1f}" if facts[SURE_TAGS] >= 0.05 else "fewer than 0.1"
    here = f" (people gave {facts[TAGS_A_PHOTO]:.1f})" if TAGS_A_PHOTO in facts else ""
    return (
        f"On new photos, about {facts[RIGHT_OF_5]:.1f} of the {min(5, facts['tags'])} best tags are right{here}; at a "
        f"precision of 0.9, {sure} tags per photo. Measured on {facts['calibration images']:,} held-out photos. "
        f"No confidence is above {facts[HIGHEST]:.1%}: as sure as the {facts[N_SUREST]:,} surest held-out tags allow."
    )


def held_out_scores(
    model: Annotator, rows: TrainingRows, *, seed: int = 0, progress: Progress = SILENT
) -> HeldOutScores | None:
    """Return scores of images that were not learned from, as cheaply as the model allows.

    It takes the first of these that there are: the rows of the split "valid"; the images that the model held out of a
    first fit to choose when to stop, with the scores of that fit; a fifth of the images, with the scores of a copy of
    the model that is fitted on the others. Where the last two would be fewer than 300 images, each fifth is held out
    of a copy in turn, so that every image counts: that takes about four times as long as the fit. In the first two
    cases the images have chosen the epoch, and so look a little better than new ones; in the others the fits that are
    judged have seen fewer images than the model that is used, and look a little worse.

    The model is fitted on the rows. The seed draws the images to look at, where there are more than 2,000. Returns None
    for images known by number, and where less than 20 images with tags can be spared.
    """
    rng = np.random.default_rng(seed)
    first_fit = model.take_held_out()
    if rows.by_number:
        return None
    if rows.valid is not None:
        X_valid, Y_valid = rows.valid
        places = _some(X_valid.shape[0], Y_valid.shape[1], rng)
        return HeldOutScores(search_scores(model, X_valid[places]), Y_valid[places], rows.Y)

    n_images, n_tags = rows.Y.shape
    given = sp.csr_array(rows.Y) > 0
    counts = np.asarray(given.sum(axis=0)).ravel()
    of_first_fit = None
    if first_fit is not None:
        places = _some(len(first_fit.images), n_tags, rng)
        others = np.setdiff1d(np.arange(n_images), first_fit.images)
        images = first_fit.images[places]
        learned = rows.Y[others] if others.size else rows.Y  # in folds, each image is held out once
        of_first_fit = HeldOutScores(first_fit.scores(places), rows.Y[images], learned, counts)
        if len(first_fit.images) >= FEW:
            return of_first_fit

    folds = rng.permutation(n_images) % N_FOLDS
    several = n_images < N_FOLDS * FEW
    judged = np.arange(n_images) if several else np.flatnonzero(folds == 0)
    judged = judged[_some(judged.size, n_tags, rng)]
    if np.count_nonzero(np.diff(given[judged].indptr)) < MIN_IMAGES:
        return None
    scores = np.empty((judged.size, n_tags), np.float32)
    for fold in np.unique(folds[judged]):
        others, of_fold = np.flatnonzero(folds != fold), folds[judged] == fold
        copy = unfitted(model)
        copy.fit(visible_columns(copy, rows.X[others], others), rows.Y[others], side=model._side, monitor=progress)
        if of_first_fit is not None and copy.take_held_out() is None:
            return of_first_fit  # a copy that has too few images to stop by, or to blend by, scores on another scale
        scores[of_fold] = search_scores(copy, visible_columns(copy, rows.X[judged[of_fold]], others))
    return HeldOutScores(scores, rows.Y[judged], rows.Y if several else rows.Y[others], counts)


def unfitted(model: Annotator) -> Any:
    """Copy a model without what it learned, but with the settings that its fit chose.

    A copy that chose its own, say more neighbours, would score on another scale.
    """
    copy = clone(model)
    open_settings = (name for name, value in copy.get_params(deep=False).items() if value is None)
    chosen = {name: getattr(model, f"{name}_", None) for name in open_settings}
    copy.set_params(**{name: value for name, value in chosen.items() if isinstance(value, int | float) and value})
    if hasattr(model, "candidates"):
        members = zip(model.members_, model.weights_, strict=True)
        ranking = [unfitted(member) for member, weight in members if weight]
        copy.set_params(candidates=ranking, budget=None, explainable=False)
    elif hasattr(model, "weights") and hasattr(model, "members"):
        copy.set_params(weights=model.weights_.tolist())
    return copy


def search_scores(model: Annotator, X: Matrix) -> NDArray[np.float32]:
    """Return the scores by which a search for each tag ranks images; blends may rank the tags of an image by others."""
    rows = model.query_rows(sp.eye_array(model.n_tags_, format="csr", dtype=np.float32))
    return np.ascontiguousarray(dense(model.image_rows(X) @ rows.T), np.float32)


def _some(n_images: int, n_tags: int, rng: np.random.Generator) -> NDArray[np.int64]:
    most = min(MOST_IMAGES, max(1, MOST_SCORES // max(n_tags, 1)))
    return np.arange(n_images) if n_images <= most else np.sort(rng.permutation(n_images)[:most])
