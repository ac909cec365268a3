"""Find tags by their first letters or near another tag in a model's space, and place them on a map of the space."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.threads import one_blas_thread
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.models.base import Annotator
from visterm.models.blend.kept import tag_vectors, what_to_do

MAX_MAP_TAGS = 2000  # A map with more tags is unreadable, and takes minutes to compute
N_COMPONENTS = 50  # Number of principal components for t-SNE (van der Maaten, Hinton 2008, section 4.2)
_LAST_LETTER = "\U0010ffff"


class Completion(NamedTuple):
    """A tag, or for searches a name of photos, that completes the typed letters."""

    tag: str
    images: int  # Number of training images with the tag, which may be 0; or of photos with the name
    kind: str = "tag"  # Or "folder", "place", "camera", "year" or "month"


class Completions:
    """A sorted index of the tags of a vocabulary by their first letters, and by the first letters of their words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tags = list(zip(vocabulary.tags, vocabulary.counts.tolist(), strict=True))
        starts = sorted((start, i) for i, tag in enumerate(vocabulary.tags) for start in starts_of(tag))
        self._keys, self._numbers = [key for key, _ in starts], [i for _, i in starts]

    def find(self, typed: str, k: int = 10, others: Mapping[str, int] | None = None) -> list[Completion]:
        """Return tags that begin with `typed`, then tags with a word that begins with it; each most frequent first.

        An empty text returns the most frequent tags. `others` are further tags with their numbers of images.
        """
        key = tag_key(typed)
        span = slice(bisect_left(self._keys, key), bisect_left(self._keys, key + _LAST_LETTER))
        matches = [self._tags[i] for i in set(self._numbers[span])]
        matches += [(tag, n) for tag, n in (others or {}).items() if any(s.startswith(key) for s in starts_of(tag))]

        def order(item: tuple[str, int]) -> tuple[bool, int, str]:
            return not tag_key(item[0]).startswith(key), -item[1], item[0]

        return [Completion(*item) for item in heapq.nsmallest(k, matches, key=order)]


def starts_of(tag: str) -> list[str]:
    """Return the key of a tag, and the ends of the key that begin at its other words or parts of its path."""
    key = tag_key(tag)
    return [key, *(key[at + 1 :] for at, letter in enumerate(key) if letter in " /")]


class Neighbour(NamedTuple):
    """A tag near another tag in the model's space, by cosine."""

    tag: str
    score: float


def nearest_tags(model: Annotator, vocabulary: Vocabulary, tag: str, k: int = 10) -> list[Neighbour]:
    """Find the `k` tags nearest to `tag` by cosine, best first; 0 means all.

    Raises UnknownNameError if the tag is not in the vocabulary; UserError if the model has no vectors of tags.
    """
    index = vocabulary.index(tag)
    V = _vectors_for(model, "tags have no neighbours")
    norms = np.linalg.norm(V, axis=1)
    cosine = V @ V[index] / np.maximum(norms * norms[index], np.finfo(np.float32).tiny)
    cosine[index] = -np.inf
    k = len(vocabulary) - 1 if k == 0 else min(k, len(vocabulary) - 1)
    nearest = np.lexsort((np.arange(len(cosine)), -cosine))[:k]
    return [Neighbour(vocabulary.tags[i], float(cosine[i])) for i in nearest]


class PlacedTag(NamedTuple):
    """A tag and its position on the map."""

    tag: str
    # Coordinates from 0 to 1
    x: float
    y: float
    images: int  # Number of training images with the tag


def tag_map(model: Annotator, vocabulary: Vocabulary) -> list[PlacedTag]:
    """Place up to `MAX_MAP_TAGS` of the most frequent tags of a run in a plane, by t-SNE of their vectors' directions.

    Returns them in the order of the vocabulary; the same model gives the same map. t-SNE keeps neighbours together, but
    distances between groups mean little (van der Maaten, Hinton 2008, Visualizing Data using t-SNE). Raises UserError
    if the model has no vectors of tags.
    """
    V = _vectors_for(model, "there is no map of them")
    columns = np.sort(np.argsort(-vocabulary.counts, kind="stable")[:MAX_MAP_TAGS])
    with one_blas_thread():  # more threads took 5 to 12 times as long on a busy machine
        positions = _plane_positions(np.asarray(V, np.float64)[columns])
    counts = vocabulary.counts[columns].tolist()
    tags = [vocabulary.tags[i] for i in columns]
    return [PlacedTag(tag, x, y, n) for tag, (x, y), n in zip(tags, positions.tolist(), counts, strict=True)]


def _plane_positions(V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions in the unit square, shape (n_tags, 2)."""
    from sklearn import decomposition, manifold

    n = len(V)
    directions = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    if np.ptp(directions, axis=0).max() == 0:
        return np.full((n, 2), 0.5)
    points = decomposition.PCA(min(N_COMPONENTS, *directions.shape), random_state=0).fit_transform(directions)
    if n > 3:  # t-SNE needs more points than neighbours
        points = manifold.TSNE(perplexity=min(30.0, (n - 1) / 3), init="pca", random_state=0, n_jobs=1).fit_transform(
            points
        )

    if points.shape[1] < 2:
        points = np.column_stack([points, np.zeros(n)])
    points = np.asarray(points[:, :2], np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    return np.where(high > low, (points - low) / np.where(high > low, high - low, 1.0), 0.5)


def _vectors_for(model: Annotator, consequence: str) -> NDArray[np.float32]:
    """Return the vectors of tags, shape (n_tags, width); raise UserError with the `consequence` if there are none."""
    V = tag_vectors(model)
    if V is None:
        raise UserError(
            f"The model '{MODELS.name_of(model)}' of this run has no vectors of tags, so {consequence}. "
            f"{what_to_do(model)}"
        )
    return V
