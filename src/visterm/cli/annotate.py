"""`visterm annotate`: tag photos with a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, show
from visterm.cli.progress import Bars

if TYPE_CHECKING:
    from visterm.core.types import Tag

EXAMPLES = (
    "Examples:  visterm annotate run photo.jpg   ·   visterm annotate run new_photos -k 10 --json > tags.jsonl   ·   "
    "visterm annotate run new_photos --precision 0.9   ·   visterm annotate run 123 456 --new-only"
)


def annotate(
    run: options.Run,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, or folders of images; or FEATURES: what `visterm encode` made of one; names, of a run of "
            "--encoder ids or precomputed.",
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
    device: options.Device = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
) -> None:
    """Tag photos: the best tags of each, with scores (higher is better; scores compare tags of one image).

    A run with a calibration says besides how likely each is right (in percent; in JSON `confidence`).

    The exit code is 3 if images were skipped.
    """
    from visterm.app.device import move_encoder
    from visterm.app.features.kind import is_features
    from visterm.app.rows import is_name
    from visterm.app.tagger import Tagger
    from visterm.core.errors import UserError
    from visterm.core.jsonlines import write_skipped
    from visterm.core.progress import SILENT
    from visterm.core.types import Skipped
    from visterm.data.image_folders import find_images, no_images

    tagger = Tagger.load(run, n_jobs=jobs)
    if device is not None:
        move_encoder(tagger.encoder, device)
    if added and not tagger.words.added:
        raise UserError(f"No words were added to {run}. Leave --added out, or add some: visterm tags {run} --add FILE")
    named = [image for image in images if is_name(tagger.encoder, image)]
    stored = [image for image in images if is_features(image)]
    if stored and len(images) > 1:
        raise UserError(f"{stored[0]} is a features folder, which stands alone. Leave the other images out.")
    files: Any = stored[0] if stored else [*named, *find_images(image for image in images if image not in named)]
    if not files:
        raise UserError(no_images(images[0]))
    bad: list[Skipped] = []
    for item in tagger.annotate_each(
        files,
        k,
        new_only=new_only,
        added=added,
        precision=precision,
        best_f1=best_f1,
        min_confidence=min_confidence,
        progress=Bars() if stored or len(files) > 1 else SILENT,
    ):
        if isinstance(item, Skipped):
            bad.append(item)
        elif json:
            emit(item.as_dict())
        else:
            show(f"{item.image}: " + ", ".join(map(_shown, item.tags)))
    if bad or skipped.exists():
        write_skipped(skipped, bad)
    raise typer.Exit(exit_code(bad, skipped))


def _shown(tag: Tag) -> str:
    likely = "" if tag.confidence is None else f" ({tag.confidence:.0%})"
    return f"{tag.tag}{'' if tag.trained else '*'} {tag.score:.2f}{likely}"
