"""`visterm map`: a place in a plane for each photo of a catalogue, for the page's map of the photos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli.output import say
from visterm.cli.progress import Bars
from visterm.core.wording import count_of

EXAMPLES = (("visterm map catalogue", "draw the map, or add new photos to it"),)


def map(
    catalogue: Annotated[Path, typer.Argument(help="A folder written by `visterm index`.", show_default=False)],
) -> None:
    """Draw a map of the photos, alike ones close together.

    The page shows it: visterm serve CATALOGUE, then /map. It needs the extra `map` (umap-learn). Photos that come later
    are placed by their neighbours, so that the map stays as you know it.
    """
    from visterm.library.catalogue import Catalogue
    from visterm.library.photo_map import draw_map

    opened = Catalogue.load(catalogue)
    found = draw_map(opened, progress=Bars())
    if found is None:
        say("The map was cancelled. Start again to go on.")
        raise typer.Exit(1)
    say(f"{count_of(len(found.ids), 'photo')} on the map.")
