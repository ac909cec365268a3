"""Tags of many photos at once: by Python, the API and plain forms; all or nothing, and undone whole."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from refusals import refused
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.core.errors import DataError, UserError
from visterm.library.steps import tag_photos, undo_step
from visterm.store.filters import Filter
from visterm.web.app import create_app

MANY = list(range(8, 18))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("steps")).folder


@pytest.fixture
def catalogue(path):
    catalogue = Catalogue.load(path, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture(scope="module")
def client(path):
    with TestClient(create_app(path), base_url="http://127.0.0.1") as client:
        yield client


def all_said(catalogue):
    return {
        record.id: (
            catalogue.stored.tags.given(record.id),
            catalogue.image(record.id).verdicts,
            record.reviewed is not None,
        )
        for record in catalogue.records
    }


@pytest.mark.parametrize("kind", ["give", "take", "right", "wrong"])
@pytest.mark.parametrize("tag", ["dots", "a new one"])
def test_a_step_says_what_single_photos_would_be_told_and_is_undone_whole(kind, tag, path, catalogue):
    catalogue.judge(9, "dots", -1)  # so that undoing has something to put back
    catalogue.give(10, ["thing"])
    before = all_said(catalogue)
    one_by_one = {
        "give": lambda image_id: catalogue.give(image_id, [tag]),
        "take": lambda image_id: catalogue.take(image_id, [tag]),
        "right": lambda image_id: catalogue.judge(image_id, tag, 1),
        "wrong": lambda image_id: catalogue.judge(image_id, tag, -1),
    }[kind]

    step = tag_photos(catalogue, MANY, **{kind: [tag]})
    told = all_said(catalogue)
    undo_step(catalogue, step.number)
    assert all_said(catalogue) == before
    for image_id in MANY:
        one_by_one(image_id)
    assert all_said(catalogue) == told
    differ = [image_id for image_id in MANY if told[image_id][:2] != before[image_id][:2]]
    assert step.changed == len(differ)
    assert step.images == MANY


def test_what_is_said_at_once_counts_in_the_next_search_and_so_does_undoing_it(catalogue):
    step = tag_photos(catalogue, MANY, give=["harvest"])
    assert set(MANY) == set(catalogue.stored.find(Filter(tags=("harvest",))).tolist())
    assert {hit.id for hit in catalogue.search("harvest", 10).hits} == set(MANY)
    undo_step(catalogue, step.number)
    assert catalogue.stored.find(Filter(tags=("harvest",))).tolist() == []
    assert "harvest" not in catalogue.new_tags()


def test_a_photo_that_is_not_there_or_a_wrong_tag_changes_nothing(catalogue):
    before = all_said(catalogue)
    with refused("image_id", value=9999, error=DataError):
        tag_photos(catalogue, [*MANY, 9999], give=["wheat"])
    with refused("tag", value=" "):
        tag_photos(catalogue, MANY, give=["wheat"], take=[" "])
    with pytest.raises(UserError, match="no tag to add"):
        tag_photos(catalogue, MANY)
    with refused("image_ids", value=0):
        tag_photos(catalogue, [], give=["wheat"])
    assert all_said(catalogue) == before


def test_a_step_is_undone_once_and_not_after_something_else_was_said(catalogue):
    step = tag_photos(catalogue, MANY, give=["twice"])
    undo_step(catalogue, step.number)
    with pytest.raises(UserError, match="undone already"):
        undo_step(catalogue, step.number)
    step = tag_photos(catalogue, MANY, right=["dots"])
    catalogue.judge(MANY[3], "dots", -1)
    before = all_said(catalogue)
    with pytest.raises(UserError, match="there is later feedback"):
        undo_step(catalogue, step.number)
    assert all_said(catalogue) == before
    with pytest.raises(DataError, match="no step 123456"):
        undo_step(catalogue, 123456)


def test_programs_change_many_photos_by_one_request(client, catalogue):
    answer = client.post("/api/v1/images/tags", json={"images": [3, 4, 4], "give": ["field"], "wrong": ["stripes"]})
    found = answer.json()
    assert (answer.status_code, found["images"], found["changed"]) == (200, 2, 2)
    assert "field" in catalogue.image(3).tags
    assert catalogue.image(4).verdicts["stripes"] == -1
    undone = client.post(f"/api/v1/steps/{found['step']}/undo")
    assert (undone.status_code, undone.json()) == (200, found)
    assert "field" not in catalogue.image(3).tags
    assert client.post(f"/api/v1/steps/{found['step']}/undo").status_code == 409
    assert client.post("/api/v1/steps/999999/undo").status_code == 404
    assert client.post("/api/v1/images/tags", json={"images": [3, 999], "give": ["x"]}).status_code == 404
    assert client.post("/api/v1/images/tags", json={"images": [], "give": ["x"]}).status_code == 422
    assert "x" not in catalogue.image(3).tags


def test_plain_forms_change_the_chosen_photos_and_lead_back(client, catalogue):
    where = {"referer": "http://127.0.0.1/?q=dots&start=0"}
    page = client.post("/chosen", data={"image": ["5", "6"], "do": "give", "tag": "sown", "word": ""}, headers=where)
    assert "“sown” added to 2 photos" in page.text
    assert 'href="/?q=dots&amp;start=0"' in page.text
    assert "sown" in catalogue.image(6).tags
    address = page.text.partition('action="/steps/')[2].partition('"')[0]
    assert "Undone for 2 photos" in client.post(f"/steps/{address}").text
    assert "sown" not in catalogue.image(6).tags
    for wrong in ({"image": "5", "do": "burn"}, {"image": "x", "do": "give", "tag": "a"}, {"image": "5", "do": "give"},
                  {"do": "give", "tag": "a"}):  # fmt: skip
        assert client.post("/chosen", data=wrong).status_code == 422
    away = client.post("/chosen", data={"image": "5", "do": "right", "word": "dots"}, headers={"referer": "//evil/"})
    assert 'href="/"' in away.text


def test_the_history_names_the_step_in_words(client, catalogue):
    tag_photos(catalogue, MANY, give=["listed"])
    page = client.get("/library").text
    assert "tag photos <small>photos 10, give listed</small>" in page
