"""What the system or a damaged file refuses becomes one error of ours: in commands, the database and the service."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import time

import numpy as np
import pytest
from safetensors import SafetensorError
from starlette.testclient import TestClient

from command_line import run_command
from small_disks import small_disk
from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.core.errors import DiskError, OutOfSpaceError
from visterm.core.writing import check_space, new_map, storage_error, whole_file, writing
from visterm.web import jobs
from visterm.web.app import create_app

PAGE = 4096


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with photos, a run, and a catalogue that is closed."""
    folder = tmp_path_factory.mktemp("made")
    tags = draw_photos(folder / "photos", 8)
    run = fit_run(folder / "photos", tags, folder / "run")
    catalogue = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(folder / "photos", tags=write_tags(folder / "tags.csv", tags))
    catalogue.stored.close()
    return folder


@pytest.fixture(scope="module")
def disk(made):
    try:
        mounted = small_disk(6 * 2**20)
        found = mounted.__enter__()
    except OSError as error:
        pytest.skip(str(error))
    shutil.copytree(made / "catalogue", found.folder / "catalogue")
    yield found
    mounted.__exit__(None, None, None)


def check_one_line(done):
    assert done.returncode == 2, done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("visterm: "), done.stderr
    return last


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (errno.ENOSPC, OutOfSpaceError, "is full ("),
        (errno.EDQUOT, OutOfSpaceError, "quota"),
        (errno.EFBIG, OutOfSpaceError, "ulimit -f"),
        (errno.EROFS, DiskError, "read-only"),
        (errno.EMFILE, DiskError, "ulimit -n"),
        (errno.EIO, DiskError, "input/output error"),
    ],
)
def test_what_the_system_refuses_is_reported_with_its_place_and_the_way_out(code, kind, told, tmp_path):
    with pytest.raises(kind, match=r"\S") as raised, writing(tmp_path):
        raise OSError(code, os.strerror(code))
    assert told in str(raised.value)
    assert type(raised.value) is kind


def test_libraries_in_rust_and_c_tell_of_a_full_disk_by_text_alone(tmp_path):
    in_rust = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert isinstance(storage_error(in_rust, tmp_path), OutOfSpaceError)
    assert isinstance(storage_error(RuntimeError("write error: No space left on device"), tmp_path), OutOfSpaceError)
    assert storage_error(RuntimeError("a bug"), tmp_path) is None


def test_space_that_is_missing_is_reported_in_figures_before_anything_is_written(tmp_path):
    with pytest.raises(OutOfSpaceError, match=r"1000000\.0 GB needed, .* free"):
        check_space(tmp_path / "file", 10**15)
    with pytest.raises(OutOfSpaceError, match="needed"):
        new_map(tmp_path / "map.npy", np.float64, (10**14,))
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_reserves_space_a_map_is_written_in_full(tmp_path, monkeypatch):
    monkeypatch.delattr("os.posix_fallocate")
    made = new_map(tmp_path / "map.npy", np.float32, (3, 5))
    made[1] = 7
    made.flush()
    assert (tmp_path / "map.npy").stat().st_blocks > 0
    np.testing.assert_array_equal(np.load(tmp_path / "map.npy"), [[0] * 5, [7] * 5, [0] * 5])
    assert new_map(tmp_path / "empty.npy", np.float32, (0, 5)).shape == (0, 5)


