"""A map of the tags: two coordinates for each, so that tags that the model holds for alike lie together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.threads import one_blas_thread
from visterm.core.vocabulary import Vocabulary
from visterm.models.base import Annotator
from visterm.models.blend.kept import tag_vectors, what_to_do

MOST_TAGS = 2000  # Tags on a map: more cannot be read, and take minutes to place
COMPONENTS = 50  # Principal components that neighbours are found by (van der Maaten, Hinton 2008, section 4.2)


class PlacedTag(NamedTuple):
    """A tag and its place on the map."""

    tag: str
    # From 0 to 1
    x: float
    y: float
    images: int  # Training images that have it


def tag_map(model: Annotator, vocabulary: Vocabulary) -> list[PlacedTag]:
    """Place at most the `MOST_TAGS` most frequent tags of a run in a plane by t-SNE of their vectors' directions.

    They come in the order of the vocabulary; the same model gives the same map. t-SNE keeps neighbours together;
    distances between far groups mean little (van der Maaten, Hinton 2008, Visualizing Data using t-SNE). Raises
    UserError if the model has no vectors of tags.
    """
    V = tag_vectors(model)
    if V is None:
        raise UserError(
            f"The model '{MODELS.name_of(model)}' of this run has no vectors of tags, so there is no map of them. "
            f"{what_to_do(model)}"
        )
    placed = np.sort(np.argsort(-vocabulary.counts, kind="stable")[:MOST_TAGS])
    with one_blas_thread():  # with more it took 5 to 12 times as long on a busy machine
        places = _in_a_plane(np.asarray(V, np.float64)[placed])
    counts = vocabulary.counts[placed].tolist()
    tags = [vocabulary.tags[i] for i in placed]
    return [PlacedTag(tag, x, y, n) for tag, (x, y), n in zip(tags, places.tolist(), counts, strict=True)]


def _in_a_plane(V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places in the unit square, shape (n_tags, 2)."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    n = len(V)
    directions = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    if np.ptp(directions, axis=0).max() == 0:
        return np.full((n, 2), 0.5)
    flat = PCA(min(COMPONENTS, *directions.shape), random_state=0).fit_transform(directions)
    if n > 3:  # t-SNE needs more points than neighbours
        flat = TSNE(perplexity=min(30.0, (n - 1) / 3), init="pca", random_state=0, n_jobs=1).fit_transform(flat)
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(n)])
    flat = np.asarray(flat[:, :2], np.float64)
    low, high = flat.min(axis=0), flat.max(axis=0)
    return np.where(high > low, (flat - low) / np.where(high > low, high - low, 1.0), 0.5)
