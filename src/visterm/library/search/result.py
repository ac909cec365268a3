"""What a search found: hits in their order, what each word gave to a hit's score, and groups of related tags."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice
from visterm.core.errors import UserError
from visterm.core.queries import Query
from visterm.core.types import Hit, Matrix
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.data.frames import Framed, first_of, pictures
from visterm.tagging.part_relations import beliefs_of

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

PARTS, SIBLINGS = "parts", "siblings"
EXPANSIONS = (PARTS, SIBLINGS)

_SYNSET = re.compile(r" \[\d{8}\]$")


class _Found(NamedTuple):
    hits: list[Hit]  # With the id of each image in the catalogue
    unknown: list[str]
    n_likely: int | None = None  # Images of the catalogue above the cut-off, shown or not; None without a cut-off
    untrained: Sequence[str] = ()
    """Words that count without a training image, by their vectors; with such the hits have no confidence."""
    n_found: int | None = None  # Images that were listed or ranked in all, shown or not


class Found(Framed, _Found):
    """The images that a search found, best first, and the words that are no tag.

    As a DataFrame (`to_pandas`, `to_polars`) it has a row for each hit, with what is known of any of them as columns.
    """

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each hit."""
        return [hit.as_dict() for hit in self.hits]

    def __repr__(self) -> str:
        unknown = f", unknown={self.unknown}" if self.unknown else ""
        return f"Found({count_of(len(self.hits), 'photo')}: {first_of(self.hits)}{unknown})"

    def _repr_html_(self) -> str:
        """Show the photos in a notebook."""
        sure = ((hit, "" if hit.confidence is None else f"{hit.confidence:.0%}") for hit in self.hits)
        return pictures(((hit.path, hit.image, line) for hit, line in sure), len(self.hits))


class Share(NamedTuple):
    """What one word of a search gave to the score of an image."""

    word: str
    wanted: bool  # False of a word with ``-``
    score: float
    """Weight times score of the word: of all words they sum to Σ weight · score, by which images are ranked unless
    confidences or products are asked for."""
    share: float
    """Of the sum of what all words gave, each without its sign; below 0 where the word spoke against the image."""
    confidence: float | None
    """The chance that the image shows the word, with ``-`` or without; None where nothing is known of it."""


def shares_of(names: Sequence[str], weights: Matrix, scores: Matrix, confidences: Matrix) -> list[Share]:
    """Return what each word gave to the score of one image, the largest share first; all are of shape (n_words,)."""
    given = np.asarray(weights * scores, np.float64)
    total = float(np.abs(given).sum()) or 1.0
    shares = [
        Share(name, bool(weight > 0), part, part / total, None if np.isnan(confidence) else float(confidence))
        for name, weight, part, confidence in zip(names, weights, given.tolist(), confidences, strict=True)
    ]
    return sorted(shares, key=lambda share: -abs(share.share))


class RelatedTag(NamedTuple):
    """A tag that belongs to a word of a search."""

    tag: str
    word: str  # The tag that was searched for
    how: str  # "parts" or "siblings": whether it is a part of the word, or another of its kind
    known: bool  # Whether a relation says so, and not only the model
    score: float | None = None  # How much the model believes it (f_L of the paper); None where the model has none
    parent: str = ""  # Of siblings: what both are a kind of

    @property
    def why(self) -> str:
        """Describe in words why it belongs there."""
        if self.how == SIBLINGS:
            return f"like {self.word} a kind of {_SYNSET.sub('', self.parent)}"
        believed = "known" if self.known else f"the model thinks so, {self.score:.2f}"
        return f"part of {self.word} ({believed})"


class Group(NamedTuple):
    """A related tag with its images, best first."""

    related: RelatedTag
    hits: list[Hit]

    def as_dict(self) -> dict[str, object]:
        """Return the group as it stands in JSON."""
        related = self.related
        extra = {"score": related.score} if related.how == PARTS else {"parent": related.parent}
        return {
            "group": related.tag, "of": related.word, "expand": related.how, "why": related.why, "known": related.known,
            **extra, "images": [hit.as_dict() for hit in self.hits],
        }  # fmt: skip


