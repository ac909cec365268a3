"""A run as one ONNX graph: pictures in, scores and confidences of all tags out, for any program or for PhotoPrism.

What PhotoPrism takes is in its own sources (October 2026: `internal/ai/classify/README.md` and `model.go`,
`internal/ai/onnx/info.go` and `resize.go`, `internal/ai/vision/README.md`): one input of float32 and one output, whose
numbers are a distribution over as many labels as `labels.txt` has lines.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.core.persist import file_hash, whole_folder
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.onnx_graph import GraphSteps, around_network, read_network, weight_files
from visterm.encoders.preparation import VIEWS, Preparation, views_of
from visterm.models.abilities import WritesSteps
from visterm.tagging.hub_runs import tags_of_photos
from visterm.tagging.tagger import Tagger

PICTURES, SCORES, CONFIDENCES = "pictures", "scores", "confidences"  # What goes in, and what comes out
MODEL, LABELS, PREPARATION = "model.onnx", "labels.txt", "preparation.json"
EXAMPLE, README = "tag_photo.py", "README.md"
SAME = 1e-4  # How far the graph may be from the run, on pictures that were drawn to compare them
N_DRAWN = 4

NAME = "visterm"  # Of the model, and so of its folder and file
SETTINGS = "vision.yml"
REST = "background"  # The label of what the confidences leave of 1: PhotoPrism's rules drop labels of this name
PREVIEW = 720  # Pixels: PhotoPrism's previews from this size on have the photo's own shape; smaller ones are squares
SURE = 50  # Percent: labels as likely as this, shared by the tags that photos have in the mean, are kept
FILTERS = {"bilinear": "linear", "bicubic": "bicubic", "lanczos": "lanczos"}  # What PhotoPrism calls them


class Graph(NamedTuple):
    """A run written as a graph."""

    content: bytes
    preparation: Preparation
    network: str  # The file of the run's network
    outputs: list[str]
    n_views: int


def graph_of(tagger: Tagger, *, for_photoprism: bool = False) -> Graph:
    """Write a run as an ONNX graph, and compare it with the run on a few drawn pictures.

    It takes pictures of uint8, (photos · views, height, width, 3), and gives the scores of all tags, (photos, n_tags),
    and their confidences, if the run has any. With `for_photoprism`, it takes one picture a photo as float32 from 0 to
    255, and gives one distribution: the confidences and, behind them, what they leave of 1, together divided by their
    sum, which is 1 unless the confidences are more.

    Raises MissingExtraError if onnx is not installed; UserError if the encoder is not a network in an ONNX file, the
    model's scores cannot be written as steps, or the network computes other rows for several photos than for one.
    """
    tagger._refuse_unfitted()
    encoder, model = _parts(tagger, for_photoprism)
    check_packages()
    n_views = 1 if for_photoprism else len(VIEWS[encoder.views])
    before, after = GraphSteps("before"), GraphSteps("after")
    network, rows = encoder.write_steps(before, after, PICTURES, n_views=n_views, floats=for_photoprism)
    scores = model.write_steps(after, rows)
    confidences = None if tagger.calibration is None else tagger.calibration.write_steps(after, scores)
    if tagger.tree is not None:
        scores = tagger.tree.write_steps(after, scores)
        confidences = None if confidences is None else tagger.tree.write_steps(after, confidences)
    n_tags, outputs = len(tagger.vocabulary), []

    if for_photoprism and confidences is not None:
        total = after.affine(confidences, np.ones((n_tags, 1)))
        confidences = after.add("Concat", confidences, after.add("Relu", after.add("Sub", 1.0, total)), axis=1)
        confidences = after.add("Div", confidences, after.affine(confidences, np.ones((n_tags + 1, 1))))
    for name, tensor in ((CONFIDENCES, confidences), (SCORES, None if for_photoprism else scores)):
        if tensor is not None:
            outputs.append(after.add("Identity", tensor, to=name))

    width, kind = n_tags + for_photoprism, "float32" if for_photoprism else "uint8"
    metadata = {"visterm.version": version("visterm"), "visterm.run": tagger.fingerprint}
    for n in ("pictures", n_views):  # a network that was made for one picture may take several, or may not
        inputs = PICTURES, kind, [n, *network.preparation.size, 3]
        results = [(name, width) for name in outputs]
        content = around_network(read_network(network.path), before, after, inputs, results, metadata)
        graph = Graph(content, network.preparation, network.path, outputs, n_views)
        if _is_same(tagger, graph, 1 if n == n_views else N_DRAWN, for_photoprism=for_photoprism):
            return graph
    raise UserError(
        f"The network {network.path} computes other rows for {n_views} pictures together than for each alone, so that "
        "no graph is the same as this run. Fit the run with one picture a photo: encoder setting views=whole."
    )


def _parts(tagger: Tagger, for_photoprism: bool) -> tuple[Any, Any]:
    """Return the encoder and the model of a run, if both can be written as steps."""
    encoder, model = ENCODERS.name_of(tagger.encoder), MODELS.name_of(tagger.model)
    if encoder != "onnx":
        raise UserError(
            f"The encoder of this run is '{encoder}', and only a network in an ONNX file can be exported as one. Fit "
            "the run with such a network: encoder onnx:FILE, or one that `visterm encoders` lists."
        )

    if not isinstance(tagger.model, WritesSteps):
        raise UserError(
            f"The model of this run is '{model}', whose scores cannot be written as a graph. Fit a model of vectors: "
            "ridge, or wsabie."
        )
    if for_photoprism and tagger.calibration is None:
        raise UserError(
            "PhotoPrism takes confidences, and this run has none. Fit it again with at least 20 tagged photos."
        )
    return tagger.encoder, tagger.model


def _is_same(tagger: Tagger, graph: Graph, n_photos: int, *, for_photoprism: bool) -> bool:
    """Return whether a graph gives drawn pictures what the run gives them; False also where it cannot take them."""
    from visterm.encoders.onnx_network import OPEN_ERRORS, open_session

    height, width = graph.preparation.size
    drawn = np.random.default_rng(0).integers(0, 256, (n_photos, height, 2 * width, 3), np.uint8)
    drawn[-1] //= 8  # of another range than the rest
    encoder: Any = copy(tagger.encoder)
    if for_photoprism:
        encoder.views = "whole"
    scores, chances = tagger.scored(encoder.encode(list(drawn)).rows)
    expected: dict[str, Any] = {SCORES: scores, CONFIDENCES: chances}
    if for_photoprism and chances is not None:
        rest = np.maximum(1 - chances.sum(axis=1, keepdims=True), 0)
        whole = np.hstack([chances, rest])
        expected[CONFIDENCES] = whole / whole.sum(axis=1, keepdims=True)

    views = (views_of(photo, graph.preparation, encoder.views) for photo in drawn)
    pictures: NDArray[Any] = np.stack([*chain.from_iterable(views)])
    session = open_session(graph.network, graph.content)
    try:
        outputs = session.run(graph.outputs, {PICTURES: pictures.astype(np.float32) if for_photoprism else pictures})
    except OPEN_ERRORS:
        return False
    return all(
        values.shape == np.shape(expected[name])
        and bool(np.allclose(values, expected[name], atol=SAME * max(1.0, float(np.abs(values).max())), rtol=0))
        for name, values in zip(graph.outputs, outputs, strict=True)
    )


def export_model(tagger: Tagger, out: Path) -> Graph:
    """Write a folder with a run as one graph: `MODEL`, `LABELS`, and how to prepare photos.

    Raises what `graph_of` and `export_folder` raise.
    """
    graph = graph_of(tagger)
    encoder: Any = tagger.encoder
    with export_folder(out) as folder:
        write_graph(graph, folder / MODEL)
        write_labels(folder / LABELS, tagger.vocabulary.tags)
        facts = {
            "input": {"name": PICTURES, "shape": ["photos × views", *graph.preparation.size, 3], "type": "uint8"},
            "outputs": {name: ["photos", len(tagger.vocabulary)] for name in graph.outputs},
            "views": encoder.views,
            "places": list(VIEWS[encoder.views]),
            "max_side": encoder.reading_side,
            **asdict(graph.preparation),
        }
        (folder / PREPARATION).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(Path(__file__).with_name("onnx_example.py"), folder / EXAMPLE)
        (folder / README).write_text(_readme(tagger, graph), encoding="utf-8")
    return graph


@contextmanager
def export_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to write into that is at `out` in the end, whole; refuse a place where something is."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise StorageError(f"{out} is there already, and nothing is replaced. Choose another folder.")
    with whole_folder(out) as folder:
        yield folder


def write_graph(graph: Graph, path: Path) -> None:
    """Write a graph, and beside it the files in which its network keeps weights, if it does; then open what is there.

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
    """Write names of tags, one a line, in the order of the graph's outputs; line ends inside become spaces."""
    path.write_text("".join(f"{' '.join(label.splitlines())}\n" for label in labels), encoding="utf-8")


