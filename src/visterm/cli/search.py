"""`visterm search`: find photos of a catalogue by words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.core.types import Hit

EXAMPLES = (
    "Examples:  visterm search catalogue 'snow tree'   ·   visterm search catalogue 'beach -people' -k 20 --json   ·   "
    "visterm search catalogue 'snow tree' -k 0 --cutoff   ·   "
    "visterm search catalogue car --expand parts   ·   "
    "visterm search catalogue '\"polar bear\" snow'   ·   visterm search catalogue -k 5 -- '-people sea'"
)


def search(
    catalogue: Annotated[
        Path, typer.Argument(help="A catalogue: the folder that `visterm index` wrote.", show_default=False)
    ],
    words: Annotated[
        str,
        typer.Argument(
            help="Tags to find; -word for what should not be there. Any other word, too, of a run fitted with "
            '--word-vectors that have it; "polar bear" in quotes is one.',
            show_default=False,
        ),
    ],
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
    expand: Annotated[
        list[str] | None,
        typer.Option(
            "--expand",
            help="Then show photos of what belongs to the words, with the reason: parts (the wheels of a car) or "
            "siblings (a bus is a vehicle, too); repeat for both. For runs fitted with --part-of or --isa.",
            show_default=False,
        ),
    ] = None,
    groups: Annotated[int, typer.Option(min=0, help="With --expand: tags to show, of each kind; 0 for all.")] = 5,
    json: options.Json = False,
) -> None:
    """Find photos by words, best first.

    Words that no training image has are named, and in JSON listed as `untrained`; with them there are no confidences.
    """
    from visterm.app.catalogue import Catalogue

    opened = Catalogue.load(catalogue)
    limits: dict[str, Any] = {"combine": combine, "cutoff": cutoff, "min_confidence": min_confidence}
    kinds = list(dict.fromkeys(expand or []))
    expanded = {how: opened.expand(words, how, k, n_groups=groups, **limits) for how in kinds}  # errors come first
    found = opened.search(words, k, **limits)
    if found.unknown:
        say(f"Not in the vocabulary, left out of the search: {', '.join(found.unknown)}")
    if found.untrained:
        say(f"No training images, found by their vectors and without confidence: {', '.join(found.untrained)}")
    for hit in found.hits:
        _show_hit(hit, limited=found.n_likely is not None, json=json, untrained=found.untrained)
    if found.n_likely is not None:
        more = " (-k 0 shows all)" if len(found.hits) < found.n_likely else ""
        say(f"Above the cut-off: {count_of(found.n_likely, 'image')}{more}")
    for how, related in expanded.items():
        if not related:
            say(f"No {how} of these words are known.")
        for group in related:
            if json:
                emit(group.as_dict())
                continue
            show("")
            show(f"{group.related.tag}: {group.related.why}")
            for hit in group.hits:
                _show_hit(hit, limited=found.n_likely is not None, json=False)


def _show_hit(hit: Hit, *, limited: bool, json: bool, untrained: Sequence[str] = ()) -> None:
    if json:
        emit(hit.as_dict() | ({"confidence": None, "untrained": list(untrained)} if untrained else {}))
    else:
        show(f"{hit.confidence:6.1%}  {hit.image}" if limited else f"{hit.score:8.3f}  {hit.image}")
