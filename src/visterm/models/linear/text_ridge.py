"""Ridge that starts from text vectors of the tags: zero-shot without photos, like ridge with hundreds of photos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from visterm.core.checks import check_number, check_size, check_tags
from visterm.core.errors import DataError, ShapeError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, Kind, Number, Whole
from visterm.core.products import dense
from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Floats, Matrix, MatrixLike, RandomState
from visterm.encoders.onnx_graph import GraphSteps
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Limit
from visterm.models.linear.base import LinearAnnotator, check_weight_size, with_ones
from visterm.models.linear.ridge import ALPHAS, PenaltyChoice, choose_penalty
from visterm.models.neighbours.distances import row_squares

TEXT_WEIGHTS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Weights of the text to choose from: the deviation of its scores as a share of that of the photos' scores. From nearly
ridge to mostly text; larger weights would be chosen too often, as people confirm tags that were proposed by text."""

USUAL_WEIGHT = 0.2
"""Used unless another weight is better by more than two standard errors: leave-one-out scores of a tag miss one photo,
and the text looks too good. On validation rows (Corel5k, drawn scenes) this weight was the best, or nearly the best,
for tags of 1, 2, 5, 10 and 50 photos, both for annotation and for search."""

REJECTED = -0.02
"""y of a rejected tag; small because people only reject tags that were proposed by their text. On validation rows
(Corel5k), mostly negative answers lowered MAP with y = -1, and raised it with 0, -0.02 and -0.05."""

MAX_ALPHA = 1.0  # Largest penalty of `Ridge` to try: with text, larger ones were worse for tags of 1 or 2 photos
INITIAL_TEXT_WEIGHT = 10.0  # Weight of the text before any answer: the first answers change scores very little
HALVING_PAIRS = 20  # Number of (photo, tag) pairs that halve `INITIAL_TEXT_WEIGHT`

USUAL_SPREAD = 0.05  # Assumed deviation of the photos' scores before any photo is tagged; measured: 0.03 to 0.08
MAX_GRAM_BYTES = 2**30
MIN_MEAN_SQUARE = 1e-6  # Centred unit rows with a smaller mean square are only rounding errors


