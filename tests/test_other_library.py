"""`visterm evaluate --map`: a run measured on a library whose tags have other names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import visterm as package
from command_line import visterm
from refusals import refused
from tiny_scenes import scene
from visterm import Tagger
from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_tree import TagTree
from visterm.evaluation.joined_tags import join_library, join_tags

KINDS = ("stripes", "dots")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that knows stripes, dots, red and wedding; another library with lines, dots, sea and red fish."""
    folder = tmp_path_factory.mktemp("other")
    for name, first, n in (("ours", 0, 24), ("theirs", 100, 16)):
        (folder / name).mkdir()
        for i in range(n):
            Image.fromarray(scene(KINDS[i % 2], first + i, (48, 32))).save(folder / name / f"{name}{i}.png")
    ours = [f"ours{i}.png,{KINDS[i % 2]};{('red', 'wedding')[i // 2 % 2]}" for i in range(24)]
    theirs = [f"theirs{i}.png,{('lines', 'Dots')[i % 2]};sea{';red fish' * (i == 3)}" for i in range(16)]
    for name, rows in (("ours", ours), ("theirs", theirs)):
        (folder / f"{name}.csv").write_text("\n".join(["image,tags", *rows]), encoding="utf-8")
    (folder / "words.csv").write_text("their_tag,run_tag\nLines,stripes\nnowhere,red\n", encoding="utf-8")
    corpus = Corpus.read(folder / "ours", folder / "ours.csv")
    Tagger(model="ridge", encoder_params={"codebook": 30}, n_jobs=1).fit(corpus).save(folder / "run")
    return folder


def ranked_right(folder):
    """Return of each of their photos whether its kind is ranked before the other, by the scores of `annotate`."""
    tagger = Tagger.load(folder / "run", n_jobs=1)
    paths = [folder / "theirs" / f"theirs{i}.png" for i in range(16)]
    orders = [[tag.tag for tag in tags] for _, tags in tagger.annotate(paths, k=4).images]
    return [order.index(KINDS[i % 2]) < order.index(KINDS[1 - i % 2]) for i, order in enumerate(orders)]


def test_only_joined_tags_are_ranked_and_what_is_left_out_is_counted(folder):
    code, out, err = visterm(
        "evaluate run theirs --tags theirs.csv --map words.csv --metric p@1 --metric map --json", folder
    )
    assert code == 0
    found = json.loads(out)
    right = np.array(ranked_right(folder))
    assert found["p@1"] == pytest.approx(right.mean())
    assert found["map"] == pytest.approx(np.where(right, 1, 0.5).mean())
    assert found["map"] > 0.7
    assert found["map"] != found["p@1"] or right.all()
    counts = {
        "their_tags": 4, "joined_by_name": 1, "joined_by_map": 1, "their_tags_left_out": ["sea", "red fish"],
        "run_tags": 4, "run_tags_ranked": 2, "map_without_photos": ["nowhere"], "given": 33, "given_left_out": 17,
    }  # fmt: skip
    assert found["map_counts"] == counts
    for line in (
        "Matched 2 of these photos' 4 tags with tags of the run: 1 by name, 1 by the map.",
        "Left out 2 tags of these photos, such as 'sea', 'red fish'.",
        "Left out 2 of the run's 4 tags: no tag of the photos matches.",
        "The map has 1 tag that no photo has, such as 'nowhere'.",
        "17 of 33 given tags are not joined and are not counted.",
    ):
        assert line in err


def test_python_measures_as_the_command_does_and_takes_a_mapping(folder):
    by_file, by_mapping = (
        package.evaluate(
            folder / "run", folder / "theirs", folder / "theirs.csv", map=words, metrics=["map", "word_map"], n_jobs=1
        )
        for words in (folder / "words.csv", {"lines": "stripes"})
    )
    assert (
        by_file.values["map"]
        == by_mapping.values["map"]
        == pytest.approx(np.where(ranked_right(folder), 1, 0.5).mean())
    )
    assert by_mapping.values["map_counts"]["map_without_photos"] == []
    assert by_file.summary["map_counts"] == by_file.values["map_counts"]
    assert by_file.summary["tags"] == 2


