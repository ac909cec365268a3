"""`visterm annotate`: tag photos with a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, say, show
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.remote import as_path
from visterm.core.wording import count_of

EXAMPLES = (
    "Examples:  visterm annotate run photo.jpg   ·   visterm annotate run new_photos -k 10 --json > tags.jsonl   ·   "
    "visterm annotate run new_photos --precision 0.9   ·   visterm annotate run 123 456 --new-only   ·   "
    "visterm annotate run features -o tags --ray HEAD:6379"
)


def annotate(
    run: options.Run,
    images: Annotated[
        list[str],
        options.argument(
            help="Images, or folders of images; or FEATURES: what `visterm encode` made of one, or several; names, of "
            "a run of --encoder ids or precomputed.",
        ),
    ],
    k: Annotated[
        int | None,
        options.which_option(
            "-k", min=0, help="Tags an image, at most; 0 for all [default: 5; with a cut-off, all above it]."
        ),
    ] = None,
    precision: Annotated[
        float | None,
        options.which_option(
            help="Choose the cut-off for this expected precision, such as 0.9, by images that the run held out; an "
            "image may get no tag.",
        ),
    ] = None,
    best_f1: Annotated[
        bool, options.which_option("--best-f1", help="Choose the cut-off that balances precision and recall best.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        options.which_option("--min-confidence", help="Keep tags with at least this confidence (0-1)."),
    ] = None,
    new_only: Annotated[
        bool,
        options.which_option("--new-only", help="Of images known by number: leave out the tags that they had."),
    ] = False,
    added: Annotated[
        bool,
        options.which_option(
            "--added", help="Use the words of `visterm tags RUN --add`, too; marked *, in JSON `trained`: false."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        options.output_option(
            "-o",
            "--out",
            help="Write the tags into this folder, as JSON lines in parts, in place of printing them: a job that was "
            "killed goes on, and a later one tags what is new.",
            parser=as_path,
        ),
    ] = None,
    json: options.Json = False,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
    device: options.Device = None,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
) -> None:
    """Tag photos: the best tags of each, with scores (higher is better; scores compare tags of one image).

    A run with a calibration says besides how likely each is right (in percent; in JSON `confidence`).

    The exit code is 3 if images were skipped: they are listed in skipped.jsonl (`--skipped`), with -o in that of OUT.
    """
    from visterm.core.jsonlines import read_skipped, write_skipped
    from visterm.core.types import Skipped
    from visterm.features.folder import DATA, SKIPPED
    from visterm.tagging.annotating import TagsWanted
    from visterm.tagging.annotations.job import DONE_HERE, annotate_found, annotate_into
    from visterm.tagging.annotations.pieces import find
    from visterm.tagging.tagger import Tagger

    tagger = Tagger.load(run, n_jobs=jobs, device=device)
    if added and not tagger.words.added:
        raise UserError(f"No words were added to {run}. Leave --added out, or add some: visterm tags {run} --add FILE")
    found = find(tagger.encoder, images)
    wanted = TagsWanted(k, new_only, added, precision, best_f1, min_confidence)
    executor = options.executor_of(ray, jobs)
    if out is not None:
        began = time.monotonic()
        done = annotate_into(out, tagger, found, wanted, device=device, executor=executor, progress=Bars())
        seconds = time.monotonic() - began
        if json:
            speed = {"seconds": seconds, "images_per_second": done.new / seconds}
            emit({"annotations": str(out), **done.as_dict(), **speed})
        if ray is not None and not done.shared:
            say(DONE_HERE)
        say(
            f"{count_of(done.annotated, 'image')} in {count_of(done.parts, 'file')} of {out / DATA}: {done.new:,} "
            f"tagged, {done.reused:,} taken over"
        )
        raise typer.Exit(exit_code(read_skipped(out / SKIPPED), out / SKIPPED))
    bad: list[Skipped] = []
    for item in annotate_found(tagger, found, wanted, device=device, executor=executor, say=say, progress=Bars()):
        if isinstance(item, Skipped):
            bad.append(item)
        elif json:
            emit(item.as_dict())
        else:
            shown = []
            for tag in item.tags:
                confidence = "" if tag.confidence is None else f" ({tag.confidence:.0%})"
                shown.append(f"{tag.tag}{'' if tag.trained else '*'} {tag.score:.2f}{confidence}")
            show(f"{item.image}: " + ", ".join(shown))
    if bad or skipped.exists():
        write_skipped(skipped, bad)
    raise typer.Exit(exit_code(bad, skipped))
