"""Score images that a model was not trained on, and fit confidences to these scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.estimator import clone
from visterm.core.products import dense
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Floats, Ints, Matrix
from visterm.features.training_rows import TrainingRows
from visterm.kernels.topk import top_k
from visterm.learning.learned import Learned
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration, cutoff_for_precision
from visterm.models.confidence.fit_calibration import MIN_IMAGES, fit_calibration
from visterm.models.stopping import visible_columns

N_FOLDS = 5  # Number of folds of the cross-fit, used if the model holds out too few images
ENOUGH_HELD_OUT = 300  # With this many held-out images, no cross-fit is needed
MAX_IMAGES = 2000  # Maximum number of images to score
MAX_SCORES = 2**24  # Maximum number of scores in memory: with very many tags, fewer images are scored

# Keys of the expected results, as a run's `facts` store them
N_CORRECT_TAGS = "right of 5 tags"
N_GIVEN_TAGS = "tags of a photo"
N_LOWEST_TAGS = "tags of a photo without those above"
N_PRECISE_TAGS = "tags at precision 0.9"
MAX_CONFIDENCE = "highest confidence"
N_MOST_CONFIDENT = "surest held-out tags"


class HeldOutScores(NamedTuple):
    """Scores and tags of held-out images, and the tags of the images that their model was trained on."""

    scores: Floats  # shape (n_held_out, n_tags)
    Y: Any  # CSR, shape (n_held_out, n_tags)
    Y_learned: Any  # CSR, shape (n_learned, n_tags)
    counts: Any = None  # shape (n_tags,): training images per tag, including held-out ones; None: count `Y_learned`


def with_confidences(learned: Learned, rows: TrainingRows, progress: Progress = SILENT) -> Learned:
    """Return `learned` with a calibration, and with the results to expect on new images among its facts.

    The calibration is fitted to the scores of held-out images. With too few of them, `learned` is returned unchanged.
    """
    held_out = held_out_scores(learned.model, rows, progress=progress)
    tree = learned.tree
    calibration = None if held_out is None else fit_calibration(*held_out, raised=None if tree is None else tree.raised)
    if held_out is None or calibration is None:
        return learned
    expected = expectations(held_out, calibration, None if tree is None else tree.below)
    facts = {"calibration images": calibration.n_images, **expected}
    return learned.changed(calibration=calibration, facts={**learned.facts, **facts})


def expectations(
    held_out: HeldOutScores, calibration: Calibration, below: sp.csr_array | None = None
) -> dict[str, float]:
    """Return means over images: numbers of correct tags among the best five, given tags, and tags at precision 0.9.

    With a tree (`TreeColumns.below`), also the number of given tags without those above another one, which follow from
    it. Also the upper limit of confidences, and the number of held-out entries that set it.
    """
    given = sp.csr_array(held_out.Y) > 0
    tagged = np.flatnonzero(np.diff(given.indptr))
    best = top_k(held_out.scores[tagged], min(5, given.shape[1]))[0]
    n_correct = [np.isin(best[i], given[[image]].indices).sum() for i, image in enumerate(tagged)]
    held_chances, curve = calibration.held_out, calibration.curve
    assert held_chances is not None
    assert curve is not None
    is_precise = held_chances.chances >= cutoff_for_precision(held_chances, 0.9)[held_chances.tags]
    n_given = np.diff(given.indptr)[tagged]
    lowest = {}
    if below is not None:
        n_above = given.multiply((given.astype(np.int32) @ below.astype(np.int32).T) > 1).sum(axis=1)
        lowest = {N_LOWEST_TAGS: float((n_given - n_above[tagged]).mean())}

    return lowest | {
        N_CORRECT_TAGS: float(np.mean(n_correct)),
        N_GIVEN_TAGS: float(n_given.mean()),
        N_PRECISE_TAGS: int(is_precise.sum()) / calibration.n_images,
        MAX_CONFIDENCE: 1 / (1 + math.exp(-curve.bound)),
        N_MOST_CONFIDENT: curve.n_top,
    }


def what_to_expect(facts: Mapping[str, Any]) -> str:
    """Return the summary that is shown after a fit, from the `expectations` in `facts`."""
    n_precise = f"{facts[N_PRECISE_TAGS]:.1f}" if facts[N_PRECISE_TAGS] >= 0.05 else "fewer than 0.1"
    n_given, n_lowest = facts.get(N_GIVEN_TAGS), facts.get(N_LOWEST_TAGS)
    given_note = f"{n_given:.1f}" if n_lowest is None else f"{n_lowest:.1f}, {n_given:.1f} with the tags above them"
    given_note = "" if n_given is None else f" (people gave {given_note})"
    return (
        f"On new photos, about {facts[N_CORRECT_TAGS]:.1f} of the {min(5, facts['tags'])} best tags are "
        f"right{given_note}; at a precision of 0.9, {n_precise} tags per photo. Measured on "
        f"{facts['calibration images']:,} held-out photos. No confidence is above {facts[MAX_CONFIDENCE]:.1%}: as sure "
        f"as the {facts[N_MOST_CONFIDENT]:,} surest held-out tags allow."
    )


def held_out_scores(
    model: Annotator, rows: TrainingRows, *, seed: int = 0, progress: Progress = SILENT
) -> HeldOutScores | None:
    """Return scores of images that the model, or a copy of it, was not trained on, as cheaply as the model allows.

    Uses the first of these that is available: the rows of the split "valid"; the images that the model held out of a
    first fit to choose when to stop, with the scores of that fit; a fifth of the images, with the scores of a copy of
    the model that is fitted on the others. If the last two have fewer than 300 images, all images are scored in a
    cross-fit of five folds, which takes about four times as long as the fit. In the first two cases the images were
    used to choose the number of epochs, so their scores are slightly optimistic; in the others the copies were trained
    on fewer images than the model, so their scores are slightly pessimistic.

    `model` is fitted on `rows`. If there are more than 2,000 such images, `seed` samples the images to score. Returns
    None for images known by number, and if fewer than 20 images with tags can be held out.
    """
    rng = np.random.default_rng(seed)
    first_fit = model.take_held_out()
    if rows.by_number:
        return None
    if rows.valid is not None:
        X_valid, Y_valid = rows.valid
        positions = _sample_positions(X_valid.shape[0], Y_valid.shape[1], rng)
        return HeldOutScores(search_scores(model, X_valid[positions]), Y_valid[positions], rows.Y)

    n_images, n_tags = rows.Y.shape
    given = sp.csr_array(rows.Y) > 0
    counts = np.asarray(given.sum(axis=0)).ravel()
    of_first_fit = None
    if first_fit is not None:
        positions = _sample_positions(len(first_fit.images), n_tags, rng)
        images, others = first_fit.images[positions], np.setdiff1d(np.arange(n_images), first_fit.images)
        Y_learned = rows.Y[others] if others.size else rows.Y  # in a cross-fit, every image is held out once
        of_first_fit = HeldOutScores(first_fit.scores(positions), rows.Y[images], Y_learned, counts)
        if len(first_fit.images) >= ENOUGH_HELD_OUT:
            return of_first_fit

    folds = rng.permutation(n_images) % N_FOLDS
    uses_all_folds = n_images < N_FOLDS * ENOUGH_HELD_OUT
    images = np.arange(n_images) if uses_all_folds else np.flatnonzero(folds == 0)
    images = images[_sample_positions(images.size, n_tags, rng)]
    if np.count_nonzero(np.diff(given[images].indptr)) < MIN_IMAGES:
        return None
    scores = np.empty((images.size, n_tags), np.float32)
    for fold in np.unique(folds[images]):
        others, is_in_fold = np.flatnonzero(folds != fold), folds[images] == fold
        copy = unfitted(model)
        copy.fit(visible_columns(copy, rows.X[others], others), rows.Y[others], side=model._side, monitor=progress)
        if of_first_fit is not None and copy.take_held_out() is None:
            return of_first_fit  # without images for early stopping or blending, the copy's scores have another scale
        scores[is_in_fold] = search_scores(copy, visible_columns(copy, rows.X[images[is_in_fold]], others))
    return HeldOutScores(scores, rows.Y[images], rows.Y if uses_all_folds else rows.Y[others], counts)


def unfitted(model: Annotator) -> Any:
    """Return an unfitted copy of a model with the settings that its fit chose; a blend keeps its models and weights.

    A copy that chooses other settings, such as more neighbours, has scores of another scale.
    """
    copy = clone(model)
    unset = (name for name, value in copy.get_params(deep=False).items() if value is None)
    chosen = {name: getattr(model, f"{name}_", None) for name in unset}
    copy.set_params(**{name: value for name, value in chosen.items() if isinstance(value, int | float) and value})
    if hasattr(model, "candidates"):
        members = zip(model.members_, model.weights_, strict=True)
        copy.keep_members(model, [unfitted(member) for member, weight in members if weight])
    elif hasattr(model, "weights") and hasattr(model, "members"):
        copy.set_params(weights=model.weights_.tolist())
    return copy


def search_scores(model: Annotator, X: Matrix) -> Floats:
    """Return the scores by which a search for each tag ranks images; blends may annotate images by other scores."""
    rows = model.query_rows(sp.eye_array(model.n_tags_, format="csr", dtype=np.float32))
    return np.ascontiguousarray(dense(model.image_rows(X) @ rows.T), np.float32)


def _sample_positions(n_images: int, n_tags: int, rng: np.random.Generator) -> Ints:
    """Return the positions of the images to score, in ascending order."""
    n_sampled = min(MAX_IMAGES, max(1, MAX_SCORES // max(n_tags, 1)))
    return np.arange(n_images) if n_images <= n_sampled else np.sort(rng.permutation(n_images)[:n_sampled])
