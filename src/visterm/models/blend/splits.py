"""Split images into those that candidates of a blend learn from, and those that judge them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import identity_rows
from visterm.core.selected_rows import copied, selected
from visterm.core.types import Ints
from visterm.data.tag_queries import hold_one_out
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.blend.mixing import SAMPLE_ROWS, sample, sample_size
from visterm.models.stopping import MIN_HELD_OUT, Judged, hold_out, visible_columns

MAX_WEIGHTED_MODELS = 6  # The time to find weights grows with the square of the number of models
MIN_IMAGES = 20  # With fewer images, there is nothing to judge by
FEW_JUDGED, N_FOLDS = 120, 5  # If fewer images would be held out, all images are, in as many folds
PROBE_PART, MIN_PROBE_ROWS = 8, 50  # An eighth of the images, at least 50, is fitted first to estimate time and gain


class TaggedRows(NamedTuple):
    """Images to fit or to measure on, their tags and, in a fit with weights of pairs, these weights.

    `X` is an array, CSR, or `SelectedRows` of the array that is split.
    """

    X: Any
    Y: sp.csr_array
    weights: sp.csr_array | None = None  # shape (n_images, n_tags): of all given tags, also of held-out ones

    @property
    def side(self) -> SideKnowledge:
        """What a model knows beside the tags."""
        return SideKnowledge(pair_weights=self.weights)

    def part(self, positions: Ints) -> TaggedRows:
        """Return some of the images; those of an array are not copied."""
        weights = None if self.weights is None else self.weights[positions]
        return TaggedRows(selected(self.X, positions), self.Y[positions], weights)


class Split(NamedTuple):
    """Images to learn from, and others to judge by; of images known by number, some tags of the same images.

    `images` are the positions of the judged images in the training images, empty for validation images. `known` are
    tags of the judged images that a model has learned, which are ranked last; None if these images are held out.
    """

    learned: TaggedRows
    judged: TaggedRows
    images: Ints
    known: sp.csr_array | None = None
    rows: Ints | None = None  # positions of the learned images if they are a part; None: all

    @property
    def n_learned(self) -> int:
        """Number of images of which all tags are learned."""
        return int(self.learned.X.shape[0] - (0 if self.known is None else self.images.size))


def split_images(
    model: Annotator, rows: TaggedRows, valid: Judged, rng: np.random.Generator, *, once: bool
) -> list[Split]:
    """Return the images to learn from and to judge by; if there is nothing to judge by, a split without judged images.

    Few images are held out in folds, unless they should be held out only `once`. Judged images without tags are left
    out. `model` is the blend.
    """
    n, all_images, share = rows.X.shape[0], np.arange(rows.X.shape[0]), model.share_to_hold_out
    by_numbers = getattr(model, "by_number_", False)
    splits: list[Split] = []
    if valid is not None:
        known = sp.csr_array(valid[0] @ (rows.Y > 0)) if by_numbers else None
        splits = [Split(rows, TaggedRows(*valid), all_images[:0], known)]
    elif share > 0 and by_numbers:
        split = by_number(rows, rng, round(share * n))
        splits = [] if split is None else [split]
    elif share > 0 and n >= MIN_IMAGES:
        for fold in _folds(n, share, rng, once=once):
            learned = np.setdiff1d(all_images, fold)
            parts = (rows.part(positions) for positions in (learned, fold))
            of_learned, of_fold = (part._replace(X=visible_columns(model, part.X, learned)) for part in parts)
            splits.append(Split(of_learned, of_fold, fold))

    splits = [tagged for split in splits if (tagged := _tagged(split, rng)).judged.X.shape[0]]
    return splits or [Split(rows, rows.part(all_images[:0]), all_images[:0])]


def _folds(n: int, share: float, rng: np.random.Generator, *, once: bool) -> list[Ints]:
    """Return the sorted positions of the images to hold out, one fold after another."""
    if share * n >= FEW_JUDGED or once:
        return [hold_out(n, max(share, min(MIN_HELD_OUT / n, 0.5)), rng)[1]]
    order = rng.permutation(n)
    return [np.sort(order[fold::N_FOLDS]) for fold in range(N_FOLDS)]


def _tagged(split: Split, rng: np.random.Generator) -> Split:
    """Return a split with as many of the judged images that have tags as `sample` allows."""
    judged = split.judged
    tagged = np.flatnonzero(np.bincount(judged.Y.tocoo().coords[0][judged.Y.data > 0], minlength=judged.X.shape[0]))
    chosen = tagged[sample(tagged.size, MAX_WEIGHTED_MODELS, judged.Y.shape[1], rng)]
    judged = judged.part(chosen)
    return split._replace(
        judged=judged._replace(X=copied(judged.X)),
        images=split.images[chosen] if split.images.size else split.images,
        known=None if split.known is None else split.known[chosen],
    )


def judged_tags(splits: Sequence[Split]) -> sp.csr_array:
    """Return the tags of the judged images of all splits."""
    return sp.csr_array(sp.vstack([split.judged.Y for split in splits], format="csr"))


def an_eighth(split: Split, rng: np.random.Generator) -> Split:
    """Return a split with an eighth of the learned images.

    Of images known by number, the judged tags are others: held out of those images.
    """
    n = split.learned.X.shape[0]
    rows = np.sort(rng.permutation(n)[: max(n // PROBE_PART, MIN_PROBE_ROWS)])
    part = split.learned.part(rows)
    if split.known is None:
        return split._replace(learned=part, rows=rows)
    return by_number(part._replace(X=identity_rows(rows.size)), rng) or split


def by_number(rows: TaggedRows, rng: np.random.Generator, max_images: int = SAMPLE_ROWS) -> Split | None:
    """Hold out one tag of each of some images known by number; return None if too few images have two tags."""
    Y = rows.Y
    max_images = min(max_images, sample_size(MAX_WEIGHTED_MODELS, Y.shape[1]))
    n_several = int(np.count_nonzero(np.bincount(Y.tocoo().coords[0][Y.data > 0], minlength=Y.shape[0]) > 1))
    if n_several < MIN_HELD_OUT:
        return None
    tags, images, hidden_tags, known = hold_one_out(Y, rng, at_most=min(max_images, n_several // 2))
    return Split(rows._replace(Y=tags), TaggedRows(rows.X[images], hidden_tags), images, known)
