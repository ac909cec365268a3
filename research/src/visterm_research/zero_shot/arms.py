"""Zero-shot tagging: some tags are kept from the training images, and found on others by their word vectors alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.types import Matrix
from visterm.models import MODELS
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.zero_shot.held_out import SHARE, TagSplit, seen_rows, split_tags, zero_shot_measures
from visterm_research.zero_shot.vectors import with_common

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ZeroShotArm:
    """A model, and the word vectors that it is given.

    Attributes
    ----------
    label : str
    model : str
        As in ``visterm models``; a network into the words' space.
    source : str
        Of the vectors, as `word_sources` names them: "sentences", "learned" or "random".
    settings : mapping
        Of the model.
    common : bool, optional
        Whether vectors have one more number, the same for all (`with_common`). None: where the model has the setting
        `fixed_vectors`, and it is true.
    moved : bool
        Whether vectors of held-out tags follow those of the others (equations 3 and 4), where those have moved.
    handicap : float
        What is taken off the scores of seen tags where all tags are ranked together, in standard deviations of their
        scores on training images (calibrated stacking; Chao et al. 2016): tags that were learned score higher on
        images like those that they were learned from.
    """

    label: str
    model: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    common: bool | None = None
    moved: bool = True
    handicap: float = 0.0


@dataclass(frozen=True)
class ZeroShot:
    """What an arm reaches with one draw of the held-out tags.

    Attributes
    ----------
    arm : ZeroShotArm
    seed : int
        Of the draw of held-out tags, and of the fit.
    metrics : dict of str to float
        As `zero_shot_measures` names them.
    values : dict of str to ndarray
        The same image by image or word by word, NaN where there is nothing to find.
    """

    arm: ZeroShotArm
    seed: int
    metrics: dict[str, float]
    values: dict[str, NDArray[np.float64]] = field(repr=False)


def zero_shot(
    problem: Problem,
    sources: Mapping[str, Floats],
    arms: Sequence[ZeroShotArm],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    share: float = SHARE,
    on: str = "test",
    n_jobs: int | None = 1,
    progress: Progress = SILENT,
) -> list[ZeroShot]:
    """Fit each arm once for each draw of held-out tags, on the training rows without these tags, and measure it.

    Arms that differ only in `moved` or `handicap` share a fit.

    Parameters
    ----------
    problem : Problem
    sources : mapping of str to ndarray of float32, shape (n_tags, width)
        Vectors of the tags, as `word_sources` gives them.
    arms : sequence of ZeroShotArm
    seeds : sequence of int
        A draw of held-out tags each.
    share : float
        Of the tags that is held out.
    on : {"test", "valid"}
        The rows to measure on: settings are chosen on "valid".
    n_jobs : int, optional
    progress : Progress

    Returns
    -------
    list of ZeroShot
        For each seed, all arms in their order.

    Raises
    ------
    UserError
        If `on` is something else, or an arm names a source that is not there.
    """
    rows = rows_of(problem, on)
    missing = {arm.source for arm in arms} - set(sources)
    if missing:
        raise UserError(f"There are no word vectors '{min(missing)}'; there are: {', '.join(sources)}.")
    found = []
    with reported(progress, "Draws of held-out tags", len(seeds)):
        for seed in seeds:
            split = split_tags(len(problem.tags), share=share, seed=seed)
            train = seen_rows(problem.train, split)
            fitted: list[tuple[tuple[Any, ...], Any]] = []
            for arm in arms:
                common = has_common(arm)
                vectors = with_common(sources[arm.source]) if common else sources[arm.source]
                key = (arm.model, arm.source, common, dict(arm.settings))
                model = next((model for other, model in fitted if other == key), None)
                if model is None:
                    model = fit_arm(arm, train, vectors[split.seen], seed=seed, n_jobs=n_jobs)
                    fitted.append((key, model))
                scores = zero_shot_scores(model, vectors, split, rows.X, moved=arm.moved)
                handicap = arm.handicap * float(np.std(model.decision_function(train.X))) if arm.handicap else 0.0
                values = zero_shot_measures(scores, rows.Y, split, handicap=handicap)
                metrics = {name: float(np.nanmean(each)) for name, each in values.items()}
                found.append(ZeroShot(arm, seed, metrics, values))
            progress.advance()
    return found


def has_common(arm: ZeroShotArm) -> bool:
    """Return whether the vectors of an arm have the common number."""
    if arm.common is not None:
        return arm.common
    setting = inspect.signature(MODELS.load(arm.model)).parameters.get("fixed_vectors")
    return setting is not None and bool(arm.settings.get("fixed_vectors", setting.default))


def fit_arm(arm: ZeroShotArm, train: Rows, vectors: Floats, *, seed: int, n_jobs: int | None) -> Any:
    """Fit an arm's model on rows, with a vector for each of their tags; all epochs are run."""
    settings = {"valid_share": 0.0, "random_state": seed, "n_jobs": n_jobs, **arm.settings}
    return MODELS.create(arm.model, word_vectors=vectors, **settings).fit(train.X, train.Y)


def zero_shot_scores(model: Any, vectors: Floats, split: TagSplit, X: Matrix, *, moved: bool = True) -> Floats:
    """Score all tags by a model of the seen ones, fitted on `vectors` of these.

    Parameters
    ----------
    model : DeepTagger
    vectors : ndarray of float32, shape (n_tags, width)
        Of all tags.
    split : TagSplit
    X : array, shape (n_images, n_features)
    moved : bool
        Whether the vectors of held-out tags follow those that moved in training, or are taken as they were.

    Returns
    -------
    ndarray of float32, shape (n_images, n_tags)
    """
    words = vectors[split.held_out]
    rows = np.empty(vectors.shape, np.float32)
    rows[split.seen] = model.tag_rows_
    rows[split.held_out] = model.tag_rows_from(words) if moved else words * np.float32(model.vector_scale_)
    scores: Floats = model.image_rows(X) @ rows.T
    return scores


def rows_of(problem: Problem, on: str) -> Rows:
    """Return the rows to measure on, by name."""
    if on not in ("test", "valid"):
        raise UserError(f"on is '{on}'; expected 'test' or 'valid'.")
    return problem.test if on == "test" else problem.valid
