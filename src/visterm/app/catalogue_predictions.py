"""The best few tags of an image by a run, with confidences: what a catalogue keeps beside its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from visterm.core.types import Matrix
from visterm.store.tags import Prediction

if TYPE_CHECKING:
    from visterm.app.tagger import Tagger

N_KEPT = 10


def predictions_of(
    tagger: Tagger, X: Matrix, image_ids: Sequence[int], rejected: Mapping[int, Sequence[str]]
) -> dict[int, list[Prediction]]:
    """Give the best few tags of images, by id, best first; none that a person rejected there.

    Parameters
    ----------
    tagger : Tagger
    X : array or CSR, shape (n_images, n_features)
    image_ids : sequence of int
        Of the rows.
    rejected : mapping of int to list of str
        Tags that do not come back, by id; for images without such, nothing.
    """
    if len(image_ids) == 0:
        return {}
    most = max((len(rejected.get(image_id, ())) for image_id in image_ids), default=0)
    places, scores = tagger.model.annotate(X, N_KEPT + most)
    sure = None if tagger.calibration is None else tagger.calibration.confidences(scores, places)
    tags = tagger.vocabulary.tags
    found: dict[int, list[Prediction]] = {}
    for row, image_id in enumerate(image_ids):
        left_out = set(rejected.get(image_id, ()))
        found[image_id] = [
            Prediction(tags[tag], float(scores[row, i]), None if sure is None else float(sure[row, i]))
            for i, tag in enumerate(np.asarray(places[row]).tolist())
            if tags[tag] not in left_out
        ][:N_KEPT]
    return found
