"""One request for all: what the command line, Python and a tagger that exists can ask of a fit."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from refusals import refused
from visterm import Tagger
from visterm import fit as fit_in_python
from visterm.cli.evaluate import evaluate
from visterm.cli.fit import fit
from visterm.core.persist import file_hash
from visterm.data.tag_rules import TagRules
from visterm.evaluation.evaluate_run import EvaluateRequest
from visterm.learning.fit_request import FitRequest

ONLY_PYTHON = {"relations", "work", "idf", "split", "device", "valid", "calibrate", "n_jobs", "seed"}
ONLY_COMMAND_LINE = {"context", "json", "full", "pairs"}
CALLED_OTHERWISE = {
    "set_": "model_params", "encoder_set": "encoder_params", "ray": "executor",
}  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    rows = ["image,tags"]
    for number in range(24):
        pixels = rng.integers(0, 60, (16, 16, 3), np.uint8)
        pixels[..., number % 3] += 150
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{['red', 'green', 'blue'][number % 3]};photo")
    (folder / "tags.csv").write_text("\n".join(rows), encoding="utf-8")
    (folder / "tags.toml").write_text('stop_tags = ["Photo"]\nmax_share = 0.9\n', encoding="utf-8")
    return folder


def test_each_field_of_a_request_is_an_option_of_fit():
    named = {CALLED_OTHERWISE.get(name, name) for name in inspect.signature(fit).parameters}
    assert named - ONLY_COMMAND_LINE == {field.name for field in fields(FitRequest)} - ONLY_PYTHON


def test_each_field_of_an_evaluation_is_an_option_of_evaluate():
    """``bands`` and ``intervals`` follow from ``--report`` and ``--json``; ``--against`` names further runs."""
    renamed = {"map_": "map", "run": "runs"}
    named = {renamed.get(name, name) for name in inspect.signature(evaluate).parameters}
    only_python = {"bands", "intervals", "split", "max_words", "combine", "memory", "n_jobs"}
    assert named - {"against", "json"} == {field.name for field in fields(EvaluateRequest)} - only_python


def test_each_tag_rule_is_a_key_of_the_file_in_the_help_of_fit_and_has_no_option_of_its_own():
    rules = [field.name for field in fields(TagRules)]
    assert [rule for rule in rules if f"`{rule}`" not in fit_in_python.__doc__] == []
    assert set(rules) & {field.name for field in fields(FitRequest)} == set()
    values = ["tag"], 0.5, 3, "parts.csv", "isa.csv", "photo", "words", ";", {"nyc": "new york"}
    assert TagRules.of(dict(zip(rules, values, strict=True))) != TagRules()


def test_the_command_and_python_write_the_same_run_and_say_the_same(photos, tmp_path):
    code, _, said = visterm(
        f"fit {photos} --tags {photos}/tags.csv --tag-rules {photos}/tags.toml --model ridge "
        "--encoder-set codebook=4 -o run",
        tmp_path,
    )
    assert code == 0, said
    lines = []
    fit_in_python(
        photos, photos / "tags.csv", tag_rules={"stop_tags": ["Photo"], "max_share": 0.9}, model="ridge",
        encoder_params={"codebook": 4}, out=tmp_path / "run2", say=lines.append,
    )  # fmt: skip
    assert all(line in said for line in lines)
    assert lines
    for name in ("model.safetensors", "vocabulary.json", "facts.json"):
        assert file_hash(tmp_path / "run" / name) == file_hash(tmp_path / "run2" / name)


def test_a_tagger_that_exists_prunes_as_the_command_does(photos):
    tagger = Tagger(model="ridge", encoder_params={"codebook": 4}, n_jobs=1)
    tagger.fit(photos, photos / "tags.csv", tag_rules={"stop_tags": ["Photo"]})
    assert tagger.vocabulary.tags == ["blue", "green", "red"]


@pytest.mark.parametrize(("setting", "value"), [("model", "ridge"), ("seed", 3), ("out", "run")])
def test_what_a_tagger_is_made_with_is_not_set_when_it_learns(photos, setting, value):
    with refused(setting, value=value):
        Tagger(model="ridge").fit(photos, photos / "tags.csv", **{setting: value})


def test_help_lists_the_options_in_panels(tmp_path):
    shown = visterm("fit --help", tmp_path)[1]
    panels = [line[:-1] for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert panels == ["Arguments", "Input", "Model", "Output", "Scale", "Examples"]
