"""Export a run as one ONNX graph from pictures to scores and confidences of all tags, for any program or PhotoPrism.

PhotoPrism's source code (October 2026: `internal/ai/classify/README.md` and `model.go`, `internal/ai/onnx/info.go` and
`resize.go`, `internal/ai/vision/README.md`) requires one float32 input and one output, a distribution over the labels
in the lines of `labels.txt`.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import file_hash, whole_folder
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders import preparation as photo_preparation
from visterm.encoders.onnx_graph import GraphSteps, around_network, read_network, weight_files
from visterm.encoders.preparation import VIEWS, Preparation, views_of
from visterm.models.abilities import WritesSteps
from visterm.tagging.hub_runs import tags_of_photos
from visterm.tagging.tagger import Tagger

PICTURES, SCORES, CONFIDENCES = "pictures", "scores", "confidences"  # Names of the input and the outputs
GRAPH_FILE, LABELS_FILE, PREPARATION_FILE = "model.onnx", "labels.txt", "preparation.json"
EXAMPLE_FILE, README_FILE = "tag_photo.py", "README.md"
VISTERM_IMPORT = "from visterm.encoders.preparation import views_of\n"  # Replaced in the example by the code itself
MAX_ERROR = 1e-4  # Maximum difference between graph and run on random test pictures
N_TEST_PICTURES = 4

MODEL_NAME = "visterm"  # Name of the model, its folder and its file
SETTINGS_FILE = "vision.yml"
BACKGROUND_LABEL = "background"  # Label of the remaining probability; PhotoPrism drops labels with this name
PREVIEW_PIXELS = 720  # PhotoPrism's smaller previews are square, while this one has the photo's shape
THRESHOLD_PERCENT = 50  # Threshold for labels, before division by the mean number of tags per photo
PHOTOPRISM_FILTERS = {"bilinear": "linear", "bicubic": "bicubic", "lanczos": "lanczos"}  # By our name


class Graph(NamedTuple):
    """A run converted to an ONNX graph."""

    content: bytes
    preparation: Preparation
    network: str  # Path of the run's network
    outputs: list[str]
    n_views: int


def graph_of(tagger: Tagger, *, for_photoprism: bool = False) -> Graph:
    """Convert a run to an ONNX graph, and compare the graph with the run on a few random pictures.

    The input is uint8 pictures, shape (photos · views, height, width, 3); the outputs are scores of all tags, shape
    (photos, n_tags), and confidences, if the run has any. With `for_photoprism`, the input is one float32 picture per
    photo, from 0 to 255, and the output is one distribution: the confidences and the remaining probability, normalised
    if the confidences sum to more than 1.

    Raises MissingExtraError if onnx is not installed; UserError if the encoder is not a network in an ONNX file, the
    model cannot be converted, or the network computes different rows for several photos than for one.
    """
    tagger._refuse_unfitted()
    encoder, model = _parts(tagger, for_photoprism)
    n_views = 1 if for_photoprism else len(VIEWS[encoder.views])
    steps_before, steps_after = GraphSteps("before"), GraphSteps("after")
    network, rows = encoder.write_steps(steps_before, steps_after, PICTURES, n_views=n_views, floats=for_photoprism)
    scores = model.write_steps(steps_after, rows)
    confidences = None if tagger.calibration is None else tagger.calibration.write_steps(steps_after, scores)
    if tagger.tree is not None:
        scores = tagger.tree.write_steps(steps_after, scores)
        confidences = None if confidences is None else tagger.tree.write_steps(steps_after, confidences)
    n_tags, outputs = len(tagger.vocabulary), []

    if for_photoprism and confidences is not None:
        total = steps_after.affine(confidences, np.ones((n_tags, 1)))
        remaining = steps_after.add("Relu", steps_after.add("Sub", 1.0, total))
        confidences = steps_after.add("Concat", confidences, remaining, axis=1)
        confidences = steps_after.add("Div", confidences, steps_after.affine(confidences, np.ones((n_tags + 1, 1))))

    for name, tensor in ((CONFIDENCES, confidences), (SCORES, None if for_photoprism else scores)):
        if tensor is not None:
            outputs.append(steps_after.add("Identity", tensor, to=name))

    width, kind = n_tags + for_photoprism, "float32" if for_photoprism else "uint8"
    metadata = {"visterm.version": version("visterm"), "visterm.run": tagger.fingerprint}
    for n in ("pictures", n_views):  # networks for single pictures may or may not accept several
        inputs = PICTURES, kind, [n, *network.preparation.size, 3]
        results = [(name, width) for name in outputs]
        content = around_network(read_network(network.path), steps_before, steps_after, inputs, results, metadata)
        graph = Graph(content, network.preparation, network.path, outputs, n_views)
        if _gives_same_results(tagger, graph, 1 if n == n_views else N_TEST_PICTURES, for_photoprism=for_photoprism):
            return graph
    raise UserError(
        f"The network {network.path} computes different rows for {n_views} pictures together than for single pictures, "
        "so no graph can give the results of this run. Fit the run with one picture per photo: encoder setting "
        "views=whole."
    )


def _parts(tagger: Tagger, for_photoprism: bool) -> tuple[Any, Any]:
    """Return the encoder and the model of a run. Raises UserError unless both can be converted to a graph."""
    encoder, model = ENCODERS.name_of(tagger.encoder), MODELS.name_of(tagger.model)
    if encoder != "onnx":
        raise UserError(
            f"The encoder of this run is '{encoder}', and only a network in an ONNX file can be exported as a graph. "
            "Fit the run with such a network: encoder onnx:FILE, or a network that `visterm encoders` lists."
        )

    if not isinstance(tagger.model, WritesSteps):
        raise UserError(
            f"The model of this run is '{model}', whose scores cannot be written as a graph. Fit a model of vectors: "
            "ridge, or wsabie."
        )

    if for_photoprism and tagger.calibration is None:
        raise UserError("PhotoPrism needs confidences, but this run has none: fit it with at least 20 tagged photos.")
    return tagger.encoder, tagger.model


def _gives_same_results(tagger: Tagger, graph: Graph, n_photos: int, *, for_photoprism: bool) -> bool:
    """Return whether a graph gives the same results as the run on random pictures; False if the graph fails."""
    from visterm.encoders.onnx_network import OPEN_ERRORS, open_session

    height, width = graph.preparation.size
    photos = np.random.default_rng(0).integers(0, 256, (n_photos, height, 2 * width, 3), np.uint8)
    photos[-1] //= 8  # with another range of values
    encoder: Any = copy(tagger.encoder)
    if for_photoprism:
        encoder.views = "whole"
    scores, confidences = tagger.scores_and_confidences(encoder.encode(list(photos)).rows)
    expected: dict[str, Any] = {SCORES: scores, CONFIDENCES: confidences}
    if for_photoprism and confidences is not None:
        remaining = np.maximum(1 - confidences.sum(axis=1, keepdims=True), 0)
        extended = np.hstack([confidences, remaining])
        expected[CONFIDENCES] = extended / extended.sum(axis=1, keepdims=True)

    views = (views_of(photo, graph.preparation, encoder.views) for photo in photos)
    pictures: NDArray[Any] = np.stack([*chain.from_iterable(views)])
    session = open_session(graph.network, graph.content)
    try:
        outputs = session.run(graph.outputs, {PICTURES: pictures.astype(np.float32) if for_photoprism else pictures})
    except OPEN_ERRORS:
        return False
    return all(
        values.shape == np.shape(expected[name])
        and bool(np.allclose(values, expected[name], atol=MAX_ERROR * max(1.0, float(np.abs(values).max())), rtol=0))
        for name, values in zip(graph.outputs, outputs, strict=True)
    )


def export_model(tagger: Tagger, out: Path) -> Graph:
    """Write a folder with a run as one graph, its labels, and the preparation of photos as JSON and as example code.

    Raises the errors of `graph_of` and `export_folder`.
    """
    graph = graph_of(tagger)
    encoder: Any = tagger.encoder
    with export_folder(out) as folder:
        write_graph(graph, folder / GRAPH_FILE)
        write_labels(folder / LABELS_FILE, tagger.vocabulary.tags)
        facts = {
            "input": {"name": PICTURES, "shape": ["photos × views", *graph.preparation.size, 3], "type": "uint8"},
            "outputs": {name: ["photos", len(tagger.vocabulary)] for name in graph.outputs},
            "views": encoder.views,
            "places": list(VIEWS[encoder.views]),
            "max_side": encoder.reading_side,
            **asdict(graph.preparation),
        }
        (folder / PREPARATION_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (folder / EXAMPLE_FILE).write_text(_example_code(), encoding="utf-8")
        (folder / README_FILE).write_text(_readme(tagger, graph), encoding="utf-8")
    return graph


def _example_code() -> str:
    """Return the example with the code that it imports from visterm, so that it runs without visterm."""
    functions: tuple[Callable[..., object], ...] = (
        views_of, photo_preparation.boxes_of, photo_preparation._resized_and_offset,
    )  # fmt: skip
    constants = f"VIEWS = {VIEWS!r}\nRESIZE_FILTERS = {{n.name.lower(): n for n in Image.Resampling}}\n"
    code = "\n\n".join([constants, *map(inspect.getsource, functions)])
    return Path(__file__).with_name("onnx_example.py").read_text(encoding="utf-8").replace(VISTERM_IMPORT, code)


@contextmanager
def export_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is moved to `out` at the end. Raises StorageError if `out` is not empty."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise StorageError(f"{out} already exists and is not an empty folder. Choose another folder.")
    with whole_folder(out) as folder:
        yield folder


def write_graph(graph: Graph, path: Path) -> None:
    """Write a graph and any external weight files of its network, and test that it can be opened.

    Raises StorageError if it cannot be opened.
    """
    from visterm.encoders.onnx_network import open_session

    path.write_bytes(graph.content)
    for name in weight_files(graph.network):
        if os.path.basename(name) != name:
            raise StorageError(f"{graph.network} keeps weights in {name}; expected a file in the same folder.")
        shutil.copyfile(Path(graph.network).parent / name, path.parent / name)
    open_session(str(path))


def write_labels(path: Path, labels: list[str]) -> None:
    """Write tag names in the order of the graph's outputs, one per line; line breaks in names become spaces."""
    path.write_text("".join(f"{' '.join(label.splitlines())}\n" for label in labels), encoding="utf-8")


