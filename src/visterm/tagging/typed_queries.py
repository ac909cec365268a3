"""From what was typed to weights: of tags, of words that were added, and of any other word that has a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UnknownNameError, UserError, VistermError
from visterm.core.queries import OutsideWords, Query, inverse_frequencies, weigh_words
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.tagging.run import Run


def typed_query(run: Run, words: str | Sequence[str], new_tags: Mapping[str, str] | None = None) -> Query:
    """Return what was typed as weights of unit length together, see `Tagger.query_weights`.

    Raises UnknownNameError if no word is a tag or has a place among them, or only words with ``-`` are and others are
    not: nothing that was searched for would be found. Raises UserError if the words cancel each other out.
    """
    known, outside = run.dictionary, run.words
    new_tags = new_tags or {}
    found, missing = known.parse(words, new_tags, phrases=outside.source is not None and outside.source.reads_phrases)
    n_tags = len(run.vocabulary.tags)
    fresh: dict[str, str] = {}
    for piece in missing:
        fresh.setdefault(tag_key(piece.text), clean_tag(piece.text))
    rows: dict[str, Any] = {}
    if fresh and outside.source is not None:
        placed = zip(fresh, outside.look_up(run.model, list(fresh.values())), strict=True)
        rows = {key: row for key, row in placed if row is not None}
    has_place = set(rows)
    unknown = [word.text for word in missing if tag_key(word.text) not in has_place | new_tags.keys()]
    not_learned: dict[str, int] = {}
    for piece in missing:
        if tag_key(piece.text) in new_tags.keys() - has_place:
            not_learned[piece.text] = not_learned.get(piece.text, 0) + piece.sign
    signs_known = [sign for _, sign in found]
    signs_known += [word.sign for word in missing if tag_key(word.text) in has_place | new_tags.keys()]
    wanted = [word.text for word in missing if word.text in unknown and word.sign > 0]
    if not signs_known or (wanted and max(signs_known) < 0):
        unknown_words = run.vocabulary.unknown_words(wanted or unknown)
        rest = "The words with a '-' only leave photos out, so nothing is searched for." if signs_known else ""
        raise UnknownNameError(" ".join(filter(None, [unknown_words, rest, _advice(run)])))
    tags, names = run.vocabulary.weights_of((column, sign) for column, sign in found if column < n_tags)
    sums: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for column, sign in found:
        if column >= n_tags:
            word = known.tags[column]
            sums[tag_key(word)] += sign
            shown[tag_key(word)] = word
            rows[tag_key(word)] = outside.rows[column - n_tags]
    for piece in missing:
        if (key := tag_key(piece.text)) in has_place:
            sums[key] += piece.sign
            shown[key] = fresh[key]
    counted = [key for key, total in sums.items() if total]
    if tags.nnz == 0 and not counted and not any(not_learned.values()):
        cancelled = ", ".join([*names, *shown.values(), *not_learned])
        raise UserError(f"The words of the search cancel each other out: {cancelled}. Leave one out.")
    not_learned = {tag: total for tag, total in not_learned.items() if total}
    if not counted:
        return Query(weigh_words(tags, run.idf), names, unknown, None, not_learned)
    signs = np.array([sums[key] for key in counted], np.float32)
    n_images = max(run.facts.get("images", 0), int(run.vocabulary.counts.max(initial=1)))
    n_texts = n_images if run.reference is None else run.reference.n_texts
    idf_of_others = float(inverse_frequencies([1], n_texts)[0])  # as a word of one image, or of one text
    weights, others = _weigh_together(tags, run.idf[tags.indices], signs, idf_of_others)
    places = np.array([rows[key] for key in counted], np.float32)
    return Query(weights, names, unknown, OutsideWords([shown[key] for key in counted], others, places), not_learned)


def _weigh_together(
    tags: sp.csr_array, idf: NDArray[np.float32], signs: NDArray[np.float32], idf_of_others: float
) -> tuple[sp.csr_array, NDArray[np.float32]]:
    """Weigh the tags of a query and its other words to unit length."""
    values = np.concatenate([tags.data, signs])[None, :]
    idfs = np.concatenate([idf, np.full(len(signs), idf_of_others, np.float32)])
    places = np.arange(values.size)
    plain = sp.csr_array((values[0], places, np.array([0, values.size])), shape=values.shape)
    weighed = weigh_words(plain, idfs).toarray()[0]
    n = tags.nnz
    weights = sp.csr_array((weighed[:n], tags.indices, tags.indptr), shape=tags.shape)
    weights.eliminate_zeros()
    return weights, weighed[n:]


def _advice(run: Run) -> str:
    """Describe what to do about words without a place, where the model could place them."""
    from visterm.models.abilities import places_words

    if not places_words(run.model):
        try:
            return run.words.why_not(run.model) if run.encoder.reads_texts else ""
        except VistermError:  # the search needs no encoder, so it is not what went wrong
            return ""
    source = run.words.source
    return run.words.why_not(run.model) or (source.why_not() if source is not None else "")
