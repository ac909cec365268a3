"""Tag many images as a job that can be resumed or distributed, into a folder of parts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from visterm.core.errors import StorageError
from visterm.core.executor import LOCAL, Executor, for_parts, require_visible_path
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.progress import SILENT, Progress, Say, reported, silent
from visterm.core.remote import absolute, as_path
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.features.contents import ShardEntry
from visterm.features.folder import naming_a_full_disk
from visterm.features.part_work import PartDone
from visterm.tagging.annotating import Annotated, ChunkTagger, TagsWanted, annotate_each
from visterm.tagging.annotations.pieces import (
    AnnotationContents,
    AnnotationFolder,
    AnnotationInput,
    Piece,
    PieceReader,
    Pieces,
    TaggedParts,
    annotation_folder,
    pieces_of,
)
from visterm.tagging.tagger import Tagger

DONE_HERE = "Other machines ignored: all images are in one part, which was done here."


@dataclass(frozen=True, slots=True)
class AnnotateSummary:
    """The results of the job, and the contents of the folder."""

    images: int  # All images: ``annotated + skipped``
    annotated: int  # Images with a line: ``new + reused``
    # Tagged by this job, and reused from an earlier or interrupted job
    new: int
    reused: int
    skipped: int  # Images that could not be read
    parts: int
    shared: bool  # Whether other processes made the parts

    def as_dict(self) -> dict[str, object]:
        """Return the summary in its JSON form."""
        return asdict(self)


def annotate_into(
    out: str | os.PathLike[str],
    tagger: Tagger,
    source: AnnotationInput,
    wanted: TagsWanted,
    *,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    progress: Progress = SILENT,
) -> AnnotateSummary:
    """Write the tags of images that `find` found into a new or existing folder, as parts of JSON lines.

    The files depend on the run, the request and the images, not on interruptions. In an existing folder, only parts
    with new or changed images are made, and parts without an image of `source` are removed. The folder has its previous
    contents until the job is done.

    The tagger must be loaded from a run, unchanged, as workers load the run again. `n_jobs` is the number of threads of
    this process; an executor has its own. With an executor of several machines, all machines must be able to read the
    run and the images, and to write `out`; a single part is made in this process. Progress advances by one step per
    image.

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
    pieces_executor = for_parts(executor or Executor(n_jobs), split.pieces)

    with naming_a_full_disk(folder.path), folder.locked():
        folder.begin()
        previous = folder.contents()
        shards = [] if previous is None else previous.shards
        known = {entry.file: entry for entry in shards if folder.is_intact(entry)}
        base_job = _job(tagger, wanted, split)
        job = AnnotateIntoJob(**vars(base_job), folder=folder, request_fingerprint=request_fingerprint, known=known)
        done_parts = _collect_parts(pieces_executor.run(job, split.pieces, progress), split.pieces, progress)
        skipped = [item for part in done_parts for item in part.skipped] + split.skipped
        contents = AnnotationContents(
            run=str(absolute(tagger.path)), asked=request_fingerprint, wanted=wanted._asdict(), n_images=split.n_images,
            n_skipped=len(skipped), shards=[part.entry for part in done_parts if part.entry is not None],
        )  # fmt: skip
        folder.commit(contents, skipped)

    new = sum(part.n_new for part in done_parts)
    return AnnotateSummary(
        images=contents.n_images, annotated=contents.n_rows, new=new, reused=contents.n_rows - new,
        skipped=len(skipped), parts=len(contents.shards), shared=pieces_executor.remote,
    )  # fmt: skip


def annotate_found(
    tagger: Tagger,
    source: AnnotationInput,
    wanted: TagsWanted,
    *,
    executor: Executor = LOCAL,
    say: Say = silent,
    progress: Progress = SILENT,
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


def _collect_parts(parts: Iterator[PartDone], pieces: Sequence[Piece], progress: Progress) -> list[PartDone]:
    """Collect the parts; raise StorageError if an image has no line and is not skipped."""
    done = []
    with reported(progress, "tag photos", sum(piece.n for piece in pieces)):
        for piece, part in zip(pieces, parts, strict=True):
            _refuse_missing(piece, len(part.skipped) + (part.entry.rows if part.entry else 0))
            done.append(part)
    return done


def _refuse_missing(piece: Piece, n: int) -> None:
    if n != piece.n:
        problem = f"Only {n:,} of {piece.n:,} results came back for {piece.description()}."
        raise StorageError(f"{problem} Run the same command again.")
