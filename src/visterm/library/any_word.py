"""Words of tags: "bear" finds "brown bear" and "black bear", and "ubung" finds "Übung", unless they are tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain, islice, product
from typing import NamedTuple

import numpy as np

from visterm.core.errors import UnknownNameError
from visterm.core.types import Hit
from visterm.core.vocabulary import STOP_WORDS, quoted, tag_key
from visterm.library.catalogue import Catalogue
from visterm.library.dictionary import photos_of_tags
from visterm.library.search.result import Found
from visterm.store.filters import COLUMNS, Filter

MAX_TAGS_OF_WORD = 5  # Tags of most photos that a word means
MAX_SEARCHES = 8  # One search for each choice of tags for the words: each takes as long as any search

_SOURCES = {"person": 2, "accepted": 1, None: 0}
_PART = re.compile(r"[\s/_-]+")


class WordsFound(NamedTuple):
    """A search whose words may be parts of tags."""

    found: Found
    words: str  # The search with tags in place of such words
    also: dict[str, list[str]]  # Word -> the tags that it means


def search_any_word(
    catalogue: Catalogue, words: str, k: int, *, among: Filter | None = None, sort: str | None = None
) -> WordsFound:
    """Search as `Catalogue.search` does; a word that is no tag finds the photos of each tag that has the word.

    A photo counts with the tag that it most likely has. After a `-`, no such tag is wanted. Raises the errors of
    `Catalogue.search`.
    """
    also = tags_of_words(catalogue, words)
    if not also:
        return WordsFound(catalogue.search(words, k, among=among, sort=sort), words, {})
    signs = {word: match[1] if (match := _pattern(word).search(words)) else "" for word in also}
    choices = [[tags] if signs[word] else [[tag] for tag in tags] for word, tags in also.items()]
    searches = []
    for chosen in islice(product(*choices), MAX_SEARCHES):
        text = words
        for word, tags in zip(also, chosen, strict=True):
            replacement = " ".join(f"{signs[word]}{quoted(tag)}" for tag in tags)
            text = _pattern(word).sub(lambda _, replacement=replacement: replacement, text)  # type: ignore[misc]
        searches.append(text)

    results = [catalogue.search(text, k, among=among, sort=sort) for text in searches]
    best: dict[int | None, Hit] = {}
    for hit in chain.from_iterable(result.hits for result in results):
        if hit.id not in best or _rank(hit) > _rank(best[hit.id]):
            best[hit.id] = hit
    hits = sorted(best.values(), key=_rank, reverse=True)
    if sort in COLUMNS:
        position = {image_id: i for i, image_id in enumerate(catalogue.ids(among or Filter(), sort).tolist())}
        hits.sort(key=lambda hit: position.get(hit.id, len(position)))
    n_found = len(hits) if sort in COLUMNS else max(result.n_found or 0 for result in results)
    every_word = " ".join(dict.fromkeys(searches))
    return WordsFound(results[0]._replace(hits=hits[: k or None], n_found=n_found), every_word, also)


def tags_of_words(catalogue: Catalogue, words: str) -> dict[str, list[str]]:
    """Return the words of a search that are no tags but parts of tags, each with the tags of most photos.

    Accents don't count; a tag that is the word but for its accents is the only one.
    """
    dictionary = catalogue.tagger.dictionary
    try:
        unknown: Sequence[str] = catalogue.query_weights(words).unknown
    except UnknownNameError:
        new_tags = catalogue.stored.tags.names_here(dictionary.not_tags(words))
        unknown = [word.text for word in dictionary.parse(words, new_tags)[1] if tag_key(word.text) not in new_tags]
    keys = {word: _plain(word) for word in unknown if tag_key(word) not in STOP_WORDS}
    counts = photos_of_tags(catalogue) if keys else {}
    parts = [(tag, _plain(tag)) for tag in sorted(counts, key=lambda tag: (-counts[tag], tag))]
    tags = {}
    for word, key in keys.items():
        alike = [tag for tag, plain in parts if plain == key]
        tags[word] = alike or [tag for tag, plain in parts if key in _PART.split(plain)]
    return {word: found[:MAX_TAGS_OF_WORD] for word, found in tags.items() if found}


def _rank(hit: Hit) -> tuple[int, float, float]:
    return _SOURCES.get(hit.source, 0), -np.inf if hit.confidence is None else hit.confidence, hit.score


def _plain(tag: str) -> str:
    """Return the key of a tag without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", tag_key(tag)) if not unicodedata.combining(letter))


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf'(?<!\w)(-?)("?){re.escape(word)}\2(?!\w)')
