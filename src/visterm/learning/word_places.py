"""Words that are not tags: the source of their vectors, and their rows, for one search or saved with a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.learned import FILE_NAME, Listed, Record, Sizes, Text, Whole
from visterm.core.persist import current_hash, load_arrays, read_json, save_arrays, write_json
from visterm.core.tables import MODELS
from visterm.core.types import Floats, Ints, Matrix
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.data.word_vectors import WordVectors, read_word_vectors, vectors_of_tags, write_word_vectors
from visterm.encoders.contract import AnyEncoder
from visterm.models.abilities import places_words, rows_of_words
from visterm.models.base import Annotator

FILE, SENTENCES, LEARNED, GIVEN, ENCODER = "file", "sentences", "learned", "given", "encoder"

SAVED_VECTORS = "word_vectors.safetensors"  # The vectors, in a run that got them in Python
VALID_SOURCES = (
    f"a file (GloVe, word2vec, fastText .vec, safetensors), {ENCODER}, {ENCODER}:german, {LEARNED} or {SENTENCES}"
)
WORDS, ADDED_ROWS = "words.json", "added_words.safetensors"  # Files in the folder of a run
MAX_CACHED_WORDS = 10_000  # Words of searches whose rows are cached: computing a row takes longer than a search
# The format of `WORDS`
WORDS_FORMAT = Record(
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


@dataclass(frozen=True)
class WordSource:
    """Where the vectors of words come from, at the fit and later."""

    kind: str  # {"file", "sentences", "learned", "given", "encoder"}
    method: str = ""  # For a text tower: the language of the prompts
    # For a file: its absolute path, and its hash when it was first read; for a text tower: its fingerprint
    path: str = ""
    sha256: str = ""
    prompts: tuple[str, ...] = ()  # Texts about a word for the text tower
    encoder: Callable[[], AnyEncoder] | None = field(default=None, compare=False, repr=False)  # With the text tower
    vectors: WordVectors | None = None  # Vectors that were passed in memory

    @classmethod
    def of(cls, value: object) -> Self:
        """Parse "encoder", "learned", "sentences", a file or vectors, without reading vectors.

        "encoder" is the text tower of the run's encoder with English prompts, "encoder:german" with German prompts.
        Write a file named "learned" as ``./learned``. Raises UserError if `value` is not valid; DataError if the file
        doesn't exist.
        """
        if isinstance(value, WordVectors):
            return cls(GIVEN, vectors=value)
        kind, _, method = value.partition(":") if isinstance(value, str) else ("", "", "")
        if isinstance(value, str) and value in (SENTENCES, LEARNED):
            return cls(value)
        if kind == ENCODER:
            from visterm.encoders.word_rows import DEFAULT_LANGUAGE, prompts_of

            language = method or DEFAULT_LANGUAGE
            return cls(ENCODER, method=language, prompts=tuple(prompts_of(language)))
        if not isinstance(value, str | os.PathLike):
            raise UserError(
                f"`word_vectors` is of type {type(value).__name__}",
                setting="word_vectors", value=value, expected=f"{VALID_SOURCES}, or WordVectors",
                advice="A matrix with a row for each tag is a setting of the model.",
            )  # fmt: skip

        if not Path(value).is_file():
            raise DataError(
                f"There is no file of word vectors {value}", setting="word_vectors", value=value, expected=VALID_SOURCES
            )
        return cls(FILE, path=os.path.abspath(value))

    @property
    def name(self) -> str:
        """The name to show to people."""
        method = "" if self.method in ("", "english") else f":{self.method}"
        return self.path if self.kind == FILE else "given in Python" if self.kind == GIVEN else f"{self.kind}{method}"

    @property
    def has_other_words(self) -> bool:
        """Return whether this source can have vectors of words that are not tags."""
        return self.kind != LEARNED

    def read(self, words: Iterable[str]) -> WordVectors:
        """Return the vectors of the words that this source has.

        Raises StorageError if the file or the encoder's text tower is missing or has changed; ServiceError if the text
        tower's server doesn't answer; MissingExtraError if the extra ``text`` is needed and not installed; UserError
        if the vectors were learned from tags.

        """
        if self.kind == LEARNED:
            raise UserError(self.why_not())
        if self.kind == SENTENCES:
            from visterm.encoders.word_rows import sentence_vectors

            return sentence_vectors(list(words))
        if self.vectors is not None:
            return self.vectors
        if self.kind == ENCODER:
            return self._from_tower(words)
        fix = "Put it back, or pass its new path in Python: Tagger.load(RUN).add_words(WORDS, file=FILE)."
        if not os.path.isfile(self.path):
            raise StorageError(f"The file of word vectors {self.path} of this run is gone. {fix}")
        if self.sha256 and current_hash(self.path) != self.sha256:
            raise StorageError(
                f"The file of word vectors {self.path} has changed since this run was fitted: vectors of words and of "
                f"tags would not match. {fix}"
            )
        return read_word_vectors(self.path, words)

    def with_hash(self) -> Self:
        """Return the source with the hash of its file or text tower, which later reads compare."""
        if self.kind == ENCODER and self.encoder is not None:
            return replace(self, sha256=self.encoder().text_fingerprint)
        return replace(self, sha256=current_hash(self.path)) if self.kind == FILE else self

    def with_path(self, path: str | os.PathLike[str]) -> Self:
        """Return the source with another path of its file.

        Raises UserError if this source has no file, or the contents differ; DataError if the file doesn't exist.
        """
        source = WordSource.of(Path(path))
        if self.kind != FILE or current_hash(source.path) != self.sha256:
            raise UserError(
                f"{path} is not the source of this run's word vectors ({self.name}): vectors of words and of tags "
                "would not match.",
                setting="file", value=path, advice="Leave `file` out, or pass the current path of the run's file.",
            )  # fmt: skip
        return replace(self, path=source.path)

    def why_not(self) -> str:
        """Explain why a word has no vector, and what to do."""
        if self.kind == LEARNED:
            return (
                "The word vectors of this run were learned from its tags alone, so other words have none. Fit with "
                f"`word_vectors` of a file or {SENTENCES}; or in Python with vectors learned from more lists of tags."
            )
        named = "" if self.kind == GIVEN else f" ({self.name})"
        return f"Its word vectors{named} have no vector of it either."

    def save(self, folder: Path) -> dict[str, object]:
        """Return the source as JSON values; write vectors that were passed in memory into the folder of a run."""
        if self.vectors is not None:
            write_word_vectors(folder / SAVED_VECTORS, self.vectors)
        parts = {"kind": self.kind, "method": self.method, "path": self.path, "sha256": self.sha256}
        return {name: part for name, part in {**parts, "prompts": list(self.prompts)}.items() if part}

    @classmethod
    def load(cls, folder: Path, saved: dict[str, Any]) -> Self:
        """Restore what `save` wrote; saved vectors are memory-mapped."""
        prompts = tuple(saved.get("prompts", ()))
        if saved["kind"] == ENCODER:
            from visterm.encoders.word_rows import check_prompts

            check_prompts(prompts)
        return cls(
            **{**saved, "prompts": prompts},
            vectors=read_word_vectors(folder / SAVED_VECTORS) if saved["kind"] == GIVEN else None,
        )

    def _from_tower(self, words: Iterable[str]) -> WordVectors:
        """Return vectors from the text tower of the run's encoder; raise StorageError if it changed since the fit."""
        from visterm.encoders.word_rows import word_rows

        assert self.encoder is not None  # set by `StartWords.read` and `WordPlaces.load`
        encoder = self.encoder()
        if self.sha256 not in ("", encoder.text_fingerprint):
            raise StorageError(
                "The text tower of this run's encoder has changed since the fit (its files, or its entry in the table "
                "of networks), so vectors of words and of tags would not match. Fit again."
            )
        return word_rows(encoder, list(words), self.prompts)


