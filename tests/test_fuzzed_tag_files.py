"""Any bytes in any reader of tags are read, or refused with one line that names the file: never a traceback."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from visterm.core.errors import VistermError
from visterm.core.vocabulary import Vocabulary, tag_fault
from visterm.data.relations import IS_A_FILE, read_related
from visterm.data.sidecars import Sidecars
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.record import merged_by_image
from visterm.data.tag_formats.tables import read_table, stream_table
from visterm.data.tag_queries import read_query_file
from visterm.data.tag_rules import TagRules
from visterm.data.text_files import read_words

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>{}</rdf:li></rdf:Bag>'
    "</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)
TABLES = [read_table, lambda path: list(stream_table(path))]
READERS = {
    "tags.csv": TABLES,
    "tags.tsv": TABLES,
    "tags.jsonl": TABLES,
    "tags": TABLES,
    "1.txt": [lambda path: find_tags("auto", path.parent).records],
    "1.jpg.xmp": [lambda path: Sidecars().keywords(path.with_name("1.jpg"))],
    "1.xmp": [lambda path: find_tags("xmp", path.parent).records],
    "1.jpg": [lambda path: Sidecars().keywords(path)],
    ".visterm_texts.jsonl": [lambda path: find_tags("auto", path.parent).records],
    "queries.csv": [read_query_file],
    "rules.toml": [TagRules.of],
    "kinds.tsv": [partial(read_related, form=IS_A_FILE)],
    "words.txt": [read_words],
}
"""Every reader of tags, by the name of the file that it reads."""

PIECES = (
    *("file_name", "tags", "image", "split", "user", "train", "1.jpg", "sea", "-sky", "=1", "'", '"', '""', ",", ";"),
    *("\t", "|", "\n", "\r", "\r\n", "\0", "\x1b", "\x85", "\u2028", "\u200b", "\ufeff", "é", "e\u0301", "🙂"),
    *("[", "]", "{", "}", ":", "null", "NaN", "1e999", "9" * 5000, "['a'", "[" * 500, "{" * 500, "\\", "\\ud800"),
    *('{"file_name": "1.jpg", "tags": ["a"]}', "x" * 300, "x" * 140_000, "<x>", "</x>", "&amp;", "&#0;", "&#x9b;"),
    *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "<?xml version='1.0' encoding='utf-16'?>"),
)


def texts():
    """Text of pieces that mean something to a reader; tables of them, JSON of anything, and XMP around them."""
    loose = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
    tables = st.tuples(st.sampled_from([",", "\t", ";", "|"]), st.lists(loose, max_size=4)).map(
        lambda parts: f"file_name{parts[0]}tags\n" + "\n".join(f"1.jpg{parts[0]}{cell}" for cell in parts[1])
    )
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    )
    names = st.sampled_from(["file_name", "tags", "image", "split", "query", "relevance", "file", "given", "length"])
    objects = st.lists(st.dictionaries(names, values | loose, max_size=4), max_size=3).map(
        lambda rows: "\n".join(map(json.dumps, rows))
    )
    return loose | tables | objects | loose.map(XMP.format)


CONTENTS = st.binary(max_size=200) | st.builds(
    lambda text, encoding: text.encode(encoding, "replace"),
    texts(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-32"]),
)


def check(folder: Path, name: str, content: bytes) -> None:
    """Read a file with all its readers."""
    for left in folder.iterdir():
        left.unlink()
    (folder / "1.jpg").touch()
    if name.startswith("."):
        (folder / "1.txt").write_bytes(b"sea\n")
    (folder / name).write_bytes(content)
    for read in READERS[name]:
        try:
            found = read(folder / name)
        except VistermError as error:
            message = str(error)
        else:
            message = name
            if name.startswith("tags"):
                check_tags(found)
        assert folder.name in message or name in message


def check_tags(found) -> None:
    """Whatever a table gives must be tags that every other place takes."""
    tags = [tag for row in found for tag in (*row.tags, *row.negatives)]
    assert [tag for tag in tags if tag_fault(tag) is not None] == []
    Vocabulary.from_lists([tags]).encode([tags])
    try:
        merged_by_image(found)
    except VistermError as error:
        assert "two splits" in str(error)  # noqa: PT017


QUICK = settings(
    max_examples=2000 // len(READERS), deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_in_a_line(name, tmp_path):
    @seed(20_261_122)
    @QUICK
    @given(CONTENTS)
    def holds(content):
        check(tmp_path, name, content)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_hundred_thousand_files_are_read_or_refused_in_a_line(name, tmp_path):
    @seed(20_261_123)
    @settings(QUICK, max_examples=100_000 // len(READERS))
    @given(CONTENTS)
    def holds(content):
        check(tmp_path, name, content)

    holds()
