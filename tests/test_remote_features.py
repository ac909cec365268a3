"""Features in object stores: the bytes of those on disk, whole or not there whatever is killed, one writer a time."""

from __future__ import annotations

import json
import os
import socket
import time
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_command
from object_stores import new_bucket, new_memory_store, s3_server
from planted_features import fitted_encoder, plant
from visterm import Tagger
from visterm.app.features import lease as lease_module
from visterm.app.features import remote_folder
from visterm.app.features.job import encode_folder
from visterm.app.features.kind import UNFINISHED, is_features
from visterm.app.features.lease import Lease
from visterm.app.features.remote_folder import feature_folder
from visterm.app.features.shard_cache import ShardCache
from visterm.app.features.stored import Features
from visterm.app.info import describe
from visterm.app.rows import as_corpus
from visterm.core.errors import CorruptFileError, EncoderMismatchError, StorageError, TagFileError
from visterm.core.remote import RemotePath, as_path
from visterm.core.types import Skipped

N = 12
HISTOGRAMS = {"textons": 4, "sample_pixels": 300}
SMALL = {"encoder": "histograms", "encoder_params": HISTOGRAMS, "shard_size": 4, "n_jobs": 1}


class Killed(BaseException):
    """Stands for a kill: nothing but `finally` sees it."""


def picture(seed):
    file = BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def paint(folder, numbers=range(N)):
    """Put pictures into a folder or a store, every third in a folder of its own."""
    for i in numbers:
        place = folder / ("sea" if i % 3 == 0 else "sky") / f"{i:02}.png"
        if isinstance(folder, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(picture(i))


def content(place):
    """All files below a place, by their names."""
    if isinstance(place, Path):
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}
    return {name: (place / name).read_bytes() for name in place.files()}


def put(folder, place):
    """Copy a folder into a store."""
    for name, data in content(folder).items():
        (place / name).write_bytes(data)
    return place


@pytest.fixture(scope="module")
def server():
    with s3_server() as url:
        yield url


@pytest.fixture
def memory():
    return as_path(new_memory_store())


@pytest.fixture
def bucket(server):
    return as_path(new_bucket()) / "library"


