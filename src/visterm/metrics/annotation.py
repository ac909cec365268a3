"""Measures of k tags per image: tag by tag, as for Corel, by bands of tags, or with credit for siblings and parents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError
from visterm.core.types import MatrixLike
from visterm.kernels.topk import top_k
from visterm.metrics.ranking import Judgements, ratio

BAND_STARTS = (0, 1, 5, 20, 100)
"""Minimum number of training images of a tag in each band; 0 is for words added without images."""

THIRD_NAMES = ("rare", "middling", "frequent")


class GivenTags:
    """Assigns the best k tags to every image and measures each tag, as in the literature on Corel.

    Means are over the tags that are relevant to at least one image. A tag that no image gets has precision 0, as in
    that literature. Images without a relevant tag also get tags, which are all wrong. `ks` are the values of k to
    measure; if fewer tags are ranked, an image gets all of them.
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
            assigned = ids[:, :k]
            self._n_given[k] += np.bincount(assigned[ranked[:, :k]], minlength=n_tags)
            self._n_right[k] += np.bincount(assigned[right[:, :k]], minlength=n_tags)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Return the share of right images among those that get each tag (0: no image); NaN without relevant images."""
        return np.where(self._n_relevant > 0, ratio(self._n_right[k], np.maximum(self._n_given[k], 1)), np.nan)

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Return the share of each tag's relevant images that get it; NaN without relevant images."""
        return ratio(self._n_right[k], self._n_relevant)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Return the harmonic mean of the mean precision and the mean recall, shape (1,), as in the literature."""
        if not self._n_relevant.any():
            return np.full(1, np.nan)
        return f1_of_means(self.precisions(k), self.recalls(k))

    def n_plus(self, k: int) -> NDArray[np.float64]:
        """Count the tags that are right for at least one image, shape (1,)."""
        return np.full(1, np.count_nonzero(self._n_right[k]) if self._n_relevant.any() else np.nan)


class SiblingTags:
    """Assigns the best k tags to every image and counts those that are right or a sibling of a right tag.

    With a single right tag y per image this is ``p_sib@k = Σ_{i≤k} S(y_i, y) / k`` of WSABIE, section 4, where S is 1
    for equal tags and for siblings. With several right tags, a predicted tag counts 1 if it equals one of them or is a
    sibling of one (the largest S), so that without siblings p_sib@k is precision at k.

    `siblings`, (n_tags, n_tags), is not 0 if two tags are siblings; a tag is its own sibling. `ks` are the values of k
    to measure. Raises ShapeError if `siblings` has another shape.
    """

    def __init__(self, judgements: Judgements, siblings: MatrixLike, ks: Iterable[int]) -> None:
        n_tags = judgements.n_tags
        siblings_csr = as_csr(siblings)
        if siblings_csr.shape != (n_tags, n_tags):
            raise ShapeError(setting="siblings", value=siblings_csr.shape, expected=f"the shape {(n_tags, n_tags)}")
        self._siblings = _ones(siblings_csr + sp.eye_array(n_tags, format="csr"))
        self._judgements = judgements
        self._n_right = {k: np.zeros(judgements.n_images, np.int64) for k in ks}

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Predict tags of some images by their scores."""
        ids, ranked = _best_tags(block, self._n_right)
        counts_as_right = (self._judgements.relevant(rows) @ self._siblings.T).toarray() > 0
        assigned_right = np.take_along_axis(counts_as_right, ids, axis=1) & ranked
        for k, n_near in self._n_right.items():
            n_near[rows] = assigned_right[:, :k].sum(axis=1)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Return the share of each image's k tags that are right or a sibling; NaN if no tag is relevant."""
        return ratio(self._n_right[k], np.where(np.diff(self._judgements.indptr) > 0, k, 0))