class Added(NamedTuple):
    """The result of adding words to a dictionary."""

    added: list[str]
    known: list[str]  # Words that are tags or aliases, or were added before
    without_vector: list[str]


@dataclass(eq=False)
class WordPlaces:
    """Words of a run that are not tags: where their vectors come from, and which words were added."""

    source: WordSource | None = None  # None: only tags have rows
    _: KW_ONLY
    width: int = 0  # Length of a vector
    tags_without_vector: Sequence[str] = ()  # Tags that had no vector at the fit; not saved with a run
    added: Sequence[str] = ()  # Words without training images in the dictionary
    rows: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # Rows of `added`, (n_added, width)
    _row_cache: dict[str, Floats | None] = field(default_factory=dict)

    def look_up(self, model: Annotator, words: Sequence[str]) -> list[Floats | None]:
        """Return the rows of the words of a search, None for a word without a vector or if only tags have rows.

        The vectors are moved like the tags' vectors in training (equations 3 and 4). A word's row doesn't depend on the
        other words. Raises StorageError if the file of vectors is missing or has changed; MissingExtraError if a
        package is missing.
        """
        new_words = [word for word in words if tag_key(word) not in self._row_cache]
        if len(self._row_cache) + len(new_words) > MAX_CACHED_WORDS:
            self._row_cache.clear()
            new_words = list(words)
        for word, vector, has_vector in zip(new_words, *self._vectors(model, new_words), strict=True):
            self._row_cache[tag_key(word)] = rows_of_words(model, vector[None, :])[0] if has_vector else None
        return [self._row_cache[tag_key(word)] for word in words]

    def with_words(
        self, model: Annotator, known: Vocabulary, words: Iterable[str], *, file: str | os.PathLike[str] | None = None
    ) -> tuple[WordPlaces, Added]:
        """Return a copy with more words added, and which words were added.

        `known` are the tags and the words that were added before; `file` is the current path of the word vectors.
        Raises UserError if the model or the source knows only tags, or the contents of `file` have changed.
        """
        if obstacle := self.why_not(model):
            raise UserError(obstacle)
        source = self.source
        if source is not None and file is not None:
            source = source.with_path(file)
        word_of_key: dict[str, str] = {}
        for word in filter(None, map(clean_tag, words)):
            word_of_key.setdefault(tag_key(word), word)
        existing = [word for word in word_of_key.values() if word in known]
        new_words = [word for word in word_of_key.values() if word not in known]
        vectors, has_vector = WordPlaces(source, width=self.width)._vectors(model, new_words)
        added, rows = list(compress(new_words, has_vector)), self.rows
        if added:  # as wide as tag rows, which may have a bias after the vector
            new_rows = rows_of_words(model, vectors[has_vector])
            rows = np.concatenate([rows, new_rows]) if len(rows) else new_rows
        places = replace(self, source=source, added=[*self.added, *added], rows=rows, _row_cache={})
        return places, Added(added, existing, list(compress(new_words, ~has_vector)))

    def why_not(self, model: Annotator) -> str:
        """Explain why words that are not tags can't have rows in this run, and what to do; empty if they can."""
        if not places_words(model):
            return (
                f"The model '{MODELS.name_of(model)}' knows only its tags. Fit a model that starts from word "
                "vectors: text_ridge, with an encoder that has a text tower (visterm encoders lists them), or "
                f"sampled_tagger with `word_vectors` of a file or {SENTENCES}."
            )
        if self.source is None:
            return (
                "This run was fitted without word vectors, so it knows only its tags. Fit with `word_vectors` of a "
                f"file, {SENTENCES}, or {ENCODER} if the encoder has a text tower."
            )
        return "" if self.source.has_other_words else self.source.why_not()

    def _vectors(self, model: Annotator, words: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors of words, and whether words have one: none if the model or source knows only tags."""
        if not words or self.source is None or not self.source.has_other_words or not places_words(model):
            return np.zeros((len(words), self.width), np.float32), np.zeros(len(words), np.bool_)
        vectors, has_vector = vectors_of_tags(self.source.read(words), words)
        return vectors, has_vector & vectors.any(axis=1)

    def save(self, folder: Path) -> None:
        """Write the source and the added words into the folder of a run."""
        if self.source is None:
            return
        write_json(folder / WORDS, {"source": self.source.save(folder), "width": self.width, "added": self.added})
        if self.added:
            save_arrays(folder / ADDED_ROWS, {"rows": np.ascontiguousarray(self.rows)})

    @classmethod
    def load(cls, folder: Path, encoder: Callable[[], AnyEncoder]) -> WordPlaces:
        """Read what `save` wrote. `encoder` is called for the run's encoder when it is needed."""
        saved = read_json(folder / WORDS)
        WORDS_FORMAT.check(saved, Sizes())
        source = replace(WordSource.load(folder, saved["source"]), encoder=encoder)
        places = cls(source, width=saved["width"], added=saved["added"])
        if saved["added"]:
            places.rows = load_arrays(folder / ADDED_ROWS)["rows"]
        return places


def rank_with_added(
    rankings: Iterable[tuple[Ints, Floats]], model: Annotator, X: Matrix, places: WordPlaces, k: int
) -> Iterator[tuple[Ints, Floats]]:
    """Yield ids and scores of each image's best tags and added words; the words' ids start at the number of tags."""
    scores_of_added = np.asarray(model.image_rows(X) @ places.rows.T, np.float32)
    word_ids = model.n_tags_ + np.arange(len(places.added))
    for (ids, scores), word_scores in zip(rankings, scores_of_added, strict=True):
        ids, scores = np.concatenate([ids, word_ids]), np.concatenate([scores, word_scores])
        order = np.lexsort((ids, -scores))[: k or None]
        yield ids[order], scores[order]
