"""Folders are whole or not there, and what was saved comes back bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from visterm.core import persist
from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.persist import (
    FORMAT_KEY,
    MANIFEST,
    check_target,
    folder_kind,
    load_arrays,
    new_folder,
    open_folder,
    read_json,
    save_arrays,
    write_json,
)


def write(path, text, kind="run"):
    with new_folder(path, kind) as folder:
        (folder / "a.txt").write_text(text)


def test_a_folder_appears_only_when_it_is_whole(tmp_path):
    with new_folder(tmp_path / "run", "run") as folder:
        (folder / "a.txt").write_text("x")
        assert not (tmp_path / "run").exists()
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_error_inside_leaves_the_old_folder(tmp_path):
    write(tmp_path / "run", "old")

    def stop_half_way():
        with new_folder(tmp_path / "run", "run") as folder:
            (folder / "a.txt").write_text("new")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half"):
        stop_half_way()
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_new_folder_replaces_one_of_its_kind(tmp_path):
    write(tmp_path / "run", "old")
    write(tmp_path / "run", "new")
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "new"


def test_a_kill_between_the_two_renames_brings_the_old_folder_back(tmp_path):
    write(tmp_path / "run", "old")
    os.replace(tmp_path / "run", tmp_path / ".run.old")
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "old"


def test_a_kill_leaves_the_old_folder_and_the_next_write_sweeps_up(tmp_path):
    write(tmp_path / "run", "old")
    code = (
        "import time, sys\nfrom visterm.core.persist import new_folder\n"
        "with new_folder(sys.argv[1], 'run') as f:\n"
        "    (f / 'a.txt').write_text('new'); print('in', flush=True); time.sleep(3600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"in\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    time.sleep(0.05)
    write(tmp_path / "run", "newer")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("left", ["file", "folder"])
def test_what_is_not_ours_is_never_replaced(tmp_path, left):
    if left == "file":
        (tmp_path / "run").write_text("mine")
    else:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "photo.jpg").write_text("mine")
    with pytest.raises(StorageError, match="not a run of visterm"):
        check_target(tmp_path / "run", "run")
    with pytest.raises(StorageError, match="Choose another name"):
        write(tmp_path / "run", "new")


def test_a_run_is_not_replaced_by_a_catalogue(tmp_path):
    write(tmp_path / "x", "run")
    with pytest.raises(StorageError, match="not a catalogue"):
        write(tmp_path / "x", "catalogue", kind="catalogue")
    with pytest.raises(StorageError, match="is a run; expected a catalogue"):
        open_folder(tmp_path / "x", "catalogue")
    assert folder_kind(tmp_path / "x") == "run"


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", "new")
    assert (open_folder(tmp_path / "run", "run") / "a.txt").read_text() == "new"


@pytest.mark.parametrize(("damage", "message"), [("change", "was changed"), ("remove", "is missing")])
def test_a_damaged_file_is_found(tmp_path, damage, message):
    write(tmp_path / "run", "old")
    file = tmp_path / "run" / "a.txt"
    file.write_text("bad") if damage == "change" else file.unlink()
    with pytest.raises(CorruptFileError, match=message):
        open_folder(tmp_path / "run", "run")


def test_a_folder_of_a_newer_format_is_refused(tmp_path):
    write(tmp_path / "run", "old")
    manifest = json.loads((tmp_path / "run" / MANIFEST).read_text())
    (tmp_path / "run" / MANIFEST).write_text(json.dumps(manifest | {FORMAT_KEY: 99}))
    with pytest.raises(StorageError, match="Install a newer visterm"):
        open_folder(tmp_path / "run", "run")


@pytest.fixture
def newer(monkeypatch):
    """Let this visterm be one whose runs have a newer format."""
    monkeypatch.setattr(persist, "FORMAT", 3)
    upgrades = {n: lambda run, n=n: (run / f"{n}.txt").write_text((run / "a.txt").read_text() + str(n)) for n in (1, 2)}
    monkeypatch.setattr(persist, "UPGRADES", upgrades)


def write_older(path, kind="run"):
    """Write a folder of format 1, with a fact."""
    write(path, "old", kind)
    manifest = json.loads((path / MANIFEST).read_text())
    write_json(path / MANIFEST, manifest | {FORMAT_KEY: 1, "fingerprint": "f00d"})


def test_a_run_of_an_older_format_is_upgraded_step_by_step_when_it_is_opened(tmp_path, newer):
    write_older(tmp_path / "run")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: open_folder(tmp_path / "run", "run"), range(4)))
    assert {p.name: p.read_text() for p in tmp_path.glob("run/*.txt")} == {
        "a.txt": "old",
        "1.txt": "old1",
        "2.txt": "old2",
    }
    manifest = read_json(tmp_path / "run" / MANIFEST)
    assert (manifest[FORMAT_KEY], manifest["fingerprint"], len(manifest["sha256"])) == (3, "f00d", 3)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_upgrade_of_a_run_that_fails_changes_nothing(tmp_path, newer, monkeypatch):
    write_older(tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    monkeypatch.setitem(persist.UPGRADES, 2, lambda run: (run / "a.txt").unlink() or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_folder(tmp_path / "run", "run")
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before


def test_a_run_that_is_too_old_or_damaged_is_refused_and_other_folders_are_read_as_they_are(
    tmp_path, newer, monkeypatch
):
    write_older(tmp_path / "run")
    write_older(tmp_path / "features", "features folder")
    open_folder(tmp_path / "features", "features folder")
    assert read_json(tmp_path / "features" / MANIFEST)[FORMAT_KEY] == 1
    (tmp_path / "run" / "a.txt").write_text("bad")
    with pytest.raises(CorruptFileError, match="was changed"):
        open_folder(tmp_path / "run", "run")
    monkeypatch.delitem(persist.UPGRADES, 1)
    with pytest.raises(StorageError, match=r"has format 1; this visterm reads 2 to 3\. Open it with the visterm of a"):
        open_folder(tmp_path / "run", "run")


def test_a_missing_run_says_how_to_make_one(tmp_path):
    with pytest.raises(StorageError, match="visterm fit IMAGES --tags FILE -o RUN"):
        open_folder(tmp_path / "nothing", "run")


DAMAGED_ARRAYS = {
    "nothing": b"",
    "a header longer than the file": (10**12).to_bytes(8, "little") + b"{}",
    "no JSON": (4).to_bytes(8, "little") + b"oops",
    "a shape of 10^12 numbers": (75).to_bytes(8, "little")
    + b'{"x":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4]}}       '
    + b"1234",
}


@pytest.mark.parametrize("damage", DAMAGED_ARRAYS)
def test_damaged_arrays_are_reported_in_one_line(tmp_path, damage):
    (tmp_path / "x.safetensors").write_bytes(DAMAGED_ARRAYS[damage])
    with pytest.raises(CorruptFileError, match=r"cannot be read as safetensors: .* Restore it from a backup"):
        load_arrays(tmp_path / "x.safetensors")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_arrays_may_be_read_by_whom_the_umask_lets_as_all_files_of_a_run(mask, tmp_path):
    before = os.umask(mask)
    try:
        save_arrays(tmp_path / "a.safetensors", {"x": np.ones(2)})
        write_json(tmp_path / "a.json", {})
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o666 & ~mask}


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "9" * 5000, "\xff"], ids=["deep", "cut", "huge", "no UTF-8"])
def test_damaged_json_is_reported_in_one_line(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptFileError, match=r"cannot be read as JSON: .* Restore it from a backup"):
        read_json(tmp_path / "x.json")


def test_random_state_instances_are_saved_as_nothing(tmp_path):
    from visterm.core.persist import load_estimator, save_estimator
    from visterm.core.tables import MODELS

    model = MODELS.create("wsabie", epochs=1, random_state=np.random.RandomState(3))
    save_estimator(model.fit(np.eye(3, dtype=np.float32), np.eye(3)), MODELS, tmp_path, "model")
    assert load_estimator(MODELS, tmp_path, "model").random_state is None


def test_a_file_that_lost_all_that_was_learned_is_refused_in_one_line(tmp_path):
    from visterm.core.persist import load_estimator, save_estimator
    from visterm.core.tables import MODELS

    save_estimator(MODELS.create("wsabie"), MODELS, tmp_path, "model")
    with pytest.raises(CorruptFileError, match=r"_ of Wsabie is missing\. Restore it from a backup"):
        load_estimator(MODELS, tmp_path, "model")
