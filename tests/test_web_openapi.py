"""The API against its own description, and all addresses against made-up requests: no answer is an error of ours."""

from __future__ import annotations

import http.client
import logging
import runpy
import threading
from collections import Counter
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from starlette.testclient import TestClient

from hostile_requests import ROUTES
from hostile_requests import requests as made_up
from tiny_catalogue import make_tiny_catalogue
from visterm.web.app import create_app
from visterm.web.jobs import JobRunner

CASES, MANY_CASES = 4, 400
"""Of each address, method, and kind: those that the description allows, and those that it does not."""

MADE_UP, MANY_MADE_UP = 800, 1600
SEEDS = range(1, 51)
"""34 · 2 · 400 + 50 · 1,600 = 107,200 requests are sent by the slow tests, 34 · 2 · 4 + 800 = 1,072 by the others."""

HELD = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
ADDRESSES = 35
DECLARED = (503, 507)
"""Errors of the service that say what is amiss: it is busy, or its disk is full."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Yield the address of a service, a session, and what the description of its addresses lists."""
    app = create_app(make_tiny_catalogue(tmp_path_factory.mktemp("openapi")).folder)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1, timeout_keep_alive=3600)
    server, listening = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    described = schemathesis.openapi.from_dict(app.openapi())
    with requests.Session() as session:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield address, session, [found.ok() for found in described.get_all_operations()]
    server.should_exit = True
    thread.join(600)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    """Jobs are written down and do not begin: what they do is another test's."""

    async def begin_none(self):
        self._waiting.clear()

    monkeypatch.setattr(JobRunner, "_run_waiting", begin_none)


@contextmanager
def nothing_logged():
    """Check that no traceback is logged: it is a fault of ours, whatever was answered."""
    tracebacks = []

    class Note(logging.Handler):
        def emit(self, record):
            if record.exc_info:
                tracebacks.append(self.format(record))

    note = Note(logging.WARNING)
    logging.getLogger().addHandler(note)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(note)
    assert not tracebacks, tracebacks[0]


def hold(found, n_cases, number=None):
    """Run a property on some cases: the same ones each time."""
    found = settings(
        max_examples=n_cases,
        deadline=None,
        derandomize=number is None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(found)
    with suppress(Unsatisfiable), nothing_logged():  # nothing that is sent to some addresses can be wrong
        found() if number is None else seed(number)(found)()


def hold_description(service, number, mode, n_cases, seeded=None):
    address, session, operations = service

    @given(case=operations[number].as_strategy(generation_mode=mode))
    def is_described(case):
        case.call_and_validate(address, session, checks=CHECKS.get_by_names(HELD), timeout=600)

    hold(is_described, n_cases, seeded)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("number", range(ADDRESSES))
def test_every_answer_is_described_and_none_is_an_error_of_ours(service, number, mode):
    hold_description(service, number, mode, CASES)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("number", range(ADDRESSES))
def test_every_answer_to_many_requests_is_described(service, number, mode):
    hold_description(service, number, mode, MANY_CASES, seeded=number)


def hold_made_up(send, n_cases, number=None):
    """Send requests that are made up; return how many were answered with which status."""
    found = Counter()

    @given(asked=made_up())
    def is_answered(asked):
        status, told = send(asked)
        assert status < 500 or status in DECLARED, (asked, told)
        found[status] += 1

    hold(is_answered, n_cases, number)
    return found


def test_requests_that_are_made_up_are_answered_or_refused(tmp_path):
    """Without sockets, on which a request takes several times as long; the slow test below sends them by HTTP."""
    app = create_app(make_tiny_catalogue(tmp_path).folder)
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:

        def send(asked):
            headers = {name: value.encode("latin-1") for name, value in asked.headers.items()}
            answer = client.request(asked.method, asked.address, content=asked.body or None, headers=headers)
            client.cookies.clear()
            return answer.status_code, answer.content

        found = hold_made_up(send, MADE_UP)
    assert {200, 303, 404, 405, 422} <= set(found), found
    assert sum(found.values()) >= MADE_UP


@pytest.mark.slow
@pytest.mark.parametrize("number", SEEDS)
def test_many_requests_that_are_made_up_are_answered_or_refused(service, number):
    client = http.client.HTTPConnection(urlsplit(service[0]).netloc, timeout=600)

    def send(asked):
        try:
            client.request(asked.method, asked.address, asked.body or None, asked.headers)
            answer = client.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            client.close()  # else the next request fails too
            raise

    with closing(client):
        assert sum(hold_made_up(send, MANY_MADE_UP, number).values()) >= MANY_MADE_UP


VERBS = [
    "Add",
    "Check",
    "Complete",
    "Find",
    "List",
    "Return",
    "Start",
    "Stop",
    "Store",
    "Suggest",
    "Tag",
    "Undo",
    "Write",
]
PLAIN = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "plain_english.py"))


def texts_of(described):
    """Yield every summary and description of an OpenAPI description."""
    for name, value in described.items() if isinstance(described, dict) else enumerate(described):
        if name in ("summary", "description") and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from texts_of(value)


def test_every_route_parameter_and_field_is_described_in_plain_english(service):
    described = requests.get(f"{service[0]}/api/v1/openapi.json", timeout=600).json()
    routes = [operation for methods in described["paths"].values() for operation in methods.values()]
    assert [route["summary"] for route in routes if route["summary"].split()[0] not in VERBS] == []
    assert [route["summary"] for route in routes if not route["summary"].endswith(".")] == []
    parameters = [parameter for route in routes for parameter in route.get("parameters", ())]
    assert [parameter["name"] for parameter in parameters if not parameter.get("description")] == []
    schemas = {name: schema for name, schema in described["components"]["schemas"].items() if "Validation" not in name}
    fields = [(name, field) for name, schema in schemas.items() for field in schema["properties"].items()]
    assert [(name, field) for name, (field, about) in fields if not about.get("description")] == []
    found = [find for text in texts_of(described) for find in PLAIN["finds"]("openapi", Path("openapi"), 1, text)]
    assert found == []


def test_generated_clients_get_one_short_name_for_each_route_and_schema(service):
    described = requests.get(f"{service[0]}/api/v1/openapi.json", timeout=600).json()
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {"search", "image", "undo_feedback", "undo_tags", "health", "label_studio_health"} <= set(names)
    assert [name for name in (*names, *described["components"]["schemas"]) if "__" in name or "_v1_" in name] == []


def test_all_addresses_are_tried(service):
    operations = service[2]
    assert len(operations) == ADDRESSES
    described = {(each.method.upper(), each.path) for each in operations}
    assert described <= {(method, path) for method, path, *_ in ROUTES}
    assert {"/review", "/library/jobs/{job_id}/cancel", "/login"} <= {path for _, path, *_ in ROUTES}
