"""EASE: predict an image's tags from its other tags, by weights from tag to tag in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from visterm.core.checks import check_count, check_size, check_tags
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, Csr, Kind
from visterm.core.products import dense
from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Floats, Ints, Matrix, MatrixLike
from visterm.models.base import Limit, row_blocks
from visterm.models.linear.base import MAX_WEIGHT_BYTES
from visterm.models.linear.normal_equations import fit_ridge, mean_square_norm
from visterm.models.linear.ridge import Ridge

ALPHAS = tuple(10.0 ** (step / 2) for step in range(-2, 10))  # Tried from the middle on, as long as they get better
MAX_CHOICE_TAGS, MAX_CHOICE_IMAGES = 3000, 20_000  # To choose the penalty: its time grows with the cube of the tags
MAX_CHOICE_SCORES = 2**24  # Of the images without a tag, fewer are judged if there are many tags
MIN_CHOICE_IMAGES = 500  # With this many images of three tags, images of two are not used to choose


@dataclass(kw_only=True, eq=False, repr=False)
class Ease(Ridge):
    """Predicts the tags of images known by number from their other tags, by a weight for each pair of tags.

    ``score(i, t) = Σ_s y_is B_st``, where ``B`` minimises ``‖Y - Y B‖² + alpha ‖B‖²`` and no tag predicts itself: with
    ``P = (YᵀY + alpha I)⁻¹``, ``B = I - P diag(1 / diag P)``. So ``u(i)`` is the row of an image's tags, and ``v(t)`` a
    column of ``B``. Explicit negatives count as not given.

    If there are more than `max_inputs` tags, only the most frequent ones predict: each other as above, and the other
    tags by least squares with the same penalty.

    With features, it is `Ridge`, as the tags of a new image are not known.

    Parameters
    ----------
    alpha : float, optional
        Penalty. More trusts fewer pairs of tags, and is nearer to the tag frequencies. None: the value from 0.1 to
        30,000 that ranks held-out tags best, one per training image (mean reciprocal rank, with at most 20,000 images
        and the 3,000 most frequent tags). With features, see `Ridge`.
    max_inputs : int
        Maximum number of tags that predict. Memory grows with its square, time with its cube: 10,000 take 800 MB.
    random_state : int, RandomState, Generator or None
        The held-out tags that choose the penalty.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.
    inputs_ : ndarray of int64, shape (n_inputs,)
        The tags that predict, sorted.
    given_ : csr_array of float32, shape (n_images, n_inputs)
        1 if an image has these tags, or the weight of the pair.
    tag_rows_ : ndarray of float32, shape (n_tags, n_inputs)
        ``Bᵀ``. With features it is ``[w, b]``, without the two attributes above.

    References
    ----------
    Steck, H. 2019. Embarrassingly shallow autoencoders for sparse data. WWW. Equation 8.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "inputs_": Array("int64", ("n_inputs",), least=0, below="n_tags_", required=False),
        "given_": Csr("float32", ("n_images", "n_inputs"), least=0, required=False),
        "tag_rows_": Array("float32", ("n_tags_", None), required=False),
    }

    limits: ClassVar[dict[str, Limit]] = {"max_inputs": check_count}

    reads_parts: ClassVar[bool] = False
    uses_pair_weights: ClassVar[bool] = True

    max_inputs: int = 10_000

    def fold_in(self, Y: sp.csr_array) -> Matrix:
        """Return the rows of images with the tags or weights `Y`: the columns of the tags that predict."""
        if not hasattr(self, "given_"):
            raise UserError("This model was fitted on features, so a row doesn't follow from tags.")
        return sp.csr_array(Y[:, self.inputs_], dtype=np.float32)

    @property
    def note(self) -> str:
        """A sentence about the tags that don't predict, if there are any."""
        n_inputs = self.inputs_.size if hasattr(self, "inputs_") else self.n_tags_
        if n_inputs == self.n_tags_:
            return ""
        return (
            f"ease: only the {n_inputs:,} most frequent of {self.n_tags_:,} tags predict tags, to limit memory and "
            "time; the setting `max_inputs` allows more."
        )

    def add_tags(self, X: MatrixLike | None, Y_new: MatrixLike) -> Self:
        """Add tags, which the old tags predict; the rows of the old tags don't change.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Training images, with all that have a new tag; None: all training images.
        Y_new : array-like or sparse, shape (n_images, n_new)
            Above 0: the image has the new tag.
        """
        X = self._check_features(X)
        added = sp.csr_array(check_tags(Y_new, X.shape[0]) > 0, dtype=np.float32)
        with one_blas_thread():
            if hasattr(self, "given_"):
                moments = dense(added.T.astype(np.float64) @ self._image_rows(X))
                rows = np.asarray(moments @ self._inverse(), np.float32)
            else:
                rows = np.vstack(fit_ridge(X, added, self.alpha_ * mean_square_norm(X))).T
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.n_tags_ += len(rows)
        return self

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        if not getattr(self, "by_number_", False):
            super()._fit(X, Y, rng)
            return
        self.check_settings()
        given = self.weighted(Y)
        self.inputs_ = np.sort(np.argsort(-np.asarray(given.sum(axis=0)), kind="stable")[: self.max_inputs])
        self.given_ = sp.csr_array(given[:, self.inputs_])
        n_inputs, n_tags = self.inputs_.size, Y.shape[1]
        check_size(
            8 * n_inputs**2 + 4 * n_inputs * n_tags,
            MAX_WEIGHT_BYTES,
            f"Weights from {n_inputs:,} tags to {n_tags:,}",
            "Lower `max_inputs`, or leave out rare tags.",
        )

        with one_blas_thread():
            self.alpha_ = choose_alpha(given, rng) if self.alpha is None else float(self.alpha)
            inverse = self._inverse()
            weights, diagonal = np.empty((n_tags, n_inputs), np.float32), np.diag(inverse)
            for rows in row_blocks(n_inputs, 8 * n_inputs):
                weights[self.inputs_[rows]] = -inverse[rows] / diagonal[rows, None]  # `inverse` is symmetric
            weights[self.inputs_, np.arange(n_inputs)] = 0
            others = np.setdiff1d(np.arange(n_tags), self.inputs_)
            for rows in row_blocks(others.size, 8 * n_inputs):
                weights[others[rows]] = dense(given[:, others[rows]].T.astype(np.float64) @ self.given_) @ inverse
        self.tag_rows_ = weights

    def _keep(self, weights: Floats, intercept: Floats, X: Matrix) -> None:
        self.tag_rows_ = np.ascontiguousarray(np.vstack([weights, intercept]).T)

    def _image_rows(self, X: Matrix) -> Matrix:
        if not hasattr(self, "given_"):
            return super()._image_rows(X)
        return sp.csr_array(sp.csr_array(X) @ self.given_)

    def _check_learned(self) -> None:
        width = getattr(self, "inputs_", np.empty(self.n_features_in_ + 1)).size
        if hasattr(self, "inputs_") != hasattr(self, "given_"):
            raise DataError("There is only one of inputs_ and given_; expected both or neither")
        if hasattr(self, "tag_rows_") and self.tag_rows_.shape[1] != width:
            raise DataError(f"tag_rows_ has {self.tag_rows_.shape[1]} columns; expected {width}")
        super()._check_learned()

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        if not hasattr(self, "given_"):
            return super()._scorer(x, tag)
        return np.asarray(self.given_ @ self.tag_rows_[tag].astype(np.float64)), 0.0

    def _inverse(self) -> Doubles:
        return inverse_gram(gram(self.given_), self.alpha_)


