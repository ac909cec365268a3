"""Results of a search: ranked hits, contributions of words to a hit's score, and groups of related tags."""

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
    hits: list[Hit]  # With ids of images in the catalogue
    unknown: list[str]
    n_likely: int | None = None  # Number of images above the cut-off; None without a cut-off
    untrained: Sequence[str] = ()
    """Words without training images, which use their vectors; with such words, hits have no confidences."""
    n_found: int | None = None  # Total number of matching images
    names: Sequence[str] = ()  # Words that are not tags but name the images: files, folders, places, cameras or dates


class Found(Framed, _Found):
    """The images that a search found, best first, and unknown words.

    As a DataFrame (`to_pandas`, `to_polars`) it has one row per hit, with a column for each attribute of any hit.
    """

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per hit."""
        return [hit.as_dict() for hit in self.hits]

    def __repr__(self) -> str:
        unknown = f", unknown={self.unknown}" if self.unknown else ""
        return f"Found({count_of(len(self.hits), 'photo')}: {first_of(self.hits)}{unknown})"

    def _repr_html_(self) -> str:
        """Show the photos in a notebook."""
        captions = ((hit, "" if hit.confidence is None else f"{hit.confidence:.0%}") for hit in self.hits)
        return pictures(((hit.path, hit.image, line) for hit, line in captions), len(self.hits))


class Share(NamedTuple):
    """Contribution of one word of a search to the score of an image."""

    word: str
    wanted: bool  # False for a word with ``-``
    score: float
    """Weight times score of the word. The sum over all words is Σ weight · score, which ranks images if `combine` is
    "sum", or if there are no confidences."""
    share: float
    """`score` divided by the sum of the absolute scores of all words; negative if the word lowers the image's score."""
    confidence: float | None
    """Confidence that the image shows the word, with ``-`` or without; None if unknown."""


def shares_of(names: Sequence[str], weights: Matrix, scores: Matrix, confidences: Matrix) -> list[Share]:
    """Return the contributions of words to the score of one image, largest first; arrays have shape (n_words,)."""
    contributions = np.asarray(weights * scores, np.float64)
    total = float(np.abs(contributions).sum()) or 1.0
    shares = [
        Share(name, bool(weight > 0), part, part / total, None if np.isnan(confidence) else float(confidence))
        for name, weight, part, confidence in zip(names, weights, contributions.tolist(), confidences, strict=True)
    ]
    return sorted(shares, key=lambda share: -abs(share.share))


class RelatedTag(NamedTuple):
    """A tag that is related to a word of a search."""

    tag: str
    word: str  # The word of the search
    how: str  # "parts" (it is a part of the word) or "siblings" (both have the same parent)
    known: bool  # Whether the relation is known, or only predicted by the model
    score: float | None = None  # Score by the model (f_L of the paper); None if the model has no scores
    parent: str = ""  # For siblings: their common parent

    @property
    def why(self) -> str:
        """Describe the relation in words."""
        if self.how == SIBLINGS:
            return f"like {self.word} a kind of {_SYNSET.sub('', self.parent)}"
        source = "known" if self.known else f"the model thinks so, {self.score:.2f}"
        return f"part of {self.word} ({source})"


class Group(NamedTuple):
    """A related tag with its images, best first."""

    related: RelatedTag
    hits: list[Hit]

    def as_dict(self) -> dict[str, object]:
        """Return the group as JSON data."""
        related = self.related
        extra = {"score": related.score} if related.how == PARTS else {"parent": related.parent}
        return {
            "group": related.tag, "of": related.word, "expand": related.how, "why": related.why, "known": related.known,
            **extra, "images": [hit.as_dict() for hit in self.hits],
        }  # fmt: skip


def related_tags(tagger: Tagger, query: Query, how: str) -> list[RelatedTag]:
    """Find the tags that are related to the words of a search.

    "parts": parts of any word, first known parts, then parts predicted by the model (score above 0), by score; if
    the model has no scores, known parts in the order of the tags. "siblings": tags that share a parent with a word,
    ordered by the number of children of the parent, fewest first, then by frequency.

    Returns each tag once, for its best word, without the words of the search. Raises UserError if the run has no such
    relations, or all words have a ``-``.
    """
    check_choice(how, "expand", EXPANSIONS)
    positive_tags = query.weights.indices[query.weights.data > 0]
    if not len(positive_tags):
        problem = "There is no word to expand: it must be a tag that the run has learned, without a '-'."
        raise UserError(problem, setting="expand", value=how, advice="Leave `expand` out, or add such a tag.")
    related = _parts(tagger, positive_tags) if how == PARTS else _siblings(tagger, positive_tags)
    first_of_tag: dict[str, RelatedTag] = {}
    for item in related:
        first_of_tag.setdefault(item.tag, item)
    return [item for item in first_of_tag.values() if tagger.vocabulary.index(item.tag) not in positive_tags]


def _parts(tagger: Tagger, wholes: NDArray[np.int32]) -> list[RelatedTag]:
    vocabulary = tagger.vocabulary
    beliefs = beliefs_of(tagger)
    if not len(beliefs.known):
        raise _no_relations_error(PARTS, "part-of relations", "part_of")
    if not beliefs.has_scores:
        pairs = [(part, whole) for whole in wholes for part in beliefs.parts_of(whole)]
        return [RelatedTag(vocabulary.tags[part], vocabulary.tags[whole], PARTS, known=True) for part, whole in pairs]

    scored = []
    for whole, scores in zip(wholes, beliefs.scores(wholes.astype(np.int64)), strict=True):
        known_parts = beliefs.parts_of(whole)
        for part in np.union1d(np.flatnonzero(scores > 0), known_parts):
            related = RelatedTag(
                vocabulary.tags[part], vocabulary.tags[whole], PARTS, bool(part in known_parts), float(scores[part])
            )
            scored.append((part not in known_parts, -scores[part], part, related))
    return [related for *_, related in sorted(scored, key=lambda item: item[:3])]


def _siblings(tagger: Tagger, words: NDArray[np.int32]) -> list[RelatedTag]:
    vocabulary = tagger.vocabulary
    children: defaultdict[str, list[int]] = defaultdict(list)
    parent_names: dict[str, str] = {}
    for child, parent in tagger.relations.is_a:
        column = vocabulary.get(child)
        if column is not None:
            parent_names.setdefault(tag_key(parent), parent)
            children[tag_key(parent)].append(column)

    if not children:
        raise _no_relations_error(SIBLINGS, "is-a relations", "isa")
    pairs = [
        (len(tags), -int(vocabulary.counts[tag]), tag, parent_names[parent], word)
        for parent, tags in children.items()
        for word in words
        if word in tags
        for tag in tags
    ]
    return [
        RelatedTag(vocabulary.tags[tag], vocabulary.tags[word], SIBLINGS, known=True, parent=parent)
        for *_, tag, parent, word in sorted(pairs)
    ]


def _no_relations_error(how: str, relations: str, rule: str) -> UserError:
    advice = f"Fit a run with a file of tag rules that has the rule {rule}, and index again."
    return UserError(f"The run of this catalogue knows no {relations}.", setting="expand", value=how, advice=advice)
