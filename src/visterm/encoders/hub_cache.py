"""The model hub's cache on this machine: weights that are there are found, and nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from huggingface_hub import constants, try_to_load_from_cache


def cached_file(repo: str, names: Sequence[str]) -> str | None:
    """Find a file of a hub repository in the cache: the first of `names` that is there; None if none is."""
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
