"""The word vectors that tags start with: read before images are, and passed to the model when the tags are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, UserError
from visterm.core.progress import Say
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of, first_or
from visterm.data.learned_vectors import learn_word_vectors
from visterm.data.word_vectors import WordVectors, vectors_of_tags
from visterm.encoders.contract import AnyEncoder
from visterm.features.training_rows import TrainingRows
from visterm.learning.part_settings import names_with
from visterm.learning.word_places import ENCODER, FILE, GIVEN, LEARNED, SENTENCES, WordPlaces, WordSource
from visterm.models.abilities import PlacesWords
from visterm.models.base import Annotator

SETTING = "word_vectors"  # The setting of models that start from vectors of the tags
LEARNED_DIM = 100  # Width of vectors learned from the tags, if the model has no `dim`


class StartWords(NamedTuple):
    """Vectors to start from: their source, and the vectors read from it (None: they are learned from the rows)."""

    source: WordSource
    vectors: WordVectors | None

    @classmethod
    def read(cls, model: Annotator, word_vectors: object, vocabulary: Vocabulary, encoder: AnyEncoder) -> StartWords:
        """Read the vectors of the tags to learn; `word_vectors` is any value that `WordSource.of` accepts.

        The vocabulary has the tags of the corpus, including images that cannot be read; `encoder` is used for its text
        tower. Raises UserError if the model does not start from word vectors, already has some, or has another width;
        DataError if a file doesn't exist, or there is no vector of any tag; MissingExtraError if an extra is not
        installed.
        """
        source = replace(check_start_words(model, word_vectors), encoder=lambda: encoder)
        if source.kind == LEARNED:
            return cls(source, None)
        vectors = source.read(vocabulary)
        dim = getattr(model, "dim", None)
        if dim is not None and dim != vectors.width:
            raise UserError(
                f"The word vectors ({source.name}) have {vectors.width} numbers, and `model.dim` is {dim}.",
                setting="model.dim", value=dim, advice="Leave `model.dim` out.",
            )  # fmt: skip

        if len(vocabulary) and not vectors_of_tags(vectors, vocabulary)[1].any():
            raise DataError(
                f"No tag (such as '{vocabulary.tags[0]}') has a vector ({source.name}).",
                setting="word_vectors", value=word_vectors,
                advice=f"Use vectors of the tags' language, or learn them from the tags: {LEARNED}.",
            )  # fmt: skip
        return cls(source.with_hash(), vectors)

    def words_to_learn(self, words: Sequence[str], tags: Vocabulary, say: Say) -> list[str]:
        """Return the words that have a vector or are tags of photos; report how many words are left out.

        A search for the other words would return random images. Raises DataError if no word remains.
        """
        words_with_vector: set[str] = set()
        if self.vectors is not None:
            rows, _ = vectors_of_tags(self.vectors, words)
            words_with_vector = {word for word, row in zip(words, rows, strict=True) if row.any()}
        usable_words = [word for word in words if word in words_with_vector or word in tags]
        left_out = [word for word in dict.fromkeys(words) if word not in words_with_vector and word not in tags]
        if not left_out:
            return usable_words
        examples = ", ".join(f"'{word}'" for word in left_out[:3])
        if not usable_words:
            raise DataError(
                f"No word of `words` (such as {examples}) has a vector ({self.source.name}) or a photo.",
                setting="words", value=words, advice="Use vectors of the words' language.",
            )  # fmt: skip
        say(f"Left out: {count_of(len(left_out), 'word')} with neither a vector nor a photo (such as {examples}).")
        return usable_words

    def tag_vectors(self, model: Annotator, rows: TrainingRows) -> tuple[NDArray[np.float32], WordPlaces]:
        """Return the start vectors of the tags of the rows, and the source for other words.

        The vectors have the shape (n_tags, width); rows of zeros, for tags without a vector, start at random.
        """
        vectors = self.vectors if self.vectors is not None else self._learn(model, rows)
        matrix, _ = vectors_of_tags(vectors, rows.vocabulary)
        tags_without = [rows.vocabulary.tags[tag] for tag in np.flatnonzero(~matrix.any(axis=1))]
        return matrix, WordPlaces(self.source, width=vectors.width, tags_without_vector=tags_without)

    def _learn(self, model: Annotator, rows: TrainingRows) -> WordVectors:
        seed, Y = getattr(model, "random_state", None), as_csr(rows.Y > 0)
        lists = [[rows.vocabulary.tags[tag] for tag in tags] for tags in np.split(Y.indices, Y.indptr[1:-1])]
        dim = getattr(model, "dim", None) or LEARNED_DIM
        return learn_word_vectors(lists, dim=dim, random_state=seed if isinstance(seed, int) else 0)


def check_start_words(model: Annotator, word_vectors: object) -> WordSource:
    """Check and return the source of word vectors, without reading vectors.

    Raises UserError if the model does not start from word vectors, or already has some; DataError if a file doesn't
    exist.
    """
    are_learned = isinstance(word_vectors, str) and word_vectors == LEARNED
    if not _starts_from(model, are_learned):
        able_models = first_or([*names_with(MODELS, lambda part: _starts_from(part, are_learned))])
        raise UserError(
            f"The model '{MODELS.name_of(model)}' does not start from such word vectors.",
            setting=SETTING, value=word_vectors, advice=f"Choose another `model`: {able_models}.",
        )  # fmt: skip
    if model.word_vectors is not None:
        raise UserError(
            "The word vectors are given twice: by `word_vectors` and by `model.word_vectors`.",
            setting=SETTING, value=word_vectors, advice="Leave one out.",
        )  # fmt: skip
    return WordSource.of(word_vectors)


def default_word_vectors(model: Annotator, encoder: AnyEncoder) -> str | None:
    """Return the default source of word vectors: the encoder's text tower, if the model can use it.

    A model that starts from word vectors and has no `dim` needs vectors in the space of its features.
    """
    needs_vectors = needs_features_width(model) and model.word_vectors is None
    return ENCODER if needs_vectors and encoder.reads_texts else None


def needs_features_width(model: Annotator) -> bool:
    """Return whether a model needs tag vectors that are as wide as image features."""
    return SETTING in model.takes and not hasattr(model, "dim")


def no_vectors_warning(model: Annotator, encoder: AnyEncoder) -> str:
    """Return a warning if a model starts from word vectors that it doesn't move, or that find words, and has none."""
    if SETTING not in model.takes or model.word_vectors is not None:
        return ""
    name = MODELS.name_of(model)
    if not needs_features_width(model) and getattr(model, "fixed_vectors", True):
        return (
            f"{name} does not move the vectors of tags, and none were given: they are random, whatever the tags mean. "
            f"Fit with word vectors: from a file, {SENTENCES} or {LEARNED}."
        )
    if needs_features_width(model) and isinstance(model, PlacesWords):
        return (
            f"{tower_clause(encoder)}: {name} learns from photos alone and finds no other words. Use an encoder with a "
            "text tower (visterm encoders), or word vectors from a file."
        )
    return ""


