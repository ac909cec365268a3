"""Images tagged by Ray's workers: their tags come back in the order of the images, or are written where they belong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from visterm.app.annotating import Annotated, ChunkTags, TagsWanted
from visterm.app.annotations.folder import AnnotationFolder
from visterm.app.annotations.part_work import KnownParts, PartDone, PartWork
from visterm.app.annotations.pieces import Piece, PieceReader, Pieces
from visterm.app.cluster.engine import engine
from visterm.app.cluster.pipeline import must_see, shared_out
from visterm.app.device import move_encoder
from visterm.app.tagger import Tagger
from visterm.core.errors import StorageError
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team
from visterm.core.types import Skipped


class AnnotateJob(NamedTuple):
    """What a worker has to know to tag images.

    Attributes
    ----------
    run : str
        In full.
    wanted : TagsWanted
    device : str or None
        Where networks of the encoder run.
    here : str
        Where paths of images start from.
    features : list of str
        The features folders that pieces are of, if they are.
    first : Piece
        Tells whether the images can be seen.
    """

    run: str
    wanted: TagsWanted
    device: str | None
    here: str
    features: list[str]
    first: Piece

    def begin(self) -> Callable[[Piece], list[Annotated | Skipped]]:
        """Load the run, to use it with one thread."""
        tags, reader = self.loaded()
        return lambda piece: list(tags.of(reader.chunk(piece)))

    def called(self, piece: Piece) -> str:
        """Name a piece by its images."""
        return piece.called()

    def loaded(self) -> tuple[ChunkTags, PieceReader]:
        """Load the run; gives what tags images, and what reads them."""
        must_see(self.run)
        tagger = Tagger.load(self.run, n_jobs=1)
        if self.device is not None:
            move_encoder(tagger.encoder, self.device)
        reader = PieceReader(tagger.encoder, self.here, self.features)
        files = [reader.path(self.first.images[0])] if self.first.images and tagger.encoder.reads == "pixels" else []
        for path in [*self.features, *files]:
            must_see(path)
        return ChunkTags(tagger, self.wanted), reader


class AnnotateIntoJob(NamedTuple):
    """What a worker has to know to write the tags of images; `folder`, `asked` and `known` as `PartWork` takes them."""

    job: AnnotateJob
    folder: AnnotationFolder
    asked: str
    known: KnownParts

    def begin(self) -> Callable[[Piece], PartDone]:
        """Load the run, to use it with one thread."""
        must_see(self.folder.path)
        tags, reader = self.job.loaded()
        return PartWork(self.folder, tags, reader, self.asked, self.known, Team(1)).do

    def called(self, piece: Piece) -> str:
        """Name a piece by its images."""
        return piece.called()


def annotated(
    run: str,
    wanted: TagsWanted,
    device: str | None,
    every: Pieces,
    address: str,
    n_jobs: int | None,
    progress: Progress = SILENT,
) -> Iterator[Annotated | Skipped]:
    """Tag images on the workers of a Ray engine, and yield them in the order that one process gives.

    Raises
    ------
    UserError
        If there is no engine at the address.
    StorageError
        If a worker does not find the run or the images, or an image is missing in the end.
    """
    job = _job(run, wanted, device, every)
    progress.start("annotate", sum(piece.n for piece in every.pieces))
    try:
        with engine(address, n_jobs) as reached:
            for piece, found in zip(every.pieces, shared_out(job, every.pieces, reached), strict=True):
                if len(found) != piece.n:
                    raise StorageError(
                        f"Of {piece.called()}, {len(found):,} of {piece.n:,} came back. Give the same command again."
                    )
                yield from found
                progress.advance(piece.n)
    finally:
        progress.finish()
    yield from every.skipped


def annotated_parts(
    folder: AnnotationFolder,
    run: str,
    wanted: TagsWanted,
    device: str | None,
    asked: str,
    known: KnownParts,
    every: Pieces,
    address: str,
    n_jobs: int | None,
) -> Iterator[PartDone]:
    """Make the parts of a folder on the workers of a Ray engine, and yield what was done, in order; errors as above."""
    job = AnnotateIntoJob(_job(run, wanted, device, every), folder, asked, known)
    with engine(address, n_jobs) as reached:
        yield from shared_out(job, every.pieces, reached)


def _job(run: str, wanted: TagsWanted, device: str | None, every: Pieces) -> AnnotateJob:
    return AnnotateJob(run, wanted, device, os.getcwd(), every.features, every.pieces[0])
