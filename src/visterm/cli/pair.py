"""`visterm pair`: label a picture of an object and one of its part together."""

from __future__ import annotations

from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, table

EXAMPLES = (
    "Examples:  visterm pair run car.jpg wheel.jpg   ·   visterm pair run car.jpg detail.jpg --object-tag car --json"
)


def pair(
    run: options.Run,
    object_image: Annotated[str, typer.Argument(metavar="OBJECT", help="A picture of an object.", show_default=False)],
    part_image: Annotated[str, typer.Argument(metavar="PART", help="A picture of a part of it.", show_default=False)],
    object_tag: Annotated[
        str | None, typer.Option("--object-tag", help="What the object is, if that is known.", show_default=False)
    ] = None,
    part_tag: Annotated[
        str | None, typer.Option("--part-tag", help="What the part is, if that is known.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option("-k", min=0, help="Pairs of tags; 0 for all.")] = 5,
    json: options.Json = False,
    jobs: options.Jobs = None,
) -> None:
    """Tag a picture of an object and a picture of its part together: what each shows, and whether tags go together.

    For runs that learned which tags are parts of which: visterm fit --model objects_and_parts --part-of FILE.
    """
    from visterm.tagging.pair_labels import label_pair
    from visterm.tagging.tagger import Tagger

    tagger = Tagger.load(run, n_jobs=jobs)
    found = label_pair(tagger, object_image, part_image, k, object_tag=object_tag, part_tag=part_tag)
    if json:
        for item in found:
            emit(item._asdict())
    else:
        table([[item.object, item.part, f"{item.score:.3f}"] for item in found], ["object", "part", "score"])
