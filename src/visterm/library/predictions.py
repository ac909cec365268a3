"""The best few tags of an image by a run, with confidences: what a catalogue keeps beside its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from visterm.core.checks import check_k
from visterm.core.types import Matrix
from visterm.core.vocabulary import tag_key
from visterm.library.encoded_features import CatalogueFeatures
from visterm.store.tags import Prediction

if TYPE_CHECKING:
    from visterm.store.catalogue import StoredCatalogue
    from visterm.tagging.tagger import Tagger

N_KEPT = 10


def predictions_of(
    tagger: Tagger, X: Matrix, image_ids: Sequence[int], rejected: Mapping[int, Sequence[str]], k: int = N_KEPT
) -> dict[int, list[Prediction]]:
    """Return the best few tags of images, by id, best first; none that a person rejected there.

    Parameters
    ----------
    tagger : Tagger
    X : array or CSR, shape (n_images, n_features)
    image_ids : sequence of int
        Of the rows.
    rejected : mapping of int to list of str
        Tags that do not come back, by id; for images without such, nothing.
    k : int
        How many; 0 means all.
    """
    if len(image_ids) == 0:
        return {}
    most = max((len(rejected.get(image_id, ())) for image_id in image_ids), default=0)
    places, scores = tagger.model.annotate(X, k + most if k else 0)
    sure = None if tagger.calibration is None else tagger.calibration.confidences(scores, places)
    tags = tagger.vocabulary.tags
    found: dict[int, list[Prediction]] = {}
    for row, image_id in enumerate(image_ids):
        left_out = set(map(tag_key, rejected.get(image_id, ())))
        found[image_id] = [
            Prediction(tags[tag], float(scores[row, i]), None if sure is None else float(sure[row, i]))
            for i, tag in enumerate(np.asarray(places[row]).tolist())
            if not left_out or tag_key(tags[tag]) not in left_out
        ][: k or None]
    return found


def annotate_images(
    tagger: Tagger, stored: StoredCatalogue, image_ids: Sequence[int], k: int
) -> dict[int, list[Prediction]]:
    """Tag images of a catalogue, by their features where it has them, else by their files; see `Catalogue.annotate`."""
    check_k(k, 0)
    rejected = stored.tags.rejected(image_ids)
    there, X = CatalogueFeatures(stored, tagger.encoder.fingerprint).rows(image_ids)
    found = predictions_of(tagger, X, there, rejected, k)
    others = [
        (image.id, image.path)
        for image in stored.images.get_many(image_ids)
        if image.id not in found and image.path is not None
    ]
    if others:
        rows, kept, _ = tagger.encoder.encode([path for _, path in others])
        found |= predictions_of(tagger, rows, [others[i][0] for i in kept], rejected, k)
    return {image_id: found[image_id] for image_id in image_ids if image_id in found}
