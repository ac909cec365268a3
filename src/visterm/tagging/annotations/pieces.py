"""Pieces, groups of images that are tagged together, and the folder with the tags of each piece in a part."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

from visterm.core.errors import UserError
from visterm.core.learned import Listed, Record, Text, Whole
from visterm.core.progress import SILENT, Progress, StepProgress
from visterm.core.remote import absolute, as_path, is_remote
from visterm.core.threads import Team
from visterm.core.types import CHUNK, Chunk, Skipped
from visterm.core.wording import json_text
from visterm.data.contents import content_hash, stamp_hash, stamps
from visterm.data.image_folders import Unsearched, find_images, no_images_message
from visterm.encoders.contract import AnyEncoder
from visterm.features.contents import ENTRY, ShardEntry, cut, is_features
from visterm.features.folder import FeatureFolder
from visterm.features.part_work import PartDone, PartWork
from visterm.features.remote_folder import BEGUN, RemoteFeatureFolder
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import check_fingerprint, is_name
from visterm.features.video_rows import encode_all
from visterm.tagging.annotating import ChunkTagger

ANNOTATIONS = "folder of annotations"  # The kind in the manifest


class AnnotationInput(NamedTuple):
    """The images to tag: features folders, or files and names of images, as typed or found."""

    features: list[str]
    images: list[str]
    skipped: Sequence[Skipped] = ()  # Folders that cannot be read


class Piece(NamedTuple):
    """Images that are tagged together."""

    images: list[str]  # Files or names; empty for features
    shards: list[int]  # Numbers of the shards of features; empty for files and names
    n: int  # Number of images

    def description(self) -> str:
        """Return a description of the piece for messages."""
        if self.images:
            return f"the images from '{self.images[0]}' to '{self.images[-1]}'"
        return f"the images of shard {self.shards[0]}"


class Pieces(NamedTuple):
    """All pieces in the order of the images."""

    pieces: list[Piece]
    features: list[str]  # Absolute paths of the features folders
    skipped: list[Skipped]  # Images that are known to have no features

    @property
    def n_images(self) -> int:
        """The number of images in the pieces, and skipped images."""
        return sum(piece.n for piece in self.pieces) + len(self.skipped)


def find(encoder: AnyEncoder, typed: Sequence[str]) -> AnnotationInput:
    """Find the images in typed folders, files and names.

    Raises UserError if there are no images, or features folders and other images; DataError if a path does not exist.
    """
    names = [image for image in typed if is_name(encoder, image)]
    features_folders = [image for image in typed if image not in names and is_features(image)]
    if 0 < len(features_folders) < len(typed):
        raise UserError(
            f"{features_folders[0]} is a features folder, which cannot be combined with other images.",
            setting="images", value=features_folders[0], advice="Leave the other images out.",
        )  # fmt: skip

    if features_folders:
        return AnnotationInput(features_folders, [])
    unsearched, folders = Unsearched(), (image for image in typed if image not in names)
    files = find_images(folders, unsearched=unsearched, videos=encoder.reads != "names")
    images = [*names, *map(os.fspath, files)]
    if not images:
        raise UserError(no_images_message(typed[0]), setting="images", value=typed[0])
    return AnnotationInput([], images, unsearched.closed)


def pieces_of(encoder: AnyEncoder, source: AnnotationInput, *, stable: bool) -> Pieces:
    """Cut the images of a command into pieces.

    With `stable`, a new image changes only one piece: a piece is a shard, or its end depends on the names (see `cut`).
    Otherwise pieces have the size of the chunks that a single process tags. Raises EncoderMismatchError if the features
    were made by another encoder; DataError if an encoder of names knows none of the names, or an image is in two
    features folders.
    """
    if not source.features:
        encoder.refuse_unknown(source.images, only_if_all=True)
        n = len(source.images)
        parts = cut(source.images, CHUNK) if stable else [range(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]
        pieces = [Piece([source.images[i] for i in part], [], len(part)) for part in parts]
        return Pieces(pieces, [], [*source.skipped])

    features = [str(absolute(folder)) for folder in source.features]
    shards = Shards(features)
    check_fingerprint(encoder, shards.contents)
    shards.refuse_duplicate_names()
    groups = [[number] for number in range(len(shards))] if stable else shards.groups()
    rows = [entry.rows for entry in shards.contents.shards]
    pieces = [Piece([], group, sum(rows[number] for number in group)) for group in groups]
    return Pieces(pieces, features, shards.skipped())


class PieceReader:
    """Encodes the images of pieces with a fitted encoder, or reads their rows from the folders in `features`.

    Paths of images are relative to `current_folder`, that of the command.
    """

    def __init__(self, encoder: AnyEncoder, current_folder: str, features: Sequence[str] = ()) -> None:
        self._encoder, self._folder, self._features = encoder, current_folder, features

    @cached_property
    def _shards(self) -> Shards:
        return Shards(self._features)

    def path(self, image: str) -> str:
        """Return the path of an image; for encoders that read names, its name."""
        return image if is_remote(image) or self._encoder.reads == "names" else os.path.join(self._folder, image)

    def chunk(self, piece: Piece, progress: Progress = SILENT) -> Chunk:
        """Encode the images of a piece, or read their rows.

        Raises CorruptFileError if a shard is missing or has changed.
        """
        if piece.shards:
            progress.advance(piece.n)
            return self._shards.chunk(piece.shards)
        paths = [self.path(image) for image in piece.images]
        X, positions, unreadable = encode_all(self._encoder, paths, progress)
        names = dict(zip(paths, piece.images, strict=True))
        skipped = [Skipped(names[item.image], item.reason) for item in unreadable]
        return Chunk([piece.images[i] for i in positions], X, skipped)

    def content(self, piece: Piece, team: Team) -> list[str | None]:
        """Return a hash of each file or shard of a piece; None for a file that cannot be read."""
        if piece.shards:
            return [self._shards.contents.shards[number].sha256 for number in piece.shards]
        if self._encoder.reads == "names":
            return ["" for _ in piece.images]
        paths = [as_path(self.path(image)) for image in piece.images]
        file_stamps = stamps(paths)
        return team.run(lambda i: stamp_hash(file_stamps[i]) or content_hash(paths[i]), len(paths))


@dataclass(frozen=True, slots=True)
class AnnotationContents:
    """The manifest of a folder of annotations."""

    run: str  # Absolute path of the run
    asked: str  # Fingerprint of the run and the request, which determine the lines of each image
    wanted: dict[str, object]  # The fields of `TagsWanted`
    # All images, and images that could not be read; each of the others has a line
    n_images: int
    n_skipped: int
    shards: list[ShardEntry]  # The parts, in the order of the images

    @property
    def n_rows(self) -> int:
        """Number of images that have a line."""
        return sum(shard.rows for shard in self.shards)


class AnnotationFolder(FeatureFolder):
    """The files of a folder of annotations on this machine; use `annotation_folder` for paths that may be remote."""

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
    """The files of a folder of annotations at a remote address."""

    def begin(self) -> None:
        """Finish an interrupted change, and mark the folder as unfinished until the next commit."""
        super().begin()
        (self.unfinished / BEGUN).write_bytes(b"")


def annotation_folder(path: str | os.PathLike[str]) -> AnnotationFolder:
    """Return the folder of annotations at a path of this machine, or at a remote address."""
    return RemoteAnnotationFolder(path) if is_remote(path) else AnnotationFolder(path)


class TaggedParts(PartWork):
    """Makes the parts of a folder of annotations.

    `chunk_tagger` tags the rows that `reader` reads, and `team` hashes files. `asked` is the fingerprint of the run and
    the request.
    """

    command, suffix = "visterm annotate", ".jsonl"

    def __init__(
        self,
        folder: AnnotationFolder,
        chunk_tagger: ChunkTagger,
        reader: PieceReader,
        asked: str,
        known: Mapping[str, ShardEntry],
        team: Team,
    ) -> None:
        super().__init__(folder, known, asked)
        self._chunk_tagger, self._reader, self._team = chunk_tagger, reader, team

    def do(self, piece: Piece, progress: Progress = SILENT) -> PartDone:
        """Make the part of a piece unless it already exists; `progress` advances by one step per image."""
        content = self._reader.content(piece, self._team)
        make = partial(self._tagged, piece, content, progress)
        return self._reuse_or_make(piece.images, content, piece.n, progress, make)

    def _tagged(self, piece: Piece, content: Sequence[str | None], progress: Progress) -> PartDone:
        lines, skipped = [], []
        for item in self._chunk_tagger.of(self._reader.chunk(piece, StepProgress(progress))):
            if isinstance(item, Skipped):
                skipped.append(item)
            else:
                lines.append(json_text(item.as_dict()) + "\n")

        if not lines:
            return PartDone(None, skipped, 0)
        skipped_names = {item.image for item in skipped}
        positions = [i for i, image in enumerate(piece.images) if image not in skipped_names]
        images = [piece.images[i] for i in positions]
        contents = [content[i] for i in positions] if positions else content
        entry = self._write(images, contents, len(lines), lambda: "".join(lines).encode())
        return PartDone(entry, skipped, len(lines))
