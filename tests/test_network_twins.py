"""Vision towers run by onnxruntime give the rows of their twins in torch, of photos prepared as those libraries do."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import skimage.data
from PIL import Image

from visterm.data.images import read_image
from visterm.encoders.named import TABLE_ENV, make_encoder
from visterm.encoders.onnx import Onnx
from visterm.encoders.onnx_settings import settings_beside
from visterm.encoders.preparation import Preparation, views_of


class LateModule:
    """A module that is imported when something of it is first used: each process reads this file, and one needs it."""

    def __init__(self, name, load=import_module):
        self.name, self.load = name, load

    def __getattr__(self, attribute):
        if attribute.startswith("_"):  # pytest asks all objects of a file that it reads for such names of mocks
            raise AttributeError(attribute)
        return getattr(self.load(self.name), attribute)


WANTED = ("torch", "onnxruntime", "transformers", "open_clip")
if missing := [name for name in WANTED if find_spec(name) is None]:
    pytest.skip(f"wants {', '.join(missing)} (extras 'onnx', 'text' and 'torch')", allow_module_level=True)
torch, twins = LateModule("torch"), LateModule("vision_twins")
open_clip = LateModule("open_clip", lambda name: import_module("torch_libraries").torch_library(name))

PLAIN = {"views": "trained", "root": False, "centre": False, "normalise": False}
CHELSEA = skimage.data.chelsea()  # 300 x 451
PHOTOS = [CHELSEA, CHELSEA[:, :300], np.ascontiguousarray(CHELSEA[:251].transpose(1, 0, 2)), skimage.data.coffee()]
SMALL = [CHELSEA[100:180, 100:196], CHELSEA[:90, 50:140], CHELSEA[:96, 60:131]]
"""So small that they are not reduced on reading, which larger photos are to three times the network's pictures."""


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("towers")
    return {
        kind: (twins.made(kind), twins.export(twins.made(kind), folder / kind / "model.onnx"))
        for kind in ("clip", "siglip", "dinov2")
    }