def _readme(tagger: Tagger, graph: Graph) -> str:
    height, width = graph.preparation.size
    views_text = "" if graph.n_views == 1 else f"Each {graph.n_views} consecutive pictures are one photo. "
    confidences = f"- `{CONFIDENCES}`: how likely each tag is, 0 to 1\n" if CONFIDENCES in graph.outputs else ""
    return f"""# Tags of a photo library, as one ONNX graph

Exported by visterm {version("visterm")} from the run {tagger.fingerprint}.

`{GRAPH_FILE}` takes `{PICTURES}`, uint8 of shape (n, {height}, {width}, 3) in red, green and blue, 0 to 255.
{views_text}The colours are normalised in the graph.

For each photo, the outputs have a number for each line of `{LABELS_FILE}`:

{confidences}- `{SCORES}`: the scores by which tags are ranked, highest first

`{PREPARATION_FILE}` says how a photo becomes pictures, and so does the code of `{EXAMPLE_FILE}`, which needs
onnxruntime, Pillow and NumPy, but not visterm:

    python {EXAMPLE_FILE} photo.jpg
{privacy_warning(tagger)}"""


def privacy_warning(tagger: Tagger) -> str:
    """Return a warning for people if a run's model contains features and tags of training photos, else ""."""
    if not (names := list(tags_of_photos(tagger.model))):
        return ""
    return (
        f"\nThe graph contains features and tags of the {tagger.facts.get('images', 0):,} training photos "
        f"(model {' and '.join(names)}):\nshare it only with people who may see these.\n"
    )


