"""Part-of relations come from files of two columns, and say which pairs of tags are related."""

from __future__ import annotations

import numpy as np
import pytest

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.relations import PART_OF_FILE, PartOf, part_pairs, read_related, write_pairs


def written(folder, text, name="part_of.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("header", ["", "part,whole\n", "\ufeffPart , WHOLE\n"])
def test_a_csv_of_part_and_whole_is_read_with_a_header_or_without(header, tmp_path):
    path = written(tmp_path, header + 'wheel, car\n\n"lamp, red",tower\n')
    assert read_related(path, PART_OF_FILE) == [PartOf("wheel", "car"), PartOf("lamp, red", "tower")]


def test_a_header_decides_the_order_and_tabs_are_taken(tmp_path):
    assert read_related(written(tmp_path, "whole,sure,part\ncar,0.9,wheel\n"), PART_OF_FILE) == [PartOf("wheel", "car")]
    assert read_related(written(tmp_path, "wheel\tcar\n", "part_of.tsv"), PART_OF_FILE) == [PartOf("wheel", "car")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wheel,car\ndoor\n", "line 2: 1 columns; expected 2, part and whole"),
        ("part,whole\nwheel,\n", "line 2: the whole is empty; expected two words, such as 'wheel,car'"),
        ("part,whole\n ,car\n", "line 2: the part is empty"),
        ("\ncar,Car\n", "line 2: 'car' is said to be part of itself"),
        ('wheel,"car\n', "line 1: unexpected end of data"),
        ("part,whole\n", "The part-of file .* has no relations"),
    ],
)
def test_a_line_that_is_no_relation_is_named(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_related(written(tmp_path, text), PART_OF_FILE)


@pytest.mark.parametrize("name", ["part_of.csv", "part_of.tsv"])
def test_what_is_written_is_what_is_read(name, tmp_path):
    relations = [PartOf("lamp, red", "tower"), PartOf("fenêtre", 'a "house"')]
    write_pairs(tmp_path / name, PART_OF_FILE.columns, relations)
    assert read_related(tmp_path / name, PART_OF_FILE) == relations


def test_pairs_are_columns_of_part_and_whole_sorted_and_once():
    tags = Vocabulary(["Car", "wheel", "licence plate", "École", "door"])
    relations = [
        ("door", "e\u0301cole"),
        ("WHEEL", "car"),
        ("wheel", "Car"),
        ("licence_plate", "car"),
        ("wheel", "lorry"),
        ("car", "wheel"),
    ]
    pairs = part_pairs(relations, tags)
    assert pairs.dtype == np.int64
    np.testing.assert_array_equal(pairs, [[0, 1], [1, 0], [2, 0], [4, 3]])


def test_a_tag_with_an_underscore_is_preferred_to_the_one_with_a_space():
    tags = Vocabulary(["licence plate", "licence_plate", "car"])
    np.testing.assert_array_equal(part_pairs([("licence_plate", "car")], tags), [[1, 2]])


def test_relations_of_other_words_are_refused_and_no_relations_are_no_pairs():
    tags = Vocabulary(["wheel", "car"])
    with pytest.raises(DataError, match=r"None of the part-of relations \(lens of camera\) .*wheel, car"):
        part_pairs([("lens", "camera")], tags)
    assert part_pairs([], tags).shape == (0, 2)