class TreeTags:
    """Compares each image's best k tags and all their ancestors in a tree with the right tags and their ancestors.

    A wrong tag with a right ancestor gets partial credit: with P the predicted set and T the right one,
    ``hp = |P ∩ T| / |P|``, ``hr = |P ∩ T| / |T|`` and ``hf1`` their harmonic mean (Kiritchenko, Matwin, Nock and Famili
    2006, "Learning and evaluation in the presence of class hierarchies"). The paper sums over all images before
    dividing; here each image has its own value, as in the other metrics of images.

    `nodes`, (n_tags, n_nodes), is not 0 if the column's node is the row's tag or an ancestor of it; nodes need not be
    tags. `ks` are the values of k to measure. Raises ShapeError if the number of rows is wrong.
    """

    def __init__(self, judgements: Judgements, nodes: MatrixLike, ks: Iterable[int]) -> None:
        self._nodes = _ones(nodes)
        if self._nodes.shape[0] != judgements.n_tags:
            raise ShapeError(setting="tree", value=self._nodes.shape, expected=f"{judgements.n_tags} rows, one per tag")
        self._judgements = judgements
        # For each image, the number of nodes in P, and in both P and T
        self._counts = {k: np.zeros((2, judgements.n_images), np.int64) for k in ks}
        self._n_right = np.zeros(judgements.n_images, np.int64)

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Predict tags of some images by their scores."""
        ids, ranked = _best_tags(block, self._counts)
        right = as_csr(self._judgements.relevant(rows) @ self._nodes) != 0
        self._n_right[rows] = np.diff(right.indptr)
        for k, counts in self._counts.items():
            assigned = ranked[:, :k]
            starts = np.concatenate([[0], np.cumsum(assigned.sum(axis=1))])
            tags = sp.csr_array((np.ones(starts[-1], np.float32), ids[:, :k][assigned], starts), shape=block.shape)
            predicted = as_csr(tags @ self._nodes) != 0
            counts[:, rows] = np.diff(predicted.indptr), np.diff(as_csr(predicted.multiply(right)).indptr)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Return hp of each image; NaN if no tag is relevant."""
        return self._shares(k, self._counts[k][0])

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Return hr of each image; NaN if no tag is relevant."""
        return self._shares(k, self._n_right)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Return the harmonic mean of hp and hr of each image; NaN if no tag is relevant."""
        return self._shares(k, (self._counts[k][0] + self._n_right) / 2)

    def _shares(self, k: int, denominators: NDArray[np.integer | np.floating]) -> NDArray[np.float64]:
        return ratio(self._counts[k][1], np.where(self._n_right > 0, denominators, 0))