def export_photoprism_model(tagger: Tagger, out: Path) -> Graph:
    """Write a folder with a model for PhotoPrism and its `SETTINGS_FILE`; raises the errors of `export_model`.

    The model gets one picture per photo, prepared by PhotoPrism.
    """
    graph = graph_of(tagger, for_photoprism=True)
    n_tags = len(tagger.vocabulary)
    with export_folder(out) as folder:
        (folder / MODEL_NAME).mkdir()
        write_graph(graph, folder / MODEL_NAME / f"{MODEL_NAME}.onnx")
        write_labels(folder / MODEL_NAME / LABELS_FILE, [*tagger.vocabulary.tags, BACKGROUND_LABEL])
        tags_per_photo = float(tagger.facts.get("tags given", 0)) / max(1, tagger.facts.get("images", 1))
        threshold = max(1, int(THRESHOLD_PERCENT / max(1.0, tags_per_photo) + 0.5))
        sha256 = file_hash(folder / MODEL_NAME / f"{MODEL_NAME}.onnx")
        settings = _settings(graph, tagger.encoder, n_tags + 1, sha256, threshold)
        (folder / SETTINGS_FILE).write_text(settings, encoding="utf-8")
        (folder / README_FILE).write_text(_photoprism_readme(tagger, threshold), encoding="utf-8")
    return graph


