"""Deep taggers on several machines: workers learn what one process learns, and what is asked for in vain is told."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("ray", reason="wants the package ray (extra ray)")
pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from ray.exceptions import ActorDiedError

from command_line import run_command
from planted_features import fitted_encoder, plant
from visterm import Tagger
from visterm.cluster import RayExecutor, train_group
from visterm.cluster.engine import Engine
from visterm.cluster.train_group import ProgressFile, group_of, progress_shown
from visterm.core.errors import DivergedError, UserError
from visterm.core.executor import Group
from visterm.core.tables import MODELS
from visterm.features.streaming.handed_over import read_matrix, write_matrix
from visterm.tagging.deep_fit_together import _sweep, check_fits_together

SETTINGS = {"hidden": (16,), "dim": 8, "epochs": 3, "batch_size": 64, "learning_rate": 0.005}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("drawn"), fitted_encoder())


@pytest.fixture
def no_engine(monkeypatch):
    def refused(*_):
        pytest.fail("an engine was asked for")

    monkeypatch.setattr("visterm.cluster.executor.engine", refused)


def fit(drawn, out, *options, model="sampled_tagger", **changed):
    settings = [f"--set={name}={value}" for name, value in {**SETTINGS, **changed}.items()]
    command = ["fit", str(drawn / "features"), "--tags", str(drawn / "tags.jsonl"), "--model", model, "-o", str(out)]
    return run_command([*command, *settings, *options])


def test_two_workers_learn_the_run_of_one_process(ray_engine, drawn, tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert fit(drawn, alone).returncode == 0
    result = fit(drawn, together, "--ray", "local", "-v")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "train: 3 in" in result.stderr
    assert "Learned 12 tags from 600 photos" in result.stderr
    expected, found = Tagger.load(alone), Tagger.load(together)
    assert found.facts == expected.facts | {"workers": 2}
    names = [name for name in vars(expected.model) if name.endswith("_") and not name.startswith("_")]
    arrays = [name for name in names if isinstance(getattr(expected.model, name), np.ndarray)]
    assert len(arrays) == 5
    for name in arrays:
        learned = getattr(found.model, name)
        np.testing.assert_allclose(learned, getattr(expected.model, name), rtol=1e-4, atol=1e-5, err_msg=name)
    assert found.model.get_params() == expected.model.get_params()
    assert found.model.n_held_out_ == 60
    assert [path.name for path in tmp_path.iterdir() if "workers" in path.name] == []


def test_one_batch_is_learned_from_here(no_engine, drawn, tmp_path):
    result = fit(drawn, tmp_path / "run", "--ray", "local", batch_size=600)
    assert result.returncode == 0, result.stderr
    assert "--ray ignored: all images are in one batch" in result.stderr
    assert "workers" not in Tagger.load(tmp_path / "run").facts


def test_a_fit_without_ray_does_not_load_it(drawn, tmp_path):
    command = ["visterm", "fit", str(drawn / "features"), "--tags", str(drawn / "tags.jsonl"), "--model", "prior"]
    code = (
        "import sys\n"
        "from visterm.cli import main\n"
        f"sys.argv = {[*command, '-o', str(tmp_path / 'run')]!r}\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    assert ended.code == 0\n"
        "assert not {'ray', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("knn", [], "--ray needs another model than knn: add --model "),
        ("sampled_tagger", ["--queries", "q.csv"], "--queries is learned from in one process"),
    ],
)
def test_what_cannot_be_learned_on_several_machines_is_refused_before_anything_is_read(
    no_engine, tmp_path, model, options, message
):
    command = ["fit", "photos", "--model", model, "-o", str(tmp_path / "run"), "--ray", "local", *options]
    result = run_command(command)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())


def test_a_catalogue_is_learned_from_in_one_process(no_engine):
    result = run_command(["fit", "--catalogue", "catalogue", "--ray", "local"])
    assert result.returncode == 2
    assert "--ray" in result.stderr


def test_a_gpu_and_images_known_by_number_are_refused(no_engine, tmp_path):
    with pytest.raises(UserError, match=r"Workers compute on processors, and device is 'cuda'"):
        check_fits_together(MODELS.create("sampled_tagger", device="cuda"))
    tagger = Tagger(encoder="ids", model="sampled_tagger", model_params=SETTINGS)
    with pytest.raises(UserError, match="Images known by number"):
        tagger.fit(
            [f"image {i}" for i in range(60)],
            [["a", "b"][: 1 + i % 2] for i in range(60)],
            executor=RayExecutor("local", 2),
            work=tmp_path,
        )


def test_a_folder_is_swept_of_what_trainings_left_and_of_nothing_else(tmp_path):
    work = tmp_path / "work"
    for name in ("state.aa", "state.bb", ".state.bb.1-2.tmp", "rows", "mine"):
        (work / name).mkdir(parents=True)
    _sweep(work, kept="aa")
    assert sorted(path.name for path in work.iterdir()) == ["mine", "state.aa"]
    (work / "mine").rmdir()
    _sweep(work, kept="")
    assert not work.exists()


def test_the_machines_share_weights_by_threads_and_one_machine_by_processes(monkeypatch):
    class Ray:
        def nodes(self):
            cpus = [(0, True), (4, True), (6, True), (2, False)]
            return [{"Alive": alive, "Resources": {"CPU": float(n)} if n else {}} for n, alive in cpus]

    monkeypatch.setattr(train_group, "load_ray", Ray)
    assert group_of(Engine("local", 8, 1)) == Group(8, 1)
    assert group_of(Engine("head:6379", 10, 3)) == Group(2, 4)
    assert group_of(Engine("head:6379", 1, 3)) == Group(1, 4)


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (ActorDiedError(), False),
        (RuntimeError("Connection closed by peer"), False),
        (ConnectionResetError(), False),
        (DivergedError("It went to infinity."), True),
        (KeyError("rows"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_workers_that_lose_each_other_begin_again_and_other_errors_end_the_job(monkeypatch, tmp_path, error, written):
    def work(together, progress):
        raise error

    context = SimpleNamespace(get_world_rank=lambda: 1, get_world_size=lambda: 2)
    monkeypatch.setattr("ray.train.get_context", lambda: context)
    with pytest.raises(type(error)):
        train_group._one({"work": work, "exchange": str(tmp_path), "n_threads": 1})
    assert (tmp_path / train_group.ERROR).exists() == written


# -- files on the way -------------------------------------------------------------------------------------------------


def test_matrices_come_back_mapped_into_memory(tmp_path):
    dense = np.arange(12, dtype=np.float32).reshape(3, 4)
    sparse = sp.csr_array(np.array([[0, 1, 0], [2, 0, 3]], np.float32))
    write_matrix(tmp_path, "dense", dense)
    write_matrix(tmp_path, "sparse", sparse)
    found = read_matrix(tmp_path, "dense")
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, dense)
    found = read_matrix(tmp_path, "sparse")
    assert not found.data.flags.writeable
    np.testing.assert_array_equal(found.toarray(), sparse.toarray())
    assert found.shape == (2, 3)
    assert read_matrix(tmp_path, "none") is None


class Heard:
    def __init__(self):
        self.told = []

    def start(self, *told):
        self.told.append(("start", *told))

    def advance(self, *told):
        self.told.append(("advance", *told))

    def finish(self):
        self.told.append(("finish",))


def test_progress_is_told_on_and_a_task_that_begins_again_ends_first(tmp_path):
    heard, told = Heard(), ProgressFile(tmp_path / "told")
    with progress_shown(tmp_path / "told", heard):
        told.start("train", 3)
        told.advance(1, "MAP 0.5")
        told.start("train", 3)  # after a loss
        told.advance()
    assert heard.told == [
        ("start", "train", 3), ("advance", 1, "MAP 0.5"), ("finish",), ("start", "train", 3), ("advance", 1, ""),
        ("finish",),
    ]  # fmt: skip
    with progress_shown(tmp_path / "nothing", heard):
        pass
    assert len(heard.told) == 6
    waiting, told = Heard(), ProgressFile(tmp_path / "later")
    with progress_shown(tmp_path / "later", waiting, "start the workers"):
        told.start("train", 3)
    assert waiting.told == [("start", "start the workers", None), ("finish",), ("start", "train", 3), ("finish",)]
    assert json.loads((tmp_path / "told").read_text().splitlines()[0]) == ["start", "train", 3]
