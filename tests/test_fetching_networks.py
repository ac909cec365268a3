"""`visterm encoders get` fetches networks from a hub, through its real client: whole, checked, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("huggingface_hub", reason="wants huggingface_hub (extra onnx)")

from huggingface_hub import constants
from huggingface_hub.utils import close_session

from command_line import visterm
from fakes.hub import running_hub
from small_disks import small_disk
from tiny_networks import colour_network
from visterm.core.errors import CorruptFileError, StorageError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.encoders.hub import fetch_network
from visterm.encoders.named import TABLE_ENV, default_encoder, is_here, lock_file, network_named
from visterm.encoders.onnx import Onnx

ROW = """
[tiny]
good_for = "tests"
licence = "CC0-1.0"
repository = "tests/tiny"
image = { file = "visual/model.onnx", prepared_by = "visual/preprocess_cfg.json" }
settings = { mean = 0.5, std = 0.5 }
encoder = { views = "trained", root = false, centre = false, normalise = false }
text = { file = "textual/model.onnx", tokenizer = "textual/tokenizer.json", length = 77 }
"""
PREPARED = {"size": [8, 8], "mean": [0, 0, 0], "std": [1, 1, 1], "interpolation": "bicubic", "resize_mode": "shortest"}
PHOTO = np.full((8, 8, 3), (51, 102, 204), np.uint8)


@pytest.fixture
def hub():
    with running_hub() as running:
        yield running


@pytest.fixture
def table(tmp_path, monkeypatch):
    file = tmp_path / "settings" / "networks.toml"
    file.parent.mkdir()
    file.write_text(ROW)
    monkeypatch.setenv(TABLE_ENV, str(file))
    return file


@pytest.fixture
def cache(tmp_path, hub, table, monkeypatch):
    """The cache of the hub's client, which is pointed at the fake one."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    close_session()
    yield tmp_path / "cache"
    close_session()


@pytest.fixture
def files(tmp_path):
    network = colour_network(
        tmp_path / "served.onnx",
        dtype="float32",
        channels_last=False,
        size="S",
        weights=np.eye(3, 400, dtype=np.float32),
    )
    return {
        "visual/model.onnx": network.read_bytes(),
        "visual/preprocess_cfg.json": json.dumps(PREPARED).encode(),
        "textual/model.onnx": bytes(range(256)) * 8,
        "textual/tokenizer.json": b"{}",
    }


def sha256_of(content):
    return hashlib.sha256(content).hexdigest()


def left(cache):
    """What is in the cache, but for locks and empty folders."""
    return [path for path in cache.rglob("*") if path.is_file() and ".locks" not in path.parts]


def test_a_network_is_fetched_once_with_its_words_and_its_licence_is_shown(hub, cache, files, tmp_path):
    commit = hub.repository("tests/tiny", files).refs["main"]
    code, out, err = visterm("encoders get tiny --json", tmp_path)
    assert code == 0, err
    assert "from tests/tiny. Licence: CC0-1.0" in err
    places = json.loads(out)["files"]
    assert [Path(place).read_bytes() for place in places] == list(files.values())
    assert all(f"models--tests--tiny/snapshots/{commit}" in place for place in places)
    recorded = json.loads(lock_file().read_text())["tests/tiny"]
    assert recorded == {"revision": commit, "sha256": {name: sha256_of(each) for name, each in files.items()}}
    assert is_here(network_named("tiny"), text=True)
    assert default_encoder() == "tiny"
    n_requests = len(hub.requests)
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    assert len(hub.requests) == n_requests
    row = next(
        row for row in map(json.loads, visterm("encoders --json", tmp_path)[1].splitlines()) if row["name"] == "tiny"
    )
    assert row["on this machine"]
    assert row["its words on this machine"]
    encoder = Onnx(network="tiny", **network_named("tiny").encoder)
    np.testing.assert_allclose(encoder.fit_transform([PHOTO])[0, :3], [0.2, 0.4, 0.8], rtol=1e-6)  # not the row's mean


def test_a_file_of_preparation_that_is_not_there_leaves_the_settings_of_the_row(hub, cache, files, tmp_path):
    del files["visual/preprocess_cfg.json"]
    hub.repository("tests/tiny", files)
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 0
    assert "has no visual/preprocess_cfg.json: photos are prepared as the table says" in err
    row = Onnx(network="tiny", views="whole", root=False, centre=False, normalise=False, size=8).fit_transform([PHOTO])
    np.testing.assert_allclose(row[0, :3], [-0.6, -0.2, 0.6], rtol=1e-5)


