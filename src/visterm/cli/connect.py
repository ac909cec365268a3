"""`visterm connect`: make a catalogue of another program's library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.output import list_skipped, say, show
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

NOT_KEPT = 4  # The exit code of a trial whose tags a server does not keep

EXAMPLES = (
    ("visterm connect immich http://nas:2283 --key-file key --check", "what does this server keep?"),
    ("visterm connect immich http://nas:2283 --key-file key -o catalogue", "learn its tags"),
    ("visterm connect immich http://nas:2283 --words words.txt -o catalogue", "no tags yet"),
    ("visterm connect immich http://nas:2283 --run run -o catalogue", "with a run"),
    ("visterm sync catalogue --dry-run", "next: what to write?"),
)

KeyFile = Annotated[
    Path | None,
    options.input_option(
        "--key-file",
        help="The file with the server's API key; nobody else may read it (chmod 600) [default: the environment "
        "variable IMMICH_API_KEY or PHOTOPRISM_TOKEN].",
        metavar="FILE",
    ),
]


def connect(
    program: Annotated[str, options.argument(help="The program: immich or photoprism.")],
    url: Annotated[str, options.argument(help="The address of its server, such as http://nas:2283.")],
    out: Annotated[
        Path | None, options.output_option("-o", "--out", help="The catalogue to make or update, a folder.")
    ] = None,
    key_file: KeyFile = None,
    check: Annotated[
        bool,
        options.output_option(
            "--check",
            help="Only say what this server keeps: write a tag of visterm's own to one photo of each external library "
            "and of the uploads, read it again, and take it back.",
        ),
    ] = False,
    run: Annotated[
        Path | None,
        options.model_option("--run", help="Use a run that you have, instead of learning one from the tags there."),
    ] = None,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: learning.ModelName = None,
    words: learning.Words = None,
) -> None:
    """Make a catalogue of a library in Immich or PhotoPrism.

    Fetches a preview of each photo, learns the tags that people gave, and indexes the photos. It only reads there:
    `visterm sync` writes. If no photo has a tag yet, name words to look for (--words). After a stop, run it again: it
    goes on. The exit code is 3 if photos were skipped, and 4 if --check finds that the server keeps no tags.
    """
    from visterm.connectors.connect import connect as make
    from visterm.connectors.connect import try_server
    from visterm.connectors.contract import connector_class, open_library
    from visterm.connectors.keys import allow, read_key
    from visterm.connectors.sync import young_photos
    from visterm.tagging.fit_request import FitRequest
    from visterm.tagging.tagger import Tagger

    key = read_key(key_file, connector_class(program).key_variable)
    library = open_library(program, url, key, say)
    if check:
        lines, works = try_server(library)
        for line in lines:
            show(line)
        raise typer.Exit(0 if works else NOT_KEPT)
    if out is None:
        raise UserError("Missing catalogue folder: pass -o CATALOGUE (or --check to try the server first).")
    request = FitRequest(
        encoder=encoder, encoder_params=options.settings(encoder_set, "--encoder-set"), model=model, words=words or (),
    )  # fmt: skip
    say(f"{library.check()} at {library.address}")
    allow(library.address, None if key_file is None else os.path.abspath(key_file))
    tagger = None if run is None else Tagger.load(run)
    catalogue, found = make(
        out, library, key_file=key_file, run=tagger, request=request, say=say, progress=Bars()
    )  # fmt: skip
    say_unusable(found.unusable)
    say(f"Indexed {count_of(len(catalogue), 'photo')} of {library.title}. The catalogue is in {out}.")
    if young := catalogue.stored.connected.count_young():
        say(young_photos(library.title, young))
    say(f"Next: visterm sync {out} --dry-run")
    raise typer.Exit(list_skipped(found.skipped))


def say_unusable(unusable: dict[str, int]) -> None:
    """Name tags that no catalogue takes."""
    if unusable:
        some = ", ".join(repr(tag[:40]) for tag in list(unusable)[:3])
        say(f"Left out {count_of(len(unusable), 'tag')} that cannot be one here: {some}")
