"""Convert a typed query to weights of the run's tags, of added words, and of other words with a vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UnknownNameError, UserError, VistermError
from visterm.core.queries import OutsideWords, Query, inverse_frequencies, weigh_words
from visterm.core.types import Floats
from visterm.core.vocabulary import STOP_WORDS, Word, clean_tag, tag_key
from visterm.learning.run import Run
from visterm.learning.word_places import ENCODER
from visterm.models.abilities import places_words


def typed_query(
    run: Run, words: str | Sequence[str], new_tags: Mapping[str, str] | None, names: Mapping[str, str] | None = None
) -> Query:
    """Return a typed query as weights, together of unit length; see `Tagger.query_weights`.

    `new_tags` and `names` map keys to spellings, of tags that no run has learned yet and of names of photos. Stop words
    that are neither are ignored. Raises UnknownNameError if no word is known, or all known words have a ``-``: nothing
    would be searched for. Raises UserError if the words cancel each other out.
    """
    outside, new_tags = run.words, new_tags or {}
    parsed, other_words, name_signs = _parse(run, words, new_tags, names or {})
    n_tags = len(run.vocabulary.tags)
    texts = {tag_key(word.text): clean_tag(word.text) for word in reversed(other_words)}  # Key -> as first typed
    rows: dict[str, Floats] = {}  # Key of a word outside the vocabulary -> its row
    if texts and outside.source is not None:
        looked_up = zip(texts, outside.look_up(run.model, list(texts.values())), strict=True)
        rows = {key: row for key, row in looked_up if row is not None}

    sums, unlearned_sums, unknown = Counter[str](), Counter[str](), []
    for column, sign in parsed:
        if column >= n_tags:  # a word that was added
            key = tag_key(tag := run.dictionary.tags[column])
            rows[key], texts[key] = outside.rows[column - n_tags], tag
            sums[key] += sign
    for word in other_words:
        key = tag_key(word.text)
        if key in rows:
            sums[key] += word.sign
        elif key in new_tags:
            unlearned_sums[word.text] += word.sign
        else:
            unknown.append(word)

    known_signs = [word.sign for word in other_words if word not in unknown]
    signs = [*(sign for _, sign in parsed), *name_signs.values(), *known_signs]
    unknown_positive = [word.text for word in unknown if word.sign > 0]
    unknown_words = [word.text for word in unknown]
    if not signs or (unknown_positive and max(signs) < 0):
        message = run.vocabulary.unknown_words(unknown_positive or unknown_words)
        negative_note = "The words with a '-' only leave photos out, so nothing is searched for." if signs else ""
        problem = f"{message} {negative_note}".strip()
        raise UnknownNameError(problem, setting="words", value=words, advice=_advice(run))

    tag_weights, known = run.vocabulary.weights_of((column, sign) for column, sign in parsed if column < n_tags)
    keys = [key for key, total in sums.items() if total]
    if tag_weights.nnz == 0 and not keys and not any(unlearned_sums.values()) and not name_signs:
        cancelled = ", ".join([*known, *map(texts.__getitem__, sums), *unlearned_sums])
        raise UserError(
            f"The words of the search cancel each other out: {cancelled}.",
            setting="words", value=words, advice="Leave one of them out.",
        )  # fmt: skip
    unlearned = {tag: total for tag, total in unlearned_sums.items() if total}
    if not keys:
        return Query(weigh_words(tag_weights, run.idf), known, unknown_words, None, unlearned, name_signs)
    weights, outside_weights = _weigh_together(run, tag_weights, np.array([sums[key] for key in keys], np.float32))
    word_rows = np.array([rows[key] for key in keys], np.float32)
    outside_part = OutsideWords([texts[key] for key in keys], outside_weights, word_rows)
    return Query(weights, known, unknown_words, outside_part, unlearned, name_signs)


def _parse(
    run: Run, words: str | Sequence[str], new_tags: Mapping[str, str], names: Mapping[str, str]
) -> tuple[list[tuple[int, int]], list[Word], dict[str, int]]:
    """Return the tags in a search as (column, sign), the other words, and names of photos with their signs.

    Stop words are left out, unless there is nothing else. An ``OR`` stays among the other words: no search knows it.
    """
    source = run.words.source
    reads_phrases = source is not None and source.kind == ENCODER  # a text tower, which learned from captions
    parsed, other_words = run.dictionary.parse(words, {**names, **new_tags}, phrases=reads_phrases)
    keys = [tag_key(word.text) for word in other_words]
    name_signs = {key: word.sign for key, word in zip(keys, other_words, strict=True) if key in names.keys() - new_tags}

    other_words = [word for key, word in zip(keys, other_words, strict=True) if key not in name_signs]
    ignored = STOP_WORDS - new_tags.keys()
    meant_words = [word for word in other_words if word.text == "OR" or tag_key(word.text) not in ignored]
    return parsed, meant_words if parsed or name_signs or meant_words else other_words, name_signs


def _weigh_together(run: Run, tag_signs: sp.csr_array, outside_signs: Floats) -> tuple[sp.csr_array, Floats]:
    """Return the signed weights of a query's tags and of its words outside the vocabulary, together of unit length.

    A word outside the vocabulary has the weight of a tag of a single image, or of a word of a single reference text.
    """
    n_images = max(run.facts.get("images", 0), int(run.vocabulary.counts.max(initial=1)))
    n_texts = n_images if run.reference is None else run.reference.n_texts
    outside_idf = float(inverse_frequencies([1], n_texts)[0])
    values = np.concatenate([tag_signs.data, outside_signs])[None, :]
    idfs = np.concatenate([run.idf[tag_signs.indices], np.full(len(outside_signs), outside_idf, np.float32)])
    signed_words = sp.csr_array((values[0], np.arange(values.size), np.array([0, values.size])), shape=values.shape)
    all_weights = weigh_words(signed_words, idfs).toarray()[0]
    weights = sp.csr_array((all_weights[: tag_signs.nnz], tag_signs.indices, tag_signs.indptr), shape=tag_signs.shape)
    weights.eliminate_zeros()
    return weights, all_weights[tag_signs.nnz :]


def _advice(run: Run) -> str:
    if not len(run.vocabulary):
        return "No tag is learned yet."
    if not places_words(run.model):
        try:
            return run.words.why_not(run.model) if run.encoder.reads_texts else ""
        except VistermError:  # the search doesn't need the encoder, so its error is not relevant
            return ""
    source = run.words.source
    return run.words.why_not(run.model) or (source.why_not() if source is not None else "")
