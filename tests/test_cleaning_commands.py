"""`fit` and `tune` that clean a dictionary first, and the device of networks: what is said and what is kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from visterm import Tagger
from visterm.cli.command_line import app
from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS
from visterm.tagging.part_settings import move_encoder, with_device

ROWS = [
    *(f"{i},sea;photo,bob" for i in range(6)),
    "7,sky;photo,ann",
    "8,sky;Foto,ann",
    "9,sun;photo,cy",
    "10,sea;sky;photo;meer,cy",
]
CLEAN = ("--stop-tags", "stop.txt", "--aliases", "aliases.csv", "--max-share", "0.7", "--per-user", "2")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tags.csv").write_text("\n".join(["image,tags,user", *ROWS]), encoding="utf-8")
    (tmp_path / "stop.txt").write_text("# a dictionary's noise\nSun\ncanon\n", encoding="utf-8")
    (tmp_path / "aliases.csv").write_text("foto,photo\nmeer,sea\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.mark.parametrize(
    "command", [("fit", "--model", "prior"), ("tune", "--model", "knn", "--grid", "n_neighbors=1,2", "--valid", "0.4")]
)
def test_a_dictionary_is_cleaned_before_it_is_learned_and_the_run_keeps_the_counts(command, folder):
    done = run(*command, "--tags", "tags.csv", "--encoder", "ids", "-o", "run", *CLEAN)
    assert done.exit_code == 0, (done.stderr, done.exception)
    for said in (
        "Stop tags: 1 tag of 1 image is not learned; 1 line (such as 'canon') of no tag of the images.",
        "Per user: 4 of 10 images left out, as 1 user gave more than 2 images the same tags (such as 'bob', 6 images",
        "Too frequent: 1 tag on more than 0.7 of 6 images is not learned: 'photo' (6).",
        "Aliases: 1 spelling of 1 tag; 1 line (such as 'foto,photo') of no tag that was learned.",
    ):
        assert said in done.stderr
    tagger = Tagger.load(folder / "run")
    assert (tagger.vocabulary.tags, tagger.vocabulary.counts.tolist()) == (["sea", "sky"], [3, 3])
    kept = {name: tagger.facts[name] for name in ("stop tags", "images left out per user", "too frequent tags")}
    assert kept == {"stop tags": 1, "images left out per user": 4, "too frequent tags": 1}


def test_users_are_in_the_column_that_is_named(folder):
    (folder / "tags.csv").write_text("image,tags,by\n1,sea,bob\n2,sea,bob\n", encoding="utf-8")
    call = ("fit", "--tags", "tags.csv", "--encoder", "ids", "--model", "prior", "-o", "run", "--per-user", 1)
    assert "Name it with --user-column" in str(run(*call).exception)
    assert "Add --per-user N" in str(run(*call[:-2], "--user-column", "by").exception)
    assert run(*call, "--user-column", "by").exit_code == 0
    assert Tagger.load(folder / "run").facts["images"] == 1


def test_queries_are_not_pruned(folder):
    (folder / "queries.csv").write_text("query,image\nsea,1\n", encoding="utf-8")
    refused = run("fit", folder, "--queries", "queries.csv", "--model", "pamir", "-o", "run", "--max-share", 0.5)
    assert "queries are learned. Leave them out" in str(refused.exception)


def test_a_device_is_refused_where_nothing_runs_on_one(folder):
    call = ("fit", "--tags", "tags.csv", "--encoder", "ids", "--model", "prior", "-o", "run")
    refused = str(run(*call, "--device", "cpu").exception)
    assert refused.startswith("Neither the model 'prior' nor the encoder 'ids' runs a network of torch")
    assert run(*call).exit_code == 0
    refused = str(run("annotate", "run", 1, "--device", "cpu").exception)
    assert refused.startswith("The encoder 'ids' of this run has no network of torch")


def test_a_device_goes_to_the_model_and_to_the_encoder_that_have_one():
    pytest.importorskip("torch")
    none = {"model_params": {}, "encoder_params": {}}
    model, encoder = with_device("cpu", model="sampled_tagger", encoder="visterms", **none)
    assert (model, encoder) == ({"device": "cpu"}, {})
    model, encoder = with_device("cpu", model=None, encoder="timm:resnet18", **none)
    assert (model, encoder) == ({}, {"device": "cpu"})
    with pytest.raises(UserError, match="given twice: by --device and by --set device"):
        with_device("cpu", model="sampled_tagger", encoder=None, model_params={"device": "cuda"}, encoder_params={})


def test_a_device_that_is_not_there_is_refused_before_anything_is_read():
    pytest.importorskip("torch")
    with pytest.raises(UserError, match="--device is 'gpu'; expected cpu, cuda or auto"):
        with_device("gpu", model="sampled_tagger", encoder=None, model_params={}, encoder_params={})


def test_a_fitted_encoder_and_those_inside_another_move():
    pytest.importorskip("torch")
    alone, inside = ENCODERS.create("timm", network="resnet18"), ENCODERS.create("timm", network="resnet18")
    move_encoder(alone, "cpu")
    assert alone.device == "cpu"
    move_encoder(SimpleNamespace(get_params=lambda deep: {}, parts_=[ENCODERS.create("visterms"), inside]), "cpu")
    assert inside.device == "cpu"
