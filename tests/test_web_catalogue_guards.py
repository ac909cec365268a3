"""What the service does for its catalogue: bounded tags however they come in, and no writes into one that is gone."""

from __future__ import annotations

import html
import shutil
import sqlite3

import pytest
from starlette.testclient import TestClient

from tiny_catalogue import make_tiny_catalogue
from visterm.core.remote import RemotePath, only_named_stores
from visterm.web.app import create_app
from visterm.web.roles import Access

HERE = "http://127.0.0.1:8080"
API = "/api/v1"
LONG = "x" * 201
TOKEN = "a token of forty letters, which is enough"
MANY = [f"tag {i}" for i in range(101)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("guards"))


@pytest.fixture
def folder(tiny, tmp_path):
    return shutil.copytree(tiny.folder, tmp_path / "catalogue")


@pytest.fixture
def client(folder):
    with TestClient(create_app(folder), base_url=HERE, follow_redirects=False) as client:
        yield client


def chosen(*tags):
    """What Label Studio sends when a person has chosen tags for picture 3."""
    return {
        "action": "ANNOTATION_CREATED",
        "task": {"data": {"image": "visterm:3"}},
        "annotation": {"result": [{"value": {"choices": list(tags)}}]},
    }


WAYS = {
    "feedback": lambda client, tags: client.post(f"{API}/images/3/feedback", json={"tag": tags[0], "verdict": -1}),
    "tags": lambda client, tags: client.post(f"{API}/images/3/tags", json={"give": tags}),
    "webhook": lambda client, tags: client.post("/label-studio/webhook", json=chosen(*tags)),
    "form": lambda client, tags: client.post(
        "/image/3/tags", data={"tag": tags[0], "do": "give"}, headers={"origin": HERE}
    ),
    "review": lambda client, tags: client.post(
        "/review", data={"image": 3, "tag": tags[0], "do": "right"}, headers={"origin": HERE}
    ),
    "merge": lambda client, tags: client.post(
        "/tags/merge", data={"tag": "dots", "into": tags[0]}, headers={"origin": HERE}
    ),
}


def tags_of(client):
    return client.get(f"{API}/images/3").json()["tags"]


@pytest.mark.parametrize("way", WAYS)
def test_a_tag_of_201_letters_is_refused_however_it_comes_in(client, way):
    before = tags_of(client)
    answer = WAYS[way](client, [LONG])
    assert answer.status_code == 422, answer.text
    assert "200" in answer.text
    assert tags_of(client) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_tag_that_begins_with_what_means_not_is_refused_however_it_comes_in(client, way):
    before = tags_of(client)
    answer = WAYS[way](client, ["-beach"])
    assert answer.status_code == 422, answer.text
    assert "means 'not'" in html.unescape(answer.text)
    assert tags_of(client) == before


def test_a_tag_of_an_earlier_version_that_begins_so_can_be_found_and_taken_away(client, folder):
    client.app.state.service.catalogue.stored.tags.give(3, ["-beach"], "person")
    found = client.get(f"{API}/search", params={"tag": "-beach"}).json()["hits"]
    assert [hit["id"] for hit in found] == [3]
    answer = client.post(f"{API}/images/3/tags", json={"take": ["-beach"]})
    assert "-beach" not in answer.json()["tags"]


@pytest.mark.parametrize("way", ["tags", "webhook"])
def test_101_tags_at_once_are_refused_however_they_come_in(client, way):
    before = tags_of(client)
    answer = WAYS[way](client, MANY)
    assert answer.status_code == 422, answer.text
    assert "100" in answer.text
    assert tags_of(client) == before
    assert WAYS[way](client, MANY[:100]).status_code < 300


def test_feedback_into_a_catalogue_that_is_gone_is_not_acknowledged(client, folder):
    body = {"tag": "dots", "verdict": -1}
    assert client.post(f"{API}/images/3/feedback", json=body).status_code == 200
    backup = shutil.copytree(folder, folder.with_name("backup"))
    shutil.rmtree(folder)
    for _ in range(2):  # removed, then restored from a backup
        answer = client.post(f"{API}/images/5/feedback", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "catalogue_replaced")
        assert "Restart visterm" in answer.json()["error"]["message"]
        assert client.get(f"{API}/search", params={"q": "dots"}).status_code == 503
        if not folder.exists():
            shutil.copytree(backup, folder)


def removed(folder):
    shutil.rmtree(folder)


def zeroed(folder):
    size = (folder / "catalogue.sqlite").stat().st_size
    with (folder / "catalogue.sqlite").open("r+b") as file:
        file.write(bytes(size))


@pytest.mark.parametrize(("happens", "why"), [(removed, "was removed while it was open"), (zeroed, "is damaged")])
def test_health_says_that_the_catalogue_cannot_be_read_any_more(folder, happens, why):
    with TestClient(create_app(folder, access=Access.of("127.0.0.1", TOKEN)), base_url=HERE) as client:
        assert client.get(f"{API}/health").json()["status"] == "ok"
        happens(folder)
        for headers, told in (({"authorization": f"Bearer {TOKEN}"}, why), ({}, "can't be read")):
            answer = client.get(f"{API}/health", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "catalogue_unreadable")
            assert told in answer.json()["error"]["message"]
            assert (str(folder) in answer.text) == bool(headers)


def test_health_is_told_while_searches_and_writes_wait(client):
    service = client.app.state.service
    service.searching.waiting.value, service.writing.waiting.value = service.searching.bound, service.writing.bound
    assert client.get(f"{API}/search", params={"q": "dots"}).status_code == 503
    assert client.get(f"{API}/health").status_code == 200


def point_to(folder, path):
    """Let a catalogue say that picture 3 lies somewhere else, as one could that somebody else made."""
    with sqlite3.connect(folder / "catalogue.sqlite") as database:
        database.execute("UPDATE images SET path = ? WHERE id = 3", (str(path),))
    database.close()


def test_pictures_are_fetched_only_from_stores_that_were_named(folder, tiny, tmp_path):
    place = RemotePath("memory://guarded/3.jpg")
    place.write_bytes((tiny.photos / "03.jpg").read_bytes())
    point_to(folder, place)
    for words, status in ([["serve", str(folder)], 422], [["serve", str(folder), "--images", "memory://guarded"], 200]):
        with only_named_stores(words), TestClient(create_app(folder), base_url=HERE) as client:
            answer = client.get(f"{API}/images/3/thumbnail")
            assert answer.status_code == status
            assert ("not opened" in answer.text) == (status == 422)
