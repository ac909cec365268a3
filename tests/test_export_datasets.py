"""Photos and tags are written as FiftyOne and Hugging Face `datasets` read them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from tiny_catalogue import make_tiny_catalogue
from visterm.core.errors import StorageError
from visterm.core.types import Skipped
from visterm.library.export.items import ExportItem, Predicted
from visterm.library.export.tables import DATASETS, export_dataset, only_pictures


@pytest.fixture
def items(tmp_path):
    """Photos whose names mean something to those who read data sets: splits, labels and endings."""
    found = []
    for i, name in enumerate(["test/zoé 猫.jpg", "train/a.b.png", "validation.webp", "plain.jpeg"]):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6, 3), 60 * i, np.uint8)).save(path)
        given = () if i == 3 else ("sea", f'tag {i}, "{i}"')
        predicted = () if i == 0 else (Predicted("dog", 0.75), Predicted("sea", 0.5))
        found.append(ExportItem(path, given, predicted, name=name))
    return found


def expected_of(items):
    """File, people's tags, predictions and confidences: what was given is not predicted again."""
    found = []
    for item in items:
        predicted = [each for each in item.predicted if each.tag not in item.given]
        found.append((str(item.path), list(item.given), [(each.tag, each.confidence) for each in predicted]))
    return found


def read_fiftyone(folder, labels_file):
    """Read a data set as FiftyOne's importer and parser do: photos by name, with (label, confidence) or None.

    `FiftyOneImageClassificationDatasetImporter.setup`, `ImportPathsMixin._load_data_map` (endings of names are cut
    off) and `ImageClassificationSampleParser` in its `utils/data/importers.py` and `parsers.py`.
    """
    data = Path(folder) / "data"
    if data.exists():
        places = {path.stem: str(path) for path in data.rglob("*")}
    else:
        manifest = json.loads((Path(folder) / "data.json").read_text())
        places = {os.path.splitext(key)[0]: os.path.join(folder, value) for key, value in manifest.items()}
    labels = json.loads((Path(folder) / labels_file).read_text())
    assert labels.keys() == {"classes", "labels"}
    assert labels["labels"].keys() == places.keys()
    found = {}
    for name, target in labels["labels"].items():
        assert target is None or isinstance(target, list)
        for each in target or ():
            assert each.keys() <= {"label", "confidence"}
            assert isinstance(each["label"], int)
        parsed = target and [(labels["classes"][each["label"]], each.get("confidence")) for each in target]
        found[places[name]] = parsed
    return found


def test_fiftyone_finds_each_photo_with_its_tags_and_predictions(items, tmp_path):
    export_dataset(items, "fiftyone", tmp_path / "out")
    given, predicted = (read_fiftyone(tmp_path / "out", file) for file in ("labels.json", "predictions.json"))
    for path, tags, guesses in expected_of(items):
        assert given[path] == ([(tag, None) for tag in tags] or None)
        assert predicted[path] == (guesses or None)


def test_an_imagefolder_has_a_line_for_each_photo_and_no_names_that_mean_splits(items, tmp_path):
    export_dataset(items, "imagefolder", tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metadata.jsonl").read_text().splitlines()]
    assert {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")} == {
        "metadata.jsonl", *(line["file_name"] for line in lines),
    }  # fmt: skip
    for line, item, (path, tags, guesses) in zip(lines, items, expected_of(items), strict=True):
        place = tmp_path / "out" / line["file_name"]
        assert place.read_bytes() == Path(path).read_bytes()
        assert place.is_symlink()
        assert (line["name"], line["tags"]) == (item.name, tags)
        assert list(zip(line["predicted"], line["confidence"], strict=True)) == guesses


def test_the_library_datasets_reads_the_imagefolder(items, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="wants the package datasets, which is in no extra")
    export_dataset(items, "imagefolder", tmp_path / "out")
    found = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert list(found) == ["train"]
    for row, item, (_, tags, guesses) in zip(found["train"], items, expected_of(items), strict=True):
        assert (row["name"], row["tags"]) == (item.name, tags)
        assert list(zip(row["predicted"], row["confidence"], strict=True)) == guesses
        assert (
            np.abs(
                np.asarray(row["image"].convert("RGB")).astype(int) - np.asarray(Image.open(item.path).convert("RGB"))
            ).max()
            == 0
        )


def test_the_importer_of_fiftyone_reads_its_folder(items, tmp_path):
    pytest.importorskip("fiftyone", reason="wants the package fiftyone, which is in no extra")
    from fiftyone.utils.data.importers import FiftyOneImageClassificationDatasetImporter as Importer  # no database

    export_dataset(items, "fiftyone", tmp_path / "out")
    for file in ("labels.json", "predictions.json"):
        where = {"dataset_dir": str(tmp_path / "out"), "data_path": "data.json"}  # as README.md says
        importer = Importer(labels_path=file, **where)
        importer.setup()
        found = {
            path: label and [(each.label, each.confidence) for each in label.classifications]
            for path, _, label in importer
        }
        assert found == read_fiftyone(tmp_path / "out", file)


def test_what_data_sets_do_not_have_is_left_out_with_its_reason(items, tmp_path):
    others = [ExportItem(tmp_path / "film.mp4"), ExportItem(tmp_path / "raw.nef"), Skipped("x", "broken")]
    found = list(only_pictures([*items, *others]))
    assert found[: len(items)] == items
    assert [each.reason for each in found[len(items) :]] == [
        "data sets cannot have files of type .mp4", "data sets cannot have files of type .nef", "broken",
    ]  # fmt: skip


def test_commands_write_data_sets_of_a_catalogue_and_replace_nothing(tmp_path):
    make_tiny_catalogue(tmp_path)
    for to in DATASETS:
        code, _, err = visterm(f"export catalogue --to {to} -k 2 -o {to}", tmp_path)
        assert (code, f"Wrote {to}: " in err) == (0, True), err
        code, _, err = visterm(f"export catalogue --to {to} -k 2 -o {to}", tmp_path)
        assert (code, "already exists" in err) == (2, True)
        assert "Would write: " in visterm(f"export catalogue --to {to} -k 2 --dry-run", tmp_path)[2]
    lines = (tmp_path / "imagefolder" / "metadata.jsonl").read_text().splitlines()
    assert len(lines) == len(read_fiftyone(tmp_path / "fiftyone", "labels.json"))
    for line, reason in {
        "export catalogue --to imagefolder": "writes a folder, named by -o",
        "export catalogue --to imagefolder --undo -o x": "delete its output",
    }.items():
        code, _, err = visterm(line, tmp_path)
        assert (code, reason in err) == (2, True), err


def test_a_folder_that_is_there_is_kept(items, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="already exists and is not an empty folder"):
        export_dataset(items, "imagefolder", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["mine.txt"]
