"""WordNet's own files are found and read: the senses of words, what they are kinds of, and what their parts are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tiny_wordnet import LICENCE, write_wordnet
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.relations import sibling_sets
from visterm_research.data import wordnet as tag_senses
from visterm_research.data.wordnet import (
    WordNet,
    find_wordnet,
    is_a_relations,
    read_database,
    read_index,
    synset_offset,
)

SYNSETS = [
    ("entity", [], "that which exists"),
    ("animal", ["entity"], "a living thing"),
    ("bear", ["animal", "%p paw", "%s fur"], "a large mammal"),
    ("polar_bear ice_bear", ["bear"], "white bear of the Arctic | and more"),
    ("brown_bear", ["bear"], "a bear of the forest"),
    ("goose", ["animal"], "a water bird"),
    ("snow_goose", ["goose"], "a white goose"),
    ("peak", ["entity"], "a high place"),
    ("Everest Mount_Everest", ["@i peak"], "a mountain in the Himalayas"),
    ("close-up", ["entity"], "a photo taken at close range"),
    ("bear speculator", ["entity"], "one who expects prices to fall"),
    ("church", ["entity"], "a building"),
    ("paw", ["entity", "%p claw"], "a clawed foot"),
    ("claw", ["entity"], "a sharp nail"),
    ("fur", ["entity"], "dense hair"),
    ("flock", ["entity", "%m goose"], "a group of birds"),
]


@pytest.fixture
def folder(tmp_path):
    """A dict folder of a few synsets."""
    write_wordnet(tmp_path, SYNSETS, "geese goose\n")
    return tmp_path


@pytest.mark.parametrize(
    ("word", "lemma"),
    [
        ("polar bear", "polar_bear"),
        ("Polar  Bears", "polar_bear"),
        ("ICE_BEAR", "ice_bear"),
        ("geese", "goose"),
        ("snow geese", "snow_goose"),
        ("churches", "church"),
        ("mount everest", "mount_everest"),
        ("close-up", "close-up"),
        ("close up", "close-up"),
        ("polar-bear", "polar_bear"),
        ("s", None),
        ("penguin", None),
        ("", None),
    ],
)
def test_words_are_found_in_wordnet_in_the_plural_and_with_spaces(word, lemma, folder):
    assert WordNet(folder).lemma(word) == lemma


def test_senses_come_with_their_words_and_what_they_are_kinds_or_instances_of(folder):
    wordnet = WordNet(folder)
    first, second = wordnet.senses("bears")
    assert wordnet.synset(second).words == ("bear", "speculator")
    assert [wordnet.synset(h).words for h in wordnet.synset(first).hypernyms] == [("animal",)]
    everest = wordnet.synset(wordnet.senses("Everest")[0])
    assert everest.words == ("Everest", "Mount Everest")
    assert [wordnet.synset(h).words for h in everest.hypernyms] == [("peak",)]
    assert wordnet.senses("penguin") == []
    assert len(dict(read_index(wordnet.folder))) == 18


def test_relations_of_a_vocabulary_use_the_first_senses(folder):
    wordnet, tags = WordNet(folder), Vocabulary(["polar bears", "Brown bear", "bear", "geese", "penguin", "peak"])
    one = is_a_relations(wordnet, tags)
    assert [(child, parent.split(" [")[0]) for child, parent in one] == [
        ("polar bears", "bear"),
        ("Brown bear", "bear"),
        ("bear", "animal"),
        ("geese", "animal"),
        ("peak", "entity"),
    ]
    expected = np.eye(6)
    expected[[0, 1, 2, 3], [1, 0, 3, 2]] = 1
    np.testing.assert_array_equal(sibling_sets(one, tags).toarray(), expected)


@pytest.mark.parametrize("line", ["bear", "bear v 1 0 1 0 00000000", "bear n 2 1 @ 2 0 00000000", "bear n x 1 @ 1 0 1"])
def test_an_index_line_that_is_not_wordnets_is_named(line, folder):
    (folder / "index.noun").write_text(LICENCE + line + "\n")
    with pytest.raises(DataError, match=r"index\.noun, line 2: not in WordNet's format"):
        WordNet(folder)


def test_exceptions_and_offsets_that_do_not_fit_are_named(folder):
    with pytest.raises(DataError, match=r"data\.noun has no synset at byte 3"):
        WordNet(folder).synset(3)
    for offset in (-5, 10**9):
        with pytest.raises(DataError, match="of one version of WordNet"):
            WordNet(folder).synset(offset)
    (folder / "noun.exc").write_text("geese\n")
    with pytest.raises(DataError, match=r"noun\.exc, line 1: one word"):
        WordNet(folder)


def test_a_synset_has_parts_members_substances_a_gloss_and_an_id(folder):
    wordnet = WordNet(folder)

    def words(offsets):
        return [wordnet.synset(offset).words[0] for offset in offsets]

    bear, flock = (wordnet.synset(wordnet.senses(word)[0]) for word in ("bear", "flock"))
    assert words(bear.parts) == ["paw"]
    assert words(bear.substances) == ["fur"]
    assert words(flock.members) == ["goose"]
    assert (bear.members, flock.parts, flock.substances) == ((), (), ())
    assert bear.gloss == "a large mammal"
    assert wordnet.synset(wordnet.senses("polar bear")[0]).gloss == "white bear of the Arctic | and more"
    assert bear.id == f"n{bear.offset:08d}"
    assert len(bear.id) == 9


@pytest.mark.parametrize(
    ("text", "offset", "bare"),
    [
        ("n03358726", 3358726, 3358726),
        ("N03358726", 3358726, 3358726),
        ("03358726-n", 3358726, 3358726),
        ("03358726", None, 3358726),
        ("0015568", None, 15568),
        ("003358726", None, None),
        ("n3358726", None, None),
        ("v03358726", None, None),
        ("03358726-v", None, None),
        ("n٠٣٣٥٨٧٢٦", None, None),
        ("flash", None, None),
        ("", None, None),
    ],
)
def test_ids_of_synsets_are_told_from_words(text, offset, bare):
    assert synset_offset(text) == offset
    assert synset_offset(text, bare=True) == bare


def test_a_number_is_a_synsets_only_where_its_line_begins(folder):
    wordnet = WordNet(folder)
    (offset,) = wordnet.senses("goose")
    assert wordnet.has(offset)
    assert not any(map(wordnet.has, (offset + 1, offset - 1, -1, 0, 10**7)))


def test_wordnet_is_found_where_the_environment_says_or_at_the_usual_places(tmp_path, monkeypatch):
    for name in ("searched", "home/dict", "usual"):
        (tmp_path / name).mkdir(parents=True)
        write_wordnet(tmp_path / name, SYNSETS)
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    monkeypatch.delenv("WNHOME", raising=False)
    monkeypatch.setattr(tag_senses, "FOLDERS", (str(tmp_path / "none"), str(tmp_path / "usual")))
    assert find_wordnet() == tmp_path / "usual"
    monkeypatch.setenv("WNHOME", str(tmp_path / "home"))
    assert find_wordnet() == tmp_path / "home" / "dict"
    assert WordNet().folder == tmp_path / "home" / "dict"
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path / "searched"))
    assert find_wordnet() == tmp_path / "searched"
    assert find_wordnet(tmp_path / "usual") == tmp_path / "usual"
    assert find_wordnet(tmp_path / "home") == tmp_path / "home" / "dict"


def test_where_there_is_no_wordnet_the_message_says_what_brings_it(tmp_path, monkeypatch):
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    monkeypatch.delenv("WNHOME", raising=False)
    with pytest.raises(DataError, match=r"index\.noun cannot be read .* wordnet-base"):
        WordNet(tmp_path)
    monkeypatch.setattr(tag_senses, "FOLDERS", (str(tmp_path / "none"),))
    with pytest.raises(DataError, match=r"at none of its usual places .*none\).*wordnet-base"):
        WordNet()
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match=r"cannot be read from .*elsewhere"):
        WordNet()


def test_wordnets_nouns_are_read(wordnet_folder: Path):
    wordnet, tags = (
        WordNet(wordnet_folder),
        Vocabulary(["tuna", "salmon", "motorcar", "lorry", "polar bears", "brown bear"]),
    )
    bear = wordnet.synset(wordnet.senses("polar bears")[0])
    assert "ice bear" in bear.words
    S = sibling_sets(is_a_relations(wordnet, tags), tags).toarray()
    assert S[4, 5] == 1
    assert S[0, 2] == 0
    for synsets in map(wordnet.senses, ["people", "churches", "geese", "Paris"]):
        assert all(wordnet.synset(offset).hypernyms for offset in synsets)
    assert wordnet.synset(3358726).words == ("flash camera",)  # the paper's example of an id
    tree = wordnet.synset(wordnet.senses("tree")[0])
    assert {"trunk", "limb", "stump"} <= {word for part in tree.parts for word in wordnet.synset(part).words}


def test_what_is_no_file_of_a_fitting_size_is_refused_at_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "index.noun")
    (tmp_path / "data.noun").symlink_to("/dev/zero")
    (tmp_path / "noun.exc").write_text("geese goose\n")
    for name in ("index.noun", "data.noun"):
        with pytest.raises(DataError, match=rf"{name} cannot be read from .*no regular file of its size"):
            read_database(tmp_path, name)
    assert read_database(tmp_path, "noun.exc") == b"geese goose\n"
    monkeypatch.setattr(tag_senses, "MAX_FILE_BYTES", 5)
    with pytest.raises(DataError, match="no regular file of its size"):
        read_database(tmp_path, "noun.exc")
