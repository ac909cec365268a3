"""`visterm neighbours`: the tags nearest to a tag in the space that a run learned."""

from __future__ import annotations

from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, table

EXAMPLES = "Example:  visterm neighbours run dolphin -k 5"


def neighbours(
    run: options.Run,
    tag: Annotated[str, typer.Argument(help="A tag of the run.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=0, help="How many; 0 for all.")] = 10,
    json: options.Json = False,
) -> None:
    """Show the tags nearest to a tag, by the cosine of their vectors: synonyms, spellings, what appears together."""
    from visterm.tagging.tagger import Tagger

    near = Tagger.load(run).neighbours(tag, k)
    if json:
        for item in near:
            emit(item._asdict())
    else:
        table([[item.tag, f"{item.score:.3f}"] for item in near], ["tag", "cosine"])