def test_what_was_killed_goes_on_where_it_stopped(hub, table, tmp_path):
    large = np.random.default_rng(0).bytes(24 * 2**20)
    hub.repository("tests/tiny", {"visual/model.onnx": large, "visual/preprocess_cfg.json": b"{}"})
    table.write_text(ROW.partition("text =")[0])
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-m", "visterm", "encoders", "get", "tiny"]
    blobs = tmp_path / "home/hub/models--tests--tiny/blobs"
    hub.stops_after = 12 * 2**20
    killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not (parts := [part for part in blobs.glob("*.incomplete") if part.stat().st_size]):
        assert killed.poll() is None, killed.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    got = parts[0].stat().st_size
    assert 0 < got < len(large)
    assert [path.name for path in blobs.iterdir()] == [f"{sha256_of(large)}.incomplete"]
    assert not lock_file().exists()
    hub.stops_after = None
    hub.goes_on.set()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert hub.ranges() == [None, f"bytes={got}-"]
    assert (blobs / sha256_of(large)).read_bytes() == large
    assert not list(blobs.glob("*.incomplete"))


def test_another_file_than_the_table_names_is_refused_before_it_is_fetched(hub, cache, table, files, tmp_path):
    hub.repository("tests/tiny", files)
    table.write_text(ROW.replace('model.onnx", prep', f'model.onnx", sha256 = "{"0" * 64}", prep'))
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert (
        f"its SHA-256 is {sha256_of(files['visual/model.onnx'])}, but {'0' * 64} in the table. It was not kept" in err
    )
    assert hub.ranges() == []
    assert left(cache) == []


def test_content_that_is_not_what_the_hub_says_is_not_kept(hub, cache, files, tmp_path):
    hub.repository("tests/tiny", files)
    content = files["visual/model.onnx"]
    hub.replaced[sha256_of(content)] = content[:-1] + b"!"
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert "is not the known file" in err
    assert left(cache) == []
    assert not lock_file().exists()


def test_a_file_that_another_program_put_into_the_cache_is_refused_and_left_there(hub, cache, table, files, tmp_path):
    hub.repository("tests/tiny", files)
    damaged = files["visual/model.onnx"][:-1] + b"!"
    blobs = cache / "models--tests--tiny" / "blobs"
    blobs.mkdir(parents=True)
    blob = blobs / sha256_of(files["visual/model.onnx"])
    blob.write_bytes(damaged)
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert blob.read_bytes() == damaged
    assert f"{blob.name} is the hash on the hub. It stays in {blob}" in err
    assert "trust" not in err
    blob.unlink()
    assert visterm("encoders get tiny", tmp_path)[0] == 0


def test_after_the_first_download_a_repository_that_moves_on_changes_nothing(hub, cache, files, tmp_path):
    repository = hub.repository("tests/tiny", files)
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    first = repository.refs["main"]
    repository.commit({"visual/model.onnx": b"new" * 1000, "textual/model.onnx": b"new" * 1000})
    for path in left(cache):
        path.unlink()
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    assert {path.split("/")[4] for _, path, _ in hub.requests if "/resolve/" in path} == {"main", first}
    row = network_named("tiny")
    assert Onnx(network="tiny", **row.encoder).fit([PHOTO]).network_sha256_ == sha256_of(files["visual/model.onnx"])


def test_a_revision_that_is_gone_and_a_file_that_changed_in_it_are_refused(hub, cache, files, tmp_path):
    repository = hub.repository("tests/tiny", files)
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    for path in left(cache):
        path.unlink()
    first = repository.refs["main"]
    kept = repository.commits[first]
    repository.commits[first] = {**kept, "visual/model.onnx": b"new" * 1000}
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert f"{sha256_of(kept['visual/model.onnx'])} in {lock_file()}" in err
    repository.commit({"visual/model.onnx": b"newer" * 1000})
    del repository.commits[first]
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert f"no longer has the revision {first}" in err
    assert f"remove the repository from {lock_file()}" in err


