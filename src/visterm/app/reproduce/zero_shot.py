"""Zero-shot tagging: some tags are kept from the training images, and found on others by their word vectors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.app.reproduce.problem import Problem, Rows
from visterm.core.progress import SILENT, Progress

SHARE = 0.2
"""Of the tags that is held out."""


@dataclass(frozen=True)
class TagSplit:
    """Which tags the training images show, and which they do not.

    Attributes
    ----------
    seen, held_out : ndarray of int64
        Numbers of tags, ascending; all tags are in one of them.
    """

    seen: NDArray[np.int64]
    held_out: NDArray[np.int64]


@dataclass(frozen=True)
class ZeroShotArm:
    """A model, and the word vectors that it is given.

    Attributes
    ----------
    label : str
    model : str
        As in ``visterm models``; one that has `tag_rows_from`.
    source : str
        Of the vectors, as `word_sources` names them: "sentences", "learned" or "random".
    settings : mapping
        Of the model.
    moved : bool
        Whether vectors of held-out tags follow those of the others (equations 3 and 4), where those have moved.
    handicap : float
        What is taken off the scores of seen tags where all tags are ranked together, in standard deviations of the
        scores (calibrated stacking; Chao et al. 2016): scores of tags that were learned are higher by their learning.
    """

    label: str
    model: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
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


def split_tags(n_tags: int, *, share: float = SHARE, seed: int = 0) -> TagSplit:
    """Draw the tags that are held out: this share of all, rounded."""
    raise NotImplementedError


def word_sources(tags: Sequence[str], Y: sp.csr_array, *, dim: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Give the vectors of all tags from each source: "sentences", "learned" and "random", a control that must fail.

    Parameters
    ----------
    tags : sequence of str
        The columns of `Y`.
    Y : csr_array, shape (n_images, n_tags)
        The tag lists of the training images, those of held-out tags too: "learned" reads them as text.
    dim : int
        Numbers of learned vectors.
    seed : int

    Returns
    -------
    dict of str to ndarray of float32, shape (n_tags, width)
        Without "sentences" where the extra ``text`` is not installed.
    """
    raise NotImplementedError


def zero_shot(
    problem: Problem,
    arms: Sequence[ZeroShotArm],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    share: float = SHARE,
    on: str = "test",
    n_jobs: int | None = 1,
    progress: Progress = SILENT,
) -> list[ZeroShot]:
    """Fit each arm once for each draw of held-out tags, on the training rows without these tags, and measure it.

    Parameters
    ----------
    problem : Problem
    arms : sequence of ZeroShotArm
    seeds : sequence of int
        A draw of held-out tags each.
    share : float
    on : {"test", "valid"}
        The rows to measure on: settings are chosen on "valid".
    n_jobs : int, optional
    progress : Progress

    Returns
    -------
    list of ZeroShot
        For each seed, all arms in their order.
    """
    raise NotImplementedError


def zero_shot_measures(scores: NDArray[np.float32], Y: sp.csr_array, split: TagSplit) -> dict[str, NDArray[np.float64]]:
    """Give the measures image by image or word by word; NaN where there is nothing to find.

    All but those of words are over images with a held-out tag.

    Parameters
    ----------
    scores : ndarray of float32, shape (n_images, n_tags)
    Y : csr_array, shape (n_images, n_tags)

    Returns
    -------
    dict of str to ndarray of float64
        ``held-out p@5`` and ``held-out r@5``: held-out tags alone are ranked (925→81 of Table 2). ``held-out chance``:
        p@5 to be expected of a random ranking of them, the share of the held-out tags that the image has. ``all p@5``
        and ``all r@5``: all tags are ranked, and all of the image's are right (925→1006). ``all held-out p@5`` and
        ``all held-out r@5``: all tags are ranked, and its held-out ones alone are right. ``word map`` and
        ``word p@10``: all images are ranked for each held-out word.
    """
    raise NotImplementedError


def seen_rows(rows: Rows, split: TagSplit) -> Rows:
    """Give the images that have a seen tag, with the columns of seen tags alone."""
    raise NotImplementedError
