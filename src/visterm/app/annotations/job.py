"""Tagging many images as a job that may be killed, or shared out: into a folder of parts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from visterm.app.annotating import ChunkTags, TagsWanted
from visterm.app.annotations.folder import AnnotationContents, annotation_folder
from visterm.app.annotations.part_work import KnownParts, PartDone, PartWork
from visterm.app.annotations.pieces import Found, Piece, PieceReader, pieces_of
from visterm.app.features.folder import told_of_a_full_disk
from visterm.app.tagger import Tagger
from visterm.core.errors import StorageError
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import as_path, in_full
from visterm.core.threads import Team, resolve_jobs


@dataclass(frozen=True, slots=True)
class AnnotateSummary:
    """What a run of the job did, and what the folder holds now.

    Attributes
    ----------
    images : int
        Images that were found: ``annotated + skipped``.
    annotated : int
        Images with a line: ``new + reused``.
    new, reused : int
        Tagged by this run, and taken over: from before, or from a run that was killed.
    skipped : int
        Images that could not be read.
    parts : int
    shared : bool
        Whether the workers of a Ray engine made the parts.
    """

    images: int
    annotated: int
    new: int
    reused: int
    skipped: int
    parts: int
    shared: bool

    def as_dict(self) -> dict[str, Any]:
        """Give the summary as it stands in JSON."""
        return asdict(self)


def annotate_into(
    out: str | os.PathLike[str],
    tagger: Tagger,
    found: Found,
    wanted: TagsWanted,
    *,
    device: str | None = None,
    n_jobs: int | None = None,
    ray: str | None = None,
    progress: Progress = SILENT,
) -> AnnotateSummary:
    """Write the tags of images into a folder, as JSON lines in parts.

    What is written depends on the run, on what is wanted and on the images, not on how often the job was killed. In a
    folder that has parts already, only those are made whose images are new or changed; those that nothing of `found`
    stands in are dropped. Until all is done, the folder holds what it held before.

    Parameters
    ----------
    out : path-like
        The folder: a new one, or one to go on with.
    tagger : Tagger
        As it was loaded from a run; workers load it again.
    found : Found
        The images, see `find`.
    wanted : TagsWanted
    device : str, optional
        Where networks of the encoder run.
    n_jobs : int, optional
        Threads, or workers of Ray; None is all cores.
    ray : str, optional
        Address of a Ray engine whose workers make the parts, if there are several. The run, the images and `out` must
        lie where all its machines find them.
    progress : Progress
        Told of each image.

    Raises
    ------
    UserError
        If the run cannot give what is wanted.
    StorageError
        If `out` is something else, is written by another process, or its disk is full; or if an image is missing in
        the end.
    """
    folder = annotation_folder(out)
    folder.check_place()
    tags = ChunkTags(tagger, wanted)
    asked = fingerprint_of(tagger, wanted)
    every = pieces_of(tagger.encoder, found, stable=True)
    shared = ray is not None and len(every.pieces) > 1
    with told_of_a_full_disk(folder.path), folder.locked():
        folder.begin()
        known = KnownParts(folder, folder.contents())
        if ray is not None and shared:
            from visterm.app.cluster.annotating import annotated_parts  # which loads Ray

            made = annotated_parts(folder, tagger.path, wanted, device, asked, known, every, ray, n_jobs)
            done = _counted(made, every.pieces, progress)
        else:
            with Team(resolve_jobs(n_jobs)) as team:
                work = PartWork(
                    folder, tags, PieceReader(tagger.encoder, os.getcwd(), every.features), asked, known, team
                )
                done = _counted((work.do(piece, progress) for piece in every.pieces), every.pieces, progress, own=True)
        skipped = [item for part in done for item in part.skipped] + every.skipped
        contents = AnnotationContents(
            run=str(in_full(tagger.path)),
            asked=asked,
            wanted=wanted._asdict(),
            n_images=every.n_images,
            n_skipped=len(skipped),
            shards=[part.entry for part in done if part.entry is not None],
        )
        folder.commit(contents, skipped)
    new = sum(part.n_new for part in done)
    return AnnotateSummary(
        images=contents.n_images,
        annotated=contents.n_rows,
        new=new,
        reused=contents.n_rows - new,
        skipped=len(skipped),
        parts=len(contents.shards),
        shared=shared,
    )


def fingerprint_of(tagger: Tagger, wanted: TagsWanted) -> str:
    """Name what the lines of images follow from, besides the images: all files of the run, and what is wanted."""
    told = [file_hash(as_path(tagger.path) / MANIFEST), tagger.encoder.fingerprint, wanted._asdict()]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _counted(
    parts: Iterator[PartDone], pieces: Sequence[Piece], progress: Progress, *, own: bool = False
) -> list[PartDone]:
    """Collect parts, and see that each image has a line or is among the skipped; `own` work tells of its progress."""
    done = []
    progress.start("annotate", sum(piece.n for piece in pieces))
    try:
        for piece, part in zip(pieces, parts, strict=True):
            n = len(part.skipped) + (part.entry.rows if part.entry else 0)
            if n != piece.n:
                raise StorageError(f"Of {piece.called()}, {n:,} of {piece.n:,} came back. Give the same command again.")
            done.append(part)
            progress.advance(0 if own else piece.n)
    finally:
        progress.finish()
    return done
