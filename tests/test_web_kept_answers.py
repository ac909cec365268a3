"""Answers to searches that are kept: by the run in use, few enough, and dropped while others read them."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tiny_catalogue import KINDS, make_tiny_catalogue
from visterm.library.catalogue import Catalogue
from visterm.store.database import Database
from visterm.tagging.tagger import Tagger
from visterm.web.api import search
from visterm.web.app import create_app

SEARCH = "/api/v1/search"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def service(tiny):
    with TestClient(create_app(tiny.folder), base_url="http://127.0.0.1") as client:
        yield client


def keep_in(monkeypatch, answers, sizes):
    keep, kept = Database.keep, (answers, sizes)
    monkeypatch.setattr(Database, "keep", lambda self, key, read: kept if key == "answers" else keep(self, key, read))


def test_an_answer_may_be_dropped_while_it_is_read(service, monkeypatch):
    class Dropped(dict):
        def __contains__(self, key):
            was_there = super().__contains__(key)
            self.clear()  # as another thread does
            return was_there

    keep_in(monkeypatch, answers := Dropped(), [])
    first = service.get(f"{SEARCH}?q=dots")
    assert len(answers) == 1
    assert service.get(f"{SEARCH}?q=dots").content == first.content


def test_large_answers_are_not_kept_and_all_together_are_bounded(service, monkeypatch):
    answers, sizes = {}, []
    keep_in(monkeypatch, answers, sizes)
    assert service.get(f"{SEARCH}?limit=1").status_code == 200
    (n_bytes,) = sizes
    max_bytes = 256 * (n_bytes + 50)
    monkeypatch.setattr(search, "MAX_KEPT_BYTES", max_bytes)
    assert len(service.get(f"{SEARCH}?limit=9").json()["hits"]) == 9
    assert sizes == [n_bytes]
    sizes.append(max_bytes - 2 * n_bytes - 50)
    (first,) = answers
    service.get(f"{SEARCH}?limit=1&sort=name")
    assert first in answers
    service.get(f"{SEARCH}?limit=1&sort=oldest")
    assert len(answers) == len(sizes) == 1
    assert "oldest" in next(iter(answers))


def test_an_answer_is_that_of_the_run_in_use_when_its_place_was_looked_up(tiny, monkeypatch):
    paths = sorted(tiny.photos.iterdir())
    settings = {"colours": 4, "codebook": 12, "scales": (1.0,), "max_side": 64}
    other = Tagger(encoder="visterms", encoder_params=settings, model="ridge", n_jobs=1)
    other.fit(paths, [[KINDS[i % 2]] for i in range(len(paths))])
    keep, browse, used = Database.keep, Catalogue.browse, []

    def keep_after_a_switch(self, key, read):
        if key == "answers":
            opened = Catalogue.load(tiny.folder, n_jobs=1)
            opened.use(other)
            opened.stored.close()
        return keep(self, key, read)

    def noted(self, *args, **kwargs):
        used.append(self.tagger.fingerprint)
        return browse(self, *args, **kwargs)

    with TestClient(create_app(tiny.folder), base_url="http://127.0.0.1") as client:
        monkeypatch.setattr(Database, "keep", keep_after_a_switch)
        monkeypatch.setattr(Catalogue, "browse", noted)
        assert client.get(SEARCH).status_code == 200
    assert used == [other.fingerprint]
