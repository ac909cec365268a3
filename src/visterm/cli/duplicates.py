"""`visterm duplicates`: the pictures of a catalogue that look the same, and which of them to keep."""

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
    ("visterm duplicates catalogue", "list groups of similar pictures"),
    ("visterm duplicates catalogue --distance 0", "only rescaled copies"),
)


def duplicates(
    catalogue: Annotated[Path, typer.Argument(help="A folder written by `visterm index`.", show_default=False)],
    distance: Annotated[
        int,
        typer.Option(
            min=0,
            max=12,
            help="How much pictures may differ, in bits of 64: 0 for rescaled copies, 10 for shots of a series.",
        ),
    ] = 6,
    json: options.Json = False,
    jobs: options.Jobs = None,
) -> None:
    """Group pictures that look the same, the one to keep first. visterm never deletes a picture."""
    from visterm.library.duplicates import find_duplicates
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    groups, skipped = find_duplicates(stored, distance, n_jobs=jobs, progress=Bars())
    for group in groups:
        if json:
            emit(group.as_dict())
        else:
            _show(group)
    n_copies = sum(len(group.copies) for group in groups)
    found = f"{count_of(len(groups), 'group')}, {n_copies:,} pictures that you need not keep; nothing was deleted."
    say(found if groups else "No pictures look the same.")
    for item in skipped:
        say(f"Not compared: {item.image}: {item.reason}")
    raise typer.Exit(3 if skipped else 0)


def _show(group: DuplicateGroup) -> None:
    show(f"keep  {group.keeper.name}  {group.keeper.width} x {group.keeper.height}")
    for copy in group.copies:
        how = "the same bytes" if copy.same_bytes else f"{count_of(copy.distance, 'bit')} apart"
        show(f"      {copy.image.name}  {copy.image.width} x {copy.image.height}  {how}")