def tower_clause(encoder: AnyEncoder) -> str:
    """Return the clause "'NETWORK' has no text tower", with the name of the network, for messages."""
    network = getattr(encoder, "network", None)
    return f"'{Path(network).name if network else ENCODERS.name_of(encoder)}' has no text tower"


def vectors_summary(words: WordPlaces, n_tags: int) -> str:
    """Return a line about which tags have vectors."""
    if words.source is None:
        return ""
    origin = {
        ENCODER: f"of the encoder's text tower ({words.source.method})", FILE: f"of {words.source.path}",
        SENTENCES: "of the sentence network", GIVEN: "as given",
        LEARNED: "learned from the tags",
    }[words.source.kind]  # fmt: skip
    tags_without = words.tags_without_vector
    summary = f"Word vectors {origin}: {words.width} numbers for {count_of(n_tags - len(tags_without), 'tag')}"
    if not tags_without:
        return f"{summary}, which is all."
    examples = ", ".join(f"'{tag}'" for tag in tags_without[:3])
    return f"{summary}; {count_of(len(tags_without), 'tag')} without one (such as {examples}) start at random."


def check_finds_words(model: Annotator, encoder: AnyEncoder, vectors: object) -> None:
    """Raise UserError, which says what is missing, if the model can't find words by their vectors."""
    if not isinstance(model, PlacesWords):
        raise UserError(
            "Words are found by their vectors, which this model doesn't take.",
            setting="words", value=MODELS.name_of(model), advice="Choose text_ridge as the `model`.",
        )  # fmt: skip
    if vectors is not None:
        return
    if encoder.reads_texts:
        problem, advice = "this model has none yet", f"Add {ENCODER} as `word_vectors`."
    else:
        problem = tower_clause(encoder)
        advice = "Use an encoder that has one (visterm encoders), or add a file of `word_vectors`."
    raise UserError(
        f"Words are found by their vectors, and {problem}.", setting="words", value=MODELS.name_of(model), advice=advice
    )


def _starts_from(model: Annotator | type[Annotator], are_learned: bool) -> bool:
    """Return whether a model, or its class, starts from word vectors; `are_learned` vectors need a model with `dim`."""
    return SETTING in model.takes and (not are_learned or hasattr(model, "dim"))
