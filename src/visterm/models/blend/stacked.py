"""Models stacked side by side as one inner product: what blends of models are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, DenseOrCsr, Fitted, Kind, Listed
from visterm.core.types import Matrix
from visterm.models.base import Annotator

BLEND: dict[str, Kind] = {
    "members_": Listed(Fitted(base=Annotator), "n_members"),
    "means_": Array("float64", ("n_members",)),
    "scales_": Array("float64", ("n_members",), above=0),
    "tag_rows_": DenseOrCsr("float32", ("n_tags_", None), canonical=False),
}
"""What blends of models learn."""


def check_stacked(members: Sequence[Annotator], widths: Sequence[int], tag_rows: Any) -> None:
    """Refuse members that know other tags or features than their blend, or whose rows do not make up its own.

    Raises
    ------
    DataError
        If so.
    """
    for place, (member, width) in enumerate(zip(members, widths, strict=True)):
        if (member.n_features_in_, member.n_tags_) != (width, tag_rows.shape[0]):
            raise DataError(
                f"members_ [{place}] is of {member.n_features_in_} features and {member.n_tags_} tags; "
                f"expected {width} and {tag_rows.shape[0]}"
            )
    rows: list[Any] = [member._tag_rows() for member in members]
    joined = 1 + sum(tag_rows.shape[0] if own is None else own.shape[1] for own in rows)
    if tag_rows.shape[1] != joined:
        raise DataError(f"tag_rows_ has {tag_rows.shape[1]} columns; expected {joined}, those of the members and one")


def stacked_image_rows(members: Sequence[Annotator], features: Sequence[Matrix]) -> Matrix:
    """Put the members' rows of some images side by side, and a 1 behind them.

    Parameters
    ----------
    members : sequence of Annotator
        Fitted.
    features : sequence of array or CSR of float32, each of shape (n_images, n_features)
        What each member knows of the images.

    Returns
    -------
    array or CSR of float32, shape (n_images, width)
        The width is the sum of the members' widths, and one; CSR where a member's rows are.
    """
    rows: list[Any] = [member._image_rows(X) for member, X in zip(members, features, strict=True)]
    rows.append(np.ones((features[0].shape[0], 1), np.float32))
    return _beside(rows)


def tag_vectors(model: Any) -> NDArray[np.float32] | None:
    """Return the vectors in which tags can be compared, (n_tags, width), of a blend those of its members, weighted.

    None of a model whose space is that of the tags: there each tag has an axis of its own, and is near no other.
    """
    if not hasattr(model, "members_"):
        V: Any = getattr(model, "tag_rows_", None)
        own: NDArray[np.float32] | None = V.toarray() if sp.issparse(V) else V
        return own
    found = [
        np.float32(factor) * vectors
        for member, factor in zip(model.members_, model.weights_ / model.scales_, strict=True)
        if factor and (vectors := tag_vectors(member)) is not None
    ]
    return np.hstack(found) if found else None


def stacked_tag_rows(members: Sequence[Annotator], factors: NDArray[np.float64], constant: Any) -> Matrix:
    """Put the members' tag rows side by side, each times its factor, and a constant behind them.

    Parameters
    ----------
    members : sequence of Annotator
        Fitted.
    factors : ndarray of float64, shape (n_members,)
    constant : float or ndarray of float64, shape (n_tags,)
        What is added to the scores of a tag.

    Returns
    -------
    array or CSR of float32, shape (n_tags, width)
        Their products with `stacked_image_rows` are ``Σ_m factor_m s_m + constant``, s_m the score of member m.
    """
    n_tags = members[0].n_tags_
    rows: list[Any] = []
    for member, factor in zip(members, factors, strict=True):
        own: Any = member._tag_rows()
        V = sp.eye_array(n_tags, format="csr", dtype=np.float32) if own is None else own
        rows.append((V * np.float32(factor)).astype(np.float32))
    rows.append(np.broadcast_to(np.asarray(constant, np.float32).reshape(-1, 1), (n_tags, 1)))
    return _beside(rows)


def _beside(rows: list[Any]) -> Matrix:
    if any(sp.issparse(part) for part in rows):
        return sp.csr_array(sp.hstack(rows, format="csr"), dtype=np.float32)
    return np.ascontiguousarray(np.hstack(rows))
