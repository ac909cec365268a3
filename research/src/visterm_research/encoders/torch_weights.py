"""Weights of torch networks from this machine: nothing is downloaded, and no code in a file of weights runs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError

from visterm.core.errors import StorageError

_LENGTH = 400  # Characters of a library's message that are passed on: lists of weights are long
# What torch, safetensors, timm and open_clip raise for files that are broken, hostile or of another network.
_ERRORS = (
    *(AssertionError, AttributeError, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError),
    *(SafetensorError, pickle.UnpicklingError),
)


def cached_file(repo: str, names: Sequence[str]) -> str | None:
    """Return the cached file of a hub repository: the first of `names` that is there; None if none is."""
    found = (try_to_load_from_cache(repo, name, cache_dir=constants.HF_HUB_CACHE) for name in names)
    return next((path for path in found if isinstance(path, str)), None)


@contextmanager
def offline() -> Iterator[None]:
    """Let the hub's client read its cache only: what is not there is an error at once, whatever the network."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def reading_weights(path: str, what: str) -> Iterator[None]:
    """Turn whatever goes wrong with the weights file of a network into one error, and download nothing.

    Raises StorageError if the file cannot be read, holds more than weights, or the weights of another network than
    `what`.
    """
    try:
        with offline():
            yield
    except _ERRORS as error:
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        text = text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
        raise StorageError(
            f"{path} cannot be used as the weights of {what}: {text}. "
            "Pass the .safetensors or .pth file of this very network."
        ) from error
