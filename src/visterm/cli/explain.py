"""`visterm explain`: which places of a photo speak for a tag, and which against it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.completion import one_tag
from visterm.cli.output import emit, say, show, table

if TYPE_CHECKING:
    from visterm.tagging.explain import Explanation

EXAMPLES = (
    ("visterm explain run photo.jpg beach -o heat.png", "draw where the tag comes from"),
    ("visterm explain run photo.jpg beach --json", "all shares"),
)

MOST_SHOWN = 5  # Features and places that are listed; JSON has all


def explain(
    run: options.Run,
    image: Annotated[Path, typer.Argument(help="A photo.", show_default=False)],
    tag: Annotated[str, options.argument(help="A tag of the run.", autocompletion=one_tag)],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw the shares over the photo: a .png, .jpg or .webp file.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show which places in a photo a tag comes from.

    Prints how much each feature and each place (in pixels) adds to the tag's score.
    For models whose scores are sums over features (ridge, wsabie, pamir, ...), on visterms or
    networks with average pooling.
    """
    from visterm.tagging.explain import explain as explain_score
    from visterm.tagging.plot import format_of
    from visterm.tagging.tagger import Tagger

    if out is not None:
        format_of(out)  # refuses other endings before any work
        options.may_replace(out)
    found = explain_score(Tagger.load(run), image, tag)
    if out is not None:
        from visterm.data.images import read_image
        from visterm.tagging.heat_map import SIDE, draw_heat, size_of

        size_of(found)  # refuses what has no heat map before the photo is read
        draw_heat(read_image(image, max_side=SIDE), found, out)
        say(f"The shares are drawn in {out}")
    if json:
        emit(found.as_dict())
    else:
        _show(found)


def _show(found: Explanation) -> None:
    show(f"{found.image}: {found.tag}: score {found.score:.3f}, rank {found.rank:,} of {found.n_tags:,} tags")
    show(f"explained by {', '.join(found.explained_by)}")
    if found.no_heat:
        show(f"no heat map: {found.no_heat}")
    of_places = sum(place.share for place in found.places)
    rows = [] if found.no_heat else [[f"all {len(found.places):,} {found.place}s of the picture", f"{of_places:+.4f}"]]
    rows += [[f"without a place: {name}", f"{share:+.4f}"] for name, share in found.elsewhere.items()]
    show("")
    table(rows, ["part of the score", "share"])
    features = [[str(item.feature), f"{item.share:+.4f}", str(item.places)] for item in found.features[:MOST_SHOWN]]
    show("")
    if found.no_heat:
        table([row[:2] for row in features], [found.feature, "share"])
        return
    table(features, [found.feature, "share", f"{found.place}s"])
    show("")
    strongest = sorted(found.places, key=lambda place: -abs(place.share))[:MOST_SHOWN]
    table(
        [
            [*(f"{side:.0f}" for side in (place.left, place.top, place.right, place.bottom)), f"{place.share:+.4f}"]
            for place in strongest
        ],
        ["left", "top", "right", "bottom", f"share of the {found.place}"],
    )
