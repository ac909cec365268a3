"""Runs are pushed to the hub without what says which photos they are from, and opened from there, by its own client."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
import yaml
from PIL import Image

pytest.importorskip("huggingface_hub", reason="wants huggingface_hub (extra onnx)")

from huggingface_hub import constants
from huggingface_hub.utils import close_session

from command_line import visterm
from fakes.hub import running_hub
from refusals import refused
from tiny_networks import colour_network
from visterm.core.errors import CorruptFileError, StorageError
from visterm.tagging.tagger import Tagger

REPOSITORY = "ann/holidays"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the hub's client


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub, and a client that is pointed at it and logged in."""
    with running_hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        close_session()
        yield running
        close_session()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Photos of a colour under telling names, one of them broken, with a table of their tags and a network."""
    folder = tmp_path_factory.mktemp("secretplace")
    (folder / "photos").mkdir()
    rng, lines = np.random.default_rng(0), ["file_name,tags"]
    for i in range(130):
        colour = rng.integers(0, 256, 3)
        pixels = np.clip(colour + rng.integers(-20, 20, (9, 12, 3)), 0, 255).astype(np.uint8)
        name = f"grandma_{i:03d}_at_the_lake.png"
        Image.fromarray(pixels).save(folder / "photos" / name)
        tags = [tag for tag, value in zip(("red", "green", "blue"), colour, strict=True) if value > 140] or ["dark"]
        lines.append(f"{name},{';'.join(tags)}")
    (folder / "photos" / "broken_passport_scan.png").write_bytes(b"no picture")
    lines.append("broken_passport_scan.png,red")
    (folder / "tags.csv").write_text("\n".join(lines))
    colour_network(folder / "my_net.onnx", dtype="float32", channels_last=False)
    return folder


@pytest.fixture(scope="module")
def run(library):
    tagger = Tagger(encoder=f"onnx:{library / 'my_net.onnx'}", model="ridge")
    tagger.fit(library / "photos", library / "tags.csv").save(library / "run")
    return Tagger.load(library / "run")


def tags_of(tagger, library):
    return tagger.annotate([np.asarray(Image.open(library / "photos" / "grandma_000_at_the_lake.png"))]).images[0].tags


def test_a_run_comes_back_from_the_hub_and_gives_the_same_tags(hub, run, library):
    page = run.push_to_hub(REPOSITORY)
    assert page == f"{hub.url}/{REPOSITORY}"
    assert hub.repositories[REPOSITORY].private
    assert {name.rpartition(".")[2] for name in hub.repositories[REPOSITORY].files} == {
        "json", "jsonl", "safetensors", "md",
    }  # fmt: skip
    found = Tagger.from_pretrained(REPOSITORY)
    found.encoder.network_path_ = str(library / "my_net.onnx")
    assert tags_of(found, library) == tags_of(run, library)
    assert found.fingerprint == run.fingerprint


def test_no_file_name_place_or_tag_of_a_photo_leaves_this_machine(hub, run, library):
    run.push_to_hub(REPOSITORY, public=True)
    assert not hub.repositories[REPOSITORY].private
    uploaded = b"\n".join(hub.repositories[REPOSITORY].files.values()) + "\n".join(hub.cards).encode()
    names = [path.stem for path in (library / "photos").iterdir()] + ["grandma", "passport", library.name, "my_run"]
    assert len(run.skipped) == 1
    assert run.learned_images.count(["grandma_000_at_the_lake.png"]) == 1
    for name in (*names, os.path.expanduser("~")):
        assert name.encode() not in uploaded, name
    found = Tagger.from_pretrained(REPOSITORY)
    assert found.skipped == []
    assert found.learned_images.count(["grandma_000_at_the_lake.png"]) == 0


def test_photos_go_along_only_when_asked(hub, run):
    run.push_to_hub(REPOSITORY, with_photos=True)
    found = Tagger.from_pretrained(REPOSITORY)
    assert [skipped.image.rpartition("/")[2] for skipped in found.skipped] == ["broken_passport_scan.png"]
    assert found.learned_images.count(["grandma_000_at_the_lake.png"]) == 1


@pytest.mark.parametrize(
    ("model", "settings"),
    [("knn", {}), ("kernel_ridge", {}), ("ensemble", {"members": [["ridge", {}], ["knn", {}]]})],
    ids=["knn", "kernel_ridge", "ensemble"],
)
def test_models_that_keep_tags_of_photos_are_pushed_only_when_asked(model, settings, hub, run, library):
    tagger = Tagger(encoder=f"onnx:{library / 'my_net.onnx'}", model=model, model_params=settings)
    tagger.fit(library / "photos", library / "tags.csv", calibrate=False)
    with refused("with_photos", value=False):
        tagger.push_to_hub(REPOSITORY)
    assert hub.repositories == {}
    tagger.push_to_hub(REPOSITORY, with_photos=True)
    assert hub.repositories[REPOSITORY].files


def test_a_run_that_knows_photos_by_name_is_pushed_only_when_asked(hub):
    tags = [["red"], ["green"], ["red", "green"]] * 4
    tagger = Tagger(encoder="ids", model="wsabie", model_params={"epochs": 1}).fit([f"p{i}" for i in range(12)], tags)
    with refused("with_photos", value=False):
        tagger.push_to_hub(REPOSITORY)


def test_the_network_goes_along_when_asked(hub, run, library, tmp_path, monkeypatch):
    run.push_to_hub(REPOSITORY, with_network=True)
    (library / "my_net.onnx").rename(tmp_path / "elsewhere.onnx")
    try:
        assert tags_of(Tagger.from_pretrained(REPOSITORY), library) is not None
    finally:
        (tmp_path / "elsewhere.onnx").rename(library / "my_net.onnx")


def test_without_the_network_the_error_says_which_file_goes_where(hub, run, library, tmp_path, monkeypatch):
    run.push_to_hub(REPOSITORY)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=run.encoder.network_sha256_):
        tags_of(Tagger.from_pretrained(REPOSITORY), library)


def test_the_card_has_metadata_and_measured_figures(hub, run):
    run.push_to_hub(REPOSITORY, licence="cc0-1.0")
    card = hub.repositories[REPOSITORY].files["README.md"].decode()
    assert hub.cards[-1] == card
    _, metadata, text = card.split("---\n", 2)
    about = yaml.safe_load(metadata)
    assert (about["library_name"], about["license"], about["pipeline_tag"]) == (
        "visterm", "cc0-1.0", "image-classification",
    )  # fmt: skip
    assert f"| {run.facts['right of 5 tags']:.2f} |" in text
    assert 'Tagger.from_pretrained("ann/holidays")' in text


def test_another_push_leaves_nothing_of_the_one_before_and_a_card_may_be_edited(hub, run, library):
    run.push_to_hub(REPOSITORY, with_network=True)
    hub.repositories[REPOSITORY].commit({"notes.txt": b"mine"})
    run.push_to_hub(REPOSITORY)
    names = set(hub.repositories[REPOSITORY].files)
    assert {"notes.txt", "README.md"} <= names
    assert "network.onnx" not in names
    hub.repositories[REPOSITORY].commit({"README.md": b"# My own words"})
    assert Tagger.from_pretrained(REPOSITORY).fingerprint == run.fingerprint


def test_a_run_that_was_changed_on_the_hub_is_refused(hub, run):
    run.push_to_hub(REPOSITORY)
    first = hub.repositories[REPOSITORY].refs["main"]
    hub.repositories[REPOSITORY].commit({"facts.json": b"{}"})
    with pytest.raises(CorruptFileError, match=r"facts\.json was changed"):
        Tagger.from_pretrained(REPOSITORY)
    assert Tagger.from_pretrained(REPOSITORY, revision=first).fingerprint == run.fingerprint
    manifest = json.loads(hub.repositories[REPOSITORY].files["manifest.json"])
    manifest["sha256"] = {"../../outside": "0" * 64}
    hub.repositories[REPOSITORY].commit({"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(CorruptFileError, match="lists files that no run has"):
        Tagger.from_pretrained(REPOSITORY)


@pytest.mark.parametrize("manifest", ["5", "null", "[]", '"run"', "{}", '{"sha256": 5}', '{"sha256": ["a"]}', "{", ""])
def test_a_manifest_that_is_none_is_refused(hub, run, manifest):
    hub.repository(REPOSITORY, {"manifest.json": manifest.encode()})
    with pytest.raises(CorruptFileError, match=r"manifest\.json"):
        Tagger.from_pretrained(REPOSITORY)


@pytest.mark.parametrize("header", ["X-Linked-ETag", "ETag", "X-Repo-Commit"])
@pytest.mark.parametrize("honest", [0, 1, 2, 3, 4])
def test_a_hostile_hub_writes_nothing_outside_the_cache(hub, run, tmp_path, header, honest):
    def around():  # three folders up from any file of the cache is tmp_path at most
        return {*tmp_path.rglob("*"), *tmp_path.parent.iterdir()}

    run.push_to_hub(REPOSITORY)
    before = {path for path in around() if path.parent != tmp_path / "cache"}
    hub.lies, hub.honest = {header: "../../../x.py"}, honest
    with pytest.raises(StorageError, match="does not answer like a hub"):
        Tagger.from_pretrained(REPOSITORY)
    cached = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert all(path.resolve().is_relative_to(tmp_path / "cache") for path in cached)
    outside = {path for path in around() if tmp_path / "cache" not in path.parents}
    assert outside <= before | {tmp_path / "cache"}


def test_a_hostile_hub_without_a_run_writes_nothing(hub, tmp_path):
    """The client's own download notes which commits lack a file, at a path of the server's."""
    hub.repository(REPOSITORY, {"config.json": b"{}"})
    hub.lies = {"X-Repo-Commit": "../../../../x"}
    with pytest.raises(StorageError, match="not a run of visterm"):
        Tagger.from_pretrained(REPOSITORY)
    assert list(tmp_path.rglob("*")) == []


def test_a_run_that_was_fetched_opens_where_the_hub_is_out_of_reach(hub, run, monkeypatch, caplog):
    run.push_to_hub(REPOSITORY)
    Tagger.from_pretrained(REPOSITORY)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    assert Tagger.from_pretrained(REPOSITORY).fingerprint == run.fingerprint
    assert "The hub cannot be reached" in caplog.text
    with pytest.raises(StorageError, match="no network connection"):
        Tagger.from_pretrained("ann/other")


def test_errors_say_what_to_do(hub, run, monkeypatch):
    with refused("repository", value="holidays"):
        run.push_to_hub("holidays")
    with pytest.raises(StorageError, match=r"no such repository, or it is private. Log in: hf auth login"):
        Tagger.from_pretrained(REPOSITORY)
    hub.repository(REPOSITORY, {"config.json": b"{}"})
    with pytest.raises(StorageError, match="not a run of visterm"):
        Tagger.from_pretrained(REPOSITORY)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    with pytest.raises(StorageError, match="hf auth login"):
        run.push_to_hub("ann/other")


def test_the_command_pushes_and_other_commands_open_what_it_pushed(hub, run, library):
    code, out, err = visterm("push run ann/holidays --dry-run", library)
    assert (code, "Would push to" in err, "model.safetensors" in out, hub.repositories) == (0, True, True, {})
    code, out, err = visterm("push run ann/holidays", library)
    assert (code, "Pushed to" in err, "model.safetensors" in out) == (0, True, True)
    code, out, _ = visterm("annotate hub:ann/holidays photos/grandma_000_at_the_lake.png --json", library)
    assert code == 0
    assert [tag["tag"] for tag in json.loads(out)["tags"]] == [tag.tag for tag in tags_of(run, library)]
    code, _, err = visterm("push run holidays", library)
    assert (code, bool(re.search("expected OWNER/NAME", err))) == (2, True)
