"""A run exported as one ONNX graph gives what the run gives, and PhotoPrism's folder is as PhotoPrism's sources say."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from PIL import Image

from command_line import visterm
from tiny_networks import colour_network
from visterm.core.errors import StorageError, UserError
from visterm.library.export.onnx_model import (
    CONFIDENCES,
    PICTURES,
    SCORES,
    export_model,
    export_photoprism_model,
    graph_of,
)
from visterm.tagging.tagger import Tagger

pytestmark = pytest.mark.usefixtures("plugin")

COLOURS = ("red", "green", "blue")


def drawn_photos(n, seed=0):
    """Photos of a colour with noise, of several shapes, and the colours that are bright in them."""
    rng = np.random.default_rng(seed)
    photos, tags = [], []
    for i in range(n):
        colour = rng.integers(0, 256, 3)
        noise = rng.integers(-20, 20, (10 + i % 5, 14 - i % 7, 3))
        photos.append(np.clip(colour + noise, 0, 255).astype(np.uint8))
        tags.append([name for name, value in zip(COLOURS, colour, strict=True) if value > 140] or ["dark"])
    return photos, tags


@pytest.fixture(scope="module")
def photos():
    return drawn_photos(150)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return colour_network(tmp_path_factory.mktemp("network") / "net.onnx", dtype="float32", channels_last=False)


def fitted(photos, network, model="ridge", *, settings=None, encoder=None, **more):
    images, tags = photos
    made = Tagger(encoder=f"onnx:{network}", model=model, encoder_params=encoder or {}, model_params=settings or {})
    return made.fit(images, tags, **more)


@pytest.fixture(scope="module")
def run(photos, network):
    return fitted(photos, network)


def module_of(folder):
    """Import the example beside a graph, as somebody who copies it would, without visterm."""
    assert "from visterm" not in (folder / "tag_photo.py").read_text()
    spec = importlib.util.spec_from_file_location("tag_photo", folder / "tag_photo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_folder(folder, paths):
    """Prepare photos as the folder's example does, and run its graph: the outputs by name."""
    example, prepared = module_of(folder), json.loads((folder / "preparation.json").read_text())
    pictures = [example.pictures_of(example.read_photo(path, prepared["max_side"]), prepared) for path in paths]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3  # as other tests run beside it
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    names = [output.name for output in session.get_outputs()]
    found = [session.run(names, {PICTURES: np.stack(some)}) for some in pictures]
    return {name: np.concatenate([values[i] for values in found]) for i, name in enumerate(names)}


def assert_same_as_annotate(tagger, folder, paths):
    found, labels = run_folder(folder, paths), (folder / "labels.txt").read_text().splitlines()
    assert labels == tagger.vocabulary.tags
    for place, image in enumerate(tagger.annotate(paths, k=0).images):
        columns = [labels.index(tag.tag) for tag in image.tags]
        scores, chances = found[SCORES][place, columns], found[CONFIDENCES][place, columns]
        np.testing.assert_allclose(scores, [tag.score for tag in image.tags], atol=1e-4)
        np.testing.assert_allclose(chances, [tag.confidence for tag in image.tags], atol=1e-4)
        assert (np.diff(scores) <= 1e-4).all()  # in the same order, but for tags that score the same


def save(folder, photos, n=6):
    paths = []
    for i, photo in enumerate(photos[:n]):
        paths.append(folder / f"{i}.png")
        Image.fromarray(photo).save(paths[-1])
    return paths


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("ridge", {}),
        ("text_ridge", {}),
        ("kernel_ridge", {}),
        ("knn", {}),
        ("knn", {"n_neighbors": 3, "power": 0}),
        ("vse_ens", {"dim": 4, "epochs": 3}),
        ("wsabie", {"dim": 4, "epochs": 3}),
        ("wsabie", {"dim": 4, "epochs": 3, "standardize": False}),
        ("ensemble", {"members": [["ridge", {}], ["wsabie", {"dim": 4, "epochs": 3}]]}),
        ("auto", {"candidates": [["knn", {}], ["kernel_ridge", {}]], "lift": 0.3}),
        ("pamir", {}),
    ],
    ids=[
        "ridge",
        "text_ridge",
        "kernel_ridge",
        "knn",
        "3 neighbours",
        "vse_ens",
        "wsabie",
        "plain wsabie",
        "ensemble",
        "auto",
        "pamir",
    ],
)
def test_the_graph_gives_the_scores_and_confidences_of_annotate(model, settings, photos, network, tmp_path):
    tagger = fitted(photos, network, model, settings=settings)
    export_model(tagger, tmp_path / "model")
    onnx.checker.check_model(onnx.load(tmp_path / "model" / "model.onnx"), full_check=True)
    told = "share it only with people who may see these" in (tmp_path / "model" / "README.md").read_text()
    assert told == (model in ("knn", "kernel_ridge", "auto"))
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md", "labels.txt", "model.onnx", "preparation.json", "tag_photo.py",
    ]  # fmt: skip
    assert_same_as_annotate(tagger, tmp_path / "model", save(tmp_path, drawn_photos(6, seed=1)[0]))


