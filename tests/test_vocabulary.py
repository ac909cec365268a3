"""Tags become columns the same way whatever their spelling, and a typed search becomes weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from visterm.core.errors import DataError, ShapeError, UnknownNameError, UserError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(["bear", "people", "polar bear", "polar bear cub", "snow", "tree"])


def test_tags_are_ordered_by_case_folded_spelling_and_counted_by_image():
    vocabulary = Vocabulary.from_lists([["tree", "Snow"], ["snow", "Äpfel", "tree", "tree"], ["snow"]])
    assert vocabulary.tags == ["snow", "tree", "Äpfel"]
    assert vocabulary.counts.tolist() == [3, 2, 1]
    assert list(vocabulary) == vocabulary.tags
    assert len(vocabulary) == 3


def test_the_most_frequent_spelling_is_shown_and_the_first_in_code_points_among_equals():
    assert Vocabulary.from_lists([["NYC"], ["nyc"], ["NYC"]]).tags == ["NYC"]
    assert Vocabulary.from_lists([["nyc"], ["NYC"]]).tags == ["NYC"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", "cafe\u0301"),
        ("Straße", "STRASSE"),
        ("polar bear", "  Polar \t\n bear "),
        ("polar bear", "polar\u00a0bear"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ŐZ", "o\u030bz"),
    ],
)
def test_spellings_of_one_tag_are_one_tag(one, other):
    vocabulary = Vocabulary.from_lists([[one], [other]])
    assert len(vocabulary) == 1
    assert vocabulary.counts.tolist() == [2]
    assert one in vocabulary
    assert vocabulary.index(other) == 0


@pytest.mark.parametrize(
    ("odd", "tag"),
    [
        ("se\u200ba", "sea"),
        ("\ufeffsea\u2060", "sea"),
        ("se\u00ada", "sea"),
        ("s\u200ce\u200da", "sea"),
        ("sea\ufe0f", "sea"),
        ("sea\U000e0041", "sea"),
        ("polar\u3164bear", "polar bear"),
        ("polar \u200b bear", "polar bear"),
        ("ก\u200bข", "กข"),
        ("🙂\u200c🙂", "🙂🙂"),
        ("🙂\u200d", "🙂"),
        ("کار\u200cخانه", "کارخانه"),  # the letter before it never joins the next
        ("می\u200c\u200cخواهم", "می\u200cخواهم"),
        ("می\u200c", "می"),
        ("س\u200d\u200bل", "سل"),
        ("कम\u200cल", "कमल"),
    ],
)
def test_what_nobody_sees_makes_no_second_tag(odd, tag):
    assert clean_tag(odd) == tag
    assert Vocabulary.from_lists([[odd], [tag]]).tags == [tag]
    assert Vocabulary([tag]).query([odd]).known == [tag]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("می‌خواهم", "میخواهم"),  # "I want", in two parts and joined
        ("क्‍ष", "क्ष"),  # half a letter, and a ligature
        ("র‍্যাব", "র্যাব"),
        ("ශ්‍රී", "ශ්රී"),
        ("ه‍", "ه"),  # joined as in a word, and alone
        ("👩‍💻", "👩💻"),
        ("👩🏽‍💻", "👩🏽💻"),
        ("🏳️‍🌈", "🏳️🌈"),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏴"),
        ("1️⃣", "1"),
    ],
)
def test_joiners_that_change_what_is_seen_tell_tags_apart(one, other):
    assert clean_tag(one) == one
    assert len(Vocabulary.from_lists([[one], [other]])) == 2


@pytest.mark.parametrize(("one", "other"), [("❤️", "❤"), ("葛\U000e0100城", "葛城")])
def test_a_variant_of_a_letter_is_shown_as_it_is_written_and_is_the_same_tag(one, other):
    assert clean_tag(one) == one
    assert len(Vocabulary.from_lists([[one], [other]])) == 1


@given(
    st.text()
    | st.text("سلام ایرانख्कষ্র\u200b\u200c\u200d\ufe0f🙂❤🏽1\u20e3\u180e\u180bᠮ葛\U000e0100\u115f\u1160\u1161\u00ad")
)
def test_the_key_of_a_key_is_itself(tag):
    assert clean_tag(clean_tag(tag)) == clean_tag(tag)
    assert tag_key(tag_key(tag)) == tag_key(tag)


@pytest.mark.parametrize("other", ["Sea", "se\u200ba", "\ufeffsea"])
def test_a_saved_dictionary_with_a_tag_in_two_spellings_is_refused(other):
    with pytest.raises(DataError, match="are one tag"):
        Vocabulary.from_json({"tags": ["sea", other], "counts": [1, 1]})


def test_rare_and_empty_tags_are_left_out():
    lists = [["sea", "", "  "], ["sea", "sky"], ["Sea"]]
    assert Vocabulary.from_lists(lists, min_count=2).tags == ["sea"]
    assert Vocabulary.from_lists(lists).tags == ["sea", "sky"]
    assert len(Vocabulary.from_lists([])) == 0


def test_the_order_of_images_does_not_matter():
    lists = [["b", "A"], ["a", "C"], ["B", "c"], ["a"]]
    assert Vocabulary.from_lists(lists) == Vocabulary.from_lists(lists[::-1])


def test_an_unknown_tag_is_an_error_with_the_nearest(vocabulary):
    assert vocabulary.get("snwo") is None
    assert "snwo" not in vocabulary
    assert 3 not in vocabulary
    with pytest.raises(UnknownNameError, match=r"Unknown tag 'snwo'\. Did you mean 'snow'\?"):
        vocabulary.index("snwo")


def test_rows_hold_what_is_given_and_what_is_explicitly_not(vocabulary):
    Y = vocabulary.encode([["Tree", "snow", "tree", "ufo"], []], [["snow", "people"], ["bear", "ufo"]])
    assert Y.dtype == np.float32
    assert Y.has_canonical_format
    assert Y.toarray().tolist() == [[0, -1, 0, 0, 1, 1], [-1, 0, 0, 0, 0, 0]]
    assert vocabulary.encode([["Tree", "ufo", " "], ["ufo"]]).nnz == 1


def test_no_images_give_no_rows(vocabulary):
    assert vocabulary.encode([]).shape == (0, 6)
    assert Vocabulary([]).encode([["a"], []]).shape == (2, 0)


def test_wrong_lists_are_errors(vocabulary):
    with pytest.raises(ShapeError, match="tags of 1 images, but negatives of 2"):
        vocabulary.encode([["snow"]], [[], []])
    with pytest.raises(DataError, match=r"'farms;house'; expected a list of tags, such as \['farms', 'house'\]\."):
        Vocabulary.from_lists(["farms;house"])
    with pytest.raises(DataError, match=r"the text 'snow'; expected a list of tags, such as \['snow'\]"):
        vocabulary.encode(["snow"])
    with pytest.raises(DataError, match="A tag is 7, of type int"):
        vocabulary.encode([[7]])
    with pytest.raises(DataError, match="'Snow' and 'snow' are one tag"):
        Vocabulary(["Snow", "snow"])
    with pytest.raises(DataError, match="column 1 is empty"):
        Vocabulary(["a", " "])
    with pytest.raises(DataError, match="2 tags, but counts of shape"):
        Vocabulary(["a", "b"], [1])
    with refused("min_count", value=0):
        Vocabulary.from_lists([], min_count=0)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("snow tree", {"snow": 1, "tree": 1}),
        ("  SNOW ,tree; ", {"snow": 1, "tree": 1}),
        ('snow tree -people "polar bear"', {"snow": 1, "tree": 1, "people": -1, "polar bear": 1}),
        ("polar bear", {"polar bear": 1}),
        ("polar bear cub", {"polar bear cub": 1}),
        ("polar bear bear", {"polar bear": 1, "bear": 1}),
        ("bear polar bear cub tree", {"bear": 1, "polar bear cub": 1, "tree": 1}),
        ("-polar bear snow", {"polar bear": -1, "snow": 1}),
        ('-"polar bear" snow', {"polar bear": -1, "snow": 1}),
        ("snow snow", {"snow": 2}),
        ('"snow', {"snow": 1}),
        (["polar bear", "-snow"], {"polar bear": 1, "snow": -1}),
        ("snow -", {"snow": 1}),
    ],
)
def test_a_search_becomes_weights_of_tags(vocabulary, search, expected):
    query = vocabulary.query(search)
    weights = {vocabulary.tags[i]: w for i, w in zip(query.weights.indices, query.weights.data, strict=True)}
    assert weights == expected
    assert query.weights.shape == (1, 6)
    assert query.weights.dtype == np.float32
    assert sorted(query.known) == sorted(expected)
    assert query.unknown == []


def test_a_comma_or_minus_between_words_keeps_them_apart(vocabulary):
    assert vocabulary.query("polar, bear").known == ["bear"]
    assert vocabulary.query("polar -bear").weights.toarray().tolist() == [[-1, 0, 0, 0, 0, 0]]


def test_unknown_words_are_told_beside_the_known(vocabulary):
    query = vocabulary.query('snow ufo -"flying saucer"')
    assert query.known == ["snow"]
    assert query.unknown == ["ufo", "flying saucer"]


def test_a_search_of_unknown_words_only_names_them_all_with_the_nearest_tags(vocabulary):
    with pytest.raises(UnknownNameError, match=r"'snwo'. Did you mean 'snow'\? .*'treee'. Did you mean 'tree'"):
        vocabulary.query("snwo treee")
    assert vocabulary.unknown_words(["SNWO"]) == "Unknown tag 'SNWO'. Did you mean 'snow'?"


@pytest.mark.parametrize("search", ["", "  ", '""', ",;", "-", [], [" "]])
def test_an_empty_search_is_an_error(vocabulary, search):
    with refused("words", value=search):
        vocabulary.query(search)


@given(st.text(alphabet='ab -",;\u00a0'))
def test_any_typing_gives_a_query_or_a_clear_error(text):
    vocabulary = Vocabulary(["a", "a b", "b a b"])
    try:
        query = vocabulary.query(text)
    except UserError:
        return
    assert query.known


def test_a_vocabulary_survives_json():
    vocabulary = Vocabulary.from_lists([["Äpfel", "sea"], ["sea"]])
    assert Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary


def test_a_long_list_of_tags_is_not_printed_whole():
    vocabulary = Vocabulary([f"tag {i}" for i in range(5000)])
    with pytest.raises(UnknownNameError) as caught:
        vocabulary.index("ヨット")
    assert len(str(caught.value)) < 1000


def test_tags_with_quotes_and_commas_are_found_as_the_error_says_to_type_them():
    vocabulary = Vocabulary(['sea"x', "salt, pepper", '"небо"', "sea"])
    assert vocabulary.query('"sea""x" -"salt, pepper"').weights.toarray().tolist() == [[1, -1, 0, 0]]
    assert vocabulary.query('"""небо"""').known == ['"небо"']
    with pytest.raises(UnknownNameError, match='Type it as """небо"""\\.'):
        vocabulary.query('"небо"')
    with pytest.raises(UnknownNameError, match='Type it as "salt, pepper"\\.'):
        vocabulary.query("salt,pepper")


@pytest.mark.parametrize("search", ['sea"x', 'snow 12" sea'])
def test_a_single_quote_within_a_word_is_an_error_and_not_half_a_search(search):
    with refused("words", value=search):
        Vocabulary(["sea", "snow", "x"]).query(search)


def test_a_phrase_that_the_search_ends_loses_nothing():
    assert Vocabulary(["sea", "polar bear"]).query('sea -"polar bear').weights.toarray().tolist() == [[1, -1]]


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ("golden retriever", [("golden retriever", 1)]),
        ("dog on a beach", [("on a beach", 1)]),
        ("on dog beach", [("on", 1), ("beach", 1)]),
        ("golden, retriever", [("golden", 1), ("retriever", 1)]),
        ('golden "big retriever"', [("golden", 1), ("big retriever", 1)]),
        ("-golden retriever beach", [("golden", -1), ("retriever beach", 1)]),
        ("golden -retriever", [("golden", 1), ("retriever", -1)]),
    ],
)
def test_words_in_a_row_that_are_no_tags_may_be_one_phrase(typed, missing):
    vocabulary = Vocabulary(["dog", "polar bear"])
    assert [(word.text, word.sign) for word in vocabulary.parse(typed, phrases=True)[1]] == missing
    alone = " ".join(text for text, _ in missing).split()
    assert [part for word in vocabulary.parse(typed)[1] for part in word.text.split()] == alone
