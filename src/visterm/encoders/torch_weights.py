"""Weights for torch networks: read from a file without running what it holds, and errors that name it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from visterm.core.errors import StorageError
from visterm.encoders.hub_cache import offline

_LENGTH = 400
"""Characters of a library's message that are passed on: lists of weights are long."""

# What torch, safetensors, timm and open_clip raise for files that are broken, hostile or of another network.
_ERRORS = (
    AssertionError,
    AttributeError,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)


@contextmanager
def reading_weights(path: str, what: str) -> Iterator[None]:
    """Turn whatever goes wrong with a weights file into one error, and download nothing.

    Parameters
    ----------
    path : str
        The file.
    what : str
        The network that it should be of.

    Raises
    ------
    StorageError
        If the file cannot be read, holds more than weights, or the weights of another network.
    """
    try:
        with offline():
            yield
    except _ERRORS as error:
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        text = text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
        raise StorageError(
            f"{path} cannot be used as the weights of {what}: {text}. "
            "Give the .safetensors or .pth file of this very network."
        ) from error
