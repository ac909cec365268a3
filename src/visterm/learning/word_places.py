"""Words that are no tags: where their vectors come from, and their places among the tags, for searches or for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.learned import FILE_NAME, Listed, Record, Sizes, Text, Whole
from visterm.core.persist import file_hash, load_arrays, read_json, save_arrays, write_json
from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.data.learned_vectors import METHODS
from visterm.data.word_vectors import WordVectors, read_word_vectors, vectors_of_tags, write_word_vectors
from visterm.encoders.contract import AnyEncoder
from visterm.models.abilities import places_words, rows_of_words
from visterm.models.base import Annotator

Floats = NDArray[np.float32]

FILE, SENTENCES, LEARNED, GIVEN, ENCODER = "file", "sentences", "learned", "given", "encoder"

KEPT = "word_vectors.safetensors"  # In a run that was given vectors in Python: these
HOW_TO_NAME = (
    f"a file (GloVe, word2vec, fastText .vec, safetensors), {ENCODER}, {ENCODER}:german, {LEARNED}, "
    f"{LEARNED}:skipgram or {SENTENCES}"
)
WORDS, ADDED_ROWS = "words.json", "added_words.safetensors"  # Files in the folder of a run
MOST_LOOKED_UP = 10_000  # Words of searches whose rows are kept in memory: to place one takes longer than to search
# What the file of a run holds
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


@dataclass(frozen=True)
class WordSource:
    """What gives words their vectors, at the fit and later."""

    kind: str  # {"file", "sentences", "learned", "given", "encoder"}
    method: str = ""  # Of learned vectors: "ppmi" or "skipgram"; of a text tower: the language of the prompts
    # Of a file: its full path, and what its bytes were when it was read first; of a text tower: its fingerprint
    path: str = ""
    sha256: str = ""
    prompts: tuple[str, ...] = ()  # What is said of a word to a text tower
    encoder: Callable[[], AnyEncoder] | None = field(default=None, compare=False, repr=False)  # Which has the tower
    vectors: WordVectors | None = None  # Those that were given

    @classmethod
    def of(cls, given: object) -> Self:
        """Understand "encoder", "learned", "learned:skipgram", "sentences", a file or vectors; no vector is read yet.

        "encoder" is the text tower of the run's encoder, "encoder:german" with prompts of another language than
        English. A file that is named "learned" is given as ``./learned``. Raises UserError if it is none of these;
        DataError if there is no such file.
        """
        if isinstance(given, WordVectors):
            return cls(GIVEN, vectors=given)
        kind, _, method = given.partition(":") if isinstance(given, str) else ("", "", "")
        if isinstance(given, str) and given == SENTENCES:
            return cls(SENTENCES)
        if kind == LEARNED:
            method = method or METHODS[0]
            if method not in METHODS:
                known = ", ".join(f"{LEARNED}:{name}" for name in METHODS)
                raise UserError(setting="word_vectors", value=given, expected=f"one of {known}")
            return cls(LEARNED, method=method)
        if kind == ENCODER:
            from visterm.encoders.word_rows import LANGUAGE, prompts_of

            return cls(ENCODER, method=method or LANGUAGE, prompts=tuple(prompts_of(method or LANGUAGE)))
        if not isinstance(given, str | os.PathLike):
            raise UserError(
                f"`word_vectors` is of type {type(given).__name__}",
                setting="word_vectors", value=given, expected=f"{HOW_TO_NAME}, or WordVectors",
                advice="A matrix with a row for each tag is a setting of the model.",
            )  # fmt: skip

        if not Path(given).is_file():
            raise DataError(
                f"There is no file of word vectors {given}", setting="word_vectors", value=given, expected=HOW_TO_NAME
            )
        return cls(FILE, path=os.path.abspath(given))

    @property
    def name(self) -> str:
        """Name it as people call it."""
        method = "" if self.method in ("", METHODS[0], "english") else f":{self.method}"
        return self.path if self.kind == FILE else "given in Python" if self.kind == GIVEN else f"{self.kind}{method}"

    @property
    def gives_others(self) -> bool:
        """Return whether words that are no tags can have a vector of it."""
        return self.kind != LEARNED

    @property
    def reads_phrases(self) -> bool:
        """Return whether words in a row are better read as one text, as by towers that learned from captions."""
        return self.kind == ENCODER

    def read(self, words: Iterable[str]) -> WordVectors:
        """Return the vectors of words, as far as it has any.

        Raises StorageError if its file, or the encoder's text tower, is gone or has changed; ServiceError if the text
        tower is a server's that gives no answer; MissingExtraError if it needs the extra ``text``, and
        that is not installed; UserError if its vectors were learned from tags, and there are no others.
        """
        if self.kind == LEARNED:
            raise UserError(self.why_not())
        if self.kind == SENTENCES:
            from visterm.encoders.sentences import sentence_vectors

            return sentence_vectors(list(words))
        if self.vectors is not None:
            return self.vectors
        if self.kind == ENCODER:
            return self._from_tower(words)
        fix = "Put it back; or say in Python where it is: Tagger.load(RUN).add_words(WORDS, file=FILE)."
        if not os.path.isfile(self.path):
            raise StorageError(f"The file of word vectors {self.path} of this run is gone. {fix}")
        if self.sha256 and _hash_now(self.path) != self.sha256:
            raise StorageError(
                f"The file of word vectors {self.path} has changed since this run was fitted: words and tags would not "
                f"go together. {fix}"
            )
        return read_word_vectors(self.path, words)

    def marked(self) -> Self:
        """Return the source with the hash of its file or text tower, by which it is known again."""
        if self.kind == ENCODER and self.encoder is not None:
            return replace(self, sha256=self.encoder().text_fingerprint)
        return replace(self, sha256=_hash_now(self.path)) if self.kind == FILE else self

    def moved(self, path: str | os.PathLike[str]) -> Self:
        """Return the source with its file at another place.

        Raises UserError if it has no file, or that is another one; DataError if there is none.
        """
        source = WordSource.of(Path(path))
        if self.kind != FILE:
            raise UserError(
                f"The word vectors of this run are '{self.name}', and vectors of a file have no relation to them.",
                setting="file", value=path, advice="Leave `file` out.",
            )  # fmt: skip
        if _hash_now(source.path) != self.sha256:
            raise UserError(
                f"{path} is not the file whose word vectors this run started from ({self.path}): words and tags would "
                "not go together.",
                setting="file", value=path, advice="Pass that file, wherever it is now, or fit anew.",
            )  # fmt: skip
        return replace(self, path=source.path)

    def why_not(self) -> str:
        """Explain why a word has no vector, and what to do."""
        if self.kind == LEARNED:
            return (
                "The word vectors of this run were learned from its tags alone, so other words have none. Fit with "
                f"`word_vectors` of a file or {SENTENCES}; or in Python with vectors learned from more lists of tags."
            )
        return f"Its word vectors ({self.name}) have none of it either."

    def save(self, folder: Path) -> dict[str, object]:
        """Return what JSON keeps of it; vectors that were given are written into the folder of a run."""
        if self.vectors is not None:
            write_word_vectors(folder / KEPT, self.vectors)
        parts = {"kind": self.kind, "method": self.method, "path": self.path, "sha256": self.sha256}
        return {name: part for name, part in {**parts, "prompts": list(self.prompts)}.items() if part}

    @classmethod
    def load(cls, folder: Path, saved: dict[str, Any]) -> Self:
        """Make again what `save` wrote; vectors that were given stay in the file, memory-mapped."""
        prompts = tuple(saved.get("prompts", ()))
        if saved["kind"] == ENCODER:
            from visterm.encoders.word_rows import check_prompts

            check_prompts(prompts)
        return cls(
            **{**saved, "prompts": prompts},
            vectors=read_word_vectors(folder / KEPT) if saved["kind"] == GIVEN else None,
        )

    def _from_tower(self, words: Iterable[str]) -> WordVectors:
        """Return the vectors that the text tower of the run's encoder has, if it is the one of the fit."""
        from visterm.encoders.word_rows import word_rows

        if self.encoder is None:
            raise UserError(
                "These word vectors are of a text tower, and there is no encoder. Open the run that has it."
            )
        encoder = self.encoder()
        if self.sha256 not in ("", encoder.text_fingerprint):
            raise StorageError(
                "The text tower of this run's encoder is not the one that it was fitted with: its files, or its row of "
                "the table of networks, have changed, so words and tags would not go together. Fit anew."
            )
        return word_rows(encoder, list(words), self.prompts)


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

    def look_up(self, model: Annotator, words: Sequence[str]) -> list[Floats | None]:
        """Return the rows of words of a search, None of those without a vector; each has the same in any company.

        The vectors are moved as training moved those of the tags (equations 3 and 4). There are none where the model or
        the source knows no words but tags. Raises StorageError if the file of vectors is gone or has changed;
        MissingExtraError if a package is needed that is not installed.
        """
        fresh = [word for word in words if tag_key(word) not in self._looked_up]
        if len(self._looked_up) + len(fresh) > MOST_LOOKED_UP:
            self._looked_up.clear()
            fresh = list(words)
        for word, vector, known in zip(fresh, *self._vectors(model, fresh), strict=True):
            self._looked_up[tag_key(word)] = rows_of_words(model, vector[None, :])[0] if known else None
        return [self._looked_up[tag_key(word)] for word in words]

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
        existing = [word for word in by_key.values() if word in known]
        fresh = [word for word in by_key.values() if word not in known]
        vectors, has_vector = WordPlaces(source, width=self.width)._vectors(model, fresh)
        added, rows = list(compress(fresh, has_vector)), self.rows
        if added:  # as wide as rows of tags, which may have a bias beside the vector
            placed = rows_of_words(model, vectors[has_vector])
            rows = np.concatenate([rows, placed]) if len(rows) else placed
        places = WordPlaces(source, width=self.width, without=self.without, added=[*self.added, *added], rows=rows)
        return places, Added(added, existing, list(compress(fresh, ~has_vector)))

    def why_not(self, model: Annotator) -> str:
        """Explain why words that are no tags have no place in this run, and what to do; empty if they can have one."""
        if not places_words(model):
            return (
                f"The model '{MODELS.name_of(model)}' knows no words but its tags. Fit one that starts from word "
                "vectors: text_ridge, with an encoder that has a text tower (visterm encoders lists them), or "
                f"sampled_tagger with `word_vectors` of a file or {SENTENCES}."
            )
        if self.source is None:
            return (
                "This run was fitted without word vectors, so words that are not tags have no place in it. Fit with "
                f"`word_vectors` of a file, {SENTENCES}, or {ENCODER} where the encoder has a text tower."
            )
        return "" if self.source.gives_others else self.source.why_not()

    def _vectors(self, model: Annotator, words: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors of words, and which have one; none where the model or the source knows only tags."""
        if not words or self.source is None or not self.source.gives_others or not places_words(model):
            return np.zeros((len(words), self.width), np.float32), np.zeros(len(words), np.bool_)
        vectors, has_vector = vectors_of_tags(self.source.read(words), words)
        return vectors, has_vector & vectors.any(axis=1)

    def save(self, folder: Path) -> None:
        """Write what there is into the folder of a run."""
        if self.source is None:
            return
        write_json(folder / WORDS, {"source": self.source.save(folder), "width": self.width, "added": self.added})
        if self.added:
            save_arrays(folder / ADDED_ROWS, {"rows": np.ascontiguousarray(self.rows)})

    @classmethod
    def load(cls, folder: Path, encoder: Callable[[], AnyEncoder]) -> WordPlaces:
        """Read what `save` wrote. `encoder` returns the run's encoder, when it is needed."""
        saved = read_json(folder / WORDS)
        FORM.check(saved, Sizes())
        source = replace(WordSource.load(folder, saved["source"]), encoder=encoder)
        places = cls(source, width=saved["width"], added=saved["added"])
        if saved["added"]:
            places.rows = load_arrays(folder / ADDED_ROWS)["rows"]
        return places


def rank_with_added(
    best: Iterable[tuple[NDArray[np.int64], Floats]], model: Annotator, X: Matrix, places: WordPlaces, k: int
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield the tags of each image with added words among them, by score; these have the numbers after the tags."""
    others = np.asarray(model.image_rows(X) @ places.rows.T, np.float32)
    numbers = model.n_tags_ + np.arange(len(places.added))
    for (ids, scores), word_scores in zip(best, others, strict=True):
        ids, scores = np.concatenate([ids, numbers]), np.concatenate([scores, word_scores])
        order = np.lexsort((ids, -scores))[: k or None]
        yield ids[order], scores[order]


def _hash_now(path: str) -> str:
    """Return the hash of a file; not twice, as long as it looks the same."""
    state = os.stat(path)
    return _hash_of(path, state.st_size, state.st_mtime_ns)


@cache
def _hash_of(path: str, size: int, changed: int) -> str:
    return file_hash(path)
