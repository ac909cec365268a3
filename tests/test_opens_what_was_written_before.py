"""Runs, features folders and catalogues that an earlier commit wrote: they open, and answer as they did then."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from command_line import visterm
from visterm import Catalogue, Tagger

WRITTEN = Path(__file__).parent / "data" / "tiny"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text(encoding="utf-8"))
CLOSE = {"rel": 1e-3, "abs": 1e-4}
"""What another processor may round differently in scores of a few units."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A copy, as opening a catalogue leaves files of SQLite beside it."""
    return Path(shutil.copytree(WRITTEN, tmp_path_factory.mktemp("before") / "written"))


@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_prints_what_it_printed_before(written, command):
    code, out, err = visterm(command, written)
    assert code == 0, err
    assert_same([json.loads(line) for line in out.splitlines()], EXPECTED[command])


def test_feedback_in_an_old_catalogue_is_learned_and_changes_searches(written, tmp_path):
    folder = Path(shutil.copytree(written / "catalogue", tmp_path / "catalogue"))
    first = names(folder, "sea")[0]
    catalogue = Catalogue.load(folder, n_jobs=1)
    assert "from my own hand" in {tag.tag for tag in catalogue.tags()}
    catalogue.judge(int(Path(first).stem), "sea", -1)
    for image in (10, 11, 12):
        catalogue.judge(image, "sea", 1)
    catalogue.learn()
    code, _, err = visterm(f"search {folder} sea --json", tmp_path)
    assert code == 0, err
    assert first not in names(folder, "sea")
    assert {"10.jpg", "11.jpg", "12.jpg"} <= set(names(folder, "--tag sea", 0))


def test_an_old_catalogue_takes_in_more_pictures(written, tmp_path):
    folder = Path(shutil.copytree(written / "catalogue", tmp_path / "catalogue"))
    others = Path(shutil.copytree(written / "images", tmp_path / "others"))
    for image in others.iterdir():  # the same picture in another file: equal files would be photos that were moved
        image.write_bytes(image.read_bytes() + b"\0")
    code, out, err = visterm(f"index {folder} {others} --json", tmp_path)
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["images"] == 2 * len(list((WRITTEN / "images").iterdir()))
    best = EXPECTED["search catalogue sky -k 5 --json"][0]["image"]
    found = names(folder, "sky", 0)
    assert found[0] == best
    assert found.count(best) == 2  # the picture that it had, and the same one in the other folder


def test_an_old_catalogue_follows_its_pictures_to_where_they_are_now(written, tmp_path):
    folder = Path(shutil.copytree(written / "catalogue", tmp_path / "catalogue"))
    with closing(sqlite3.connect(folder / "catalogue.sqlite")) as database, database:
        database.execute(
            "UPDATE images SET folder = ?, path = ? || name", [str(tmp_path / "gone"), f"{tmp_path}/gone/"]
        )
    code, out, err = visterm(f"index {folder} {written / 'images'} --json", tmp_path)
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["images"] == len(list((WRITTEN / "images").iterdir()))


def test_an_old_run_and_catalogue_open_in_python(written):
    image = "images/46.jpg"
    [found] = Tagger.load(written / "run", n_jobs=1).annotate([written / image], k=0).images
    [printed] = EXPECTED[f"annotate run {image} -k 0 --json"]
    assert_same([tag.as_dict() if hasattr(tag, "as_dict") else tag._asdict() for tag in found.tags], printed["tags"])
    hits = Catalogue.load(written / "catalogue").search("sky", 5).hits
    assert_same([hit.as_dict() for hit in hits], EXPECTED["search catalogue sky -k 5 --json"])


def names(catalogue, words, k=5):
    code, out, err = visterm(f"search {catalogue} {words} -k {k} --json", catalogue.parent)
    assert code == 0, err
    return [Path(json.loads(line)["image"]).name for line in out.splitlines()]


def assert_same(found, expected):
    """Compare what JSON holds: numbers to rounding, and everything else exactly; new keys are no difference."""
    if isinstance(expected, dict):
        assert expected.keys() <= found.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, **CLOSE)
    else:
        assert found == expected
