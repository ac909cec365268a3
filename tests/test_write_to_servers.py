"""The page writes tags into the server that has the photos: what would be written, writing it, undo, and refusals."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from fakes.immich import FakeImmich
from fakes.photoprism import FakePhotoPrism
from fakes.served import status
from remembered_library import LOW, N_PHOTOS, N_TAGGED, REQUEST, colour_of, picture, tags_of
from visterm.connectors import keys
from visterm.connectors.connect import connect
from visterm.connectors.contract import connector_class, open_library
from visterm.web import job_process
from visterm.web.app import create_app

FAKES = {"immich": FakeImmich, "photoprism": FakePhotoPrism}
PART = {"x-part": "1"}
SECONDS = 600.0


class JobHere:
    """A job in a thread of this process, so that it waits for the server by the server's clock."""

    def __init__(self, task):
        self._task = task

    async def wait(self):
        return await self._task

    def kill(self):
        raise AssertionError("the job was to be killed")


@pytest.fixture(params=FAKES)
def fake(request, tmp_path, monkeypatch):
    """A server of photos, most of them tagged by a person, and beside it the catalogue of its library."""

    async def start_here(python, *command, **options):
        monkeypatch.setattr(sys, "argv", [python, *command[2:]])
        return JobHere(asyncio.ensure_future(asyncio.to_thread(job_process.main)))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_here)
    monkeypatch.setattr(job_process, "end_with_standard_input", lambda: None)
    monkeypatch.delattr(os, "nice")
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    with FAKES[request.param]() as made:
        made.virtual(monkeypatch)
        for number in range(N_PHOTOS):
            tags = tags_of(number) if number < N_TAGGED else ()
            made.add_photo(f"{number}.jpg", picture(colour_of(number), number), tuple(tags))
        monkeypatch.setenv(connector_class(made.kind).key_variable, made.key)
        keys.allow(made.url, None)
        library = open_library(made.kind, made.url, made.key)
        catalogue, _ = connect(tmp_path / "catalogue", library, key_file=None, run=None, request=REQUEST)
        connection = catalogue.stored.connected.get()
        catalogue.stored.connected.update(settings={**connection.settings, "precision": LOW.precision})
        catalogue.stored.close()
        yield made


@contextmanager
def page(folder, client="127.0.0.1"):
    app = create_app(folder / "catalogue")
    with TestClient(app, base_url="http://127.0.0.1:8080", client=(client, 5000), follow_redirects=False) as service:
        yield service


def ended(service, answer):
    assert answer.status_code == 303, answer.text
    number = int(answer.headers["location"].rpartition("/")[2])
    end = time.monotonic() + SECONDS
    while not (job := service.get(f"/api/v1/jobs/{number}").json())["finished"]:
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def tags_there(fake):
    fake.finish_jobs()
    return {photo: sorted(fake.tags_of(photo)) for photo in fake.photos}


def test_what_a_dry_run_shows_is_written_into_the_server_and_taken_back(fake, tmp_path):
    before = tags_there(fake)
    with page(tmp_path) as service:
        form = service.get("/write").text
        assert f"as so far (precision {LOW.precision})" in form
        assert "take_off" not in form
        tried = ended(service, service.post("/write", data={"to": fake.kind, "do": "try"}))
        assert tried["state"] == "done", tried
        n_tags, n_right, title = re.fullmatch(
            r"Would write (\d+) tags, about (\d+) right, and take back 0 in (\w+); nothing was changed there\.",
            tried["message"],
        ).groups()
        assert int(n_tags) >= int(n_right) > 0
        assert fake.writes == []
        part = service.get(f"/library/jobs/{tried['id']}", headers=PART).text
        assert "Write these tags" in part
        assert "into_photos" not in part  # no photo is changed: there is no second question

        written = ended(service, service.post(f"/write/{tried['id']}"))
        assert written["message"].startswith(f"Wrote {n_tags} tags, about {n_right} right, and took back 0 in {title}.")
        after = tags_there(fake)
        assert all(set(before[photo]) <= set(after[photo]) for photo in before)
        assert sum(len(after[photo]) - len(before[photo]) for photo in before) >= int(n_tags)
        assert service.post(f"/write/{tried['id']}").status_code == 409  # what was shown is written

        undone = ended(service, service.post("/write", data={"to": fake.kind, "do": "undo"}))
        assert undone["message"] == f"Wrote 0 tags, and took back {n_tags} in {title}."
        assert tags_there(fake) == before


def test_what_cannot_be_written_there_is_refused_and_why_a_server_refuses_is_said(fake, tmp_path):
    with page(tmp_path, "192.168.1.7") as service:
        answer = service.post("/write", data={"to": fake.kind, "do": "undo"})
        assert (answer.status_code, "--may-write" in answer.text) == (403, True)
    with page(tmp_path) as service:
        other = service.post("/api/v1/exports", json={"to": "xmp"})
        assert (other.status_code, fake.kind in other.json()["error"]["message"]) == (422, True)
        for setting, value in (("take_off", True), ("min_confidence", 0.7)):
            answer = service.post("/api/v1/exports", json={"to": fake.kind, setting: value})
            assert (answer.status_code, answer.json()["error"]["field"]) == (422, setting)
        fake.fail(status(401), 100)
        failed = ended(service, service.post("/write", data={"to": fake.kind, "do": "try"}))
        assert (failed["state"], "Its key is wrong" in failed["error"]) == ("failed", True)
        part = service.get(f"/library/jobs/{failed['id']}", headers=PART).text
        assert "Write these tags" not in part
        assert "Start again" not in part  # only the form knows what to show
    assert fake.writes == []
