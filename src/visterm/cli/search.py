"""`visterm search`: find photos of a catalogue by words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show

EXAMPLES = (
    "Examples:  visterm search catalogue 'snow tree'   ·   visterm search catalogue 'beach -people' -k 20 --json   ·   "
    "visterm search catalogue '\"polar bear\" snow'   ·   visterm search catalogue -k 5 -- '-people sea'"
)


def search(
    catalogue: Annotated[
        Path, typer.Argument(help="A catalogue: the folder that `visterm index` wrote.", show_default=False)
    ],
    words: Annotated[str, typer.Argument(help="Tags to find; -word for what should not be there.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=0, help="Images to show; 0 for all.")] = 10,
    combine: Annotated[
        str,
        typer.Option(
            "--combine",
            help="How words are put together: the sum of their scores, or the product of their probabilities "
            "(models cmrm, mbrm, cmtt, plsa).",
        ),
    ] = "sum",
    json: options.Json = False,
) -> None:
    """Find photos by words, best first."""
    from visterm.app.catalogue import Catalogue

    found = Catalogue.load(catalogue).search(words, k, combine=combine)
    if found.unknown:
        say(f"Not in the vocabulary, left out of the search: {', '.join(found.unknown)}")
    for hit in found.hits:
        if json:
            emit(hit.as_dict())
        else:
            show(f"{hit.score:8.3f}  {hit.image}")
