"""Evaluating features larger than memory: the figures of an evaluation in memory, and what is told and refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from command_line import run_command
from planted_features import N, fitted_encoder, name_of, plant, write, write_table
from refusals import refused
from visterm import Tagger
from visterm.core.errors import EncoderMismatchError, TagFileError, UnknownNameError, UserError
from visterm.evaluation.evaluate import DEFAULT_METRICS, evaluate_taggers
from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run
from visterm.evaluation.streamed import evaluate_streamed
from visterm.features.training_rows import read_corpus

METRICS = [*DEFAULT_METRICS, "mrr", "ndcg@3", "f1@2", "word_p@4", "tag_p@1", "n_plus@2"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Planted features, tags of which every third image is in the split "test", and a run of the others."""
    folder = plant(tmp_path_factory.mktemp("drawn"), fitted_encoder())
    rows = [json.loads(line) for line in (folder / "tags.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [{**row, "split": "train" if i % 3 else "test"} for i, row in enumerate(rows)]
    rows[0]["tags"] += ["unknown", "tag 1"]
    rows[3]["tags"] = []
    write_table(folder / "split.jsonl", [*rows, {"file_name": "gone.jpg", "tags": ["tag 1"], "split": "test"}])
    tagger = Tagger(model="wsabie", model_params={"epochs": 2, "dim": 4}, n_jobs=1, min_count=60)
    tagger.fit(read_corpus(None, folder / "features", folder / "split.jsonl"), calibrate=False).save(folder / "run")
    return folder


@pytest.mark.parametrize("split", [None, "train", "all"])
def test_a_streamed_evaluation_gives_the_figures_of_one_in_memory(tmp_path, drawn, split):
    tagger = Tagger.load(drawn / "run", n_jobs=1)
    corpus = read_corpus(None, drawn / "features", drawn / "split.jsonl").select(split or "test")
    expected = evaluate_taggers([tagger], corpus, METRICS)
    found = evaluate_streamed(tagger, drawn / "features", drawn / "split.jsonl", METRICS, work=tmp_path, split=split)
    assert found.values.keys() == expected.values[0].keys()
    for name, values in found.values.items():
        assert float(np.nanmean(values)) == pytest.approx(expected.mean(name), rel=1e-6), name
    assert found.values["p@5"].shape == (len(corpus),)
    assert (found.n_given, found.n_unknown) == (expected.n_given, expected.n_unknown)
    assert found.n_learned == expected.n_learned[0]
    assert found.n_unknown > 0 or split == "train"
    assert found.n_learned == (0 if split is None else 400)
    assert found.n_images == len(corpus)
    assert found.remarks == ["1 row of the tags (such as of 'gone.jpg') is of images without features; left out."]
    assert list(tmp_path.iterdir()) == []


def test_tables_that_cannot_be_measured_by_are_refused(tmp_path, drawn):
    tagger, features = Tagger.load(drawn / "run", n_jobs=1), drawn / "features"
    with refused("split", value="other", error=UnknownNameError):
        evaluate_streamed(tagger, features, drawn / "split.jsonl", ["map"], split="other")
    with refused("split", value="test", error=UnknownNameError):
        evaluate_streamed(tagger, features, drawn / "tags.jsonl", ["map"], split="test")
    with pytest.raises(TagFileError, match="are read from a table, and 'auto' is not a table"):
        evaluate_streamed(tagger, features, "auto", ["map"])
    write_table(tmp_path / "bad.jsonl", [{"file_name": "a/b.jpg", "tags": ["tag 1"]}])
    with pytest.raises(TagFileError, match=r"the tags name 'a/b.jpg', the features '0000.jpg'"):
        evaluate_streamed(tagger, features, tmp_path / "bad.jsonl", ["map"])
    rows = [{"file_name": name_of(7), "tags": [], "split": s} for s in ("train", "test")]
    write_table(tmp_path / "bad.jsonl", rows)
    with pytest.raises(TagFileError, match=r"The image 0007.jpg is in two splits"):
        evaluate_streamed(tagger, features, tmp_path / "bad.jsonl", ["map"])


def test_features_of_another_encoder_are_refused(tmp_path, drawn):
    other = fitted_encoder().set_params(softness=0.5)
    other.fit(list(np.random.default_rng(1).integers(0, 256, (6, 32, 32, 3), np.uint8)))
    write(tmp_path / "other", np.zeros((3, 4), np.float32), other)
    with pytest.raises(EncoderMismatchError, match="do not go together"):
        evaluate_streamed(Tagger.load(drawn / "run"), tmp_path / "other", drawn / "tags.jsonl", ["map"])


def test_the_command_measures_shard_by_shard_where_memory_is_short_and_says_so(tmp_path, drawn, monkeypatch):
    given = ["evaluate", drawn / "run", drawn / "features", "--tags", drawn / "split.jsonl"]
    in_memory = run_command([*given, "--json"], tmp_path)
    monkeypatch.setattr("visterm.features.streaming.memory.machine_memory", lambda: 2_000_000)
    streamed = run_command([*given, "--json"], tmp_path)
    assert streamed.returncode == 0, streamed.stderr
    assert "measured shard by shard" in streamed.stderr
    assert json.loads(streamed.stdout) == pytest.approx(json.loads(in_memory.stdout), rel=1e-6)
    table = run_command([*given, "--metric", "map"], tmp_path).stdout.splitlines()
    assert table[0].split() == ["metric", "value", "95", "%", "interval"]
    assert float(table[1].split()[1]) == pytest.approx(json.loads(streamed.stdout)["map"], abs=1e-4)
    assert N == 600


@pytest.mark.parametrize(
    "more", [["--precision", "0.9"], ["--report", "page"], ["--queries", "tags"], ["--map", "names"]]
)
def test_what_needs_all_images_at_once_is_refused(tmp_path, drawn, more, monkeypatch):
    monkeypatch.setattr("visterm.features.streaming.memory.machine_memory", lambda: 2_000_000)
    done = run_command(
        ["evaluate", drawn / "run", drawn / "features", "--tags", drawn / "split.jsonl", *more], tmp_path
    )
    assert done.returncode == 2
    assert f"{more[0]} needs all features in memory" in " ".join(done.stderr.split())


def test_a_run_with_a_tree_is_measured_by_it_and_only_in_memory(tmp_path, drawn):
    tagger = Tagger(model="prior").fit(
        read_corpus(None, drawn / "features", drawn / "split.jsonl"), tree=[("tag 1", "group"), ("tag 2", "group")]
    )
    tagger.save(tmp_path / "run")
    asked = EvaluateRequest(
        runs=[tmp_path / "run", drawn / "run"], images=drawn / "features", tags=drawn / "split.jsonl"
    )
    measured = evaluate_run(asked).values
    assert {"hp@5", "hr@5", "hf1@5"} <= measured.keys()
    assert measured["p@5"] < measured["hp@5"] < 1
    with refused("memory", value=2**20):
        evaluate_run(replace(asked, runs=asked.runs[:1], memory=2**20))
    with pytest.raises(UserError, match="hr@3 needs a tree"):
        evaluate_run(replace(asked, runs=asked.runs[1:], metrics=["hr@3"]))
