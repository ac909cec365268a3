"""A local S3 server for tests, and stores in memory: what stands for an object store far away."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server() -> Iterator[str]:
    """Start moto's server, point the environment of this process and its children at it, and give its URL."""
    with running_server() as url, named_server(url):
        yield url


@contextmanager
def running_server() -> Iterator[str]:
    """Start moto's server, and give its URL."""
    pytest.importorskip("s3fs", reason="wants s3fs (extra s3)")
    moto = pytest.importorskip("moto.server", reason="wants moto's S3 server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@contextmanager
def named_server(url: str) -> Iterator[None]:
    """Point the environment of this process, and of the children that it starts, at a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        try:
            yield
        finally:
            forget_stores()


def forget_stores() -> None:
    """Let the next address be reached anew, with the environment as it is then."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def new_bucket() -> str:
    """Make a bucket of the server, and give its address."""
    import s3fs

    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(name)
    return f"s3://{name}"


def new_memory_store() -> str:
    """Return an address in this process' memory where nothing lies."""
    return f"memory://{uuid.uuid4().hex[:8]}"
