"""A run as a labels model of PhotoPrism: its graph, the labels, and the `vision.yml` that describes them.

What PhotoPrism takes is in its own sources (October 2026: `internal/ai/classify/README.md` and `model.go`,
`internal/ai/onnx/info.go` and `resize.go`, `internal/ai/vision/README.md`): one input of float32 and one output, whose
numbers are a distribution over as many labels as `labels.txt` has lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm.core.persist import file_hash
from visterm.library.export.onnx_model import (
    CONFIDENCES,
    LABELS,
    PICTURES,
    README,
    Graph,
    export_folder,
    graph_of,
    holding_photos,
    write_graph,
    write_labels,
)
from visterm.tagging.tagger import Tagger

NAME = "visterm"  # Of the model, and so of its folder and file
SETTINGS = "vision.yml"
REST = "background"  # The label of what the confidences leave of 1: PhotoPrism's rules drop labels of this name
PREVIEW = 720  # Pixels: PhotoPrism's previews from this size on have the photo's own shape; smaller ones are squares
SURE = 50  # Percent: labels as likely as this are kept
FILTERS = {"bilinear": "linear", "bicubic": "bicubic", "lanczos": "lanczos"}  # What PhotoPrism calls them


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
        least = _least_confidence(tagger)
        settings = _settings(graph, tagger.encoder, tags + 1, file_hash(folder / NAME / f"{NAME}.onnx"), least)
        (folder / SETTINGS).write_text(settings, encoding="utf-8")
        (folder / README).write_text(_readme(tagger, least), encoding="utf-8")
    return graph


def _least_confidence(tagger: Tagger) -> int:
    """Return the percentage from which on labels are kept: `SURE`, shared by the tags that photos have in the mean."""
    mean = float(tagger.facts.get("tags given", 0)) / max(1, tagger.facts.get("images", 1))
    return max(1, int(SURE / max(1.0, mean) + 0.5))


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
    found, filtered = graph.preparation, {"Interpolation": FILTERS[graph.preparation.interpolation]}
    trained = encoder.views == "trained"
    if trained and found.resize == "pad":
        return {"Mode": "pad", **filtered}
    whole = found.resize == "squash" or (found.resize is None and found.crop is None)
    if encoder.views in ("whole", "three") or (trained and whole):
        return {"Mode": "stretch", **filtered}
    share = (found.crop or 1.0) if trained else 1.0
    return {"Mode": "center-crop", "ShortEdge": round(min(found.size) / share), **filtered}


def _readme(tagger: Tagger, least: int) -> str:
    encoder: Any = tagger.encoder
    views = (
        "PhotoPrism shows a model one picture of a photo, and this run was fitted with three: labels are not quite\n"
        "those of `visterm annotate`. For the same, fit the run with `--encoder-set views=whole`.\n\n"
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