def check_packages() -> None:
    """Raise MissingExtraError if graphs cannot be written here, or not be compared with their runs."""
    try:
        for package in ("onnx", "onnxruntime"):
            import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            "Exporting a run as an ONNX graph needs the packages onnx and onnxruntime. Install them with: pip install "
            "'visterm[onnx]'"
        ) from error


def _readme(tagger: Tagger, graph: Graph) -> str:
    height, width = graph.preparation.size
    several = "" if graph.n_views == 1 else f" {graph.n_views} pictures that follow each other are one photo."
    confidences = "" if CONFIDENCES not in graph.outputs else (
        f"- `{CONFIDENCES}`: how likely each tag is right, 0 to 1\n"
    )  # fmt: skip
    return f"""# Tags of a photo library, as one ONNX graph

Exported by visterm {version("visterm")} from the run {tagger.fingerprint}.

`{MODEL}` takes `{PICTURES}`, uint8 of shape (n, {height}, {width}, 3) in red, green and blue, 0 to 255.{several}
The colours are normalised in the graph. It gives, for each photo, a number for each line of `{LABELS}`:

{confidences}- `{SCORES}`: what tags are ranked by, the highest first

How a photo becomes pictures stands in `{PREPARATION}`, and as code in `{EXAMPLE}`, which needs onnxruntime, Pillow
and NumPy, and nothing of visterm:

    python {EXAMPLE} photo.jpg
{holding_photos(tagger)}"""


