"""Splits for learning from part-of relations: of images, each split showing each relation; and of the relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_number
from visterm.core.errors import UserError
from visterm.core.types import RandomState
from visterm.data.quadruplets import check_relations

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}
"""About those of the paper's 400,490 images (section 4.3.2)."""


class ImageSplits(NamedTuple):
    """Images by split, and the relations that a split could not be given.

    Attributes
    ----------
    images : dict of str to ndarray of int64
        Rows of Y, sorted, for each split.
    missing : dict of str to ndarray of int64, shape (n, 2)
        For each split the relations (part, whole) that no two of its images show, for there are too few images.
    """

    images: dict[str, NDArray[np.int64]]
    missing: dict[str, NDArray[np.int64]]


class LeftOut(NamedTuple):
    """Relations (part, whole) to learn from, and those left out to be found again; int64, shape (n, 2), sorted."""

    kept: NDArray[np.int64]
    left_out: NDArray[np.int64]

    @property
    def unreachable(self) -> NDArray[np.int64]:
        """The left-out relations of which a tag occurs in no kept one: nothing is learned that could find them."""
        return self.left_out[~np.isin(self.left_out, self.kept).all(axis=1)]


def split_images(
    Y: Any, relations: Any, *, shares: Mapping[str, float] = SHARES, random_state: RandomState = 0
) -> ImageSplits:
    """Split images so that each split has a quadruplet of each relation, wherever there are enough images.

    Relations of rare tags choose first, and larger splits before smaller ones: with two images of a tag and three
    splits, the smallest goes without. All other images are dealt out at random.

    Parameters
    ----------
    Y : array-like or sparse, shape (n_images, n_tags)
        Above 0: the image bears the tag; one tag an image or several.
    relations : array-like of int, shape (n_relations, 2)
        Tag columns (part, whole).
    shares : mapping of str to float
        The share of the images that each split gets; in total 1. Splits of few images may get more, to show all.
    random_state : int, RandomState, Generator or None
        Of the choices.

    Raises
    ------
    UserError
        If the shares are not above 0 and 1 in total.
    ShapeError, DataError
        If the relations are not pairs of different columns of Y.
    """
    for name, share in shares.items():
        check_number(share, f"The share of {name}", above=0)
    if not shares or abs(sum(shares.values()) - 1) > 1e-6:
        raise UserError(f"The shares of the splits are {dict(shares)}; expected numbers that are 1 in total.")
    given = (as_csr(Y) > 0).tocsc()
    pairs = check_relations(relations, given.shape[1])
    rng = as_generator(random_state)
    names = sorted(shares, key=lambda name: -shares[name])
    dealt = _Dealt(given, rng)
    n_bearers = np.diff(given.indptr)
    for part, whole in pairs[np.argsort(n_bearers[pairs].min(axis=1), kind="stable")]:
        for split in range(len(names)):
            dealt.provide(part, whole, split)
    dealt.deal_rest([shares[name] for name in names])
    splits = [(name, names.index(name)) for name in shares]
    images = {name: np.flatnonzero(dealt.split_of == split) for name, split in splits}
    shown = {name: [dealt.shows(part, whole, split) for part, whole in pairs] for name, split in splits}
    return ImageSplits(images, {name: pairs[~np.array(shows, np.bool_)] for name, shows in shown.items()})


def leave_out(relations: Any, share: float, random_state: RandomState = 0) -> LeftOut:
    """Leave a share of the relations out of training, to see whether they are found again (section 6.5).

    Wherever possible the part of a relation that is left out is still a part in some kept relation, and its whole a
    whole; where that is not enough to reach the share, they occur in some kept relation on either side; and where that
    is not enough either, relations are left out that cannot be found again (`LeftOut.unreachable`). Relations are tried
    in a random order, each once for each of these three, so a share near the largest possible may be missed.

    Parameters
    ----------
    relations : array-like of int, shape (n_relations, 2)
        Tags (part, whole).
    share : float
        Of the relations to leave out, 0 up to, not including, 1; rounded to whole relations.
    random_state : int, RandomState, Generator or None
        Of the choice.

    Raises
    ------
    UserError
        If the share is out of range.
    """
    check_number(share, "share", least=0, below=1)
    pairs = check_relations(relations, int(np.max(relations, initial=0)) + 1)
    n_wanted = round(share * len(pairs))
    order = as_generator(random_state).permutation(len(pairs))
    out = np.zeros(len(pairs), np.bool_)
    tags, columns = np.unique(pairs, return_inverse=True)
    columns = columns.reshape(-1, 2)
    in_role = [np.bincount(columns[:, side], minlength=tags.size) for side in (0, 1)]
    for strictness in (2, 1, 0):
        for i in order:
            if out.sum() == n_wanted:
                break
            part, whole = columns[i]
            times = (in_role[0][part], in_role[1][whole])
            anywhere = (in_role[0][part] + in_role[1][part], in_role[0][whole] + in_role[1][whole])
            spare = min(times) > 1 if strictness == 2 else min(anywhere) > 1 if strictness else True
            if not out[i] and spare:
                out[i] = True
                in_role[0][part] -= 1
                in_role[1][whole] -= 1
    return LeftOut(pairs[~out], pairs[out])


class _Dealt:
    """Images that are being dealt to splits: the number of each one's split, -1 while it has none."""

    def __init__(self, given: Any, rng: np.random.Generator) -> None:
        self._given = given
        self._rng = rng
        self.split_of = np.full(given.shape[0], -1, np.int64)

    def shows(self, part: int, whole: int, split: int) -> bool:
        """Say whether two images of a split make a quadruplet of a relation."""
        parts, wholes = self._within(part, split), self._within(whole, split)
        return parts.size * wholes.size > np.intersect1d(parts, wholes).size

    def provide(self, part: int, whole: int, split: int) -> None:
        """Give a split what it lacks to show a relation, of images that have no split yet; one image may be both."""
        while not self.shows(part, whole, split):
            lacking = [tag for tag in (part, whole) if not self._within(tag, split).size] or [part, whole]
            left = max((self._within(tag, -1) for tag in lacking), key=np.size)
            if not left.size:
                return
            self.split_of[self._rng.choice(left)] = split

    def deal_rest(self, shares: list[float]) -> None:
        """Deal the other images at random, so that the splits have their shares of all where they can."""
        rest = self._rng.permutation(np.flatnonzero(self.split_of < 0))
        has = np.bincount(self.split_of[self.split_of >= 0], minlength=len(shares))
        wanting = np.maximum(np.array(shares) * self.split_of.size - has, 0)
        ends = np.round(np.cumsum(wanting) / max(wanting.sum(), 1) * rest.size).astype(np.int64)
        for split, some in enumerate(np.split(rest, ends[:-1])):
            self.split_of[some] = split

    def _within(self, tag: int, split: int) -> NDArray[np.int64]:
        images = self._given.indices[slice(*self._given.indptr[tag : tag + 2])]
        found: NDArray[np.int64] = images[self.split_of[images] == split]
        return found
