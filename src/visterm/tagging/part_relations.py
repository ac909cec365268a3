"""Part-of relations of a run as words: those that its model found, those that are known, and those of two pictures."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from visterm.core.errors import UserError
from visterm.data.part_of import PART_OF_FILE
from visterm.data.relations import write_pairs
from visterm.tagging.part_beliefs import beliefs_of, check_believes
from visterm.tagging.relations import WordRelations
from visterm.tagging.run import Run


class ScoredRelation(NamedTuple):
    """A part, its whole, and how much the model believes it (higher is better); None of a model without beliefs."""

    part: str
    whole: str
    score: float | None


def believed_relations(tagger: Run, k: int = 20, more: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the pairs that the model believes in and nobody gave it, best first: those with a score above 0.

    A model that is not ``directed`` scores both directions alike: such a pair is listed once, with the direction that
    known relations make likelier, see `PartBeliefs`. At most `k` are returned, or all with 0. `more` are relations that
    are known, too, beside those of the fit. Raises UserError if the model knows nothing of parts.
    """
    tags = tagger.vocabulary.tags
    return [
        ScoredRelation(tags[pair.part], tags[pair.whole], pair.score) for pair in beliefs_of(tagger, more).unknown(k)
    ]


def known_relations(tagger: Run, k: int = 20, more: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the relations between tags that are known; by what the model makes of them, if it has beliefs, best first.

    Parameters are those of `believed_relations`. Raises UserError if none is known.
    """
    tags, beliefs = tagger.vocabulary.tags, beliefs_of(tagger, more)
    if not len(beliefs.known):
        raise UserError(
            "This run knows no part-of relations. Fit it with the tag rule part_of, or name a file with it here "
            "(--tag-rules)."
        )
    parts, wholes = beliefs.known.T
    if not beliefs.any:
        pairs = list(zip(parts, wholes, strict=True))[: k or None]
        return [ScoredRelation(tags[part], tags[whole], None) for part, whole in pairs]
    rows, row_of = np.unique(wholes, return_inverse=True)
    scores = np.asarray(tagger.model.relation_scores(rows))[row_of, parts]
    best = np.lexsort((parts, wholes, -scores))[: k or None]
    return [ScoredRelation(tags[parts[i]], tags[wholes[i]], float(scores[i])) for i in best]


def write_relations(path: str | os.PathLike[str], relations: list[ScoredRelation]) -> None:
    """Write a CSV of part, whole and score, which `visterm.data.part_of.read_part_of` reads."""
    header = (*PART_OF_FILE.columns, "score")
    rows = [(r.part, r.whole, "" if r.score is None else f"{r.score:.6f}") for r in relations]
    write_pairs(path, header, rows)


class LabelledPair(NamedTuple):
    """What the object is, what its part is, and the score of both together (higher is better)."""

    object: str
    part: str
    score: float


def label_pair(
    tagger: Run,
    object_image: Any,
    part_image: Any,
    k: int = 5,
    *,
    object_tag: str | None = None,
    part_tag: str | None = None,
) -> list[LabelledPair]:
    """Label a picture of an object and one of a part of it together; return at most `k` pairs of tags, best first.

    The images are paths, uint8 arrays (height, width, 3), or names for an encoder of names. 0 means all pairs. Where
    the tag of one of the two is known, only the other is looked for. Only pairs are looked at that can be, as
    `PartBeliefs` says: nothing is part of itself or of its kind. Raises UserError if the model knows nothing of parts,
    or both tags are given; UnknownNameError if a tag is not in the vocabulary; ImageError if an image cannot be read.
    """
    check_believes(tagger.model)
    if object_tag is not None and part_tag is not None:
        raise UserError("Both tags are given, so there is nothing to look for. Leave object_tag or part_tag out.")
    tags = tagger.vocabulary
    known = {name: [tags.index(tag)] for name, tag in (("objects", object_tag), ("parts", part_tag)) if tag is not None}
    X = tagger.encoder.transform([object_image, part_image])
    possible = beliefs_of(tagger).possible()
    found = tagger.model.annotate_pairs(X[:1], X[1:], k, **known, possible=possible)
    return [
        LabelledPair(tags.tags[whole], tags.tags[part], float(score))
        for whole, part, score in zip(found.objects[0], found.parts[0], found.scores[0], strict=True)
        if possible[whole, part]
    ]
