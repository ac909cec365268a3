"""The timm encoder gives what timm's own network gives for photos prepared as timm says, from a local file alone."""

# ruff: noqa: E402 (what follows the skips needs torch)
from __future__ import annotations

import dataclasses
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("huggingface_hub", reason="the extra 'torch' is not installed")

from PIL import Image
from safetensors.torch import load_file, save_file

from tiny_towers import timm, timm_weights
from visterm.core.errors import EncoderMismatchError, StorageError, UnknownNameError, UserError
from visterm.core.tables import ENCODERS
from visterm.learning.fit_request import FitRequest
from visterm.learning.part_settings import move_encoder
from visterm_research.encoders import torch_weights
from visterm_research.encoders.timm import Timm, timm_config, timm_preparation
from visterm_research.encoders.torch_network import TorchNetwork

PLAIN = {"root": False, "centre": False, "normalise": False, "device": "cpu"}


@pytest.fixture
def weights(tmp_path):
    return timm_weights(tmp_path / "weights.safetensors")


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(60, 60), (40, 90), (80, 31)]]


@pytest.fixture
def photo():
    return np.random.default_rng(1).integers(0, 256, (240, 240, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_convnext", "test_efficientnet"])
def test_rows_are_the_pooled_features_of_timms_network_for_photos_that_timm_prepares(tmp_path, name, photo):
    path = timm_weights(tmp_path / "weights.safetensors", name)
    row = Timm(network=name, weights=path, views="trained", **PLAIN).fit_transform([photo])
    model = timm.create_model(name, num_classes=7).eval()
    model.load_state_dict(load_file(path))
    model.reset_classifier(0)
    prepare = timm.data.create_transform(**timm.data.resolve_data_config(model=model))
    with torch.inference_mode():
        expected = model(prepare(Image.fromarray(photo))[None]).numpy()
    assert row.shape == (1, model.num_features)
    np.testing.assert_allclose(row, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("views", ["three", "trained"])
def test_a_network_gives_the_same_rows_by_onnx_with_its_preparation_in_the_file_beside_it(tmp_path, photos, views):
    onnx_encoder = pytest.importorskip("visterm.encoders.onnx", reason="the extra 'onnx' is not installed")
    path = timm_weights(tmp_path / "weights.safetensors", "test_resnet")
    encoder = Timm(network="test_resnet", weights=path, views=views, device="cpu").fit(photos)
    exported = tmp_path / "net.onnx"
    network = encoder._open()
    torch.onnx.export(network.module, (torch.zeros(1, 3, 160, 160),), exported, dynamo=False)
    exported.with_suffix(".json").write_text(json.dumps(dataclasses.asdict(network.preparation)))
    rows = onnx_encoder.Onnx(path=exported, views=views).fit_transform(photos)
    np.testing.assert_allclose(rows, encoder.transform(photos), atol=1e-4)


def test_all_ways_of_keeping_weights_give_the_same_rows(tmp_path, weights, photos):
    state = load_file(weights)
    features = {key: value for key, value in state.items() if not key.startswith("head.")}
    torch.save(state, tmp_path / "a.pth")
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "b.pt")
    save_file(features, tmp_path / "c.safetensors")
    expected = Timm(network="test_vit", weights=weights, **PLAIN).fit_transform(photos)
    for file in ("a.pth", "b.pt", "c.safetensors"):
        rows = Timm(network="test_vit", weights=tmp_path / file, **PLAIN).fit_transform(photos)
        np.testing.assert_array_equal(rows, expected, file)


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("hostile",)


def test_a_file_that_holds_more_than_weights_is_refused_and_not_run(tmp_path, monkeypatch, photos):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Hostile()}, "torch.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Hostile(), protocol=2))
    (tmp_path / "nonsense.safetensors").write_bytes(b"nonsense of some length")
    for file in ("torch.pth", "plain.pth", "nonsense.safetensors"):
        with pytest.raises(StorageError, match=rf"{file} cannot be used as the weights of timm's 'test_vit'"):
            Timm(network="test_vit", weights=file).fit(photos)
    assert not (tmp_path / "hostile").exists()


def test_weights_of_another_network_or_with_one_missing_are_refused(tmp_path, weights, photos):
    with pytest.raises(StorageError, match="cannot be used as the weights of timm's 'test_resnet'"):
        Timm(network="test_resnet", weights=weights).fit(photos)
    state = load_file(weights)
    state.pop("norm.weight")
    save_file(state, weights)
    with pytest.raises(StorageError, match=r"Missing key.*norm\.weight"):
        Timm(network="test_vit", weights=weights).fit(photos)


def test_names_that_timm_does_not_know_are_refused_with_the_nearest(weights, photos):
    with pytest.raises(UnknownNameError, match=r"timm network 'resnet19'.*Did you mean 'resnet1"):
        Timm(network="resnet19", weights=weights).fit(photos)
    with pytest.raises(UnknownNameError, match=r"weights of timm's 'resnet18' 'a1_in2k'. Did you mean 'a1_in1k'\?"):
        Timm(network="resnet18.a1_in2k").fit(photos)
    with pytest.raises(UnknownNameError, match="hf-hub:timm/resnet18"):
        Timm(network="hf-hub:timm/resnet18.a1_in1k", weights=weights).fit(photos)
    with pytest.raises(UserError, match="--encoder timm:resnet18"):
        Timm(weights=weights).fit(photos)


def test_without_weights_the_message_says_what_to_get_and_nothing_is_asked_of_the_network(tmp_path, monkeypatch, photo):
    monkeypatch.setattr(torch_weights.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"hf download timm/resnet18.a1_in1k model.safetensors.*weights=PATH"):
        Timm(network="resnet18").fit([photo])
    with pytest.raises(UserError, match="timm names none for it"):
        Timm(network="test_coatnet").fit([photo])


def test_weights_in_the_hubs_cache_are_found(tmp_path, monkeypatch, weights, photos):
    repo = tmp_path / "cache" / "models--timm--test_vit.r160_in1k"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0123abcd")
    (repo / "snapshots" / "0123abcd").mkdir(parents=True)
    (repo / "snapshots" / "0123abcd" / "model.safetensors").write_bytes(weights.read_bytes())
    monkeypatch.setattr(torch_weights.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    found, given = Timm(network="test_vit", **PLAIN), Timm(network="test_vit", weights=weights, **PLAIN)
    assert found.fingerprint == given.fingerprint
    np.testing.assert_array_equal(found.fit_transform(photos), given.fit_transform(photos))


def test_the_hub_is_held_offline_only_while_weights_are_read():
    before = torch_weights.constants.HF_HUB_OFFLINE
    with torch_weights.offline():
        assert torch_weights.constants.HF_HUB_OFFLINE is True
        with pytest.raises(Exception, match=r"offline|cannot find the requested files"):
            timm.create_model("resnet18", pretrained=True)
    assert torch_weights.constants.HF_HUB_OFFLINE is before


def test_nothing_is_opened_before_the_first_use(tmp_path, photo):
    encoder = Timm(network="test_vit", weights=tmp_path / "none.pth")
    with pytest.raises(StorageError, match=r"There is no file .*none\.pth"):
        encoder.fit([photo])


def test_bytes_are_the_same_for_any_threads_and_any_company(weights, photos):
    encoders = [
        Timm(network="test_vit", weights=weights, n_jobs=j, batch_size=b, device="cpu").fit(photos)
        for j, b in [(1, 32), (2, 32), (2, 1)]
    ]
    rows = [encoder.transform(photos).tobytes() for encoder in encoders]
    assert rows[0] == rows[1] == rows[2]
    assert b"".join(encoders[0].transform([photo]).tobytes() for photo in photos) == rows[0]


@pytest.mark.parametrize("views", ["three", "centre"])
def test_a_device_that_takes_all_pictures_at_once_gives_the_same_rows(weights, photos, monkeypatch, views):
    encoder = Timm(network="test_vit", weights=weights, views=views, **PLAIN).fit(photos)
    expected = encoder.transform(photos)
    monkeypatch.setattr(TorchNetwork, "is_batch_independent", False)
    np.testing.assert_allclose(encoder.transform(photos), expected, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gives_the_rows_of_the_processor(weights, photos):
    on = {device: Timm(network="test_vit", weights=weights, device=device) for device in ("cpu", "cuda")}
    rows = {device: encoder.fit_transform(photos) for device, encoder in on.items()}
    np.testing.assert_allclose(rows["cuda"], rows["cpu"], atol=1e-4)
    on["cpu"].set_params(device="auto")
    np.testing.assert_allclose(on["cpu"].transform(photos), rows["cpu"], atol=1e-4)


@pytest.fixture
def other_settings_of_torch():
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_num_threads(before[0])
    torch.set_float32_matmul_precision(before[1])


@pytest.mark.usefixtures("other_settings_of_torch")
def test_torch_runs_on_one_thread_in_full_precision_and_gets_its_own_settings_back(weights, photos, monkeypatch):
    encoder = Timm(network="test_vit", weights=weights, n_jobs=2, **PLAIN).fit(photos)
    during = []
    network = encoder._open()
    plain_rows = network.rows

    def watched_rows(pictures):
        during.append((torch.get_num_threads(), torch.get_float32_matmul_precision()))
        return plain_rows(pictures)

    monkeypatch.setattr(network, "rows", watched_rows)
    encoder.transform(photos)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (3, "medium")
    assert set(during) == {(1, "highest")}


@pytest.mark.usefixtures("other_settings_of_torch")
def test_encoders_in_several_threads_leave_torch_as_it_was(weights, photos):
    encoder = Timm(network="test_vit", weights=weights, n_jobs=2, **PLAIN).fit(photos)
    expected = encoder.transform(photos)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(encoder.transform, [photos] * 6))
    assert all((rows == expected).all() for rows in results)
    with ThreadPoolExecutor(1) as pool:  # a new thread starts with what is global
        assert pool.submit(torch.get_num_threads).result() == 3


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_the_size_is_timms_or_the_users(tmp_path, name, photo):
    path = timm_weights(tmp_path / "weights.safetensors", name)
    own, small = Timm(network=name, weights=path, **PLAIN), Timm(network=name, weights=path, size=(96, 64), **PLAIN)
    assert own.fit([photo])._open().preparation.size == (160, 160)
    assert small.fit([photo])._open().preparation.size == (96, 64)
    assert own.transform([photo]).shape == small.transform([photo]).shape
    with pytest.raises(UserError, match="size is 'big'"):
        Timm(network=name, weights=path, size="big").fit([photo])


def test_the_part_of_the_middle_is_that_which_timm_cuts_out_and_never_more_than_the_photo():
    wanted = {
        name: timm_preparation(timm_config(name), None)
        for name in ("resnet18", "volo_d5_512", "eva02_tiny_patch14_336")
    }
    assert wanted["resnet18"].crop == 224 / 235  # resized to floor(224 / 0.95), the middle 224 of it
    assert wanted["volo_d5_512"].crop == 1  # timm would pad
    assert wanted["eva02_tiny_patch14_336"].crop == 1


def test_a_device_that_is_not_there_is_refused(weights, photo):
    for device in ("cuda:77", "abacus"):
        with pytest.raises(UserError, match=f"device is '{device}'"):
            Timm(network="test_vit", weights=weights, device=device).fit([photo])


def test_other_weights_under_the_same_name_are_another_encoder(tmp_path, weights, photos):
    other = timm_weights(tmp_path / "other.safetensors", seed=1)
    encoder = Timm(network="test_vit", weights=weights).fit(photos)
    assert encoder.fingerprint != Timm(network="test_vit", weights=other).fit(photos).fingerprint
    weights.write_bytes(other.read_bytes())
    encoder.set_params(views="whole")
    with pytest.raises(EncoderMismatchError, match="has changed since this encoder was fitted"):
        encoder.transform(photos)


def test_a_device_goes_to_the_encoder_that_has_one():
    request = FitRequest(device="cpu", encoder="timm:resnet18")
    assert request.part_settings() == ({"device": "cpu"}, {})


def test_a_fitted_encoder_and_those_inside_another_move():
    alone, inside = ENCODERS.create("timm", network="resnet18"), ENCODERS.create("timm", network="resnet18")
    move_encoder(alone, "cpu")
    assert alone.device == "cpu"
    move_encoder(SimpleNamespace(get_params=lambda deep: {}, parts_=[ENCODERS.create("visterms"), inside]), "cpu")
    assert inside.device == "cpu"
