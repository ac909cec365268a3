"""Feature rows that a catalogue keeps, so that models learn and rows are made again without decoding an image.

``features/<encoder fingerprint>`` holds Parquet shards as `visterm encode` writes them; which row of which shard is of
which image stands in SQLite, and a shard that it does not name is left over from a kill.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm.core.types import Matrix
from visterm.core.writing import write_whole
from visterm.data.feature_shards import Shard, read_shard, shard_bytes
from visterm.store.catalogue import FEATURES, StoredCatalogue
from visterm.store.rows import stack_rows
from visterm.store.runs import FeaturePlace


class CatalogueFeatures:
    """The feature rows of a catalogue by one encoder.

    Parameters
    ----------
    stored : StoredCatalogue
        One in memory keeps none.
    fingerprint : str
        Of the encoder.
    """

    def __init__(self, stored: StoredCatalogue, fingerprint: str) -> None:
        self._stored = stored
        self.fingerprint = fingerprint
        self.folder = None if stored.folder is None else stored.folder / FEATURES / fingerprint

    def write(self, names: Sequence[str], sha256: Sequence[str], X: Matrix) -> str | None:
        """Write the rows of some images into a shard of their own, on disk when this returns, and give its name.

        They count once `note` has been committed. None in memory.
        """
        if self.folder is None or len(names) == 0:
            return None
        told = json.dumps([list(names), list(sha256)])
        shard = f"part-{hashlib.sha256(told.encode()).hexdigest()[:24]}.parquet"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / shard, shard_bytes(Shard(list(names), list(sha256), X)))
        return shard

    def note(self, image_ids: Sequence[int], shard: str | None) -> None:
        """Say that a shard has the rows of these images, in their order."""
        if shard is not None:
            places = [FeaturePlace(image_id, shard, row) for row, image_id in enumerate(image_ids)]
            self._stored.runs.set_features(self.fingerprint, places)

    def rows(self, image_ids: Sequence[int]) -> tuple[list[int], Any]:
        """Return the images that have a row, in the order of the shards, and their rows; (empty list, None) without.

        Raises
        ------
        CorruptFileError
            If a shard is missing or damaged.
        """
        if self.folder is None or len(image_ids) == 0:
            return [], None
        places = self._stored.runs.features(self.fingerprint, image_ids)
        ids, parts = [], []
        for shard in dict.fromkeys(place.shard for place in places):
            these = [place for place in places if place.shard == shard]
            parts.append(read_shard(self.folder / shard).rows[np.array([place.row for place in these])])
            ids += [place.image_id for place in these]
        return ids, (stack_rows(parts) if parts else None)

    def in_order(self, image_ids: Sequence[int]) -> list[int]:
        """Return the images that have a row as they lie in the shards: chunks of these read each shard about once."""
        if self.folder is None:
            return []
        return [place.image_id for place in self._stored.runs.features(self.fingerprint, image_ids)]

    def sweep(self) -> None:
        """Remove the shards that no image has a row in any more; whoever calls it writes."""
        if self.folder is None or not self.folder.is_dir():
            return
        named = self._stored.database.rows(
            "SELECT DISTINCT shard FROM features WHERE encoder_fingerprint = ?", (self.fingerprint,)
        )
        known = {row[0] for row in named}
        for file in self.folder.iterdir():
            if file.name not in known:
                file.unlink(missing_ok=True)