def test_a_file_whose_writing_fails_is_what_it_was(tmp_path):
    (tmp_path / "kept.txt").write_text("old")

    def write():
        with whole_file(tmp_path / "kept.txt") as temporary:
            temporary.write_text("half")
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OutOfSpaceError):
        write()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_file_beyond_the_largest_size_ends_a_fit_clean(made, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    line = [
        "tags",
        made / "run",
        made / "photos",
        "--tags",
        made / "tags.csv",
        "--suggest",
        "--out",
        tmp_path / "new.csv",
    ]
    run_command(line)
    (tmp_path / "new.csv").unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        done = run_command(line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "ulimit -f" in check_one_line(done)
    assert list(tmp_path.iterdir()) == []


def test_too_many_open_files_are_reported_in_one_line(made):
    assert run_command(["search", made / "catalogue", "red"]).returncode == 0
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        done = run_command(["search", made / "catalogue", "red"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "too many files" in check_one_line(done).lower()


def zeroed(made, folder, page):
    """Copy the catalogue with one page of its database zeroed."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made / "catalogue", folder)
    with (folder / "catalogue.sqlite").open("r+b") as file:
        file.seek(PAGE * page)
        file.write(bytes(PAGE))
    return folder


def check_zeroed(made, tmp_path, page):
    folder = zeroed(made, tmp_path / "damaged", page)
    for line in (["info", folder], ["search", folder, "red"], ["index", made / "run", made / "photos", "-o", folder]):
        done = run_command(line)
        if done.returncode != 0:
            assert "catalogue" in check_one_line(done)
    return folder


def pages(made):
    return (made / "catalogue" / "catalogue.sqlite").stat().st_size // PAGE


def test_a_zeroed_page_of_the_database_is_reported_in_one_line(made, tmp_path):
    for page in random.Random(0).sample(range(pages(made)), 4):
        check_zeroed(made, tmp_path, page)


@pytest.mark.slow
def test_any_zeroed_page_of_the_database_is_reported_in_one_line(made, tmp_path):
    for page in range(pages(made)):
        check_zeroed(made, tmp_path, page)


def test_a_service_says_that_its_database_is_damaged(made, tmp_path, caplog):
    shutil.copytree(made / "catalogue", tmp_path / "damaged")
    with TestClient(create_app(tmp_path / "damaged"), base_url="http://localhost") as client:
        for page in range(2, pages(made)):
            with (tmp_path / "damaged" / "catalogue.sqlite").open("r+b") as file:
                file.seek(PAGE * page)
                file.write(bytes(PAGE))
        answer = client.get("/api/v1/images/3")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "damaged"
    assert "Restore it from a backup" in answer.json()["error"]["message"]
    assert not any(record.exc_info for record in caplog.records)


def test_a_token_file_that_is_not_text_is_refused(made, tmp_path):
    (tmp_path / "token").write_bytes(bytes(range(128, 256)))
    last = check_one_line(run_command(["serve", made / "catalogue", "--token-file", tmp_path / "token"]))
    assert "UTF-8" in last


def test_a_service_answers_507_on_a_full_disk_and_writes_again_once_there_is_space(disk, caplog, monkeypatch):
    monkeypatch.setattr(jobs, "RETRY_SECONDS", 0.05)
    with TestClient(create_app(disk.folder / "catalogue"), base_url="http://localhost") as client:

        def write_until_it_is_full():
            disk.leave(0)
            for number in range(1000):  # the log of the database has some space of its own
                tags = [f"{number} {place} {'x' * 80}" for place in range(40)]
                answer = client.post("/api/v1/images/1/tags", json={"give": tags})
                if answer.status_code != 200:
                    return answer
            return None

        try:
            answer = write_until_it_is_full()
            assert answer.status_code == 507
            assert answer.json()["error"]["code"] == "disk_full"
            assert client.get("/api/v1/images/1").status_code == 200
            assert client.post("/api/v1/jobs", json={"kind": "index"}).status_code == 507
        finally:
            disk.free()
        said = client.post("/api/v1/images/1/feedback", json={"tag": "red", "verdict": 1})
        assert said.status_code == 200
        job = client.post("/api/v1/jobs", json={"kind": "duplicates"}).json()["id"]
        try:
            write_until_it_is_full()
            while (found := client.get(f"/api/v1/jobs/{job}").json())["state"] in ("waiting", "running"):
                time.sleep(0.05)
        finally:
            disk.free()
        assert found["state"] in ("failed", "done")
    assert not any(record.exc_info for record in caplog.records)


def test_a_read_only_disk_is_reported_in_one_line(disk, made):
    disk.mount_again("ro")
    try:
        done = run_command(["index", made / "run", made / "photos", "-o", disk.folder / "catalogue"])
    finally:
        disk.mount_again("rw")
    assert "cannot be" in check_one_line(done) or "read-only" in check_one_line(done)
