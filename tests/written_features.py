"""Features folders of rows that are there already: what tests and benchmarks learn from."""

import hashlib

import scipy.sparse as sp

from visterm.core.writing import write_whole
from visterm.data.feature_shards import shard_bytes
from visterm.features.folder import DATA, Contents, FeatureFolder, FirstJob, ShardEntry
from visterm.features.job import SHARD_SIZE, facts_of_encoder


def write_features(path, shards, encoder):
    """Write a new features folder of rows that are there already, as by a fitted encoder.

    The names of images must be sorted over all shards.
    """
    folder = FeatureFolder(path)
    folder.check_path()
    with folder.locked():
        folder.begin()
        folder.save_encoder(encoder, FirstJob(encoder.fingerprint, SHARD_SIZE))
        (folder.path / DATA).mkdir()
        entries, width, layout = [], 0, "dense"
        for number, shard in enumerate(shards):
            content = shard_bytes(shard)
            entries.append(
                ShardEntry(f"part-{number:06}.safetensors", len(shard.names), hashlib.sha256(content).hexdigest())
            )
            write_whole(folder.data / entries[-1].file, content)
            width, layout = shard.rows.shape[1], "sparse" if sp.issparse(shard.rows) else "dense"
        contents = Contents(
            images=str(folder.path.absolute().parent),
            n_images=sum(entry.rows for entry in entries),
            n_skipped=0,
            asked=encoder.fingerprint,
            width=width,
            layout=layout,
            shard_size=SHARD_SIZE,
            shards=entries,
            **facts_of_encoder(encoder),
        )
        folder.commit(contents, [])
