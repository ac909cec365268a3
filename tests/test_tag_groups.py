"""Tags that mean the same are suggested by their spelling, their vectors and their images, for people to correct."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import visterm
from drawn_pictures import GROUPS
from test_search_grid import fitted
from visterm import Catalogue, Tagger
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_rules import Alias, TagRules
from visterm.library.dictionary import suggest_merges
from visterm.store.images import NewImage
from visterm.tagging.tag_groups import (
    DOUBLED,
    EXCHANGED,
    LEFT_OUT,
    PLURAL,
    SIMILAR_IMAGES,
    TWO_SLIPS,
    AliasPair,
    alias_pairs,
    aliases_of,
)

# -- pairs -------------------------------------------------------------------------------------------------------------


def test_sure_spellings_need_no_vectors_others_do():
    vocabulary = Vocabulary(["dog", "dogs", "forest", "forrest", "horse", "house"])
    assert alias_pairs(vocabulary, None) == [(0, 1, PLURAL, None), (2, 3, DOUBLED, None)]
    near, far = np.eye(6, 2, dtype=np.float32), np.eye(6, dtype=np.float32)
    near[4:] = [[0.6, 0.8], [0.8, 0.6]]
    assert (4, 5) in [pair[:2] for pair in alias_pairs(vocabulary, near)]
    assert (4, 5) not in [pair[:2] for pair in alias_pairs(vocabulary, far)]


def looking(means: dict[str, int], n_each: dict[str, int], seed: int = 0):
    """Return a vocabulary, Y and U of photos with one tag each, that look like what the tag means."""
    rng = np.random.default_rng(seed)
    looks = rng.normal(size=(max(means.values()) + 1, 16))
    lists = [[tag] for tag, n in n_each.items() for _ in range(n)]
    vocabulary = Vocabulary(list(n_each), list(n_each.values()))
    U = np.array([looks[means[tags[0]]] for tags in lists]) + rng.normal(size=(len(lists), 16))
    return vocabulary, sp.csr_array(vocabulary.encode(lists), dtype=np.float64), U.astype(np.float32)


def test_photos_that_differ_show_that_a_slip_is_another_word():
    # All but the last are a slip that the letters alone make likely, and each has 30 photos of its own.
    words = [
        "canyon",
        "canon",
        "pots",
        "post",
        "plage",
        "plane",
        "glass",
        "grass",
        "house",
        "horse",
        "desert",
        "dessert",
    ]
    vocabulary, Y, U = looking({word: n for n, word in enumerate(words)}, dict.fromkeys(words, 30))
    assert alias_pairs(vocabulary, None) != []
    assert alias_pairs(vocabulary, None, Y, U) == []


def test_few_photos_of_each_are_enough_to_tell_words_apart_that_are_a_slip_from_each_other():
    words = ["bride", "bridge", "back", "black", "puddle", "purple"]
    others = [f"{letter}{letter * 6}" for letter in "dfghjklmn"]
    means = {word: n for n, word in enumerate([*words, *others])}
    for n_photos in (3, 8):
        vocabulary, Y, U = looking(means, dict.fromkeys(words, n_photos) | dict.fromkeys(others, 20))
        assert alias_pairs(vocabulary, None) != []
        assert alias_pairs(vocabulary, None, Y, U) == []


def test_a_catalogue_suggests_merges_by_the_photos_that_people_tagged():
    means = {"bride": 0, "bridge": 1, "mountain": 2, "montain": 2, "tree": 3, "trees": 3, "lake": 4, "sea light": 5}
    n_each = {tag: 4 if tag in ("montain", "trees") else 40 for tag in means}
    used, Y, U = looking(means, {tag: n for tag, n in n_each.items() if tag != "trees"})
    tagger = fitted()
    tagger.parts = tagger.parts.changed(vocabulary=Vocabulary(list(means)))
    catalogue = Catalogue(tagger)
    tags = [used.tags[column] for column in Y.indices]
    photos = [NewImage(f"{i}.jpg", None, 1, 1, 1, f"{i:064d}", tags=(tag,)) for i, tag in enumerate(tags)]
    catalogue.stored.add(photos, U[:, :8])
    assert {alias.alias: alias.tag for alias in suggest_merges(catalogue)} == {"montain": "mountain"}
    assert suggest_merges(Catalogue(tagger)) == []


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array])
def test_photos_alike_show_that_a_slip_is_the_same_word(rows):
    words = {"canyon": 0, "cannyon": 0, "mountain": 1, "montain": 1, "bridge": 2, "brigde": 2, "castle": 3, "catsle": 3}
    others = {f"{letter}{letter * 6}": n for n, letter in enumerate("dfghjkl", start=4)}
    counts = {tag: 4 if n % 2 else 40 for n, tag in enumerate([*words, *others])}
    vocabulary, Y, U = looking(words | others, counts)
    found = {alias.alias: alias.tag for alias in aliases_of(vocabulary, alias_pairs(vocabulary, None, Y, rows(3 * U)))}
    assert found == {"cannyon": "canyon", "montain": "mountain", "brigde": "bridge", "catsle": "castle"}


def test_words_that_people_write_together_are_no_slip_of_each_other():
    lists = [["forest", "forrest"]] * 6 + [["sea"]] * 6
    vocabulary = Vocabulary(["forest", "forrest", "sea"], [6, 6, 6])
    Y = sp.csr_array(vocabulary.encode(lists), dtype=np.float64)
    U = np.eye(2, dtype=np.float32)[[0] * 6 + [1] * 6]
    assert alias_pairs(vocabulary, None, Y, U) == []


def test_in_a_large_dictionary_slips_must_be_nearer_than_other_words_are():
    # Words of three of 20 syllables, a quarter of all there are: hundreds differ in a letter. 60 have a misspelling,
    # near to them in vectors; the others are as near as they come.
    rng = np.random.default_rng(0)
    syllables = [one + other for one in "bdgklmnprt" for other in "ae"]
    words = ["".join(rng.choice(syllables, 3)) for _ in range(3000)]
    words = list(dict.fromkeys(words))[:2000]
    slips = {i: words[i][:3] + "u" + words[i][4:] for i in range(60)}
    V = rng.normal(size=(len(words), 30))
    V = np.concatenate([V, V[list(slips)] + rng.normal(size=(60, 30)) * 0.8]).astype(np.float32)
    pairs = alias_pairs(Vocabulary([*words, *slips.values()]), V)
    right = [pair.second == len(words) + pair.first for pair in pairs]
    assert sum(right) > 50
    assert np.mean(right) > 0.7


KINDS = {"sea": 0, "meer": 0, "wave": 0, "cow": 1, "kuh": 1}
"""What photos of each tag look like: two kinds."""


def by_photos(lists, names=tuple(KINDS)):
    """Return the pairs among the tags above, which may be called otherwise, on photos that look like the first."""
    kinds = dict(zip(names, KINDS.values(), strict=True))
    vocabulary = Vocabulary(names)
    Y = sp.csr_array(vocabulary.encode(lists), dtype=np.float64)
    looks = np.eye(2, dtype=np.float32)
    return alias_pairs(vocabulary, looks[list(kinds.values())], Y, looks[[kinds[tags[0]] for tags in lists]])


def test_tags_of_photos_alike_that_nobody_writes_together_are_found():
    # Half of the photos are of the sea, with "sea" or "meer"; half of these have "wave" as well, beside either.
    lists = [["sea", "wave"], ["sea"], ["meer", "wave"], ["meer"]] * 5 + [["cow"], ["kuh"]] * 10
    pairs = by_photos(lists)
    assert [(pair.first, pair.second, pair.reason) for pair in pairs] == [
        (0, 1, SIMILAR_IMAGES),
        (3, 4, SIMILAR_IMAGES),
    ]


def test_tags_that_stand_together_or_are_too_rare_to_do_so_are_not():
    together = [["sea", "meer"], ["sea"], ["meer"]] * 5 + [["cow"]] * 15
    assert by_photos(together) == []
    # Of 40 photos 4 have "sea" and 4 "meer": 0.4 should have both by chance, so that none says nothing.
    rare = [["sea"], ["meer"]] * 4 + [["cow"]] * 32
    assert by_photos(rare) == []


def test_spellings_of_a_word_are_looked_at_together():
    # "sea" and "wave" never stand together, but "seas" and "wave" do.
    lists = [["sea"], ["sea"], ["wave"], ["wave"]] * 5 + [["meer", "wave"]] + [["cow"]] * 20
    assert [pair[:2] for pair in by_photos(lists)] == [(0, 2)]
    plurals = [[tag.replace("meer", "seas") for tag in tags] for tags in lists]
    assert [pair.reason for pair in by_photos(plurals, ("sea", "seas", "wave", "cow", "kuh"))] == [PLURAL]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_group_is_called_by_its_most_frequent_tag():
    vocabulary = Vocabulary(["gull", "gulls", "segull", "Möwe", "sea"], [5, 9, 1, 2, 30])
    pairs = [AliasPair(0, 1, PLURAL, 0.5), AliasPair(0, 3, SIMILAR_IMAGES, 0.456)]
    assert aliases_of(vocabulary, pairs) == [
        Alias("gull", "gulls", "plural, 0.50"),
        Alias("Möwe", "gulls", "images alike, never together (as gull), 0.46"),
    ]
    assert aliases_of(vocabulary, []) == []


def test_slips_make_no_chain_and_plurals_go_to_their_own_singular():
    vocabulary = Vocabulary(["house", "horse", "horses", "hose"], [50, 30, 20, 10])
    pairs = [
        AliasPair(1, 2, PLURAL, 0.9),
        AliasPair(0, 1, EXCHANGED, 0.8),
        AliasPair(0, 2, TWO_SLIPS, 0.8),
        AliasPair(1, 3, LEFT_OUT, 0.8),
    ]
    assert [(alias.alias, alias.tag) for alias in aliases_of(vocabulary, pairs[:1])] == [("horses", "horse")]
    assert ("hose", "house") not in [alias[:2] for alias in aliases_of(vocabulary, pairs)]


# -- the command -------------------------------------------------------------------------------------------------------


FAST = "--encoder-set codebook=60 --encoder-set max_side=64 --encoder-set sample_blocks=8000"


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_library):
    """A run on the drawn library of 200 scenes, with another whose model has no vectors."""
    folder = tmp_path_factory.mktemp("tags")
    (folder / "library").symlink_to(small_library.folder)
    for out, model in (("run", "wsabie --set dim=10 --set epochs=4"), ("voted", "knn")):
        line = f"fit library/images --tags library/tags.csv -o {out} --model {model} {FAST}"
        code, _, err = visterm(line, folder)
        assert code == 0, err
    return folder


def test_suggestions_on_a_drawn_library_are_mostly_right(place):
    code, out, _ = visterm("tags run --suggest --json", place)
    found = [json.loads(line) for line in out.splitlines()]
    right = [GROUPS[item["alias"].casefold()] == GROUPS[item["tag"].casefold()] for item in found]
    assert code == 0
    assert len(found) >= 20
    assert np.mean(right) > 0.8


def test_suggestions_are_written_corrected_and_learned_by(place):
    with_images = "tags run library/images --tags library/tags.csv --suggest -o tags.toml"
    code, out, err = visterm(with_images, place)
    assert (code, out) == (0, "")
    assert "suggested in tags.toml; delete the lines that are wrong." in err
    aliases = TagRules.of(place / "tags.toml").aliases
    rows = {alias: tag for alias, tag in aliases.items() if GROUPS[alias.casefold()] == GROUPS[tag.casefold()]}
    lines = [f'"{alias}" = "{tag}"' for alias, tag in {**rows, "walruss": "walrus"}.items()]
    (place / "corrected.toml").write_text("\n".join(["[aliases]", *lines]), encoding="utf-8")
    model = "--model wsabie --set dim=10 --set epochs=2"
    line = f"fit library/images --tags library/tags.csv -o cleaned {FAST} {model} --tag-rules corrected.toml"
    code, _, err = visterm(line, place)
    assert code == 0, err
    n_tags = len(set(rows.values()))
    assert f"Aliases: {len(rows)} spellings of {n_tags} tags; 1 spelling (such as 'walruss = walrus') without a" in err
    before, after = Tagger.load(place / "run"), Tagger.load(place / "cleaned")
    assert len(after.vocabulary) == len(before.vocabulary) - len(rows)
    alias, tag = next(iter(rows.items()))
    assert after.vocabulary.counts[after.vocabulary.index(tag)] > before.vocabulary.counts[before.vocabulary.index(tag)]
    Catalogue(after).add(place / "library" / "images").save(place / "catalogue")
    by_alias, by_tag = (visterm(f'search catalogue "{word}" --json', place) for word in (alias, tag))
    assert by_alias[0] == 0
    assert by_alias[1] == by_tag[1]
    again = visterm("tags cleaned --suggest -o again.toml", place)
    assert again[0] == 0
    assert set(TagRules.of(place / "again.toml").aliases) >= set(rows)


def test_tags_are_listed_with_their_images_and_aliases(tmp_path):
    images = [f"{i}.jpg" for i in range(8)]
    tags = [["Möwe"], ["gull"], ["seagull"], *[["sea"]] * 5]
    tagger = Tagger(encoder="ids", model="prior").fit(
        images, tags, tag_rules={"aliases": {"Möwe": "gull", "seagull": "gull"}}
    )
    tagger.save(tmp_path / "run")
    assert visterm("tags run", tmp_path)[1].splitlines() == [
        "tag   learned from  aliases",
        "gull             3  Möwe, seagull",
        "sea              5",
    ]
    assert json.loads(visterm("tags run --json", tmp_path)[1].splitlines()[1]) == {
        "tag": "sea", "images": 5, "aliases": []
    }  # fmt: skip


def test_a_model_without_vectors_suggests_sure_spellings_and_says_so(place):
    code, out, err = visterm("tags voted --suggest", place)
    assert code == 0
    assert "The model has no tag vectors, so only certain spellings are suggested." in err
    assert out.splitlines()[0].split() == ["alias", "tag", "reason"]
    assert "plural" in out


@pytest.mark.parametrize("more", ["library/images", "--tags library/tags.csv", "-o a.toml"])
def test_what_belongs_to_suggestions_wants_them(more, place):
    code, _, err = visterm(f"tags run {more}", place)
    assert code == 2
    assert re.search(r"needs? --suggest", err)
    assert not Path(place / "a.toml").exists()
