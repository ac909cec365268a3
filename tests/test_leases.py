"""Who writes at an address: one process at a time, and what a killed one left is passed over."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest

from remote_photos import N, content, picture
from visterm.core.errors import StorageError
from visterm.core.remote import RemotePath
from visterm.features import remote_folder as lease_module
from visterm.features.folder import UNFINISHED
from visterm.features.job import encode_folder
from visterm.features.remote_folder import Lease

pytest_plugins = ["encoding_fixtures"]


def held_by(lock, **changed):
    told = {"token": "other", "host": "elsewhere", "pid": 1, "since": 0.0, "renewed": time.time()}
    lock.write_bytes(json.dumps(told | changed).encode())


def test_one_process_writes_at_a_time_and_the_other_hears_which(store, photos, small):
    lock = store / "F" / UNFINISHED / "lock.json"
    with Lease(lock, store / "F").held():
        mine = json.loads(lock.read_text())
        assert (mine["host"], mine["pid"]) == (socket.gethostname(), os.getpid())
        told = rf"writing into {store}/F \(process {os.getpid()} on {socket.gethostname()} since 20"
        with pytest.raises(StorageError, match=told):
            encode_folder(photos, store / "F", **small)
    assert not lock.exists()
    assert encode_folder(photos, store / "F", **small).rows == N
    assert not lock.exists()


@pytest.mark.parametrize(
    "left",
    [
        {"renewed": time.time() - 1000},  # not heard of for long
        {"host": socket.gethostname(), "pid": 2**22 + 7},  # no such process on this machine
        {"host": socket.gethostname(), "pid": os.getpid()},  # of a container that was begun anew
        {"renewed": "soon"},
    ],
)
def test_what_a_killed_process_left_is_taken_over(memory, left, monkeypatch):
    monkeypatch.setattr(lease_module, "SETTLING_SECONDS", 0.0)
    lock = memory / "lock.json"
    held_by(lock, **left)
    with Lease(lock, memory).held():
        assert json.loads(lock.read_text())["token"] != "other"
    assert not lock.exists()


@pytest.mark.parametrize("left", [{}, {"host": socket.gethostname(), "pid": os.getppid()}])
def test_a_process_that_lives_is_not_passed_over(memory, left):
    lock = memory / "lock.json"
    held_by(lock, **left)
    with pytest.raises(StorageError, match="Another process is writing"), Lease(lock, memory).held():
        pass
    assert json.loads(lock.read_text())["token"] == "other"


def test_a_lease_is_renewed_and_one_that_was_lost_stops_the_job_before_it_commits(memory, photos, monkeypatch, small):
    lock = memory / "lock.json"
    monkeypatch.setattr(lease_module, "RENEWAL_SECONDS", 0.01)
    with Lease(lock, memory).held():
        first = json.loads(lock.read_text())["renewed"]
        deadline = time.monotonic() + 600
        while json.loads(lock.read_text())["renewed"] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    monkeypatch.setattr(lease_module, "RENEWAL_SECONDS", 30.0)
    encode_folder(photos, memory / "F", **small)
    before = content(memory / "F")
    (photos / "sea/00.png").write_bytes(picture(300))
    write = RemotePath.write_bytes

    def robbed(self, data):
        write(self, data)
        if self.name.endswith(".safetensors"):
            held_by(memory / "F" / UNFINISHED / "lock.json")

    monkeypatch.setattr(RemotePath, "write_bytes", robbed)
    with pytest.raises(StorageError, match=r"has taken over writing into .*process 1 on elsewhere"):
        encode_folder(photos, memory / "F", n_jobs=1)
    after = content(memory / "F")
    assert {name: after[name] for name in before} == before
    assert json.loads(after[f"{UNFINISHED}/lock.json"])["token"] == "other"  # is not ours to remove