@pytest.mark.parametrize(
    ("how", "encoder"),
    [
        ({"dtype": "uint8"}, {"views": "whole"}),
        ({"dtype": "float16", "channels_last": False}, {"colours": "BGR", "views": "centre"}),
        ({"dtype": "float32"}, {"output": "maps", "root": False, "normalise": False}),
        ({"dtype": "float32", "channels_last": False}, {"output": "maps_first"}),
        ({"dtype": "uint8"}, {"output": "tokens", "pooling": "both"}),
        ({"dtype": "uint8"}, {"output": "tokens", "pooling": "class", "views": "trained", "crop": 0.8}),
        ({"dtype": "uint8"}, {"output": "tokens", "views": "trained", "resize": "shortest", "crop": 0.9}),
        ({"dtype": "uint8"}, {"views": "trained", "resize": "pad", "fill": 90}),
        ({"dtype": "uint8", "weights_beside": "weights.bin"}, {"views": "trained", "resize": "squash"}),
        ({"dtype": "float32", "batch": 1}, {"views": "whole", "scale": 0.01, "mean": [0.1, 0.2, 0.3]}),
    ],
    ids=["uint8", "float16 BGR", "maps", "maps first", "both", "class", "shortest", "pad", "weights beside", "batch 1"],
)
def test_pictures_are_prepared_as_the_encoder_prepares_them(how, encoder, photos, tmp_path):
    outputs = ("features", "maps", "tokens", "maps_first")
    network = colour_network(tmp_path / "net.onnx", outputs=outputs, **how)
    tagger = fitted(photos, network, encoder=encoder)
    export_model(tagger, tmp_path / "model")
    assert_same_as_annotate(tagger, tmp_path / "model", save(tmp_path, drawn_photos(6, seed=2)[0]))


def test_tags_above_others_are_raised_in_the_graph_too(photos, network, tmp_path):
    tree = tmp_path / "tree.csv"
    tree.write_text("child,parent\nred,colour\nblue,colour\ncolour,thing\ngreen,thing\n")
    tagger = fitted(photos, network, tree=tree)
    assert tagger.tree is not None
    assert len(tagger.vocabulary) == 6
    export_model(tagger, tmp_path / "model")
    assert_same_as_annotate(tagger, tmp_path / "model", save(tmp_path, drawn_photos(6, seed=3)[0]))


def test_a_run_without_confidences_gives_scores_alone(photos, network, tmp_path):
    tagger = fitted(photos, network, calibrate=False)
    assert export_model(tagger, tmp_path / "model").outputs == [SCORES]
    with pytest.raises(UserError, match="PhotoPrism needs confidences, but this run has none"):
        export_photoprism_model(tagger, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        ("likely_tags", {}, "model of this run is 'likely_tags'"),
        ("auto", {"candidates": [["likely_tags", {}]]}, "'auto' uses the model 'likely_tags'"),
    ],
    ids=["neighbours", "blend"],
)
def test_runs_that_cannot_be_exported_say_why_and_what_to_do(model, settings, reason, photos, network):
    with pytest.raises(UserError, match=reason):
        graph_of(fitted(photos, network, model, settings=settings))


def test_another_encoder_is_refused_with_what_to_do(photos):
    images, tags = photos
    tagger = Tagger(encoder="mean_colour", model="ridge").fit(images, tags)
    with pytest.raises(UserError, match="encoder of this run is 'mean_colour'"):
        graph_of(tagger)


def test_a_network_whose_rows_depend_on_their_company_is_refused_for_several_views(photos, tmp_path):
    network = colour_network(tmp_path / "net.onnx", outputs=("likened",))
    tagger = fitted(photos, network, encoder={"root": False, "normalise": False})
    with pytest.raises(UserError, match=r"computes different rows for 3 pictures together.* views=whole"):
        graph_of(tagger)


