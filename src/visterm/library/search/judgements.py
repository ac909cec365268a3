"""People's judgements about the words of a search: which photos have a word, and for which photos it was rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.id_sets import NO_IDS, Ids, contains, positions_of, union, without
from visterm.core.queries import Query
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree

if TYPE_CHECKING:
    from visterm.store.catalogue import StoredCatalogue
    from visterm.store.tags import TagJudgements

NO_FLAGS, NO_COUNTS = np.empty(0, np.bool_), np.empty(0, np.int16)


class ManualTags(NamedTuple):
    """People's judgements about photos for the words of a search.

    Words are numbered: tags of the run, then words outside its vocabulary that have a vector, then tags that no run has
    learned yet. All ids are ascending.
    """

    n_searched: int  # Number of words without `-`
    n_unlearned: int  # Number of words without `-` that no run has learned yet
    ids: Ids = NO_IDS  # Photos that people tagged with a word, or for which they rejected a `-word`
    leads: NDArray[np.bool_] = NO_FLAGS
    """Whether each photo is ranked before all unjudged photos: it has all the words, or an unlearned word."""
    n_unlearned_words: NDArray[np.int16] = NO_COUNTS
    """For each photo, the number of unlearned words that people tagged it with."""
    n_given: NDArray[np.int16] = NO_COUNTS
    """For each photo, 0 unless people tagged it with all words; else 1 + the number of words given (not accepted)."""
    left_out: Ids = NO_IDS  # Photos for which people rejected a word, or that they tagged with a `-word`
    certain_photos: Mapping[int, Ids] = MappingProxyType({})
    """Number of a word with scores -> photos that people tagged with it, or for which they rejected a `-word`."""

    def subset(self, mask: NDArray[np.bool_]) -> Self:
        """Return the judgements of the photos in a mask."""
        if mask.all():
            return self
        parts = ("ids", "leads", "n_unlearned_words", "n_given")
        return self._replace(**{name: getattr(self, name)[mask] for name in parts})

    def certain(self, ids: Ids, n_words: int) -> NDArray[np.bool_] | None:
        """Return which words are certain for which photos, shape (n_photos, n_words); None if no word is.

        A word is certain if people tagged the photo with it; a `-word`, if people rejected it for the photo. `ids` are
        ascending.
        """
        if not self.certain_photos:
            return None
        certain = np.zeros((len(ids), n_words), np.bool_)
        for word, photos in self.certain_photos.items():
            if len(ids) < len(photos):
                certain[:, word] = contains(photos, ids)
            else:
                positions = positions_of(photos, ids)
                certain[positions[positions >= 0], word] = True
        return certain


def manual_tags(stored: StoredCatalogue, vocabulary: Vocabulary, query: Query, tree: TagTree | None) -> ManualTags:
    """Look up people's judgements of the words of a search, with one indexed query per tag.

    With a tree, a photo that people tagged with a child also has its parents, and a rejected parent rejects all its
    children, unless a person gave them.
    """
    tags, weights = query.weights.indices, query.weights.data
    words = [(vocabulary.tags[tag], weight) for tag, weight in zip(tags, weights, strict=True)]
    if query.outside is not None:
        words += zip(query.outside.words, query.outside.weights, strict=True)
    n_scored = len(words)
    words += query.not_learned.items()
    positive = [bool(weight > 0) for _, weight in words]
    looked_up = []  # For each word its judgements and, with a tree, those of the tag alone and of broader tags
    for tag, _ in words:
        children, parents = ([], []) if tree is None else (tree.below(tag), [tag, *tree.above(tag)])
        groups = [(tag, *children), *((parent,) for parent in parents)]
        keys = [[tag_key(name) for word in group for name in vocabulary.spellings(word)] for group in groups]
        looked_up.append(list(map(stored.judgements.of_tag, keys)))

    sources = [*chain.from_iterable(looked_up)]
    if not any(map(len, chain.from_iterable(sources))):
        return ManualTags(sum(positive), sum(positive[n_scored:]))

    def merge() -> ManualTags:
        judgements = [judgement for judgement, *_ in looked_up]
        for number, (judgement, *alone) in enumerate(looked_up if tree is not None else ()):
            rejected = union(*(parent.rejected for parent in alone))
            judgements[number] = judgement._replace(rejected=without(rejected, judgement.tagged))
        return _merged_judgements(positive, judgements, n_scored)

    return stored.judgements.derived((n_scored, *words), sources, merge)


def _merged_judgements(positive: Sequence[bool], judgements: Sequence[TagJudgements], n_scored: int) -> ManualTags:
    """Merge the judgements of words; `positive` words have no `-`, and the first `n_scored` words have scores."""
    pairs = list(zip(positive, judgements, strict=True))
    matching_photos = [tag.tagged if is_positive else tag.rejected for is_positive, tag in pairs]
    left_out = union(*(tag.rejected if is_positive else tag.tagged for is_positive, tag in pairs))
    certain = {word: photos for word, photos in enumerate(matching_photos[:n_scored]) if len(photos)}
    unlearned = {word: matching_photos[word] for word in range(n_scored, len(judgements)) if positive[word]}
    parts = certain | {word: photos for word, photos in unlearned.items() if len(photos)}
    ids = without(union(*parts.values()), left_out)
    has_word = np.zeros((len(judgements), len(ids)), np.bool_)
    for word, photos in parts.items():
        has_word[word] = contains(photos, ids)

    n_searched, n_given = sum(positive), np.zeros(len(ids), np.int16)
    full_matches = has_word[positive].all(axis=0) if n_searched else np.zeros(len(ids), np.bool_)
    n_given[full_matches] = 1
    for tag in compress(judgements, positive) if full_matches.any() else ():
        n_given[full_matches] += contains(tag.given, ids[full_matches])
    n_unlearned_words, n_unlearned = has_word[n_scored:].sum(axis=0, dtype=np.int16), sum(positive[n_scored:])
    leads = (n_unlearned_words > 0) | full_matches
    return ManualTags(n_searched, n_unlearned, ids, leads, n_unlearned_words, n_given, left_out, certain)
