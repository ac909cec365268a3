"""Networks by name are rows of a table: ours, and those that users add in a file of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from refusals import refused
from tiny_networks import WEIGHTS, colour_network
from visterm.core.errors import DataError, StorageError, UnknownNameError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.encoders import effnet_lite, onnx_network
from visterm.encoders.effnet_lite import REQUIREMENT
from visterm.encoders.named import (
    TABLE_ENV,
    default_encoder,
    encoder_names,
    is_here,
    make_encoder,
    network_named,
    networks,
    registered_name,
    split_specs,
    visterms_line,
)
from visterm.encoders.onnx import Onnx
from visterm.encoders.onnx_settings import check_settings, transformers_settings
from visterm.library.info import encoder_advice

pytestmark = pytest.mark.usefixtures("plugin")

ROW = """
[colours]
good_for = "tests"
licence = "MIT"
image = { file = "net.onnx" }
settings = { mean = 0.0, std = 1.0, scale = 1.0 }
encoder = { views = "whole", root = false, centre = false, normalise = false }
"""
PHOTO = np.full((8, 8, 3), (10, 50, 130), np.uint8)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of the user's own, whose one network lies beside it; no network comes from a package."""
    monkeypatch.setattr(effnet_lite, "PACKAGE", "efficientnet-lite2-that-nobody-has")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "mine" / "networks.toml"
    file.parent.mkdir()
    file.write_text(ROW)
    colour_network(file.with_name("net.onnx"), dtype="float32", weights=np.eye(3, dtype=np.float32))
    monkeypatch.setenv(TABLE_ENV, str(file))
    return file


def test_every_row_of_ours_says_what_people_need_to_know_and_whether_we_ran_it(tmp_path, monkeypatch):
    (tmp_path / "networks.toml").touch()
    monkeypatch.setenv(TABLE_ENV, str(tmp_path / "networks.toml"))
    assert list(networks()) == ["siglip2", "siglip2-fast", "clip", "dinov2", "effnet-lite", "mobilenet"]
    for row in networks().values():
        assert row.licence
        assert row.good_for
        assert row.run_by_us == (row.package is not None)
        assert row.package or not is_here(row)
        Onnx(network=row.name, **row.encoder)
        check_settings(dict(row.settings))
    siglip2 = network_named("siglip2").text
    assert 1 / (1 + np.exp(-(siglip2.scale * 0.2 + siglip2.offset))) == pytest.approx(0.9968, abs=1e-4)


@pytest.mark.parametrize("name", ["siglip2", "clip"])
def test_a_network_that_is_not_here_is_an_error_with_the_command_its_size_and_licence(name):
    size, licence = {"siglip2": ("687.8 MB", "Apache-2.0"), "clip": ("605.8 MB", "MIT")}[name]
    with pytest.raises(StorageError, match=rf"visterm encoders get {name} \({size} from .*, licence: {licence}\)"):
        make_encoder(name, {}, {}).fit([PHOTO])


def test_a_row_of_the_users_is_the_onnx_encoder_with_the_settings_of_the_row(table):
    encoder = make_encoder("colours", {}, {"n_jobs": 1})
    np.testing.assert_allclose(encoder.fit_transform([PHOTO]), [[10, 50, 130]])
    same = Onnx(path=table.with_name("net.onnx"), mean=0, std=1, scale=1, **network_named("colours").encoder)
    np.testing.assert_array_equal(same.fit_transform([PHOTO]), encoder.transform([PHOTO]))
    assert make_encoder("colours", {"scale": 0.5}, {}).fit_transform([PHOTO])[0, 0] == 5


def test_the_first_network_that_is_here_is_the_default_and_the_users_come_first(table):
    assert default_encoder() == "colours"
    assert make_encoder(None, {}, {}).network == "colours"
    table.with_name("net.onnx").unlink()
    assert default_encoder() == "visterms"


