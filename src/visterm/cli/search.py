"""`visterm search`: find photos of a catalogue by words, by another photo, or by what is known of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visterm.cli import options
from visterm.cli import search_options as which
from visterm.cli.output import emit, likeliest_first, percent, say, show
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.core.types import Hit
    from visterm.library.search_request import Searched, SearchRequest

EXAMPLES = (
    ("visterm search catalogue 'snow tree'", "photos of snow and trees"),
    ("visterm search catalogue 'beach -people' -k 20 --json", "beaches without people, as JSON"),
    ("visterm search catalogue -- '-people sea'", "a query that starts with -word"),
    ("visterm search catalogue snow --tag holiday --from 2024-01 --to 2024-03", "with filters"),
    ("visterm search catalogue --like photos/7.jpg", "similar photos"),
    ("visterm search catalogue --from 2024 -k 0 --sort taken", "all photos since 2024, the newest first"),
)


def search(
    catalogue: Annotated[Path, options.argument(help="A folder written by `visterm index`.")],
    words: which.Words = None,
    k: which.K = 10,
    cutoff: which.Cutoff = False,
    min_confidence: which.MinConfidence = None,
    expand: which.Expand = None,
    like: which.Like = None,
    sort: which.Sort = None,
    tag: which.Tags = None,
    from_: which.From = None,
    to: which.To = None,
    json: options.Json = False,
) -> None:
    """Find photos by words, a similar photo, or filters.

    The percentage is the chance that a photo shows what you look for.
    """
    from visterm.library.search_request import SearchRequest, search_run
    from visterm.store.filters import Filter

    among = Filter(
        tags=tuple(tag or ()),
        taken_from=None if from_ is None else which.date_in(from_, "--from"),
        taken_to=None if to is None else which.date_in(to, "--to"),
    )  # fmt: skip
    request = SearchRequest(
        words=words, like=like, k=k, cutoff=cutoff, min_confidence=min_confidence, expand=expand or (), among=among,
        sort=sort,
    )  # fmt: skip
    searched = search_run(catalogue, request)
    _show(request, searched, json=json)


def _show(request: SearchRequest, searched: Searched, *, json: bool) -> None:
    """Print what was found; say on standard error what is to be known of it, such as unknown values of filters."""
    from visterm.store.sorting import COLUMNS

    found = searched.found
    if found.unknown:
        said = "Unknown tag" if len(found.unknown) == 1 else "Unknown tags"
        say(f"{said}, left out of the search: {', '.join(found.unknown)}")
    if found.untrained:
        say(f"No training images, found by their vectors and without confidence: {', '.join(found.untrained)}")
    listed = request.words is None and request.like is None
    as_found = json or request.sort in COLUMNS
    for hit in found.hits if as_found else likeliest_first(found.hits):
        if listed and json:
            emit({name: value for name, value in hit.as_dict().items() if name != "score"})
        elif json:
            emit(hit.as_dict() | ({"confidence": None, "untrained": list(found.untrained)} if found.untrained else {}))
        else:
            show(_line(hit, scores=request.like is not None))
    for line in searched.unknown_filters:
        say(line)
    if not (found.hits or searched.unknown_filters):  # so that it is not taken for a search that failed
        say("No photo passes these filters." if request.among else "No photo was found.")
    if found.n_likely is not None:
        more = " (-k 0 shows all)" if len(found.hits) < found.n_likely else ""
        say(f"Above the cut-off: {count_of(found.n_likely, 'photo')}{more}")
    for how, groups in searched.related.items():
        if not groups:
            say(f"No {how} of these words are known.")
        for group in groups:
            if json:
                emit(group.as_dict())
                continue
            show("")
            show(f"{group.related.tag}: {group.related.why}")
            for hit in likeliest_first(group.hits):
                show(f"  {_line(hit)}")


def _line(hit: Hit, *, scores: bool = False) -> str:
    """Return a photo with its confidence, if it has one, its score, if that is shown, and whether it was tagged so.

    A photo of another program's library is shown with its address there.
    """
    from visterm.store.frames import moment

    numbers = [] if hit.confidence is None else [f"{percent(hit.confidence):>4}"]
    numbers += [f"{hit.score:6.3f}"] if scores else []
    name = hit.image if hit.at is None else f"{hit.image} at {moment(hit.at)}"
    return "  ".join([*numbers, name, *(["(tagged by hand)"] if hit.source else []), *filter(None, [hit.link])])