def named(tmp_path, monkeypatch, path, settings, beside):
    """An encoder by name: a row of a user's table, with a file of preparation beside the network."""
    (tmp_path / "model.onnx").write_bytes(path.read_bytes())
    for name, content in beside.items():
        (tmp_path / name).write_text(json.dumps(content))
    row = {"good_for": "tests", "licence": "MIT"}
    lines = [
        "[twin]",
        *(f"{key} = {json.dumps(value)}" for key, value in row.items()),
        'image = { file = "model.onnx" }',
    ]
    lines += ["[twin.settings]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    (tmp_path / "networks.toml").write_text("\n".join(lines))
    monkeypatch.setenv(TABLE_ENV, str(tmp_path / "networks.toml"))
    return make_encoder("twin", PLAIN, {"n_jobs": 2})


def outputs(tower, pictures):
    with torch.inference_mode():
        found = tower(pictures)
    return dict(zip(tower.outputs, (each.numpy() for each in found), strict=True))


def test_rows_of_a_clip_are_torchs_of_photos_as_open_clip_prepares_them(towers, tmp_path, monkeypatch):
    tower, path = towers["clip"]
    config = open_clip.transform.PreprocessCfg(size=twins.SIDE)
    transform = open_clip.transform.image_transform_v2(config, is_train=False)
    encoder = named(tmp_path, monkeypatch, path, {}, {"preprocess_cfg.json": asdict(config)})
    pictures = torch.stack([transform(pil(photo)) for photo in SMALL])
    expected = outputs(tower, pictures)["image_embeds"]
    np.testing.assert_allclose(encoder.fit(SMALL).transform(SMALL), expected, atol=1e-4)
    assert np.abs(np.diff(expected, axis=0)).max() > 0.1


def test_rows_of_a_siglip_are_torchs_of_photos_as_transformers_prepares_them(towers, tmp_path, monkeypatch):
    tower, path = towers["siglip"]
    processor = twins.hf.SiglipImageProcessorPil(size={"height": twins.SIDE, "width": twins.SIDE})
    beside = {"preprocessor_config.json": json.loads(processor.to_json_string())}
    encoder = named(tmp_path, monkeypatch, path, {"output": "pooler_output", "resize": "pad"}, beside)
    pictures = processor([pil(photo) for photo in SMALL], return_tensors="pt")["pixel_values"]
    expected = outputs(tower, pictures)["pooler_output"]
    np.testing.assert_allclose(encoder.fit(SMALL).transform(SMALL), expected, atol=1e-4)
    assert np.abs(np.diff(expected, axis=0)).max() > 0.1


@pytest.mark.parametrize("pooling", ["class", "mean", "both"])
def test_tokens_are_pooled_to_the_class_token_their_mean_or_both(towers, tmp_path, monkeypatch, pooling):
    tower, path = towers["dinov2"]
    processor = twins.hf.CLIPImageProcessorPil(
        size={"shortest_edge": 36}, crop_size={"height": twins.SIDE, "width": twins.SIDE}
    )
    beside = {"preprocessor_config.json": json.loads(processor.to_json_string())}
    encoder = named(tmp_path, monkeypatch, path, {"output": "last_hidden_state", "pooling": pooling}, beside)
    tokens = outputs(tower, processor([pil(photo) for photo in SMALL], return_tensors="pt")["pixel_values"])
    tokens = tokens["last_hidden_state"]
    expected = {
        "class": tokens[:, 0],
        "mean": tokens.mean(axis=1),
        "both": np.concatenate([tokens[:, 0], tokens[:, 1:].mean(axis=1)], axis=1),
    }[pooling]
    np.testing.assert_allclose(encoder.fit(SMALL).transform(SMALL), expected, atol=1e-4)


def pil(photo):
    return Image.fromarray(photo)


def prepared(folder, name, config):
    """The pictures of the photos, as the file beside a network asks for them."""
    (folder / name).write_text(json.dumps(config))
    preparation = Preparation(**settings_beside(folder / "model.onnx"))
    return [next(iter(views_of(photo, preparation, "trained"))) for photo in PHOTOS], preparation


def assert_within_a_level(ours, theirs):
    for own, their in zip(ours, theirs, strict=True):
        assert own.shape == their.shape
        assert np.abs(own.astype(int) - np.asarray(their).round().astype(int)).max() <= 1


@pytest.mark.parametrize("size", [224, 96, (224, 160)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize_mode", ["shortest", "squash", "longest"])
def test_pictures_are_those_of_open_clip(tmp_path, size, interpolation, resize_mode):
    if isinstance(size, tuple) and (resize_mode, interpolation) == ("shortest", "bilinear"):
        interpolation = "bicubic"  # which open_clip takes there, whatever it is asked for
    config = open_clip.transform.PreprocessCfg(
        size=size, interpolation=interpolation, resize_mode=resize_mode, fill_color=7, mean=(0, 0, 0), std=(1, 1, 1)
    )
    transform = open_clip.transform.image_transform_v2(config, is_train=False)
    theirs = [255 * transform(pil(photo)).numpy().transpose(1, 2, 0) for photo in PHOTOS]
    ours, preparation = prepared(tmp_path, "preprocess_cfg.json", asdict(config))
    assert_within_a_level(ours, theirs)
    np.testing.assert_allclose(preparation.numbers(ours[0]), theirs[0] / 255, atol=1.01 / 255)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("CLIPImageProcessorPil", {}),
        ("CLIPImageProcessor", {}),
        ("CLIPImageProcessorPil", {"size": {"shortest_edge": 256}, "resample": 2}),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 256}}),
        ("SiglipImageProcessorPil", {"size": {"height": 224, "width": 224}, "resample": 2}),
        ("SiglipImageProcessor", {"size": {"height": 96, "width": 160}}),
    ],
)
def test_pictures_and_numbers_are_those_of_transformers(tmp_path, kind, settings):
    processor = getattr(twins.hf, kind)(**settings)
    theirs = [processor(pil(photo), return_tensors="np")["pixel_values"][0].transpose(1, 2, 0) for photo in PHOTOS]
    ours, preparation = prepared(tmp_path, "preprocessor_config.json", json.loads(processor.to_json_string()))
    levels = [(each * preparation.std + preparation.mean) * 255 for each in theirs]
    assert_within_a_level(ours, levels)


@pytest.mark.shared
def test_pictures_of_corel_are_those_of_open_clip_and_transformers(tmp_path, shared):
    photos = [read_image(path) for path in sorted((shared / "data/corel5k/images").iterdir())[:40]]
    config = open_clip.transform.PreprocessCfg(size=224, mean=(0, 0, 0), std=(1, 1, 1))
    transform = open_clip.transform.image_transform_v2(config, is_train=False)
    processor = twins.hf.CLIPImageProcessorPil()
    for resize, prepare in {
        "shortest": lambda photo: 255 * transform(photo).numpy().transpose(1, 2, 0),
        "shortest_floor": lambda photo: processor(photo, do_rescale=False, do_normalize=False)["pixel_values"][0]
        .transpose(1, 2, 0),
    }.items():  # fmt: skip
        preparation = Preparation(size=224, interpolation="bicubic", resize=resize)
        ours = [next(iter(views_of(photo, preparation, "trained"))) for photo in photos]
        assert_within_a_level(ours, [prepare(pil(photo)) for photo in photos])


@pytest.mark.shared
def test_mobilenet_through_a_row_of_the_users_is_mobilenet(shared, tmp_path, monkeypatch):
    network = shared / "models/mobilenet_v2.onnx"
    (tmp_path / "networks.toml").write_text(
        f'[mobile]\ngood_for = "tests"\nlicence = "Apache-2.0"\nimage = {{ file = "{network}" }}\n'
        'settings = { output = "features" }\nencoder = { views = "whole" }\n'
    )
    monkeypatch.setenv(TABLE_ENV, str(tmp_path / "networks.toml"))
    expected = Onnx(path=network, output="features", views="whole").fit(PHOTOS)
    encoder = make_encoder(None, {}, {}).fit(PHOTOS)
    assert encoder.network == "mobile"
    assert encoder.transform(PHOTOS).tobytes() == expected.transform(PHOTOS).tobytes()
