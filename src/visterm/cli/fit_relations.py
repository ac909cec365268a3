"""What `visterm fit` does with relations among tags, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.cli.output import say
from visterm.cli.relation_options import read_relations
from visterm.core.tables import MODELS

if TYPE_CHECKING:
    from visterm.data.corpus import Corpus
    from visterm.tagging.relations import WordRelations
    from visterm.tagging.tagger import Tagger


def relations_to_learn(
    tagger: Tagger,
    corpus: Corpus,
    part_of: str | None,
    isa: str | None,
    tag_synsets: Path | None,
    inherit: int | None,
    aliases: Mapping[str, str] | None = None,
) -> WordRelations | None:
    """Read the relations among the tags to learn, and say how many there are and what the model makes of them."""
    from visterm.tagging.parts import takes_part_of
    from visterm.tagging.relations import tags_to_learn

    model = MODELS.name_of(tagger.model)
    if part_of is None and tagger.model.get_params(deep=False).get("part_of", ()) is None:
        say(
            f"The model '{model}' is given no relations (--part-of FILE): it learns nothing of parts, and what images "
            "show as wsabie does."
        )
    if part_of is None and isa is None:
        return None
    learns = part_of is not None and takes_part_of(tagger.model)
    vocabulary = tags_to_learn(corpus, tagger.min_count, aliases)
    found = read_relations(vocabulary, part_of, isa, tag_synsets, inherit)
    if found is not None:
        say(f"Relations: {found.summary(vocabulary)}")
    if part_of is not None and not learns:
        say(f"The model '{model}' learns nothing from part-of relations; they are kept for visterm search --expand.")
    return found


def tell_where_senses_are(relations: WordRelations | None, out: Path) -> None:
    """Say which file of the run lists how tags were matched with WordNet, if they were."""
    from visterm.tagging.relations import SENSES

    if relations is not None and relations.senses is not None:
        say(f"How tags were matched is in {out / SENSES}; correct it and give it as --tag-synsets.")