def test_names_alone_leave_out_what_only_a_map_would_join(folder):
    code, out, _ = visterm("evaluate run theirs --tags theirs.csv --map names --metric p@1 --json", folder)
    assert code == 0
    assert json.loads(out)["map_counts"]["their_tags_left_out"] == ["sea", "lines", "red fish"]
    assert json.loads(out)["p@1"] == 1  # dots is the only tag that is ranked


def test_searches_are_made_from_their_tags_in_the_words_of_the_run(folder):
    code, out, _ = visterm("evaluate run theirs --tags theirs.csv --map words.csv --queries tags --json", folder)
    found = json.loads(out)
    assert code == 0
    assert found["runs"][0]["kinds"]["all"]["queries"] == 2
    assert found["map_counts"]["joined_by_map"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lines,stripes\n", "has the columns lines, stripes; the map of tags needs their_tag,run_tag"),
        ("their_tag,run_tag\nlines,stripe\n", "line 2: Unknown tag 'stripe'. Did you mean 'stripes'?"),
        ("their_tag,run_tag\nlines,stripes\nLINES,dots\n", "'LINES' is mapped to 'dots', and above to 'stripes'"),
        ("run_tag,their_tag\nlines,stripes\n", "line 2: Unknown tag 'lines'"),
        ("their_tag,run_tag\nlines,\n", "the run_tag is empty"),
        ("their_tag,run_tag\n", "has no relations; expected lines such as 'puppy,dog'"),
    ],
)
def test_a_map_that_cannot_be_used_is_refused_with_its_line(text, message, folder, tmp_path):
    (tmp_path / "words.csv").write_text(text, encoding="utf-8")
    line = f"evaluate run theirs --tags theirs.csv --map {tmp_path / 'words.csv'}"
    code, _, err = visterm(line, folder)
    assert code != 0
    assert message in err


def test_columns_may_be_in_either_order_as_the_header_says(folder, tmp_path):
    (tmp_path / "words.csv").write_text("run_tag,their_tag\nstripes,lines\n", encoding="utf-8")
    line = f"evaluate run theirs --tags theirs.csv --map {tmp_path / 'words.csv'} --metric map --json"
    assert json.loads(visterm(line, folder)[1])["map_counts"]["joined_by_map"] == 1


def test_a_file_of_queries_has_no_map(folder):
    code, _, err = visterm("evaluate run theirs --tags theirs.csv --map words.csv --queries words.csv", folder)
    assert code != 0
    assert "--map and --queries do not go together" in err


def test_the_map_comes_before_names_and_is_not_followed_twice():
    ours = Vocabulary(["turkey", "bird"], aliases={"vogel": "bird"})
    joined = join_tags(ours, ["Turkey", "bird", "Vogel", "sea"], {"turkey": "bird", "bird": "turkey"})
    assert joined.run_columns.tolist() == [1, 0, 1, -1]
    assert joined.is_by_name.tolist() == [False, False, True, False]


def test_tags_above_a_joined_one_are_ranked_too():
    corpus = Corpus.of(["a", "b"], ["a", "b"], [["puppy"], ["sea"]])
    vocabulary = Vocabulary(["animal", "cat", "dog"])
    tree = TagTree([("dog", "animal"), ("cat", "animal")])
    assert join_library(vocabulary, corpus, {"puppy": "dog"}, tree).ranked_tags == ["dog", "animal"]
    assert join_library(vocabulary, corpus, {"puppy": "dog"}).ranked_tags == ["dog"]


def test_negatives_of_theirs_are_renamed_too():
    corpus = Corpus.of(["a", "b"], ["a", "b"], [["puppy", "-kitten"], ["dog", "puppy"]])
    found = join_library(Vocabulary(["cat", "dog"]), corpus, {"puppy": "dog", "kitten": "cat"})
    assert found.corpus.negatives == [["cat"], []]
    assert found.corpus.tags == [["dog"], ["dog"]]


def test_libraries_that_nothing_joins_are_refused():
    corpus = Corpus.of(["a"], ["a"], [["sea"]])
    with refused("map", value="names", error=DataError):
        join_library(Vocabulary(["dog"]), corpus, "names")
    with refused("map", value="cat"):
        join_library(Vocabulary(["dog"]), corpus, {"sea": "cat"})
