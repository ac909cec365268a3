"""One part of the job: tag the images of a piece, write their lines under a name that says what they follow from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import CorruptFileError
from visterm.core.jsonlines import json_text
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.core.writing import write_whole
from visterm.features.contents import ShardEntry, read_note
from visterm.tagging.annotating import ChunkTags
from visterm.tagging.annotations.folder import AnnotationContents, AnnotationFolder
from visterm.tagging.annotations.pieces import Piece, PieceReader


class PartDone(NamedTuple):
    """What became of the images of a piece: a line each in `entry`, or a place among the skipped.

    Attributes
    ----------
    entry : ShardEntry or None
        None where no image could be read.
    skipped : list of Skipped
    n_new : int
        Images that were tagged just now, not taken over.
    """

    entry: ShardEntry | None
    skipped: list[Skipped]
    n_new: int


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

    Parameters
    ----------
    folder : AnnotationFolder
    tags : ChunkTags
        Gives images their tags.
    reader : PieceReader
        Gives images their rows.
    asked : str
        Fingerprint of the run and of what is wanted.
    known : KnownParts
    team : Team
        Threads that hash files.
    """

    def __init__(
        self, folder: AnnotationFolder, tags: ChunkTags, reader: PieceReader, asked: str, known: KnownParts, team: Team
    ) -> None:
        self._folder, self._tags, self._reader = folder, tags, reader
        self._asked, self._known, self._team = asked, known, team

    def do(self, piece: Piece, progress: Progress = SILENT) -> PartDone:
        """Make the part of a piece, unless it is there already.

        Parameters
        ----------
        piece : Piece
        progress : Progress
            Told of each image.
        """
        content = self._reader.content(piece, self._team)
        note = self._folder.unfinished / f"{self._digest(piece.images, content)}.json"
        done = self._noted(note) or self._as_it_was(piece, content)
        if done is not None:
            progress.advance(piece.n)
            return done
        done = self._tagged(piece, content, progress)
        write_whole(note, json_text(_as_json(done)).encode())
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
        told = json.dumps([self._asked, list(images), list(content)])
        return hashlib.sha256(told.encode()).hexdigest()[:24]


def _as_json(done: PartDone) -> dict[str, Any]:
    return {
        "entry": None if done.entry is None else asdict(done.entry),
        "skipped": [item.as_dict() for item in done.skipped],
    }
