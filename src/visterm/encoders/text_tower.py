"""The text tower of a network by name: texts are cut into tokens as in its training, and become vectors."""

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

MOST_LETTERS: Final = 10_000  # Of a text that is cut into tokens
MOST_TEXTS: Final = 1024  # Of a call, for towers that take a fixed number
MASK: Final = "attention_mask"
_DTYPES: Final = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


class OnnxTextTower:
    """The text tower of a row of the table of networks, opened.

    Texts go through one at a time, in any number of threads: the same bytes in any company. (Towers of int8 measure
    their numbers over all that goes in at once, so that in batches a text's vector depends on the others.)

    Raises StorageError if a file is not on this machine, or is not what it should be; UserError if the row has no text
    tower, or the network takes no tokens; MissingExtraError if tokenizers is not installed.
    """

    def __init__(self, network: Network) -> None:
        if network.text is None:
            raise no_text_tower(network.name)
        self.text = text = network.text
        self.path = path = required(network, text.model)
        self._tokenizer_path = required(network, text.tokenizer)
        self._tokenizer = self._open_tokenizer()
        self._session = open_session(path)
        self._inputs = self._token_inputs()
        self._output = chosen_output(path, [each.name for each in self._session.get_outputs()], text.output)

    @property
    def fingerprint(self) -> str:
        """Return a SHA-256 of all that shapes its vectors: both files, and how texts are prepared."""
        shape = [self.text.length, self.text.pad_id, self.text.canonicalise, self._output]
        parts = [onnx_hash(self.path), network_hash(self._tokenizer_path), *map(str, shape)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def text_rows(self, texts: Sequence[str], n_jobs: int | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, of length 1, shape (n_texts, width).

        Raises DataError if a vector is not finite.
        """

        def row(i: int) -> NDArray[np.float32]:
            tokens = self.tokens(texts[i])
            feed = {name: np.broadcast_to(tokens[kind], (n, len(tokens["ids"]))).astype(dtype)
                    for name, kind, dtype, n in self._inputs}  # fmt: skip
            (out,) = run_session(self._session, self.path, [self._output], feed)
            if out.ndim != 2 or not np.isfinite(out).all():
                raise DataError(
                    f"The output '{self._output}' of {self.path} is {out.shape}"
                    f"{'' if out.ndim != 2 else ', with NaN or infinity'}; expected a row of finite numbers a text."
                )
            return np.asarray(out[0], np.float32)

        if not len(texts):
            return np.zeros((0, 0), np.float32)
        with Team(min(resolve_jobs(n_jobs), len(texts))) as team:
            return unit_rows(np.stack(team.run(row, len(texts))))

    def tokens(self, text: str) -> dict[str, NDArray[np.int64]]:
        """Return "ids", the numbers of the tokens of a text, and "mask", 1 for each that is no padding.

        Both have the tower's length: longer texts are cut, before the token that ends them, if there is one.
        """
        encoding = self._tokenizer.encode(prepared(text, canonicalise=self.text.canonicalise))
        return {"ids": np.array(encoding.ids, np.int64), "mask": np.array(encoding.attention_mask, np.int64)}

    def _open_tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError(
                "Texts are cut into tokens by the package 'tokenizers'. Install it with: pip install 'visterm[onnx]'"
            ) from error

        try:
            tokenizer = Tokenizer.from_file(self._tokenizer_path)
        except Exception as error:  # of this very class, whatever is wrong
            raise StorageError(f"{self._tokenizer_path} cannot be opened as a tokenizer: {error}.") from error
        length, pad_id = self.text.length, self.text.pad_id
        pad_token = tokenizer.id_to_token(pad_id)
        if pad_token is None:
            raise UserError(f"pad_id is {pad_id}, which is no token of {self._tokenizer_path}. Correct the row.")
        tokenizer.enable_padding(length=length, pad_id=pad_id, pad_token=pad_token)
        tokenizer.enable_truncation(max_length=length)
        return tokenizer

    def _token_inputs(self) -> list[tuple[str, str, Any, int]]:
        """Return name, kind ("ids" or "mask"), number type and texts a call of each input."""
        inputs = self._session.get_inputs()
        kinds = ["mask" if each.name == MASK else "ids" for each in inputs]
        shapes = [tuple(each.shape) for each in inputs]
        long = [shape[1] if isinstance(shape[1], int) else self.text.length for shape in shapes if len(shape) == 2]
        few = all(not isinstance(shape[0], int) or shape[0] <= MOST_TEXTS for shape in shapes if shape)
        fits = few and long == [self.text.length] * len(inputs)
        if kinds.count("ids") != 1 or not fits or any(each.type not in _DTYPES for each in inputs):
            listed = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise UserError(
                f"{self.path} takes {listed}; expected numbers of tokens (texts, {self.text.length}), and at most an "
                f"{MASK} beside them, of up to {MOST_TEXTS} texts at a time."
            )

        return [
            (each.name, kind, _DTYPES[each.type], shape[0] if isinstance(shape[0], int) else 1)
            for each, kind, shape in zip(inputs, kinds, shapes, strict=True)
        ]


def prepared(text: str, *, canonicalise: bool) -> str:
    """Return a text with single spaces, and if it is canonicalised in small letters without punctuation.

    As `canonicalize_text` of big_vision, by which SigLIP was trained: ``_`` is a space.
    """
    text = text[:MOST_LETTERS].encode("utf-8", "replace").decode()
    if canonicalise:
        text = text.replace("_", " ").translate(_NO_PUNCTUATION).lower()
    return " ".join(text.split())