def gram(given: sp.csr_array) -> Doubles:
    """Return ``YᵀY`` as an array, without the same matrix as CSR."""
    by_tag, n_tags = sp.csr_array(given.T, dtype=np.float64), given.shape[1]
    products = np.empty((n_tags, n_tags))
    for rows in row_blocks(n_tags, 8 * n_tags):
        products[rows] = dense(by_tag[rows] @ given)
    return products


def inverse_gram(gram: Doubles, alpha: float) -> Doubles:
    """Return ``(gram + alpha I)⁻¹`` of a symmetric matrix, which it overwrites."""
    gram[np.diag_indices_from(gram)] += alpha
    factor, _ = lapack.dpotrf(gram.T, lower=0, overwrite_a=1)  # in Fortran order, without a copy
    inverse, _ = lapack.dpotri(factor, lower=0, overwrite_c=1)
    for rows in row_blocks(len(inverse), 8 * len(inverse)):
        inverse[rows, : rows.start] = inverse[: rows.start, rows].T
        square = inverse[rows, rows]
        square[...] = np.triu(square) + np.triu(square, 1).T
    return np.asarray(inverse)


def choose_alpha(given: sp.csr_array, rng: np.random.Generator) -> float:
    """Return the penalty that ranks held-out tags best, one per image, among the tags that the image lacks.

    `given`, (n_images, n_tags), is 1 where a tag is given. Images with fewer than two tags are not used.
    """
    counts = np.asarray(given.sum(axis=0))
    given = sp.csr_array(given[:, np.sort(np.argsort(-counts, kind="stable")[:MAX_CHOICE_TAGS])])
    n_given = np.diff(given.indptr)
    min_tags = 3 if np.count_nonzero(n_given >= 3) >= MIN_CHOICE_IMAGES else 2
    images = np.sort(rng.permutation(np.flatnonzero(n_given >= min_tags))[:MAX_CHOICE_IMAGES])
    middle = len(ALPHAS) // 2
    if images.size == 0:
        return float(ALPHAS[middle])
    entries = given.indptr[images] + rng.integers(0, n_given[images])
    hidden = given.indices[entries]
    known = given.copy()
    known.data[entries] = 0
    known.eliminate_zeros()
    products, judged = gram(known), rng.permutation(images.size)[: MAX_CHOICE_SCORES // known.shape[1]]
    images, hidden = images[judged], hidden[judged]

    def reciprocal_rank(step: int) -> float:
        inverse = inverse_gram(products.copy(), ALPHAS[step])
        B = np.asarray(-inverse / np.diag(inverse), np.float32)
        B[np.diag_indices_from(B)] = 0
        return float(np.concatenate(list(reciprocal_ranks(known, B, images, hidden))).mean())

    value = {step: reciprocal_rank(step) for step in (middle - 1, middle)}
    best = max(value, key=value.__getitem__)
    direction = 1 if best == middle else -1
    while 0 <= (step := best + direction) < len(ALPHAS):
        value[step] = reciprocal_rank(step)
        if value[step] <= value[best]:
            break
        best = step
    return float(ALPHAS[best])


def reciprocal_ranks(known: sp.csr_array, B: Floats, images: Ints, hidden: Ints) -> Iterator[Doubles]:
    """Yield the reciprocal rank of each image's hidden tag among all tags that it lacks in `known`, in blocks."""
    for part in row_blocks(images.size, 8 * B.shape[1]):
        rows = known[images[part]]
        scores = np.asarray(rows @ B, np.float32)
        score = scores[np.arange(len(scores)), hidden[part]][:, None]
        scores[rows.nonzero()] = -np.inf
        higher, equal = (scores > score).sum(axis=1), (scores == score).sum(axis=1)
        yield 1 / (1 + higher + (equal - 1) / 2)
