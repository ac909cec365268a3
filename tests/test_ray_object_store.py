"""Photos, features and tags in an object store, worked on by Ray: workers read and write there themselves."""

from __future__ import annotations

import json
import sys

import pytest

from command_line import run_command
from object_stores import named_server, new_bucket
from remote_photos import N, content, paint
from visterm import Tagger
from visterm.cluster import RayExecutor
from visterm.core.remote import as_path
from visterm.features.job import encode_folder

ray = pytest.importorskip("ray", reason="wants the extra ray")

pytest_plugins = ["encoding_fixtures"]


@pytest.fixture(scope="module")
def bucket(ray_store, ray_engine):
    """A bucket with photos, on the server that the environment of Ray's workers names."""
    with named_server(ray_store):
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
        place = as_path(new_bucket())
        paint(place / "photos")
        (place / "photos/broken.png").write_bytes(b"no picture")
        yield place


def test_workers_encode_from_a_store_into_a_store_to_the_bytes_of_one_process(bucket, network, tmp_path):
    settings = {"encoder": f"onnx:{network}", "shard_size": 3}
    done = encode_folder(bucket / "photos", bucket / "F", **settings, executor=RayExecutor("local", 2))
    assert (done.shared, done.rows, done.skipped) == (True, N, 1)
    encode_folder(bucket / "photos", tmp_path / "alone", **settings, n_jobs=2)
    assert content(bucket / "F") == content(tmp_path / "alone")


@pytest.mark.slow
def test_workers_tag_features_of_a_store_and_write_parts_there(bucket, network, tmp_path):
    encode_folder(bucket / "photos", bucket / "G", encoder=f"onnx:{network}", shard_size=3, n_jobs=1)
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in (bucket / "photos").files() if "/" in name)
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n{rows}")
    Tagger(model="ridge", n_jobs=1).fit(bucket / "G", tags=tmp_path / "tags.csv").save(tmp_path / "run")
    for out, more in [(bucket / "tags", ["--ray", "local"]), (tmp_path / "tags", [])]:
        told = run_command(["annotate", "run", bucket / "G", "-o", out, "--json", *more], tmp_path)
        assert told.returncode == 3, told.stderr
        done = json.loads(told.stdout)
        assert (done["annotated"], done["skipped"], done["shared"]) == (N, 1, bool(more))
    assert content(bucket / "tags") == content(tmp_path / "tags")