def _settings(graph: Graph, encoder: Any, n_labels: int, sha256: str, threshold: int) -> str:
    (height, width), resize = graph.preparation.size, _resize_settings(graph, encoder)
    return f"""Models:
- Type: labels
  Name: {MODEL_NAME}
  Engine: onnx
  Run: on-index
  Resolution: {PREVIEW_PIXELS}
  LabelFile: {LABELS_FILE}
  ONNX:
    File: {MODEL_NAME}.onnx
    SHA256: {sha256}
    Input:
      Name: {PICTURES}
      Width: {width}
      Height: {height}
      Layout: NHWC
      ColorOrder: RGB
      Normalization:
        Mean: [0, 0, 0]
        StdDev: [1, 1, 1]
      Resize:
{"".join(f"        {key}: {value}" + chr(10) for key, value in resize.items())}    Output:
      Name: {CONFIDENCES}
      Width: {n_labels}
      Count: 1
      Logits: false
Thresholds:
  Confidence: {threshold}
"""


def _resize_settings(graph: Graph, encoder: Any) -> dict[str, Any]:
    """Return PhotoPrism's resize settings that are closest to the run's own preparation."""
    preparation = graph.preparation
    interpolation = {"Interpolation": PHOTOPRISM_FILTERS[preparation.interpolation]}
    is_trained = encoder.views == "trained"
    if is_trained and preparation.resize == "pad":
        return {"Mode": "pad", **interpolation}
    is_whole = preparation.resize == "squash" or (preparation.resize is None and preparation.crop is None)
    if encoder.views in ("whole", "three") or (is_trained and is_whole):
        return {"Mode": "stretch", **interpolation}
    share = (preparation.crop or 1.0) if is_trained else 1.0
    return {"Mode": "center-crop", "ShortEdge": round(min(preparation.size) / share), **interpolation}


def _photoprism_readme(tagger: Tagger, threshold: int) -> str:
    encoder: Any = tagger.encoder
    views = (
        "PhotoPrism passes one picture per photo to a model, and this run was fitted with three: labels differ\n"
        "slightly from those of `visterm annotate`. For the same labels, fit the run with the encoder setting\n"
        "`views=whole`.\n\n"
        if encoder.views == "three"
        else ""
    )
    return f"""# Labels for PhotoPrism

Exported from the visterm run {tagger.fingerprint}. It is for versions of PhotoPrism whose labels run on ONNX (its
preview builds since September 2026). Older versions accept TensorFlow models only: connect them with `visterm serve`.

1. Mount `{MODEL_NAME}/` as `/opt/photoprism/assets/models/{MODEL_NAME}` in `compose.yaml`.
2. Copy `{SETTINGS_FILE}` to `storage/config/{SETTINGS_FILE}`, or add its entry to an existing file.
3. Restart PhotoPrism, check that `photoprism vision ls` lists the model, and run `photoprism vision run -m labels
   --force`.

PhotoPrism needs one distribution over all labels, of which it drops `{BACKGROUND_LABEL}`. So its percentages are lower
than visterm's, and `Thresholds: Confidence` is {threshold}.

{views}With `visterm serve`, PhotoPrism gets the unchanged confidences: see docs/service.md of visterm.
{privacy_warning(tagger)}"""
