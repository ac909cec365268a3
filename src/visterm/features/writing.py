"""A features folder of rows that are there already and not encoded here: drawn ones, for tests and benchmarks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import scipy.sparse as sp

from visterm.core.packing import json_params
from visterm.core.tables import ENCODERS
from visterm.core.writing import write_whole
from visterm.data.feature_shards import Shard, shard_bytes
from visterm.features.folder import DATA, Asked, Contents, FeatureFolder, ShardEntry


def write_features(path: str | os.PathLike[str], shards: Iterable[Shard], encoder: Any) -> None:
    """Write shards one by one, under the name of a fitted encoder; the names of images must be sorted over all.

    Parameters
    ----------
    path : path-like
        A new folder.
    shards : iterable of Shard
    encoder : Encoder
    """
    folder = FeatureFolder(path)
    folder.check_place()
    with folder.locked():
        folder.begin()
        folder.save_encoder(encoder, Asked(encoder.fingerprint, 512))
        (folder.path / DATA).mkdir()
        entries, width, layout = [], 0, "dense"
        for number, shard in enumerate(shards):
            content = shard_bytes(shard)
            entries.append(
                ShardEntry(f"part-{number:06}.parquet", len(shard.names), hashlib.sha256(content).hexdigest())
            )
            write_whole(folder.shard(entries[-1]), content)
            width, layout = shard.rows.shape[1], "sparse" if sp.issparse(shard.rows) else "dense"
        contents = Contents(
            images=str(folder.path.absolute().parent),
            n_images=sum(entry.rows for entry in entries),
            n_skipped=0,
            encoder=ENCODERS.name_of(encoder),
            settings={name: value for name, value in json_params(encoder).items() if name not in encoder.speed_params},
            asked=encoder.fingerprint,
            fingerprint=encoder.fingerprint,
            width=width,
            layout=layout,
            shard_size=512,
            shards=entries,
        )
        folder.commit(contents, [])