def test_a_fitted_network_keeps_its_settings_and_names_itself_where_its_file_is_gone(table, tmp_path):
    encoder = make_encoder("colours", {}, {}).fit([PHOTO])
    expected = encoder.transform([PHOTO])
    (tmp_path / "run").mkdir()
    save_estimator(encoder, ENCODERS, tmp_path / "run", "encoder")
    table.write_text(ROW.replace("scale = 1.0", "scale = 2.0"))
    loaded = load_estimator(ENCODERS, tmp_path / "run", "encoder")
    np.testing.assert_array_equal(loaded.transform([PHOTO]), expected)
    assert loaded.fingerprint == encoder.fingerprint
    table.with_name("net.onnx").rename(tmp_path / "elsewhere.onnx")
    loaded = load_estimator(ENCODERS, tmp_path / "run", "encoder")
    with pytest.raises(StorageError, match=r"'colours' should be in .*net\.onnx, which does not exist"):
        loaded.transform([PHOTO])
    (tmp_path / "elsewhere.onnx").rename(table.with_name("net.onnx"))
    table.write_text("")
    loaded = load_estimator(ENCODERS, tmp_path / "run", "encoder")
    np.testing.assert_array_equal(loaded.transform([PHOTO]), expected)
    table.with_name("net.onnx").unlink()
    loaded = load_estimator(ENCODERS, tmp_path / "run", "encoder")
    with pytest.raises(StorageError, match=rf"'colours', which has no row in .*SHA-256 is {encoder.network_sha256_}"):
        loaded.transform([PHOTO])


def test_a_row_with_a_hash_takes_no_other_file(table):
    table.write_text(ROW.replace('"net.onnx"', f'"net.onnx", sha256 = "{"0" * 64}"'))
    advice = rf"is not the file of the network 'colours'.* Put the right file there, or change sha256 in .*{table}\.$"
    with pytest.raises(StorageError, match=advice):
        make_encoder("colours", {}, {}).fit([PHOTO])


def test_a_row_whose_own_file_of_preparation_is_missing_is_refused(table):
    table.write_text(ROW.replace('"net.onnx"', '"net.onnx", prepared_by = "preprocess_cfg.json"'))
    with pytest.raises(StorageError, match=r"'colours' should be in .*preprocess_cfg\.json, which does not exist"):
        make_encoder("colours", {}, {}).fit([PHOTO])
    table.with_name("preprocess_cfg.json").write_text('{"size": [8, 8]}')
    make_encoder("colours", {}, {}).fit([PHOTO])


def test_a_broken_table_is_in_the_way_of_networks_by_name_only(table):
    table.write_text("[broken")
    specs = ["visterms", "mean_colour", f"onnx:{table.with_name('net.onnx')}"]
    assert split_specs("+".join(specs)) == specs
    for each in specs:
        assert registered_name(each) == each.partition(":")[0]
        make_encoder(each, {}, {})
    with pytest.raises(DataError, match="cannot be read"):
        make_encoder("clip", {}, {})


def test_a_table_that_the_environment_names_and_that_is_not_there_is_an_error(table):
    table.unlink()
    with pytest.raises(DataError, match=rf"^{TABLE_ENV} names {table}, which does not exist"):
        networks()
    make_encoder("visterms", {}, {})


def test_the_list_measures_the_users_own_files_and_says_whose_row_it_is(table, tmp_path):
    table.with_name("net.onnx").write_bytes(bytes(1_234_567))
    line = re.search("colours +tests.*", visterm("encoders", tmp_path)[1])[0]
    assert "1.2 MB" in line
    assert "your row" in line
    code, _, err = visterm("encoders get", tmp_path)
    assert code == 2
    assert "Which network? visterm encoders get NAME" in err


def test_the_docs_say_of_our_networks_what_the_program_says_and_their_smallest_row_is_one(table):
    docs = (Path(__file__).parents[1] / "docs" / "encoders_networks.md").read_text(encoding="utf-8")
    for row in (row for row in networks().values() if not row.yours):
        assert f"| `{row.name}` | {row.good_for} | {row.size()} | {row.licence} |" in docs
    smallest = re.search(r"```text\n(\[pets\].*?)```", docs, re.DOTALL)[1]
    assert len(smallest.splitlines()) == 4
    table.write_text(smallest)
    assert network_named("pets").repository is None


