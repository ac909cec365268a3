"""A catalogue that nothing can be written to, such as a snapshot on a NAS, is searched as any other."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import sys
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from command_line import visterm
from small_disks import small_disk
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.core.errors import DiskError, ReplacedError
from visterm.store import database
from visterm.store.catalogue import DATABASE
from visterm.web.app import create_app

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permissions there")

NAME = "only in the log of writes.jpg"
CAPABILITIES = 0x20080522  # The version of the structures below
MAY_WRITE_ANYWHERE = 0b111  # chown, dac_override, dac_read_search


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read-only")
    make_tiny_catalogue(folder, n_images=12)
    return folder


@contextmanager
def as_others():
    """Drop root's right to write where permissions forbid it, for this thread only."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        yield
        return
    libc, header, sets = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(CAPABILITIES, 0), ctypes.c_uint32 * 6
    before = sets()
    assert libc.capget(header, before) == 0
    fewer = sets(*before)
    fewer[0] &= ~MAY_WRITE_ANYWHERE
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0


def copy_as(kind, made, folder):
    """Copy the catalogue: as it was closed, or as a process left it that had not put its last write in place."""
    shutil.copytree(made / "catalogue", folder)
    if kind in ("closed", "old"):
        return folder
    live = shutil.copytree(folder, folder.with_name("live"))
    connection = sqlite3.connect(live / DATABASE, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE images SET name = ? WHERE id = 0", (NAME,))
    for end in ("-wal", "-shm")[: 1 if kind == "log alone" else 2]:
        shutil.copyfile(f"{live / DATABASE}{end}", f"{folder / DATABASE}{end}")
    connection.close()
    shutil.rmtree(live)
    return folder


CASES = ["closed-permissions", "log-permissions", "log alone-permissions", "old-permissions", "closed-disk", "log-disk"]


@pytest.fixture(params=CASES)
def kind(request):
    return request.param


@pytest.fixture
def snapshot(kind, made, tmp_path, monkeypatch):
    """A catalogue that nothing can be written to."""
    kind, by = kind.split("-")
    if kind == "old":
        monkeypatch.setattr(database, "FORMAT", 4)
        monkeypatch.setattr(database, "MIGRATIONS", {3: lambda c: c.execute("ALTER TABLE images ADD stars INTEGER")})
    if by == "disk":
        try:
            with small_disk(2**25) as disk:
                copy_as(kind, made, disk.folder / "cat")
                disk.mount_again("ro")
                yield disk.folder / "cat"
        except OSError as error:
            pytest.skip(str(error))
        return
    folder = copy_as(kind, made, tmp_path / "cat")
    every = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in every}
    for path in every:
        path.chmod(modes[path] & ~0o222)
    with as_others():
        yield folder
    for path in every:
        path.chmod(modes[path])


def test_what_reads_works_and_what_writes_is_refused_in_one_line(snapshot, kind, made, tmp_path):
    before, run = {path: path.stat().st_mtime_ns for path in snapshot.rglob("*")}, next((snapshot / "runs").iterdir())
    code, out, err = visterm(f"search {snapshot} stripes -k 12 --json", tmp_path)
    assert (code, out.count("\n")) == (0, 12), err
    assert (NAME in out) == kind.startswith("log")
    for line in (
        f"info {snapshot}", f"info {snapshot} --check", f"tags {snapshot}", f"tag {snapshot} 05.jpg",
        f"export {snapshot} --to csv -k 1 -o tags.csv", f"annotate {run} {made / 'photos' / '00.jpg'}",
    ):  # fmt: skip
        code, _, err = visterm(line, tmp_path)
        assert code == 0, (line, err)
    assert (NAME in (tmp_path / "tags.csv").read_text()) == kind.startswith("log")
    for line in (
        f"tag {snapshot} 05.jpg --add mine", f"index {snapshot} {made / 'photos'}", f"fit {snapshot}",
        f"export {snapshot} --to xmp -k 1", f"duplicates {snapshot}",
    ):  # fmt: skip
        code, _, err = visterm(line, tmp_path)
        assert (code, "cannot be written" in err, "Traceback" in err) == (2, True, False), (line, err)
    assert list(made.rglob("*.xmp")) == []
    assert {path: path.stat().st_mtime_ns for path in snapshot.rglob("*")} == before


def test_in_python_and_by_the_service_it_is_searched_too(snapshot, kind, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    catalogue = Catalogue.load(snapshot, n_jobs=1)
    assert len(catalogue.search("stripes", 3).hits) == 3
    assert (catalogue.image(0).record.name == NAME) == kind.startswith("log")
    with pytest.raises(DiskError, match="cannot be written"):
        catalogue.give(0, ["mine"])
    catalogue.stored.close()
    with TestClient(create_app(snapshot), base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/health").status_code == 200
        assert client.get("/api/v1/search", params={"q": "stripes"}).json()["hits"]
        assert client.get("/").status_code == 200
        if os.geteuid() or "small-disk" in str(snapshot):  # root's other threads may still write
            answer = client.post("/api/v1/images/1/feedback", json={"tag": "dots", "verdict": 1})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "disk_fails")


def test_a_snapshot_that_changes_while_it_is_open_is_not_read_on(made, tmp_path):
    folder = copy_as("closed", made, tmp_path / "cat")
    folder.chmod(0o500)
    with as_others():
        catalogue = Catalogue.load(folder, n_jobs=1)
        assert len(catalogue.search("stripes", 3).hits) == 3
    folder.chmod(0o700)
    with sqlite3.connect(folder / DATABASE) as other:
        other.execute("UPDATE images SET name = 'another.jpg' WHERE id = 0")
    other.close()
    with pytest.raises(ReplacedError, match="or written to"):
        catalogue.search("stripes", 3)


def test_a_copy_is_removed_when_the_catalogue_is_closed_and_forgotten(made, monkeypatch, tmp_path):
    folder, place = copy_as("log alone", made, tmp_path / "cat"), tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    folder.chmod(0o500)
    with as_others():
        catalogue = Catalogue.load(folder, n_jobs=1)
        assert [path.name for path in next(place.glob("visterm-*")).glob(DATABASE)] == [DATABASE]
        catalogue.stored.close()
    folder.chmod(0o700)
    del catalogue
    assert list(place.iterdir()) == []
