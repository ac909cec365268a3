"""What some models can do beyond the contract: callers ask "can it?", never "which is it?"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.errors import ShapeError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.products import dense
from visterm.core.types import MatrixLike, PairRanking

if TYPE_CHECKING:
    from visterm.encoders.onnx_graph import GraphSteps


@runtime_checkable
class LearnsOn(Protocol):
    """Keeps learning from more images."""

    def partial_fit(self, X: MatrixLike, Y: MatrixLike, *, images: bool = True) -> Self:
        """Go once over more images and their tags; with ``images=False`` stored image rows stay valid."""


@runtime_checkable
class AddsTags(Protocol):
    """Learns new tags and leaves the others unchanged."""

    def add_tags(self, X: MatrixLike, Y_new: MatrixLike) -> Self:
        """Learn the rows of new tags, which follow the old ones."""


@runtime_checkable
class RelearnsTags(Protocol):
    """Learns all tags anew in a moment, and image rows are the same whatever was learned."""

    fixed_image_rows: ClassVar[bool]


class FeatureShares(NamedTuple):
    """A score taken apart: ``Σ shares + constant + elsewhere``."""

    shares: NDArray[np.float64]  # shape (n_features,): the image's features times `weights`
    weights: NDArray[np.float64]  # shape (n_features,): what the tag's score gains with each feature
    constant: float  # What the tag scores on an image without any feature: its bias
    elsewhere: float = 0.0  # From members of a blend that compare whole images, so that no feature has a share


@runtime_checkable
class Explains(Protocol):
    """Explains a score by features, because its scores are linear in them."""

    def explain(self, x: MatrixLike, tag: int) -> FeatureShares:
        """Return what each feature of one image adds to the score of a tag."""


@runtime_checkable
class LearnsQueries(Protocol):
    """Learns from queries and the images judged relevant to each, not only from tags."""

    def fit_queries(self, X: MatrixLike | None, Q: MatrixLike, R: MatrixLike, **options: Any) -> Self:
        """Learn from weights of words (n_queries, n_tags) and relevant images (n_queries, n_images).

        `valid` is such a triple of validation images, to stop by; options are `monitor` and `on_epoch`, as for `fit`.
        """


@runtime_checkable
class LabelsParts(Protocol):
    """Knows which tags name parts of what, and labels an image of an object and one of its part together."""

    part_of_: NDArray[np.int64]

    def annotate_pairs(self, X_object: MatrixLike, X_part: MatrixLike, k: int = 5, **options: Any) -> PairRanking:
        """Rank pairs of labels for each pair of images; where one of the two is known, the other."""

    def relation_scores(self, wholes: ArrayLike) -> NDArray[np.float32]:
        """Return how much each tag is a part of some wholes, (n_wholes, n_tags)."""


@runtime_checkable
class PlacesWords(Protocol):
    """Places words that are no tags, by their vectors."""

    def tag_rows_from(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Return rows (n_words, width) for vectors of the kind that the model was fitted with."""


@runtime_checkable
class FitsStreams(Protocol):
    """Learns from rows that do not fit in memory, window by window, and resumes after a kill."""

    def fit_stream(self, windows: Any, **options: Any) -> Self:
        """Learn from windows, with the options of `visterm.models.ranking.ranker.PairRanker.fit_stream`."""


@runtime_checkable
class GivesProbabilities(Protocol):
    """Scores are P(tag | image), so that a search may multiply those of its words, if `probabilities` is True."""

    probabilities: ClassVar[bool]


@runtime_checkable
class WritesSteps(Protocol):
    """Writes its scores as steps of an ONNX graph (`visterm.encoders.onnx_graph.GraphSteps`)."""

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features, the tensor `x` (n_images, n_features), to scores; return their tensor's name.

        Scores are those of all tags, (n_images, n_tags), as `decision_function` returns them. Raises UserError if a
        setting keeps it from that, such as a kernel with training images.
        """


def explain_linear(model: Any, x: Any, tag: int) -> FeatureShares:
    """Return what each feature of an image `x`, (1, n_features), contributes to the score of a tag (a column).

    The shares sum to the score of `decision_function`, up to its rounding to float32. Raises ShapeError if `x` is not
    one image; UserError if there is no such tag, or the score is not linear after all: that of an `Ensemble` with
    another model in it.

    A model whose scores are ``x · w_tag + b_tag`` takes it as its method, ``explain = explain_linear``, and writes
    ``_scorer(x, tag)``: the weights of the features, float64 of shape (n_features,), and the bias of a tag, as they are
    for checked features of one image.
    """
    check_fitted(model)
    x = model._check_features(x)
    if x.shape[0] != 1:
        raise ShapeError(f"x has {x.shape[0]} rows; expected one image, shape (1, {model.n_features_in_}).")
    if not 0 <= tag < model.n_tags_:
        raise UserError(setting="tag", value=tag, expected=f"a column of Y, from 0 to {model.n_tags_ - 1}")
    weights, constant = model._scorer(x, int(tag))
    row = np.asarray(dense(x), np.float64)[0]
    return FeatureShares(row * weights, weights, constant)


def places_words(model: object) -> bool:
    """Return whether a fitted model places words that are no tags, itself or by a member that ranks and has vectors."""
    return isinstance(model, PlacesWords) or (
        hasattr(model, "_ranking") and any(map(_starts_from_text, model._ranking()[0]))  # a blend
    )


def rows_of_words(model: Any, vectors: ArrayLike) -> NDArray[np.float32]:
    """Return rows for words that are no tags, as `PlacesWords.tag_rows_from` does; `places_words` must be true.

    In a blend, the first member that has vectors of words speaks for all: its scores weigh as much as those of all
    members together, so that words and tags can be combined.
    """
    if isinstance(model, PlacesWords):
        return np.asarray(model.tag_rows_from(vectors), np.float32)
    members, weights = model._ranking()[0], model.weights_[model.weights_ > 0]
    speaker = next(index for index, member in enumerate(members) if _starts_from_text(member))
    widths = [member.n_tags_ if (V := member._tag_rows()) is None else V.shape[1] for member in members]
    rows = np.zeros((np.shape(vectors)[0], sum(widths) + 1), np.float32)
    factor = weights.sum() / model.scales_[model.weights_ > 0][speaker]
    first = sum(widths[:speaker])
    rows[:, first : first + widths[speaker]] = members[speaker].tag_rows_from(vectors) * np.float32(factor)
    return rows


def _starts_from_text(member: object) -> bool:
    return isinstance(member, PlacesWords) and isinstance(member, RelearnsTags)
