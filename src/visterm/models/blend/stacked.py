"""Stack models into a single inner product: the base of blends of models, and rows of new users without a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_tags
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, DenseOrCsr, Fitted, Kind, Listed
from visterm.core.products import dense
from visterm.core.tables import MODELS
from visterm.core.types import Doubles, Ints, Matrix, MatrixLike, RandomState
from visterm.encoders.onnx_graph import GraphSteps
from visterm.models.abilities import AddsTags, FeatureShares, FoldsIn, WritesSteps
from visterm.models.base import Annotator
from visterm.models.blend.candidates import ColumnSet
from visterm.models.blend.kept import explaining, what_to_do
from visterm.models.blend.row_forms import row_factors, weighted_rows

SAMPLE_IMAGES = 20_000  # Images of the fit from which the map from tags to rows is learned
RIDGE = 1e-3  # Penalty of this map, as a share of the mean variance of its input


@dataclass(kw_only=True, eq=False, repr=False)
class Blend(Annotator):
    """Base class of blends: members with shifted and scaled scores, threads and a seed."""

    learned: ClassVar[dict[str, Kind]] = {
        "members_": Listed(Fitted(base=Annotator), "n_members"),
        "means_": Array("float64", ("n_members",)),
        "scales_": Array("float64", ("n_members",), above=0),
        "tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False),
    }

    members_: list[Annotator] = field(init=False)
    weights_: Doubles = field(init=False)
    means_: Doubles = field(init=False)
    scales_: Doubles = field(init=False)
    columns_: Ints = field(init=False)
    tag_rows_: Any = field(init=False)

    n_jobs: int | None = None
    random_state: RandomState = 0

    def set_params(self, **params: object) -> Self:
        """Set parameters, as in scikit-learn; `n_jobs` is passed on to fitted members."""
        super().set_params(**params)
        for member in getattr(self, "members_", []) if "n_jobs" in params else ():
            member.set_known(n_jobs=self.n_jobs)
        return self

    def add_tags(self, X: MatrixLike | None, Y_new: MatrixLike) -> Self:
        """Add tags by the `add_tags` of the members; the rows of the old tags don't change.

        The score of a new tag is the sum of its scores by the members, with the weights of the blend. Members that only
        explain are dropped if they cannot add tags.

        Parameters
        ----------
        X : array-like or sparse, shape (n_images, n_features), or None
            Training images, with all that have a new tag; None: all images known by number.
        Y_new : array-like or sparse, shape (n_images, n_new)
            Above 0: the image has the new tag.

        Raises UserError if a member that ranks cannot add tags.
        """
        X = self._check_features(X)
        added = check_tags(Y_new, X.shape[0])
        able = np.array([_adds_tags(member) for member in self.members_])
        if unable := [MODELS.name_of(self.members_[m]) for m in self._stacked() if not able[m]]:
            raise UserError(
                f"The blend '{MODELS.name_of(self)}' has members that cannot add tags: {', '.join(unable)}.",
                advice="Fit it again with all tags, or blend models that can, such as `ease` and `wsabie`.",
            )

        formed = self._formed(X)
        for member, columns in zip(self.members_, self._columns(), strict=True):
            if isinstance(member, AddsTags) and _adds_tags(member):
                member.add_tags(columns.of(formed), added)
        self.members_ = [member for member in self.members_ if _adds_tags(member)]
        for name in ("weights_", "means_", "scales_", "columns_"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[able])

        stacked = self._stacked()
        factors = self.weights_[stacked] / self.scales_[stacked]
        rows = stacked_tag_rows(self._ranking()[0], factors, -factors @ self.means_[stacked])
        self.tag_rows_ = np.concatenate([self.tag_rows_, rows[self.n_tags_ :]])
        self.n_tags_ += added.shape[1]
        return self

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`.

        Raises UserError if a member with weight cannot write its steps.
        """
        if hasattr(self, "feature_weights_"):
            x = steps.unit(steps.add("Mul", x, self.feature_weights_), self.n_features_in_)
        scores: Any = dense(self.tag_rows_[:, [-1]]).ravel()
        factors, read = getattr(self, "tag_factors_", 1.0), self._columns()
        for index in np.flatnonzero(self.weights_ > 0):
            member, of_member = self.members_[index], read[index]
            if not isinstance(member, WritesSteps):
                raise UserError(
                    f"The blend '{MODELS.name_of(self)}' uses the model '{MODELS.name_of(member)}', whose scores "
                    "cannot be written as a graph.",
                    advice="Fit another `model`: `ridge`, say, or an ensemble of `ridge` and `wsabie`.",
                )
            columns = steps.columns(x, np.arange(of_member.first, of_member.stop)) if of_member.block else x
            weight = self.weights_[index] / self.scales_[index] * factors
            scores = steps.add("Add", steps.add("Mul", member.write_steps(steps, columns), weight), scores)
        return str(scores)

    def explain(self, x: MatrixLike, tag: int) -> FeatureShares:
        """Return the contribution of each feature to a tag's score, see `explain_linear`.

        The share of members that compare whole images is in `elsewhere`. If no member with weight scores by features,
        a member without weight explains, and `elsewhere` is the blend's score minus this member's score. Raises
        UserError if no member explains scores.
        """
        x, able = self._check_features(x), explaining(self)
        if not able:
            names = ", ".join(map(MODELS.name_of, self.members_))
            raise UserError(
                f"All models of this blend ({names}) compare whole images, so no feature has a share in the score. "
                f"{what_to_do(self)}"
            )

        formed, columns, members = self._formed(x), self._columns(), cast("list[Any]", self.members_)
        explained = {m: members[m].explain(columns[m].of(formed), tag) for m in able}
        shown = self.weights_ if self.weights_[able].any() else np.isin(np.arange(len(members)), able)
        factors = shown / self.scales_ * (self.tag_factors_[tag] if hasattr(self, "tag_factors_") else 1.0)
        constant = -float(factors @ self.means_)
        constant += float(self.tag_offsets_[tag]) if hasattr(self, "tag_offsets_") else 0.0
        weights = np.zeros(self.n_features_in_)
        for m, shares_of_member in explained.items():
            weights[columns[m].first : columns[m].stop] += factors[m] * shares_of_member.weights
            constant += factors[m] * shares_of_member.constant

        if hasattr(self, "feature_weights_"):
            weights *= self.feature_weights_ * row_factors(x, self.feature_weights_)[0]
        shares = np.asarray(dense(x), np.float64)[0] * weights
        has_others = not np.array_equal(able, np.flatnonzero(self.weights_))
        if not has_others and not any(each.elsewhere for each in explained.values()):
            return FeatureShares(shares, weights, constant)
        score = float(self.decision_function(x)[0, tag])
        return FeatureShares(shares, weights, constant, score - float(shares.sum()) - constant)

    def _image_rows(self, X: Matrix) -> Matrix:
        """Concatenate the image rows of the members that rank, and a final 1."""
        formed = self._formed(X)
        ranking = zip(*self._ranking(), strict=True)
        rows: list[Any] = [member._image_rows(columns.of(formed)) for member, columns in ranking]
        return concatenated([*rows, np.ones((X.shape[0], 1), np.float32)])

    def _check_learned(self) -> None:
        super()._check_learned()
        for index, (member, columns) in enumerate(zip(self.members_, self._columns(), strict=True)):
            if not (columns.first < columns.stop <= self.n_features_in_ and columns.dense <= 1):
                raise DataError(f"columns_ has {tuple(columns)}; expected columns of {self.n_features_in_} features")
            width = columns.stop - columns.first if columns.block or columns.dense else self.n_features_in_
            if (member.n_features_in_, member.n_tags_) != (width, self.n_tags_):
                raise DataError(
                    f"members_ [{index}] is of {member.n_features_in_} features and {member.n_tags_} tags; "
                    f"expected {width} and {self.n_tags_}"
                )
        rows: list[Any] = [member._tag_rows() for member in self._ranking()[0]]
        width = 1 + sum(self.n_tags_ if V is None else V.shape[1] for V in rows)
        if self.tag_rows_.shape[1] != width:
            raise DataError(f"tag_rows_ has {self.tag_rows_.shape[1]} columns; expected {width}, the members' and one")

    def _ranking(self) -> tuple[list[Annotator], list[ColumnSet]]:
        """Return the members whose rows are stacked, and the columns that they read."""
        stacked, columns = self._stacked(), self._columns()
        return [self.members_[m] for m in stacked], [columns[m] for m in stacked]

    def _stacked(self) -> Ints:
        """Return the positions of the members whose rows are stacked."""
        return np.flatnonzero(self.weights_ > 0)

    def _columns(self) -> list[ColumnSet]:
        """Return the columns that each member reads: all, unless there are `columns_`."""
        if not hasattr(self, "columns_"):
            return [ColumnSet(0, 0, self.n_features_in_, 0)] * len(self.members_)
        return [ColumnSet(*row) for row in self.columns_.tolist()]

    def _formed(self, X: Matrix) -> Matrix:
        return weighted_rows(X, getattr(self, "feature_weights_", None))