def test_names_of_networks_are_names_of_encoders(table):
    assert {"visterms", "onnx", "colours", "siglip2"} <= set(encoder_names())
    assert split_specs("visterms+colours+onnx:a+b.onnx") == ["visterms", "colours", "onnx:a+b.onnx"]
    with pytest.raises(UnknownNameError, match="Did you mean 'colours'"):
        make_encoder("colour", {}, {})
    with refused("encoder", value="colours:net.onnx"):
        make_encoder("colours:net.onnx", {}, {})
    with refused("network", value="colours"):
        Onnx(path="net.onnx", network="colours").fit([PHOTO])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[colours]", "[visterms]", "'visterms': this name cannot be used"),
        ('licence = "MIT"', "", "the row has no licence"),
        ('licence = "MIT"', "licence = 1", "licence is 1; expected text"),
        ("[colours]", "a = 3\n[colours]", r"network 'a': a is 3; expected a table \[a\]\.$"),
        ('image = { file = "net.onnx" }', "image = 3", r"image is 3; expected a table \[colours\.image\]"),
        ('file = "net.onnx"', "bytes = 3", "image has no file"),
        ('file = "net.onnx"', 'bytes = -3, file = "net.onnx"', "bytes is -3; expected 1 or more"),
        ('file = "net.onnx"', 'bytes = 1.5, file = "net.onnx"', "bytes is 1.5; expected a whole number"),
        ('licence = "MIT"', 'license = "MIT"', "Unknown key of row 'license'. Did you mean 'licence'"),
        ("mean = 0.0", 'mean = "grey"', "mean is 'grey'"),
        ('file = "net.onnx"', 'sha256 = "abc", file = "net.onnx"', "expected 64 hex digits"),
        ("[colours]", "[colours", "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_is_refused_by_row_and_key(table, old, new, words):
    table.write_text(ROW.replace(old, new))
    with pytest.raises(DataError, match=words):
        networks()


def test_a_row_of_the_users_replaces_ours_of_that_name(table):
    table.write_text(ROW.replace("[colours]", "[clip]"))
    assert network_named("clip").good_for == "tests"
    assert list(networks()) == ["clip", "siglip2", "siglip2-fast", "dinov2", "effnet-lite", "mobilenet"]


def test_what_goes_into_the_layer_of_classes_is_read_from_behind_the_output(tmp_path):
    path = colour_network(tmp_path / "net.onnx", dtype="float32", outputs=("maps",))
    plain = {"path": path, "root": False, "centre": False, "normalise": False, "mean": 0, "std": 1, "scale": 1}
    classes = Onnx(**plain).fit_transform([PHOTO])
    before = Onnx(pooling="before_classes", **plain).fit_transform([PHOTO])
    np.testing.assert_allclose(before, [[10, 50, 130]])
    np.testing.assert_allclose(before @ WEIGHTS, classes)
    features = colour_network(tmp_path / "other.onnx", dtype="float32", outputs=("negated",))
    with refused("pooling", value="before_classes"):
        Onnx(**{**plain, "path": features}, pooling="before_classes").fit([PHOTO])


def test_a_device_that_onnxruntime_is_not_built_for_is_refused_with_those_that_it_is(table, monkeypatch):
    encoder = make_encoder("colours", {"device": "auto"}, {}).fit([PHOTO])
    assert encoder.runs_on == "cpu"
    assert encoder.fingerprint == make_encoder("colours", {}, {}).fit([PHOTO]).fingerprint
    with refused("device", value="cuda"):
        make_encoder("colours", {"device": "cuda"}, {}).fit([PHOTO])
    built = ["CoreMLExecutionProvider", "DmlExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnx_network.ort, "get_available_providers", lambda: built)
    assert onnx_network.device_providers("auto") == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert onnx_network.device_providers("directml") == ["DmlExecutionProvider", "CPUExecutionProvider"]


def test_on_another_device_all_pictures_go_through_together(tmp_path, monkeypatch):
    path = colour_network(tmp_path / "net.onnx", dtype="float32", channels_last=False)
    photos = [np.random.default_rng(i).integers(0, 256, (8 + i, 12, 3), dtype=np.uint8) for i in range(5)]
    expected = Onnx(path=path).fit_transform(photos)
    sizes = []
    run = onnx_network.OnnxNetwork.pooled
    monkeypatch.setattr(onnx_network.OnnxNetwork, "runs_on", "cuda")
    monkeypatch.setattr(
        onnx_network.OnnxNetwork, "pooled", lambda self, out, n=None: sizes.append(n) or run(self, out, n)
    )
    np.testing.assert_allclose(Onnx(path=path).fit(photos).transform(photos), expected, atol=1e-6)
    assert set(sizes) == {13}  # three views of each photo, but one of the square one


def test_the_command_line_says_which_encoder_and_which_device_it_uses(table, tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(4):
        noise = np.random.default_rng(i).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"photos/{i}.png")
    (tmp_path / "tags.csv").write_text("image,tags\n" + "".join(f"{i}.png,a;b\n" for i in range(4)))
    fit = "fit photos --tags tags.csv --model prior -o run"
    code, _, err = visterm(fit, tmp_path)
    assert code == 0, err
    assert "Encoder: colours, the first network of `visterm encoders` that is on this machine" in err
    code, _, err = visterm(f"{fit} --overwrite --encoder-set device=auto", tmp_path)
    assert code == 0, err
    assert "The network of the encoder 'onnx' runs on: cpu" in err
    code, _, err = visterm("encode photos -o features --encoder colours", tmp_path)
    assert code == 0, err
    assert "Encoder:" not in err
    code, _, err = visterm("fit features --encoder colours --tags none.csv -o run_2", tmp_path)
    assert "none.csv" in err  # the features are the encoder's, and only the tags are missing


def test_who_uses_visterms_hears_what_they_cost_and_how_to_take_a_network(table, tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(4):
        noise = np.random.default_rng(i).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"photos/{i}.png")
    (tmp_path / "tags.csv").write_text("image,tags\n" + "".join(f"{i}.png,a;b\n" for i in range(4)))
    fit = "fit photos --tags tags.csv --model prior -o run --overwrite"
    cost = "Encoder: visterms, with about two thirds of a network's quality"
    commands = (
        f"{fit} --encoder visterms",
        "index run photos -o catalogue",
        "encode photos -o rows --encoder visterms",
    )
    for command in commands:
        code, _, err = visterm(command, tmp_path)
        assert code == 0, err
        assert err.count(cost) == 1
        assert "Better fit a run with the encoder colours: this network is on this machine." in err
    assert encoder_advice(tmp_path / "catalogue") == visterms_line()

    table.write_text("")
    for command in (fit, *commands[:2]):
        code, _, err = visterm(command, tmp_path)
        assert code == 0, err
        assert err.count(cost) == 1
        assert f"No network is on this machine. Install one with: pip install {REQUIREMENT} (see `visterm enc" in err


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("preprocess_cfg.json", {"resize_mode": "stretch"}, "resize_mode is 'stretch'; expected one of shortest"),
        ("preprocess_cfg.json", {"size": [8, 8], "interpolation": "random"}, "interpolation is 'random'"),
        ("preprocessor_config.json", {"size": 8, "resample": 0}, "resample is 0; expected one of 1, 2, 3"),
        ("preprocessor_config.json", {"size": {"longest_edge": 8}}, r"size .*longest_edge.* is not understood"),
        ("preprocessor_config.json", {"size": {"height": 8, "width": 8}, "do_pad": True}, "do_pad on"),
        ("preprocessor_config.json", [1], "holds a list"),
    ],
)
def test_a_preparation_that_is_not_ours_is_refused_by_key(table, name, config, words):
    table.with_name(name).write_text(json.dumps(config))
    with pytest.raises(DataError, match=rf"{name}.*{words}"):
        make_encoder("colours", {}, {}).fit([PHOTO])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"size": 8}, None),
        ({"size": 8, "crop_pct": 0.5}, {"size": 8, "resize": "shortest_floor", "crop": 0.5}),
        ({"size": 384, "crop_pct": 0.5}, {"size": 384, "resize": "squash", "crop": 0.5}),
        ({"size": 10, "do_center_crop": True, "crop_size": 8}, {"size": 8, "resize": "shortest_floor", "crop": 0.8}),
        ({"size": {"shortest_edge": 8}, "do_rescale": False, "crop_pct": 1}, {"scale": 1.0}),
        ({"size": {"height": 8, "width": 6}, "do_normalize": False}, {"size": [8, 6], "mean": 0.0, "std": 1.0}),
    ],
)
def test_older_files_of_transformers_are_read(config, expected):
    if expected is None:
        with pytest.raises(UserError, match="is not understood"):
            transformers_settings(config)
    else:
        assert expected.items() <= transformers_settings(config).items()
