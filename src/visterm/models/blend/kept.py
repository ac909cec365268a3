"""Find the models of a blend that explain its scores and compare its tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.tables import MODELS
from visterm.models.abilities import Explains
from visterm.models.base import Annotator
from visterm.models.linear.base import LinearAnnotator


def tag_vectors(model: Annotator) -> NDArray[np.float32] | None:
    """Return vectors to compare tags by, (n_tags, width); for a blend, the weighted vectors of its members.

    For a linear model in tag space, they are the weights of its features. None if there are no such vectors, because
    each tag has its own axis. Members without weight only count if no other member has vectors.
    """
    if hasattr(model, "members_"):
        weighted: list[Any] = [(factor, tag_vectors(member)) for factor, member in _with_vectors(model)]
        return np.hstack([np.float32(factor) * vectors for factor, vectors in weighted]) if weighted else None
    return _own_vectors(model)


def vectors_from(model: Annotator) -> list[str]:
    """Return the distinct names of the models that have the `tag_vectors`: for a blend, members."""
    if hasattr(model, "members_"):
        return list(dict.fromkeys(name for _, member in _with_vectors(model) for name in vectors_from(member)))
    return [] if _own_vectors(model) is None else [MODELS.name_of(model)]


def explains(model: Annotator) -> bool:
    """Return whether a fitted model, or one of its members, can explain its scores by features."""
    members = getattr(model, "members_", None)
    return isinstance(model, Explains) and (members is None or any(map(explains, members)))


def explaining(blend: Any) -> list[int]:
    """Return the positions of a blend's members that explain: members with weight or, if there are none, the others."""
    able = [index for index, member in enumerate(blend.members_) if explains(member)]
    return [index for index in able if blend.weights_[index]] or able


def explained_by(model: Annotator) -> list[str]:
    """Return the distinct names of the models that explain a fitted model's scores: for a blend, members."""
    if not hasattr(model, "members_"):
        return [MODELS.name_of(model)] if explains(model) else []
    blend: Any = model
    members = [blend.members_[index] for index in explaining(blend)]
    return list(dict.fromkeys(name for member in members for name in explained_by(member)))


def what_to_do(model: Annotator) -> str:
    """Return advice, one or two sentences, for a fitted model that cannot explain scores or compare tags."""
    if not getattr(model, "explainable", True):
        return "Fit it again without the setting explainable=False."
    for entry in getattr(model, "report_", []):
        if "left out" in entry["reason"] and issubclass(MODELS.load(entry["model"]), Explains):
            return f"{entry['model']}: {entry['reason'].rstrip('.')}. Fit a model that can, such as wsabie."
    return "Fit a model that can, such as wsabie."


def _own_vectors(model: Any) -> NDArray[np.float32] | None:
    V = model.weights_.T if isinstance(model, LinearAnnotator) and hasattr(model, "weights_") else None
    V = getattr(model, "tag_rows_", V)
    return None if sp.issparse(V) else V  # CSR rows are in tag space


def _with_vectors(blend: Any) -> list[tuple[float, Annotator]]:
    """Return each member with vectors and its factor; members without weight only if no other has vectors."""
    for weights in (blend.weights_, (blend.weights_ == 0).astype(np.float64)):
        members = zip(weights / blend.scales_, blend.members_, strict=True)
        if able := [(factor, member) for factor, member in members if factor and vectors_from(member)]:
            return able
    return []