def _adds_tags(model: Annotator) -> bool:
    members: list[Annotator] = getattr(model, "members_", [])
    return isinstance(model, AddsTags) and all(map(_adds_tags, members))


def stacked_tag_rows(members: Sequence[Annotator], factors: Doubles, constant: Any) -> Matrix:
    """Concatenate the tag rows of fitted members, each times its factor, and a final constant (or one per tag).

    The result is float32, shape (n_tags, width); CSR if the rows of a member are. Its products with
    image rows are ``Σ_m factor_m s_m + constant``, with s_m the score of member m.
    """
    n_tags = members[0].n_tags_
    rows: list[Any] = []
    for member, factor in zip(members, factors, strict=True):
        V: Any = member._tag_rows()
        V = sp.eye_array(n_tags, format="csr", dtype=np.float32) if V is None else V
        rows.append((V * np.float32(factor)).astype(np.float32, copy=False))
    return concatenated([*rows, np.full((n_tags, 1), np.atleast_2d(np.float32(constant)).T)])


def concatenated(rows: Sequence[Any]) -> Matrix:
    """Return rows side by side, float32; CSR if one of them is."""
    if any(sp.issparse(part) for part in rows):
        return sp.csr_array(sp.hstack(rows, format="csr"), dtype=np.float32)
    return np.ascontiguousarray(np.hstack(rows))


