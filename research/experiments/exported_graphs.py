"""How near graphs of `visterm export --to onnx` are to `annotate`: 500 photos of Corel5k, MobileNetV2, several models.

    python exported_graphs.py            # writes figures/exported_graphs.json

Photos are prepared by the example that lies beside each graph, which imports nothing of visterm.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from visterm.library.export.onnx_model import CONFIDENCES, PICTURES, SCORES, export_model
from visterm.tagging.tagger import Tagger

ROOT = Path(__file__).resolve().parent
SHARED = ROOT.parents[2] / "shared"
N_LEARNED, N_COMPARED = 1000, 500
MODELS = {
    "ridge": ("ridge", {}, "three"),
    "wsabie": ("wsabie", {}, "three"),
    "kernel_ridge": ("kernel_ridge", {}, "whole"),
    "knn": ("knn", {}, "whole"),
    "auto, the default": ("auto", {}, "three"),
    "ensemble of ridge and wsabie": ("ensemble", {"members": [["ridge", {}], ["wsabie", {}]]}, "whole"),
}


def main() -> None:
    """Fit each model, export it, compare it with itself, and write the largest differences."""
    photos = sorted((SHARED / "data/corel5k/images").iterdir())[: N_LEARNED + N_COMPARED]
    lines = (SHARED / "data/corel5k/labels.tsv").read_text().splitlines()[1:]
    labels = {name: tags.split(",") for name, _, tags in (line.split("\t") for line in lines)}
    found = {}
    for name, (model, settings, views) in MODELS.items():
        tagger = Tagger(
            encoder=f"onnx:{SHARED / 'models/mobilenet_v2.onnx'}", encoder_params={"views": views},
            model=model, model_params=settings,
        )  # fmt: skip
        tagger.fit(photos[:N_LEARNED], [labels[photo.name] for photo in photos[:N_LEARNED]])
        with tempfile.TemporaryDirectory() as folder:
            export_model(tagger, Path(folder) / "model")
            found[name] = {"views": views, **compared(tagger, Path(folder) / "model", photos[N_LEARNED:])}
        print(name, found[name], flush=True)
    out = ROOT / "figures/exported_graphs.json"
    out.write_text(json.dumps({"photos": N_COMPARED, "models": found}, indent=1) + "\n")


def compared(tagger: Tagger, folder: Path, photos: list[Path]) -> dict[str, float | int]:
    """Return how far a graph's scores and confidences of all tags are from the run's, and whose five best differ."""
    spec = importlib.util.spec_from_file_location("tag_photo", folder / "tag_photo.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    prepared = json.loads((folder / "preparation.json").read_text())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    place = {tag: i for i, tag in enumerate((folder / "labels.txt").read_text().splitlines())}
    scores, chances, others = 0.0, 0.0, 0
    for image, photo in zip(tagger.annotate(photos, k=0).images, photos, strict=True):
        pictures = np.stack(example.pictures_of(example.read_photo(photo, prepared["max_side"]), prepared))
        made = session.run([SCORES, CONFIDENCES], {PICTURES: pictures})
        columns = [place[tag.tag] for tag in image.tags]
        scores = max(scores, float(np.abs(made[0][0, columns] - [tag.score for tag in image.tags]).max()))
        chances = max(chances, float(np.abs(made[1][0, columns] - [tag.confidence for tag in image.tags]).max()))
        others += set(np.argsort(-made[0][0], kind="stable")[:5].tolist()) != set(columns[:5])
    return {"largest_difference_of_scores": scores, "of_confidences": chances, "photos_with_other_five_best": others}


if __name__ == "__main__":
    main()
