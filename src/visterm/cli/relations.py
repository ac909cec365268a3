"""`visterm relations` and `pair`: part-of pairs of tags that a run believes in or knows, and of two pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.completion import one_tag
from visterm.cli.output import emit, say, table
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm relations run", "predicted relations"),
    ("visterm relations run -k 0 --out found.csv", "all of them, to check and reuse"),
    ("visterm relations run --part-of wordnet", "those that WordNet doesn't have"),
    ("visterm relations run --known", "known relations"),
)
PAIR_EXAMPLES = (
    ("visterm pair run car.jpg wheel.jpg", "tags of both"),
    ("visterm pair run car.jpg detail.jpg --object-tag car", "the first tag is known"),
)


def relations(
    run: options.Run,
    k: Annotated[int, options.relation_option("-k", min=0, help="Pairs to show; 0 for all.", show_default=True)] = 20,
    known: Annotated[
        bool, options.relation_option("--known", help="Show the known relations instead, with the model's scores.")
    ] = False,
    part_of: learning.PartOf = None,
    tag_synsets: learning.TagSynsets = None,
    inherit: learning.Inherit = None,
    out: Annotated[Path | None, options.output_option(help="Write the pairs to a CSV that --part-of takes.")] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Show which tags a run predicts to be parts of which.

    Leaves out known relations: those of the run and of --part-of. The score is the model's own;
    higher is better.
    """
    from visterm.tagging.part_relations import believed_relations, known_relations, write_relations
    from visterm.tagging.relations import RelationSources
    from visterm.tagging.tagger import Tagger

    options.may_replace(out, overwrite)
    sources = RelationSources(part_of, None, tag_synsets, inherit)
    sources.check()
    tagger = Tagger.load(run)
    more = sources.read(tagger.vocabulary)
    list_them = known_relations if known else believed_relations
    found = list_them(tagger, k, more)
    if out is not None:
        write_relations(out, found)
        say(f"{count_of(len(found), 'relation')} written to {out}")
    if json:
        for item in found:
            emit(item._asdict())
    elif out is None and not found:
        say("The model predicts no relation that is not known.")
    elif out is None:
        table(
            [[item.part, item.whole, "-" if item.score is None else f"{item.score:.3f}"] for item in found],
            ["part", "whole", "score"],
        )


def pair(
    run: options.Run,
    object_image: Annotated[str, typer.Argument(metavar="OBJECT", help="A picture of an object.", show_default=False)],
    part_image: Annotated[str, typer.Argument(metavar="PART", help="A picture of a part of it.", show_default=False)],
    object_tag: Annotated[
        str | None, typer.Option(help="The object's tag, if you know it.", show_default=False, autocompletion=one_tag)
    ] = None,
    part_tag: Annotated[
        str | None, typer.Option(help="The part's tag, if you know it.", show_default=False, autocompletion=one_tag)
    ] = None,
    k: Annotated[int, typer.Option("-k", min=0, help="Pairs to show; 0 for all.")] = 5,
    json: options.Json = False,
    jobs: options.Jobs = None,
) -> None:
    """Tag a picture of an object and a picture of its part.

    Needs a run with parts: visterm fit --model objects_and_parts --part-of FILE.
    """
    from visterm.tagging.part_relations import label_pair
    from visterm.tagging.tagger import Tagger

    tagger = Tagger.load(run, n_jobs=jobs)
    found = label_pair(tagger, object_image, part_image, k, object_tag=object_tag, part_tag=part_tag)
    if json:
        for item in found:
            emit(item._asdict())
    else:
        table([[item.object, item.part, f"{item.score:.3f}"] for item in found], ["object", "part", "score"])