@dataclass(kw_only=True, eq=False, repr=False)
class TextRidge(LinearAnnotator):
    """Scores a tag by ``s · x · t + x · δ_t + b_t``, with its text vector t and weights δ_t learned from its photos.

    x is an image's row scaled to length 1, and t the vector of the tag's word, from the two towers of one network.
    δ minimises ``Σ (x · δ_t + c_t - y)² + λ ‖δ_t‖²``, where y is 1 for a tag of the image, slightly below 0 for a
    rejected tag (`REJECTED`), and otherwise 0. A tag without photos has δ = 0, which is zero-shot; each photo adds to
    δ, and with hundreds of photos the text hardly matters, which is ridge. All tags share λ, one factorisation, and s,
    except that for tags without photos the text counts as much as photos do for other tags. The bias makes a tag's mean
    score equal to its mean y; it is 0 as long as no photo has a tag.

    δ is not fitted to the residuals of the text, ``y - s · x · t``: the thousands of photos without a tag would cancel
    the text where its scores are highest, even for tags that nobody has used yet.

    Without `word_vectors`, the model is ridge on rows of length 1.

    Parameters
    ----------
    word_vectors : array-like, shape (n_tags, n_features), optional
        A vector for each tag, from the text tower of the network that encodes the images; the lengths don't matter.
        Rows of zeros mean tags without a vector, which are learned from photos alone.
    alpha : float, optional
        λ, in units of the mean squared length of the centred rows; None: chosen as in `Ridge`, but at most 1.
    text_weight : float, optional
        Deviation of the text's scores over photos and tags, as a share of the deviation of x · δ for left-out photos;
        it sets s. With more, the text matters longer as photos are added. None: the best of `TEXT_WEIGHTS` by the MAP
        of leave-one-out predictions on training images; 0 is ridge.
    random_state : int, RandomState, Generator or None
        If there are more than 2,000 images, samples 2,000 of them to choose `alpha` and `text_weight`.

    Attributes
    ----------
    alpha_, text_weight_ : float
        The values used.
    text_scale_ : float
        s of a tag whose text counts as much as photos.
    tag_rows_ : ndarray of float32, shape (n_tags, n_features + 1)
        The weights, followed by the bias.
    text_rows_ : ndarray of float32, shape (n_tags, n_features)
        The text vectors, scaled to length 1, or zeros.
    gram_ : ndarray of float64, shape (n_features + 1, n_features + 1)
        XᵀX of all training rows, each with a 1 appended.
    moment_rows_ : ndarray of float64, shape (n_tags, n_features + 1)
        YᵀX of the same rows.

    References
    ----------
    Radford et al.: Learning transferable visual models from natural language supervision. ICML 2021 (zero-shot).
    """

    learned: ClassVar[dict[str, Kind]] = {
        "alpha_": Number(above=0),
        "text_weight_": Number(least=0),
        "text_scale_": Number(least=0),
        "n_tags_": Whole(),
        "tag_rows_": Array("float32", ("n_tags_", "n_features_in_ + 1"), empty=True),
        "text_rows_": Array("float32", ("n_tags_", "n_features_in_"), empty=True),
        "gram_": Array("float64", ("n_features_in_ + 1", "n_features_in_ + 1")),
        "moment_rows_": Array("float64", ("n_tags_", "n_features_in_ + 1"), empty=True),
    }
    fixed_image_rows: ClassVar[bool] = True
    start_params: ClassVar[tuple[str, ...]] = ("word_vectors",)
    takes: ClassVar[tuple[str, ...]] = ("word_vectors",)
    limits: ClassVar[dict[str, Limit]] = {
        "alpha": partial(check_number, above=0, otherwise="or None to have it chosen"),
        "text_weight": partial(check_number, least=0, otherwise="or None to have it chosen"),
    }
    test_params: ClassVar[Mapping[str, object]] = {}

    text_rows_: Floats = field(init=False)
    gram_: Doubles = field(init=False)
    moment_rows_: Doubles = field(init=False)

    word_vectors: ArrayLike | None = None
    alpha: float | None = None
    text_weight: float | None = None
    random_state: RandomState = 0

    @classmethod
    def without_tags(cls, n_features: int) -> Self:
        """Return a model that has rows for images with `n_features` features, and knows no tag yet."""
        model = cls().fit(np.zeros((1, n_features), np.float32), np.zeros((1, 1)))
        model.n_tags_ = 0
        model.tag_rows_, model.text_rows_ = model.tag_rows_[:0], model.text_rows_[:0]
        model.moment_rows_ = model.moment_rows_[:0]
        return model

    def partial_fit(self, X: MatrixLike, Y: MatrixLike, *, images: bool = True) -> Self:
        """Learn from more images; the result is that of a fit on all images, with the same λ and s.

        The first call is a `fit`. The columns of `Y` are the model's tags. Image rows never change, so `images` has no
        effect. Raises ShapeError if `Y` has another number of tags.
        """
        if not hasattr(self, "gram_"):
            return self.fit(X, Y)
        X = self._check_features(X)
        Y = check_tags(Y, X.shape[0])
        if Y.shape[1] != self.n_tags_:
            raise ShapeError(
                f"Y has {Y.shape[1]} tags, but this model knows {self.n_tags_}. Add new tags with add_tags(X, Y_new)."
            )

        with one_blas_thread():
            rows = with_ones(_unit(X).astype(np.float64))
            self.gram_ = self.gram_ + dense(rows.T @ rows)
            self.moment_rows_ = self.moment_rows_ + _moment_rows(Y, rows)
            self.tag_rows_ = self._solved(self.moment_rows_, self.text_rows_)
        self._refuse_non_finite()
        return self

    def add_tags(self, X: MatrixLike, Y_new: MatrixLike, *, word_vectors: ArrayLike | None = None) -> Self:
        """Append new tags; the rows of the old tags stay exactly the same.

        `X` are training images of the model, including all images with a new tag; `Y_new`, (n_images, n_new), are their
        new tags, and `word_vectors`, (n_new, n_features), the vectors of the new tags. A tag without an image is scored
        by its vector alone.
        """
        X = self._check_features(X)
        Y = check_tags(Y_new, X.shape[0])
        with one_blas_thread():
            text_rows = self._text(word_vectors, Y.shape[1])
            moments = _moment_rows(Y, with_ones(_unit(X).astype(np.float64)))
            rows = self._solved(moments, text_rows)
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows])
        self.text_rows_ = np.concatenate([self.text_rows_, text_rows])
        self.moment_rows_ = np.concatenate([self.moment_rows_, moments])
        self.n_tags_ += len(rows)
        return self

    def tag_rows_from(self, vectors: ArrayLike) -> Floats:
        """Return the rows, (n_words, n_features + 1), of words that are not tags, like those of tags without photos.

        `vectors` have the shape (n_words, n_features). Raises ShapeError if they have another width.
        """
        check_fitted(self)
        vectors = np.atleast_2d(np.asarray(vectors, np.float32))
        text_rows = self._text(vectors, len(vectors))
        return self._solved(np.zeros((len(text_rows), self.n_features_in_ + 1)), text_rows)

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        n_features, n_tags = X.shape[1], Y.shape[1]
        check_weight_size(n_features, n_tags, "TextRidge")
        check_size(
            8 * (n_features + 1) ** 2,
            MAX_GRAM_BYTES,
            f"TextRidge: products of {n_features} features",
            "Use an encoder with shorter rows, or the model 'ridge'.",
        )
        X = _unit(X)
        self.text_rows_ = self._text(self.known("word_vectors"), n_tags)
        given = sp.csr_array(Y > 0, dtype=np.float32)
        with one_blas_thread():
            rows: Any = with_ones(X.astype(np.float64))
            self.gram_, self.moment_rows_ = dense(rows.T @ rows), _moment_rows(Y, rows)
            alphas = [a for a in ALPHAS if a <= MAX_ALPHA] if self.alpha is None else [float(self.alpha)]
            chosen = choose_penalty(X, given, self._centred()[1], rng, alphas)
            self.alpha_ = chosen.alpha
            self.text_weight_, self.text_scale_ = self._choose_text(X, given, chosen)
            self.tag_rows_ = self._solved(self.moment_rows_, self.text_rows_)

    def _choose_text(self, X: Matrix, given: sp.csr_array, chosen: PenaltyChoice) -> tuple[float, float]:
        """Return the text weight with the best leave-one-out MAP over images, and s for a weight of 1.

        Tags of a single image are not ranked: without this image, only their text would be measured.
        """
        text_rows = self.text_rows_[self.text_rows_.any(axis=1)].astype(np.float64)
        variance = float(np.einsum("ij,ij->", text_rows @ self._covariance(), text_rows)) / max(len(text_rows), 1)
        text_spread = float(np.sqrt(variance)) if variance > MIN_MEAN_SQUARE else 1.0  # deviation of ``x · t``
        predicted_spread = float((chosen.predicted - chosen.predicted.mean(axis=0)).std()) if chosen.rows.size else 0.0
        unit = (predicted_spread or USUAL_SPREAD) / text_spread
        if self.text_weight is not None:
            return float(self.text_weight), unit
        Y_chosen = given[chosen.rows]
        Y_ranked = sp.csr_array(Y_chosen @ sp.diags_array((Y_chosen.sum(axis=0) > 1).astype(np.float32)))
        best_weight = USUAL_WEIGHT
        if Y_ranked.nnz and self.text_rows_.any():
            text_scores = unit * (dense(X[chosen.rows]) - self._centred()[0]) @ self.text_rows_.T
            n_photos, n_pairs = np.asarray(Y_chosen.sum(axis=0)), self._n_pairs()
            n_others = np.where(n_photos > 1, n_photos - 1, n_photos)  # a tag's only photo is not left out
            precisions = {
                weight: average_precisions(
                    chosen.predicted + _text_weights(weight, n_others, n_pairs) * text_scores, Y_ranked
                )
                for weight in TEXT_WEIGHTS
            }
            top = max(TEXT_WEIGHTS, key=lambda weight: float(np.nanmean(precisions[weight])))
            gain = precisions[top] - precisions[USUAL_WEIGHT]
            gain = gain[~np.isnan(gain)]
            best_weight = top if gain.mean() > 2 * gain.std() / np.sqrt(gain.size) else USUAL_WEIGHT
        return best_weight, unit

    def _text(self, vectors: ArrayLike | None, n_tags: int) -> Floats:
        """Return text vectors scaled to length 1; zeros if there are none."""
        if vectors is None:
            return np.zeros((n_tags, self.n_features_in_), np.float32)
        rows = np.asarray(vectors, np.float32)
        if rows.shape != (n_tags, self.n_features_in_):
            expected = f"the shape {(n_tags, self.n_features_in_)}: a row per tag, as wide as the features of images"
            advice = "Take vectors from the text tower of the images' network."
            raise ShapeError(setting="word_vectors", value=rows.shape, expected=expected, advice=advice)
        if not np.isfinite(rows).all():
            raise DataError("word_vectors has infinite numbers or NaN. Set the rows of tags without a vector to zeros.")
        return np.asarray(_unit(rows), np.float32)

    def _centred(self) -> tuple[Doubles, float]:
        """Return the mean row, and the mean squared length of the centred rows."""
        n, mean = self.gram_[-1, -1], self.gram_[-1, :-1] / self.gram_[-1, -1]
        return mean, max(float(np.trace(self.gram_[:-1, :-1])) / n - float(mean @ mean), MIN_MEAN_SQUARE)

    def _covariance(self) -> Doubles:
        mean = self._centred()[0]
        return np.asarray(self.gram_[:-1, :-1] / self.gram_[-1, -1] - np.outer(mean, mean))

    def _n_pairs(self) -> float:
        """Return the approximate number of (image, tag) training pairs; rejected tags lower it slightly."""
        return float(np.maximum(self.moment_rows_[:, -1], 0).sum())

    def _solved(self, moments: Doubles, text: Floats) -> Floats:
        """Return the rows of tags with the given moments and text vectors, with a single factorisation."""
        mean, scale = self._centred()
        n = self.gram_[-1, -1]
        square = n * self._covariance()
        square[np.diag_indices_from(square)] += self.alpha_ * scale
        weights = cho_solve(
            cho_factor(square, lower=True, overwrite_a=True), (moments[:, :-1] - moments[:, -1:] * mean).T
        )
        shares = _text_weights(self.text_weight_, moments[:, -1:], self._n_pairs())
        weights = weights.T + self.text_scale_ * shares * text
        bias = moments[:, -1] / n - weights @ mean
        if not (self.moment_rows_.any() or moments.any()):  # no photo has a tag: zero-shot, without bias
            bias[:] = 0
        return np.column_stack([weights, bias]).astype(np.float32)

    def _image_rows(self, X: Matrix) -> Matrix:
        return super()._image_rows(_unit(X))

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        return super().write_steps(steps, steps.unit(x, self.n_features_in_))

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        weights, bias = super()._scorer(x, tag)
        return weights / (float(np.sqrt(row_squares(x)[0])) or 1.0), bias


def _unit(X: Matrix) -> Matrix:
    squares = row_squares(X)
    factors = np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0)
    return (
        sp.csr_array(sp.diags_array(factors) @ X, dtype=np.float32)
        if sp.issparse(X)
        else np.asarray(X * factors[:, None], np.float32)
    )


def _text_weights(weight: float, n_photos: Doubles, n_pairs: float) -> Doubles:
    """Return the weight of each tag's text: `weight`, or at least 1 for a tag without photos.

    As long as there are few (photo, tag) pairs, the weight is larger for all tags (`INITIAL_TEXT_WEIGHT`). Otherwise a
    tag that a person has just used would rank below tags without any answer.
    """
    if not weight:
        return np.zeros_like(n_photos)
    min_weight = INITIAL_TEXT_WEIGHT / (1 + (n_pairs / HALVING_PAIRS) ** 1.5)
    return np.asarray(np.maximum(np.where(n_photos > 0, weight, max(1.0, weight)), min_weight))


def _moment_rows(Y: sp.csr_array, rows: Matrix) -> Doubles:
    signs = sp.csr_array(Y > 0, dtype=np.float64) + REJECTED * sp.csr_array(Y < 0, dtype=np.float64)
    return np.asarray(dense(signs.T @ rows))
