"""Fixtures of the tests that encode photos: object stores, photos beside them, and a network that is no work.

A test file asks for them by ``pytest_plugins = ["encoding_fixtures"]``; one of its own takes the place of one here.
"""

from __future__ import annotations

import pytest

from object_stores import new_bucket, new_memory_store, s3_server
from remote_photos import paint
from tiny_networks import colour_network
from visterm.core.remote import as_path
from visterm.features import remote_folder
from visterm.features.remote_folder import ShardCache


@pytest.fixture(scope="module")
def server():
    """A local S3 server, which the environment names."""
    with s3_server() as url:
        yield url


@pytest.fixture
def memory():
    """An empty store in this process' memory."""
    return as_path(new_memory_store())


@pytest.fixture
def bucket(server):
    """An empty place in a new bucket of the server."""
    return as_path(new_bucket()) / "library"


@pytest.fixture(params=["memory", "bucket"])
def store(request):
    """An empty store, of each kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def photos(tmp_path):
    """A folder of photos on this machine."""
    paint(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network whose features are mean colours."""
    return colour_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


@pytest.fixture(scope="module")
def small(network):
    """Settings of a job with that network, four photos a shard."""
    return {"encoder": f"onnx:{network}", "shard_size": 4, "n_jobs": 1}


@pytest.fixture
def no_cache(monkeypatch):
    """Shards are fetched anew."""
    monkeypatch.setattr(remote_folder, "CACHE", ShardCache())
