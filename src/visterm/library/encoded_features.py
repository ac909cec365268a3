"""Feature rows stored in a catalogue, to train models and compute rows without decoding images again.

``features/<encoder fingerprint>`` has shards in the format of `visterm encode`. SQLite stores the shard and row
of each image; shards that it does not list are leftovers of a killed process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from visterm.core.checks import finite_rows, stack_rows
from visterm.core.errors import CorruptFileError
from visterm.core.types import Matrix
from visterm.core.writing import write_whole
from visterm.data.feature_shards import SUFFIX, Shard, read_shard, shard_bytes
from visterm.store.catalogue import FEATURES, StoredCatalogue
from visterm.store.images import LISTED, as_list


class CatalogueFeatures:
    """The stored features of a catalogue by one encoder; a catalogue in memory stores none."""

    def __init__(self, stored: StoredCatalogue, fingerprint: str) -> None:
        self._stored = stored
        self.fingerprint = fingerprint
        self.folder = None if stored.folder is None else stored.folder / FEATURES / fingerprint

    def write(self, names: Sequence[str], sha256: Sequence[str], X: Matrix) -> str | None:
        """Write rows into a new shard, wait for the disk, and return the shard's name; None in memory.

        The rows are in use once `note` has been committed.
        """
        if self.folder is None or len(names) == 0:
            return None
        shard = _file_name(names, sha256)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / shard, shard_bytes(Shard(list(names), list(sha256), X)))
        return shard

    def note(self, image_ids: Sequence[int], shard: str | None) -> None:
        """Record that a shard has the rows of these images, in this order, replacing their previous rows."""
        if shard is not None:
            self._stored.database.write_many(
                "INSERT INTO features (encoder_fingerprint, image_id, shard, row) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET shard = excluded.shard, row = excluded.row",
                ((self.fingerprint, image_id, shard, row) for row, image_id in enumerate(image_ids)),
            )

    def locations(self, image_ids: Iterable[int] | None = None) -> list[tuple[int, str, int]]:
        """Return (image id, shard, row in the shard) of the images that have a row, ordered by shard and row."""
        among = "" if image_ids is None else f"AND image_id {LISTED} "
        return self._stored.database.rows(
            f"SELECT image_id, shard, row FROM features WHERE encoder_fingerprint = ? {among}ORDER BY shard, row",
            (self.fingerprint, *(() if image_ids is None else (as_list(image_ids),))),
        )

    def rows(self, image_ids: Sequence[int]) -> tuple[list[int], Matrix]:
        """Return the ids of images that have a row, in shard order, and their rows; ([], None) if there are none.

        Raises CorruptFileError if a shard is missing or damaged.
        """
        if self.folder is None or len(image_ids) == 0:
            return [], None
        ids: list[int] = []
        parts = []
        for shard, group in groupby(self.locations(image_ids), key=itemgetter(1)):
            images, _, rows = zip(*group, strict=True)
            parts.append(read_shard(self.folder / shard).rows[np.array(rows)])
            ids += images
        return ids, (stack_rows(parts) if parts else None)

    def ids_in_shard_order(self, image_ids: Sequence[int]) -> list[int]:
        """Return the ids of images that have a row, in shard order: chunks of them read each shard about once."""
        return [] if self.folder is None else [image_id for image_id, _, _ in self.locations(image_ids)]

    def check(self) -> None:
        """Read all shards that the catalogue lists, and check that they have the rows of its images.

        Raises CorruptFileError if a shard is missing or damaged, or a row is missing or not finite.
        """
        if self.folder is None:
            return
        for shard, group in groupby(self.locations(), key=itemgetter(1)):
            file = self.folder / shard
            content = read_shard(file)
            wrong_rows = np.flatnonzero(~finite_rows(content.rows)).tolist()
            wrong_rows += [row for _, _, row in group if not 0 <= row < len(content.names)]
            if wrong_rows or shard != _file_name(content.names, content.sha256):
                row_fault = f"row {wrong_rows[0]:,} is missing or not finite" if wrong_rows else ""
                fault = row_fault or "it has other images than its name says"
                raise CorruptFileError(
                    f"{file} is damaged: {fault}. Restore the catalogue from a backup, or index the images again into "
                    "a new one."
                )

    def sweep(self) -> None:
        """Delete unused shards. The caller must have the writer lock."""
        if self.folder is None or not self.folder.is_dir():
            return
        statement = "SELECT DISTINCT shard FROM features WHERE encoder_fingerprint = ?"
        used_shards = {shard for (shard,) in self._stored.database.rows(statement, (self.fingerprint,))}
        for file in self.folder.iterdir():
            if file.name not in used_shards:
                file.unlink(missing_ok=True)


def _file_name(names: Sequence[str], sha256: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([list(names), list(sha256)]).encode()).hexdigest()
    return f"part-{digest[:24]}{SUFFIX}"
