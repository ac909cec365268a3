"""GET requests of the API are answered as the web framework would answer them, whether they go through it or not."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tiny_catalogue import make_tiny_catalogue
from visterm.web.api import images, jobs, search, tags
from visterm.web.app import create_app
from visterm.web.direct import MAX_QUERY_BYTES, DirectAnswers

API = "/api/v1"
VALID = (
    "/search?q=dots", "/search?q=dots+stripes&limit=2", "/search?q=dots&limit=1&limit=3", "/search", "/search?q=",
    "/search?q=dots&tag=dots&tag=stripes", "/search?tag=dots&without=stripes&sort=name", "/search?like=1&limit=2",
    "/search?q=dots&min_bytes=0&unreviewed=true&cutoff=1", "/search?q=d%6Fts&min_confidence=0.2", "/tags", "/tags/tree",
    "/images/1", "/images/1/thumbnail", "/images/1/thumbnail?size=160", "/images/1/original", "/tags/complete?prefix=d",
    "/jobs", "/runs", "/duplicates?distance=3", "/mistakes", "/images/1/explain?tag=dots", "/tags/map",
)  # fmt: skip
INVALID = (
    "/search?q=dots&limit=0", "/search?q=dots&limit=x", "/search?q=dots&limt=3", "/search?q=" + "x" * 1001,
    "/search?q=dots&like=1", "/search?taken_from=20", "/search?q=nothing+here", "/search?min_predicted=2",
    "/search?tag=" + "&tag=".join("abcdefghijklmnopqrstuvwxyz"), "/search?tag=", "/search?cutoff=perhaps",
    "/search?cursor=words:9", "/search?sort=best", "/search?min_bytes=", "/images/x", "/images/-1", "/images/99999",
    f"/images/{2**63}", "/images/1/thumbnail?size=161", "/images/1/thumbnail?size=", "/images/1/thumbnail?at=-1",
    "/images/1/thumbnail?at=nan", "/images/1/video", "/tags/complete", "/tags/neighbours?tag=", "/jobs/x",
    "/duplicates?distance=99", "/jobs?limit=201", "/mistakes?kind=odd", "/images", "/images/1/thumbnail/", "/search/",
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = make_tiny_catalogue(tmp_path_factory.mktemp("direct")).folder
    with TestClient(create_app(folder), base_url="http://127.0.0.1") as client:
        yield client


def told(answer):
    return answer.status_code, dict(answer.headers), answer.content


@pytest.mark.parametrize("address", [*VALID, *INVALID], ids=lambda address: address[:40])
def test_an_answer_is_the_frameworks_own_to_the_byte(service, monkeypatch, address):
    direct = told(service.get(API + address, follow_redirects=False))
    monkeypatch.setattr(DirectAnswers, "__call__", lambda self, *request: self._app(*request))
    assert direct == told(service.get(API + address, follow_redirects=False))


def test_valid_requests_do_not_reach_the_framework_and_are_counted_under_their_address(service, monkeypatch):
    def fail(scope, receive, send):
        raise AssertionError(scope["path"])

    layer = service.app.middleware_stack
    while not isinstance(layer, DirectAnswers):
        layer = getattr(layer, "app", None) or layer._app
    monkeypatch.setattr(layer, "_app", fail)
    for address in VALID:
        assert service.get(API + address).status_code < 500, address
    monkeypatch.undo()
    counted = service.get(f"{API}/metrics").text
    assert f'route="{API}/images/{{image_id}}/thumbnail"' in counted


def test_long_queries_are_left_to_the_framework(service, monkeypatch):
    layer = service.app.middleware_stack
    while not isinstance(layer, DirectAnswers):
        layer = getattr(layer, "app", None) or layer._app
    passed_on, app = [], layer._app
    monkeypatch.setattr(layer, "_app", lambda scope, *rest: passed_on.append(scope["path"]) or app(scope, *rest))
    for n_letters in (MAX_QUERY_BYTES - 7, MAX_QUERY_BYTES - 6):  # of which `folder=` has 7
        folder = "x" * (n_letters % 3) + "%20" * (n_letters // 3)
        assert service.get(f"{API}/search?folder={folder}").status_code == 200
    assert passed_on == [f"{API}/search"]


def test_every_address_of_the_api_with_get_is_read(service):
    layer = service.app.middleware_stack
    while not isinstance(layer, DirectAnswers):
        layer = getattr(layer, "app", None) or layer._app
    paths = {route.path for module in (search, images, jobs, tags) for route in module.router.routes}
    assert {reader.route.path for reader in layer._readers} <= paths
    assert "/search" in {reader.route.path for reader in layer._readers}
