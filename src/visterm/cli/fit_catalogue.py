"""`visterm fit --catalogue`: learn from what people say of a catalogue's images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from visterm.cli.output import emit, say
from visterm.cli.progress import Bars
from visterm.core.errors import UserError

CatalogueToLearn = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        help="Learn from this catalogue in place of IMAGES: from the tags that its images were given, and those that "
        "people accepted and rejected, without decoding an image. The new run is then its current one.",
        show_default=False,
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        help="With --catalogue: learn all anew, in place of moving the tags of a model that can (wsabie and its kin).",
    ),
]

ALLOWED = {"catalogue", "full", "min_count", "jobs", "json"}
"""Options that go with --catalogue: encoder and model are those of its run."""


def fit_catalogue(
    context: typer.Context, catalogue: Path, *, full: bool, min_count: int, jobs: int | None, json: bool
) -> None:
    """Learn from a catalogue, and say what it changed.

    Raises
    ------
    UserError
        If an option is given that belongs to the fit of a new run.
    """
    given = [name for name in context.params if _is_given(context, name) and name not in ALLOWED]
    if given:
        raise UserError(
            f"{_option(given[0])} is given with --catalogue, which learns with the encoder and the model of the "
            "catalogue's own run. Leave it out; or fit a new run, and index with it: visterm index RUN PHOTOS -o "
            f"{catalogue}"
        )
    from visterm.library.catalogue import Catalogue
    from visterm.library.learn import in_words

    opened = Catalogue.load(catalogue, n_jobs=jobs)
    learned = opened.learn(full=full, min_count=min_count, progress=Bars())
    say(f"{in_words(learned)}. The run {learned.run} is the current one of {catalogue}")
    if json:
        emit({"catalogue": str(catalogue), **asdict(learned)})


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(name: str) -> str:
    return {"out": "-o", "images": "IMAGES", "set_": "--set"}.get(name, f"--{name.replace('_', '-')}")