def test_nothing_is_replaced(run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="already exists and is not an empty folder"):
        export_model(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def check_photoprism(folder):
    """Check a folder as PhotoPrism does, by its sources of October 2026, and return its model's entry and outputs.

    `internal/ai/vision/model.go` finds the files, `internal/ai/onnx/inspect.go` and `verify.go` compare the graph with
    the description, and `internal/ai/classify/model.go` checks labels, prepares the photo and checks probabilities.
    """
    settings = yaml.safe_load((folder / "vision.yml").read_text())
    assert settings.keys() <= {"Models", "Thresholds"}
    assert 1 <= settings["Thresholds"]["Confidence"] <= 100
    (entry,) = settings["Models"]
    assert entry.keys() <= {"Type", "Name", "Engine", "Run", "Resolution", "LabelFile", "ONNX"}
    assert (entry["Type"], entry["Engine"], entry["Run"]) == ("labels", "onnx", "on-index")
    assert re.fullmatch("[a-z0-9_]+", entry["Name"])
    about = entry["ONNX"]
    file = folder / entry["Name"] / about["File"]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == about["SHA256"]
    session = onnxruntime.InferenceSession(file)
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type) == (about["Input"]["Name"], "tensor(float)")
    height, width = about["Input"]["Height"], about["Input"]["Width"]
    assert about["Input"]["Layout"] == "NHWC"
    assert given.shape[1:] == [height, width, 3]
    assert about["Input"]["ColorOrder"] in ("RGB", "BGR")
    normal, resize = about["Input"]["Normalization"], about["Input"]["Resize"]
    assert len(normal["Mean"]) == len(normal["StdDev"]) == 3
    assert all(normal["StdDev"])
    assert resize["Mode"] in ("stretch", "center-crop", "pad")
    assert resize["Interpolation"] in ("nearest", "linear", "bicubic", "lanczos")
    assert (resize["Mode"] == "center-crop") == ("ShortEdge" in resize)
    labels = (folder / entry["Name"] / entry["LabelFile"]).read_text().splitlines()
    assert made.name == about["Output"]["Name"]
    assert made.shape[-1] == about["Output"]["Width"] == len(labels)
    assert (about["Output"]["Count"], about["Output"]["Logits"]) == (1, False)

    def probabilities(picture):
        blob = (picture.astype(np.float32) - normal["Mean"]) / np.array(normal["StdDev"])
        found = session.run([made.name], {given.name: blob[None].astype(np.float32)})[0][0]
        assert np.isfinite(found).all()
        assert ((found >= 0) & (found <= 1)).all()
        assert abs(found.astype(np.float64).sum() - 1) <= 1e-4
        return dict(zip(labels, found.tolist(), strict=True))

    return entry, probabilities


@pytest.mark.parametrize(
    ("encoder", "mode"),
    [
        ({"views": "whole"}, {"Mode": "stretch", "Interpolation": "linear"}),
        ({"views": "three", "interpolation": "bicubic"}, {"Mode": "stretch", "Interpolation": "bicubic"}),
        ({"views": "centre"}, {"Mode": "center-crop", "ShortEdge": 8, "Interpolation": "linear"}),
        ({"views": "trained", "crop": 0.8}, {"Mode": "center-crop", "ShortEdge": 10, "Interpolation": "linear"}),
        ({"views": "trained", "resize": "pad"}, {"Mode": "pad", "Interpolation": "linear"}),
    ],
    ids=["whole", "three", "centre", "trained", "pad"],
)
def test_the_folder_for_photoprism_is_as_its_sources_say(encoder, mode, photos, network, tmp_path):
    tagger = fitted(photos, network, encoder=encoder)
    export_photoprism_model(tagger, tmp_path / "pp")
    entry, probabilities = check_photoprism(tmp_path / "pp")
    assert entry["ONNX"]["Input"]["Resize"] == mode
    tagger.encoder.views = "whole"  # PhotoPrism has made the picture already
    for picture in np.random.default_rng(4).integers(0, 256, (5, 8, 8, 3), np.uint8):
        ((_, tags),) = tagger.annotate([picture], k=0).images
        found = probabilities(picture)
        rest = max(0.0, 1 - sum(tag.confidence for tag in tags))
        total = sum(tag.confidence for tag in tags) + rest
        expected = {tag.tag: tag.confidence / total for tag in tags} | {"background": rest / total}
        assert found == pytest.approx(expected, abs=1e-4)


def test_the_command_writes_both_folders_and_refuses_what_does_not_go_together(run, tmp_path):
    run.save(tmp_path / "run")
    code, out, err = visterm("export run --to onnx -o model --json", tmp_path)
    assert (code, json.loads(out)["tags"]) == (0, 4)
    assert "README.md says how to use it" in err
    assert "training photos" not in err
    assert visterm("export run --to photoprism-model -o pp", tmp_path)[0] == 0
    check_photoprism(tmp_path / "pp")
    for line, reason in {
        "export run --to onnx": "--to onnx writes a folder, named by -o",
        "export run photos --to onnx -o other": "Leave IMAGES out",
        "export run --to onnx --undo -o other": "delete its output",
        "export run --to onnx -o model": "already exists",
    }.items():
        code, _, err = visterm(line, tmp_path)
        assert (code, reason in err) == (2, True), err


def test_without_the_package_that_it_needs_the_export_says_what_to_install(run, tmp_path, monkeypatch):
    run.save(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, err = visterm("export run --to onnx -o model", tmp_path)
    assert (code, "Install it with: pip install 'visterm[onnx]'" in err) == (2, True), err
    assert not (tmp_path / "model").exists()


@pytest.mark.shared
def test_the_graph_of_mobilenet_gives_the_tags_of_annotate_on_photos_of_corel(shared, tmp_path):
    photos = sorted((shared / "data/corel5k/images").iterdir())[:140]  # 500: research/experiments/exported_graphs.py
    lines = (shared / "data/corel5k/labels.tsv").read_text().splitlines()[1:]
    labels = {name: tags.split(",") for name, _, tags in (line.split("\t") for line in lines)}
    made = Tagger(
        encoder=f"onnx:{shared / 'models/mobilenet_v2.onnx'}", encoder_params={"views": "whole"}, model="ridge"
    )
    tagger = made.fit(photos[:110], [labels[path.name] for path in photos[:110]])
    export_model(tagger, tmp_path / "model")
    assert_same_as_annotate(tagger, tmp_path / "model", photos[110:])
