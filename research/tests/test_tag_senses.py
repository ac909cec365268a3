"""Tags are matched with synsets by a mapping, by their own id or by the first sense; a person can see and change it."""

from __future__ import annotations

import csv

import pytest

from tiny_wordnet import write_wordnet
from visterm.core.errors import DataError
from visterm_research.data.wordnet import WordNet, match_tags, read_mapping, write_mapping

SYNSETS = [
    ("entity", [], "that which exists"),
    ("crane", ["entity"], "lifts weights"),
    ("crane wading_bird", ["entity"], "a bird, tall"),
    ("tree", ["entity"], "a tall plant"),
    ("plate", ["entity"], "dishware; on which food is served"),
    ("license_plate number_plate", ["entity"], "a plate on a car"),
]


@pytest.fixture
def wordnet(tmp_path):
    write_wordnet(tmp_path / "dict", SYNSETS)
    return WordNet(tmp_path / "dict")


def written(folder, text, name="mapping.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def synset(wordnet, word, sense=0):
    return wordnet.synset(wordnet.senses(word)[sense])


def test_a_lemma_has_its_first_sense_and_the_others_are_there_to_choose(wordnet):
    senses = match_tags(wordnet, ["Cranes", "tree", "spaceship"])
    assert [(sense.tag, sense.how) for sense in senses] == [
        ("Cranes", "lemma"),
        ("tree", "lemma"),
        ("spaceship", "none"),
    ]
    (crane,) = senses.ambiguous
    assert crane.synset == synset(wordnet, "crane")
    assert crane.synset.gloss == "lifts weights"
    assert [(other.words, other.gloss) for other in crane.others] == [(("crane", "wading bird"), "a bird, tall")]
    assert senses.unmatched == ["spaceship"]
    assert senses.summary() == (
        "2 of 3 tags have a meaning in WordNet (2 by lemma); 1 have several senses, and the first one was taken."
    )


def test_a_tag_may_be_the_id_of_a_synset_and_a_number_alone_is_a_word(wordnet):
    bird = synset(wordnet, "crane", 1)
    number = f"{bird.offset:08d}"
    senses = match_tags(wordnet, [f"n{number}", f"{number}-n", number, "n99999999"])
    assert [sense.how for sense in senses] == ["id", "id", "none", "none"]
    assert [sense.synset for sense in senses] == [bird, bird, None, None]
    assert not senses.ambiguous


def test_a_mapping_goes_first_and_other_tags_are_looked_up(wordnet, tmp_path):
    bird, tree = synset(wordnet, "crane", 1), synset(wordnet, "tree")
    path = written(tmp_path, f"tag,synset\nCRANE,{bird.id}\n{tree.id},{bird.id}\nplate,\nlorry,{tree.id}\n")
    senses = match_tags(wordnet, ["crane", "tree", tree.id, "plate"], mapping=path)
    assert [(sense.synset, sense.how) for sense in senses] == [
        (bird, "mapping"),
        (tree, "lemma"),
        (bird, "mapping"),
        (None, "mapping"),
    ]
    assert senses.unmatched == ["plate"]
    assert not senses.ambiguous
    assert senses.summary().startswith("3 of 4 tags have a meaning in WordNet (2 by mapping, 1 by lemma)")


def test_tags_of_one_synset_are_found_together(wordnet):
    senses = match_tags(wordnet, ["number plate", "tree", "license plate", "spaceship"])
    assert senses.tags_by_synset() == {
        synset(wordnet, "license plate").offset: ["number plate", "license plate"],
        synset(wordnet, "tree").offset: ["tree"],
    }


def test_a_mapping_is_read_in_every_spelling_of_ids(tmp_path):
    text = "how,synset,tag\n?,n00000012,a\n?,00000012-n,b\n?,00000012,c\n?,0012,d e\n?,,f_g\n?,n00000012,A\n"
    mapped = read_mapping(written(tmp_path, text))
    assert {key: line.offset for key, line in mapped.items()} == {"a": 12, "b": 12, "c": 12, "d e": 12, "f g": None}
    tabs = read_mapping(written(tmp_path, "PASCAL-Part_class\tWDsynset\tYago\nLicense_plate\t0012\tx\t\n", "m.tsv"))
    assert [(key, line.tag, line.offset) for key, line in tabs.items()] == [("license plate", "License_plate", 12)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tag,synset\ncrane,v00000012\n", "line 2: 'v00000012' is not a noun's synset; expected .* n03358726"),
        ("crane,bird\n", "line 1: 'bird' is not a noun's synset"),
        ("crane,n00000012\ntree,12\nCrane,13\n", "line 3: 'Crane' is mapped to another synset than in .*, line 1"),
        ("tag,synset\n,n00000012\n", "line 2: the tag is empty"),
        ("crane\n", "line 1: 1 columns; expected 2, tag and synset"),
        ("tag,synset\n", "mapping of tags to synsets .* has no"),
    ],
)
def test_a_line_that_maps_nothing_is_named(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_mapping(written(tmp_path, text))


def test_a_mapping_of_other_tags_or_of_another_wordnet_is_refused(wordnet, tmp_path):
    path = written(tmp_path, "tree,n00000012\nlorry,n00000013\n")
    with pytest.raises(DataError, match=r"names none of the tags \(plate\); it has tree, lorry"):
        match_tags(wordnet, ["plate"], mapping=path)
    message = r"1 of the 1 synsets that .* are not in the WordNet .*line 1: tree n00000012\).*version"
    with pytest.raises(DataError, match=message):
        match_tags(wordnet, ["tree"], mapping=path)


@pytest.mark.parametrize("name", ["mapping.csv", "mapping.tsv"])
def test_what_is_written_can_be_corrected_and_read_again(name, wordnet, tmp_path):
    tags = ["crane", "plate, big", "spaceship", synset(wordnet, "tree").id]
    write_mapping(tmp_path / name, match_tags(wordnet, tags))
    again = match_tags(wordnet, tags, mapping=tmp_path / name)
    assert [sense.synset for sense in again] == [sense.synset for sense in match_tags(wordnet, tags)]
    assert {sense.how for sense in again} == {"mapping"}

    first, second = synset(wordnet, "crane"), synset(wordnet, "crane", 1)
    with (tmp_path / name).open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file, delimiter="\t" if name.endswith("tsv") else ","))
    assert row == {
        "tag": "crane",
        "synset": first.id,
        "how": "lemma",
        "words": "crane",
        "gloss": "lifts weights",
        "other_senses": f"{second.id} crane, wading bird: a bird, tall",
    }
    (tmp_path / name).write_text((tmp_path / name).read_text().replace(first.id, second.id, 1))
    assert next(iter(match_tags(wordnet, tags, mapping=tmp_path / name))).synset == second


@pytest.mark.shared
def test_pascal_parts_alignment_is_read(shared):
    mapped = read_mapping(shared / "data" / "pascal_part" / "WordNet_Yago_alignment.tsv")
    assert len(mapped) == 61
    assert mapped["license plate"].offset == 3666506
    assert mapped["person"].offset == 7846


@pytest.mark.shared
def test_pascal_parts_alignment_is_not_of_wordnet_3_0(shared, wordnet_folder):
    path = shared / "data" / "pascal_part" / "WordNet_Yago_alignment.tsv"
    with pytest.raises(DataError, match=r"59 of the 61 synsets .* Their numbers differ from version to version"):
        match_tags(WordNet(wordnet_folder), [line.tag for line in read_mapping(path).values()], mapping=path)
