"""The rows of a features folder to annotate: shard by shard, checked, with the names of their images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from visterm.app.annotating import Chunk
from visterm.app.streaming.shards import Shards
from visterm.core.errors import EncoderMismatchError
from visterm.core.progress import Progress
from visterm.core.tables import ENCODERS


def stored_chunks(encoder: Any, features: str | os.PathLike[str], progress: Progress) -> Iterator[Chunk]:
    """Yield the images of a features folder, named by their paths inside the image folder.

    Raises
    ------
    EncoderMismatchError
        If another encoder made the rows.
    CorruptFileError
        If a shard is missing or was changed.
    """
    shards = Shards(features)
    check_encoder(encoder, shards)
    progress.start("annotate", shards.n_rows)
    for number in range(len(shards)):
        shards.check(number)
        names = shards.names(number)
        yield Chunk(names, shards.rows(number), [])
        progress.advance(len(names))
    yield Chunk([], np.empty((0, 0), np.float32), shards.skipped())


def check_encoder(encoder: Any, shards: Shards) -> None:
    """Refuse rows that another encoder made.

    Raises
    ------
    EncoderMismatchError
        If so.
    """
    if shards.fingerprint != encoder.fingerprint:
        raise EncoderMismatchError(
            f"The features were made by '{shards.contents.encoder}' with the fingerprint {shards.fingerprint}, and "
            f"'{ENCODERS.name_of(encoder)}' of this run has {encoder.fingerprint}: their rows do not go together. "
            "Encode the photos as the run does: visterm encode IMAGES --run RUN -o FEATURES"
        )
