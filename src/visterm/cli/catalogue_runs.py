"""`visterm fit --catalogue` and `visterm use`: learn a catalogue's run anew, or search it with another of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say
from visterm.cli.progress import Bars
from visterm.core.errors import UserError

USE_EXAMPLES = (("visterm use catalogue 1f6a03", "go back to the run whose name begins so"),)
WITH_A_CATALOGUE = {"catalogue", "full", "use_even_if_worse", "min_count", "jobs", "verbose", "json"}
"""Options that go with --catalogue: encoder and model are those of its run."""


def fit_catalogue(context: typer.Context, catalogue: Path) -> None:
    """Learn from a catalogue, and say what it changed; refuse options of the fit of a new run."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in WITH_A_CATALOGUE}
    if given := [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]:
        name = {"out": "-o", "images": "IMAGES", "set_": "--set"}.get(given[0], "--" + given[0].replace("_", "-"))
        raise UserError(f"{name} does not go with --catalogue, which keeps its own runs. Leave {name} out.")
    from visterm.library.catalogue import Catalogue
    from visterm.library.learn import in_words

    typed, bars = context.params, Bars(lines=context.params["verbose"])
    opened = Catalogue.load(catalogue, n_jobs=typed["jobs"])
    learned = opened.learn(
        full=typed["full"], min_count=typed["min_count"], use_even_if_worse=typed["use_even_if_worse"], progress=bars
    )
    say(in_words(learned, catalogue))
    if typed["json"]:
        emit({"catalogue": str(catalogue), **learned.as_dict()})


def use(
    catalogue: Annotated[Path, options.argument(help="A catalogue.")],
    run: Annotated[str, options.argument(help="One of its runs, by the first letters of its name in `visterm info`.")],
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Search a catalogue with another of its runs.

    That is the one before, or one that was learned and not used because it was worse.
    """
    from visterm.library.catalogue import Catalogue
    from visterm.store.runs import SHORT

    opened = Catalogue.load(catalogue, n_jobs=jobs, run=run)
    before = opened.stored.origin.fingerprint
    opened.use(opened.tagger, progress=Bars())
    now = opened.tagger.fingerprint
    say(f"{catalogue} uses the run {now[:SHORT]}. To go back: visterm use {catalogue} {before[:SHORT]}")
    if json:
        emit({"catalogue": str(catalogue), "run": now, "run_before": before})
