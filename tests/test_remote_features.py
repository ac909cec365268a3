"""Features in object stores: the bytes of those on disk, whole or not there whatever is killed, one writer a time."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from hashlib import sha256

import numpy as np
import pytest

from remote_photos import N, content, paint, picture, put
from visterm.core.errors import CorruptFileError, EncoderMismatchError, StorageError
from visterm.core.remote import RemotePath
from visterm.core.types import Skipped
from visterm.features import remote_folder as lease_module
from visterm.features.folder import UNFINISHED, is_features
from visterm.features.job import encode_folder
from visterm.features.remote_folder import ShardCache, feature_folder
from visterm.features.stored import Features
from visterm.library.info import describe

pytestmark = pytest.mark.usefixtures("plugin")

pytest_plugins = ["encoding_fixtures"]

NOTE = re.compile(r"[0-9a-f]{24}\.json")
"""What a job notes of a shard that is done."""


class Killed(BaseException):
    """Stands for a kill: nothing but `finally` sees it."""


def test_photos_of_this_machine_are_encoded_into_a_store_to_the_very_bytes_of_a_folder(store, photos, tmp_path, small):
    (photos / "broken.png").write_bytes(b"no picture")
    done = encode_folder(photos, str(store / "F"), **small)
    assert done == encode_folder(photos, tmp_path / "F", **small)
    assert content(store / "F") == content(tmp_path / "F")
    assert is_features(str(store / "F"))
    assert not is_features(str(store))
    assert describe(str(store / "F")) == describe(tmp_path / "F")


def test_photos_of_a_store_get_the_rows_of_the_same_files_on_disk(store, photos, tmp_path, small):
    (photos / "broken.png").write_bytes(b"no picture")
    put(photos, store / "photos")
    done = encode_folder(store / "photos", tmp_path / "F", **small)
    assert (done.images, done.encoded, done.skipped) == (N + 1, N, 1)
    here = encode_folder(photos, tmp_path / "here", **small)
    assert done.fingerprint == here.fingerprint
    remote, local = Features(tmp_path / "F"), Features(tmp_path / "here")
    assert remote.images == store / "photos"
    names = [name for name in sorted(content(photos)) if name != "broken.png"]
    np.testing.assert_array_equal(
        remote.encode([store / "photos" / name for name in names]).rows,
        local.encode([photos / name for name in names]).rows,
        strict=True,
    )
    found = remote.encode([f"{store}/photos/broken.png"])
    assert found.skipped[0].image == f"{store}/photos/broken.png"
    assert found.skipped[0].reason.startswith("not an image")


def test_a_later_run_fetches_only_what_is_new_or_changed(memory, monkeypatch, small):
    paint(memory / "photos")
    encode_folder(memory / "photos", memory / "F", **small)
    fetched = []
    read = RemotePath.read_bytes
    monkeypatch.setattr(RemotePath, "read_bytes", lambda self: (fetched.append(self.name), read(self))[1])
    again = encode_folder(memory / "photos", memory / "F", n_jobs=1)
    assert (again.encoded, again.reused, again.gone) == (0, N, 0)
    assert not [name for name in fetched if name.endswith(".png")]
    (memory / "photos/sea/00.png").write_bytes(picture(100))
    (memory / "photos/sky/99.png").write_bytes(picture(101))
    (memory / "photos/sky/11.png").unlink()
    before = set(content(memory / "F"))
    again = encode_folder(memory / "photos", memory / "F", n_jobs=1)
    assert (again.encoded, again.reused, again.gone) == (2, N - 2, 1)
    assert sorted(name for name in fetched if name.endswith(".png")) == ["00.png", "99.png"]
    after = set(content(memory / "F"))
    assert len(after) == len(before)
    assert after != before
    assert not any(name.startswith(UNFINISHED) for name in after)
    names = [f"{place}/{i:02}.png" for place, i in [("sea", 0), ("sky", 1), ("sky", 99)]]
    features = Features(memory / "F")
    rows = features.encode([memory / "photos" / name for name in names]).rows
    by_hand = features.encoder.transform([memory / "photos" / name for name in names])
    np.testing.assert_array_equal(rows, by_hand)


def test_a_photo_that_is_put_anew_while_it_is_read_has_no_row_of_either_state(memory, monkeypatch, small):
    paint(memory / "photos", range(3))
    read = RemotePath.read_bytes
    seeds = iter(range(100, 200))

    def meddled(self):
        data = read(self)
        if self.name == "01.png":
            self.write_bytes(picture(next(seeds)))
        return data

    monkeypatch.setattr(RemotePath, "read_bytes", meddled)
    done = encode_folder(memory / "photos", memory / "F", **small)
    assert (done.rows, done.skipped) == (2, 1)
    assert feature_folder(memory / "F").skipped() == [
        Skipped("sky/01.png", "changed while it was being read: run again")
    ]


@pytest.mark.parametrize("update", [False, True])
def test_a_kill_at_any_write_ends_with_the_same_bytes(memory, tmp_path, monkeypatch, update, small):
    """Of a first run and of an update, before each object that is put or removed in turn."""
    monkeypatch.setattr(lease_module, "SETTLING_SECONDS", 0.0)
    photos = memory / "photos"
    paint(photos)
    encode_folder(photos, memory / "first", **small)
    start = content(memory / "first") if update else {}
    if update:
        (photos / "sea/00.png").write_bytes(picture(200))
        (photos / "sky/11.png").unlink()
    fuse = {"left": 10**9, "burnt": 0}

    def burning(real):
        def step(self, *arguments, **more):
            if self.name == "lock.json":  # which a killed process leaves behind, see below
                return real(self, *arguments, **more)
            if fuse["left"] == 0:
                raise Killed
            fuse["left"] -= 1
            fuse["burnt"] += 1
            return real(self, *arguments, **more)

        return step

    for name in ("write_bytes", "unlink"):
        monkeypatch.setattr(RemotePath, name, burning(getattr(RemotePath, name)))
    reference = memory / "reference"
    for name, data in start.items():
        (reference / name).write_bytes(data)
    fuse["burnt"] = 0
    encode_folder(photos, reference, **small)
    whole, n_steps = content(reference), fuse["burnt"]
    assert n_steps > 8
    for n in range(n_steps):
        place = memory / f"killed {n}"
        for name, data in start.items():
            (place / name).write_bytes(data)
        fuse["left"] = n
        with pytest.raises(Killed):
            encode_folder(photos, place, **small)
        fuse["left"] = 10**9
        if update:  # what it holds is the old or the new, and never anything between
            rows = len(Features(place))
            assert rows in (N, N - 1), n
        encode_folder(photos, place, **small)
        assert content(place) == whole, n


def test_a_job_that_was_killed_goes_on_where_it_was_and_says_so_until_then(memory, monkeypatch, small):
    paint(memory / "photos")
    write = RemotePath.write_bytes

    def stopped(self, data):
        if self.name.endswith(".safetensors") and len((memory / "F/data").children()) == 2:
            raise Killed
        write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write_bytes", stopped)
        with pytest.raises(Killed):
            encode_folder(memory / "photos", memory / "F", **small)
    facts = describe(memory / "F")
    assert facts["kind"] == "features folder, not finished"
    assert facts["shards so far"] == 2
    with pytest.raises(StorageError, match=rf"{memory}/F is not finished.*Run the same command again"):
        Features(memory / "F")
    done = encode_folder(memory / "photos", memory / "F", **small)
    assert done.rows == N
    assert done.reused == facts["rows so far"]


def test_other_places_are_left_alone_and_another_encoder_is_refused(memory, photos, small):
    (memory / "notes/a.txt").write_bytes(b"mine")
    with pytest.raises(StorageError, match=rf"{memory}/notes exists and is not a features folder"):
        encode_folder(photos, memory / "notes", **small)
    assert content(memory / "notes") == {"a.txt": b"mine"}
    encode_folder(photos, memory / "F", **small)
    with pytest.raises(EncoderMismatchError, match=rf"{memory}/F has features of another encoder"):
        encode_folder(photos, memory / "F", **small | {"encoder": "mean_colour"})
    with pytest.raises(StorageError, match=f"{memory}/none is not a features folder"):
        Features(memory / "none")


def test_kill_9_leaves_a_lease_that_is_passed_over_and_shards_that_are_used(bucket, tmp_path, small):
    paint(bucket / "photos", range(36))
    arguments = ["encode", bucket / "photos", "--encoder", small["encoder"], "--shard-size", 3, "-o"]
    child = subprocess.Popen(
        [sys.executable, "-m", "visterm", *map(str, arguments), str(bucket / "F")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    unfinished = bucket / "F" / UNFINISHED
    deadline = time.monotonic() + 600
    while len([name for name in unfinished.children() if NOTE.fullmatch(name)]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # the server that is asked works in this process
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "it was quicker than the kill"
    assert (unfinished / "lock.json").exists()
    safe = describe(bucket / "F")["rows so far"]
    with pytest.raises(StorageError, match=r"not finished.*same command again"):
        Features(bucket / "F")
    done = encode_folder(bucket / "photos", bucket / "F", n_jobs=1)
    assert done.reused == safe > 0
    encode_folder(bucket / "photos", tmp_path / "undisturbed", **small | {"shard_size": 3})
    assert content(bucket / "F") == content(tmp_path / "undisturbed")


def test_a_shard_that_is_missing_or_changed_is_named_and_encoded_anew(memory, photos, no_cache, small):
    encode_folder(photos, memory / "F", **small)
    whole = content(memory / "F")
    shard = next(name for name in whole if name.startswith("data/"))
    changed = bytearray(whole[shard])
    changed[40] ^= 1
    (memory / "F" / shard).write_bytes(bytes(changed))
    features = feature_folder(memory / "F")
    entry = next(entry for entry in features.contents().shards if entry.file in shard)
    with pytest.raises(CorruptFileError, match=rf"{memory}/F/{shard} was changed.*Remove it, and run the command"):
        features.check(entry)
    (memory / "F" / shard).unlink()
    with pytest.raises(CorruptFileError, match=rf"{memory}/F/{shard} is missing"):
        feature_folder(memory / "F").local(entry)
    encode_folder(photos, memory / "F", n_jobs=1)
    assert content(memory / "F") == whole


def test_a_cache_keeps_the_latest_shards_and_no_wrong_ones(monkeypatch):
    cache = ShardCache(100)
    data = {f"{i}": bytes([i]) * 30 for i in range(12)}
    hashes = {i: sha256(d).hexdigest() for i, d in data.items()}
    for i in data:
        assert cache.get(hashes[i], lambda i=i: data[i]).read_bytes() == data[i]
    here = [i for i in data if cache.find(hashes[i])]
    assert here == ["4", "5", "6", "7", "8", "9", "10", "11"]  # eight are kept whatever they take
    assert cache.get(hashes["11"], lambda: pytest.fail("it is here")).read_bytes() == data["11"]
    assert cache.get(hashes["0"], lambda: b"other") is None
