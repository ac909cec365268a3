"""`visterm duplicates`: the photos of a catalogue that look the same, and which of them to keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show
from visterm.cli.progress import Bars
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.duplicates import DuplicateGroup

EXAMPLES = (
    ("visterm duplicates catalogue", "list groups of similar photos"),
    ("visterm duplicates catalogue --distance 0", "only rescaled copies"),
    ("visterm duplicates catalogue --keep oldest --hide", "keep one photo of each group"),
)


def duplicates(
    catalogue: Annotated[Path, typer.Argument(help="A folder written by `visterm index`.", show_default=False)],
    distance: Annotated[
        int, typer.Option(min=0, max=12, help="Bits of 64 that may differ: 0 for rescaled copies only.")
    ] = 6,
    keep: Annotated[
        str | None, typer.Option(help="Photo to keep: largest, oldest, most tags or folder.", show_default=False)
    ] = None,
    folder: Annotated[str, typer.Option(help="Folder of --keep folder.", show_default=False)] = "",
    hide: Annotated[bool, typer.Option("--hide", help="Hide the others, and add their tags to the kept one.")] = False,
    files: Annotated[
        Path | None, options.output_option("--files", help="Write the paths of all hidden photos to this file.")
    ] = None,
    json: options.Json = False,
    jobs: options.Jobs = None,
) -> None:
    """Find photos that look the same; nothing is deleted.

    The photo to keep comes first in its group. Shots of a series and screenshots look alike and are no copies:
    their groups come last, and you choose. Hidden photos are in no search; their files stay.
    """
    from visterm.library.duplicates import find_duplicates
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    found = find_duplicates(stored, distance, n_jobs=jobs, progress=Bars())
    if keep is not None:
        found = found._replace(groups=found.kept_by(keep, stored.tags.held(), folder))
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
        keep_one_of_each(Catalogue.load(catalogue, n_jobs=jobs), choices)
        say(f"{count_of(n_copies, 'photo')} hidden. To see them again: Undo, on the page /duplicates.")
    if files is not None:
        from visterm.core.writing import write_whole

        paths = [image.path for image in stored.images.hidden() if image.path is not None]
        write_whole(files, "".join(f"{path}\n" for path in paths).encode("utf-8", "surrogateescape"))
        say(f"{count_of(len(paths), 'path')} written to {files}")
    for item in found.skipped:
        say(f"Not compared: {item.image}: {item.reason}")
    raise typer.Exit(3 if found.skipped else 0)


def _show(group: DuplicateGroup) -> None:
    show(f"keep  {group.keeper.name}  {group.keeper.width} x {group.keeper.height}")
    for copy in group.copies:
        how = "the same bytes" if copy.same_bytes else f"{count_of(copy.distance, 'bit')} apart"
        show(f"      {copy.image.name}  {copy.image.width} x {copy.image.height}  {how}")
