"""Relations between words come from a CSV or from WordNet's own files, and say which tags are siblings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from visterm.core.errors import DataError, TooLargeError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data import relations
from visterm.data.relations import IsA, read_is_a, sibling_sets, write_is_a
from visterm.data.wordnet import DEBIAN, WordNet, is_a_relations, read_relations


def written(folder, text, name="isa.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("header", ["", "child,parent\n", "\ufeffChild , PARENT\r\n"])
def test_a_csv_of_two_words_a_line_is_read_with_a_header_or_without(header, tmp_path):
    path = written(tmp_path, header + 'toad, amphibian\n\n"frog, common",amphibian\n')
    assert read_is_a(path) == [IsA("toad", "amphibian"), IsA("frog, common", "amphibian")]


def test_a_header_may_name_more_columns_in_any_order_and_tabs_are_taken(tmp_path):
    assert read_is_a(written(tmp_path, "parent,sure,child\nfish,0.9,tuna\n")) == [IsA("tuna", "fish")]
    assert read_is_a(written(tmp_path, "tuna\tfish\n", "isa.tsv")) == [IsA("tuna", "fish")]


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
        read_is_a(written(tmp_path, text))


def test_a_file_that_is_absent_or_in_another_encoding_is_named(tmp_path):
    with pytest.raises(DataError, match=r"The is-a file .*none\.csv cannot be read"):
        read_is_a(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"isa\.csv is not UTF-8: line 2"):
        read_is_a(written(tmp_path, "child,parent\nécole,bâtiment\n", encoding="latin-1"))


def test_what_is_written_is_what_is_read(tmp_path):
    pairs = [IsA("frog, common", "amphibian"), IsA("école", 'a "building"')]
    write_is_a(tmp_path / "isa.csv", pairs)
    assert read_is_a(tmp_path / "isa.csv") == pairs


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
    monkeypatch.setattr(relations, "MAX_BYTES", 16)
    with pytest.raises(TooLargeError, match="up to 2 of one parent"):
        sibling_sets([("tuna", "fish"), ("salmon", "fish")], tags)


SYNSETS = [
    ("entity", [], "that which exists"),
    ("animal", ["entity"], "a living thing"),
    ("bear", ["animal"], "a large mammal"),
    ("polar_bear ice_bear", ["bear"], "white bear of the Arctic | and more"),
    ("brown_bear", ["bear"], "a bear of the forest"),
    ("goose", ["animal"], "a water bird"),
    ("snow_goose", ["goose"], "a white goose"),
    ("peak", ["entity"], "a high place"),
    ("Everest Mount_Everest", ["@i peak"], "a mountain in the Himalayas"),
    ("close-up", ["entity"], "a photo taken at close range"),
    ("bear speculator", ["entity"], "one who expects prices to fall"),
    ("church", ["entity"], "a building"),
]
LICENCE = "  1 This database was made up by hand for these tests, in WordNet's format.  \n"


def synset_line(at, place, words, hypernyms, gloss):
    names = words.split()
    pointers = [(h.split()[-1], "@i" if h.startswith("@i") else "@") for h in hypernyms] + [("entity", "~")]
    parts = [f"{at:08d} 05 n {len(names):02x}", *(f"{name} 0" for name in names), f"{len(pointers):03d}"]
    return " ".join([*parts, *(f"{symbol} {place[to]:08d} n 0000" for to, symbol in pointers), f"| {gloss}  \n"])


@pytest.fixture
def folder(tmp_path):
    """A dict folder of a dozen synsets: places do not change the lengths of lines, so that they are found first."""
    place, at = {}, len(LICENCE)
    zeros = {words.split()[0]: 0 for words, _, _ in SYNSETS}
    for words, hypernyms, gloss in SYNSETS:
        place.setdefault(words.split()[0], at)
        at += len(synset_line(0, zeros, words, hypernyms, gloss))
    data, senses = LICENCE, {}
    for words, hypernyms, gloss in SYNSETS:
        for word in words.split():
            senses.setdefault(word.lower(), []).append(len(data))
        data += synset_line(len(data), place, words, hypernyms, gloss)
    index = LICENCE + "".join(
        f"{word} n {len(there)} 2 @ ~ {len(there)} 0 {' '.join(f'{o:08d}' for o in there)}  \n"
        for word, there in sorted(senses.items())
    )
    written(tmp_path, data, "data.noun")
    written(tmp_path, index, "index.noun")
    written(tmp_path, "geese goose\n", "noun.exc")
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
    assert len(wordnet) == 14


def test_relations_of_a_vocabulary_use_the_first_senses_asked_for(folder):
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
    expected[[2, 5], [5, 2]] = 1  # a bear of the stock exchange and a peak are both entities
    np.testing.assert_array_equal(sibling_sets(is_a_relations(wordnet, tags, senses=2), tags).toarray(), expected)
    with pytest.raises(UserError, match="senses is 0"):
        is_a_relations(wordnet, tags, senses=0)


def test_relations_come_from_a_csv_or_from_a_folder_of_wordnet(folder, tmp_path):
    tags = ["polar bears", "Brown bear", "peak"]
    assert read_relations(folder, tags) == is_a_relations(WordNet(folder), tags)
    assert read_relations(written(tmp_path, "tuna,fish\n"), tags) == [IsA("tuna", "fish")]


def test_a_folder_without_wordnet_says_where_debian_has_it(tmp_path):
    with pytest.raises(DataError, match=r"index\.noun cannot be read .* wordnet-base"):
        WordNet(tmp_path)


@pytest.mark.parametrize("line", ["bear", "bear v 1 0 1 0 00000000", "bear n 2 1 @ 2 0 00000000", "bear n x 1 @ 1 0 1"])
def test_an_index_line_that_is_not_wordnets_is_named(line, folder):
    written(folder, LICENCE + line + "\n", "index.noun")
    with pytest.raises(DataError, match=r"index\.noun, line 2: not in WordNet's format"):
        WordNet(folder)


def test_exceptions_and_offsets_that_do_not_fit_are_named(folder):
    with pytest.raises(DataError, match=r"data\.noun has no synset at byte 3"):
        WordNet(folder).synset(3)
    for offset in (-5, 10**9):
        with pytest.raises(DataError, match="of one version of WordNet"):
            WordNet(folder).synset(offset)
    written(folder, "geese\n", "noun.exc")
    with pytest.raises(DataError, match=r"noun\.exc, line 1: one word"):
        WordNet(folder)


@pytest.mark.skipif(not (Path(DEBIAN) / "data.noun").is_file(), reason=f"WordNet (wordnet-base) is not in {DEBIAN}")
def test_debians_wordnet_is_read():
    wordnet, tags = WordNet(), Vocabulary(["tuna", "salmon", "motorcar", "lorry", "polar bears", "brown bear"])
    bear = wordnet.synset(wordnet.senses("polar bears")[0])
    assert "ice bear" in bear.words
    S = sibling_sets(is_a_relations(wordnet, tags), tags).toarray()
    assert S[4, 5] == 1
    assert S[0, 2] == 0
    for synsets in map(wordnet.senses, ["people", "churches", "geese", "Paris"]):
        assert all(wordnet.synset(offset).hypernyms for offset in synsets)
