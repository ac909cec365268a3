"""`visterm mistakes`: tags that are probably wrong, and tags that are probably missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import percent, say, show_all
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visterm.library.catalogue import Catalogue
    from visterm.tagging.mistakes import Mistake

EXAMPLES = (
    ("visterm mistakes catalogue", "list the likeliest mistakes"),
    ("visterm mistakes catalogue -o mistakes.csv", "for a spreadsheet"),
    ("visterm mistakes catalogue -o mistakes.html", "look at them: a page with the photos"),
)


def mistakes(
    catalogue: options.CatalogueFolder,
    k: Annotated[
        int, typer.Option("-k", min=1, help="Mistakes to list, half of them wrong tags, half missing ones.")
    ] = 50,
    out: Annotated[
        Path | None,
        options.output_option(
            "-o", "--out", help="Write the list to this .csv file, or to this .html page with the photo of each."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """List tags that are probably wrong or missing.

    The run's model learns five times, each time from four fifths of the photos, and judges the others. Nothing is
    changed. The catalogue keeps the list for its page, and leaves out what you have answered.
    """
    from visterm.library.catalogue import Catalogue

    if out is not None and out.suffix.lower() not in (".csv", ".html"):
        raise UserError(f"-o is {out}; expected a name that ends in .csv (a table) or .html (a page of photos).")
    options.may_replace(out)
    opened = Catalogue.load(catalogue)
    opened.look_for_mistakes(progress=Bars())
    found = sorted(opened.mistakes(k) or [], key=lambda mistake: -mistake.chance)
    if out is not None and out.suffix.lower() == ".html":
        _write_sheet(out, catalogue, opened, found)
    elif out is not None:
        from visterm.data.relations import write_pairs

        rows = [[m.image, m.tag, m.kind, *(f"{value:.4f}" for value in (m.chance, m.low, m.high))] for m in found]
        write_pairs(out, ("image", "tag", "kind", "chance", "low", "high"), rows)
        say(f"{count_of(len(found), 'probable mistake')} written to {out}")
    if not (json or found):
        say("No mistakes were found.")
    elif json or out is None:
        rows = [
            [
                percent(m.chance),
                f"{percent(m.low)} to {percent(m.high)}",
                m.kind,
                m.tag + (f" (so {', '.join(m.follows)}, too)" if m.follows else ""),
                m.image,
            ]
            for m in found
        ]
        header = ["chance", "95 % interval", "the tag is", "tag", "photo"]
        show_all((mistake.as_dict() for mistake in found), rows, header, json=json)


def _write_sheet(file: Path, folder: Path, catalogue: Catalogue, found: Sequence[Mistake]) -> None:
    """Write a page with the photo of each mistake, the tag and its chance, and the tags that the photo has."""
    from visterm.core.types import Tag
    from visterm.evaluation.html_report import Report, Shown
    from visterm.library.videos import CatalogueVideos

    stored, videos = catalogue.stored, CatalogueVideos(catalogue.stored)
    ids = sorted({mistake.image_id for mistake in found if mistake.image_id is not None})
    tags_of = stored.tags.held(ids)
    named = {
        image.name: (videos.picture_of(image) or image.name, tags_of.get(image.id, []))
        for image in stored.images.get_many(ids)
    }
    report = Report(
        "Probable mistakes",
        f"{count_of(len(found), 'tag')} of {folder.name} probably wrong or missing, likeliest first.",
    )
    cards = []
    for m in found:
        picture, tags = named[m.image]
        note = f"Probably {m.kind}: {percent(m.chance)} ({percent(m.low)} to {percent(m.high)})"
        note += f"; so {', '.join(m.follows)}, too" if m.follows else ""
        cards.append(
            (Shown(picture, name=m.image), note, [Tag(m.tag, m.chance)], {0} if m.kind == "missing" else (), tags)
        )
    report.legend("missing", "wrong")
    report.tagged(cards)
    report.write(file)
    say(f"{count_of(len(found), 'probable mistake')} written to {file}")
