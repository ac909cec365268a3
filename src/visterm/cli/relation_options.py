"""Options that say where part-of and is-a relations are read from, and the reading of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.core.errors import UserError

if TYPE_CHECKING:
    from visterm.core.vocabulary import Vocabulary
    from visterm.tagging.relations import WordRelations

INHERIT = 1
"""Steps of is-a over which wholes inherit parts, unless another number is given."""

PartOf = Annotated[
    str | None,
    typer.Option(
        "--part-of",
        help="Which tags are parts of which: a CSV of part,whole; WordNet's folder; or 'wordnet' where that is at a "
        "usual place (Debian: /usr/share/wordnet).",
        show_default=False,
        metavar="SOURCE",
    ),
]
WordNetSource = Annotated[
    str | None,
    typer.Option(
        "--wordnet",
        help="WordNet's folder, or 'wordnet' where that is at a usual place: short for --part-of and --isa of it.",
        show_default=False,
        metavar="FOLDER",
    ),
]
TagSynsets = Annotated[
    Path | None,
    typer.Option(
        "--tag-synsets",
        help="With WordNet: a CSV of tag,synset that says which meaning tags have [default: their most frequent].",
        show_default=False,
        metavar="FILE",
    ),
]
Inherit = Annotated[
    int | None,
    typer.Option(
        "--inherit",
        min=0,
        help="With --part-of of WordNet: over how many steps of 'is a kind of' wholes inherit parts, 0 for none "
        f"[default: {INHERIT}].",
        show_default=False,
    ),
]


def with_wordnet(wordnet: str | None, part_of: str | None, isa: str | None) -> tuple[str | None, str | None]:
    """Return the sources of part-of and of is-a relations, each WordNet where it is given and they are not."""
    from visterm.tagging.relations import is_wordnet

    if wordnet is not None and not is_wordnet(wordnet):
        raise UserError(
            f"--wordnet {wordnet} is no folder; expected that of WordNet's files, or 'wordnet' for the usual places. A "
            "CSV of relations is given by --part-of or --isa."
        )
    return part_of or wordnet, isa or wordnet


def check_relation_options(part_of: str | None, isa: str | None, tag_synsets: Path | None, inherit: int | None) -> None:
    """Refuse sources that are not there, and options without a meaning, before any long work."""
    from visterm.data.tag_senses import read_mapping
    from visterm.tagging.relations import check_source, is_wordnet

    check_source(part_of, "--part-of")
    check_source(isa, "--isa")
    if tag_synsets is not None and not (is_wordnet(part_of) or is_wordnet(isa)):
        raise UserError(
            "--tag-synsets says what tags mean in WordNet, and no relations come from there. Add --part-of wordnet, or "
            "leave it out."
        )
    if inherit is not None and not is_wordnet(part_of):
        raise UserError(
            "--inherit is for parts that WordNet knows, and --part-of is "
            f"{'not given' if part_of is None else f'the file {part_of}, which says all parts itself'}. Leave it out."
        )
    if tag_synsets is not None:
        read_mapping(tag_synsets)  # refuses what is no such file


def read_relations(
    vocabulary: Vocabulary, part_of: str | None, isa: str | None, tag_synsets: Path | None, inherit: int | None
) -> WordRelations | None:
    """Read what the options name; None where they name nothing."""
    from visterm.tagging.relations import WordRelations

    if part_of is None and isa is None:
        return None
    return WordRelations.read(
        vocabulary,
        part_of=part_of,
        is_a=isa,
        mapping=tag_synsets,
        inherit=INHERIT if inherit is None else inherit,
    )
