"""Part-of relations come from files of two columns or of lists, and say which pairs of tags are related."""

from __future__ import annotations

import numpy as np
import pytest

from refusals import refused
from tiny_wordnet import write_wordnet
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.part_of import PART_OF_FILE, PartOf, part_pairs, read_part_of, read_part_relations, wordnet_part_of
from visterm.data.relations import sibling_sets, write_pairs
from visterm.data.tag_senses import WordNet, is_a_relations, match_tags

SYNSETS = [
    ("entity", [], "that which exists"),
    ("building", ["entity", "%p window", "%p door"], "has walls and a roof"),
    ("house home", ["building", "%p chimney"], "a building to live in"),
    ("cottage", ["house"], "a small house"),
    ("window", ["entity", "%p pane"], "lets light in"),
    ("porthole", ["window"], "a round window"),
    ("door", ["entity"], "is opened and closed"),
    ("chimney", ["entity", "%s brick"], "lets smoke out"),
    ("brick", ["entity"], "a block of clay"),
    ("village", ["entity", "%m house"], "a group of houses"),
    ("pane", ["entity"], "a sheet of glass"),
    ("Versailles", ["@i building"], "a palace"),
]


def written(folder, text, name="part_of.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("header", ["", "part,whole\n", "\ufeffPart , WHOLE\n"])
def test_a_csv_of_part_and_whole_is_read_with_a_header_or_without(header, tmp_path):
    path = written(tmp_path, header + 'wheel, car\n\n"lamp, red",tower\n')
    assert read_part_of(path) == [PartOf("wheel", "car"), PartOf("lamp, red", "tower")]


def test_a_header_decides_the_order_and_tabs_are_taken(tmp_path):
    assert read_part_of(written(tmp_path, "whole,sure,part\ncar,0.9,wheel\n")) == [PartOf("wheel", "car")]
    assert read_part_of(written(tmp_path, "wheel\tcar\n", "part_of.tsv")) == [PartOf("wheel", "car")]


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
        read_part_of(written(tmp_path, text))


@pytest.mark.parametrize("name", ["part_of.csv", "part_of.tsv"])
def test_what_is_written_is_what_is_read(name, tmp_path):
    relations = [PartOf("lamp, red", "tower"), PartOf("fenêtre", 'a "house"')]
    write_pairs(tmp_path / name, PART_OF_FILE.columns, relations)
    assert read_part_of(tmp_path / name) == relations


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


@pytest.fixture
def wordnet(tmp_path):
    write_wordnet(tmp_path / "dict", SYNSETS)
    return WordNet(tmp_path / "dict")


def of(wordnet, tags, **options):
    return [" of ".join(relation) for relation in wordnet_part_of(wordnet, match_tags(wordnet, tags), **options)]


def test_wholes_inherit_parts_over_so_many_steps_of_is_a(wordnet):
    tags = ["cottage", "windows", "chimney", "building"]
    assert of(wordnet, tags, inherit=0) == ["windows of building"]
    assert of(wordnet, tags) == of(wordnet, tags, inherit=1) == ["chimney of cottage", "windows of building"]
    two = ["chimney of cottage", "windows of cottage", "windows of building"]
    assert of(wordnet, tags, inherit=2) == two
    assert of(wordnet, tags, inherit=None) == two


def test_instances_inherit_too(wordnet):
    assert of(wordnet, ["door", "Versailles"]) == ["door of Versailles"]


def test_parts_are_not_inherited_on_the_parts_side_nor_from_part_to_part(wordnet):
    assert of(wordnet, ["porthole", "building"], inherit=None) == []
    assert of(wordnet, ["pane", "house"], inherit=None) == []


def test_tags_of_one_synset_have_the_same_relations_and_unmatched_tags_none(wordnet):
    assert of(wordnet, ["home", "house", "chimneys", "chimney", "spaceship"]) == [
        "chimneys of home",
        "chimney of home",
        "chimneys of house",
        "chimney of house",
    ]


def test_a_part_that_is_a_kind_of_its_whole_is_no_part_of_itself_or_its_synonyms(tmp_path):
    write_wordnet(tmp_path / "dict", [("house", ["house", "%p annexe"], ""), ("annexe extension", ["house"], "")])
    tags = ["house", "annexe", "extension"]
    assert of(WordNet(tmp_path / "dict"), tags) == ["annexe of house", "extension of house"]


def test_members_and_substances_are_parts_if_one_asks(wordnet):
    tags = ["village", "house", "chimney", "brick"]
    assert of(wordnet, tags) == ["chimney of house"]
    assert of(wordnet, tags, meronyms=("members", "substances")) == ["house of village", "brick of chimney"]


def test_a_circle_of_kinds_ends(tmp_path):
    write_wordnet(tmp_path / "dict", [("hen", ["egg", "%p beak"], ""), ("egg", ["hen"], ""), ("beak", ["hen"], "")])
    assert of(WordNet(tmp_path / "dict"), ["egg", "beak"], inherit=None) == ["beak of egg"]


@pytest.mark.parametrize("inherit", [-1, 1.5, True, "all"])
def test_an_inheritance_that_is_no_number_of_steps_is_refused(inherit, wordnet):
    with refused("inherit", value=inherit):
        of(wordnet, ["house"], inherit=inherit)


def test_other_meronyms_are_refused(wordnet):
    with refused("meronyms", value="pieces"):
        of(wordnet, ["house"], meronyms=["pieces"])


def test_relations_come_from_a_file_or_from_wordnet_with_how_tags_were_matched(wordnet, tmp_path):
    tags = Vocabulary(["house", "door", "window", "home planet"])
    path = written(tmp_path, "door,house\nwheel,car\n")
    found = read_part_relations(path, tags)
    assert found.relations == [PartOf("door", "house"), PartOf("wheel", "car")]
    np.testing.assert_array_equal(part_pairs(found.relations, tags), [[1, 0]])
    assert (found.senses, found.wordnet) == (None, None)

    found = read_part_relations(wordnet.folder, tags)
    assert found.relations == [PartOf("window", "house"), PartOf("door", "house")]
    np.testing.assert_array_equal(part_pairs(found.relations, tags), [[1, 0], [2, 0]])
    assert found.wordnet.folder == wordnet.folder
    assert found.senses is not None
    assert found.senses.unmatched == ["home planet"]


def test_wordnet_at_its_usual_place_a_mapping_and_the_depth_are_used(wordnet, tmp_path, monkeypatch):
    tags = Vocabulary(["hut", "window"])
    (cottage,) = wordnet.senses("cottage")
    mapping = written(tmp_path, f"tag,synset\nhut,{cottage}\n", "mapping.csv")
    monkeypatch.setenv("WNSEARCHDIR", str(wordnet.folder))
    found = read_part_relations(None, tags, mapping=mapping, inherit=2)
    assert found.relations == [PartOf("window", "hut")]
    assert found.wordnet.folder == wordnet.folder
    with pytest.raises(DataError, match=r"none of the tags as a part of another; 2 of 2 tags have a meaning"):
        read_part_relations(None, tags, mapping=mapping, inherit=1)


@pytest.mark.shared
def test_corel5ks_tags_have_twenty_direct_pairs_and_129_pairs_of_siblings(shared, wordnet_folder):
    tags = Vocabulary((shared / "data" / "corel5k" / "words.txt").read_text(encoding="utf-8").split())
    wordnet = WordNet(wordnet_folder)
    senses = match_tags(wordnet, tags)
    direct = wordnet_part_of(wordnet, senses, inherit=0)
    assert len(tags) == 374
    assert len(direct) == len(part_pairs(direct, tags)) == 20
    assert {("window", "buildings"), ("trunk", "tree"), ("antlers", "deer")} <= set(direct)
    assert (sibling_sets(is_a_relations(wordnet, tags), tags).nnz - 374) / 2 == 129
    inherited = wordnet_part_of(wordnet, senses)
    assert ("window", "house") in inherited
    assert set(direct) < set(inherited)
