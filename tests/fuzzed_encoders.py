"""Damaged encoders and other files of runs by number: sound runs of every encoder, changed as `fuzzed_runs` says.

Runs whose first word is "encoder" have that damaged, those with "files" one of the files beside encoder and model.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from PIL import Image
from safetensors.numpy import load_file

from fakes.immich_ml import FakeImmichMl, immich_ml
from fuzzed_runs import OF_ARRAYS, OF_VALUES, Cases, Files, as_safetensors, bytes_changed, open_cases, write_anew
from tiny_networks import colour_network
from visterm.core.errors import MissingExtraError
from visterm.core.registry import PACKAGE
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.immich import SERVER_ENV
from visterm.learning.relations import WordRelations
from visterm.tagging.tagger import Tagger

N_PHOTOS = 12
SETTINGS: dict[str, dict[str, Any]] = {
    "visterms": {"colours": 6, "codebook": 20, "sample_blocks": 400, "max_side": 32, "levels": 2, "scales": (0.5, 1.0)},
    "kernel_pca chi2": {"kernel": "chi2"},
    "bag_kernel likelihood": {"kernel": "expected_likelihood"},
    "bag_kernel full": {"kernel": "expected_likelihood", "covariance": "full"},
    "bag_kernel visterm": {"kernel": "visterm", "codebook": 20, "sample_blocks": 400},
}
"""Of encoders: beside those that the contract suite tests with; a second word makes a run of other settings."""


def make_runs(folder: Path, package: str) -> None:
    """Fit every encoder of a package on a few small photos; of visterm also runs with all files that a run can have."""
    photos = _draw_photos(folder)
    tags = [[f"tag {i % 3}", f"all {i % 2}"] for i in range(N_PHOTOS)]
    with immich_ml() as server:
        ours = [entry.name for entry in ENCODERS if entry.package == package]
        for name in dict.fromkeys([*ours, *(name for name in SETTINGS if name.partition(" ")[0] in ours)]):
            encoder = name.partition(" ")[0]
            try:
                params = {**ENCODERS.load(encoder).test_params, **_files_for(encoder, folder, server)}
            except MissingExtraError:
                continue
            params = {key: value for key, value in params.items() if key not in ("random_state", "n_jobs")}
            params |= SETTINGS.get(name, {})
            model = None if encoder == "ids" else "ridge"
            tagger = Tagger(encoder=encoder, encoder_params=params, model=model, n_jobs=1)
            tagger.fit(in_place_of_photos(folder).get(encoder, photos), tags, calibrate=False).save(
                folder / f"encoder {name}"
            )
    if package == PACKAGE:
        _make_run_of_all_files(folder)


def in_place_of_photos(folder: Path) -> dict[str, Any]:
    """Return what some encoders take, by their names: names of rows of a svmlight file, which is written, and rows."""
    path = folder / "rows.svm"
    path.write_text("".join(f"{i % 3} 1:{i} 2:0.5\n" for i in range(N_PHOTOS)))
    rows = np.random.default_rng(4).normal(size=(N_PHOTOS, 5))
    return {"data_set": [f"{path}#{i + 1}" for i in range(N_PHOTOS)], "rows": rows}


def _draw_photos(folder: Path) -> list[str]:
    rng = np.random.default_rng(7)
    paths = [str(folder / f"{i}.png") for i in range(N_PHOTOS)]
    for path in paths:
        blocks = rng.integers(0, 256, (3, 4, 3)).repeat(8, axis=0).repeat(8, axis=1)
        noisy = np.clip(blocks + rng.normal(0, 12, blocks.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(path)
    return paths


def _files_for(encoder: str, folder: Path, server: FakeImmichMl | None = None) -> dict[str, Any]:
    """Make the files that an encoder needs, and name them as its settings do; or name its server."""
    if encoder == "immich":
        return {"url": server.url}
    if encoder == "onnx":
        return {"path": str(colour_network(folder / "tiny.onnx"))}
    if encoder == "precomputed":
        np.save(folder / "features.npy", np.random.default_rng(3).normal(size=(N_PHOTOS, 5)))
        (folder / "features.names.txt").write_text("\n".join(str(folder / f"{i}.png") for i in range(N_PHOTOS)))
        return {"path": str(folder / "features.npy")}
    if encoder in ("timm", "open_clip"):
        sys.path.append(str(Path(__file__).parents[1] / "research" / "tests"))
    if encoder == "timm":
        from tiny_towers import timm_weights

        return {"network": "test_vit", "weights": str(timm_weights(folder / "vit.safetensors"))}
    if encoder == "open_clip":
        from tiny_towers import CLIP_NAME, clip_weights

        return {"network": CLIP_NAME, "weights": str(clip_weights(folder / "towers.safetensors"))}
    return {}


def _make_run_of_all_files(folder: Path) -> None:
    """Fit a model that starts from word vectors, with aliases, relations, a reference corpus and confidences."""
    rng = np.random.default_rng(5)
    n, tags = 200, ["sea", "boat", "sail", "sky", "tree"]
    given = rng.random((n, len(tags))) < 0.4
    given[np.arange(n), rng.integers(0, len(tags), n)] = True
    X = (given @ rng.random((len(tags), 8)) + rng.random((n, 8)) / 4).astype(np.float32)
    np.save(folder / "rows.npy", X)
    (folder / "rows.names.txt").write_text("\n".join(f"{i}.jpg" for i in range(n)))
    (folder / "texts.txt").write_text("a boat on the sea\na tree\nthe sky\n")
    words = [*tags, "ship", "cloud"]
    (folder / "vectors.vec").write_text(
        "\n".join(f"{word} " + " ".join(f"{value:.3f}" for value in rng.normal(size=4)) for word in words) + "\n"
    )
    for name in ("wsabie", "sampled_tagger"):
        try:
            settings = MODELS.load(name).test_params | {"epochs": 1, "dim": 4}
            tagger = Tagger(encoder=f"precomputed:{folder / 'rows.npy'}", model=name, model_params=settings, n_jobs=1)
        except MissingExtraError:
            continue
        tagger.fit(
            [f"{i}.jpg" for i in range(n)],
            [[tag for tag, has in zip(tags, row, strict=True) if has] for row in given],
            idf=folder / "texts.txt",
            tag_rules={"aliases": {"ocean": "sea"}},
            relations=WordRelations([("sail", "boat")], [("boat", "ship")]),
            word_vectors=folder / "vectors.vec" if name == "sampled_tagger" else None,
        )
        if name == "sampled_tagger":
            tagger.add_words(["ship", "cloud"])
        tagger.save(folder / f"files {name}")
    Tagger(encoder="ids", model="wsabie", model_params={"epochs": 2, "dim": 4}, n_jobs=1).fit(
        [str(i) for i in range(n)], [[tag for tag, has in zip(tags, row, strict=True) if has] for row in given]
    ).save(folder / "files ids")


class EncoderCases(Cases):
    """Opens damaged copies of the sound runs of `make_runs`."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._photos = [str(folder / f"{i}.png") for i in range(2)]
        self._photos.append(np.full((20, 30, 3), 90, np.uint8))
        self._in_place_of_photos = in_place_of_photos(folder)
        self._server = immich_ml()
        os.environ[SERVER_ENV] = self._server.__enter__().url  # whatever a damaged run says
        if find_spec("open_clip"):
            _files_for("open_clip", folder)  # its tiny network is known to this process only
        super().__init__(folder, names)

    def answer(self, run: Path, name: str) -> list[Any]:
        """Ask a run for its encoder's rows, or for all that the other files of a run serve."""
        ask = self._ask_encoder if name.startswith("encoder") else self._ask_all
        return ask(Tagger.load(run, n_jobs=1), name)

    def _ask_encoder(self, tagger: Tagger, name: str) -> list[Any]:
        pixels = tagger.encoder.reads == "pixels"
        named = self._in_place_of_photos.get(name.rpartition(" ")[2], self._photos)[:2]
        rows = tagger.encoder.encode(self._photos if pixels else named).rows
        if not np.isfinite(rows.data if sp.issparse(rows) else rows).all():
            raise ArithmeticError("infinite rows")
        found = tagger.model.annotate(rows, 2) if pixels else tagger.annotate(named, 2)
        return [rows.toarray().tolist() if sp.issparse(rows) else rows.tolist(), str(found)]

    def _ask_all(self, tagger: Tagger, name: str) -> list[Any]:
        images = ["3", "7"] if name.endswith("ids") else ["3.jpg", "7.jpg"]
        found = [[tag.tag for tag in image.tags] for image in tagger.annotate(images, 3).images]
        said: list[Any] = [found, tagger.learned_images.count(images), len(tagger.skipped), tagger.vocabulary.tags]
        if not name.endswith("ids"):
            query = tagger.query_weights("ocean -tree")
            said.append([str(part) for part in np.asarray(query.weights.data).tolist()])
        if tagger.words.added:
            said.append([[tag.tag for tag in image.tags] for image in tagger.annotate(images, 3, added=True).images])
        if tagger.calibration is not None:
            said.append(tagger.annotate(images, min_confidence=0.2).images[0].image)
            tagger.calibration.confidences(np.zeros((2, len(tagger.vocabulary))))
        return said

    def _damage_run(self, number: int, folder: Path, rng: np.random.Generator) -> list[Path]:
        if self._names[number % len(self._names)].startswith("encoder"):
            return super()._damage_run(number, folder, rng)
        names = sorted(file.name for file in folder.iterdir())
        others = [name for name in names if name.partition(".")[0] not in ("model", "encoder", "manifest")]
        file, damage = folder / others[rng.integers(len(others))], self._damage(number)
        if damage in OF_VALUES and file.suffix == ".json":
            files = Files({"file": json.loads(file.read_text())}, {})
            damage(files, rng)
            write_anew(file, json.dumps(files.description.get("file")).encode())
        elif damage in OF_ARRAYS and file.suffix == ".safetensors":
            files = Files({}, load_file(file))
            damage(files, rng)
            write_anew(file, as_safetensors(files.arrays))
        else:
            write_anew(file, bytes_changed(file.read_bytes() or b"{}", rng))
        return [file]


if __name__ == "__main__":
    open_cases(EncoderCases, sys.argv[1:])