def holding_photos(tagger: Tagger) -> str:
    """Return a paragraph for people if a run's model holds features and tags of its training photos; else nothing."""
    if not (names := list(tags_of_photos(tagger.model))):
        return ""
    return (
        f"\nThe graph holds features of the {tagger.facts.get('images', 0):,} training photos and what their tags are "
        f"(model {' and '.join(names)}):\nshare it only with people who may know these.\n"
    )


def export_photoprism_model(tagger: Tagger, out: Path) -> Graph:
    """Write a folder with a model for PhotoPrism and its `SETTINGS`; raise what `export_model` raises.

    The model gets one picture of a photo, as PhotoPrism makes it.
    """
    graph = graph_of(tagger, for_photoprism=True)
    tags = len(tagger.vocabulary)
    with export_folder(out) as folder:
        (folder / NAME).mkdir()
        write_graph(graph, folder / NAME / f"{NAME}.onnx")
        write_labels(folder / NAME / LABELS, [*tagger.vocabulary.tags, REST])
        tags_per_photo = float(tagger.facts.get("tags given", 0)) / max(1, tagger.facts.get("images", 1))
        least = max(1, int(SURE / max(1.0, tags_per_photo) + 0.5))
        settings = _settings(graph, tagger.encoder, tags + 1, file_hash(folder / NAME / f"{NAME}.onnx"), least)
        (folder / SETTINGS).write_text(settings, encoding="utf-8")
        (folder / README).write_text(_photoprism_readme(tagger, least), encoding="utf-8")
    return graph


def _settings(graph: Graph, encoder: Any, n_labels: int, sha256: str, least: int) -> str:
    (height, width), resize = graph.preparation.size, _resize(graph, encoder)
    return f"""Models:
- Type: labels
  Name: {NAME}
  Engine: onnx
  Run: on-index
  Resolution: {PREVIEW}
  LabelFile: {LABELS}
  ONNX:
    File: {NAME}.onnx
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
  Confidence: {least}
"""


def _resize(graph: Graph, encoder: Any) -> dict[str, Any]:
    """Return how PhotoPrism makes the picture that is nearest to what the run was fitted with."""
    preparation, filtered = graph.preparation, {"Interpolation": FILTERS[graph.preparation.interpolation]}
    trained = encoder.views == "trained"
    if trained and preparation.resize == "pad":
        return {"Mode": "pad", **filtered}
    whole = preparation.resize == "squash" or (preparation.resize is None and preparation.crop is None)
    if encoder.views in ("whole", "three") or (trained and whole):
        return {"Mode": "stretch", **filtered}
    share = (preparation.crop or 1.0) if trained else 1.0
    return {"Mode": "center-crop", "ShortEdge": round(min(preparation.size) / share), **filtered}


def _photoprism_readme(tagger: Tagger, least: int) -> str:
    encoder: Any = tagger.encoder
    views = (
        "PhotoPrism shows a model one picture of a photo, and this run was fitted with three: labels are not quite\n"
        "those of `visterm annotate`. For the same, fit the run with the encoder setting `views=whole`.\n\n"
        if encoder.views == "three"
        else ""
    )
    return f"""# Labels for PhotoPrism

Exported from the visterm run {tagger.fingerprint}. It is for versions of PhotoPrism whose labels run on ONNX (its
preview builds since September 2026). Older ones take TensorFlow models only: connect those with `visterm serve`.

1. Mount `{NAME}/` as `/opt/photoprism/assets/models/{NAME}` in `compose.yaml`.
2. Copy `{SETTINGS}` to `storage/config/{SETTINGS}`, or add its entry to yours.
3. Restart PhotoPrism, look at `photoprism vision ls`, and run `photoprism vision run -m labels --force`.

PhotoPrism takes one distribution over all labels. Where the confidences of a photo's tags sum to more than 1, they are
divided by their sum; what they leave of 1 is the label `{REST}`, which PhotoPrism drops. So its percentages are lower
than visterm's, and `Thresholds: Confidence` is {least}. It keeps the five best, in lower case, by its own rules.

{views}With `visterm serve`, PhotoPrism gets the confidences as they are: docs/service.md of visterm.
{holding_photos(tagger)}"""
