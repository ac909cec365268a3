"""`visterm relations`: part-of pairs of tags that a run believes in, and those that it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, table
from visterm.cli.relation_options import Inherit, PartOf, TagSynsets, check_relation_options, read_relations
from visterm.core.wording import count_of

EXAMPLES = (
    "Examples:  visterm relations run   ·   visterm relations run -k 0 --out found.csv   ·   "
    "visterm relations run --part-of wordnet   ·   visterm relations run --known"
)


def relations(
    run: options.Run,
    k: Annotated[int, typer.Option("-k", min=0, help="Pairs to show; 0 for all that the model believes in.")] = 20,
    known: Annotated[
        bool,
        typer.Option("--known", help="Show the relations that are known instead, and what the model makes of them."),
    ] = False,
    part_of: PartOf = None,
    tag_synsets: TagSynsets = None,
    inherit: Inherit = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the pairs to a CSV of part,whole,score, which --part-of takes.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show which tags a run believes to be parts of which, best first, beside those that it was told.

    Known relations are those that the run was fitted with and those of --part-of. The score is f_L of the
    objects-and-parts paper: how near two tags are, higher is better. A whole is a tag that is one in some known
    relation too, or that has none. Where two may be either, it is the one that is a whole in the larger share of its
    relations.
    """
    from visterm.tagging.relation_list import believed_relations, known_relations, write_relations
    from visterm.tagging.tagger import Tagger

    check_relation_options(part_of, None, tag_synsets, inherit)
    tagger = Tagger.load(run)
    more = read_relations(tagger.vocabulary, part_of, None, tag_synsets, inherit)
    list_them = known_relations if known else believed_relations
    found = list_them(tagger, k, more)
    if out is not None:
        write_relations(out, found)
        say(f"{count_of(len(found), 'relation')} written to {out}")
    if json:
        for item in found:
            emit(item._asdict())
    elif out is None and not found:
        say("The model believes in no relation that is not known.")
    elif out is None:
        table(
            [[item.part, item.whole, "-" if item.score is None else f"{item.score:.3f}"] for item in found],
            ["part", "whole", "score"],
        )
