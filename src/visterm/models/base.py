"""The contract of every model: score(image, tag) = < u(image), v(tag) >."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core import checks
from visterm.core.errors import DataError, DivergedError, ShapeError, VistermError
from visterm.core.estimator import Estimator, check_fitted
from visterm.core.learned import Flag, Kind, Listed, Text, Whole
from visterm.core.products import all_products, top_k_products, transposed_for
from visterm.core.progress import SILENT, Progress
from visterm.core.selected_rows import SelectedRows
from visterm.core.types import Matrix, MatrixLike, Ranking
from visterm.core.vocabulary import Vocabulary
from visterm.data.frames import lists_of_tags
from visterm.kernels.topk import top_k
from visterm.metrics.ranking import Scores, as_matrix, average_precisions
from visterm.models.stopping import OPEN, HeldOutFit, Judged, OnEpoch, Watch

if TYPE_CHECKING:
    from sklearn.utils import Tags

Blocks: TypeAlias = "Sequence[int | tuple[int, int]]"
"""Blocks of adjacent feature columns: the width of each block, or its (start, stop) columns."""

Limit: TypeAlias = Callable[[Any, str], None]  # Takes the value and the name of a setting; raises `UserError`

MAX_SCORE_BYTES, BLOCK_BYTES = 2**31, 2**25
MAX_FEATURE = 1e15  # Largest feature allowed: sums of squares of such features don't overflow float32


@dataclass(frozen=True, kw_only=True, eq=False)
class SideKnowledge:
    """Further knowledge about tags and features; a model uses the fields that its `takes` lists."""

    part_of: ArrayLike | None = None  # int, shape (n_relations, 2): columns of a part and of its whole
    siblings: ArrayLike | None = None  # int, shape (n_pairs, 2): columns of two tags of the same kind
    tree: ArrayLike | None = None  # int, shape (n_pairs, 2): columns of a tag and of one of its ancestors
    word_vectors: ArrayLike | None = (
        None  # float, shape (n_tags, width): vectors of the tags, zeros for a tag without a vector
    )
    blocks: Blocks | None = None
    pair_weights: sp.csr_array | None = None  # float, shape (n_images, n_tags): weights above 0 of the given tags


class Annotator(Estimator, ABC):
    """Learns to score tags for images. A new model writes `_fit` (or `_fit_monitored`) and `_image_rows`.

    ``_fit(self, X, Y, rng)`` sets attributes that end in ``_``; `X` is float32, an array or CSR, and `Y` CSR of 1 and
    -1. ``_image_rows(self, X)`` returns U. A model whose space is not tag space also sets ``tag_rows_``
    (n_tags, width), the matrix V; without it V is the identity, and image rows are the rows of tag scores.

    A model that was fitted on sparse identity rows, or on None, knows images by number. For such a model, None in
    place of features means all images, and rows of the identity matrix select some of them.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the `X` that the model was fitted on.
    n_tags_ : int
        Columns of the `Y` that the model was fitted on.
    by_number_ : bool
        Set, and True, only if `X` was the identity as CSR, or None.
    classes_ : list of str
        Set only if `Y` was lists of tags: the tag of each column.

    Examples
    --------
    >>> from visterm.models import Ridge, Wsabie
    >>> Ridge().fit(X, tags).annotate(X_new, k=5).ids  # doctest: +SKIP
    >>> model = Wsabie().fit(None, Y)  # images known by number  # doctest: +SKIP
    >>> model.annotate(scipy.sparse.eye_array(n_images, format="csr")[[0, 5]])  # two images  # doctest: +SKIP
    """

    n_features_in_: int
    n_tags_: int
    by_number_: bool
    _side = SideKnowledge()
    _may_hold_out = True
    _held_out: HeldOutFit | None = None
    _unfinished: Any = None  # The training that `FinishesFits.finish` continues

    learned: ClassVar[dict[str, Kind]] = {
        "n_features_in_": Whole(least=1),
        "n_tags_": Whole(least=1),
        "by_number_": Flag(required=False),
        "classes_": Listed(Text(), "n_tags_", required=False),
        "feature_names_in_": Listed(Text(), "n_features_in_", required=False),
    }
    """Learned attributes and the values allowed in files; a model adds its own to those of its base classes."""

    takes: ClassVar[tuple[str, ...]] = ()
    """Fields of `SideKnowledge` that the model uses. Each is also a setting, which has precedence if it is not None."""

    reads_parts: ClassVar[bool] = False
    """Whether a fit reads an array part by part, so that it may be `SelectedRows`."""

    uses_pair_weights: ClassVar[bool] = False
    """Whether the model uses the field `pair_weights` of `SideKnowledge`; it is not a setting."""

    limits: ClassVar[dict[str, Limit]] = {}
    """Functions that check the values of settings; a model adds its own to those of its base classes."""

    def fit(
        self,
        X: MatrixLike | None,
        Y: MatrixLike,
        *,
        side: SideKnowledge | None = None,
        valid: tuple[MatrixLike, MatrixLike] | None = None,
        hold_out: bool = True,
        monitor: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Self:
        """Learn from images and their tags, from the start each time it is called. Settings stay as they are.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Image features. None means images known only by number: identity rows, (n_images, n_images). By itself, a
            model doesn't hold out such images, because it would know nothing about them.
        Y : array-like or sparse, shape (n_images, n_tags) or (n_images,), or a list of tags for each image
            Above 0: the image has the tag; 0: unknown; below 0: it doesn't have the tag. A vector is a single tag.
        side : SideKnowledge, optional
            Further knowledge about the tags and the features; models that cannot use it ignore it.
        valid : tuple (X, Y), optional
            Validation rows for early stopping; models without early stopping ignore them.
        hold_out : bool
            Whether a model without validation rows may hold out the share of its setting ``valid_share``.
        monitor : Progress, optional
            Shows each step.
        on_epoch : callable, optional
            Called after each epoch with the epoch's record, a dict that is also added to `history_`; if it returns
            "stop", training ends. A model that holds out images trains twice and calls it in both trainings; "stop"
            ends the current one. During the call, the model has the weights after that epoch. Models without epochs
            ignore it.

        Raises
        ------
        DataError
            If `X` or `Y` cannot be used.
        DivergedError
            If training ends in infinity or NaN.
        """
        with self._fitting(X, Y, valid, side=side, hold_out=hold_out) as (X, Y, rng, valid):
            self._fit_monitored(X, Y, rng, valid, Watch(monitor or SILENT, on_epoch))
        return self

    def image_rows(self, X: MatrixLike | None) -> Matrix:
        """Return the image rows U, which catalogues store: float32 array or CSR, shape (n_images, width)."""
        return self._checked_rows(self._check_features(X))

    def query_rows(self, Q: MatrixLike) -> Matrix:
        """Return query rows, Q · V, as wide as image rows, for `Q`, shape (n_queries, n_tags): weights of tags.

        Raises ShapeError if the number of columns of `Q` is not the model's number of tags.
        """
        check_fitted(self)
        Q = checks.as_csr(np.atleast_2d(Q) if not sp.issparse(Q) else Q)
        if Q.shape[1] != self.n_tags_:
            raise ShapeError(f"Q has {Q.shape[1]} columns, but this model knows {self.n_tags_} tags.")
        V = self._tag_rows()
        return Q if V is None else (Q @ V if sp.issparse(V) else np.asarray(Q @ V, dtype=np.float32))

    def decision_function(self, X: MatrixLike | None) -> NDArray[np.float32]:
        """Return all scores, shape (n_images, n_tags), float32: U · Vᵀ.

        Raises TooLargeError if the scores take more than 2 GiB; `annotate` computes them in blocks.
        """
        X = self._check_features(X)
        checks.check_size(
            4 * X.shape[0] * self.n_tags_,
            MAX_SCORE_BYTES,
            f"All scores of {X.shape[0]} images × {self.n_tags_} tags",
            "Use annotate(X, k), or pass fewer rows at a time.",
        )
        return self._scores(self._image_rows(X))

    @property
    def predict(self) -> NoReturn:
        """Not there, because a model has no cut-offs: a tagger has, such as ``visterm.fit(X, tags, model=Ridge())``."""
        raise AttributeError(
            f"A {type(self).__name__} ranks tags, and has no cut-offs. annotate(X, k) returns the best tags, and "
            f"decision_function(X) all scores; a tagger has predict: visterm.fit(X, tags, model={self!r})."
        )

    def annotate(self, X: MatrixLike | None, k: int = 5) -> Ranking:
        """Rank the tags of each image.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Image features.
        k : int
            How many tags; 0 means all.

        Returns
        -------
        Ranking
            Tag ids and scores, shape (n_images, min(k, n_tags)), best first, ties by the smaller id; and the `tags`
            themselves, if the model was fitted on lists of tags.
        """
        X = self._check_features(X)
        k = checks.check_k(k, self.n_tags_)
        ids = np.empty((X.shape[0], k), np.int64)
        scores = np.empty((X.shape[0], k), np.float32)
        V, columns = self._tag_rows(), None
        for rows in row_blocks(X.shape[0], 4 * (self.n_tags_ if V is None else V.shape[1])):
            U = self._checked_rows(X[rows])
            if isinstance(U, np.ndarray) and isinstance(V, np.ndarray):  # without storing all scores
                ids[rows], scores[rows] = top_k_products(U, V, k, getattr(self, "n_jobs", None))
                continue
            columns = transposed_for(U, V, X.shape[0]) if columns is None else columns
            for block in row_blocks(U.shape[0], 4 * self.n_tags_):
                ids[rows][block], scores[rows][block] = top_k(self._scores(U[block], columns), k)
        self._finite(scores)
        return Ranking(ids, scores).named(getattr(self, "classes_", None))

    def score(self, X: MatrixLike | None, y: MatrixLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean average precision (MAP) over images: how high the right tags rank, 0 to 1.

        With it, scikit-learn can choose settings (`GridSearchCV`) and compare models (`cross_val_score`). Training tags
        of the same images count like any other tag: for images known by number they rank first, and count as wrong if
        `y` doesn't have them. `visterm.metrics.evaluate` with ``exclude=Y_train`` leaves them out.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Image features.
        y : array-like or sparse, shape (n_images, n_tags), or lists of tags if the model was fitted on lists
            The tag matrix Y, with the name that scikit-learn uses; above 0: right. Images without a right tag don't
            count.
        sample_weight : array-like, shape (n_images,), optional
            Weight of each image; None: equal weights.

        Raises DataError or ShapeError if `y` cannot be used, or no image has a right tag and a weight.
        """
        precisions = average_precisions(*self.judged(X, y)[:2])
        weights = np.ones(precisions.size) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weights.shape != precisions.shape:
            expected = f"the shape ({precisions.size},), one per image"
            raise ShapeError(setting="sample_weight", value=weights.shape, expected=expected)
        tagged = np.isfinite(precisions)
        total = float(weights[tagged].sum())
        if not total > 0:
            raise DataError("No image has a right tag and a weight above 0, so there is nothing to measure.")
        return float(precisions[tagged] @ weights[tagged]) / total

    def judged(self, X: MatrixLike | None, y: MatrixLike) -> tuple[Scores, MatrixLike, None]:
        """Return a function that yields blocks of scores, the tags as a matrix, and None, for `visterm.scorer`."""
        X = self._check_features(X)
        rows: Any = checks.as_csr(X) if not sp.issparse(X) and np.count_nonzero(X) == X.shape[0] else X
        if X.shape[0] > 1 and not hasattr(self, "by_number_") and checks.is_identity(rows, part=True):
            warnings.warn(
                "X has rows of an identity matrix, which are images known by number, and the model has learned from "
                "other rows: it knows nothing of these, so the score means nothing. Hide some tags of each row instead "
                "(visterm.metrics.evaluate with `exclude`).",
                stacklevel=3,
            )
        return partial(self._score_checked, X), as_matrix(y, self), None

    def take_held_out(self) -> HeldOutFit | None:
        """Return and forget how the last `fit` scored its held-out images before it learned from all images.

        It also forgets the training that `finish` would continue.
        """
        held_out, self._held_out, self._unfinished = self._held_out, None, None
        return held_out

    def remember(self, side: SideKnowledge) -> Self:
        """Set the side knowledge for the next `partial_fit`, for example about other tags than those of `fit`."""
        self._side = side
        return self

    def known(self, name: str) -> Any:
        """Return the value of a field of `SideKnowledge`: the setting or, if it is None, the value passed to `fit`."""
        setting = getattr(self, name)
        return getattr(self._side, name) if setting is None else setting

    def weighted(self, Y: sp.csr_array) -> sp.csr_array:
        """Return the given tags as 1, or as their `pair_weights`, float32, shape (n_images, n_tags)."""
        given = sp.csr_array(Y > 0, dtype=np.float32)
        weights = self._side.pair_weights
        return given if weights is None else sp.csr_array(given.multiply(weights), dtype=np.float32)

    def check_settings(self) -> None:
        """Check the settings before any long work; call it first in a model's `_fit`."""
        self.check_stored_settings()

    def check_stored_settings(self) -> None:
        """Check settings that were read from a file."""
        limits: dict[str, Limit] = {}
        for cls in reversed(type(self).__mro__):
            limits |= vars(cls).get("limits", {})
        for name, check in limits.items():
            if hasattr(self, name):
                check(getattr(self, name), name)
        self._check_settings()

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        """Learn from checked input (`X` float32, array or CSR; `Y` CSR of 1 and -1); set attributes ending in ``_``."""
        raise NotImplementedError(f"{type(self).__name__} has neither _fit nor _fit_monitored.")

    @abstractmethod
    def _image_rows(self, X: Matrix) -> Matrix:
        """Return U for checked features."""

    def _check_learned(self) -> None:
        """Raise `DataError` if learned attributes, each valid as `learned` declares it, are inconsistent."""

    def _check_settings(self) -> None:
        """Raise `UserError` for settings that are valid by `limits`, but cannot be used together."""

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        """Learn with validation rows, progress and a callback (`watch`); for models that train in epochs."""
        self._fit(X, Y, rng)

    @contextmanager
    def _fitting(
        self,
        X: Any,
        Y: Any,
        valid: tuple[MatrixLike, MatrixLike] | None = None,
        *,
        side: SideKnowledge | None = None,
        hold_out: bool = True,
    ) -> Iterator[tuple[Matrix, sp.csr_array, np.random.Generator, Judged]]:
        """Delete learned attributes, yield the checked input, and then check that the new attributes are finite."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        if (lists := lists_of_tags(Y)) is not None:
            vocabulary = Vocabulary.from_lists(lists)
            Y, self.classes_ = vocabulary.encode(lists), vocabulary.tags
        if isinstance(X, SelectedRows):  # a blend has checked the rows that it selects
            self.n_features_in_ = X.shape[1]
        else:
            X = self._check_features(checks.identity_rows(checks.count_rows(Y)) if X is None else X, reset=True)
        Y = checks.check_tags(Y, X.shape[0])
        if checks.is_identity(X):
            self.by_number_ = True
        if valid is not None:
            X_valid = self._check_features(valid[0])
            valid = X_valid, checks.check_tags(as_matrix(valid[1], self), X_valid.shape[0])
            if valid[1].shape[1] != Y.shape[1]:
                raise ShapeError(f"The validation Y has {valid[1].shape[1]} tags, the training Y {Y.shape[1]}.")

        self.n_tags_, self._held_out = Y.shape[1], None
        rng = checks.as_generator(getattr(self, "random_state", None))
        self._side = side or SideKnowledge()
        # A model knows nothing about held-out images that it knows only by number, unless it holds out tags
        self._may_hold_out = hold_out and (self.holds_out_tags or not checks.is_identity(X))
        yield X, Y, rng, valid
        self._refuse_non_finite()

    @property
    def chooses_epochs(self) -> bool:
        """Whether training chooses its number of epochs."""
        return getattr(self, "schedule", None) == OPEN

    @property
    def holds_out_tags(self) -> bool:
        """Whether a fit may hold out tags of images known by number."""
        return self.chooses_epochs

    @property
    def share_to_hold_out(self) -> float:
        """The share of the images that the current fit may hold out."""
        return float(self.valid_share) if self._may_hold_out else 0.0

    def _tag_rows(self) -> Matrix | None:
        """Return V, or None if it is the identity."""
        return getattr(self, "tag_rows_", None)

    def _scores(self, U: Matrix, columns: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        return all_products(U, self._tag_rows(), columns)

    def score_blocks(self, X: MatrixLike | None) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the rows and the scores of one block of images after another, to limit the memory."""
        yield from self._score_checked(self._check_features(X))

    def _score_checked(self, X: Matrix) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the same as `score_blocks`, for features that are already checked."""
        return self._score_rows(X.shape[0], lambda rows: self._image_rows(X[rows]))

    def _score_rows(
        self, n_images: int, image_rows: Callable[[slice], Matrix]
    ) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the same as `score_blocks`, for image rows that a function returns block by block."""
        columns = None
        for rows in row_blocks(n_images, 4 * self.n_tags_):
            U = image_rows(rows)
            columns = transposed_for(U, self._tag_rows(), n_images) if columns is None else columns
            yield rows, self._scores(U, columns)

    def _check_features(self, X: Any, *, reset: bool = False) -> Matrix:
        """Return features as float32, array or canonical CSR; `reset` if the model is about to learn from them."""
        if not reset:
            check_fitted(self)
        if X is None:
            if not getattr(self, "by_number_", False):
                raise DataError(
                    "X is None, which means images known by number, but this model was fitted on features "
                    f"({self.n_features_in_} per image). Pass the features of the images."
                )
            X = checks.identity_rows(self.n_features_in_)
        if sp.issparse(X) and X.dtype.kind in "biuf":
            X = checks.as_csr(X)
        has_names = hasattr(self, "feature_names_in_")
        if not has_names and _is_checked(X) and (reset or X.shape[1] == self.n_features_in_):
            self.n_features_in_ = X.shape[1]
        else:
            from sklearn.utils.validation import validate_data

            try:
                X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32, order="C")
            except VistermError:
                raise
            except ValueError as error:  # scikit-learn's text, on one line like all our error messages
                if "contains NaN" in str(error) or "contains infinity" in str(error):
                    raise DataError(
                        f"{str(error).splitlines()[0].rstrip('.')}. Every feature has to be a finite number: leave "
                        "these images out, or fill in the missing features."
                    ) from error
                raise DataError(" ".join(str(error).split())) from error
        checks.check_magnitude(X.data if sp.issparse(X) else X, MAX_FEATURE, "X")
        return X

    def _checked_rows(self, X: Matrix) -> Matrix:
        """Return U for checked features. Raises ShapeError if it is not as wide as V."""
        U, V = self._image_rows(X), self._tag_rows()
        if U.shape[1] != (width := self.n_tags_ if V is None else V.shape[1]):
            raise ShapeError(f"{type(self).__name__}._image_rows returned {U.shape}; expected (n_images, {width}).")
        return self._finite(U)

    def _finite(self, rows: Matrix) -> Matrix:
        """Return rows or scores unchanged; raise `DataError` if they have infinite or NaN values."""
        values: Any = rows.data if sp.issparse(rows) else rows
        if not checks.all_finite(values):
            raise DataError(
                f"The scores of this {type(self).__name__} are infinite or NaN for these images. "
                "Scale the features to unit length, or fit the model again."
            )
        return rows

    def _refuse_non_finite(self) -> None:
        """Raise `DivergedError` if a learned attribute has infinite or NaN values."""
        for name, value in vars(self).items():
            array = value.data if sp.issparse(value) else value
            if name.endswith("_") and isinstance(array, np.ndarray) and not checks.all_finite(array):
                raise DivergedError(
                    f"{type(self).__name__}.{name} became infinite or NaN.",
                    advice="Lower `learning_rate` (or `max_norm`), or scale the features to unit length.",
                )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = getattr(self, "kernel", None) == "precomputed"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False  # vectors of class numbers are not allowed
        return tags


def _is_checked(X: Any) -> bool:
    """Return whether features need no conversion by scikit-learn, which is slow to import."""
    is_plain = isinstance(X, sp.csr_array) or (type(X) is np.ndarray and X.flags.c_contiguous)
    if not is_plain or X.ndim != 2 or X.dtype != np.float32 or min(X.shape) == 0:
        return False
    return bool(checks.all_finite(X.data if sp.issparse(X) else X))


def row_blocks(n: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices of n rows, in blocks whose arrays, of `row_bytes` per row, take at most 32 MiB."""
    step = max(1, BLOCK_BYTES // max(row_bytes, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
