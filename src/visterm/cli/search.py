"""`visterm search`: find photos of a catalogue by words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show
from visterm.core.wording import count_of

EXAMPLES = (
    "Examples:  visterm search catalogue 'snow tree'   ·   visterm search catalogue 'beach -people' -k 20 --json   ·   "
    "visterm search catalogue 'snow tree' -k 0 --cutoff   ·   "
    "visterm search catalogue '\"polar bear\" snow'   ·   visterm search catalogue -k 5 -- '-people sea'"
)


def search(
    catalogue: Annotated[
        Path, typer.Argument(help="A catalogue: the folder that `visterm index` wrote.", show_default=False)
    ],
    words: Annotated[str, typer.Argument(help="Tags to find; -word for what should not be there.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=0, help="Images to show; 0 for all.")] = 10,
    combine: Annotated[
        str | None,
        typer.Option(
            "--combine",
            help="How words are put together: sum of their scores, product of their probabilities (models cmrm, mbrm, "
            "cmtt, plsa), or confidence that an image is meant [default: sum; confidence with -word or a cut-off].",
            show_default=False,
        ),
    ] = None,
    cutoff: Annotated[
        bool, typer.Option("--cutoff", help="Show no images below the rank at which few more are likely to be meant.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            "--min-confidence", help="Show no images that are less likely to be meant, 0 to 1.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Find photos by words, best first."""
    from visterm.app.catalogue import Catalogue

    found = Catalogue.load(catalogue).search(words, k, combine=combine, cutoff=cutoff, min_confidence=min_confidence)
    if found.unknown:
        say(f"Not in the vocabulary, left out of the search: {', '.join(found.unknown)}")
    for hit in found.hits:
        if json:
            emit(hit.as_dict())
        else:
            show(f"{hit.score:8.3f}  {hit.image}" if found.n_likely is None else f"{hit.confidence:6.1%}  {hit.image}")
    if found.n_likely is not None:
        more = " (-k 0 shows all)" if len(found.hits) < found.n_likely else ""
        say(f"Above the cut-off: {count_of(found.n_likely, 'image')}{more}")
