"""`visterm annotate`: tag photos with a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say, show
from visterm.cli.progress import Bars
from visterm.core.remote import as_path
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.core.executor import Executor
    from visterm.core.types import Skipped, Tag
    from visterm.tagging.annotating import Annotated as Tagged
    from visterm.tagging.annotating import TagsWanted
    from visterm.tagging.annotations.pieces import Found
    from visterm.tagging.tagger import Tagger

TOO_SMALL = "All images are of one part, which was done here: Ray was not asked."

EXAMPLES = (
    "Examples:  visterm annotate run photo.jpg   ·   visterm annotate run new_photos -k 10 --json > tags.jsonl   ·   "
    "visterm annotate run new_photos --precision 0.9   ·   visterm annotate run 123 456 --new-only   ·   "
    "visterm annotate run features -o tags --ray HEAD:6379"
)


def annotate(
    run: options.Run,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, or folders of images; or FEATURES: what `visterm encode` made of one, or several; names, of "
            "a run of --encoder ids or precomputed.",
            show_default=False,
        ),
    ],
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            min=0,
            help="Tags an image, at most; 0 for all [default: 5; with a cut-off, all above it].",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Give only tags of which so many are expected to be right, 0.9 for nine of ten, by images that the "
            "run held out; an image may get none.",
            show_default=False,
        ),
    ] = None,
    best_f1: Annotated[
        bool, typer.Option("--best-f1", help="Give the tags that balance precision and recall best, likewise.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            "--min-confidence",
            help="Give no tags that are less likely to be right, 0 to 1, so many of an image as are.",
            show_default=False,
        ),
    ] = None,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Of images known by number: leave out the tags that they had.")
    ] = False,
    added: Annotated[
        bool,
        typer.Option(
            "--added",
            help="Also give words that `visterm tags RUN --add` added; marked *, in JSON `trained`: false, as no "
            "training image has them.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the tags into this folder, as JSON lines in parts, in place of printing them: a job that was "
            "killed goes on, and a later one tags what is new.",
            show_default=False,
            parser=as_path,
        ),
    ] = None,
    device: options.Device = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
) -> None:
    """Tag photos: the best tags of each, with scores (higher is better; scores compare tags of one image).

    A run with a calibration says besides how likely each is right (in percent; in JSON `confidence`).

    The exit code is 3 if images were skipped: they are listed in skipped.jsonl (`--skipped`), with -o in that of OUT.
    """
    from visterm.core.errors import UserError
    from visterm.core.jsonlines import write_skipped
    from visterm.core.types import Skipped
    from visterm.tagging.annotating import TagsWanted
    from visterm.tagging.annotations.pieces import find
    from visterm.tagging.device import move_encoder
    from visterm.tagging.tagger import Tagger

    tagger = Tagger.load(run, n_jobs=jobs)
    if device is not None:
        move_encoder(tagger.encoder, device)
    if added and not tagger.words.added:
        raise UserError(f"No words were added to {run}. Leave --added out, or add some: visterm tags {run} --add FILE")
    found = find(tagger.encoder, images)
    wanted = TagsWanted(k, new_only, added, precision, best_f1, min_confidence)
    if out is not None:
        _write(out, tagger, found, wanted, {"device": device, "executor": options.executor_of(ray, jobs)}, json)
    bad: list[Skipped] = []
    for item in _each(tagger, found, wanted, device, options.executor_of(ray, jobs)):
        if isinstance(item, Skipped):
            bad.append(item)
        elif json:
            emit(item.as_dict())
        else:
            show(f"{item.image}: " + ", ".join(map(_shown, item.tags)))
    if bad or skipped.exists():
        write_skipped(skipped, bad)
    raise typer.Exit(exit_code(bad, skipped))


def _each(
    tagger: Tagger, found: Found, wanted: TagsWanted, device: str | None, executor: Executor
) -> Iterator[Tagged | Skipped]:
    """Tag images one after another: here, or on the workers of an engine if there is more than one piece."""
    from visterm.core.progress import SILENT
    from visterm.tagging.annotating import ChunkTags, annotate_each

    if executor.remote:
        from visterm.tagging.annotations.job import annotate_pieces
        from visterm.tagging.annotations.pieces import pieces_of

        ChunkTags(tagger, wanted)  # what the run cannot give is refused before the other machines are reached
        every = pieces_of(tagger.encoder, found, stable=False)
        if len(every.pieces) > 1:
            return annotate_pieces(tagger, wanted, device, every, executor, Bars())
        say(TOO_SMALL)
    some = bool(found.features) or len(found.images) > 1
    photos: Any = found.features or found.images
    return annotate_each(tagger, photos, wanted, progress=Bars() if some else SILENT)


def _write(out: Path, tagger: Tagger, found: Found, wanted: TagsWanted, how: dict[str, Any], json: bool) -> NoReturn:
    """Write tags into a folder, and leave with the exit code."""
    from visterm.core.jsonlines import read_skipped
    from visterm.features.folder import DATA, SKIPPED
    from visterm.tagging.annotations.job import annotate_into

    began = time.monotonic()
    done = annotate_into(out, tagger, found, wanted, **how, progress=Bars())
    seconds = time.monotonic() - began
    if json:
        emit({"annotations": str(out), **done.as_dict(), "seconds": seconds, "images_per_second": done.new / seconds})
    if how["executor"].remote and not done.shared:
        say(TOO_SMALL)
    say(
        f"{count_of(done.annotated, 'image')} in {count_of(done.parts, 'file')} of {out / DATA}: {done.new:,} tagged, "
        f"{done.reused:,} taken over"
    )
    raise typer.Exit(exit_code(read_skipped(out / SKIPPED), out / SKIPPED))


def _shown(tag: Tag) -> str:
    likely = "" if tag.confidence is None else f" ({tag.confidence:.0%})"
    return f"{tag.tag}{'' if tag.trained else '*'} {tag.score:.2f}{likely}"
