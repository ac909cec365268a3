"""Tags of many images, as a job in parts: into a folder, where a killed job can be resumed, or one by one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.core.executor import LOCAL, Executor, for_parts, require_visible_path
from visterm.core.learned import Listed, Record, Text, Whole
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.progress import SILENT, Progress, Say, StepProgress, reported
from visterm.core.remote import absolute, as_path, is_remote
from visterm.core.threads import Team
from visterm.core.types import CHUNK, Chunk, Skipped
from visterm.core.wording import json_text
from visterm.data.contents import content_hash, stamp_hash, stamps
from visterm.data.image_folders import Unsearched, find_images, no_images_message
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import ENTRY, FeatureFolder, ShardEntry, cut, is_features, naming_a_full_disk
from visterm.features.part_work import PartDone, PartWork
from visterm.features.remote_folder import BEGUN, RemoteFeatureFolder
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import check_fingerprint, is_name
from visterm.features.video_rows import encode_all
from visterm.tagging.annotating import Annotated, ChunkTagger, TagsWanted, annotate_each
from visterm.tagging.tagger import Tagger

ANNOTATIONS = "folder of annotations"  # The kind in the manifest
DONE_HERE = "Other machines ignored: all images are in one part, which was done here."


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
    images = [*names, *map(os.fspath, find_images(folders, unsearched=unsearched, videos=encoder.reads != "names"))]
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
        items = list(self._chunk_tagger.of(self._reader.chunk(piece, StepProgress(progress))))
        skipped = [item for item in items if isinstance(item, Skipped)]
        lines = [json_text(item.as_dict()) + "\n" for item in items if not isinstance(item, Skipped)]
        if not lines:
            return PartDone(None, skipped, 0)
        skipped_names = {item.image for item in skipped}
        positions = [i for i, image in enumerate(piece.images) if image not in skipped_names]
        images = [piece.images[i] for i in positions]
        contents = [content[i] for i in positions] if positions else content
        entry = self._write(images, contents, len(lines), lambda: "".join(lines).encode())
        return PartDone(entry, skipped, len(lines))


class AnnotateSummary(NamedTuple):
    """The results of the job, and the contents of the folder."""

    images: int  # All images: ``annotated + skipped``
    annotated: int  # Images with a line: ``new + reused``
    # Tagged by this job, and reused from an earlier or interrupted job
    new: int
    reused: int
    skipped: int  # Images that could not be read
    parts: int
    shared: bool  # Whether other processes made the parts


def annotate_into(
    out: str | os.PathLike[str],
    tagger: Tagger,
    source: AnnotationInput,
    wanted: TagsWanted,
    *,
    executor: Executor = LOCAL,
    progress: Progress = SILENT,
) -> AnnotateSummary:
    """Write the tags of images that `find` found into a new or existing folder, as parts of JSON lines.

    The files depend on the run, the request and the images, not on interruptions. In an existing folder, only parts
    with new or changed images are made, and parts without an image of `source` are removed. The folder has its previous
    contents until the job is done.

    The tagger must be loaded from a run, unchanged, as workers load the run again. With an executor of several
    machines, all machines must be able to read the run and the images, and to write `out`; a single part is made in
    this process. Progress advances by one step per image.

    Raises UserError if the run doesn't support the request; StorageError if `out` is not a folder of annotations,
    another process is writing it, its disk is full, or an image is missing at the end.
    """
    folder = annotation_folder(out)
    folder.check_path()
    ChunkTagger(tagger, wanted)  # raises UserError for unsupported requests before anything is written
    # Besides the images, all files of the run and the request determine the lines
    parts = [file_hash(as_path(tagger.path) / MANIFEST), tagger.encoder.fingerprint, wanted._asdict()]
    request_fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    split = pieces_of(tagger.encoder, source, stable=True)
    pieces_executor = for_parts(executor, split.pieces)

    with naming_a_full_disk(folder.path), folder.locked():
        folder.begin()
        previous = folder.contents()
        shards = [] if previous is None else previous.shards
        known = {entry.file: entry for entry in shards if folder.is_intact(entry)}
        base_job = _job(tagger, wanted, split)
        job = AnnotateIntoJob(**vars(base_job), folder=folder, request_fingerprint=request_fingerprint, known=known)
        results, done_parts = pieces_executor.run(job, split.pieces, progress), []
        with reported(progress, "tag photos", sum(piece.n for piece in split.pieces)):
            for piece, part in zip(split.pieces, results, strict=True):
                _refuse_missing(piece, len(part.skipped) + (part.entry.rows if part.entry else 0))
                done_parts.append(part)
        skipped = [item for part in done_parts for item in part.skipped] + split.skipped
        contents = AnnotationContents(
            run=str(absolute(tagger.path)), asked=request_fingerprint, wanted=wanted._asdict(),
            n_images=sum(piece.n for piece in split.pieces) + len(split.skipped), n_skipped=len(skipped),
            shards=[part.entry for part in done_parts if part.entry is not None],
        )  # fmt: skip
        folder.commit(contents, skipped)

    new = sum(part.n_new for part in done_parts)
    return AnnotateSummary(
        images=contents.n_images, annotated=contents.n_rows, new=new, reused=contents.n_rows - new,
        skipped=len(skipped), parts=len(contents.shards), shared=pieces_executor.remote,
    )  # fmt: skip


def annotate_found(
    tagger: Tagger, source: AnnotationInput, wanted: TagsWanted, *, executor: Executor, say: Say, progress: Progress
) -> Iterator[Annotated | Skipped]:
    """Tag images one after another in this process, or on other machines if there is more than one piece.

    Parameters and errors are those of `annotate_into`; `say` is called with a line for people if other machines were
    not needed.
    """
    if executor.remote:
        ChunkTagger(tagger, wanted)  # raises UserError for unsupported requests before other machines start
        split = pieces_of(tagger.encoder, source, stable=False)
        if len(split.pieces) > 1:
            return annotate_pieces(tagger, wanted, split, executor, progress)
        say(DONE_HERE)
    images: Any = source.features or source.images
    progress = progress if source.features or len(images) > 1 else SILENT
    return chain(annotate_each(tagger, images, wanted, progress=progress), source.skipped)


def annotate_pieces(
    tagger: Tagger, wanted: TagsWanted, split: Pieces, executor: Executor, progress: Progress = SILENT
) -> Iterator[Annotated | Skipped]:
    """Tag pieces on the workers of an executor, and yield the images in the order of a single process.

    Raises UserError if the executor has no machines; StorageError if a worker cannot read the run or the images, or an
    image is missing at the end.
    """
    job = _job(tagger, wanted, split)
    with reported(progress, "tag photos", sum(piece.n for piece in split.pieces)):
        for piece, tagged in zip(split.pieces, executor.run(job, split.pieces, progress), strict=True):
            _refuse_missing(piece, len(tagged))
            yield from tagged
    yield from split.skipped


@dataclass(frozen=True)
class AnnotateJob:
    """A `Job` that tags images. Its parts are pieces.

    Other processes load the tagger from `run`. Paths of images are relative to `current_folder`; `features` are the
    features folders of the pieces, if any. Workers check that they can read the images of `first_piece`.
    """

    tagger: Tagger | None
    run: str
    wanted: TagsWanted
    current_folder: str
    features: list[str]
    first_piece: Piece | None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "tagger": None}

    def begin(self, team: Team, progress: Progress) -> Callable[[Piece], Any]:
        """Load the run if necessary; return a function that tags a piece, as `Annotated` or `Skipped` images."""
        chunk_tagger, reader = self.loaded(team)
        return lambda piece: list(chunk_tagger.of(reader.chunk(piece, progress)))

    def name_of(self, part: Piece) -> str:
        """Return the description of a piece."""
        return part.description()

    def size_of(self, part: Piece) -> int:
        """Return the number of images of a piece."""
        return part.n

    def loaded(self, team: Team) -> tuple[ChunkTagger, PieceReader]:
        """Load the run if necessary; return the tagger of chunks and the reader of pieces."""
        tagger = self.tagger
        if tagger is None:
            require_visible_path(self.run)
            tagger = Tagger.load(self.run, n_jobs=team.size)
        reader = PieceReader(tagger.encoder, self.current_folder, self.features)
        if self.tagger is None:
            images = [] if self.first_piece is None or tagger.encoder.reads != "pixels" else self.first_piece.images
            for path in [*self.features, *map(reader.path, images[:1])]:
                require_visible_path(path)
        return ChunkTagger(tagger, self.wanted), reader


@dataclass(frozen=True, kw_only=True)
class AnnotateIntoJob(AnnotateJob):
    """A `Job` that writes the tags of images into a folder; the fields are those of `TaggedParts`."""

    folder: AnnotationFolder
    request_fingerprint: str
    known: dict[str, ShardEntry]

    def begin(self, team: Team, progress: Progress) -> Callable[[Piece], PartDone]:
        """Load the run if necessary; return a function that makes the part of a piece."""
        require_visible_path(self.folder.path)
        chunk_tagger, reader = self.loaded(team)
        work = TaggedParts(self.folder, chunk_tagger, reader, self.request_fingerprint, self.known, team)
        return lambda piece: work.do(piece, progress)


def _job(tagger: Tagger, wanted: TagsWanted, split: Pieces) -> AnnotateJob:
    first = split.pieces[0] if split.pieces else None
    return AnnotateJob(tagger, str(absolute(tagger.path)), wanted, os.getcwd(), split.features, first)


def _refuse_missing(piece: Piece, n: int) -> None:
    if n != piece.n:
        problem = f"Only {n:,} of {piece.n:,} results came back for {piece.description()}."
        raise StorageError(f"{problem} Run the same command again.")