def related_tags(tagger: Tagger, query: Query, how: str) -> list[RelatedTag]:
    """Find the tags that belong to the words of a search.

    "parts": of any of the words, first those that are known, then those that the model believes in (a score above 0),
    each by how much it does. Of a model without beliefs, the known ones in the order of the tags. "siblings": tags that
    share a parent with a word, those of the parent with the fewest children first, then the more frequent tag.

    Returns each tag once, for the word that it belongs to most; none of the words themselves. Raises UserError if the
    run knows nothing of the kind, or all words have a ``-``.
    """
    check_choice(how, "expand", EXPANSIONS)
    positive_tags = query.weights.indices[query.weights.data > 0]
    others = [*([] if query.outside is None else query.outside.words), *query.not_learned]
    if not len(positive_tags) and others:
        problem = f"Relations are between tags that the run has learned, and these are none: {', '.join(others)}."
        raise UserError(problem, setting="expand", value=how, advice="Leave `expand` out, or add a tag.")
    if not len(positive_tags):
        problem = "All words of the search have a '-', so there is none to expand."
        raise UserError(problem, setting="expand", value=how, advice="Add a word without a '-'.")
    related = _parts(tagger, positive_tags) if how == PARTS else _siblings(tagger, positive_tags)
    first: dict[str, RelatedTag] = {}
    for item in related:
        first.setdefault(item.tag, item)
    return [item for item in first.values() if tagger.vocabulary.index(item.tag) not in positive_tags]


def _parts(tagger: Tagger, wholes: NDArray[np.int32]) -> list[RelatedTag]:
    vocabulary = tagger.vocabulary
    beliefs = beliefs_of(tagger)
    if not len(beliefs.known):
        raise _nothing_known(PARTS, "part-of relations", "part_of")
    if not beliefs.any:
        pairs = [(part, whole) for whole in wholes for part in beliefs.parts_of(whole)]
        return [RelatedTag(vocabulary.tags[part], vocabulary.tags[whole], PARTS, known=True) for part, whole in pairs]
    scored = []
    for whole, scores in zip(wholes, beliefs.scores(wholes.astype(np.int64)), strict=True):
        known = beliefs.parts_of(whole)
        for part in np.union1d(np.flatnonzero(scores > 0), known):
            how = RelatedTag(
                vocabulary.tags[part], vocabulary.tags[whole], PARTS, bool(part in known), float(scores[part])
            )
            scored.append((part not in known, -scores[part], part, how))
    return [related for *_, related in sorted(scored, key=lambda item: item[:3])]


def _siblings(tagger: Tagger, words: NDArray[np.int32]) -> list[RelatedTag]:
    vocabulary = tagger.vocabulary
    children: defaultdict[str, list[int]] = defaultdict(list)
    names: dict[str, str] = {}
    for child, parent in tagger.relations.is_a:
        column = vocabulary.get(child)
        if column is not None:
            names.setdefault(tag_key(parent), parent)
            children[tag_key(parent)].append(column)
    if not children:
        raise _nothing_known(SIBLINGS, "is-a relations", "isa")
    pairs = [
        (len(tags), -int(vocabulary.counts[tag]), tag, names[parent], word)
        for parent, tags in children.items()
        for word in words
        if word in tags
        for tag in tags
    ]
    return [
        RelatedTag(vocabulary.tags[tag], vocabulary.tags[word], SIBLINGS, known=True, parent=parent)
        for *_, tag, parent, word in sorted(pairs)
    ]


def _nothing_known(how: str, relations: str, rule: str) -> UserError:
    advice = f'Fit it with a file of tag rules that has {rule} = "wordnet" or a CSV of relations, and index again.'
    return UserError(f"The run of this catalogue knows no {relations}.", setting="expand", value=how, advice=advice)
