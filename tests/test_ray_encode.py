"""Encoding shared out by Ray: the folder is the very one of a job without it, whatever workers die of."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from command_line import run_command
from refusals import refused
from remote_photos import content, picture
from visterm.cluster import RayExecutor, pickled_error, results_of
from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.executor import Executor
from visterm.core.progress import SILENT
from visterm.core.threads import Team
from visterm.features.folder import UNFINISHED, FeatureFolder
from visterm.features.job import EncodeJob, KnownRows, encode_folder

ray = pytest.importorskip("ray", reason="wants the extra ray")

pytest_plugins = ["encoding_fixtures"]

N = 24


@pytest.fixture(scope="module")
def reached(ray_engine):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    return ray_engine


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("painted")
    for i in range(N):
        (folder / f"{i:02}.png").write_bytes(picture(i, 6, 8))
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


@pytest.fixture
def photos(painted, tmp_path):
    return Path(shutil.copytree(painted, tmp_path / "photos"))


@pytest.fixture
def encode(photos, network):
    def encoded(out, **changed):
        settings = {"encoder": f"onnx:{network}", "shard_size": 4, "executor": RayExecutor("local", 2), **changed}
        return encode_folder(photos, out, **settings)

    return encoded


class Failing:
    """A job that squares numbers, and does something at some of them."""

    def __init__(self, place, how):
        self.place, self.how = place, how

    def begin(self, team, progress):
        def work(piece):
            self.how.get(piece, lambda place: None)(self.place)
            return piece * piece

        return work

    def name_of(self, piece):
        return f"number {piece}"


def die_once(place):
    if not os.path.exists(place):
        Path(place).touch()
        os._exit(1)


def die(place):
    os._exit(1)


def fail(place):
    raise CorruptFileError(f"{place} was changed")


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def fail_oddly(place):
    raise UnpicklableError("one", "two")


@pytest.mark.slow  # workers that encode from a store into a store ask the same of the same code
def test_the_folder_has_the_same_bytes_as_without_ray(reached, encode, tmp_path):
    alone = encode(tmp_path / "alone", executor=Executor(2))
    shared = encode(tmp_path / "shared")
    assert (alone.shared, shared.shared) == (False, True)
    assert (shared.images, shared.rows, shared.skipped) == (N + 1, N, 1)
    assert shared.shards > 3
    assert content(tmp_path / "shared") == content(tmp_path / "alone")


@pytest.mark.slow
def test_what_a_killed_job_and_an_earlier_one_have_done_is_taken_over(reached, encode, photos, tmp_path, monkeypatch):
    words = {
        "encoder": "visterms",
        "encoder_params": {"codebook": 20, "colours": 8, "sample_blocks": 1000},
        "executor": Executor(2),
    }
    encode(tmp_path / "F", **words)
    shutil.copytree(tmp_path / "F", tmp_path / "undisturbed")
    shutil.copy(photos / "03.png", photos / "a copy.png")
    for i in range(5):
        Image.new("RGB", (40, 40), (9, 90, 40 * i)).save(photos / f"1{i}_new.png")
    encode(tmp_path / "undisturbed", **words)
    with monkeypatch.context() as patched:
        patched.setattr("visterm.features.folder.FeatureFolder.commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(tmp_path / "F", **words)
    [lost] = sorted((tmp_path / "F" / UNFINISHED).glob("*.safetensors"))[:1]
    lost.unlink()
    done = encode(tmp_path / "F", encoder=None)
    assert done.encoded <= 5
    assert (done.rows, done.reused) == (N + 6, N + 6 - done.encoded)
    assert content(tmp_path / "F") == content(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_pieces_are_done_again_but_not_for_ever(reached, tmp_path):
    made = results_of(Failing(tmp_path / "died", {3: die_once, 6: die}), range(8), reached, tries=2)
    assert [next(made) for _ in range(6)] == [(number, number * number) for number in range(6)]
    assert (tmp_path / "died").exists()
    with pytest.raises(StorageError, match="Workers died 2 times while they worked on number 6"):
        next(made)


def test_an_error_of_a_worker_is_raised_here_with_what_it_was_doing(reached, tmp_path):
    with pytest.raises(CorruptFileError, match=r"x was changed") as told:
        list(results_of(Failing(tmp_path / "x", {3: fail}), range(8), reached))
    assert "in fail" in told.value.__notes__[0]


def test_an_error_that_cannot_be_sent_is_sent_as_what_it_says():
    _, arrived, _ = ray.cloudpickle.loads(pickled_error(UnpicklableError("one", "two")))
    assert str(arrived) == "UnpicklableError: one and two"


def test_a_worker_that_does_not_find_the_photos_says_so_instead_of_skipping_them_all(encode, photos, tmp_path):
    encode(tmp_path / "F", executor=Executor(2))
    job = EncodeJob(FeatureFolder(tmp_path / "F"), None, {}, photos, KnownRows(FeatureFolder(tmp_path / "F"), None))
    assert job.begin(Team(1), SILENT)
    with pytest.raises(StorageError, match=r"finds nothing at /nowhere/photos.*share"):
        replace(job, images=Path("/nowhere/photos")).begin(Team(1), SILENT)


def test_images_that_a_worker_left_out_are_an_error(encode, tmp_path, monkeypatch):
    def forgetful(job, parts, engine):
        work = job.begin(Team(1), SILENT)
        yield from ((number, work(names[:-1])) for number, names in enumerate(parts))

    monkeypatch.setattr("visterm.cluster.results_of", forgetful)
    with pytest.raises(StorageError, match=r"returned \d images? of the \d from '00.png'"):
        encode(tmp_path / "F")
    assert not (tmp_path / "F" / "manifest.json").exists()


def test_one_shard_is_made_here_without_an_engine(encode, photos, network, tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.cluster.load_ray", lambda: pytest.fail("Ray was loaded"))
    assert not encode(tmp_path / "F", shard_size=100).shared
    said = run_command(["encode", photos, "--encoder", f"onnx:{network}", "-o", tmp_path / "G", "--ray", "local"])
    assert "--ray ignored" in said.stderr


def test_an_address_without_an_engine_is_reported(encode, tmp_path, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with refused("ray", value="127.0.0.1:1"):
        encode(tmp_path / "F", executor=RayExecutor("127.0.0.1:1"))
