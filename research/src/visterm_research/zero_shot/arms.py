"""Zero-shot tagging: some tags are removed from training images, and found on other images by their word vectors."""

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
    """A model, and the word vectors that it starts with.

    Attributes
    ----------
    label : str
    model : str
        A name from ``visterm models``; a network into the words' space.
    source : str
        Source of the vectors, see `word_sources`: "sentences", "learned" or "random".
    settings : mapping
        Settings of the model.
    common : bool, optional
        Whether vectors have one more number, the same for all (`with_common`). None: yes if the model has the setting
        `fixed_vectors`, and it is True.
    moved : bool
        Whether vectors of held-out tags follow the moved vectors of seen tags (equations 3 and 4).
    handicap : float
        Number subtracted from the scores of seen tags when all tags are ranked together, in standard deviations of
        their scores on training images (calibrated stacking; Chao et al. 2016): learned tags have higher scores on
        images that are similar to their training images.
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
    """The results of an arm with one draw of the held-out tags.

    Attributes
    ----------
    arm : ZeroShotArm
    seed : int
        Seed of the draw of held-out tags, and of the fit.
    metrics : dict of str to float
        Means of the measures of `zero_shot_measures`.
    values : dict of str to ndarray
        The measures of each image or word; NaN if there is nothing to find.
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
        Vectors of the tags, as `word_sources` returns them.
    arms : sequence of ZeroShotArm
    seeds : sequence of int
        One seed for each draw of held-out tags.
    share : float
        Share of the tags to hold out.
    on : {"test", "valid"}
        The rows to measure on; choose settings on "valid".
    n_jobs : int, optional
    progress : Progress

    Returns
    -------
    list of ZeroShot
        For each seed, the results of all arms in their order.

    Raises
    ------
    UserError
        If `on` is not valid, or the source of an arm is missing.
    """
    rows = rows_of(problem, on)
    missing = {arm.source for arm in arms} - set(sources)
    if missing:
        raise UserError(f"There are no word vectors '{min(missing)}'; there are: {', '.join(sources)}.")
    results = []
    with reported(progress, "Draws of held-out tags", len(seeds)):
        for seed in seeds:
            split = split_tags(len(problem.tags), share=share, seed=seed)
            train = seen_rows(problem.train, split)
            fitted_models: list[tuple[tuple[Any, ...], Any]] = []
            for arm in arms:
                common = has_common(arm)
                vectors = with_common(sources[arm.source]) if common else sources[arm.source]
                key = (arm.model, arm.source, common, dict(arm.settings))
                model = next((model for fitted_key, model in fitted_models if fitted_key == key), None)
                if model is None:
                    model = fit_arm(arm, train, vectors[split.seen], seed=seed, n_jobs=n_jobs)
                    fitted_models.append((key, model))
                scores = zero_shot_scores(model, vectors, split, rows.X, moved=arm.moved)
                handicap = arm.handicap * float(np.std(model.decision_function(train.X))) if arm.handicap else 0.0
                values = zero_shot_measures(scores, rows.Y, split, handicap=handicap)
                metrics = {name: float(np.nanmean(image_values)) for name, image_values in values.items()}
                results.append(ZeroShot(arm, seed, metrics, values))
            progress.advance()
    return results


def has_common(arm: ZeroShotArm) -> bool:
    """Return whether the vectors of an arm have the common number."""
    if arm.common is not None:
        return arm.common
    setting = inspect.signature(MODELS.load(arm.model)).parameters.get("fixed_vectors")
    return setting is not None and bool(arm.settings.get("fixed_vectors", setting.default))


def fit_arm(arm: ZeroShotArm, train: Rows, vectors: Floats, *, seed: int, n_jobs: int | None) -> Any:
    """Fit the model of an arm on rows, with a vector for each of their tags, for all epochs."""
    settings = {"valid_share": 0.0, "random_state": seed, "n_jobs": n_jobs, **arm.settings}
    return MODELS.create(arm.model, word_vectors=vectors, **settings).fit(train.X, train.Y)


def zero_shot_scores(model: Any, vectors: Floats, split: TagSplit, X: Matrix, *, moved: bool = True) -> Floats:
    """Score all tags by a model that was fitted on the seen tags and their `vectors`.

    Parameters
    ----------
    model : DeepTagger
    vectors : ndarray of float32, shape (n_tags, width)
        Vectors of all tags.
    split : TagSplit
    X : array, shape (n_images, n_features)
    moved : bool
        Whether the vectors of held-out tags follow the vectors that moved in training, or don't change.

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
