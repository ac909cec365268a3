"""`visterm search`: find photos of a catalogue by words, by a similar photo, or by filters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import emit, percent, say, show
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.library.search import request as requests
    from visterm.store import filters
    from visterm.store import images as stored_images

if TYPE_CHECKING:
    from visterm.core.types import Hit
    from visterm.library.search.request import SearchOutcome

EXAMPLES = (
    ("visterm search catalogue 'snow tree'", "photos of snow and trees"),
    ("visterm search catalogue 'beach -people' -k 20 --json", "beaches without people, as JSON"),
    ("visterm search catalogue -- '-people sea'", "a query that starts with -word"),
    ("visterm search catalogue 'snow july 2024'", "snow in July 2024; also folders, places, cameras"),
    ("visterm search catalogue snow --tag holiday --from 2024-01 --to 2024-03", "with filters"),
    ("visterm search catalogue --like photos/7.jpg", "similar photos"),
    ("visterm search catalogue --from 2024 -k 0 --sort taken", "all photos since 2024, the newest first"),
)
search_option = partial(typer.Option, rich_help_panel="Search", show_default=False)
filter_option = partial(typer.Option, rich_help_panel="Which photos", show_default=False)


def search(
    catalogue: options.CatalogueFolder,
    words: Annotated[
        str | None,
        options.argument(
            help="Tags to find, or names of files, folders, places, cameras, years or months, in quotes; "
            '-word means "not"; "polar bear" in double quotes is one tag [default: list all photos that pass the '
            "filters]."
        ),
    ] = None,
    k: Annotated[int, search_option("-k", min=0, help="Photos to show; 0 for all.", show_default=True)] = 10,
    cutoff: Annotated[bool, search_option("--cutoff", help="Stop where few more photos are likely to match.")] = False,
    min_confidence: Annotated[
        float | None, search_option("--min-confidence", help="Show photos with at least this confidence (0-1).")
    ] = None,
    expand: Annotated[
        list[str] | None,
        search_option(
            help="Also show photos of related tags: parts (the wheels of a car) or siblings (a bus, like a car, is a "
            "vehicle). Repeat for both."
        ),
    ] = None,
    like: Annotated[
        str | None, search_option(help="Find photos similar to this one, a file or a name in the catalogue.")
    ] = None,
    sort: Annotated[
        str | None, search_option(help="Order: chance (also unlikely photos), taken, oldest, name, added.")
    ] = None,
    tag: Annotated[list[str] | None, filter_option(help="With this tag, given or accepted. Repeat for more.")] = None,
    from_: Annotated[
        str | None, filter_option("--from", help="Taken on this date or later: 2024, 2024-05 or 2024-05-31.")
    ] = None,
    to: Annotated[str | None, filter_option(help="Taken on this date or earlier.")] = None,
    json: options.Json = False,
) -> None:
    """Find photos by words, a similar photo, or filters.

    The percentage is the chance that a photo shows what you look for.
    """
    among = filters.Filter(tags=tuple(tag or ()), taken_from=from_ and from_.strip(), taken_to=to and to.strip())
    request = requests.SearchRequest(
        words=words, like=like, k=k, cutoff=cutoff, min_confidence=min_confidence, expand=expand or (), among=among,
        sort=sort,
    )  # fmt: skip
    answer = requests.search_run(catalogue, request)
    result = answer.found
    if result.unknown:
        plural = "s" if len(result.unknown) > 1 else ""
        say(f"Unknown tag{plural}, left out of the search: {', '.join(result.unknown)}")
    if result.names:
        say(f"Found in names, folders, places, dates or cameras: {', '.join(result.names)}")
    if result.untrained:
        say(f"No training images, found by their vectors and without confidence: {', '.join(result.untrained)}")

    if words is not None and len(words.split()) > 1 and not answer.has_confidences:
        say("The run has no confidences, so photos are ranked by the sum of scores.")

    if json:
        _emit_hits(request, answer)
    else:
        _show_hits(result.hits, scores=request.like is not None)

    for line in answer.unknown_filters:
        say(line)
    if not (result.hits or answer.unknown_filters):  # an empty output could look like a failed search
        say("No photo passes these filters." if request.among else "No photo was found.")
    if result.n_likely is not None:
        hint = " (-k 0 shows all)" if len(result.hits) < result.n_likely else ""
        say(f"Above the cut-off: {count_of(result.n_likely, 'photo')}{hint}")

    for relation, groups in answer.related.items():
        if not groups:
            say(f"No {relation} of these words are known.")
        for group in groups:
            if json:
                emit(group.as_dict())
                continue
            show("")
            show(f"{group.related.tag}: {group.related.why}")
            _show_hits(group.hits, indent="  ")


def _emit_hits(request: requests.SearchRequest, answer: SearchOutcome) -> None:
    """Print hits as JSON: without scores in a list of all photos; with the untrained words of the search, if any."""
    untrained = list(answer.found.untrained)
    is_listing = request.words is None and request.like is None
    for hit in answer.found.hits:
        values = {name: value for name, value in hit.as_dict().items() if not is_listing or name != "score"}
        emit(values | {"confidence": None, "untrained": untrained} if untrained and not is_listing else values)


def _show_hits(hits: Sequence[Hit], *, scores: bool = False, indent: str = "") -> None:
    """Print one line per photo, with its link if it is in another program's library."""
    for hit in hits:
        numbers = [] if hit.confidence is None else [f"{percent(hit.confidence):>4}"]
        numbers += [f"{hit.score:6.3f}"] if scores else []
        name = hit.image if hit.at is None else f"{hit.image} at {stored_images.moment(hit.at)}"
        source_note = ["(tagged by hand)"] if hit.source else []
        show(indent + "  ".join([*numbers, name, *source_note, *filter(None, [hit.link])]))
