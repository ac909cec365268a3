"""Is-a relations come from a CSV, and say which tags are siblings."""

from __future__ import annotations

import numpy as np
import pytest

from visterm.core.errors import DataError, TooLargeError
from visterm.core.vocabulary import Vocabulary
from visterm.data import relations
from visterm.data.relations import IS_A_FILE, read_related, sibling_sets, write_pairs


def written(folder, text, name="isa.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("header", ["", "child,parent\n", "\ufeffChild , PARENT\r\n"])
def test_a_csv_of_two_words_a_line_is_read_with_a_header_or_without(header, tmp_path):
    path = written(tmp_path, header + 'toad, amphibian\n\n"frog, common",amphibian\n')
    assert read_related(path, IS_A_FILE) == [("toad", "amphibian"), ("frog, common", "amphibian")]


def test_a_header_may_name_more_columns_in_any_order_and_tabs_are_taken(tmp_path):
    assert read_related(written(tmp_path, "parent,sure,child\nfish,0.9,tuna\n"), IS_A_FILE) == [("tuna", "fish")]
    assert read_related(written(tmp_path, "tuna\tfish\n", "isa.tsv"), IS_A_FILE) == [("tuna", "fish")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toad,amphibian\nfrog\n", "line 2: 1 columns; expected 2"),
        ("toad,amphibian\nfrog,a,b\n", "line 2: 3 columns; expected 2"),
        ("child,parent\ntoad,\n", "line 2: the parent is empty"),
        ("child,parent\n ,amphibian\n", "line 2: the child is empty"),
        ("\ntoad,Toad\n", "line 2: 'toad' is said to be a kind of itself"),
        ('toad,"amphibian\n', "line 1: unexpected end of data"),
        ("", "has no relations; expected lines such as 'tiger,big cat'"),
        ("child,parent\n", "has no relations"),
    ],
)
def test_a_line_that_is_no_relation_is_named(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_related(written(tmp_path, text), IS_A_FILE)


def test_a_file_that_is_absent_or_in_another_encoding_is_named(tmp_path):
    with pytest.raises(DataError, match=r"There is no is-a file .*none\.csv"):
        read_related(tmp_path / "none.csv", IS_A_FILE)
    with pytest.raises(DataError, match=r"isa\.csv is not UTF-8: line 2"):
        read_related(written(tmp_path, "child,parent\nécole,bâtiment\n", encoding="latin-1"), IS_A_FILE)


def test_what_is_written_is_what_is_read(tmp_path):
    pairs = [("frog, common", "amphibian"), ("école", 'a "building"')]
    write_pairs(tmp_path / "isa.csv", IS_A_FILE.columns, pairs)
    assert read_related(tmp_path / "isa.csv", IS_A_FILE) == pairs


def test_tags_that_share_a_parent_are_siblings_however_they_are_spelled():
    tags = Vocabulary(["Tuna", "École", "salmon", "sky", "hospital"])
    pairs = [
        ("tuna", "Fish"),
        ("SALMON", "fish"),
        ("e\u0301cole", "building"),
        ("Hospital", "building"),
        ("eel", "fish"),
    ]
    S = sibling_sets(pairs, tags).toarray()
    expected = np.eye(5)
    expected[[0, 2, 1, 4], [2, 0, 4, 1]] = 1
    np.testing.assert_array_equal(S, expected)


def test_a_tag_with_two_parents_is_a_sibling_of_the_children_of_both_and_parents_are_no_siblings():
    tags = Vocabulary(["tuna", "fish", "food", "bread"])
    S = sibling_sets(
        [("tuna", "fish"), ("tuna", "food"), ("bread", "food"), ("bread", "food"), ("fish", "animal")], tags
    )
    expected = np.eye(4)
    expected[[0, 3], [3, 0]] = 1
    np.testing.assert_array_equal(S.toarray(), expected)


def test_relations_of_other_words_and_parents_of_too_many_are_refused(monkeypatch):
    tags = Vocabulary(["tuna", "salmon"])
    with pytest.raises(DataError, match=r"None of the children in the is-a relations \(fish\) is a tag .*tuna, salmon"):
        sibling_sets([("fish", "tuna")], tags)
    monkeypatch.setattr(relations, "MAX_SIBLING_BYTES", 16)
    with pytest.raises(TooLargeError, match="up to 2 of one parent"):
        sibling_sets([("tuna", "fish"), ("salmon", "fish")], tags)