def folded_rows(model: Annotator, Y: sp.csr_array, X_fit: Matrix, Y_fit: sp.csr_array) -> Matrix:
    """Return image rows, shape (n_new, width), of new images with the tags `Y`, (n_new, n_tags).

    A model that can (`FoldsIn`) computes them. For an embedding, ``u = A [ȳ, 1]``, where ``ȳ`` is the mean of the
    vectors of the image's tags, and the matrix A is fitted by least squares to the rows of images of the fit, `X_fit`,
    whose tags are `Y_fit`. In a blend, each member folds in. Raises UserError if the model cannot, because its rows
    don't depend on tags.
    """
    if hasattr(model, "members_"):
        blend: Any = model
        parts = [folded_rows(member, Y, X_fit, Y_fit) for member in blend._ranking()[0]]
        return concatenated([*parts, np.ones((Y.shape[0], 1), np.float32)])
    if isinstance(model, FoldsIn):
        return model.fold_in(Y)
    V = model._tag_rows()
    if not getattr(model, "by_number_", False) or V is None or sp.issparse(V):
        name = MODELS.name_of(model)
        raise UserError(
            f"The model '{name}' has no rows for new users.",
            setting="model", value=name, advice="Choose another `model`: auto, ease, knn, wsabie or vse_ens.",
        )  # fmt: skip

    images = np.flatnonzero(np.diff(Y_fit.indptr))
    images = np.sort(np.random.default_rng(0).permutation(images)[:SAMPLE_IMAGES])
    known = _mean_vectors(Y_fit[images], V)
    rows = np.asarray(model.image_rows(X_fit[images]), np.float64)
    gram = known.T @ known
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    return np.ascontiguousarray(_mean_vectors(Y, V) @ np.linalg.solve(gram, known.T @ rows), np.float32)


def _mean_vectors(Y: sp.csr_array, V: Any) -> Doubles:
    """Return the mean of the vectors of each image's tags, and a 1."""
    sums = np.asarray(Y @ np.asarray(V, np.float64))
    totals = np.asarray(Y.sum(axis=1), np.float64).reshape(-1, 1)
    return np.hstack([sums / np.maximum(totals, 1e-30), np.ones_like(totals)])
