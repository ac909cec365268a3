"""`fit` and `tune` that clean a dictionary first, and the device of networks: what is said and what is kept."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import visterm
from refusals import refused
from visterm import Tagger
from visterm.cli.command_line import app
from visterm.core.errors import TagFileError
from visterm.data.tag_rules import TagRules
from visterm.learning.fit_request import FitRequest

ROWS = [
    *(f"{i},sea;photo,bob" for i in range(6)),
    "7,sky;photo,ann",
    "8,sky;Foto,ann",
    "9,sun;photo,cy",
    "10,sea;sky;photo;meer,cy",
]
RULES = """
stop_tags = ["Sun", "canon"]  # a dictionary's noise
max_share = 0.7
per_user = 2
aliases = {foto = "photo", meer = "sea"}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tags.csv").write_text("\n".join(["image,tags,user", *ROWS]), encoding="utf-8")
    (tmp_path / "tags.toml").write_text(RULES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.mark.parametrize(
    "command", [("fit", "--model", "prior"), ("tune", "--model", "knn", "--grid", "n_neighbors=1,2")]
)
def test_a_dictionary_is_cleaned_before_it_is_learned_and_the_run_keeps_the_counts(command, folder):
    done = run(*command, "--tags", "tags.csv", "--encoder", "ids", "-o", "run", "--tag-rules", "tags.toml")
    assert done.exit_code == 0, (done.stderr, done.exception)
    for said in (
        "Stop tags: 1 tag of 1 image is not learned; 1 line (such as 'canon') match no tag of the images.",
        "Per user: 4 of 10 images left out, such as of 'bob', who gave 6 images the same tags",
        "Too frequent: 1 tag on more than 0.7 of 6 images is not learned: 'photo' (6).",
        "Aliases: 1 spelling of 1 tag; 1 spelling (such as 'foto = photo') without a learned tag.",
    ):
        assert said in done.stderr
    tagger = Tagger.load(folder / "run")
    assert (tagger.vocabulary.tags, tagger.vocabulary.counts.tolist()) == (["sea", "sky"], [3, 3])
    kept = {name: tagger.facts[name] for name in ("stop tags", "images left out per user", "too frequent tags")}
    assert kept == {"stop tags": 1, "images left out per user": 4, "too frequent tags": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stop_tag = ['sea']", "rules.toml: Unknown rule 'stop_tag'. Did you mean 'stop_tags'?"),
        ("zebra = 1", "Unknown rule 'zebra'. Known"),
        ("stop_tags = 'sea'", "stop_tags is 'sea'; expected a list of tags"),
        ("max_share = 5", "rules.toml: max_share is 5; expected a number above 0 and up to 1"),
        ("max_share = true", "max_share is True; expected a number"),
        ("per_user = 0", "per_user is 0; expected a whole number of 1 or more"),
        ("part_of = 3", "part_of is 3; expected a CSV of part,whole"),
        ("separator = 'and'", "The separator 'and' is empty, or a word"),
        ("max_share = nothing", "rules.toml is not TOML"),
        ("aliases = ['a']", "aliases is ['a']; expected a table of spellings and tags"),
    ],
)
def test_a_rule_that_is_unknown_or_cannot_be_used_is_named_with_what_is_accepted(text, message, folder):
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    call = ("fit", "--tags", "tags.csv", "--encoder", "ids", "--model", "prior", "-o", "run")
    assert message in str(run(*call, "--tag-rules", "rules.toml").exception)
    assert not (folder / "run").exists()


def test_a_file_of_rules_that_is_not_there_is_named(folder):
    with pytest.raises(TagFileError, match=r"There is no file of tag rules .*none\.toml"):
        TagRules.of(folder / "none.toml")


def test_paths_in_a_file_of_rules_start_from_its_folder_and_those_of_a_mapping_from_here(folder):
    (folder / "rules").mkdir()
    (folder / "rules" / "tags.toml").write_text("part_of = 'parts.csv'\n", encoding="utf-8")
    rules = TagRules.of(folder / "rules" / "tags.toml")
    assert (rules.part_of, rules.isa) == (str(folder / "rules" / "parts.csv"), None)
    assert TagRules.of({"part_of": folder / "parts.csv"}).part_of == str(folder / "parts.csv")
    assert TagRules.of(rules) is rules


def test_columns_and_a_separator_of_the_rules_are_those_of_the_tag_file(folder):
    (folder / "tags.csv").write_text("who,what\n1,sea / sky\n2,sea\n", encoding="utf-8")
    (folder / "rules.toml").write_text(
        "image_column = 'who'\ntags_column = 'what'\nseparator = '/'\n", encoding="utf-8"
    )
    call = ("fit", "--tags", "tags.csv", "--encoder", "ids", "--model", "prior", "-o", "run")
    assert "Rename the column of file names, or name it in --tag-rules" in str(run(*call).exception)
    assert run(*call, "--tag-rules", "rules.toml").exit_code == 0
    assert Tagger.load(folder / "run").vocabulary.tags == ["sea", "sky"]


def test_queries_are_not_pruned(folder):
    (folder / "queries.csv").write_text("query,image\nsea,1\n", encoding="utf-8")
    call = ("fit", folder, "--queries", "queries.csv", "--model", "pamir", "-o", "run", "--tag-rules", "tags.toml")
    done = run(*call)
    assert "queries are learned. Leave it out." in str(done.exception)


def test_a_device_is_refused_where_nothing_runs_on_one(folder):
    how = {"encoder": "ids", "model": "prior", "out": "run"}
    with refused("device"):
        visterm.fit(tags="tags.csv", device="cpu", **how)
    visterm.fit(tags="tags.csv", **how)
    with refused("device"):
        Tagger.load("run", device="cpu")


def test_a_device_goes_to_the_model_and_to_the_encoder_that_have_one():
    pytest.importorskip("torch")
    request = FitRequest(device="cpu", model="sampled_tagger", encoder="visterms")
    assert request.part_settings() == ({}, {"device": "cpu"})
    with refused("device"):
        FitRequest(device="cpu", model="sampled_tagger", model_params={"device": "cuda"}).part_settings()


def test_a_device_that_is_not_there_is_refused_before_anything_is_read():
    pytest.importorskip("torch")
    with refused("device", value="gpu"):
        FitRequest(device="gpu", model="sampled_tagger").part_settings()
