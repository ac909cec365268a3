"""Tagging many images as a job that may be killed, or shared out: into a folder of parts."""

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
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.remote import as_path, in_full
from visterm.core.threads import Team
from visterm.core.types import Skipped
from visterm.features.contents import ShardEntry
from visterm.features.folder import naming_a_full_disk
from visterm.features.part_work import PartDone
from visterm.learning.part_settings import move_encoder
from visterm.tagging.annotating import Annotated, ChunkTags, TagsWanted, annotate_each
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
    """What a run of the job did, and what the folder holds now."""

    images: int  # Images that were found: ``annotated + skipped``
    annotated: int  # Images with a line: ``new + reused``
    # Tagged by this run, and taken over: from before, or from a run that was killed
    new: int
    reused: int
    skipped: int  # Images that could not be read
    parts: int
    shared: bool  # Whether workers of other processes made the parts

    def as_dict(self) -> dict[str, object]:
        """Return the summary as it stands in JSON."""
        return asdict(self)


def annotate_into(
    out: str | os.PathLike[str],
    tagger: Tagger,
    source: AnnotationInput,
    wanted: TagsWanted,
    *,
    device: str | None = None,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    progress: Progress = SILENT,
) -> AnnotateSummary:
    """Write the tags of images that `find` found into a folder, new or to go on with, as JSON lines in parts.

    What is written depends on the run, the request and the images, not on how often the job was killed. In a folder
    that has parts already, only those are made whose images are new or changed; those without an image of `source` are
    dropped. Until all is done, the folder holds what it held before.

    The tagger is as it was loaded from a run, which workers load again; networks of its encoder run on `device`.
    `n_jobs` are the threads of this process; an executor has its own. With an executor of several machines, the run,
    the images and `out` must lie where all of them find them; a single part is made here all the same. Progress takes a
    step for each image.

    Raises UserError if the run cannot do what is requested; StorageError if `out` is something else, is written by
    another process, or its disk is full; or if an image is missing in the end.
    """
    folder = annotation_folder(out)
    folder.check_place()
    ChunkTags(tagger, wanted)  # refuses what the run cannot give before anything is written
    # What the lines of images follow from, besides the images: all files of the run, and the request
    parts = [file_hash(as_path(tagger.path) / MANIFEST), tagger.encoder.fingerprint, wanted._asdict()]
    request_fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    every = pieces_of(tagger.encoder, source, stable=True)
    chosen = for_parts(executor or Executor(n_jobs), every.pieces)

    with naming_a_full_disk(folder.path), folder.locked():
        folder.begin()
        before = folder.contents()
        shards = [] if before is None else before.shards
        known = {entry.file: entry for entry in shards if folder.is_whole(entry)}
        tags = _job(tagger, wanted, device, every)
        job = AnnotateIntoJob(**vars(tags), folder=folder, request_fingerprint=request_fingerprint, known=known)
        done = _all_done(chosen.run(job, every.pieces, progress), every.pieces, progress)
        skipped = [item for part in done for item in part.skipped] + every.skipped
        contents = AnnotationContents(
            run=str(in_full(tagger.path)), asked=request_fingerprint, wanted=wanted._asdict(), n_images=every.n_images,
            n_skipped=len(skipped), shards=[part.entry for part in done if part.entry is not None],
        )  # fmt: skip
        folder.commit(contents, skipped)
    new = sum(part.n_new for part in done)
    return AnnotateSummary(
        images=contents.n_images, annotated=contents.n_rows, new=new, reused=contents.n_rows - new,
        skipped=len(skipped), parts=len(contents.shards), shared=chosen.remote,
    )  # fmt: skip


def annotate_found(
    tagger: Tagger,
    source: AnnotationInput,
    wanted: TagsWanted,
    *,
    device: str | None = None,
    executor: Executor = LOCAL,
    say: Say = silent,
    progress: Progress = SILENT,
) -> Iterator[Annotated | Skipped]:
    """Tag images one after another: here, or on other machines if there is more than one piece.

    Parameters and errors are those of `annotate_into`; `say` takes a line for people where other machines were not
    needed.
    """
    if executor.remote:
        ChunkTags(tagger, wanted)  # what the run cannot give is refused before the other machines are reached
        every = pieces_of(tagger.encoder, source, stable=False)
        if len(every.pieces) > 1:
            return annotate_pieces(tagger, wanted, device, every, executor, progress)
        say(DONE_HERE)
    images: Any = source.features or source.images
    progress = progress if source.features or len(images) > 1 else SILENT
    return chain(annotate_each(tagger, images, wanted, progress=progress), source.skipped)


