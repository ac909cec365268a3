"""`visterm annotate`: tag photos with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, exit_code, show
from visterm.cli.progress import Bars

EXAMPLES = (
    "Examples:  visterm annotate run photo.jpg   ·   visterm annotate run new_photos -k 10 --json > tags.jsonl   ·   "
    "visterm annotate run 123 456 --new-only"
)


def annotate(
    run: options.Run,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, or folders of images; names, of a run of --encoder ids or precomputed.", show_default=False
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=0, help="Tags an image; 0 for all.")] = 5,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Of images known by number: leave out the tags that they had.")
    ] = False,
    device: options.Device = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
    skipped: options.SkippedFile = Path("skipped.jsonl"),
) -> None:
    """Tag photos: the best tags of each, with scores (higher is better; scores compare tags of one image).

    The exit code is 3 if images were skipped.
    """
    from visterm.app.device import move_encoder
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
    named = [image for image in images if is_name(tagger.encoder, image)]
    files = [*named, *find_images(image for image in images if image not in named)]
    if not files:
        raise UserError(no_images(images[0]))
    bad: list[Skipped] = []
    for item in tagger.annotate_each(files, k, new_only=new_only, progress=Bars() if len(files) > 1 else SILENT):
        if isinstance(item, Skipped):
            bad.append(item)
        elif json:
            emit(item.as_dict())
        else:
            show(f"{item.image}: " + ", ".join(f"{tag.tag} {tag.score:.2f}" for tag in item.tags))
    if bad or skipped.exists():
        write_skipped(skipped, bad)
    raise typer.Exit(exit_code(bad, skipped))
