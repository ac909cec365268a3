"""Where the word vectors of a run come from: a file, a sentence network, the tags' own lists, or Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.persist import file_hash
from visterm.data.learned_vectors import METHODS
from visterm.data.word_vectors import WordVectors, read_word_vectors, write_word_vectors

if TYPE_CHECKING:
    from visterm.encoders.contract import AnyEncoder

FILE, SENTENCES, LEARNED, GIVEN, ENCODER = "file", "sentences", "learned", "given", "encoder"

KEPT = "word_vectors.safetensors"  # In a run that was given vectors in Python: these
HOW_TO_NAME = (
    f"a file (GloVe, word2vec, fastText .vec, safetensors), {ENCODER}, {ENCODER}:german, {LEARNED}, "
    f"{LEARNED}:skipgram or {SENTENCES}"
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
    def of(cls, given: Any) -> Self:
        """Understand "encoder", "learned", "learned:skipgram", "sentences", a file or vectors; no vector is read yet.

        "encoder" is the text tower of the run's encoder, "encoder:german" with prompts of another language than
        English. A file that is named "learned" is given as ``./learned``. Raises UserError if it is none of these;
        DataError if there is no such file.
        """
        if isinstance(given, WordVectors):
            return cls(GIVEN, vectors=given)
        if isinstance(given, str) and given == SENTENCES:
            return cls(SENTENCES)
        if isinstance(given, str) and given.partition(":")[0] == LEARNED:
            method = given.partition(":")[2] or METHODS[0]
            if method not in METHODS:
                known = ", ".join(f"{LEARNED}:{name}" for name in METHODS)
                raise UserError(f"Word vectors are learned in the ways {known}; expected one of these, not {given!r}.")
            return cls(LEARNED, method=method)
        if isinstance(given, str) and given.partition(":")[0] == ENCODER:
            from visterm.encoders.word_rows import LANGUAGE, prompts_of

            language = given.partition(":")[2] or LANGUAGE
            return cls(ENCODER, method=language, prompts=tuple(prompts_of(language)))
        if not isinstance(given, str | os.PathLike):
            raise UserError(
                f"word_vectors is of type {type(given).__name__}; expected {HOW_TO_NAME}, or WordVectors. A matrix "
                "with a row for each tag is a setting of the model."
            )
        if not Path(given).is_file():
            raise DataError(f"There is no file of word vectors {given}; expected {HOW_TO_NAME}.")
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
        self._check_file()
        return read_word_vectors(self.path, words)

    def marked(self) -> Self:
        """Return the source with the hash of its file or text tower, by which it is known again."""
        if self.kind == ENCODER and self.encoder is not None:
            return replace(self, sha256=self.encoder().text_fingerprint)
        return replace(self, sha256=_hash_now(self.path)) if self.kind == FILE else self

    def of_encoder(self, encoder: Callable[[], AnyEncoder]) -> Self:
        """Return the source with the encoder whose text tower it may be, opened when it is needed."""
        return replace(self, encoder=encoder)

    def moved(self, path: str | os.PathLike[str]) -> Self:
        """Return the source with its file at another place.

        Raises UserError if it has no file, or that is another one; DataError if there is none.
        """
        found = WordSource.of(Path(path))
        if self.kind != FILE:
            raise UserError(
                f"The word vectors of this run are '{self.name}', and vectors of a file have no relation to them. "
                "Leave the file out."
            )
        if _hash_now(found.path) != self.sha256:
            raise UserError(
                f"{path} is not the file whose word vectors this run started from ({self.path}): words and tags would "
                "not go together. Pass that file, wherever it is now, or fit anew."
            )
        return replace(self, path=found.path)

    def why_not(self) -> str:
        """Explain why a word has no vector, and what to do."""
        if self.kind == LEARNED:
            return (
                "The word vectors of this run were learned from its tags alone, so other words have none. Fit with "
                f"--word-vectors FILE or {SENTENCES}; or in Python with vectors learned from more lists of tags."
            )
        return f"Its word vectors ({self.name}) have none of it either."

    def save(self, folder: Path) -> dict[str, Any]:
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

    def _check_file(self) -> None:
        """Refuse a file that is not what it was."""
        fix = "Put it back; or say in Python where it is: Tagger.load(RUN).add_words(WORDS, file=FILE)."
        if not os.path.isfile(self.path):
            raise StorageError(f"The file of word vectors {self.path} of this run is gone. {fix}")
        if self.sha256 and _hash_now(self.path) != self.sha256:
            raise StorageError(
                f"The file of word vectors {self.path} has changed since this run was fitted: words and tags would not "
                f"go together. {fix}"
            )


def _hash_now(path: str) -> str:
    """Return the hash of a file; not twice, as long as it looks the same."""
    state = os.stat(path)
    return _hash_of(path, state.st_size, state.st_mtime_ns)


@cache
def _hash_of(path: str, size: int, changed: int) -> str:
    return file_hash(path)
