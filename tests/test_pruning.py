"""Pruning a dictionary: what is left out of what is learned, what is said of it, and that no other image goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusals import refused
from visterm.core.errors import DataError
from visterm.data import tag_rules
from visterm.data.corpus import Corpus
from visterm.data.tag_formats.tables import read_table


def corpus_of(*rows):
    """Make a corpus of (name, tags, split, user)."""
    names, tags, splits, users = zip(*rows, strict=True)
    corpus = Corpus.of(list(names), names, [text.split() for text in tags])
    return replace(corpus, splits=list(splits), users=list(users))


def prune(corpus, *, aliases=(), **rules):
    return tag_rules.prune(corpus, tag_rules.TagRules(**rules), dict(aliases))


def library(**tags):
    return corpus_of(*((name, text, None, None) for name, text in tags.items()))


def test_stop_tags_go_in_any_case_from_tags_and_negatives_and_no_image_does():
    pruned = prune(library(a="Canon sea", b="canon", c="-CANON sky"), stop_tags=["canon", "nikon"])
    assert pruned.corpus.tags == [["sea"], [], ["sky"]]
    assert pruned.corpus.negatives == [[], [], []]
    assert pruned.remarks == [
        "Stop tags: 1 tag of 2 images is not learned; 1 line (such as 'nikon') match no tag of the images."
    ]
    assert pruned.facts == {"stop tags": 1}


def test_a_stop_tag_takes_its_aliases_with_it_and_an_alias_goes_alone():
    photos = library(a="cannon sea", b="canon", c="cannon")
    aliases = {"Cannon": "Canon"}
    pruned = prune(photos, stop_tags=["canon"], aliases=aliases)
    assert pruned.corpus.tags == [["sea"], [], []]
    assert pruned.facts == {"stop tags": 1}
    assert prune(photos, stop_tags=["cannon"], aliases=aliases).corpus.tags == [["sea"], ["canon"], []]
    only_alias = prune(library(a="cannon sea"), stop_tags=["canon"], aliases=aliases)
    assert only_alias.remarks == ["Stop tags: 1 tag of 1 image is not learned."]


def test_of_the_same_tags_of_one_user_as_many_images_are_learned_as_are_wanted():
    bulk = [(f"p{i}", ("beach sea", "Sea beach")[i % 2], None, "bob") for i in range(9)]
    others = [("q", "beach sea", None, "ann"), ("r", "beach sea", None, None), ("s", "beach", None, "bob")]
    pruned = prune(corpus_of(*bulk[::-1], *others), per_user=3)
    # Of p0 to p8 the first, the middle one and the last, in the order that they were in.
    assert pruned.corpus.names == ["p8", "p4", "p0", "q", "r", "s"]
    assert pruned.remarks == [
        "Per user: 6 of 12 images left out, such as of 'bob', who gave 9 images the same tags; 1 image of unknown "
        "users all kept."
    ]
    assert pruned.facts == {"images left out per user": 6}
    assert prune(corpus_of(*bulk), per_user=1).corpus.names == ["p0"]
    assert prune(corpus_of(*bulk), per_user=8).corpus.names == ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p8"]
    assert prune(corpus_of(*bulk), per_user=9).remarks == ["Per user: 0 of 9 images left out."]


def test_stop_tags_and_aliases_make_uploads_alike_before_they_are_counted():
    rows = [("a", "sea x1", None, "bob"), ("b", "meer x2", None, "bob"), ("c", "sea sky", None, "bob")]
    pruned = prune(corpus_of(*rows), per_user=1, stop_tags=["x1", "x2"], aliases={"meer": "sea"})
    assert pruned.corpus.names == ["a", "c"]
    assert prune(corpus_of(*rows), per_user=1).corpus.names == ["a", "b", "c"]


def test_images_that_are_measured_on_are_never_left_out_and_do_not_count():
    rows = [(f"{split}{i}", "sea", split, "bob") for split in ("train", "valid", "test", None) for i in range(3)]
    rows += [("train9", "sky", "train", "bob")]
    pruned = prune(corpus_of(*rows), per_user=1)
    assert pruned.corpus.names == ["train0", *(name for name, _, split, _ in rows[3:])]
    assert prune(corpus_of(*rows), per_user=1, max_share=0.5).facts["too frequent tags"] == 0  # in 1 of 2
    assert len(prune(corpus_of(*rows), max_share=0.5).corpus) == 13


def test_tags_of_too_many_images_go_with_their_aliases():
    photos = library(a="photo sea", b="Foto sky", c="photo", d="sea", e="sea")
    pruned = prune(photos, max_share=0.59, aliases={"foto": "photo"})
    assert pruned.corpus.tags == [[], ["sky"], [], [], []]
    assert pruned.remarks == [
        "Too frequent: 2 tags on more than 0.59 of 5 images are not learned: 'photo' (3), 'sea' (3)."
    ]
    assert prune(photos, max_share=0.6, aliases={"foto": "photo"}).corpus.tags == photos.tags  # just as many


def test_where_no_tag_is_left_it_is_said_why():
    with pytest.raises(DataError, match=r"No tag is left to learn\. Stop tags: 2 tags of 2 images are not learned\."):
        prune(library(a="sea", b="sky"), stop_tags=["sea", "sky"])


def test_a_cap_for_each_user_needs_users():
    with refused("tag_rules", value=2, error=DataError):
        prune(library(a="sea"), per_user=2)


def table(tmp_path, text, name="tags.csv", **columns):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [row.user for row in read_table(path, **columns)]


def test_users_are_read_from_the_usual_columns(tmp_path):
    assert table(tmp_path, "image,tags,Owner\n1,sea, bob \n2,sea,\n") == ["bob", None]
    assert table(tmp_path, "image,tags\n1,sea\n") == [None]
    lines = '{"image": "1", "tags": "sea", "user": 7}\n{"image": "2", "tags": "sea", "user": {"b": 1, "a": 2}}\n'
    assert table(tmp_path, lines, "tags.jsonl") == ["7", '{"a": 2, "b": 1}']


def test_an_image_that_several_users_tagged_is_of_none_and_users_stay_with_their_images(tmp_path):
    (tmp_path / "tags.csv").write_text("image,tag,user\n1,sea,bob\n2,sea,ann\n1,sky,bob\n3,sea,ann\n3,sky,bob\n")
    corpus = Corpus.read_names(tmp_path / "tags.csv")
    assert corpus.users == ["bob", "ann", None]
    assert corpus.subset([2, 0]).users == [None, "bob"]
    assert Corpus.of(["a"], ["a"], [["sea"]]).users == [None]
