"""Tags written into a folder: each image once, what a kill loses, what a later run tags, and when all is made anew."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from command_line import run_command
from refusals import refused
from remote_photos import content, picture
from tiny_networks import colour_network
from visterm.core.errors import DataError, StorageError
from visterm.core.executor import Executor
from visterm.core.persist import file_hash
from visterm.features.job import encode_folder
from visterm.library.info import describe
from visterm.tagging import annotation_job as pieces
from visterm.tagging.annotating import TagsWanted
from visterm.tagging.annotation_job import annotate_into, annotation_folder, find
from visterm.tagging.tagger import Tagger

N = 40
TAGS = [["sea", "sky"], ["tree"], ["tree", "sky"], ["sand"]]
TWO = TagsWanted(2)


def paint(path, seed):
    path.write_bytes(picture(seed, 6, 4))


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("painted")
    for i in range(N):
        paint(folder / f"{i:02}.png", i)
    return folder


@pytest.fixture(scope="module")
def run(painted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    network = colour_network(folder / "tiny.onnx")
    tagger = Tagger(encoder=f"onnx:{network}", model="ridge", n_jobs=1)
    tagger.fit([painted / f"{i:02}.png" for i in range(N)], tags=[TAGS[i % 4] for i in range(N)])
    tagger.save(folder / "run")
    return folder / "run"


@pytest.fixture
def photos(painted, tmp_path):
    return Path(shutil.copytree(painted, tmp_path / "photos"))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK", 6)


@pytest.fixture
def annotate(run, photos, monkeypatch):
    monkeypatch.chdir(photos.parent)  # where parts end is decided by names: these shall be the same in each run

    def annotated(out, *given, wanted=TWO, **how):
        tagger = Tagger.load(run, n_jobs=1)
        found = find(tagger.encoder, [str(each) for each in given or [photos.name]])
        return annotate_into(out, tagger, found, wanted, **{"executor": Executor(1), **how})

    return annotated


def lines_of(folder):
    """The lines in the order of the manifest, and that its counts and hashes hold."""
    facts = json.loads((folder / "manifest.json").read_text())
    assert {path.name for path in (folder / "data").iterdir()} == {part["file"] for part in facts["shards"]}
    found = []
    for part in facts["shards"]:
        assert file_hash(folder / "data" / part["file"]) == part["sha256"]
        lines = (folder / "data" / part["file"]).read_text().splitlines()
        assert len(lines) == part["rows"]
        found += map(json.loads, lines)
    skipped = (folder / "skipped.jsonl").read_text().splitlines()
    assert (facts["n_rows"], facts["n_skipped"]) == (len(found), len(skipped))
    assert facts["n_images"] == len(found) + len(skipped)
    assert not (folder / ".annotating").exists()
    return found


def test_the_lines_are_those_that_are_printed_in_their_order(run, annotate, photos, tmp_path):
    done = annotate(tmp_path / "T")
    assert (done.images, done.annotated, done.new, done.skipped) == (N, N, N, 0)
    assert done.parts > 3
    printed = run_command(["annotate", run, photos.name, "-k", 2, "--json"], tmp_path).stdout.splitlines()
    found = lines_of(tmp_path / "T")
    assert [line["image"] for line in found] == [f"photos/{i:02}.png" for i in range(N)]
    for mine, line in zip(found, map(json.loads, printed), strict=True):
        assert [tag["tag"] for tag in mine["tags"]] == [tag["tag"] for tag in line["tags"]]
        assert mine["tags"][0]["score"] == pytest.approx(line["tags"][0]["score"], abs=1e-5)


def test_a_killed_job_goes_on_to_the_same_bytes(annotate, tmp_path, monkeypatch):
    annotate(tmp_path / "undisturbed")
    with monkeypatch.context() as patched:
        patched.setattr("visterm.features.folder.FeatureFolder.commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            annotate(tmp_path / "T")
    assert not (tmp_path / "T" / "manifest.json").exists()
    assert describe(tmp_path / "T")["parts so far"] > 3
    parts = sorted((tmp_path / "T" / ".annotating").glob("*.jsonl"))
    parts[0].unlink()
    parts[1].write_text("{}\n")
    done = annotate(tmp_path / "T")
    assert 2 <= done.new < N / 2
    assert done.new + done.reused == N
    assert content(tmp_path / "T") == content(tmp_path / "undisturbed")


def test_a_later_run_tags_only_the_parts_whose_images_are_new_or_changed(annotate, photos, tmp_path):
    annotate(tmp_path / "T")
    assert annotate(tmp_path / "T").new == 0
    paint(photos / "071.png", 99)
    paint(photos / "30.png", 98)
    (photos / "12.png").unlink()
    done = annotate(tmp_path / "T")
    assert 3 <= done.new < N - 6
    assert done.annotated == N
    annotate(tmp_path / "anew")
    assert content(tmp_path / "T") == content(tmp_path / "anew")
    lines_of(tmp_path / "T")
    facts = describe(tmp_path / "T")
    assert (facts["images"], facts["annotated"], facts["wanted"]) == (N, N, {"k": 2})


def test_what_cannot_be_read_is_listed_tried_again_and_tagged_once_it_is_mended(annotate, photos, tmp_path):
    (photos / "04.png").write_bytes(b"no picture")
    (photos / "gone.png").symlink_to(photos / "nowhere")
    done = annotate(tmp_path / "T")
    assert (done.annotated, done.skipped) == (N - 1, 2)
    before = content(tmp_path / "T")
    again = annotate(tmp_path / "T")
    assert (again.annotated, again.skipped) == (N - 1, 2)
    assert content(tmp_path / "T") == before
    lines_of(tmp_path / "T")
    shutil.copy(photos / "03.png", photos / "04.png")
    os.remove(photos / "gone.png")
    assert annotate(tmp_path / "T").annotated == N
    lines_of(tmp_path / "T")


def test_other_wishes_tag_all_anew_and_until_then_the_folder_holds_what_it_held(annotate, tmp_path, monkeypatch):
    annotate(tmp_path / "T")
    with monkeypatch.context() as patched:
        patched.setattr("visterm.features.folder.FeatureFolder.commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            annotate(tmp_path / "T", wanted=TagsWanted(1))
    assert {len(json.loads(line)["tags"]) for line in _lines_in(tmp_path / "T")} == {2}
    assert annotate(tmp_path / "T", wanted=TagsWanted(1)).reused == N
    assert {len(line["tags"]) for line in lines_of(tmp_path / "T")} == {1}


def _lines_in(folder):
    return [line for file in (folder / "data").iterdir() for line in file.read_text().splitlines()]


def test_features_are_tagged_shard_by_shard_with_the_images_that_had_no_row(annotate, run, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"")
    encode_folder(photos, tmp_path / "F", run=run, shard_size=6, n_jobs=1)
    done = annotate(tmp_path / "T", tmp_path / "F")
    assert (done.annotated, done.skipped) == (N, 1)
    of_photos = annotate(tmp_path / "P")
    assert of_photos.annotated == N
    tags = [[tag["tag"] for tag in line["tags"]] for line in lines_of(tmp_path / "T")]
    assert tags == [[tag["tag"] for tag in line["tags"]] for line in lines_of(tmp_path / "P")]
    assert annotate(tmp_path / "T", tmp_path / "F").new == 0


def test_features_in_two_folders_are_tagged_as_if_they_were_in_one(annotate, run, photos, tmp_path):
    encode_folder(photos, tmp_path / "F", run=run, shard_size=6, n_jobs=1)
    (tmp_path / "others").mkdir()
    for i in range(5):
        paint(tmp_path / "others" / f"other {i}.png", 200 + i)
    encode_folder(tmp_path / "others", tmp_path / "G", run=run, shard_size=6, n_jobs=1)
    done = annotate(tmp_path / "T", tmp_path / "F", tmp_path / "G")
    assert (done.images, done.annotated) == (N + 5, N + 5)
    names = [line["image"] for line in lines_of(tmp_path / "T")]
    assert names == [*(f"{i:02}.png" for i in range(N)), *(f"other {i}.png" for i in range(5))]


def test_an_image_that_is_lost_on_the_way_is_an_error(annotate, tmp_path, monkeypatch):
    chunk = pieces.PieceReader.chunk

    def forgetful(self, piece, progress):
        found = chunk(self, piece, progress)
        return found._replace(names=found.names[1:], rows=found.rows[1:])

    monkeypatch.setattr(pieces.PieceReader, "chunk", forgetful)
    with pytest.raises(StorageError, match=r"\d of \d+ results came back for the images from '.*00.png' to '.*png'"):
        annotate(tmp_path / "T")


def test_other_folders_are_left_alone_and_names_are_known_by_their_run(annotate, run, photos, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(StorageError, match="not a folder of annotations"):
        annotate(tmp_path / "mine")
    with pytest.raises(StorageError, match="not a folder of annotations"):
        annotate(run)
    with refused("added"):
        annotate(tmp_path / "T", wanted=TagsWanted(precision=0.9, added=True))
    with pytest.raises(DataError, match="no file or folder"):
        annotate(tmp_path / "T", tmp_path / "nowhere")
    with annotation_folder(tmp_path / "T").locked(), pytest.raises(StorageError, match="Another process is writing"):
        annotate(tmp_path / "T")
    assert not (tmp_path / "T").exists()


def test_the_command_says_what_it_wrote_and_lists_what_it_skipped(run, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    done = run_command(["annotate", run, "photos", "-o", "T", "--json"], tmp_path)
    assert done.returncode == 3, done.stderr
    [summary] = map(json.loads, done.stdout.splitlines())
    assert (summary["annotated"], summary["skipped"], summary["shared"]) == (N, 1, False)
    assert f"Tagged {N} photos (0 unchanged). The tags are in " in done.stderr
    assert "listed in T/skipped.jsonl" in done.stderr
    assert [line["image"] for line in lines_of(tmp_path / "T")][:2] == ["photos/00.png", "photos/01.png"]
    assert not (tmp_path / "skipped.jsonl").exists()
    assert run_command(["annotate", run, "photos", "-o", "photos"], tmp_path).returncode == 2
