"""Aliases: other spellings are read from a file, count as their tag when learning, and find it in searches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from visterm import Tagger
from visterm.core.errors import DataError, TagFileError
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_queries import QueryRow
from visterm.data.tag_rules import Alias, TagRules, write_draft
from visterm.evaluation.evaluate import shared_vocabulary
from visterm.evaluation.query_evaluation import queries_from_tags
from visterm.learning.relations import WordRelations

LISTS = [["Segull", "sea"], ["gull"], ["gull", "seagull"], ["Sea", "meer"], ["Meer"]]
ALIAS_IN_QUOTES = Alias('a "b" \\ é', "c", "odd letters")
ALIASES = {"segull": "Gull", "Seagull": "Gull", "meer": "sea", "baot": "boat"}


@pytest.fixture
def vocabulary():
    return Vocabulary.from_lists(LISTS, aliases=ALIASES)


def test_images_with_an_alias_have_the_tag_and_are_counted_once(vocabulary):
    assert vocabulary.tags == ["Gull", "sea"]
    assert vocabulary.counts.tolist() == [3, 3]
    assert vocabulary.encode(LISTS).toarray().tolist() == [[1, 1], [1, 0], [1, 0], [0, 1], [0, 1]]
    assert vocabulary.encode([["SEGULL", "baot"]]).nnz == 1


def test_aliases_of_tags_that_are_not_learned_are_left_out(vocabulary):
    assert vocabulary.aliases == {"segull": "Gull", "Seagull": "Gull", "meer": "sea"}
    assert Vocabulary.from_lists(LISTS, aliases={"gull": "sea"}, min_count=4).tags == ["sea"]


def test_searching_an_alias_finds_its_tag():
    vocabulary = Vocabulary(["dog", "t-shirt"], aliases={"chien": "dog", "tee shirt": "t-shirt"})
    query = vocabulary.query("Chien -tee shirt")
    assert query.known == ["dog", "t-shirt"]
    assert query.weights.toarray().tolist() == [[1, -1]]
    assert "CHIEN" in vocabulary


def test_a_vocabulary_with_aliases_is_saved_and_parted_whole(vocabulary):
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    assert vocabulary != Vocabulary(["Gull", "sea"], [3, 3])
    assert "aliases" not in Vocabulary(["Gull"]).to_json()  # as older programs read it
    sea = vocabulary.subset([1])
    assert (sea.tags, sea.counts.tolist(), sea.aliases) == (["sea"], [3], {"meer": "sea"})


@pytest.mark.parametrize(
    ("aliases", "message"),
    [({"sea": "gull"}, "but is a tag itself"), ({"x": "y"}, "which is not a tag"), ({" ": "sea"}, "or empty")],
)
def test_aliases_that_are_tags_or_of_no_tag_are_refused(aliases, message):
    with pytest.raises(DataError, match=message):
        Vocabulary(["gull", "sea"], aliases=aliases)


def test_what_is_written_is_read_with_chains_followed(tmp_path):
    path = tmp_path / "tags.toml"
    write_draft(
        path, [Alias("segull", "seagull", "misspelling"), Alias("Seagull", "gull", 'so "near"'), ALIAS_IN_QUOTES]
    )
    assert TagRules.of(path) == TagRules(aliases={"segull": "gull", "Seagull": "gull", 'a "b" \\ é': "c"})
    assert TagRules.of({"aliases": {"meer": "sea", "Meer": "Sea"}}).aliases == {"meer": "sea"}


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ({"meer": "sea", "Meer": "lake"}, "'Meer' means 'sea' and 'lake'"),
        ({"a": "b", "b": "c", "c": "a"}, "aliases mean each other: a → b → c → a"),
        ({"Sea": "sea"}, "'Sea' means itself"),
        ({"sea": ""}, "expected a table of spellings and tags"),
        (["sea"], "aliases is ['sea']; expected a table"),
    ],
)
def test_aliases_that_contradict_themselves_are_refused(aliases, message):
    with pytest.raises(TagFileError) as error:
        TagRules.of({"aliases": aliases})
    assert message in str(error.value)


def test_long_rows_of_aliases_are_followed_and_of_a_large_circle_the_ends_and_the_size_are_named():
    row = {f"a{i}": f"a{i + 1}" for i in range(50_000)}
    assert set(TagRules.of({"aliases": row}).aliases.values()) == {"a50000"}
    with pytest.raises(TagFileError, match=r"a0 → a1 → a2 → … → a49999 → a50000 → a0 \(50,001 aliases\)"):
        TagRules.of({"aliases": row | {"a50000": "a0"}})


def test_a_run_keeps_aliases_for_its_searches(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (32, 32, 3)).astype(np.uint8) for _ in LISTS]
    tagger = Tagger(encoder_params={"codebook": 10}, model="knn", n_jobs=1).fit(
        images, LISTS, tag_rules={"aliases": ALIASES}, calibrate=False
    )
    tagger.save(tmp_path / "run")
    run = Tagger.load(tmp_path / "run")
    assert run.vocabulary == Vocabulary.from_lists(LISTS, aliases=ALIASES)
    assert run.query_weights("segull").known == ["Gull"]
    assert run.facts["aliases"] == 3


def test_runs_are_measured_on_tags_whatever_they_are_called():
    cleaned = SimpleNamespace(vocabulary=Vocabulary.from_lists(LISTS, aliases=ALIASES))
    raw = SimpleNamespace(vocabulary=Vocabulary(["gull", "sea"]))
    shared = shared_vocabulary([cleaned, raw])
    assert shared.encode([["Seagull", "meer"]]).toarray().tolist() == [[1, 1]]
    texts, words, relevant, _ = queries_from_tags([cleaned, raw], [["segull"], ["Gull", "Meer"], ["sea"]], None, 1)
    assert texts == ["Gull", "sea", "Gull, sea"]
    assert relevant.toarray().tolist() == [[1, 1, 0], [0, 1, 1], [0, 1, 0]]
    assert all(of_run.toarray().tolist() == [[1, 0], [0, 1], [1, 1]] for of_run in words)


def test_words_of_queries_are_learned_by_what_they_mean():
    lines = [QueryRow("baot", "a", 1), QueryRow("boat", "b", 1), QueryRow("sea", "a", 1)]
    images = [np.full((32, 32, 3), value, np.uint8) for value in (40, 200)]
    corpus = Corpus.of(images, ["a", "b"], [[], []])
    tagger = Tagger(encoder_params={"codebook": 4}, model="pamir", n_jobs=1).fit(
        corpus, None, queries=lines, tag_rules={"aliases": {"baot": "boat"}}, calibrate=False
    )
    assert tagger.vocabulary == Vocabulary(["boat", "sea"], [2, 1], {"baot": "boat"})


def test_relations_of_an_alias_are_those_of_its_tag():
    vocabulary = Vocabulary(["animal", "dog"], aliases={"Hund": "dog", "dogs": "dog"})
    assert WordRelations((), [("hund", "Tier"), ("tier", "animal")]).ancestor_columns(vocabulary).tolist() == [[1, 0]]
    assert WordRelations((), [("dogs", "dog")]).ancestor_columns(vocabulary).tolist() == []