@pytest.fixture(params=["memory", "bucket"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def photos(tmp_path):
    paint(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def no_cache(monkeypatch):
    """Shards are fetched anew."""
    monkeypatch.setattr(remote_folder, "CACHE", ShardCache())


# -- writing ----------------------------------------------------------------------------------------------------------


def test_photos_of_this_machine_are_encoded_into_a_store_to_the_very_bytes_of_a_folder(store, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    done = encode_folder(photos, str(store / "F"), **SMALL)
    assert done == encode_folder(photos, tmp_path / "F", **SMALL)
    assert content(store / "F") == content(tmp_path / "F")
    assert is_features(str(store / "F"))
    assert not is_features(str(store))
    assert describe(str(store / "F")) == describe(tmp_path / "F")


def test_photos_of_a_store_get_the_rows_of_the_same_files_on_disk(store, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    put(photos, store / "photos")
    done = encode_folder(store / "photos", tmp_path / "F", **SMALL)
    assert (done.images, done.encoded, done.skipped) == (N + 1, N, 1)
    here = encode_folder(photos, tmp_path / "here", **SMALL)
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


def test_a_later_run_fetches_only_what_is_new_or_changed(memory, monkeypatch):
    paint(memory / "photos")
    encode_folder(memory / "photos", memory / "F", **SMALL)
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


def test_a_photo_that_is_put_anew_while_it_is_read_has_no_row_of_either_state(memory, monkeypatch):
    paint(memory / "photos", range(3))
    read = RemotePath.read_bytes
    seeds = iter(range(100, 200))

    def meddled(self):
        data = read(self)
        if self.name == "01.png":
            self.write_bytes(picture(next(seeds)))
        return data

    monkeypatch.setattr(RemotePath, "read_bytes", meddled)
    done = encode_folder(memory / "photos", memory / "F", **SMALL)
    assert (done.rows, done.skipped) == (2, 1)
    assert feature_folder(memory / "F").skipped() == [
        Skipped("sky/01.png", "changed while it was being read: run again")
    ]


@pytest.mark.parametrize("update", [False, True])
def test_a_kill_at_any_write_ends_with_the_same_bytes(memory, tmp_path, monkeypatch, update):
    """Of a first run and of an update, before each object that is put or removed in turn."""
    monkeypatch.setattr(lease_module, "SETTLED", 0.0)
    photos = memory / "photos"
    paint(photos)
    encode_folder(photos, memory / "first", **SMALL)
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
    encode_folder(photos, reference, **SMALL)
    whole, n_steps = content(reference), fuse["burnt"]
    assert n_steps > 8
    for n in range(n_steps):
        place = memory / f"killed {n}"
        for name, data in start.items():
            (place / name).write_bytes(data)
        fuse["left"] = n
        with pytest.raises(Killed):
            encode_folder(photos, place, **SMALL)
        fuse["left"] = 10**9
        if update:  # what it holds is the old or the new, and never anything between
            rows = len(Features(place))
            assert rows in (N, N - 1), n
        encode_folder(photos, place, **SMALL)
        assert content(place) == whole, n


def test_a_job_that_was_killed_goes_on_where_it_was_and_says_so_until_then(memory, monkeypatch):
    paint(memory / "photos")
    write = RemotePath.write_bytes

    def stopped(self, data):
        if self.name.endswith(".parquet") and len((memory / "F/data").children()) == 2:
            raise Killed
        write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write_bytes", stopped)
        with pytest.raises(Killed):
            encode_folder(memory / "photos", memory / "F", **SMALL)
    facts = describe(memory / "F")
    assert facts["kind"] == "features folder, not finished"
    assert facts["shards so far"] == 2
    with pytest.raises(StorageError, match=rf"{memory}/F is not finished.*Give the same command again"):
        Features(memory / "F")
    done = encode_folder(memory / "photos", memory / "F", **SMALL)
    assert done.rows == N
    assert done.reused == facts["rows so far"]


def test_other_places_are_left_alone_and_another_encoder_is_refused(memory, photos):
    (memory / "notes/a.txt").write_bytes(b"mine")
    with pytest.raises(StorageError, match=rf"{memory}/notes exists and is not a features folder"):
        encode_folder(photos, memory / "notes", **SMALL)
    assert content(memory / "notes") == {"a.txt": b"mine"}
    encode_folder(photos, memory / "F", **SMALL)
    with pytest.raises(EncoderMismatchError, match=rf"{memory}/F has features of another encoder"):
        encode_folder(photos, memory / "F", **SMALL | {"encoder_params": HISTOGRAMS | {"textons": 5}})
    with pytest.raises(StorageError, match=f"{memory}/none is not a features folder"):
        Features(memory / "none")


# -- who writes -------------------------------------------------------------------------------------------------------


def held_by(lock, **changed):
    told = {"token": "other", "host": "elsewhere", "pid": 1, "since": 0.0, "renewed": time.time()}
    lock.write_bytes(json.dumps(told | changed).encode())


def test_one_process_writes_at_a_time_and_the_other_hears_which(store, photos):
    lock = store / "F" / UNFINISHED / "lock.json"
    with Lease(lock, store / "F").held():
        mine = json.loads(lock.read_text())
        assert (mine["host"], mine["pid"]) == (socket.gethostname(), os.getpid())
        told = rf"writing into {store}/F \(process {os.getpid()} on {socket.gethostname()} since 20"
        with pytest.raises(StorageError, match=told):
            encode_folder(photos, store / "F", **SMALL)
    assert not lock.exists()
    assert encode_folder(photos, store / "F", **SMALL).rows == N
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
    monkeypatch.setattr(lease_module, "SETTLED", 0.0)
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


def test_a_lease_is_renewed_and_one_that_was_lost_stops_the_job_before_it_commits(memory, photos, monkeypatch):
    lock = memory / "lock.json"
    monkeypatch.setattr(lease_module, "RENEWED", 0.01)
    with Lease(lock, memory).held():
        first = json.loads(lock.read_text())["renewed"]
        deadline = time.monotonic() + 10
        while json.loads(lock.read_text())["renewed"] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    monkeypatch.setattr(lease_module, "RENEWED", 30.0)
    encode_folder(photos, memory / "F", **SMALL)
    before = content(memory / "F")
    (photos / "sea/00.png").write_bytes(picture(300))
    write = RemotePath.write_bytes

    def robbed(self, data):
        write(self, data)
        if self.name.endswith(".parquet"):
            held_by(memory / "F" / UNFINISHED / "lock.json")

    monkeypatch.setattr(RemotePath, "write_bytes", robbed)
    with pytest.raises(StorageError, match=r"has taken over writing into .*process 1 on elsewhere"):
        encode_folder(photos, memory / "F", n_jobs=1)
    after = content(memory / "F")
    assert {name: after[name] for name in before} == before
    assert json.loads(after[f"{UNFINISHED}/lock.json"])["token"] == "other"  # is not ours to remove


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_shard_that_is_missing_or_changed_is_named_and_encoded_anew(memory, photos, no_cache):
    encode_folder(photos, memory / "F", **SMALL)
    whole = content(memory / "F")
    shard = next(name for name in whole if name.startswith("data/"))
    changed = bytearray(whole[shard])
    changed[40] ^= 1
    (memory / "F" / shard).write_bytes(bytes(changed))
    features = feature_folder(memory / "F")
    entry = next(entry for entry in features.contents().shards if entry.file in shard)
    with pytest.raises(CorruptFileError, match=rf"{memory}/F/{shard} was changed.*Remove it, and give the command"):
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


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("drawn"), fitted_encoder())


def test_features_of_a_store_are_learned_from_in_memory_and_streamed_as_those_on_disk(
    bucket, drawn, tmp_path, no_cache
):
    put(drawn / "features", bucket / "F")
    settings = ["--tags", drawn / "tags.jsonl", "--model", "wsabie", "--set", "dim=8", "--set", "epochs=2", "--jobs", 1]
    for name, more in [("whole", []), ("streamed", ["--memory", "1M"])]:
        runs = []
        for place in (bucket / "F", drawn / "features"):
            runs.append(tmp_path / f"{name} {isinstance(place, Path)}")
            done = run_command(["fit", place, *settings, *more, "-o", runs[-1]])
            assert done.returncode == 0, done.stderr
            assert ("streamed from disk" in done.stderr) == bool(more)
        remote, local = (Tagger.load(run) for run in runs)
        np.testing.assert_array_equal(remote.model.tag_rows_, local.model.tag_rows_, strict=True)
        told = [
            run_command(["evaluate", runs[0], place, "--tags", drawn / "tags.jsonl", "--json", *more], tmp_path).stdout
            for place in (bucket / "F", drawn / "features")
        ]
        assert told[0] == told[1] != ""
    told = [
        run_command(["annotate", runs[0], place, "--json"], tmp_path).stdout
        for place in (bucket / "F", drawn / "features")
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 600


# -- commands ---------------------------------------------------------------------------------------------------------


def test_commands_take_addresses_and_name_images_by_them(bucket, tmp_path):
    paint(bucket / "photos")
    (bucket / "photos/broken.png").write_bytes(b"no picture")
    rows = [f"{place}/{i:02}.png,{place}" for i in range(N) for place in [("sea" if i % 3 == 0 else "sky")]]
    (tmp_path / "tags.csv").write_text("\n".join(["file_name,tags", *rows]) + "\n")
    encoder = [
        "--encoder",
        "histograms",
        *(part for s in HISTOGRAMS.items() for part in ("--encoder-set", "{}={}".format(*s))),
    ]
    done = run_command(
        ["encode", bucket / "photos", "-o", bucket / "F", *encoder, "--shard-size", 5, "--json"], tmp_path
    )
    assert done.returncode == 3, done.stderr
    assert f"of {bucket}/F/data: 12 encoded" in " ".join(done.stderr.split())
    assert json.loads(done.stdout)["features"] == f"{bucket}/F"
    fit = ["fit", bucket / "F", "--tags", "tags.csv", "--model", "ridge", "-o", "run", "--jobs", 1]
    done = run_command(fit, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "visterm fit" not in done.stderr
    assert Tagger.load(tmp_path / "run").facts["images"] == N
    done = run_command(
        ["annotate", "run", bucket / "photos/sea/00.png", bucket / "photos/broken.png", "--json"], tmp_path
    )
    assert done.returncode == 3
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == [f"{bucket}/photos/sea/00.png"]
    assert json.loads((tmp_path / "skipped.jsonl").read_text())["image"] == f"{bucket}/photos/broken.png"
    done = run_command(
        ["evaluate", "run", bucket / "photos", "--tags", "tags.csv", "--metric", "p@1", "--json"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"p@1"}
    done = run_command(["info", bucket / "F"], tmp_path)
    assert done.returncode == 0
    assert f"{bucket}/photos" in done.stdout


def test_tags_of_photos_in_a_store_come_from_a_table(memory, tmp_path):
    paint(memory / "photos")
    with pytest.raises(
        TagFileError, match=rf"images in an object store \({memory}/photos\).*'auto' is none.*--tags FILE"
    ):
        as_corpus(str(memory / "photos"), "auto")
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n00.png,a\nphotos/sky/01.png,b\n{memory}/photos/sky/02.png,c\n")
    corpus = as_corpus(memory / "photos", tmp_path / "tags.csv")
    assert corpus.images == [memory / "photos/sea/00.png", memory / "photos/sky/01.png", memory / "photos/sky/02.png"]
    assert len(corpus.untagged) == N - 3


def test_tags_are_written_into_a_store_to_the_bytes_of_a_folder_and_a_later_job_tags_what_is_new(
    memory, photos, tmp_path
):
    put(photos, memory / "photos")
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in content(photos))
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n{rows}")
    tagger = Tagger(encoder="histograms", model="ridge", encoder_params=HISTOGRAMS, n_jobs=1).fit(
        photos, tags=tmp_path / "tags.csv"
    )
    tagger.save(tmp_path / "run")
    for out in (memory / "tags", tmp_path / "tags"):
        done = run_command(["annotate", "run", memory / "photos", "-o", out, "--json"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["new"] == N
    assert content(memory / "tags") == content(tmp_path / "tags")
    lines = "".join(data.decode() for name, data in content(memory / "tags").items() if name.startswith("data/"))
    assert [json.loads(line)["image"] for line in lines.splitlines()] == [
        f"{memory}/photos/{n}" for n in content(photos)
    ]
    (memory / "photos/sky/99.png").write_bytes(picture(99))
    done = run_command(["annotate", "run", memory / "photos", "-o", memory / "tags", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["annotated"] == N + 1
    with pytest.raises(StorageError, match=r"tags exists and is not a features folder"):
        encode_folder(photos, memory / "tags", **SMALL)


def test_photos_of_a_store_are_indexed_by_their_features_or_as_they_are_and_brought_up_to_date(
    memory, photos, tmp_path
):
    put(photos, memory / "photos")
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in content(photos))
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n{rows}")
    encode_folder(memory / "photos", memory / "F", **SMALL)
    tagger = Tagger(model="ridge", n_jobs=1).fit(memory / "F", tags=tmp_path / "tags.csv")
    tagger.save(tmp_path / "run")
    assert tagger.encoder.fingerprint == Features(memory / "F").fingerprint

    def index(out, *images):
        done = run_command(["index", *images, "-o", out, "--json"], tmp_path)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return {name: told[name] for name in ("new", "changed", "gone", "kept", "moved", "encoded")}

    nothing = {"new": 0, "changed": 0, "gone": 0, "kept": 0, "moved": 0, "encoded": 0}
    assert index("of_features", "run", memory / "F") == nothing | {"new": N}
    assert index("of_photos", "run", memory / "photos") == nothing | {"new": N, "encoded": N}
    assert index("here", "run", photos) == nothing | {"new": N, "encoded": N}
    found = [
        [json.loads(line) for line in run_command(["search", name, "sea", "--json"], tmp_path).stdout.splitlines()]
        for name in ("of_features", "of_photos", "here")
    ]
    assert len(found[0]) == 10
    assert {hit["image"] for hit in found[0]} <= {f"{memory}/photos/{name}" for name in content(photos)}
    scores = [[hit["score"] for hit in hits] for hits in found]
    np.testing.assert_allclose(scores[0], scores[2], rtol=1e-5)
    np.testing.assert_allclose(scores[1], scores[2], rtol=1e-5)
    assert index("of_photos", "of_photos", memory / "photos") == nothing | {"kept": N}
    (memory / "photos/sea/00.png").write_bytes(picture(100))
    (memory / "photos/sky/11.png").unlink()
    (memory / "photos/sky/98.png").write_bytes(picture(98))
    expected = {"new": 1, "changed": 1, "gone": 1, "kept": N - 2, "moved": 0, "encoded": 2}
    assert index("of_photos", "of_photos", memory / "photos") == expected
    done = run_command(["index", "run", memory / "F", "-o", "later", "--json"], tmp_path)
    assert done.returncode == 3
    told = {
        Path(item["image"]).name: item["reason"]
        for item in map(json.loads, (tmp_path / "later/skipped.jsonl").read_text().splitlines())
    }
    assert told == {"00.png": "changed since its features were made", "11.png": "no such file"}
