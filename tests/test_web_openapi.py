"""The API against its own description: whatever is sent, no answer is an error of ours, and none is undescribed."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from tiny_catalogue import make_tiny_catalogue
from visterm.web.app import create_app
from visterm.web.jobs import JobRunner

CASES = 8
"""Of each address, method, and kind: those that the description allows, and those that it does not."""

HELD = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
ADDRESSES = 26


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Give the address of a service, and what its description lists."""
    app = create_app(make_tiny_catalogue(tmp_path_factory.mktemp("openapi")).folder)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server, listening = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    described = schemathesis.openapi.from_dict(app.openapi())
    with requests.Session() as session:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield address, session, [found.ok() for found in described.get_all_operations()]
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    """Jobs are written down and do not begin: what they do is another test's."""

    async def begin_none(self):
        self._waiting.clear()

    monkeypatch.setattr(JobRunner, "_go_on", begin_none)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("number", range(ADDRESSES))
def test_every_answer_is_described_and_none_is_an_error_of_ours(service, number, mode):
    address, session, operations = service
    operation = operations[number]

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def hold(case):
        case.call_and_validate(address, session, checks=CHECKS.get_by_names(HELD))

    with suppress(Unsatisfiable):  # nothing that is sent to some addresses can be wrong
        hold()


def test_all_addresses_are_tried(service):
    operations = service[2]
    assert len(operations) == ADDRESSES
    assert {"/api/v1/search", "/api/v1/annotate", "/label-studio/predict"} <= {each.path for each in operations}
