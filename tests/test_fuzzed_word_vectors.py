"""Files of word vectors of any bytes are read, or refused with one line: 400 seeded cases of four forms."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from visterm.core.errors import DataError
from visterm.data.word_vectors import WordVectors, read_word_vectors, write_word_vectors

WORDS = ["dog", "cat", "ice cream", "é"]
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
SEED, CASES = 20_261_122, 100
EXTREMES = [b"-1", b"9" * 19, b"9" * 5000, b"1e999", b"nan", b"[" * 5000, b"\x00", b"\xff\xfe", b"\n", b" "]


def text(rows):
    return b"".join(b"%s %s\n" % (w.encode(), b" ".join(b"%g" % n for n in row)) for w, row in rows)


def sound_files(folder):
    write_word_vectors(folder / "own.safetensors", WordVectors(WORDS, ROWS))
    rows = list(zip(WORDS, ROWS.tolist(), strict=True))
    binary = b"".join(w.encode() + b" " + row.tobytes() for w, row in zip(WORDS, ROWS, strict=True))
    return {
        "glove.txt": text(rows),
        "fasttext.vec.gz": gzip.compress(b"4 3\n" + text(rows), mtime=0),
        "word2vec.bin": b"4 3\n" + binary,
        "own.safetensors": (folder / "own.safetensors").read_bytes(),
    }


def damaged(content, rng):
    """Flip bytes, cut a piece out, put an extreme in the place of a piece, or repeat one."""
    at, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    end = min(end, at + 12)
    kind = rng.integers(4)
    if kind == 0:
        flipped = np.frombuffer(content, np.uint8).copy()
        flipped[rng.integers(0, len(content), 3)] = rng.integers(0, 256, 3)
        return flipped.tobytes()
    middle = (b"", EXTREMES[rng.integers(len(EXTREMES))], content[at:end] * 50)[kind - 1]
    return content[:at] + middle + content[end:]


@pytest.mark.parametrize("name", ["glove.txt", "fasttext.vec.gz", "word2vec.bin", "own.safetensors"])
def test_word_vectors_of_any_bytes_are_read_or_refused_with_one_line(name, tmp_path):
    content, rng = sound_files(tmp_path)[name], np.random.default_rng(SEED)
    refused = []
    for number in range(CASES):
        path = tmp_path / name
        path.write_bytes(damaged(content, rng))
        try:
            vectors = read_word_vectors(path, ["dog", "ice cream"] if number % 2 else None)
        except DataError as error:
            refused.append(str(error))
        else:
            assert np.isfinite(vectors.matrix).all() or isinstance(vectors.matrix, np.memmap)
    assert 0 < len(refused) < CASES
    assert not any("\n" in message for message in refused)


def tensors(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def matrix(shape, dtype="F32", end=0):
    return {"vectors": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.safetensors", tensors(matrix([2**32, 2**32])), "not complete"),  # NumPy's product wraps round to 0
        ("a.safetensors", tensors(matrix([0, 10**30])), "not complete"),
        ("a.safetensors", tensors(b"[" * 100_000), "not a safetensors file"),
        ("a.safetensors", tensors(b'{"a": ' + b"9" * 5000 + b"}"), "not a safetensors file"),
        ("a.bin", b"9" * 5000 + b" 3\na 1 2 3\n", "says that it has 1,000,000,000,000 words"),
        ("a.bin", b"3 " + b"9" * 40 + b"\na 1 2 3\n", "numbers"),
        ("a.vec.gz", gzip.compress(b"1 3\na 1 2 3\n", mtime=0)[:12] + b"\xff" * 20, "cannot be unpacked"),
    ],
)
def test_sizes_that_no_file_has_are_refused_with_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_word_vectors(tmp_path / name)
