"""Abilities that only some models have: callers check for an ability, never for a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.errors import ShapeError, UserError
from visterm.core.products import dense
from visterm.core.types import Matrix, MatrixLike, PairRanking

if TYPE_CHECKING:
    import scipy.sparse as sp

    from visterm.core.progress import Progress
    from visterm.encoders.onnx_graph import GraphSteps
    from visterm.models.base import Annotator


@runtime_checkable
class LearnsOn(Protocol):
    """Keeps learning from more images."""

    def partial_fit(self, X: MatrixLike, Y: MatrixLike, *, images: bool = True) -> Self:
        """Train for one epoch on more images and their tags; with ``images=False`` stored image rows stay valid."""


@runtime_checkable
class AddsTags(Protocol):
    """Learns new tags and leaves the others unchanged."""

    def add_tags(self, X: MatrixLike, Y_new: MatrixLike) -> Self:
        """Learn the rows of new tags, and append them to those of the known tags."""


@runtime_checkable
class FoldsIn(Protocol):
    """Computes the row of an image known by number from its tags alone."""

    def fold_in(self, Y: sp.csr_array) -> Matrix:
        """Return the image rows of images with the tags `Y`, shape (n_images, n_tags), which may be new images."""


@runtime_checkable
class RelearnsTags(Protocol):
    """Relearns all tags quickly; image rows don't depend on what was learned."""

    fixed_image_rows: ClassVar[bool]


class FeatureShares(NamedTuple):
    """The parts of a score: ``Σ shares + constant + elsewhere``."""

    shares: NDArray[np.float64]  # shape (n_features,): the image's features times `weights`
    weights: NDArray[np.float64]  # shape (n_features,): the slope of the tag's score by each feature
    constant: float  # The tag's bias: its score for an image whose features are all 0
    elsewhere: float = 0.0  # The score by members of a blend that compare whole images: no single feature explains it


@runtime_checkable
class Explains(Protocol):
    """Explains scores by features; needs scores that are linear in the features."""

    def explain(self, x: MatrixLike, tag: int) -> FeatureShares:
        """Return the contribution of each feature of one image to the score of a tag."""


@runtime_checkable
class LearnsQueries(Protocol):
    """Learns from queries and their relevant images, not only from tags."""

    def fit_queries(self, X: MatrixLike | None, Q: MatrixLike, R: MatrixLike, **options: Any) -> Self:
        """Learn from query words, weights of shape (n_queries, n_tags), and relevant images, (n_queries, n_images).

        Options are `valid`, a triple (X, Q, R) for early stopping, and `monitor` and `on_epoch`, as for `fit`.
        """


@runtime_checkable
class LabelsParts(Protocol):
    """Knows part-of relations between tags, and labels an image of an object and an image of its part together."""

    part_of_: NDArray[np.int64]

    def annotate_pairs(self, X_object: MatrixLike, X_part: MatrixLike, k: int = 5, **options: Any) -> PairRanking:
        """Rank pairs of labels for each pair of images; if one of the two labels is known, rank the other."""

    def relation_scores(self, wholes: ArrayLike) -> NDArray[np.float32]:
        """Return a score for each tag to be a part of each of the `wholes`, shape (n_wholes, n_tags)."""


@runtime_checkable
class PlacesWords(Protocol):
    """Computes rows for words that are not tags, from their vectors."""

    def tag_rows_from(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Return rows, (n_words, width), for vectors from the same source as the model's word vectors."""


@runtime_checkable
class FitsStreams(Protocol):
    """Learns from rows that don't fit in memory, window by window, and can resume after an interruption."""

    def fit_stream(self, windows: Any, **options: Any) -> Self:
        """Learn from windows, with the options of `visterm.models.ranking.ranker.PairRanker.fit_stream`."""


@runtime_checkable
class FinishesFits(Protocol):
    """Continues a fit that validation images stopped, from its best weights."""

    def finish(self, X: Matrix, Y: sp.csr_array, *, monitor: Progress) -> None:
        """Learn from all images, checked as in `_fit`; call it once, after a `fit` with validation images."""


@runtime_checkable
class WritesSteps(Protocol):
    """Writes its scores as steps of an ONNX graph (`visterm.encoders.onnx_graph.GraphSteps`)."""

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from the features, a tensor named `x`, to the scores; return the name of the scores' tensor.

        `x` has the shape (n_images, n_features). The scores, (n_images, n_tags), are those of `decision_function`.
        Raises UserError if a setting doesn't allow an export, such as a kernel with training images.
        """


def explain_linear(model: Annotator, x: MatrixLike, tag: int) -> FeatureShares:
    """Return the contribution of each feature of an image `x`, shape (1, n_features), to the score of a tag (a column).

    The parts sum to the score of `decision_function`, except for its rounding to float32. Raises ShapeError if `x` is
    not one image; UserError if the tag doesn't exist.

    A model whose scores are ``x · w_tag + b_tag`` uses this function as a method, ``explain = explain_linear``, and
    implements ``_scorer(x, tag)``: it takes checked features of one image and returns the weights of the features,
    float64, shape (n_features,), and the bias of the tag.
    """
    x = model._check_features(x)
    if x.shape[0] != 1:
        raise ShapeError(f"x has {x.shape[0]} rows; expected one image, shape (1, {model.n_features_in_}).")
    if not 0 <= tag < model.n_tags_:
        raise UserError(setting="tag", value=tag, expected=f"a column of Y, from 0 to {model.n_tags_ - 1}")
    weights, constant = model._scorer(x, int(tag))
    return FeatureShares(np.asarray(dense(x), np.float64)[0] * weights, weights, constant)


def places_words(model: object) -> bool:
    """Return whether a fitted model, or a ranking member of a blend, has rows for words that are not tags."""
    return isinstance(model, PlacesWords) or (
        hasattr(model, "_ranking") and any(map(_starts_from_text, model._ranking()[0]))  # a blend
    )


def rows_of_words(model: Any, vectors: ArrayLike) -> NDArray[np.float32]:
    """Return rows for words that are not tags, like `PlacesWords.tag_rows_from`; `places_words` must be true.

    In a blend, only the first member with word vectors scores the words. Its scores get the weight of all members
    together, so that a query can combine words and tags.
    """
    if isinstance(model, PlacesWords):
        return np.asarray(model.tag_rows_from(vectors), np.float32)
    members, stacked = model._ranking()[0], model._stacked()
    text_member = next(index for index, member in enumerate(members) if _starts_from_text(member))
    widths = [member.n_tags_ if (V := member._tag_rows()) is None else V.shape[1] for member in members]
    rows = np.zeros((np.shape(vectors)[0], sum(widths) + 1), np.float32)
    factor = model.weights_[stacked].sum() / model.scales_[stacked][text_member]
    start = sum(widths[:text_member])
    rows[:, start : start + widths[text_member]] = members[text_member].tag_rows_from(vectors) * np.float32(factor)
    return rows


def _starts_from_text(member: object) -> bool:
    return isinstance(member, PlacesWords) and isinstance(member, RelearnsTags)
