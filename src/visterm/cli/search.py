"""`visterm search`: find photos of a catalogue by words, by another photo, or by what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import options
from visterm.cli import search_filters as which
from visterm.cli.output import emit, say, show
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.core.types import Hit
    from visterm.library.catalogue import Catalogue
    from visterm.library.union import CatalogueUnion
    from visterm.store.filters import Filter

EXAMPLES = (
    "Examples:  visterm search catalogue 'snow tree'   ·   visterm search catalogue 'beach -people' -k 20 --json   ·   "
    "visterm search catalogue 'snow tree' -k 0 --cutoff   ·   "
    "visterm search catalogue car --expand parts   ·   "
    "visterm search catalogue '\"polar bear\" snow'   ·   visterm search catalogue -k 5 -- '-people sea'   ·   "
    "visterm search catalogue snow --tag holiday --from 2024-01 --to 2024-03   ·   "
    "visterm search catalogue --like photos/7.jpg   ·   visterm search catalogue --unreviewed -k 0"
)


def search(
    catalogue: Annotated[
        Path,
        typer.Argument(
            help="A catalogue: the folder that `visterm index` wrote; or several, as `visterm union` names them.",
            show_default=False,
        ),
    ],
    words: Annotated[
        str | None,
        typer.Argument(
            help="Tags to find; -word for what should not be there. Any other word, too, of a run fitted with "
            '--word-vectors that have it; "polar bear" in quotes is one. None: list what the filters let pass.',
            show_default=False,
        ),
    ] = None,
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
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="In place of words, find photos that look like this one: a file, or a name in the catalogue.",
            show_default=False,
        ),
    ] = None,
    tag: which.Tags = None,
    without: which.Without = None,
    predicted: which.Predicted = None,
    folder: which.Folder = None,
    from_: which.From = None,
    to: which.To = None,
    min_size: which.MinSize = None,
    max_size: which.MaxSize = None,
    type_: which.Type = None,
    unreviewed: which.Unreviewed = False,
    ray: options.Ray = None,
    json: options.Json = False,
) -> None:
    """Find photos by words, or like another photo, best first; among those that all filters let pass.

    Words that no training image has are named, and in JSON listed as `untrained`; with them there are no confidences.
    """
    among = which.filter_of(
        tag=tag, without=without, predicted=predicted, folder=folder, from_=from_, to=to, min_size=min_size,
        max_size=max_size, type_=type_, unreviewed=unreviewed,
    )  # fmt: skip
    if words is None and like is None and not among:
        raise UserError("Missing argument 'words'. Say what to find: words, --like IMAGE, or a filter such as --tag.")
    limited: dict[str, Any] = {"--combine": combine, "--cutoff": cutoff, "--min-confidence": min_confidence}
    for option, value in {**limited, "--expand": expand, "words": words if like is not None else None}.items():
        if (words is None or like is not None) and value:
            without_words = "--like" if like is not None else "a search without words"
            raise UserError(f"{option} and {without_words} do not go together. Leave one of the two out.")
    with _opened(catalogue, ray) as opened:
        _search(opened, words, k, limited, expand, groups, like, among, json)


@contextmanager
def _opened(path: Path, ray: str | None) -> Iterator[Catalogue | CatalogueUnion]:
    """Open a catalogue, or a union of several; on the machines of an engine where there are several of them."""
    from visterm.core.persist import folder_kind
    from visterm.library.union import UNION, CatalogueUnion

    if folder_kind(path) != UNION:
        from visterm.library.catalogue import Catalogue

        _say_if_here(ray)
        yield Catalogue.load(path)
        return
    with CatalogueUnion.load(path, executor=options.executor_of(ray, None)) as opened:
        _say_if_here(ray if len(opened.paths) == 1 else None)
        yield opened


def _say_if_here(ray: str | None) -> None:
    if ray is not None:
        say("One catalogue is searched here, without an engine.")


def _search(
    opened: Catalogue | CatalogueUnion,
    words: str | None,
    k: int,
    limited: dict[str, Any],
    expand: list[str] | None,
    groups: int,
    like: str | None,
    among: Filter | None,
    json: bool,
) -> None:
    if words is None:
        found = opened.browse(among, k) if like is None else opened.like(like, k, among=among)
        for hit in found.hits:
            if json:
                told = {} if hit.catalogue is None else {"catalogue": hit.catalogue}
                emit(hit.as_dict() if like is not None else {"image": hit.image, "id": hit.id, "path": hit.path} | told)
            else:
                show(f"{hit.score:8.3f}  {_named(hit)}" if like is not None else _named(hit))
        _say_if_none(found.hits, among)
        return
    limits = {name.removeprefix("--").replace("-", "_"): value for name, value in limited.items()} | {"among": among}
    kinds = list(dict.fromkeys(expand or []))
    expanded = {how: opened.expand(words, how, k, n_groups=groups, **limits) for how in kinds}  # errors come first
    found = opened.search(words, k, **limits)
    if found.unknown:
        say(f"Not in the vocabulary, left out of the search: {', '.join(found.unknown)}")
    if found.untrained:
        say(f"No training images, found by their vectors and without confidence: {', '.join(found.untrained)}")
    for hit in found.hits:
        _show_hit(hit, limited=found.n_likely is not None, json=json, untrained=found.untrained)
    _say_if_none(found.hits, among)
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


def _say_if_none(hits: Sequence[Hit], among: Any) -> None:
    """Say that nothing was found, so that it is not taken for a search that failed."""
    if not hits and among:
        say("No image passes these filters.")
    elif not hits:
        say("No image was found.")


def _show_hit(hit: Hit, *, limited: bool, json: bool, untrained: Sequence[str] = ()) -> None:
    if json:
        emit(hit.as_dict() | ({"confidence": None, "untrained": list(untrained)} if untrained else {}))
    else:
        show(f"{hit.confidence:6.1%}  {_named(hit)}" if limited else f"{hit.score:8.3f}  {_named(hit)}")


def _named(hit: Hit) -> str:
    """Return the name of an image, and where there are several catalogues, its own."""
    return hit.image if hit.catalogue is None else f"{hit.image}  ({hit.catalogue})"
