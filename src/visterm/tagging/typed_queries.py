"""From what was typed to weights: of tags, of words that were added, and of any other word that has a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UnknownNameError, UserError, VistermError
from visterm.core.queries import OutsideWords, Query, inverse_frequencies, weigh_words
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.learning.run import Run
from visterm.models.abilities import places_words


def typed_query(run: Run, words: str | Sequence[str], new_tags: Mapping[str, str] | None = None) -> Query:
    """Return what was typed as weights of unit length together, see `Tagger.query_weights`.

    Raises UnknownNameError if no word is a tag or has a place among them, or only words with ``-`` are and others are
    not: nothing that was searched for would be found. Raises UserError if the words cancel each other out.
    """
    dictionary, outside, new_tags = run.dictionary, run.words, new_tags or {}
    reads_phrases = outside.source is not None and outside.source.reads_phrases
    known, missing = dictionary.parse(words, new_tags, phrases=reads_phrases)
    n_tags = len(run.vocabulary.tags)
    texts: dict[str, str] = {}  # By key, as they were typed first
    for word in missing:
        texts.setdefault(tag_key(word.text), clean_tag(word.text))
    rows: dict[str, NDArray[np.float32]] = {}  # Of words outside of the vocabulary that have a place
    if texts and outside.source is not None:
        looked_up = zip(texts, outside.look_up(run.model, list(texts.values())), strict=True)
        rows = {key: row for key, row in looked_up if row is not None}

    signs, not_learned, unknown = [sign for _, sign in known], Counter[str](), []
    placed = [(tag_key(tag := dictionary.tags[column]), tag, sign) for column, sign in known if column >= n_tags]
    rows |= {tag_key(dictionary.tags[column]): outside.rows[column - n_tags] for column, _ in known if column >= n_tags}
    for word in missing:
        key = tag_key(word.text)
        if key in rows:
            placed.append((key, texts[key], word.sign))
        elif key in new_tags:
            not_learned[word.text] += word.sign
        else:
            unknown.append(word)
            continue
        signs.append(word.sign)
    wanted = [word.text for word in unknown if word.sign > 0]
    unknown_words = [word.text for word in unknown]
    if not signs or (wanted and max(signs) < 0):
        message = run.vocabulary.unknown_words(wanted or unknown_words)
        rest = "The words with a '-' only leave photos out, so nothing is searched for." if signs else ""
        problem = f"{message} {rest}".strip()
        raise UnknownNameError(problem, setting="words", value=words, advice=_advice(run))

    tags, names = run.vocabulary.weights_of((column, sign) for column, sign in known if column < n_tags)
    sums, shown = Counter[str](), {key: text for key, text, _ in placed}
    for key, _, sign in placed:
        sums[key] += sign
    counted = [key for key, total in sums.items() if total]
    if tags.nnz == 0 and not counted and not any(not_learned.values()):
        cancelled = ", ".join([*names, *shown.values(), *not_learned])
        raise UserError(
            f"The words of the search cancel each other out: {cancelled}.",
            setting="words", value=words, advice="Leave one out.",
        )  # fmt: skip
    new = {tag: total for tag, total in not_learned.items() if total}
    if not counted:
        return Query(weigh_words(tags, run.idf), names, unknown_words, None, new)
    weights, others = _weigh_together(run, tags, np.array([sums[key] for key in counted], np.float32))
    places = np.array([rows[key] for key in counted], np.float32)
    return Query(weights, names, unknown_words, OutsideWords([shown[key] for key in counted], others, places), new)


def _weigh_together(
    run: Run, tags: sp.csr_array, signs: NDArray[np.float32]
) -> tuple[sp.csr_array, NDArray[np.float32]]:
    """Weigh the tags of a query and its other words, by their signs, to unit length.

    Another word weighs as a tag of one image does, or of one text of the reference corpus.
    """
    n_images = max(run.facts.get("images", 0), int(run.vocabulary.counts.max(initial=1)))
    n_texts = n_images if run.reference is None else run.reference.n_texts
    idf_of_others = float(inverse_frequencies([1], n_texts)[0])
    values = np.concatenate([tags.data, signs])[None, :]
    idfs = np.concatenate([run.idf[tags.indices], np.full(len(signs), idf_of_others, np.float32)])
    plain = sp.csr_array((values[0], np.arange(values.size), np.array([0, values.size])), shape=values.shape)
    weighed = weigh_words(plain, idfs).toarray()[0]
    weights = sp.csr_array((weighed[: tags.nnz], tags.indices, tags.indptr), shape=tags.shape)
    weights.eliminate_zeros()
    return weights, weighed[tags.nnz :]


def _advice(run: Run) -> str:
    if not places_words(run.model):
        try:
            return run.words.why_not(run.model) if run.encoder.reads_texts else ""
        except VistermError:  # the search needs no encoder, so it is not what went wrong
            return ""
    source = run.words.source
    return run.words.why_not(run.model) or (source.why_not() if source is not None else "")
