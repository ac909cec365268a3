"""One shard of the job: hash its files, take over the rows that are known, encode the others, write, and note it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import CorruptFileError
from visterm.core.executor import must_see
from visterm.core.jsonlines import json_text
from visterm.core.progress import Progress, Steps
from visterm.core.threads import Team
from visterm.core.types import Matrix, Skipped
from visterm.core.writing import write_whole
from visterm.data.contents import content_hash, stamp_hash, stamps
from visterm.data.feature_shards import Shard, shard_bytes
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import Contents, ShardEntry, read_note
from visterm.features.folder import FeatureFolder
from visterm.features.rows import Place, StoredRows
from visterm.store.rows import stack_rows

CHANGED = "changed while it was being read: run again"


class ShardDone(NamedTuple):
    """What became of the images of a shard: a row each in `entry`, or a place among the skipped."""

    entry: ShardEntry | None  # None where no image has a row
    width: int  # Numbers in a row; 0 without rows
    layout: str  # "dense", "sparse", or empty without rows
    skipped: list[Skipped]
    n_encoded: int  # Rows that were encoded just now, not taken over


class KnownRows:
    """The rows that the folder had before this job, by the content of their images."""

    def __init__(self, folder: FeatureFolder, contents: Contents | None) -> None:
        self.names: dict[str, str] = {}
        self._entries: dict[str, ShardEntry] = {}
        self._places: dict[str, Place] = {}
        self.width, self.layout = (contents.width, contents.layout) if contents else (0, "")
        if contents is None:
            return
        self._rows = StoredRows(folder, contents)
        for found in self._rows.index(spare_damaged=True):
            self.names[found.name] = found.sha256
            self._places.setdefault(found.sha256, found.place)
        self._entries = {
            entry.file: entry for number, entry in enumerate(contents.shards) if self._rows.is_whole(number)
        }

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._places

    def entry(self, file: str) -> ShardEntry | None:
        """Return a shard by its file name, which its contents decide."""
        return self._entries.get(file)

    def take(self, sha256: Sequence[str]) -> Matrix:
        """Return the rows of images with these contents."""
        return self._rows.take([self._places[digest] for digest in sha256])


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

    def begin(self, team: Team, progress: Progress) -> Callable[[Sequence[str]], ShardDone]:
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


class ShardWork:
    """Makes the shards of a job, one after the other, with a fitted encoder and threads that hash files."""

    def __init__(self, job: EncodeJob, encoder: AnyEncoder, team: Team) -> None:
        self._folder, self._images, self._known = job.folder, job.images, job.known
        self._encoder, self._team = encoder, team
        self._fingerprint = encoder.fingerprint

    def do(self, names: Sequence[str], progress: Progress) -> ShardDone:
        """Make the shard of some images, by their paths inside the image folder, unless it is there already."""
        paths = [self._images / name for name in names]
        before = stamps(paths)
        sha256 = self._team.run(lambda i: stamp_hash(before[i]) or content_hash(paths[i]), len(paths))
        note = self._folder.unfinished / f"{self._digest(names, sha256)}.json"
        done = self._noted(note) or self._as_it_was(names, sha256)
        if done is not None:
            progress.advance(len(names))
            return done
        progress.advance(sum(digest in self._known for digest in sha256))
        shard, skipped, n_encoded = self._rows(names, paths, sha256, before, progress)
        done = ShardDone(None, 0, "", skipped, 0)
        if shard is not None:
            layout = "sparse" if sp.issparse(shard.rows) else "dense"
            done = ShardDone(self._write(shard), shard.rows.shape[1], layout, skipped, n_encoded)
        facts = done._asdict() | {
            "entry": None if done.entry is None else asdict(done.entry),
            "skipped": [item.as_dict() for item in skipped],
        }
        del facts["n_encoded"]
        write_whole(note, json_text(facts).encode())
        return done

    def _rows(
        self,
        names: Sequence[str],
        paths: Sequence[Path],
        sha256: Sequence[str | None],
        before: Sequence[object],
        progress: Progress,
    ) -> tuple[Shard | None, list[Skipped], int]:
        """Return the rows of all images that have one, in order, and the others with reasons."""
        new = [i for i, digest in enumerate(sha256) if digest not in self._known]
        old = [i for i, digest in enumerate(sha256) if digest in self._known]
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
            return None, skipped, 0
        order = np.argsort(places)
        chosen = [places[k] for k in order]
        shard = Shard([names[i] for i in chosen], [str(sha256[i]) for i in chosen], stack_rows(parts)[order])
        return shard, skipped, len(places) - len(old)

    def _write(self, shard: Shard) -> ShardEntry:
        file = self._file_name(shard.names, shard.sha256)
        entry = self._known.entry(file)
        if entry is None:
            content = shard_bytes(shard)
            write_whole(self._folder.shard_to_write(file), content)
            entry = ShardEntry(file, len(shard.names), hashlib.sha256(content).hexdigest())
        return entry

    def _as_it_was(self, names: Sequence[str], sha256: Sequence[str | None]) -> ShardDone | None:
        """Return the shard that has just these images; one of which some were skipped is made again."""
        entry = None if None in sha256 else self._known.entry(self._file_name(names, sha256))
        return None if entry is None else ShardDone(entry, self._known.width, self._known.layout, [], 0)

    def _noted(self, note: Path) -> ShardDone | None:
        """Return what a job that was killed has done with the same images."""
        if not note.exists():
            return None
        value = read_note(note)
        try:
            entry = None if value["entry"] is None else ShardEntry(**value["entry"])
            skipped = [Skipped(**item) for item in value["skipped"]]
            done = ShardDone(entry, value["width"], value["layout"], skipped, 0)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{note} is no note of visterm encode: {error}. Remove the file.") from error
        if entry is None or entry == self._known.entry(entry.file) or self._folder.is_written(entry):
            return done
        return None

    def _file_name(self, names: Sequence[str], sha256: Sequence[str | None]) -> str:
        return f"part-{self._digest(names, sha256)}.parquet"

    def _digest(self, names: Sequence[str], sha256: Sequence[str | None]) -> str:
        """Return 24 letters that stand for the encoder, the names and the contents."""
        text = json.dumps([self._fingerprint, list(names), list(sha256)])
        return hashlib.sha256(text.encode()).hexdigest()[:24]
