"""Word vectors are read from the files that others publish, only the rows asked for, and become those of tags."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

from visterm.core.errors import DataError, ShapeError
from visterm.data.word_vectors import WordVectors, read_word_vectors, vectors_of_tags, write_word_vectors

WORDS = ["the", "dog", "Dog", "new_york", "été", "ice", "cream"]
ROWS = np.arange(21, dtype=np.float32).reshape(7, 3) / 4
"""Quarters, which float32 and their decimal texts both hold exactly."""


def lines(header="", end=""):
    return header + "".join(
        f"{word} {' '.join(map(str, row))}{end}\n" for word, row in zip(WORDS, ROWS.tolist(), strict=True)
    )


def binary(after=b"\n"):
    content = b"7 3\n"
    for word, row in zip(WORDS, ROWS, strict=True):
        content += word.encode() + b" " + row.astype("<f4").tobytes() + after
    return content


def words_as_bytes(words):
    return np.frombuffer("\n".join(words).encode(), np.uint8)


def write(folder, form):
    """Write the vectors above in one of the forms, and give the file."""
    texts = {
        "glove.txt": lines(),
        "fasttext.vec": lines("7 3\n", end=" "),
        "word2vec.txt": lines("7 3\n"),
        "tabs.tsv": lines().replace(" ", "\t"),
        "marked.txt": "\ufeff" + lines(),
        "windows.txt": lines("7 3\n").replace("\n", "\r\n"),
    }
    path = folder / form
    if form in texts:
        path.write_bytes(texts[form].encode())
    elif form == "fasttext.vec.gz":
        path.write_bytes(gzip.compress(texts["fasttext.vec"].encode()))
    elif form.endswith(".bin"):
        path.write_bytes(binary(b"" if form == "gensim.bin" else b"\n"))
    elif form == "own.safetensors":
        write_word_vectors(path, WordVectors(WORDS, ROWS))
    else:
        save_file({"embeddings": ROWS.astype(np.float16), "words": words_as_bytes(WORDS)}, path)
    return path


FORMS = [
    "glove.txt", "fasttext.vec", "word2vec.txt", "tabs.tsv", "marked.txt", "windows.txt", "fasttext.vec.gz",
    "word2vec.bin", "gensim.bin", "own.safetensors", "half.safetensors",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_all_words_and_numbers(form, tmp_path):
    vectors = read_word_vectors(write(tmp_path, form))
    assert vectors.words == WORDS
    assert vectors.matrix.dtype == np.float32
    assert np.array_equal(vectors.matrix, ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_rows_of_the_words_requested_are_kept(form, tmp_path):
    # "DOG" is "dog" and "Dog" in the file; of "ice cream" the file has the words; a tag nobody has is no error.
    vectors = read_word_vectors(write(tmp_path, form), ["DOG", "ice cream", "E\u0301te\u0301", "walrus"])
    assert vectors.words == ["dog", "Dog", "été", "ice", "cream"]
    assert np.array_equal(vectors.matrix, ROWS[[1, 2, 4, 5, 6]])


def test_no_word_requested_is_there(tmp_path):
    vectors = read_word_vectors(write(tmp_path, "glove.txt"), ["walrus"])
    assert (len(vectors), vectors.width) == (0, 3)


def test_a_matrix_of_float32_stays_on_disk(tmp_path):
    vectors = read_word_vectors(write(tmp_path, "own.safetensors"))
    assert isinstance(vectors.matrix, np.memmap)


@pytest.mark.parametrize("form", ["big.txt", "big.bin", "big.safetensors"])
def test_memory_does_not_grow_with_the_file(form, tmp_path):
    # Float32 vectors of 2,000 words × 250 take 2 MB; the words alone are 60 kB.
    path, words, matrix = tmp_path / form, [f"word{i}" for i in range(2000)], np.ones((2000, 250), np.float32)
    if form == "big.safetensors":
        write_word_vectors(path, WordVectors(words, matrix))
    elif form == "big.bin":
        rows = (word.encode() + b" " + row.tobytes() for word, row in zip(words, matrix, strict=True))
        path.write_bytes(b"2000 250\n" + b"".join(rows))
    else:
        path.write_text("".join(f"{word}{' 1' * 250}\n" for word in words))
    read_word_vectors(path, ["word1"])  # what is imported or cached now is not counted below
    tracemalloc.start()
    read_word_vectors(path, ["word7", "word1999"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_spellings_are_found_as_tags_are_the_same_one_first_then_small_letters():
    vectors = WordVectors(["DOG", "Dog", "dog", "PARIS", "New_York", "Straße"], np.zeros((6, 2), np.float32))
    assert [vectors.find(word) for word in ("Dog", "dOg", "paris", "new york", "STRASSE", " dog ")] == [
        1,
        2,
        3,
        4,
        5,
        2,
    ]
    assert vectors.find("étoile") is None
    assert vectors.find("new york") is not None


def test_a_tag_of_several_words_is_their_mean_and_its_own_vector_comes_first():
    vectors = WordVectors(
        ["ice", "cream", "t-shirt", "t", "shirt"], np.array([[1, 0], [0, 3], [5, 5], [9, 9], [9, 9]], np.float32)
    )
    rows, found = vectors_of_tags(
        vectors, ["Ice cream", "t-shirt", "ice-cream", "ice axe", "an ice axe", "walrus", "-"]
    )
    assert rows.dtype == np.float32
    assert rows.tolist() == [[0.5, 1.5], [5, 5], [0.5, 1.5], [1, 0], [0, 0], [0, 0], [0, 0]]
    # Of "ice axe" half of the words are known, of "an ice axe" a third.
    assert found.tolist() == [True, True, True, True, False, False, False]


def test_numbers_in_a_word_with_spaces_are_no_vector(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("a 0.5 1.5\ncatch 22 0.25 2.5\n", encoding="utf-8")
    assert read_word_vectors(path).words == ["a", "catch 22"]


def test_words_with_spaces_in_them_are_read_from_text(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    assert read_word_vectors(path).words == ["a", ". . .", "at name@domain.com"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"a 1 2\nb 1\n", "v.txt, line 2: 'b 1'; expected a word and 2 numbers"),
        ("v.txt", b"a 1 2\nb 1 x\n", "v.txt, line 2: '1 x'; expected 2 numbers after the word"),
        ("v.txt", b"a 1 2\nb  1\n", "v.txt, line 2: ' 1'; expected 2 numbers after the word"),
        ("v.txt", b"a 1 2\nb 1 nan\n", "v.txt, line 2: the vector has infinite or undefined numbers"),
        ("v.txt", b"a 1 2\nb 1 1e300\n", "v.txt, line 2: the vector has infinite or undefined numbers"),
        ("v.txt", b"2 2\na 1 2\n", "says that it has 2 words, but ends after 1"),
        ("v.txt", b"hello\n", "line 1: 'hello'; expected a word and its vector"),
        ("v.txt", b"a .1 .2\nb .1 .2 .3\n", "line 2: 'b .1 .2 .3'; it has more than 2 numbers"),
        ("v.txt", "a 1 2\n".encode("utf-16"), "is in UTF-16; expected UTF-8"),
        ("v.txt", b"\x89PNG\r\n\x1a\n", "line 1: "),
        ("v.txt", b"", "is empty"),
        ("v.zip", b"PK\x03\x04 ...", "is a zip file. Unpack it"),
        ("v.bin", b"\xba\x16\x4f\x2f\x0c\0\0\0", "its vectors as text"),
        ("v.bin", b"2 2\na " + bytes(8) + b"b " + bytes(7), "number 2 is not complete"),
        ("v.bin", b"1 1\na " + np.float32("inf").tobytes(), "byte 6: the vector has infinite"),
        ("v.vec.gz", b"no gzip", "cannot be unpacked"),
        ("v.safetensors", b"\xff" * 20, "is not a safetensors file"),
        ("v.safetensors", b"", "is not a safetensors file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_word_vectors(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_tensors_that_are_no_word_vectors_are_refused(tmp_path):
    path = tmp_path / "v.safetensors"
    for tensors, message in [
        ({"a": np.zeros((2, 2), np.float32), "b": np.zeros((2, 2), np.float32)}, "it has a, b"),
        ({"a": np.zeros(2, np.float32)}, "it has none"),
        ({"a": np.zeros((2, 2), np.int32)}, r"of the type I32 and the shape \[2, 2\]; expected F16, F32, F64"),
        ({"a": np.zeros((2, 2), np.float32)}, "has no tensor 'words'"),
        ({"a": np.zeros((2, 2), np.float32), "words": words_as_bytes("abc")}, "has 2 vectors, but 3 words"),
    ]:
        save_file(tensors, path)
        with pytest.raises(DataError, match=message):
            read_word_vectors(path)
    save_file({"a": np.zeros((2, 0), np.float32), "words": words_as_bytes("ab")}, path)
    with pytest.raises(DataError, match=r"'a' is of the type F32 and the shape \[2, 0\]"):
        read_word_vectors(path)
    save_file({"a": np.zeros((2, 2), np.float32), "words": words_as_bytes("ab")}, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="not complete"):
        read_word_vectors(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[1, 2]",
        b'{"vectors": "x"}',
        b'{"vectors": {"dtype": "F32"}}',
        b'{"vectors": {"dtype": "F32", "shape": [1, 1], "data_offsets": ["a", 4]}}',
        b'{"vectors": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        b'{"vectors": {"dtype": "F32", "shape": [1, 1], "data_offsets": [4, 0]}}',
    ],
)
def test_headers_that_name_no_tensors_are_refused(header, tmp_path):
    path = tmp_path / "v.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(DataError, match="is not a safetensors file, or not complete"):
        read_word_vectors(path)


def test_no_file_and_no_matrix_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist; expected GloVe, word2vec"):
        read_word_vectors(tmp_path / "glove.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_word_vectors(tmp_path)
    with pytest.raises(ShapeError, match="2 words, but vectors of shape"):
        WordVectors(["a", "b"], np.zeros((1, 3), np.float32))
    with pytest.raises(DataError, match="line feed"):
        write_word_vectors(tmp_path / "a.safetensors", WordVectors(["a\nb"], np.zeros((1, 3), np.float32)))
