"""Whatever file people name, a pipe, a device or a file without end is refused at once, and memory stays free."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from visterm.cli.serve import _read_token
from visterm.core.errors import VistermError
from visterm.core.persist import read_json
from visterm.data.contents import content_hash, exif_of
from visterm.data.feature_files import read_features
from visterm.data.feature_shards import read_shard
from visterm.data.images import image_size, read_image
from visterm.data.relations import IS_A_FILE, read_related
from visterm.data.sidecars import Sidecars, content_of, embedded_keywords
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.tables import read_table, stream_table
from visterm.data.tag_queries import read_query_file
from visterm.data.tag_rules import TagRules
from visterm.data.text_files import read_text, read_words
from visterm.data.word_vectors import read_word_vectors
from visterm.data.xmp.keywords import Keywords
from visterm.encoders.onnx_graph import network_hash, read_network
from visterm.encoders.onnx_settings import settings_beside
from visterm.learning.tune import TrialLog


@pytest.fixture(autouse=True)
def _never_waits():
    """End a test that waits for a pipe, which nothing else would."""

    def end(*_):
        raise AssertionError("it waits for a pipe, or reads without end")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse: takes no room


READERS = {
    "tags.csv": read_table,
    "list.txt": read_text,
    "words.txt": read_words,
    "queries.csv": read_query_file,
    "tags.toml": TagRules.of,
    "kinds.csv": partial(read_related, form=IS_A_FILE),
    "vectors.safetensors": read_word_vectors,
    "a.npy": read_features,
    "a.npz": read_features,
    "photo.xmp": content_of,
    "run.json": read_json,
    "tune.jsonl": TrialLog,
    "token.txt": _read_token,
    "network.json": lambda path: settings_beside(path.with_suffix(".onnx")),
    "network.onnx": read_network,
}


@pytest.mark.parametrize("make", [pipe, endless, huge])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_of_a_fitting_size_is_refused_at_once(name, make, tmp_path):
    make(tmp_path / name)
    with pytest.raises(VistermError) as refused:
        READERS[name](tmp_path / name)
    assert str(tmp_path / name.partition(".")[0]) in str(refused.value) or str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("make", [pipe, endless])
@pytest.mark.parametrize(
    "read",
    [read_image, image_size, network_hash, read_features, read_shard, read_word_vectors, lambda p: [*stream_table(p)]],
)
@pytest.mark.parametrize("name", ["a.parquet"])
def test_what_is_read_part_by_part_must_be_a_regular_file_too(read, make, name, tmp_path):
    make(tmp_path / name)
    with pytest.raises(VistermError):
        read(tmp_path / name)


@pytest.mark.parametrize("make", [pipe, endless])
def test_an_image_that_is_none_has_no_date_no_hash_and_no_keywords(make, tmp_path):
    make(tmp_path / "1.jpg")
    assert exif_of(tmp_path / "1.jpg").taken is None
    assert content_hash(tmp_path / "1.jpg") is None
    assert embedded_keywords(tmp_path / "1.jpg") == Keywords([], [])


@pytest.mark.parametrize("make", [pipe, endless, huge])
def test_a_sidecar_that_is_no_file_leaves_out_its_image_and_says_so(make, tmp_path):
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).touch()
    make(tmp_path / "1.jpg.xmp")
    (tmp_path / "2.jpg.xmp").write_text(XMP, encoding="utf-8")
    assert [row.image for row in find_tags("xmp", tmp_path).records] == ["2.jpg"]
    with pytest.raises(VistermError, match=r"1\.jpg\.xmp"):
        Sidecars().keywords(tmp_path / "1.jpg")


XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>sea</rdf:li></rdf:Bag>
</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"""
