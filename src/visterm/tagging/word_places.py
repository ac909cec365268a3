"""Words that are no tags and their places among them: looked up for a search, or added to a run's dictionary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.learned import FILE_NAME, Listed, Record, Sizes, Text, Whole
from visterm.core.persist import load_arrays, read_json, save_arrays, write_json
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.data.word_vectors import vectors_of_tags
from visterm.encoders.contract import AnyEncoder
from visterm.models.abilities import places_words, rows_of_words
from visterm.models.base import Annotator
from visterm.tagging.word_sources import ENCODER, SENTENCES, WordSource

Floats = NDArray[np.float32]

WORDS, ADDED_ROWS = "words.json", "added_words.safetensors"  # Files in the folder of a run
MOST_LOOKED_UP = 10_000  # Words of searches whose rows are kept in memory: to place one takes longer than to search
FORM = Record(
    {
        "source": Record(
            {
                "kind": Text(),
                "method": Text(required=False),
                "path": Text(pattern=FILE_NAME, required=False),
                "sha256": Text(required=False),
                "prompts": Listed(Text(), required=False),
            }
        ),
        "width": Whole(most=2**24),
        "added": Listed(Text()),
    }
)
"""What the file of a run holds."""


class Placed(NamedTuple):
    """Rows for words, shape (n_words, width), as those of tags; and which words have one."""

    rows: Floats
    found: NDArray[np.bool_]


class Added(NamedTuple):
    """What became of words that were to be added to a dictionary."""

    added: list[str]
    there: list[str]  # Those that are tags or aliases, or were added before
    without: list[str]  # Those without a vector


@dataclass(eq=False)
class WordPlaces:
    """What a run knows of words that are no tags: where vectors come from, and the words that were added."""

    source: WordSource | None = None  # None: no words but tags have a place
    _: KW_ONLY
    width: int = 0  # Numbers of a vector
    without: Sequence[str] = ()  # Tags that had no vector when the model was fitted; not known of a run that was opened
    added: Sequence[str] = ()  # Words without training images that belong to the dictionary
    rows: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # Their rows, shape (n_added, width)
    _looked_up: dict[str, Floats | None] = field(default_factory=dict)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return what `visterm info` shows of them."""
        if self.source is None:
            return {}
        return {"word vectors": self.source.name, "tags without a word vector": len(self.without)}

    def look_up(self, model: Annotator, words: Sequence[str]) -> list[Floats | None]:
        """Return the rows of words of a search, None of those without a vector; each has the same in any company.

        The errors are those of `place`.
        """
        fresh = [word for word in words if tag_key(word) not in self._looked_up]
        if len(self._looked_up) + len(fresh) > MOST_LOOKED_UP:
            self._looked_up.clear()
            fresh = list(words)
        vectors, found = self._vectors(model, fresh)
        for word, vector, there in zip(fresh, vectors, found, strict=True):
            self._looked_up[tag_key(word)] = rows_of_words(model, vector[None, :])[0] if there else None
        return [self._looked_up[tag_key(word)] for word in words]

    def place(self, model: Annotator, words: Sequence[str]) -> Placed:
        """Look up the vectors of words, and move them as training moved those of the tags (equations 3 and 4).

        Nothing is found where the model or the source knows no words but tags. Raises StorageError if the file of
        vectors is gone or has changed; MissingExtraError if a package is needed that is not installed.
        """
        vectors, found = self._vectors(model, words)
        if not found.any():
            return Placed(vectors, found)
        placed = rows_of_words(model, vectors[found])
        rows = np.zeros((len(words), placed.shape[1]), np.float32)
        rows[found] = placed
        return Placed(rows, found)

    def with_words(
        self, model: Annotator, known: Vocabulary, words: Iterable[str], *, file: str | os.PathLike[str] | None = None
    ) -> tuple[WordPlaces, Added]:
        """Return the places with more words, which keep their relations to the tags and to each other.

        `known` are the tags and the words that were added before; `file` is where the file of word vectors is now.
        Raises UserError if the model or the source knows no words but tags, or `file` is another file.
        """
        if why := self.why_not(model):
            raise UserError(why)
        source = self.source
        if source is not None and file is not None:
            source = source.moved(file)
        by_key: dict[str, str] = {}
        for word in filter(None, map(clean_tag, words)):
            by_key.setdefault(tag_key(word), word)
        there = [word for word in by_key.values() if word in known]
        fresh = [word for word in by_key.values() if word not in known]
        looked_up = WordPlaces(source, width=self.width)
        placed = looked_up.place(model, fresh)
        added = [word for word, found in zip(fresh, placed.found, strict=True) if found]
        without = [word for word, found in zip(fresh, placed.found, strict=True) if not found]
        # as wide as rows of tags, which may have a bias beside the vector
        parts = [part for part in (self.rows, placed.rows[placed.found]) if len(part)]
        rows = np.concatenate(parts) if parts else self.rows
        places = WordPlaces(source, width=self.width, without=self.without, added=[*self.added, *added], rows=rows)
        return places, Added(added, there, without)

    def why_not(self, model: Annotator) -> str:
        """Explain why words that are no tags have no place in this run, and what to do; empty if they can have one."""
        if not places_words(model):
            return (
                f"The model '{MODELS.name_of(model)}' knows no words but its tags. Fit one that starts from word "
                "vectors: visterm fit ... --model text_ridge, with an encoder that has a text tower (visterm encoders "
                f"lists them), or --model sampled_tagger --word-vectors FILE or {SENTENCES}"
            )
        if self.source is None:
            return (
                "This run was fitted without word vectors, so words that are not tags have no place in it. Fit with "
                f"--word-vectors FILE, {SENTENCES}, or {ENCODER} where the encoder has a text tower."
            )
        return "" if self.source.gives_others else self.source.why_not()

    def _vectors(self, model: Annotator, words: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors of words, and which have one; none where the model or the source knows only tags."""
        if not words or self.source is None or not self.source.gives_others or not places_words(model):
            return np.zeros((len(words), self.width), np.float32), np.zeros(len(words), np.bool_)
        vectors, found = vectors_of_tags(self.source.read(words), words)
        return vectors, found & vectors.any(axis=1)

    def save(self, folder: Path) -> None:
        """Write what there is into the folder of a run."""
        if self.source is None:
            return
        write_json(folder / WORDS, {"source": self.source.save(folder), "width": self.width, "added": self.added})
        if self.added:
            save_arrays(folder / ADDED_ROWS, {"rows": np.ascontiguousarray(self.rows)})

    @classmethod
    def load(cls, folder: Path, encoder: Callable[[], AnyEncoder]) -> WordPlaces:
        """Read what `save` wrote; a run without word vectors has none. `encoder` gives the run's, when it is needed."""
        if not (folder / WORDS).exists():
            return cls()
        saved = read_json(folder / WORDS)
        FORM.check(saved, Sizes())
        source = WordSource.load(folder, saved["source"]).of_encoder(encoder)
        places = cls(source, width=saved["width"], added=saved["added"])
        if saved["added"]:
            places.rows = load_arrays(folder / ADDED_ROWS)["rows"]
        return places


def rank_with_added(
    best: Iterable[tuple[Any, Any]], model: Annotator, X: Any, places: WordPlaces, k: int
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield the tags of each image with added words among them, by score; these have the numbers after the tags."""
    others = np.asarray(model.image_rows(X) @ places.rows.T, np.float32)
    numbers = model.n_tags_ + np.arange(len(places.added))
    for (ids, scores), own in zip(best, others, strict=True):
        ids, scores = np.concatenate([ids, numbers]), np.concatenate([scores, own])
        order = np.lexsort((ids, -scores))[: k or None]
        yield ids[order], scores[order]
