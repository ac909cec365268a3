"""One shard of the job: hash its files, take over the rows that are known, encode the others, write, and note it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.executor import must_see
from visterm.core.progress import Progress, Steps
from visterm.core.threads import Team
from visterm.core.types import Matrix, Skipped
from visterm.data.contents import content_hash, is_there, stamp_hash, stamps
from visterm.data.feature_shards import Shard, shard_bytes
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import Contents
from visterm.features.folder import FeatureFolder
from visterm.features.part_work import KnownParts, PartDone, PartWork
from visterm.features.stored import StoredRow, StoredRows
from visterm.store.rows import stack_rows

CHANGED = "changed while it was being read: run again"


class KnownRows(KnownParts):
    """The rows that the folder had before this job, by the content of their images."""

    def __init__(self, folder: FeatureFolder, contents: Contents | None) -> None:
        super().__init__([])
        self.names: dict[str, str] = {}
        self._stored: dict[str, StoredRow] = {}
        if contents is None:
            return
        self.width, self.layout = contents.width, contents.layout
        self._rows = StoredRows(folder, contents)
        for row in self._rows.index(spare_damaged=True):
            self.names[row.name] = row.sha256
            self._stored.setdefault(row.sha256, row)
        super().__init__(entry for number, entry in enumerate(contents.shards) if self._rows.is_whole(number))

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._stored

    def take(self, sha256: Sequence[str]) -> Matrix:
        """Return the rows of images with these contents."""
        return self._rows.take([self._stored[digest] for digest in sha256])


@dataclass(frozen=True)
class EncodeJob:
    """The making of a folder's shards: `Job`. A part is the names of the images of one shard.

    Whoever hands out the parts holds the lock of the folder. The encoder is fitted; other processes load it from the
    folder. `settings` are the encoder's: those of its speed, and where a network lies, may be others than when it was
    saved. `known` are the rows that were there before.
    """

    folder: FeatureFolder
    encoder: AnyEncoder | None
    settings: dict[str, Any]
    images: Path
    known: KnownRows

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "encoder": None}

    def begin(self, team: Team, progress: Progress) -> Callable[[Sequence[str]], PartDone]:
        """Load the encoder, unless it is there."""
        must_see(self.folder.path)
        must_see(self.images)
        encoder = self.encoder
        if encoder is None:
            encoder, _ = self.folder.load_encoder(None)
            encoder.set_params(**self.settings)
            if "n_jobs" in self.settings:
                encoder.set_params(n_jobs=team.size)
        work = ShardWork(self, encoder, team)
        return lambda names: work.do(names, progress)

    def name_of(self, part: Sequence[str]) -> str:
        """Return a name of a shard by its images."""
        return f"the images from '{part[0]}' to '{part[-1]}'"

    def size_of(self, part: Sequence[str]) -> int:
        """Count the images of a shard."""
        return len(part)


class ShardWork(PartWork):
    """Makes the shards of a job, one after the other, with a fitted encoder and threads that hash files."""

    command, suffix, noted = "visterm encode", "parquet", ("width", "layout")
    _known: KnownRows

    def __init__(self, job: EncodeJob, encoder: AnyEncoder, team: Team) -> None:
        super().__init__(job.folder, job.known, encoder.fingerprint)
        self._images, self._encoder, self._team = job.images, encoder, team

    def do(self, names: Sequence[str], progress: Progress) -> PartDone:
        """Make the shard of some images, by their paths inside the image folder, unless it is there already."""
        paths = [self._images / name for name in names]
        before = stamps(paths)
        sha256 = self._team.run(lambda i: self._content(names[i], paths[i], before[i]), len(paths))
        make = partial(self._encoded, names, paths, sha256, before, progress)
        return self._unless_there(names, sha256, len(names), progress, make)

    def _content(self, name: str, path: Path, stamp: object) -> str | None:
        """Return the hash of an image; of one that may not be looked for now, the hash that it had."""
        if stamp is None and is_there(path):
            return self._known.names.get(name)
        return stamp_hash(stamp) or content_hash(path)

    def _encoded(
        self,
        names: Sequence[str],
        paths: Sequence[Path],
        sha256: Sequence[str | None],
        before: Sequence[object],
        progress: Progress,
    ) -> PartDone:
        """Write the rows of all images that have one, in order; list the others with reasons."""
        new = [i for i, digest in enumerate(sha256) if digest not in self._known]
        old = [i for i, digest in enumerate(sha256) if digest in self._known]
        progress.advance(len(old))
        parts: list[Matrix] = []
        places = list(old)
        reasons: dict[int, str] = {}
        if old:
            parts.append(self._known.take([digest for i in old if (digest := sha256[i]) is not None]))
        if new:
            rows, kept, failed = self._encoder.encode([paths[i] for i in new], progress=Steps(progress))
            reason_of = {item.image: item.reason for item in failed}
            encoded = [new[k] for k in kept]
            after = stamps([paths[i] for i in encoded])
            reasons = {i: reason_of[str(paths[i])] for i in sorted(set(new) - set(encoded))}
            for i, stamp in zip(encoded, after, strict=True):
                if sha256[i] is None or before[i] != stamp:
                    reasons[i] = CHANGED
            usable = [row for row, i in enumerate(encoded) if i not in reasons]
            if usable:
                parts.append(rows if len(usable) == len(encoded) else rows[usable])
                places += [encoded[row] for row in usable]
        skipped = [Skipped(names[i], reasons[i]) for i in sorted(reasons)]
        if not places:
            return PartDone(None, skipped, 0)
        order = np.argsort(places)
        chosen = [places[k] for k in order]
        shard = Shard([names[i] for i in chosen], [str(sha256[i]) for i in chosen], stack_rows(parts)[order])
        entry = self._write(shard.names, shard.sha256, len(chosen), partial(shard_bytes, shard))
        layout = "sparse" if sp.issparse(shard.rows) else "dense"
        return PartDone(entry, skipped, len(places) - len(old), shard.rows.shape[1], layout)
