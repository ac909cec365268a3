"""The tags nearest to one in the space of a model with vectors of tags."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.models.blend.stacked import tag_vectors


class Neighbour(NamedTuple):
    """A tag near another one in the model's space, by cosine."""

    tag: str
    score: float


def nearest_tags(model: Any, vocabulary: Vocabulary, tag: str, k: int = 10) -> list[Neighbour]:
    """Find the tags nearest to one, by cosine, best first; 0 means all.

    Raises
    ------
    UnknownNameError
        If the tag is not in the vocabulary.
    UserError
        If the model scores each tag on its own and has no vectors of tags.
    """
    index = vocabulary.index(tag)
    V = tag_vectors(model)
    if V is None:
        raise UserError(
            f"The model '{MODELS.name_of(model)}' keeps no vectors of tags, so tags have no neighbours. "
            "Fit an embedding model: --model wsabie."
        )
    norms = np.linalg.norm(V, axis=1)
    cosine = V @ V[index] / np.maximum(norms * norms[index], np.finfo(np.float32).tiny)
    cosine[index] = -np.inf
    k = len(vocabulary) - 1 if k == 0 else min(k, len(vocabulary) - 1)
    best = np.lexsort((np.arange(len(cosine)), -cosine))[:k]
    return [Neighbour(vocabulary.tags[i], float(cosine[i])) for i in best]
