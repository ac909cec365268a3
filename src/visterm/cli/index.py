"""`visterm index`: store the rows of photos, so that they can be searched by words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import exit_code, say
from visterm.cli.progress import Bars
from visterm.core.wording import count_of

EXAMPLES = "Example:  visterm index run photos -o catalogue && visterm search catalogue 'snow tree'"


def index(
    run: options.Run,
    images: options.ImagesOrFeatures,
    out: Annotated[Path, typer.Option("-o", "--out", help="The catalogue to write: a folder.", show_default=False)],
    tags: Annotated[
        str | None,
        typer.Option(
            "--tags",
            help="Tags that people gave, to store with the images: a tag file, a folder of `.txt` files, or 'auto'.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
) -> None:
    """Store the rows of photos in a catalogue, to be searched by words.

    The exit code is 3 if images were skipped.
    """
    from visterm.app.catalogue import Catalogue
    from visterm.app.device import move_encoder
    from visterm.app.rows import read_corpus
    from visterm.app.tagger import Tagger
    from visterm.core.persist import check_target

    check_target(out, "catalogue")
    tagger = Tagger.load(run, n_jobs=jobs)
    if device is not None:
        move_encoder(tagger.encoder, device)
    catalogue = Catalogue(tagger)
    if tags is None:
        catalogue.add(images, progress=Bars())
    else:
        corpus = read_corpus(
            catalogue.tagger.encoder, images, tags,
            image_column=image_column, tags_column=tags_column, separator=separator,
        )  # fmt: skip
        for warning in corpus.warnings():
            say(warning)
        catalogue.add(corpus, progress=Bars())
    catalogue.save(out)
    say(f"Indexed {count_of(len(catalogue), 'image')}; the catalogue is {out}")
    raise typer.Exit(exit_code(catalogue.skipped, out / "skipped.jsonl"))
