"""Measures of k tags given to every image: tag by tag as on Corel, or with credit for siblings and for parents."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError
from visterm.core.types import MatrixLike
from visterm.kernels.topk import top_k
from visterm.metrics.ranking import Judgements, ratio


class GivenTags:
    """Gives every image its best k tags and judges tag by tag, as annotation of Corel is reported.

    The means are over the tags that are relevant for at least one of the images. A tag that no image was given has
    precision 0, as in that literature. Images without a relevant tag are given tags too, and all of them are wrong.
    `ks` are the k that will be asked for; where fewer tags are ranked, all of them are given.
    """

    def __init__(self, judgements: Judgements, ks: Iterable[int]) -> None:
        self._judgements = judgements
        self._n_given = {k: np.zeros(judgements.n_tags, np.int64) for k in ks}
        self._n_right = {k: np.zeros(judgements.n_tags, np.int64) for k in self._n_given}
        self._n_relevant = np.bincount(judgements.tags, minlength=judgements.n_tags)

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Predict tags of some images by their scores."""
        n_tags = self._judgements.n_tags
        ids, ranked = _best_tags(block, self._n_given)
        right = np.take_along_axis(self._judgements.relevant(rows).toarray() > 0, ids, axis=1)
        for k in self._n_given:
            given = ids[:, :k]
            self._n_given[k] += np.bincount(given[ranked[:, :k]], minlength=n_tags)
            self._n_right[k] += np.bincount(given[right[:, :k]], minlength=n_tags)

    def add_counts(self, other: GivenTags) -> None:
        """Add what another counted of other images, for the same tags and numbers of tags."""
        self._n_relevant = self._n_relevant + other._n_relevant
        for k in self._n_given:
            self._n_given[k] += other._n_given[k]
            self._n_right[k] += other._n_right[k]

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Right images over given images of each tag, 0 where never given; NaN for a tag that is nowhere relevant."""
        shares = ratio(self._n_right[k], np.maximum(self._n_given[k], 1))
        return np.where(self._n_relevant > 0, shares, np.nan)

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Right images over relevant images of each tag; NaN for a tag that is nowhere relevant."""
        return ratio(self._n_right[k], self._n_relevant)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Harmonic mean of the mean precision and the mean recall, shape (1,), as the literature reports it."""
        if not self._n_relevant.any():
            return np.full(1, np.nan)
        return f1_of_means(self.precisions(k), self.recalls(k))

    def n_plus(self, k: int) -> NDArray[np.float64]:
        """Count the tags that are right for at least one image, shape (1,)."""
        return np.full(1, np.count_nonzero(self._n_right[k]) if self._n_relevant.any() else np.nan)


class SiblingTags:
    """Gives every image its best k tags and counts those that are right or a sibling of a right one.

    With one right tag y an image this is ``p_sib@k = Σ_{i≤k} S(y_i, y) / k`` of WSABIE, section 4, where S is 1 for
    equal tags and for siblings. With several, a predicted tag counts 1 if it is equal to or a sibling of any of them:
    the largest S, so that with no siblings p_sib@k is precision at k.

    `siblings`, (n_tags, n_tags), is not 0 where two tags are siblings; every tag counts as its own. `ks` are the k that
    will be asked for. Raises ShapeError if `siblings` has another shape.
    """

    def __init__(self, judgements: Judgements, siblings: MatrixLike, ks: Iterable[int]) -> None:
        n_tags = judgements.n_tags
        near = as_csr(siblings)
        if near.shape != (n_tags, n_tags):
            raise ShapeError(
                setting="siblings", value=near.shape, expected=f"the shape {(n_tags, n_tags)} (tags, tags)"
            )
        self._near = _ones(near + sp.eye_array(n_tags, format="csr"))
        self._judgements = judgements
        self._n_near = {k: np.zeros(judgements.n_images, np.int64) for k in ks}

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Predict tags of some images by their scores."""
        ids, ranked = _best_tags(block, self._n_near)
        near = (self._judgements.relevant(rows) @ self._near.T).toarray() > 0
        given_near = np.take_along_axis(near, ids, axis=1) & ranked
        for k, n_near in self._n_near.items():
            n_near[rows] = given_near[:, :k].sum(axis=1)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Tags that count over k, for each image; NaN where no tag is relevant."""
        return ratio(self._n_near[k], np.where(np.diff(self._judgements.indptr) > 0, k, 0))


class TreeTags:
    """Gives every image its best k tags, adds all tags above them, and compares with the right ones and all above them.

    A tag that is wrong, but under a right parent, counts in part: with P the first set and T the second,
    ``hp = |P ∩ T| / |P|``, ``hr = |P ∩ T| / |T|`` and ``hf1`` their harmonic mean (Kiritchenko, Matwin, Nock and Famili
    2006, "Learning and evaluation in the presence of class hierarchies"). The paper sums over all images before it
    divides; here each image has its own, as in the other metrics of images.

    `above`, (n_tags, n_nodes), is not 0 where the tag of the column is that of the row, or lies above it; the tree may
    have nodes that are no tags. `ks` are the k that will be asked for. Raises ShapeError if `above` has other rows.
    """

    def __init__(self, judgements: Judgements, above: MatrixLike, ks: Iterable[int]) -> None:
        self._above = _ones(above)
        if self._above.shape[0] != judgements.n_tags:
            raise ShapeError(
                setting="tree", value=self._above.shape, expected=f"{judgements.n_tags} rows, one for each tag"
            )
        self._judgements = judgements
        # Of each image, how many nodes are in P, and in P and T
        self._counts = {k: np.zeros((2, judgements.n_images), np.int64) for k in ks}
        self._n_right = np.zeros(judgements.n_images, np.int64)

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Predict tags of some images by their scores."""
        ids, ranked = _best_tags(block, self._counts)
        right = as_csr(self._judgements.relevant(rows) @ self._above) != 0
        self._n_right[rows] = np.diff(right.indptr)
        for k, counts in self._counts.items():
            given = ranked[:, :k]
            starts = np.concatenate([[0], np.cumsum(given.sum(axis=1))])
            ones = np.ones(starts[-1], np.float32)
            tags = sp.csr_array((ones, ids[:, :k][given], starts), shape=block.shape)
            predicted = as_csr(tags @ self._above) != 0
            counts[:, rows] = np.diff(predicted.indptr), np.diff(as_csr(predicted.multiply(right)).indptr)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Return hp of each image; NaN where no tag is relevant."""
        return self._shares(k, self._counts[k][0])

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Return hr of each image; NaN where no tag is relevant."""
        return self._shares(k, self._n_right)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Return the harmonic mean of hp and hr of each image; NaN where no tag is relevant."""
        return self._shares(k, (self._counts[k][0] + self._n_right) / 2)

    def _shares(self, k: int, of: NDArray[np.integer | np.floating]) -> NDArray[np.float64]:
        return ratio(self._counts[k][1], np.where(self._n_right > 0, of, 0))


def f1_of_means(precisions: NDArray[np.float64], recalls: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the harmonic mean of mean precision and mean recall of some tags, shape (1,), without NaN.

    One of them at least must not be NaN.
    """
    precision, recall = np.nanmean(precisions), np.nanmean(recalls)
    total = precision + recall
    return np.full(1, 2 * precision * recall / total if total > 0 else 0.0)


def _best_tags(block: NDArray[np.floating], ks: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the best tags of each image, up to the largest k, and whether each is given: excluded ones are not."""
    ids, values = top_k(block, min(max(ks), block.shape[1]))
    return ids, np.isfinite(values)


def _ones(matrix: MatrixLike) -> sp.csr_array:
    """Return a matrix as CSR, with 1 where it is not 0."""
    csr = as_csr(matrix)
    return sp.csr_array((np.ones(csr.nnz, np.float32), csr.indices, csr.indptr), shape=csr.shape)