def test_a_cached_file_that_was_changed_is_refused_where_it_is_used(hub, cache, files, tmp_path):
    hub.repository("tests/tiny", files)
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    blob = next(path for path in left(cache) if path.name == sha256_of(files["visual/model.onnx"]))
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    with pytest.raises(StorageError, match="is not the file of the network 'tiny'"):
        Onnx(network="tiny").fit([PHOTO])


def test_a_run_from_another_machine_says_what_to_fetch_and_then_goes_on(hub, cache, files, tmp_path):
    hub.repository("tests/tiny", files)
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    encoder = Onnx(network="tiny", **network_named("tiny").encoder).fit([PHOTO])
    expected = encoder.transform([PHOTO])
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    shutil.rmtree(cache)
    lock_file().unlink()
    elsewhere = load_estimator(ENCODERS, tmp_path, "encoder")
    with pytest.raises(StorageError, match=r"not on this machine.*visterm encoders get tiny \(.*licence: CC0-1\.0\)"):
        elsewhere.transform([PHOTO])
    assert visterm("encoders get tiny", tmp_path)[0] == 0
    np.testing.assert_array_equal(elsewhere.transform([PHOTO]), expected)


def test_a_gated_repository_says_where_to_accept_and_takes_the_users_token(hub, cache, files, tmp_path, monkeypatch):
    hub.repository("tests/tiny", files).gated = True
    for token in (None, "refused"):
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        code, _, err = visterm("encoders get tiny", tmp_path)
        assert code == 2
        assert "accept its licence first, at https://huggingface.co/tests/tiny, and then log in: hf auth login" in err
    monkeypatch.setenv("HF_TOKEN", "accepted")
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 0, err  # and the store, which refuses tokens, got none
    assert hub.tokens[-1] == "Bearer accepted"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda hub: hub.repositories.clear(), "no such repository, or it is private. Log in"),
        (lambda hub: hub.repositories["tests/tiny"].commit({}) and _without(hub), "the repository has no such file"),
        (lambda hub: setattr(hub, "status", 503), "could not be fetched: .*503.* resumes where it stopped"),
    ],
)
def test_what_the_hub_refuses_is_one_line_that_says_what_to_do(hub, cache, files, tmp_path, change, words):
    hub.repository("tests/tiny", files)
    change(hub)
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert re.search(words, err), err


def _without(hub):
    for files in hub.repositories["tests/tiny"].commits.values():
        files.pop("visual/model.onnx", None)


def test_without_a_connection_the_message_names_proxies_and_mirrors(hub, cache, files, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}")
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert "fetched: Connection refused. This machine has no network connection, or the proxy (HTTPS_PROXY)" in err


