"""A folder of annotations: its parts, its manifest, and how the part of a piece of the images is made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from visterm.core.errors import CorruptFileError
from visterm.core.jsonlines import json_text
from visterm.core.learned import Listed, Record, Text, Whole
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.remote import is_remote
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.core.writing import write_whole
from visterm.features.contents import ENTRY, ShardEntry, read_note
from visterm.features.folder import FeatureFolder
from visterm.features.remote_folder import BEGUN, RemoteFeatureFolder
from visterm.tagging.annotating import ChunkTags
from visterm.tagging.annotations.pieces import Piece, PieceReader

ANNOTATIONS = "folder of annotations"  # The kind in the manifest


@dataclass(frozen=True, slots=True)
class AnnotationContents:
    """What a folder of annotations holds."""

    run: str  # The run, in full
    asked: str  # Fingerprint of the run and the request, which decide the lines of each image
    wanted: dict[str, Any]  # How many tags, and of which kind
    # Images, and those that could not be read; all others have a line
    n_images: int
    n_skipped: int
    shards: list[ShardEntry]  # The parts, in the order of the images

    @property
    def n_rows(self) -> int:
        """Images that have a line."""
        return sum(shard.rows for shard in self.shards)


class AnnotationFolder(FeatureFolder):
    """The files of a folder of annotations on this machine; `annotation_folder` also gives those at an address."""

    kind: ClassVar[str] = ANNOTATIONS
    unfinished_name: ClassVar[str] = ".annotating"
    manifest_kind: ClassVar[Record] = Record(
        {
            "run": Text(),
            "asked": Text(),
            "wanted": Record(),
            "n_images": Whole(),
            "n_skipped": Whole(),
            "shards": Listed(ENTRY),
        }
    )

    def _contents_of(self, facts: dict[str, Any], shards: list[ShardEntry]) -> AnnotationContents:
        names = [name for name in AnnotationContents.__slots__ if name != "shards"]
        return AnnotationContents(**{name: facts[name] for name in names}, shards=shards)


class RemoteAnnotationFolder(AnnotationFolder, RemoteFeatureFolder):
    """The files of a folder of annotations at an address."""

    def begin(self) -> None:
        """Finish a change that a kill cut off; whoever is stopped from here on leaves what is seen to be begun."""
        super().begin()
        (self.unfinished / BEGUN).write_bytes(b"")


def annotation_folder(path: str | os.PathLike[str]) -> AnnotationFolder:
    """Return the folder of annotations at a path of this machine, or at an address."""
    return RemoteAnnotationFolder(path) if is_remote(path) else AnnotationFolder(path)


class PartDone(NamedTuple):
    """What became of the images of a piece: a line each in `entry`, or a place among the skipped."""

    entry: ShardEntry | None  # None where no image could be read
    skipped: list[Skipped]
    n_new: int  # Images that were tagged just now, not taken over


class KnownParts:
    """The parts that the folder had before this job, as far as they are whole."""

    def __init__(self, folder: AnnotationFolder, contents: AnnotationContents | None) -> None:
        entries = [] if contents is None else contents.shards
        self._entries = {entry.file: entry for entry in entries if folder.is_whole(entry)}

    def entry(self, file: str) -> ShardEntry | None:
        """Find a part by its file name, which what it follows from decides."""
        return self._entries.get(file)


class PartWork:
    """Makes the parts of a folder, one after the other.

    The tags come from `tags`, rows from `reader`, and `team` hashes files. `asked` is the fingerprint of the run and
    the request.
    """

    def __init__(
        self, folder: AnnotationFolder, tags: ChunkTags, reader: PieceReader, asked: str, known: KnownParts, team: Team
    ) -> None:
        self._folder, self._tags, self._reader = folder, tags, reader
        self._asked, self._known, self._team = asked, known, team

    def do(self, piece: Piece, progress: Progress = SILENT) -> PartDone:
        """Make the part of a piece, unless it is there already; `progress` takes a step for each image."""
        content = self._reader.content(piece, self._team)
        note = self._folder.unfinished / f"{self._digest(piece.images, content)}.json"
        done = self._noted(note) or self._as_it_was(piece, content)
        if done is not None:
            progress.advance(piece.n)
            return done
        done = self._tagged(piece, content, progress)
        entry = None if done.entry is None else asdict(done.entry)
        skipped = [item.as_dict() for item in done.skipped]
        write_whole(note, json_text({"entry": entry, "skipped": skipped}).encode())
        return done

    def _tagged(self, piece: Piece, content: Sequence[str | None], progress: Progress) -> PartDone:
        lines, skipped = [], []
        for item in self._tags.of(self._reader.chunk(piece, Steps(progress))):
            if isinstance(item, Skipped):
                skipped.append(item)
            else:
                lines.append(json_text(item.as_dict()) + "\n")
        if not lines:
            return PartDone(None, skipped, 0)
        without = {item.image for item in skipped}
        kept = [i for i, image in enumerate(piece.images) if image not in without]
        file = self._file_name([piece.images[i] for i in kept], [content[i] for i in kept] if kept else content)
        entry = self._known.entry(file)
        if entry is None:
            written = "".join(lines).encode()
            write_whole(self._folder.shard_to_write(file), written)
            entry = ShardEntry(file, len(lines), hashlib.sha256(written).hexdigest())
        return PartDone(entry, skipped, len(lines))

    def _as_it_was(self, piece: Piece, content: Sequence[str | None]) -> PartDone | None:
        """Find the part that has just these images; one of which some were skipped is tried again."""
        entry = None if None in content else self._known.entry(self._file_name(piece.images, content))
        return None if entry is None else PartDone(entry, [], 0)

    def _noted(self, note: Path) -> PartDone | None:
        """Find what a job that was killed has done of the very same images."""
        if not note.exists():
            return None
        value = read_note(note)
        try:
            entry = None if value["entry"] is None else ShardEntry(**value["entry"])
            done = PartDone(entry, [Skipped(**item) for item in value["skipped"]], 0)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{note} is no note of visterm annotate: {error}. Remove the file.") from error
        if entry is None or entry == self._known.entry(entry.file) or self._folder.is_written(entry):
            return done
        return None

    def _file_name(self, images: Sequence[str], content: Sequence[str | None]) -> str:
        return f"part-{self._digest(images, content)}.jsonl"

    def _digest(self, images: Sequence[str], content: Sequence[str | None]) -> str:
        parts = json.dumps([self._asked, list(images), list(content)])
        return hashlib.sha256(parts.encode()).hexdigest()[:24]