def f1_of_means(precisions: NDArray[np.float64], recalls: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the harmonic mean of mean precision and mean recall of tags, shape (1,), ignoring NaN.

    At least one tag must not be NaN.
    """
    precision, recall = np.nanmean(precisions), np.nanmean(recalls)
    precision_plus_recall = precision + recall
    return np.full(1, 2 * precision * recall / precision_plus_recall if precision_plus_recall > 0 else 0.0)


def _best_tags(block: NDArray[np.floating], ks: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the best tags of each image, up to the largest k, and for each tag whether it is ranked, not excluded."""
    ids, values = top_k(block, min(max(ks), block.shape[1]))
    return ids, np.isfinite(values)


def _ones(matrix: MatrixLike) -> sp.csr_array:
    """Return a matrix as CSR, with all non-zero values set to 1."""
    csr = as_csr(matrix)
    return sp.csr_array((np.ones(csr.nnz, np.float32), csr.indices, csr.indptr), shape=csr.shape)


class Band(NamedTuple):
    """Tags with a similar number of training images."""

    name: str  # Numbers of training images, such as "5 to 19"; for thirds, such as "rare (1 to 3)"
    # Minimum and maximum number of training images, inclusive; `most` is -1 if there is no maximum
    least: int
    most: int
    tags: NDArray[np.int64]  # Columns, ascending


def frequency_bands(counts: ArrayLike) -> list[Band]:
    """Divide tags into bands by fixed numbers of training images, or into thirds if all tags are in the same band.

    `counts`, int of shape (n_tags,), are the numbers of training images of the tags. Returns the non-empty bands, the
    rarest first: 1 to 4, 5 to 19, 20 to 99, and 100 or more images. These are fixed so that runs and libraries can be
    compared. If all tags are in one of them, returns the thirds of `thirds_of`.
    """
    fixed_bands = bands_from(counts, BAND_STARTS)
    return fixed_bands if len(fixed_bands) > 1 else max(fixed_bands, thirds_of(counts), key=len)


def bands_from(counts: ArrayLike, starts: Sequence[int]) -> list[Band]:
    """Divide tags with `counts`, int of shape (n_tags,), into bands at given numbers of training images.

    `starts` are the minimum counts of the bands, ascending; the last band has no maximum. Tags below the first minimum
    are in no band. Returns the non-empty bands, in the order of `starts`.
    """
    counts = np.asarray(counts, np.int64)
    ends = [*(start - 1 for start in starts[1:]), -1]
    bands = []
    for least, most in zip(starts, ends, strict=True):
        tags = np.flatnonzero((counts >= least) & ((counts <= most) | (most < 0)))
        if tags.size:
            bands.append(Band(_range_text(least, most), least, most, tags))
    return bands


def thirds_of(counts: ArrayLike) -> list[Band]:
    """Divide tags into rare, middling and frequent bands of about equal size; return the non-empty ones, rarest first.

    Tags with the same number of training images are in the same third: the third of the middle tag among them. The tags
    with the fewest images are always rare, even if they are the majority, and the tags with the most are frequent.
    """
    counts = np.asarray(counts, np.int64)
    _, inverse, tie_sizes = np.unique(counts, return_inverse=True, return_counts=True)
    # In half ranks, so that the middle of an even number of ties is an integer
    middle_half_ranks = 2 * np.cumsum(tie_sizes) - tie_sizes
    thirds = 3 * middle_half_ranks // (2 * max(counts.size, 1))
    thirds[-1:] = len(THIRD_NAMES) - 1
    thirds[:1] = 0
    third_of_tag = thirds[inverse]
    bands = []
    for third_index, name in enumerate(THIRD_NAMES):
        tags = np.flatnonzero(third_of_tag == third_index)
        if tags.size:
            least, most = int(counts[tags].min()), int(counts[tags].max())
            bands.append(Band(f"{name} ({_range_text(least, most)})", least, most, tags))
    return bands


def band_values(values: dict[str, NDArray[np.float64]], band: Band, k: int) -> dict[str, NDArray[np.float64]]:
    """Return the measures of a band's tags, from the values of all tags that `visterm.metrics.measure` returned.

    `values` has ``tag_p@k``, ``tag_r@k`` and, if measured, ``word_map``. Returns them, float64, with one value per tag
    of the band, NaN if no measured image has the tag; and ``tag_f1@k`` and ``n_plus@k``, shape (1,), of the band alone.
    Images still get their k best of *all* tags. Returns {} if no measured image has a tag of the band.
    """
    precisions, recalls = values[f"tag_p@{k}"][band.tags], values[f"tag_r@{k}"][band.tags]
    if np.isnan(recalls).all():
        return {}
    measures = {
        f"tag_p@{k}": precisions,
        f"tag_r@{k}": recalls,
        f"tag_f1@{k}": f1_of_means(precisions, recalls),
        f"n_plus@{k}": np.full(1, np.count_nonzero(recalls > 0), np.float64),
    }
    word_maps = values.get("word_map")
    if word_maps is not None and not np.isnan(word_maps[band.tags]).all():
        measures["word_map"] = word_maps[band.tags]
    return measures


def _range_text(least: int, most: int) -> str:
    if most < 0:
        return f"{least:,} or more"
    return "none" if most == 0 else f"{least:,}" if least == most else f"{least:,} to {most:,}"