def annotate_pieces(
    tagger: Tagger,
    wanted: TagsWanted,
    device: str | None,
    every: Pieces,
    executor: Executor,
    progress: Progress = SILENT,
) -> Iterator[Annotated | Skipped]:
    """Tag pieces on the workers of an executor, and yield the images in the order that one process gives.

    Raises UserError if the executor has no machines; StorageError if a worker does not find the run or the images, or
    an image is missing in the end.
    """
    progress.start("tag photos", sum(piece.n for piece in every.pieces))
    try:
        job = _job(tagger, wanted, device, every)
        for piece, tagged in zip(every.pieces, executor.run(job, every.pieces, progress), strict=True):
            _refuse_missing(piece, len(tagged))
            yield from tagged
    finally:
        progress.finish()
    yield from every.skipped


@dataclass(frozen=True)
class AnnotateJob:
    """The tagging of images: `Job`. A part is a piece.

    Other processes load the tagger from `run`. Paths of images start from `here`; `features` are the features folders
    that pieces are of, if they are. The piece `first` shows whether the images can be seen.
    """

    tagger: Tagger | None
    run: str
    wanted: TagsWanted
    device: str | None
    here: str
    features: list[str]
    first: Piece | None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "tagger": None}

    def begin(self, team: Team, progress: Progress) -> Callable[[Piece], Any]:
        """Load the run, unless it is there; return what gives the images of a piece, `Annotated` or `Skipped`."""
        tags, reader = self.loaded(team)
        return lambda piece: list(tags.of(reader.chunk(piece, progress)))

    def name_of(self, part: Piece) -> str:
        """Name a piece by its images."""
        return part.called()

    def size_of(self, part: Piece) -> int:
        """Count the images of a piece."""
        return part.n

    def loaded(self, team: Team) -> tuple[ChunkTags, PieceReader]:
        """Return what tags images, and what reads them."""
        tagger = self.tagger
        if tagger is None:
            require_visible_path(self.run)
            tagger = Tagger.load(self.run, n_jobs=team.size)
            if self.device is not None:
                move_encoder(tagger.encoder, self.device)
        reader = PieceReader(tagger.encoder, self.here, self.features)
        if self.tagger is None:
            first = self.first.images[:1] if self.first is not None and tagger.encoder.reads == "pixels" else []
            for path in [*self.features, *map(reader.path, first)]:
                require_visible_path(path)
        return ChunkTags(tagger, self.wanted), reader


@dataclass(frozen=True, kw_only=True)
class AnnotateIntoJob(AnnotateJob):
    """Write the tags of images into a folder; the fields are those of `TaggedParts`."""

    folder: AnnotationFolder
    request_fingerprint: str
    known: dict[str, ShardEntry]

    def begin(self, team: Team, progress: Progress) -> Callable[[Piece], PartDone]:
        """Load the run, unless it is there."""
        require_visible_path(self.folder.path)
        tags, reader = self.loaded(team)
        work = TaggedParts(self.folder, tags, reader, self.request_fingerprint, self.known, team)
        return lambda piece: work.do(piece, progress)


def _job(tagger: Tagger, wanted: TagsWanted, device: str | None, every: Pieces) -> AnnotateJob:
    first = every.pieces[0] if every.pieces else None
    return AnnotateJob(tagger, str(in_full(tagger.path)), wanted, device, os.getcwd(), every.features, first)


def _all_done(parts: Iterator[PartDone], pieces: Sequence[Piece], progress: Progress) -> list[PartDone]:
    """Collect the parts, and see that each image has a line or is among the skipped."""
    done = []
    progress.start("tag photos", sum(piece.n for piece in pieces))
    try:
        for piece, part in zip(pieces, parts, strict=True):
            _refuse_missing(piece, len(part.skipped) + (part.entry.rows if part.entry else 0))
            done.append(part)
    finally:
        progress.finish()
    return done


def _refuse_missing(piece: Piece, n: int) -> None:
    if n != piece.n:
        raise StorageError(f"Of {piece.called()}, {n:,} of {piece.n:,} came back. Run the same command again.")
