"""`visterm duplicates`: the photos of a catalogue that look the same, and which of them to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.duplicates import DuplicateGroup

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

    The photo to keep comes first in its group. Shots of a series and screenshots look alike and are no copies:
    their groups come last, and you choose. Hidden photos are in no search; their files stay.
    """
    from visterm.library.duplicates import RULES, find_duplicates
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    found = find_duplicates(stored, progress=Bars())
    if keep is not None:
        how, folder = (keep, "") if keep in RULES else ("folder", keep)
        kept = found.kept_by(how, stored.tags.held(), folder)
        if found.groups and not kept:
            raise UserError(
                f"--keep is {keep!r}; expected largest, oldest, most tags, or a folder that has one of these photos."
            )
        found = found._replace(groups=kept)
    for group in found.groups:
        if json:
            emit(group.as_dict())
        else:
            _show(group)
    for alike in found.alike:
        if json:
            emit(alike.as_dict())
            continue
        for place, image in enumerate(alike.images):
            show(f"{'' if place else alike.kind:11}  {image.name}  {image.width} x {image.height}")
    n_copies = sum(len(group.copies) for group in found.groups)
    n_groups = count_of(len(found.groups), "group")
    copies = f"{n_groups}, {count_of(n_copies, 'photo')} that you need not keep; nothing was deleted."
    say(copies if found.groups else "No photos look the same.")
    if found.alike:
        n_alike = count_of(len(found.alike), "group")
        say(f"{n_alike} of shots of a series or screenshots, which look alike and are no copies.")
    if hide and found.groups:
        from visterm.library.catalogue import Catalogue
        from visterm.library.steps import Choice, keep_one_of_each

        choices = [Choice(group.keeper.id, [copy.image.id for copy in group.copies]) for group in found.groups]
        keep_one_of_each(Catalogue.load(catalogue), choices)
        say(f"{count_of(n_copies, 'photo')} hidden. To see them again: Undo, on the page /duplicates.")
    for item in found.skipped:
        say(f"Not compared: {item.image}: {item.reason}")
    raise typer.Exit(3 if found.skipped else 0)


def _show(group: DuplicateGroup) -> None:
    show(f"keep  {group.keeper.name}  {group.keeper.width} x {group.keeper.height}")
    for copy in group.copies:
        how = "the same bytes" if copy.same_bytes else f"{count_of(copy.distance, 'bit')} apart"
        show(f"      {copy.image.name}  {copy.image.width} x {copy.image.height}  {how}")