def test_in_offline_mode_the_message_says_how_to_leave_it(hub, cache, files, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()
    code, _, err = visterm("encoders get tiny", tmp_path)
    assert code == 2
    assert "the hub's client is in offline mode. Unset HF_HUB_OFFLINE" in err
    assert ".." not in err


def test_a_full_disk_is_one_line_and_nothing_is_left_in_place(hub, cache, files, tmp_path, monkeypatch):
    hub.repository("tests/tiny", {**files, "visual/model.onnx": bytes(3 * 2**20)})
    try:
        with small_disk(2**20) as disk:
            monkeypatch.setattr(constants, "HF_HUB_CACHE", str(disk.folder))
            code, _, err = visterm("encoders get tiny", tmp_path)
            assert code == 2
            assert "too little space: 3.1 MB needed" in err
            monkeypatch.setattr("visterm.encoders.hub.check_space", lambda *_: None)  # as if another took it meanwhile
            code, _, err = visterm("encoders get tiny", tmp_path)
            assert code == 2
            assert "is full" in err
            assert not is_here(network_named("tiny"))
            assert not lock_file().exists()
    except OSError as error:
        pytest.skip(f"wants to mount a small disk: {error}")


OUTSIDE = [
    "../../../../x.py",
    "{outside}/x.py",
    "..\\..\\x.py",
    "C:\\x.py",
    "%2e%2e%2fx.py",
    "..",
    "",
    "A" * 64,
    "0" * 41,
]


@pytest.mark.parametrize("header", ["X-Linked-ETag", "ETag", "X-Repo-Commit"])
@pytest.mark.parametrize("value", OUTSIDE)
def test_a_hostile_hub_writes_nothing(hub, cache, files, tmp_path, monkeypatch, header, value):
    deep = tmp_path / "a" / "b" / "c" / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(deep))
    hub.repository("tests/tiny", files)
    before = sorted(tmp_path.rglob("*"))
    hub.lies = {header: value.format(outside=tmp_path)}
    if header == "ETag":  # which counts where the other is missing
        hub.lies["X-Linked-ETag"] = ""
    with pytest.raises(StorageError, match=rf"{hub.url}/tests/tiny/.* does not answer like a hub.*HF_ENDPOINT"):
        fetch_network(network_named("tiny"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("honest", [1, 2, 3])
def test_a_hub_that_lies_later_writes_nothing_outside_the_cache(hub, cache, files, tmp_path, honest):
    def around():  # three folders up from any file of the cache is tmp_path at most
        return {path for path in (*tmp_path.rglob("*"), *tmp_path.parent.iterdir()) if cache not in path.parents}

    hub.repository("tests/tiny", files)
    before = around()
    hub.lies = dict.fromkeys(("X-Linked-ETag", "ETag", "X-Repo-Commit"), "../../../x.py")
    hub.honest = honest
    with pytest.raises(StorageError, match="does not answer like a hub"):
        fetch_network(network_named("tiny"))
    assert {path.name for path in around() - before} <= {"cache", lock_file().name}
    assert all(path.resolve().is_relative_to(cache) for path in left(cache))


@pytest.mark.parametrize("said", ["20", "-5", ""])
def test_a_body_that_goes_on_beyond_its_size_is_given_up_and_nothing_of_it_is_kept(
    hub, cache, files, monkeypatch, said
):
    monkeypatch.setattr("visterm.encoders.hub.MAX_UNSTATED_BYTES", 1000)
    hub.repository("tests/tiny", files)
    hub.lies = {"X-Linked-Size": said, "ETag": f'"{"c" * 40}"', "X-Linked-ETag": f'"{"c" * 40}"'}
    with pytest.raises(
        CorruptFileError, match=r"visual/model\.onnx of tests/tiny has more than the expected \S+ bytes"
    ):
        fetch_network(network_named("tiny"))
    assert not any(path.stat().st_size for path in left(cache))


@pytest.mark.parametrize("name", ["../x.onnx", "/x.onnx", "a/../x.onnx", "..\\x.onnx", "C:x.onnx", "a//x.onnx", "x/.."])
def test_a_row_that_names_a_file_outside_its_repository_writes_nothing(hub, cache, table, tmp_path, name):
    hub.repository("tests/tiny", {name: b"network"})
    table.write_text(ROW.replace("visual/model.onnx", name.replace("\\", "\\\\")))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError, match=r"is not a name in tests/tiny; expected no \.\."):
        fetch_network(network_named("tiny"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_commit_that_was_named_has_to_be_the_answer(hub, cache, table, files, tmp_path):
    commit = hub.repository("tests/tiny", files).refs["main"]
    table.write_text(ROW.replace('repository = "tests/tiny"', f'repository = "tests/tiny"\nrevision = "{commit}"'))
    hub.lies = {"X-Repo-Commit": "0" * 40}
    with pytest.raises(StorageError, match=f"its commit '{'0' * 40}'; expected 40 or 64 hex digits, and {commit}"):
        fetch_network(network_named("tiny"))


def test_files_whose_hash_nobody_knew_are_said_to_be_trusted(hub, cache, table, files, tmp_path):
    hub.repository("tests/tiny", files)
    known = sha256_of(files["visual/model.onnx"])
    table.write_text(ROW.replace('model.onnx", prep', f'model.onnx", sha256 = "{known}", prep'))
    for n_trusted in (3, 0):  # the first download, and another
        lines = []
        fetch_network(network_named("tiny"), say=lines.append)
        trusted = [
            line
            for line in lines
            if f"Its SHA-256 was unknown: this file is trusted from now on, see {lock_file()}" in line
        ]
        assert len(trusted) == n_trusted
        assert not any(line.startswith("visual/model.onnx") for line in trusted)


def test_nothing_is_fetched_unasked(hub, cache, files, tmp_path):
    hub.repository("tests/tiny", files)
    (tmp_path / "photos").mkdir()
    code, _, err = visterm("fit photos --encoder tiny -o run", tmp_path)
    assert code == 2
    assert "'tiny' is not on this machine, and visterm downloads nothing by itself" in err
    assert "visterm encoders get tiny (size unknown from tests/tiny, licence: CC0-1.0)" in err
    assert hub.requests == []
