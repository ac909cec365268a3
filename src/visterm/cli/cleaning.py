"""`visterm duplicates` and `visterm mistakes`: find photos that look the same, and tags that are wrong or missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, emit, percent, say, show, show_all
from visterm.core.errors import UserError
from visterm.core.types import Tag
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.data import relations
    from visterm.evaluation import html_report
    from visterm.library import duplicates as duplicate_photos
    from visterm.library import mistakes as stored_mistakes
    from visterm.library import records, steps
    from visterm.store import catalogue as stored_catalogues
    from visterm.tagging.mistakes import KINDS, LIKELY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visterm.tagging.mistakes import Mistake


EXAMPLES = (
    ("visterm duplicates catalogue", "list groups of similar photos"),
    ("visterm duplicates catalogue --keep photos/edited", "keep those of a folder"),
    ("visterm duplicates catalogue --keep oldest --hide", "keep one photo of each group"),
)


def duplicates(
    catalogue: options.CatalogueFolder,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Photo to keep: largest, oldest or most tags, or a folder, whose photos are kept.", show_default=False
        ),
    ] = None,
    hide: Annotated[bool, typer.Option("--hide", help="Hide the others, and add their tags to the kept one.")] = False,
    json: options.Json = False,
) -> None:
    """Find photos that look the same; nothing is deleted.

    The photo to keep comes first in its group. Shots of a series and screenshots look similar but are not copies:
    their groups come last, and you choose. Searches don't find hidden photos; their files stay.
    """
    stored = stored_catalogues.StoredCatalogue.open(catalogue)
    results = duplicate_photos.find_duplicates(stored, progress=Bars())
    if keep is not None:
        rule, folder = (keep, "") if keep in duplicate_photos.KEEPER_RULES else ("folder", keep)
        kept_groups = results.kept_by(rule, stored.tags.held(), folder)
        if results.groups and not kept_groups:
            raise UserError(
                f"--keep is {keep!r}; expected largest, oldest, most tags, or a folder that has one of these photos."
            )
        results = results._replace(groups=kept_groups)

    for group in results.groups:
        if json:
            emit(group.as_dict())
            continue
        show(f"keep  {group.keeper.name}  {group.keeper.width} x {group.keeper.height}")
        for copy in group.copies:
            difference = "the same bytes" if copy.same_bytes else f"{count_of(copy.distance, 'bit')} apart"
            show(f"      {copy.image.name}  {copy.image.width} x {copy.image.height}  {difference}")

    for similar in results.alike:
        if json:
            emit(similar.as_dict())
            continue
        for number, image in enumerate(similar.images):
            show(f"{'' if number else similar.kind:11}  {image.name}  {image.width} x {image.height}")

    n_copies = sum(len(group.copies) for group in results.groups)
    n_groups = count_of(len(results.groups), "group")
    summary = f"{n_groups}, {count_of(n_copies, 'photo')} that you need not keep; nothing was deleted."
    say(summary if results.groups else "No photos look the same.")
    if results.alike:
        n_similar = count_of(len(results.alike), "group")
        say(f"{n_similar} of shots of a series or screenshots, which look similar but are not copies.")
    if hide and results.groups:
        choices = [steps.Choice(group.keeper.id, [copy.image.id for copy in group.copies]) for group in results.groups]
        steps.keep_one_of_each(visterm.Catalogue.load(catalogue), choices)
        say(f"{count_of(n_copies, 'photo')} hidden. To see them again: Undo, on the page /duplicates.")

    for item in results.skipped:
        say(f"Not compared: {item.image}: {item.reason}")
    raise typer.Exit(3 if results.skipped else 0)


MISTAKES_EXAMPLES = (
    ("visterm mistakes catalogue", "list the likeliest mistakes"),
    ("visterm mistakes catalogue -o mistakes.csv", "for a spreadsheet"),
    ("visterm mistakes catalogue -o mistakes.html", "look at them: a page with the photos"),
)


def mistakes(
    catalogue: options.CatalogueFolder,
    k: Annotated[
        int, typer.Option("-k", min=1, help="Mistakes to list, half of them missing tags, half wrong ones.")
    ] = 50,
    out: Annotated[
        Path | None,
        options.out_option(help="Write the list to this .csv file, or to this .html page with the photo of each."),
    ] = None,
    json: options.Json = False,
) -> None:
    """List tags that are probably missing or wrong.

    The run's model learns five times, each time from four fifths of the photos, and judges the others. Nothing is
    changed. Missing tags come first. Tags on two or three photos have no chance, only a note that the photo
    is unusual. The catalogue keeps the list for its page, and leaves out what you have answered.
    """
    if out is not None and out.suffix.lower() not in (".csv", ".html"):
        raise UserError(f"-o is {out}; expected a name that ends in .csv (a table) or .html (a page of photos).")
    options.may_replace(out)
    opened = visterm.Catalogue.load(catalogue)
    opened.look_for_mistakes(progress=Bars())
    missing, wrong = (opened.mistakes(k, kind=kind) or [] for kind in KINDS)
    n_missing = min(len(missing), max((k + 1) // 2, k - len(wrong)))
    listed_mistakes = [*missing[:n_missing], *wrong[: k - n_missing]]
    if out is not None and out.suffix.lower() == ".html":
        _write_sheet(out, catalogue, opened, listed_mistakes)
    elif out is not None:
        rows = [
            [m.image, m.tag, m.kind, *("" if v is None else f"{v:.4f}" for v in (m.chance, m.low, m.high)), m.reason]
            for m in listed_mistakes
        ]
        relations.write_pairs(out, ("image", "tag", "kind", "chance", "low", "high", "reason"), rows)
        say(f"{count_of(len(listed_mistakes), 'probable mistake')} written to {out}")

    rows = []
    for m in listed_mistakes:
        implied = f" (so {', '.join(m.follows)}, too)" if m.follows else ""
        rows.append([*_chance_in_words(m), m.kind, m.tag + implied, m.image])

    header = ["chance", "95 % interval", "the tag is", "tag", "photo"]
    objects = (mistake.as_dict() for mistake in listed_mistakes)
    empty_note = stored_mistakes.why_no_mistakes(opened.stored) or "No tag stands out as missing or wrong."
    show_all(objects, rows, header, json=json, out=out, empty_note=empty_note)


def _chance_in_words(mistake: Mistake) -> tuple[str, str]:
    """Return the chance of a mistake and its interval; for a tag of two or three photos the reason instead."""
    if mistake.chance is None or mistake.low is None or mistake.high is None:
        return mistake.reason, ""
    return percent(mistake.chance), f"{percent(mistake.low)} to {percent(mistake.high)}"


def _write_sheet(file: Path, folder: Path, catalogue: visterm.Catalogue, mistakes: Sequence[Mistake]) -> None:
    """Write an HTML page that shows each mistake: the photo, the tag with its probability, and the photo's tags."""
    stored, videos = catalogue.stored, records.CatalogueVideos(catalogue.stored)
    ids = sorted({mistake.image_id for mistake in mistakes if mistake.image_id is not None})
    tags_of = stored.tags.held(ids)
    photo_of = {
        image.name: (videos.picture_of(image) or image.name, tags_of.get(image.id, []))
        for image in stored.images.get_many(ids)
    }
    subtitle = f"{count_of(len(mistakes), 'tag')} of {folder.name} to look at, missing ones first, the likeliest first."
    report = html_report.Report("Probable mistakes", subtitle)
    cards = []
    for m in mistakes:
        picture, tags = photo_of[m.image]
        chance, interval = _chance_in_words(m)
        note = f"{'Probably' if (m.chance or 0) >= LIKELY else 'Perhaps'} {m.kind}: {chance}"
        note += f" ({interval})" if interval else ""
        note += f"; so {', '.join(m.follows)}, too" if m.follows else ""
        cards.append(
            (
                html_report.Shown(picture, name=m.image),
                note,
                [Tag(m.tag, m.chance or 0.0)],
                {0} if m.kind == "missing" else (),
                tags,
            )
        )

    report.legend("missing", "wrong")
    report.tagged(cards)
    report.write(file)
    say(f"{count_of(len(mistakes), 'probable mistake')} written to {file}")
