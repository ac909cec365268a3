"""`visterm union`: name several catalogues, to be searched as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say
from visterm.core.wording import count_of

EXAMPLES = (
    "Examples:  visterm union holidays work -o everything && visterm search everything 'snow tree'   ·   "
    "visterm search everything snow --ray HEAD:6379"
)


def union(
    catalogues: Annotated[
        list[Path],
        typer.Argument(help="Catalogues of the same run, in the order of equal results.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the list shall be: a new, small folder.")],
    json: options.Json = False,
) -> None:
    """Name several catalogues, to be searched as one: `visterm search UNION WORDS`.

    Nothing is copied. What is found is what one catalogue of all their photos would find. For more photos than one
    machine holds, or libraries that are kept apart.
    """
    from visterm.core.persist import check_target
    from visterm.library.union import CatalogueUnion

    check_target(out, "union")
    with CatalogueUnion(catalogues) as opened:
        opened.save(out)
        counts = dict(zip(opened.paths, opened.counts(), strict=True))
    n_catalogues = count_of(len(counts), "catalogue")
    say(f"{n_catalogues} with {count_of(sum(counts.values()), 'image')} can be searched as one: {out}")
    if json:
        emit({"union": str(out), "images": sum(counts.values()), "catalogues": counts})
