"""Encoding as a job: what the folder holds, what a kill loses, what a later run encodes, and who else can read it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file
from typer.testing import CliRunner

from refusals import refused
from remote_photos import content, picture
from test_cli import lines, visterm
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.cli.output import Bars
from visterm.core.errors import (
    CorruptFileError,
    DataError,
    EncoderMismatchError,
    StorageError,
    TagFileError,
    UnknownNameError,
)
from visterm.core.persist import file_hash
from visterm.core.tables import MODELS
from visterm.core.types import Skipped
from visterm.data.corpus import Corpus
from visterm.data.feature_shards import Shard, read_shard, shard_bytes, shard_row_bytes
from visterm.evaluation.evaluate import evaluate_taggers
from visterm.features import folder as folder_module
from visterm.features import job, part_work
from visterm.features.folder import UNFINISHED, FeatureFolder, cut
from visterm.features.job import encode_folder
from visterm.features.stored import Features
from visterm.features.training_rows import read_corpus
from visterm.library.info import describe

pytest_plugins = ["encoding_fixtures"]

N = 30
SMALL = {"shard_size": 4, "n_jobs": 1}
HASH = "0f" * 32
WORDS = {"codebook": 30, "colours": 10, "sample_blocks": 2000}


class Killed(BaseException):
    """Stands for a kill: nothing but `finally` sees it."""


def paint(path, seed):
    path.write_bytes(picture(seed, 6, 8))


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    (folder / "sea").mkdir()
    for i in range(N):
        paint(folder / ("sea" if i % 3 == 0 else "") / f"{i:02}.png", i)
    return folder


@pytest.fixture
def photos(painted, tmp_path):
    return Path(shutil.copytree(painted, tmp_path / "photos"))


@pytest.fixture
def encode(photos, network):
    """Encode the photos with a small network, four a shard, or as asked."""

    def encoded(out, **changed):
        settings = {"encoder": f"onnx:{network}", **SMALL, **changed}
        return encode_folder(settings.pop("images", photos), out, **settings)

    return encoded


def command(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def names_of(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))


def table_of(folder):
    """What another program reads with the library of safetensors: hash and row by name."""
    rows = {}
    for shard in map(load_file, (folder / "data").iterdir()):
        names, hashes = json.loads(shard["file_name"].tobytes()), shard["sha256"]
        matrix = shard.get("features")
        if matrix is None:
            parts = (shard["features:data"], shard["features:indices"], shard["features:indptr"])
            matrix = sp.csr_array(parts, shard["features:shape"]).toarray()
        for name, digest, row in zip(names, hashes, matrix, strict=True):
            rows[name] = {"sha256": digest.tobytes().hex(), "features": row.tolist()}
    return rows


def assert_every_image_is_accounted_for(folder, photos):
    skipped = [json.loads(line)["image"] for line in (folder / "skipped.jsonl").read_text().splitlines()]
    rows = list(table_of(folder)) if list((folder / "data").iterdir()) else []
    assert sorted(rows + skipped) == names_of(photos)
    facts = json.loads((folder / "manifest.json").read_text())
    counts = (facts["n_images"], facts["n_rows"], facts["n_skipped"])
    assert counts == (len(rows) + len(skipped), len(rows), len(skipped))
    assert sum(shard["rows"] for shard in facts["shards"]) == facts["n_rows"]
    assert {path.name for path in (folder / "data").iterdir()} == {shard["file"] for shard in facts["shards"]}
    assert all(file_hash(folder / "data" / shard["file"]) == shard["sha256"] for shard in facts["shards"])
    assert not (folder / UNFINISHED).exists()


def test_each_image_has_the_row_that_the_encoder_gives_it_and_the_hash_of_its_file(encode, photos, network, tmp_path):
    done = encode(tmp_path / "F")
    assert (done.images, done.rows, done.encoded, done.skipped) == (N, N, N, 0)
    assert done.shards > 4
    assert_every_image_is_accounted_for(tmp_path / "F", photos)
    rows = table_of(tmp_path / "F")
    encoder = Features(tmp_path / "F").encoder
    names = names_of(photos)
    expected = encoder.transform([photos / name for name in names])
    np.testing.assert_array_equal(np.float32([rows[name]["features"] for name in names]), expected)
    assert all(rows[name]["sha256"] == file_hash(photos / name) for name in names)


@pytest.mark.parametrize("name", ["s3:", "file:", "memory:x"])
def test_features_lie_in_a_folder_whose_name_looks_like_an_address(name, encode, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert encode(name).rows == encode(name).reused == N
    assert Features(name).encoder.transform([photos / "01.png"]).shape[0] == 1


def test_rows_are_read_without_the_encoder(encode, photos, tmp_path, monkeypatch):
    encode(tmp_path / "F")
    monkeypatch.setattr(FeatureFolder, "load_encoder", None)
    features = Features(tmp_path / "F")
    assert features.encode(features.corpus().images).rows.shape[0] == N
    with pytest.raises(TypeError):
        features.encoder  # noqa: B018


def test_other_programs_find_a_matrix_or_the_arrays_of_csr(encode, photos, tmp_path):
    encode(tmp_path / "dense")
    width = json.loads((tmp_path / "dense" / "manifest.json").read_text())["width"]
    for shard in map(load_file, (tmp_path / "dense" / "data").iterdir()):
        assert shard.keys() == {"file_name", "sha256", "features"}
        assert (shard["features"].dtype, shard["features"].shape[1]) == (np.float32, width)
    encode(tmp_path / "sparse", encoder="visterms", encoder_params=WORDS)
    for shard in map(load_file, (tmp_path / "sparse" / "data").iterdir()):
        types = {name: array.dtype.name for name, array in shard.items() if name.startswith("features")}
        whole = {"features:indices": "int32", "features:indptr": "int32", "features:shape": "int64"}
        assert types == {"features:data": "float32"} | whole
    rows = table_of(tmp_path / "sparse")
    features = Features(tmp_path / "sparse")
    names = names_of(photos)
    expected = features.encoder.transform([photos / name for name in names])
    assert features.contents.layout == "sparse"
    np.testing.assert_array_equal(np.float32([rows[name]["features"] for name in names]), expected.toarray())


def test_a_broken_file_is_listed_tried_again_and_encoded_once_it_is_mended(encode, photos, tmp_path):
    (photos / "04.png").write_bytes(b"no picture")
    os.mkfifo(photos / "pipe.png")
    done = encode(tmp_path / "F")
    assert (done.rows, done.skipped) == (N - 1, 2)
    assert_every_image_is_accounted_for(tmp_path / "F", photos)
    before = content(tmp_path / "F")
    again = encode(tmp_path / "F")
    assert (again.encoded, again.reused, again.skipped) == (0, N - 1, 2)
    assert content(tmp_path / "F") == before
    paint(photos / "04.png", 4)
    os.remove(photos / "pipe.png")
    mended = encode(tmp_path / "F")
    assert (mended.encoded, mended.reused, mended.skipped) == (1, N - 1, 0)
    assert_every_image_is_accounted_for(tmp_path / "F", photos)


def test_where_no_image_can_be_read_all_are_listed(encode, photos, tmp_path):
    encode(tmp_path / "F")
    for name in names_of(photos):
        (photos / name).write_bytes(b"")
    done = encode(tmp_path / "F")
    assert (done.images, done.rows, done.skipped, done.shards) == (N, 0, N, 0)
    assert_every_image_is_accounted_for(tmp_path / "F", photos)


def test_a_second_run_encodes_only_what_is_new_or_changed_and_drops_what_is_gone(encode, photos, tmp_path, monkeypatch):
    encode(tmp_path / "F")
    before = table_of(tmp_path / "F")
    paint(photos / "a new one.png", 101)
    paint(photos / "07.png", 102)
    os.remove(photos / "08.png")
    os.utime(photos / "10.png")
    (photos / "11.png").rename(photos / "moved.png")
    encoder = type(Features(tmp_path / "F").encoder)
    opened, encode_images = [], encoder.encode

    def counted(self, images, **options):
        opened.extend(Path(image).name for image in images)
        return encode_images(self, images, **options)

    monkeypatch.setattr(encoder, "encode", counted)
    done = encode(tmp_path / "F")
    assert sorted(opened) == ["07.png", "a new one.png"]
    assert (done.images, done.encoded, done.reused, done.gone) == (N, 2, N - 2, 2)
    assert_every_image_is_accounted_for(tmp_path / "F", photos)
    after = table_of(tmp_path / "F")
    assert after["moved.png"]["features"] == before["11.png"]["features"]
    assert after["07.png"]["features"] != before["07.png"]["features"]
    assert all(after[name] == before[name] for name in set(after) & set(before) - {"07.png"})


def test_a_new_photo_leaves_most_shards_as_they_are(encode, photos, tmp_path):
    before = encode(tmp_path / "F", shard_size=2)
    files = {path.name for path in (tmp_path / "F" / "data").iterdir()}
    paint(photos / "000.png", 101)
    after = encode(tmp_path / "F", shard_size=None)
    kept = files & {path.name for path in (tmp_path / "F" / "data").iterdir()}
    assert len(kept) >= before.shards - 3
    assert after.shards - before.shards in (0, 1)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_shards_are_cut_where_the_names_say_so(size):
    names = [f"{i:05}.jpg" for i in range(2000)]
    parts = cut(names, size)
    assert [i for part in parts for i in part] == list(range(2000))
    lengths = [len(part) for part in parts]
    assert max(lengths) <= 2 * size
    assert min(lengths[:-1]) >= max(1, size // 2)
    assert 0.7 * size <= np.mean(lengths) <= 1.3 * size
    more = ["0.jpg", *names]
    groups = {tuple(names[i] for i in part) for part in parts}
    assert len({tuple(more[i] for i in part) for part in cut(more, size)} - groups) < 8


def test_a_kill_at_any_write_ends_with_the_same_bytes_and_loses_at_most_a_shard(encode, photos, tmp_path, monkeypatch):
    """Of a first run and of an update, for each of its steps on disk in turn."""
    encode = partial(encode, shard_size=9)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # waiting for the disk is most of the time
    encode(tmp_path / "first")
    whole = content(tmp_path / "first")
    names = names_of(photos)
    replace, steps = os.replace, []
    fuse = {"left": 10**9}

    def burning(source, target):
        if fuse["left"] == 0:
            raise Killed
        fuse["left"] -= 1
        steps.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", burning)

    def kill_and_resume(n, start):
        out = tmp_path / f"killed {n}"
        if start is not None:
            shutil.copytree(start, out)
        fuse["left"] = n
        with pytest.raises(Killed):
            encode(out)
        noted = len(list((out / UNFINISHED).glob("*.json")))
        fuse["left"] = 10**9
        done = encode(out)
        result = content(out)
        shutil.rmtree(out)
        return done, noted, result

    steps.clear()
    encode(tmp_path / "again")
    n_steps = len(steps)
    assert content(tmp_path / "again") == whole
    for n in range(n_steps):
        done, noted, result = kill_and_resume(n, None)
        assert result == whole, n
        assert done.reused >= min(noted, done.shards) > 0 or noted == 0
    paint(photos / "a new one.png", 101)
    paint(photos / names[7], 102)
    os.remove(photos / names[-1])
    shutil.copytree(tmp_path / "first", tmp_path / "updated")
    steps.clear()
    encode(tmp_path / "updated")
    n_steps, whole = len(steps), content(tmp_path / "updated")
    for n in range(n_steps):
        assert kill_and_resume(n, tmp_path / "first")[2] == whole, n


def test_until_an_update_is_whole_the_folder_holds_what_it_held(encode, photos, tmp_path, monkeypatch):
    encode(tmp_path / "F")
    before = table_of(tmp_path / "F")
    for i in range(N):
        paint(photos / f"new {i}.png", 200 + i)
    written = []

    def killed(path, data):
        written.append(path)
        if len(written) == 5:
            raise Killed
        folder_module.write_whole(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(part_work, "write_whole", killed)
        with pytest.raises(Killed):
            encode(tmp_path / "F")
    assert table_of(tmp_path / "F") == before
    assert len(Features(tmp_path / "F")) == N
    assert encode(tmp_path / "F").rows == 2 * N


def test_info_says_how_far_a_job_that_was_stopped_has_come(encode, photos, tmp_path, monkeypatch):
    folder = tmp_path / "F"
    FeatureFolder(folder).unfinished.mkdir(parents=True)
    assert describe(folder)["encoder"] == "not learned yet"

    def killed(path, data):
        done = len([note for note in (folder / UNFINISHED).glob("*.json") if note.name != "manifest.json"])
        if path.suffix == ".json" and done == 2:
            raise Killed
        write_whole(path, data)

    write_whole = part_work.write_whole
    with monkeypatch.context() as patched:
        patched.setattr(part_work, "write_whole", killed)
        with pytest.raises(Killed):
            encode(folder, encoder="visterms", encoder_params=WORDS)
    facts = describe(folder)
    written = sorted((folder / UNFINISHED).glob("*.safetensors"), key=os.path.getmtime)
    rows = [len(read_shard(path).names) for path in written]
    assert facts["kind"] == "features folder, not finished"
    assert (facts["shards so far"], facts["rows so far"]) == (2, sum(rows[:2]))
    assert (facts["encoder"], facts["encoder settings"]["codebook"]) == ("visterms", 30)
    assert "the same command" in facts["go on"]
    shown = command("info", folder)
    assert shown.exit_code == 0
    assert "shards so far: 2" in shown.stdout
    encode(folder, encoder="visterms", encoder_params=WORDS)
    whole = describe(folder)
    assert whole["rows"] == N
    paint(photos / "new.png", 901)
    monkeypatch.setattr(part_work, "write_whole", lambda path, data: write_whole(path, data) or kill())
    with pytest.raises(Killed):
        encode(folder, encoder=None)
    assert describe(folder) == whole | {"shards of an unfinished update": 0}


def kill():
    raise Killed


KILLS_ITSELF = """
import os, signal, sys, threading, time
from pathlib import Path
from visterm.cli import main

