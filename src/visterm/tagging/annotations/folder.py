"""A folder of annotations: its parts, its manifest, and how the part of a piece of the images is made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from visterm.core.learned import Listed, Record, Text, Whole
from visterm.core.progress import SILENT, Progress, StepProgress
from visterm.core.remote import is_remote
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.core.wording import json_text
from visterm.features.contents import ENTRY, ShardEntry
from visterm.features.folder import FeatureFolder
from visterm.features.part_work import PartDone, PartWork
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
    contents_class: ClassVar[type[Any]] = AnnotationContents
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


class RemoteAnnotationFolder(AnnotationFolder, RemoteFeatureFolder):
    """The files of a folder of annotations at an address."""

    def begin(self) -> None:
        """Finish a change that a kill cut off; whoever is stopped from here on leaves what is seen to be begun."""
        super().begin()
        (self.unfinished / BEGUN).write_bytes(b"")


def annotation_folder(path: str | os.PathLike[str]) -> AnnotationFolder:
    """Return the folder of annotations at a path of this machine, or at an address."""
    return RemoteAnnotationFolder(path) if is_remote(path) else AnnotationFolder(path)


class TaggedParts(PartWork):
    """Makes the parts of a folder of annotations.

    The tags come from `tags`, rows from `reader`, and `team` hashes files. `asked` is the fingerprint of the run and
    the request.
    """

    command, suffix = "visterm annotate", "jsonl"

    def __init__(
        self,
        folder: AnnotationFolder,
        tags: ChunkTags,
        reader: PieceReader,
        asked: str,
        known: Mapping[str, ShardEntry],
        team: Team,
    ) -> None:
        super().__init__(folder, known, asked)
        self._tags, self._reader, self._team = tags, reader, team

    def do(self, piece: Piece, progress: Progress = SILENT) -> PartDone:
        """Make the part of a piece, unless it is there already; `progress` takes a step for each image."""
        content = self._reader.content(piece, self._team)
        make = partial(self._tagged, piece, content, progress)
        return self._unless_there(piece.images, content, piece.n, progress, make)

    def _tagged(self, piece: Piece, content: Sequence[str | None], progress: Progress) -> PartDone:
        lines, skipped = [], []
        for item in self._tags.of(self._reader.chunk(piece, StepProgress(progress))):
            if isinstance(item, Skipped):
                skipped.append(item)
            else:
                lines.append(json_text(item.as_dict()) + "\n")
        if not lines:
            return PartDone(None, skipped, 0)
        without = {item.image for item in skipped}
        kept = [i for i, image in enumerate(piece.images) if image not in without]
        images, contents = [piece.images[i] for i in kept], [content[i] for i in kept] if kept else content
        entry = self._write(images, contents, len(lines), lambda: "".join(lines).encode())
        return PartDone(entry, skipped, len(lines))
