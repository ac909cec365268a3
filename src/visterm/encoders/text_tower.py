"""The text tower of a network by name: it splits texts into tokens as in training and returns vectors."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, MissingExtraError, StorageError, UserError
from visterm.core.threads import Team, resolve_jobs
from visterm.encoders.contract import no_text_tower
from visterm.encoders.named import Network, required
from visterm.encoders.onnx_graph import network_hash, onnx_hash
from visterm.encoders.onnx_network import chosen_output, open_session, run_session
from visterm.encoders.word_rows import unit_rows

MAX_CHARACTERS: Final = 10_000  # Maximum number of a text's characters that are used
MASK_NAME: Final = "attention_mask"
_TOKEN_DTYPES: Final = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


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
