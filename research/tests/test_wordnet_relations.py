"""WordNet says which tags are parts and kinds of others, and `visterm wordnet` writes it for the tag rules."""

from __future__ import annotations

import csv

import pytest
from typer.testing import CliRunner

from refusals import refused
from tiny_wordnet import write_wordnet
from visterm.cli.command_line import app
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data import part_pairs, sibling_sets
from visterm.data.relations import IS_A_FILE, PART_OF_FILE, read_related
from visterm_research.data.wordnet import WordNet, is_a_relations, match_tags, wordnet_part_of, write_relations

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


def test_parts_kinds_and_a_list_of_senses_to_correct_are_written(wordnet, tmp_path):
    (tmp_path / "words.txt").write_text("house\nWindow\ndoor\nhut\nspaceship\n", encoding="utf-8")
    line = ["wordnet", str(tmp_path / "words.txt"), "-o", str(tmp_path / "out"), "--wordnet", str(wordnet.folder)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "3 of 5 tags have a meaning in WordNet" in result.output
    assert sorted(read_related(tmp_path / "out" / "part_of.csv", PART_OF_FILE)) == [
        ("Window", "house"),
        ("door", "house"),
    ]
    assert {child for child, _ in read_related(tmp_path / "out" / "isa.csv", IS_A_FILE)} == {"house", "Window", "door"}

    senses = tmp_path / "out" / "tag_synsets.csv"
    with senses.open(encoding="utf-8", newline="") as file:
        assert [row["tag"] for row in csv.DictReader(file) if row["how"] == "none"] == ["hut", "spaceship"]
    (cottage,) = wordnet.senses("cottage")
    (tmp_path / "mapping.csv").write_text(f"tag,synset\nhut,{cottage}\n", encoding="utf-8")
    more = ["--tag-synsets", str(tmp_path / "mapping.csv"), "--inherit", "2"]
    assert CliRunner().invoke(app, [*line, *more]).exit_code == 0
    assert ("Window", "hut") in read_related(tmp_path / "out" / "part_of.csv", PART_OF_FILE)


def test_the_usual_place_is_used_and_unknown_tags_are_refused(wordnet, tmp_path, monkeypatch):
    monkeypatch.setenv("WNSEARCHDIR", str(wordnet.folder))
    assert write_relations(tmp_path / "out", ["house", "door"]).part_of == [("door", "house")]
    with pytest.raises(DataError, match="none of the tags as a part or a kind of another; 0 of 1 tags"):
        write_relations(tmp_path / "none", ["spaceship"])
    assert not (tmp_path / "none").exists()


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
