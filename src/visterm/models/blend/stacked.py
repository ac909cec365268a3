"""Stack models into a single inner product: the base of blends of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_tags
from visterm.core.errors import DataError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, DenseOrCsr, Fitted, Kind, Listed
from visterm.core.products import dense
from visterm.core.tables import MODELS
from visterm.core.types import Matrix, MatrixLike, RandomState
from visterm.models.abilities import AddsTags, WritesSteps
from visterm.models.base import Annotator

if TYPE_CHECKING:
    from visterm.encoders.onnx_graph import GraphSteps


@dataclass(kw_only=True, eq=False, repr=False)
class Blend(Annotator):
    """Base class of blends: members with shifted and scaled scores, threads and a seed."""

    learned: ClassVar[dict[str, Kind]] = {
        "members_": Listed(Fitted(base=Annotator), "n_members"),
        "means_": Array("float64", ("n_members",)),
        "scales_": Array("float64", ("n_members",), above=0),
        "tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False),
    }

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
        check_fitted(self)
        blend: Any = self
        X = self._check_features(X)
        added = check_tags(Y_new, X.shape[0])
        able = np.array([_adds_tags(member) for member in blend.members_])
        if unable := [MODELS.name_of(blend.members_[m]) for m in self._stacked() if not able[m]]:
            raise UserError(
                f"The blend '{MODELS.name_of(blend)}' has members that cannot add tags: {', '.join(unable)}.",
                advice="Fit it again with all tags, or blend models that can, such as `ease` and `wsabie`.",
            )

        for m in np.flatnonzero(able).tolist():
            blend.members_[m].add_tags(self._features_of(m, X), added)
        blend.members_ = [member for member in blend.members_ if _adds_tags(member)]
        for name in ("weights_", "means_", "scales_", "columns_"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[able])

        stacked = self._stacked()
        factors = blend.weights_[stacked] / blend.scales_[stacked]
        rows = stacked_tag_rows([blend.members_[m] for m in stacked], factors, -factors @ blend.means_[stacked])
        blend.tag_rows_ = np.concatenate([blend.tag_rows_, rows[self.n_tags_ :]])
        self.n_tags_ += added.shape[1]
        return self

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`.

        Raises UserError if a member with weight cannot write its steps.
        """
        blend: Any = self
        scores: Any = dense(blend.tag_rows_[:, [-1]]).ravel()
        factors, read = getattr(blend, "tag_factors_", 1.0), getattr(blend, "columns_", None)
        for index in np.flatnonzero(blend.weights_ > 0):
            member = blend.members_[index]
            if not isinstance(member, WritesSteps):
                raise UserError(
                    f"The blend '{MODELS.name_of(blend)}' asks the model '{MODELS.name_of(member)}', whose scores "
                    "cannot be written as a graph.",
                    advice="Fit another `model`: `ridge`, say, or an ensemble of `ridge` and `wsabie`.",
                )
            columns = x if read is None or not read[index][0] else steps.columns(x, np.arange(*read[index][1:3]))
            weight = blend.weights_[index] / blend.scales_[index] * factors
            scores = steps.add("Add", steps.add("Mul", member.write_steps(steps, columns), weight), scores)
        return str(scores)

    def _stacked(self) -> NDArray[np.int64]:
        """Return the positions of the members whose rows are stacked."""
        members: list[Annotator] = vars(self)["members_"]
        return np.arange(len(members))

    def _features_of(self, position: int, X: Matrix) -> Matrix:
        """Return what a member reads of the features of images."""
        return X


def _adds_tags(model: Annotator) -> bool:
    members: list[Annotator] = getattr(model, "members_", [])
    return isinstance(model, AddsTags) and all(map(_adds_tags, members))


def check_stacked(
    members: Sequence[Annotator], widths: Sequence[int], tag_rows: Matrix, stacked: Sequence[Annotator]
) -> None:
    """Raise `DataError` if members have other tags or features than their blend, or if `tag_rows` has another width."""
    for index, (member, width) in enumerate(zip(members, widths, strict=True)):
        if (member.n_features_in_, member.n_tags_) != (width, tag_rows.shape[0]):
            raise DataError(
                f"members_ [{index}] is of {member.n_features_in_} features and {member.n_tags_} tags; "
                f"expected {width} and {tag_rows.shape[0]}"
            )
    rows: list[Any] = [member._tag_rows() for member in stacked]
    width = 1 + sum(tag_rows.shape[0] if V is None else V.shape[1] for V in rows)
    if tag_rows.shape[1] != width:
        raise DataError(f"tag_rows_ has {tag_rows.shape[1]} columns; expected {width}, those of the members and one")


def stacked_image_rows(members: Sequence[Annotator], features: Sequence[Matrix]) -> Matrix:
    """Concatenate the image rows of fitted members, from each member's features of the same images, and a final 1.

    The result is float32, shape (n_images, sum of the members' widths + 1); CSR if the rows of a member are.

    """
    rows: list[Any] = [member._image_rows(X) for member, X in zip(members, features, strict=True)]
    rows.append(np.ones((features[0].shape[0], 1), np.float32))
    return concatenated(rows)


def stacked_tag_rows(members: Sequence[Annotator], factors: NDArray[np.float64], constant: Any) -> Matrix:
    """Concatenate the tag rows of fitted members, each times its factor, and a final constant (or one per tag).

    The result is float32, shape (n_tags, width); CSR if the rows of a member are. Its products with
    `stacked_image_rows` are ``Σ_m factor_m s_m + constant``, with s_m the score of member m.
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
