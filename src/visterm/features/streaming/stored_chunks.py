"""The rows of a features folder to annotate: shard by shard, checked, with the names of their images."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from visterm.core.errors import EncoderMismatchError
from visterm.core.progress import Progress
from visterm.core.tables import ENCODERS
from visterm.core.types import Chunk, Matrix
from visterm.encoders.contract import AnyEncoder
from visterm.features.streaming.name_index import index_names
from visterm.features.streaming.shards import Shards, read_ahead
from visterm.store.rows import stack_rows

ROWS = 4096  # Rows of a chunk, about: what goes along with a chunk is then little beside its rows


def stored_chunks(
    encoder: AnyEncoder, features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], progress: Progress
) -> Iterator[Chunk]:
    """Yield the images of features folders, named by their paths inside the image folder.

    Raises EncoderMismatchError if another encoder made the rows; DataError if an image is in two of the folders;
    CorruptFileError if a shard is missing or was changed.
    """
    shards = Shards(features)
    check_encoder(encoder, shards)
    refuse_names_twice(shards)
    groups = groups_of(shards)
    progress.start("tag photos", shards.n_rows)
    with closing(read_ahead(lambda number: chunk_of(shards, groups[number]), len(groups))) as chunks:
        for chunk in chunks:
            yield chunk
            progress.advance(len(chunk.names))
    yield Chunk([], np.empty((0, 0), np.float32), shards.skipped())


def groups_of(shards: Shards) -> list[list[int]]:
    """Put the numbers of shards that follow each other together, until they have enough rows."""
    groups: list[list[int]] = []
    room = 0
    for number, n in enumerate(np.diff(shards.starts).tolist()):
        if room <= 0:
            groups.append([])
            room = ROWS
        groups[-1].append(number)
        room -= n
    return groups


def chunk_of(shards: Shards, numbers: Sequence[int]) -> Chunk:
    """Read the names and rows of some shards. Raises CorruptFileError if one is missing or was changed."""
    names: list[str] = []
    parts: list[Matrix] = []
    for number in numbers:
        shards.check(number)
        own, rows = shards.named_rows(number)
        names += own
        parts.append(rows)
    return Chunk(names, stack_rows(parts), [])


def refuse_names_twice(shards: Shards) -> None:
    """Raise `DataError` where an image is in two features folders: nobody could tell whose its tags are."""
    if shards.n_folders > 1:
        with tempfile.TemporaryDirectory(prefix="visterm-") as folder:
            index_names(Path(folder), shards)


def check_encoder(encoder: AnyEncoder, shards: Shards) -> None:
    """Raise `EncoderMismatchError` for rows that another encoder made."""
    if shards.fingerprint != encoder.fingerprint:
        raise EncoderMismatchError(
            f"The features were made by '{shards.contents.encoder}' with the fingerprint {shards.fingerprint}, and "
            f"'{ENCODERS.name_of(encoder)}' of this run has {encoder.fingerprint}: their rows do not go together. "
            "Encode the photos as the run does: visterm encode IMAGES --encoder RUN -o FEATURES"
        )