def kill(unfinished):
    while len(list(unfinished.glob("*.safetensors"))) < 3:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill, args=(Path(sys.argv.pop(1)),), daemon=True).start()
main()
"""
"""A command that is killed with three shards done, however busy the machine is."""


def test_kill_9_in_the_middle_loses_only_the_shard_in_work(painted, network, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(120):
        shutil.copy(sorted(painted.rglob("*.png"))[i % N], photos / f"{i:03}.png")
    arguments = ["encode", photos, "--encoder", f"onnx:{network}", "--shard-size", 4, "-o"]
    unfinished = tmp_path / "killed" / UNFINISHED
    killed = [sys.executable, "-c", KILLS_ITSELF, unfinished, *map(str, arguments), tmp_path / "killed"]
    assert subprocess.run(killed, capture_output=True, check=False).returncode == -signal.SIGKILL
    noted = [json.loads(path.read_text()) for path in unfinished.glob("*.json")]
    safe = sum(note["entry"]["rows"] for note in noted)
    with pytest.raises(StorageError, match=r"not finished.*same command again"):
        Tagger(model="prior").fit(tmp_path / "killed", tags=tmp_path / "tags.csv")
    resumed = command("encode", photos, "-o", tmp_path / "killed").stderr
    assert safe > 0
    assert f"{120 - safe} new, {safe} unchanged" in resumed
    encode_folder(photos, tmp_path / "undisturbed", encoder=f"onnx:{network}", **SMALL)
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed")


def test_a_damaged_shard_is_named_by_readers_and_encoded_anew_by_the_job(encode, photos, tmp_path):
    encode(tmp_path / "F")
    before = content(tmp_path / "F")
    damaged = sorted((tmp_path / "F" / "data").iterdir())[1]
    n_damaged = len(read_shard(damaged).names)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match=rf"{damaged.name} was changed.*visterm encode"):
        Features(tmp_path / "F")
    done = encode(tmp_path / "F")
    assert done.encoded == n_damaged
    assert content(tmp_path / "F") == before


def test_a_full_disk_is_said_in_one_line_and_the_job_goes_on_afterwards(encode, photos, tmp_path, monkeypatch):
    encode(tmp_path / "undisturbed")
    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"disk of .*F is full .*to continue"):
            encode(tmp_path / "F")
    assert encode(tmp_path / "F").reused > 0
    assert content(tmp_path / "F") == content(tmp_path / "undisturbed")


def test_a_file_that_changes_while_it_is_read_has_no_row_of_either_state(encode, photos, tmp_path, monkeypatch):
    hashed = job.content_hash

    def meddled(path):
        digest = hashed(path)
        if path.name == "05.png":
            paint(path, 999)
        return digest

    with monkeypatch.context() as patched:
        patched.setattr(job, "content_hash", meddled)
        assert encode(tmp_path / "F").skipped == 1
    assert "changed while it was being read" in (tmp_path / "F" / "skipped.jsonl").read_text()
    assert encode(tmp_path / "F").encoded == 1


def test_rows_that_are_not_finite_are_skipped(encode, photos, tmp_path, monkeypatch):
    encode(tmp_path / "F")
    paint(photos / "new.png", 77)
    encoder = type(Features(tmp_path / "F").encoder)
    encode_batch = encoder._encode_batch
    monkeypatch.setattr(encoder, "_encode_batch", lambda self, batch: encode_batch(self, batch) * np.float32("inf"))
    done = encode(tmp_path / "F")
    assert (done.encoded, done.skipped) == (0, 1)
    assert "NaN or infinity" in (tmp_path / "F" / "skipped.jsonl").read_text()


def test_the_encoder_is_fitted_once_and_kept(encode, photos, tmp_path):
    first = encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    for i in range(5):
        paint(photos / f"new {i}.png", 300 + i)
    later = encode(tmp_path / "F", encoder=None)
    assert later.fingerprint == first.fingerprint
    assert later.encoded == 5
    assert encode(tmp_path / "anew", encoder="visterms", encoder_params=WORDS).fingerprint != first.fingerprint


def test_a_folder_of_another_encoder_is_refused(encode, photos, network, tmp_path):
    encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    before = content(tmp_path / "F")
    with refused("encoder", value="onnx", error=EncoderMismatchError):
        encode(tmp_path / "F")
    with refused("encoder", value="visterms", error=EncoderMismatchError) as refusal:
        encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS | {"codebook": 40})
    assert "codebook=40" in refusal.value.problem
    assert content(tmp_path / "F") == before


def test_settings_alone_are_those_of_the_folders_own_encoder(encode, photos, network, tmp_path):
    encode(tmp_path / "F")
    (photos / names_of(photos)[0]).unlink()
    assert encode(tmp_path / "F", encoder=None, encoder_params={"batch_size": 2}).reused == N - 1
    with refused("encoder", value="onnx", error=EncoderMismatchError):
        encode(tmp_path / "F", encoder=None, encoder_params={"root": False})
    with pytest.raises(UnknownNameError, match="codebook"):
        encode(tmp_path / "F", encoder=None, encoder_params={"codebook": 7})
    assert encode(tmp_path / "new", encoder=None, encoder_params=WORDS).encoder == "visterms"


def test_other_folders_are_left_alone(encode, photos, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(StorageError, match="not a features folder of visterm"):
        encode(tmp_path / "mine")
    with pytest.raises(StorageError, match="not a features folder"):
        encode(photos)
    with pytest.raises(DataError, match="There is no folder"):
        encode(tmp_path / "F", images=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no files"):
        encode(tmp_path / "F", images=tmp_path / "empty")
    with refused("encoder", value="ids"):
        encode(tmp_path / "F", encoder="ids")
    with refused("shard_size", value=0):
        encode(tmp_path / "F", shard_size=0)
    assert not (tmp_path / "F").exists()
    assert content(tmp_path / "mine") == {"letter.txt": b"dear"}


def test_two_jobs_do_not_write_into_one_folder(encode, tmp_path):
    encode(tmp_path / "F")
    who = rf"Another process is writing into .*F \(process {os.getpid()} on .* since 20\d\d-"
    with FeatureFolder(tmp_path / "F").locked(), pytest.raises(StorageError, match=who):
        encode(tmp_path / "F")
    assert encode(tmp_path / "F").reused == N


def test_a_folder_with_the_name_of_an_address_is_a_folder(encode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encode(Path("file:F"))
    assert len(table_of(tmp_path / "file:F")) == N
    stored = Features("file:F")
    assert stored.encode(stored.corpus().images)[0].shape[0] == N


def test_file_names_of_any_bytes_and_length_come_back_from_a_shard(tmp_path):
    names = ["plain.jpg", "Île.jpg", "odd\udcff.jpg", "back\\slash.jpg", "looks like \\udcff.jpg", "long/" * 10**5]
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    path = tmp_path / "shard.safetensors"
    path.write_bytes(shard_bytes(Shard(names, [HASH] * 6, rows)))
    assert read_shard(path).names == json.loads(load_file(path)["file_name"].tobytes()) == names


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("numbers", [np.float32([[0, 1], [2, 0]]), np.zeros((2, 2), np.float32)])
def test_equal_rows_make_equal_bytes_and_come_back_mapped_or_sparse(numbers, index, tmp_path):
    path = tmp_path / "shard.safetensors"
    path.write_bytes(shard_bytes(Shard(["1.jpg", "2.jpg"], [HASH] * 2, np.asfortranarray(numbers))))
    shard = read_shard(path)
    assert isinstance(shard.rows.base, np.memmap)
    assert shard.sha256 == [HASH] * 2
    np.testing.assert_array_equal(shard.rows, numbers)
    sparse = sp.csr_array(numbers)
    expected = shard_bytes(shard._replace(rows=sparse))
    sparse.indices, sparse.indptr = sparse.indices.astype(index), sparse.indptr.astype(index)
    path.write_bytes(shard_bytes(shard._replace(rows=sparse)))
    assert path.read_bytes() == expected
    np.testing.assert_array_equal(read_shard(path).rows.toarray(), numbers)
    assert shard_row_bytes(path) == 4 * 2 * sparse.nnz + 4 * 3 + 8 * 2


TAGS = [["sea", "sky"], ["tree"], ["tree", "sky"]]


@pytest.fixture
def tagged(photos, tmp_path):
    """A table of tags: each third photo lies in sea/; the last six are for testing; one is broken, one not there."""
    names = names_of(photos)
    (photos / "broken.png").write_bytes(b"")
    lines_ = ["file_name,tags,split", "gone.png,sky,train", "broken.png,sky,train"]
    for name in names:
        i = int(Path(name).stem)
        lines_.append(f"{name},{';'.join(TAGS[i % 3])},{'test' if i >= 24 else 'train'}")
    (tmp_path / "tags.csv").write_text("\n".join(lines_) + "\n")
    return tmp_path / "tags.csv"


def test_fit_takes_features_in_place_of_images_and_the_run_annotates_new_photos(encode, photos, tagged, tmp_path):
    fingerprint = encode(tmp_path / "F").fingerprint
    of_features = Tagger(model="ridge", n_jobs=1).fit(tmp_path / "F", tags=tagged)
    assert (of_features.facts["images"], of_features.facts["skipped images"]) == (24, 1)
    assert of_features.encoder.fingerprint == of_features.facts["encoder fingerprint"] == fingerprint
    trained = [photos / name for name in names_of(photos) if name != "broken.png" and int(Path(name).stem) < 24]
    X = of_features.encoder.transform(trained)
    Y = of_features.vocabulary.encode([TAGS[int(path.stem) % 3] for path in trained])
    by_hand = MODELS.create("ridge", random_state=0).fit(X, Y)
    np.testing.assert_allclose(by_hand.decision_function(X), of_features.model.decision_function(X), atol=1e-4)
    paint(tmp_path / "new.png", 500)
    of_features.save(tmp_path / "run")
    loaded = Tagger.load(tmp_path / "run", n_jobs=1)
    [found] = loaded.annotate(tmp_path / "new.png", k=0).images
    assert found == of_features.annotate([tmp_path / "new.png"], k=0).images[0]
    shutil.rmtree(photos)
    without = Tagger(model="ridge", n_jobs=1).fit(tmp_path / "F", tags=tagged)
    assert without.fingerprint == of_features.fingerprint


def test_evaluate_and_tune_and_index_give_the_same_as_with_the_photos(encode, photos, tagged, tmp_path):
    encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    tagger = Tagger(model="ridge", n_jobs=1).fit(tmp_path / "F", tags=tagged)
    of_features, of_photos = (
        evaluate_taggers([tagger], read_corpus(None, source, tagged).select("test"), ["map", "p@1"])
        for source in (tmp_path / "F", photos)
    )
    for metric in ("map", "p@1"):
        assert of_features.mean(metric) == pytest.approx(of_photos.mean(metric))
    with pytest.warns(UserWarning, match=r"Skipped 1 photo, such as .*broken\.png: empty"):
        by_features, by_photos = Catalogue(tagger).add(tmp_path / "F"), Catalogue(tagger).add(photos)
    assert [(r.path, r.sha256) for r in by_features.records] == [(r.path, r.sha256) for r in by_photos.records]
    assert [Path(item.image).name for item in by_features.skipped] == ["broken.png"]
    first, second = (c.search("sea", 0).hits for c in (by_features, by_photos))
    np.testing.assert_allclose([hit.score for hit in first], [hit.score for hit in second], rtol=1e-4, atol=1e-5)
    grid = ("--grid", "alpha=0.1,1", "--model", "ridge")
    tuned = command("tune", tmp_path / "F", "--tags", tagged, "-o", tmp_path / "tuned", *grid)
    assert tuned.exit_code == 3, tuned.stderr
    assert len((tmp_path / "tuned.tune.jsonl").read_text().splitlines()) == 2
    assert Tagger.load(tmp_path / "tuned").encoder.fingerprint == tagger.encoder.fingerprint


def test_photos_that_changed_since_are_not_indexed_by_their_old_rows(encode, photos, tmp_path):
    names = names_of(photos)
    encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    tagger = Tagger(model="ridge", n_jobs=1).fit(
        Corpus.of([photos / name for name in names], names, [TAGS[i % 3] for i in range(N)])
    )
    with pytest.raises(EncoderMismatchError, match=r"rows do not go together.*--encoder RUN"):
        Catalogue(tagger).add(tmp_path / "F")
    tagger.save(tmp_path / "run")
    done = encode(tmp_path / "G", encoder=None, run=tmp_path / "run")
    assert done.fingerprint == tagger.encoder.fingerprint
    paint(photos / names[3], 900)
    with pytest.warns(UserWarning, match="Skipped 1 photo, .* changed since its features were made"):
        catalogue = Catalogue(tagger).add(tmp_path / "G")
    assert len(catalogue) == N - 1
    assert [(Path(item.image), item.reason) for item in catalogue.skipped] == [
        (photos / names[3], "changed since its features were made")
    ]


def test_a_catalogue_of_features_shows_where_the_photos_are_as_one_of_photos_does(encode, photos, tmp_path):
    encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    names = names_of(photos)
    tagger = Tagger(model="prior", n_jobs=1).fit(
        replace(read_corpus(None, tmp_path / "F", None), tags=[["sea"] for _ in range(N)])
    )
    hits = Catalogue(tagger).add(tmp_path / "F").search("sea", 0).hits
    assert sorted((hit.image, hit.path) for hit in hits) == [(name, str(photos / name)) for name in names]
    assert {hit.image for hit in Catalogue(tagger).add(photos).search("sea", 0).hits} == {hit.image for hit in hits}


def test_photos_that_are_gone_are_skipped_and_if_all_have_moved_it_is_said_what_to_do(encode, photos, tmp_path):
    first = encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    names = names_of(photos)
    tagger = Tagger(model="prior", n_jobs=1).fit(
        replace(read_corpus(None, tmp_path / "F", None), tags=[["sea"] for _ in range(N)])
    )
    (photos / names[3]).unlink()
    with pytest.warns(UserWarning, match="Skipped 1 photo, .* no such file"):
        catalogue = Catalogue(tagger).add(tmp_path / "F")
    assert len(catalogue) == N - 1
    assert Skipped(str(photos / names[3]), "no such file") in catalogue.skipped
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"None of the 30 photos is where .*visterm encode NEW_FOLDER -o FEATURES"):
        Catalogue(tagger).add(tmp_path / "F")
    done = encode(tmp_path / "F", encoder=None, images=tmp_path / "elsewhere")
    assert (done.encoded, done.reused) == (0, first.rows - 1)
    assert len(Catalogue(tagger).add(tmp_path / "F")) == N - 1


def test_features_of_another_encoder_than_the_one_requested_are_refused(encode, tagged, tmp_path):
    encode(tmp_path / "F", encoder="visterms", encoder_params=WORDS)
    Tagger(encoder="visterms", encoder_params=WORDS, model="ridge", n_jobs=1).fit(tmp_path / "F", tags=tagged)
    for encoder, settings in (("visterms", None), ("ids", None), (None, WORDS | {"colours": 9})):
        with refused("encoder", error=EncoderMismatchError):
            Tagger(encoder=encoder, encoder_params=settings, model="ridge").fit(tmp_path / "F", tags=tagged)


def test_tags_beside_the_photos_are_found_while_the_photos_are_there(encode, photos, tmp_path):
    encode(tmp_path / "F")
    for name in names_of(photos):
        (photos / name).with_suffix(".txt").write_text("sea, sky" if name.startswith("sea/") else "tree")
    tagger = Tagger(model="prior").fit(tmp_path / "F")
    assert set(tagger.vocabulary.tags) == {"sea", "sky", "tree"}
    shutil.rmtree(photos)
    with refused("tags", error=TagFileError):
        Tagger(model="prior").fit(tmp_path / "F")


def test_the_command_says_what_it_did_and_skips_with_exit_code_3(photos, network, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    done = command("encode", photos, "--encoder", f"onnx:{network}", "-o", tmp_path / "F")
    assert done.exit_code == 3
    assert f"{N} new, 0 unchanged, 0 removed" in done.stderr
    assert "Skipped 1 photo" in done.stderr
    [facts] = lines(command("info", tmp_path / "F", "--json"))
    assert (facts["kind"], facts["rows"], facts["encoder"]) == ("features folder", N, "onnx")
    wrong = visterm("encode", photos, "-o", tmp_path / "F", "--encoder-set", "codebook=30")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("visterm: ")
    assert len(wrong.stderr.splitlines()) == 1
    tags = tmp_path / "tags.csv"
    tags.write_text("file_name,tags\n" + "".join(f"{name},{Path(name).stem[0]};x\n" for name in names_of(photos)))
    fitted = command("fit", tmp_path / "F", "--tags", tags, "--model", "ridge", "-o", tmp_path / "run")
    assert fitted.exit_code == 3, fitted.stderr
    [shown] = lines(command("annotate", tmp_path / "run", photos / "01.png", "-k", 1, "--json"))
    assert shown["tags"]


def test_where_nobody_watches_a_long_job_says_each_minute_how_far_it_is(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("visterm.cli.output.time.monotonic", lambda: now[0])
    bars = Bars()
    bars.start("encode", 10_000)
    for _ in range(13):
        now[0] += 10
        bars.advance(100)
    bars.finish()
    assert capsys.readouterr().err.splitlines() == [
        "encode: 600 of 10,000, 10/s, 15 min left",
        "encode: 1,200 of 10,000, 10/s, 14 min left",
        "encode: 1,300 in 130.0 s, 10/s",
    ]


def test_an_encoder_whose_rows_are_not_of_one_kind_is_refused(encode, tmp_path, monkeypatch):
    encode(tmp_path / "F")
    encoder = type(Features(tmp_path / "F").encoder)
    encode_batch, sizes = encoder._encode_batch, iter([2, 3, *[3] * N])
    monkeypatch.setattr(encoder, "_encode_batch", lambda self, batch: encode_batch(self, batch)[:, : next(sizes)])
    with pytest.raises(DataError, match="dense rows of 2 numbers and dense rows of 3 numbers"):
        encode(tmp_path / "G")
