"""The service: what it answers, what it refuses and how, and that work done for many is the work done for one."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import threading
import time
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from refusals import refused
from tiny_catalogue import KINDS, N_IMAGES, SIZE, make_tiny_catalogue
from tiny_scenes import scene
from visterm.library.duplicates import find_duplicates
from visterm.tagging.tag_map import tag_map
from visterm.tagging.tagger import Tagger
from visterm.web import service as services
from visterm.web.app import create_app
from visterm.web.batching import Batcher
from visterm.web.metrics import Metrics, figure
from visterm.web.query import cursor_at, position_of
from visterm.web.roles import Access, is_loopback
from visterm.web.security import local_address
from visterm.web.service import VERSION, Bounds
from visterm.web.work import Work

HERE = "http://127.0.0.1:8080"
API = "/api/v1"
TOKEN = "a token of some length"
FOREVER = 600.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def service(tiny):
    with TestClient(create_app(tiny.folder), base_url=HERE) as client:
        yield client


def client_of(tiny, **settings):
    return TestClient(create_app(tiny.folder, **settings), base_url=HERE, follow_redirects=False)


def jpeg(kind, seed):
    file = BytesIO()
    Image.fromarray(scene(kind, seed, SIZE)).save(file, "PNG")
    return file.getvalue()


def ids_of(answer):
    assert "hits" in answer.json(), answer.text
    return [hit["id"] for hit in answer.json()["hits"]]


def refusal(answer, status):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert {"code", "message"} <= set(error) <= {"code", "message", "field"}
    return error


# -- search ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_words_find_the_pictures_that_show_them(service, kind):
    found = ids_of(service.get(f"{API}/search", params={"q": kind, "limit": 6}))
    assert [KINDS[i % 2] for i in found] == [kind] * 6


@pytest.mark.parametrize("params", [{"q": "stripes"}, {"like": 3}, {}, {"tag": "rare one"}])
def test_pages_hold_what_one_large_page_holds(service, params):
    whole = ids_of(service.get(f"{API}/search", params={**params, "limit": 200}))
    pages, cursor = [], None
    for _ in range(N_IMAGES):
        more = {} if cursor is None else {"cursor": cursor}
        answer = service.get(f"{API}/search", params={**params, "limit": 5, **more})
        pages += ids_of(answer)
        cursor = answer.json()["next"]
        if cursor is None:
            break
    assert pages == whole
    assert (
        len(set(pages))
        == len(pages)
        == {"stripes": 24, 3: 23, None: 24, "rare one": 8}[next(iter(params.values()), None)]
    )


def test_filters_leave_out_what_does_not_pass(service):
    found = ids_of(service.get(f"{API}/search", params={"q": "dots", "tag": "rare one", "without": "stripes"}))
    assert sorted(found) == [3, 9, 15, 21]


@pytest.mark.parametrize(
    "params", [{"taken_from": "2024-13"}, {"taken_to": "2023-02-29"}, {"folder": "a\0b"}], ids=repr
)
@pytest.mark.parametrize("searched", [{}, {"q": "dots"}, {"like": 1}], ids=repr)
def test_a_filter_that_nothing_could_pass_is_refused(service, params, searched):
    error = refusal(service.get(f"{API}/search", params=params | searched), 422)
    assert next(iter(params)) in error["message"]


def test_a_body_that_is_no_json_is_told_as_such(service):
    answer = service.post(f"{API}/images/1/feedback", content=b'{"tag"', headers={"content-type": "application/json"})
    error = refusal(answer, 422)
    assert error["field"] == "body"
    assert "isn't valid JSON" in error["message"]


def test_a_picture_that_is_sent_finds_similar_ones(service):
    answer = service.post(f"{API}/similar?limit=6", content=jpeg("dots", 99), headers={"content-type": "image/png"})
    assert [i % 2 for i in ids_of(answer)] == [1] * 6


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"q": "dots", "like": 1}, "like"),
        ({"cursor": "made up"}, "cursor"),
        ({"q": "dots", "cursor": cursor_at("all", 3)}, "cursor"),
        ({"taken_from": "yesterday"}, "taken_from"),
        ({"like": -1}, "like"),
        ({"tag": ""}, "tag.0"),
    ],
)
def test_what_cannot_be_searched_by_is_named(service, params, field):
    assert refusal(service.get(f"{API}/search", params=params), 422)["field"] == field


@pytest.mark.parametrize(
    ("address", "field", "known"),
    [
        ("search?qq=3", "qq", "combine, cursor, cutoff"),
        ("search?q=dots&Limit=3", "Limit", "like, limit, max_bytes"),
        ("tags/complete?prefix=d&n=3", "n", "Known: k, names, prefix."),
        ("images/0?x=1", "x", "Known: none."),
    ],
)
def test_a_parameter_that_an_address_does_not_have_is_refused(service, address, field, known):
    error = refusal(service.get(f"{API}/{address}"), 422)
    assert (error["code"], error["field"]) == ("invalid", field)
    assert error["message"].startswith(f"Unknown parameter '{field}'. Known: ")
    assert known in error["message"]
    assert service.get(f"{API}/health?t=1").status_code == 200


def test_a_value_that_is_not_accepted_is_named_as_the_api_calls_it(service):
    assert refusal(service.get(f"{API}/search", params={"q": "dots", "cursor": "x"}), 422) == {
        "code": "invalid",
        "message": "cursor is 'x'; expected a cursor of this list: `next` of the previous page.",
        "field": "cursor",
    }
    assert refusal(service.get(f"{API}/search", params={"q": "dots", "like": 1}), 422) == {
        "code": "invalid",
        "message": "`q` and `like` can't be used together. Leave one of them out.",
        "field": "like",
    }


def test_words_that_are_no_tags_are_told(service):
    assert refusal(service.get(f"{API}/search?q=strips"), 422) == {
        "code": "unknown_name",
        "message": "Unknown tag 'strips'. Did you mean 'stripes'?",
        "field": "q",
    }
    assert service.get(f"{API}/search", params={"q": "dots xylophone"}).json()["unknown"] == ["xylophone"]


def test_a_cursor_is_read_back_and_no_other_text_is_one():
    assert position_of("words", cursor_at("words", 120)) == 120
    for text in ("", "=", "d29yZHM6", "\x00", cursor_at("jobs", 1), "é"):
        with refused("cursor", value=text):
            position_of("words", text)


# -- images ------------------------------------------------------------------------------------------------------------


def test_an_image_comes_with_its_tags_and_predictions(service, tiny):
    view = service.get(f"{API}/images/3").json()
    assert view["image"]["path"] == str(tiny.photos / "03.jpg")
    assert (view["image"]["width"], view["image"]["height"]) == SIZE
    assert view["tags"] == ["dots", "rare one"]
    assert view["predicted"][0]["tag"] == "dots"


def test_a_thumbnail_is_small_and_tells_nothing_of_the_camera(service):
    answer = service.get(f"{API}/images/2/thumbnail?size=160")
    assert answer.headers["content-type"] == "image/jpeg"
    assert "private" in answer.headers["cache-control"]
    with Image.open(BytesIO(answer.content)) as picture:
        assert picture.size == SIZE  # never enlarged
        assert not picture.getexif()
    assert b"camera" not in answer.content
    same = service.get(f"{API}/images/2/thumbnail?size=160", headers={"if-none-match": answer.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    other = service.get(f"{API}/images/2/thumbnail?size=320", headers={"if-none-match": answer.headers["etag"]})
    assert other.status_code == 200


def test_the_shares_of_an_explanation_sum_to_the_score_and_its_heat_is_clear_where_nothing_speaks(service):
    found = service.get(f"{API}/images/3/explain", params={"tag": "dots"}).json()
    assert found["from_places"] + sum(found["elsewhere"].values()) == pytest.approx(found["score"], abs=1e-4)
    assert found["rank"] == 1
    answer = service.get(found["heat"])
    assert answer.headers["content-type"] == "image/png"
    with Image.open(BytesIO(answer.content)) as picture:
        assert (picture.mode, picture.size) == ("RGBA", (640, 480))
        assert np.asarray(picture)[..., 3].max() == pytest.approx(0.85 * 255, abs=1)


@pytest.mark.parametrize("path", ["images/999", "images/999/thumbnail", "jobs/999", "images/999/heat?tag=dots"])
def test_what_is_not_there_is_not_found(service, path):
    assert refusal(service.get(f"{API}/{path}"), 404)["code"] == "not_found"


@pytest.mark.parametrize(
    "path", ["images/..%2f..%2fetc%2fpasswd", "images/x", "images/-1", f"images/{2**63}", "images/3/thumbnail?size=9"]
)
def test_ids_are_the_only_way_to_a_file(service, path):
    refusal(service.get(f"{API}/{path}"), 404 if "%2f" in path else 422)


# -- annotate ----------------------------------------------------------------------------------------------------------


def test_a_picture_that_is_sent_gets_the_tags_that_its_file_gets(service, tiny, tmp_path):
    content = jpeg("dots", 77)
    (tmp_path / "photo.png").write_bytes(content)
    run = next((tiny.folder / "runs").iterdir())
    (expected,) = Tagger.load(run, n_jobs=1).annotate([tmp_path / "photo.png"], 3).images
    answer = service.post(f"{API}/annotate?k=3", content=content, headers={"content-type": "image/png"})
    (image,) = answer.json()["images"]
    assert [tag["tag"] for tag in image["tags"]] == [tag.tag for tag in expected.tags]
    assert [tag["score"] for tag in image["tags"]] == pytest.approx([tag.score for tag in expected.tags], abs=1e-5)


def test_of_several_pictures_those_that_can_be_read_are_tagged(service):
    parts = [
        ("image", ("a.png", jpeg("dots", 1))),
        ("image", ("../b", b"rubbish")),
        ("image", ("c.png", jpeg("stripes", 2))),
    ]
    answer = service.post(f"{API}/annotate?k=1", files=parts).json()
    assert [(image["image"], image["tags"][0]["tag"]) for image in answer["images"]] == [
        ("a.png", "dots"),
        ("c.png", "stripes"),
    ]
    assert answer["skipped"] == [{"image": "../b", "reason": "not an image: in no format that visterm reads"}]


def test_what_is_no_picture_is_refused_with_the_reason(service):
    def send(content, kind="image/png"):
        return service.post(f"{API}/annotate", content=content, headers={"content-type": kind})

    assert "not an image" in refusal(send(b"GIF89a"), 422)["message"]
    assert refusal(send(b""), 422)["field"] == "image"
    assert refusal(send(b"{}", "application/json"), 415)["code"] == "unsupported_type"
    bomb = BytesIO()
    Image.new("1", (10_000, 10_000)).save(bomb, "PNG")
    assert "bomb" in refusal(send(bomb.getvalue()), 422)["message"]
    many = [("image", ("a", b"x"))] * 17
    refusal(service.post(f"{API}/annotate", files=many), 422)


def test_items_that_come_while_others_are_done_are_done_together():
    batches = []

    def do(items):
        batches.append(list(items))
        time.sleep(0.05)
        return [ValueError("odd") if item == 3 else 10 * item for item in items]

    async def ask():
        work = Work("double", 1, 8)
        batcher = Batcher(do, work, 4)
        first = asyncio.create_task(batcher.ask(0))
        await asyncio.sleep(0.02)
        found = await asyncio.gather(first, *(batcher.ask(i) for i in range(1, 7)), return_exceptions=True)
        with work.slot():
            assert work.waiting.value == 1
        work.close()
        return found

    found = asyncio.run(ask())
    assert batches == [[0], [1, 2, 3, 4], [5, 6]]
    assert [str(item) for item in found] == ["0", "10", "20", "odd", "40", "50", "60"]


# -- feedback ----------------------------------------------------------------------------------------------------------


def test_a_rejected_tag_goes_and_comes_back_when_that_is_undone(service):
    def predicted():
        return {item["tag"] for item in service.get(f"{API}/images/5").json()["predicted"]}

    assert "dots" in predicted()
    said = service.post(f"{API}/images/5/feedback", json={"tag": "dots", "verdict": -1}).json()
    assert (said["verdict"], said["before"]) == (-1, 0)
    assert "dots" not in predicted()
    assert 5 not in ids_of(service.get(f"{API}/search?q=dots&limit=200"))
    undone = service.post(f"{API}/feedback/{said['id']}/undo").json()
    assert (undone["verdict"], undone["before"]) == (0, -1)
    assert "dots" in predicted()
    refusal(service.post(f"{API}/feedback/{said['id']}/undo"), 409)
    refusal(service.post(f"{API}/feedback/999999/undo"), 404)


def test_names_of_photos_are_completed_for_searches_and_found(service):
    assert service.get(f"{API}/tags/complete?prefix=knows").json() == {"tags": []}
    [camera] = service.get(f"{API}/tags/complete?prefix=knows&names=true").json()["tags"]
    assert (camera["kind"], camera["images"] > 1) == ("camera", True)
    answer = service.get(f"{API}/search?q=dots+00").json()
    assert (answer["names"], answer["unknown"], answer["n_found"]) == (["00"], [], 1)
    whole_camera = service.get(f"{API}/search", params={"q": f'"{camera["tag"]}"'}).json()
    assert whole_camera["n_found"] == camera["images"]


def test_a_tag_that_a_person_gives_is_found_and_completed_at_once(service):
    last = ids_of(service.get(f"{API}/search?q=stripes&limit=200"))[-1]
    given = service.post(f"{API}/images/{last}/tags", json={"give": ["stripes", "Tiger"]})
    assert given.status_code == 200, given.text
    for query in ("q=tiger", "q=tiger&cutoff=1", "tag=TIGER", "q=dots&tag=tiger"):
        assert ids_of(service.get(f"{API}/search?{query}&limit=1")) == [last]
    hits = service.get(f"{API}/search?q=stripes&limit=200").json()["hits"]
    assert last in [hit["id"] for hit in hits if hit.get("source") == "person"]
    assert service.get(f"{API}/search?q=tiger").json()["hits"][0]["source"] == "person"
    assert service.get(f"{API}/tags/complete?prefix=tig").json() == {
        "tags": [{"tag": "Tiger", "images": 1, "kind": "tag"}]
    }
    assert last not in ids_of(service.get(f"{API}/search?q=dots+-tiger&limit=200"))
    page = service.get("/?q=tiger").text
    assert page.count("tagged by hand") == page.count('class="hit"') == 1
    service.post(f"{API}/images/{last}/tags", json={"take": ["stripes", "tiger"]})
    refusal(service.get(f"{API}/search?q=tiger"), 422)


def test_undoing_a_second_verdict_brings_the_first_one_back(service):
    service.post(f"{API}/images/6/feedback", json={"tag": "stripes", "verdict": 1})
    second = service.post(f"{API}/images/6/feedback", json={"tag": "stripes", "verdict": -1}).json()
    assert second["before"] == 1
    service.post(f"{API}/feedback/{second['id']}/undo")
    assert service.get(f"{API}/images/6").json()["verdicts"] == {"stripes": 1}


def test_tags_are_data_and_never_markup(service):
    nasty = "<script>alert(1)</script>"
    answer = service.post(f"{API}/images/7/tags", json={"give": [nasty, "dusk"]})
    assert {nasty, "dusk"} <= set(answer.json()["tags"])
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    left = service.post(f"{API}/images/7/tags", json={"take": [nasty]}).json()["tags"]
    assert "dusk" in left
    assert nasty not in left


@pytest.mark.parametrize(
    "body",
    [
        '{"tag": "dots"}',
        '{"tag": "dots", "verdict": 2}',
        '{"tag": "dots", "verdict": true}',
        '{"tag": "", "verdict": 1}',
        '{"tag": "\\ud800", "verdict": 1}',
        "{",
        "[]",
        "",
    ],
)
def test_feedback_that_says_nothing_is_refused(service, body):
    answer = service.post(f"{API}/images/5/feedback", content=body, headers={"content-type": "application/json"})
    refusal(answer, 422)


# -- tags --------------------------------------------------------------------------------------------------------------


def test_tags_are_completed_by_the_start_of_any_of_their_words(service):
    def complete(prefix):
        return [item["tag"] for item in service.get(f"{API}/tags/complete", params={"prefix": prefix}).json()["tags"]]

    assert complete("ST") == ["stripes"]
    assert complete("o") == ["rare one"]
    assert complete("zebra") == []
    assert complete("")[0] == "thing"  # the most frequent: 16 of 24


def test_tags_have_counts_neighbours_and_a_place(service):
    page = service.get(f"{API}/tags?sort=given&limit=1").json()
    assert page["tags"][0]["tag"] == "thing"
    assert page["next"] is not None
    near = service.get(f"{API}/tags/neighbours?tag=dots").json()
    assert "dots" not in {item["tag"] for item in near["neighbours"]}
    placed = service.get(f"{API}/tags/map").json()
    assert {item["tag"] for item in placed["tags"]} >= {"dots", "stripes", "thing", "rare one"}
    assert near["from"] == placed["from"] == service.get(f"{API}/images/3/explain?tag=dots").json()["from"]
    refusal(service.get(f"{API}/tags/neighbours?tag=nothing"), 422)


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_who_asks_for_a_map_that_takes_long_to_draw_is_told_to_come_back(tiny, monkeypatch):
    may_end, n_drawn = threading.Event(), []

    def draw(*arguments):
        n_drawn.append(1)
        assert may_end.wait(FOREVER)
        return tag_map(*arguments)

    monkeypatch.setattr(services, "tag_map", draw)
    monkeypatch.setattr(services, "MAP_SECONDS", 0.01)
    with client_of(tiny) as client:
        for address in (f"{API}/tags/map", "/tags/map?drawn=1"):
            answer = client.get(address)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "10"
        may_end.set()
        monkeypatch.setattr(services, "MAP_SECONDS", FOREVER)
        assert client.get(f"{API}/tags/map").json()["tags"]
    assert len(n_drawn) == 1


def test_what_is_beyond_the_bound_is_told_to_come_back(tiny):
    with client_of(tiny, bounds=Bounds(encoding=0, searching=1)) as client:
        answer = client.post(f"{API}/annotate", content=jpeg("dots", 1), headers={"content-type": "image/png"})
        assert refusal(answer, 503)["code"] == "busy"
        assert answer.headers["retry-after"] == "1"
        assert client.get(f"{API}/search?q=dots").status_code == 200
        assert 'visterm_refused_total{kind="annotate"} 1' in client.get(f"{API}/metrics").text


@pytest.mark.parametrize("counted", [True, False])
def test_a_body_is_counted_whatever_its_length_is_said_to_be(tiny, counted):
    def pieces():
        for _ in range(30):
            yield b"x" * 1000

    with client_of(tiny, bounds=Bounds(upload_bytes=20_000)) as client:
        body = pieces() if counted else b"x" * 30_000
        for path in ("annotate", "images/3/feedback"):
            answer = client.post(f"{API}/{path}", content=body, headers={"content-type": "application/octet-stream"})
            assert refusal(answer, 413)["code"] == "too_large"
            body = pieces() if counted else body


def test_an_error_that_nobody_foresaw_is_an_answer_too(tiny, monkeypatch, caplog):
    with client_of(tiny) as client:

        def fail(image_id):
            raise RuntimeError("secret")

        monkeypatch.setattr(client.app.state.service, "view", fail)
        answer = client.get(f"{API}/images/1")
    assert refusal(answer, 500)["code"] == "internal"
    assert "secret" not in answer.text
    assert "content-security-policy" in answer.headers
    assert "secret" in caplog.text


# -- who may ask -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", f"{API}/health", "/nothing", f"{API}/images/999"])
def test_every_answer_forbids_scripts_and_contents_of_other_hosts(service, path):
    headers = service.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_another_name_for_this_machine_is_not_answered_to(service):
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""):
        assert refusal(service.get(f"{API}/health", headers={"host": host}), 421)["code"] == "wrong_host"
    for host in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
        assert service.get(f"{API}/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_change_nothing(service, headers):
    answer = service.post(f"{API}/images/3/tags", json={"give": ["mine"]}, headers=headers)
    assert refusal(answer, 403)["code"] == "cross_site"
    own = service.post(
        f"{API}/images/3/tags", json={"give": []}, headers={"origin": HERE, "sec-fetch-site": "same-origin"}
    )
    assert own.status_code == 200


def test_with_a_token_nothing_is_told_without_it(tiny):
    basic = base64.b64encode(f"label:{TOKEN}".encode()).decode()
    with client_of(tiny, access=Access.of("127.0.0.1", TOKEN)) as client:
        assert client.get(f"{API}/health").status_code == 200
        for path in (f"{API}/about", f"{API}/openapi.json", f"{API}/metrics", "/label-studio/health", "/"):
            answer = client.get(path)
            assert refusal(answer, 401)["code"] == "unauthorised"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            for given in (f"Bearer {TOKEN}x", "Bearer ", "Basic ????", "Bearer \xe9".encode("latin-1")):
                assert client.get(path, headers={"authorization": given}).status_code == 401
            for given in (f"Bearer {TOKEN}", f"Basic {basic}"):
                assert client.get(path, headers={"authorization": given}).status_code == 200


def test_people_log_in_once_and_the_cookie_is_not_the_token(tiny):
    with client_of(tiny, access=Access.of("127.0.0.1", TOKEN)) as client:
        page = {"accept": "text/html"}
        asked = client.get("/?q=dots", headers=page)
        assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2F%3Fq%3Ddots")
        assert "password" in client.get(asked.headers["location"], headers=page).text
        assert client.post("/login", data={"token": "wrong", "next": "/"}).status_code == 401
        entered = client.post("/login", data={"token": TOKEN, "next": "//evil.example/"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert TOKEN not in cookie
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert client.get(f"{API}/about").status_code == 200
        client.post("/logout")
        assert client.get(f"{API}/about").status_code == 401


def test_a_token_in_an_address_goes_into_the_cookie(tiny):
    with client_of(tiny, access=Access.of("127.0.0.1", TOKEN)) as client:
        entered = client.get("/", params={"token": TOKEN, "q": "dots"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/?q=dots")
        assert client.get(f"{API}/about").status_code == 200


@pytest.mark.parametrize("address", ["//evil.example", "http://evil.example", "/\\evil.example", "/a\r\nb", "evil"])
def test_a_login_leads_nowhere_else(address):
    assert local_address(address) == "/"


def test_loopback_is_told_from_other_addresses():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.1.5", "::", "photos.home", "")))
    everywhere = Access.of("0.0.0.0", TOKEN, ["photos.home"])
    assert all(map(everywhere.answers_to, ("192.168.1.5:80", "photos.home", "Photos.Home:8080", "[fe80::1]:80")))
    assert not everywhere.answers_to("evil.example")


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_jobs_find_new_photos_learn_and_can_be_cancelled(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    Image.fromarray(scene("dots", 400, SIZE)).save(tiny.photos / "new.png")
    with client_of(tiny) as client:
        for image_id in range(0, N_IMAGES, 2):
            client.post(f"{API}/images/{image_id}/tags", json={"give": ["lines"]})
        started = [client.post(f"{API}/jobs", json={"kind": kind}) for kind in ("index", "fit", "duplicates")]
        assert [answer.status_code for answer in started] == [202] * 3
        cancelled = client.post(f"{API}/jobs/{started[2].json()['id']}/cancel").json()
        end = time.monotonic() + FOREVER
        while True:
            jobs = client.get(f"{API}/jobs").json()["jobs"]
            if all(job["finished"] for job in jobs):
                break
            assert time.monotonic() < end, jobs
            time.sleep(0.2)
        states = {job["kind"]: job["state"] for job in jobs[:3]}
        assert cancelled["state"] == "cancelled"
        assert states == {"duplicates": "cancelled", "fit": "done", "index": "done"}, jobs
        assert client.get(f"{API}/about").json()["searchable"] == N_IMAGES + 1
        learned = ids_of(client.get(f"{API}/search?q=lines&limit=12"))
        assert learned
        refusal(client.post(f"{API}/jobs", json={"kind": "delete"}), 422)


def test_pictures_that_look_the_same_are_grouped_once_they_were_looked_at(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    os.link(tiny.photos / "03.jpg", tiny.photos / "copy.jpg")
    app = create_app(tiny.folder)
    catalogue = app.state.service.catalogue
    catalogue.index(tiny.photos)
    find_duplicates(catalogue.stored)
    with TestClient(app, base_url=HERE) as client:
        found = client.get(f"{API}/duplicates?distance=0").json()
    pairs = [{group["keep"]["id"], *(copy["id"] for copy in group["copies"])} for group in found["groups"]]
    assert {3, N_IMAGES} in pairs
    assert found["n_groups"] == len(pairs)


# -- Label Studio ------------------------------------------------------------------------------------------------------

CONFIG = (
    '<View><Image name="photo" value="$picture"/><Choices name="what" toName="photo" choice="single">'
    '<Choice value="Dots"/><Choice value="Stripes"/></Choices></View>'
)


def test_label_studio_gets_choices_of_pictures_of_the_catalogue_and_of_those_it_sends(service):
    sent = "data:image/png;base64," + base64.b64encode(jpeg("stripes", 50)).decode()
    pictures = ["visterm:3", f"http://label.home{API}/images/4/thumbnail?size=320", sent, "http://evil.example/a.jpg",
                "file:///etc/passwd", "/etc/passwd", "visterm:999", None, "data:image/png;base64,eHg="]  # fmt: skip
    tasks = [{"id": i, "data": {"picture": picture}} for i, picture in enumerate(pictures)]
    answer = service.post("/label-studio/predict", json={"tasks": tasks, "label_config": CONFIG, "project": "1.2"})
    results = answer.json()["results"]
    chosen = [found["result"][0]["value"]["choices"] if found["result"] else found["error"] for found in results]
    assert chosen[:3] == [["Dots"], ["Stripes"], ["Stripes"]]
    assert all("not fetched" in told for told in (*chosen[3:6], chosen[7]))
    assert "999" in chosen[6]
    assert "not an image" in chosen[8]
    assert (results[0]["result"][0]["from_name"], results[0]["result"][0]["to_name"]) == ("what", "photo")


def test_what_people_choose_in_label_studio_are_tags_here(service):
    told = {
        "action": "ANNOTATION_CREATED",
        "task": {"data": {"picture": "visterm:8"}},
        "annotation": {"result": [{"value": {"choices": ["zebra crossing"]}}, {"value": 3}, None]},
        "project": {"id": 1},
    }
    answer = service.post("/label-studio/webhook", json=told)
    assert (answer.status_code, answer.json()["result"]) == (201, {"image": 8, "given": ["zebra crossing"]})
    assert "zebra crossing" in service.get(f"{API}/images/8").json()["tags"]
    del told["annotation"]
    assert service.post("/label-studio/webhook", json=told).json()["status"] == "ignored"


def test_label_studio_configurations_are_read_and_hostile_ones_refused(service):
    answer = service.post("/label-studio/setup", json={"project": "1.2", "schema": CONFIG, "hostname": "http://x"})
    assert answer.json()["model_version"] == service.get(f"{API}/about").json()["run"]
    bomb = '<!DOCTYPE a [<!ENTITY b "cc">]><View>&b;</View>'
    for schema in (bomb, "<View/>", "<View", "\x00"):
        refusal(service.post("/label-studio/setup", json={"schema": schema}), 422)
    assert service.get("/label-studio/health").json()["status"] == "UP"


# -- about itself ------------------------------------------------------------------------------------------------------


def test_figures_are_in_the_form_that_prometheus_reads(service):
    service.get(f"{API}/images/1")
    answer = service.get(f"{API}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert {(family.name, family.type) for family in families.values()} == {
        ("visterm_requests", "counter"),
        ("visterm_request_seconds", "histogram"),
        ("visterm_info", "gauge"),
        ("visterm_images", "gauge"),
        ("visterm_waiting", "gauge"),
        ("visterm_refused", "counter"),
        ("visterm_body_bytes", "gauge"),
        ("visterm_decoders_died", "counter"),
        ("visterm_thumbnail_bytes", "gauge"),
        ("visterm_jobs_open", "gauge"),
    }
    assert families["visterm_info"].samples[0].labels == {"version": VERSION}
    kinds = [sample.labels["kind"] for sample in families["visterm_refused"].samples]
    assert kinds == ["body", "search", "browse", "write", "annotate", "fetch", "decode", "decode uploads"]
    assert [sample.labels["kind"] for sample in families["visterm_waiting"].samples] == kinds[1:]


def test_requests_are_counted_by_method_route_and_status_and_their_time_by_route():
    metrics = Metrics()
    for method, route, status, seconds in [
        ("GET", "/a/{id}", 200, 0.5),
        ("GET", "/a/{id}", 200, 3),
        ("PUT", "/b", 404, 20),
    ]:
        metrics.count(method, route, status, seconds)
    families = text_string_to_metric_families(metrics.text([figure("visterm_body_bytes", "Held.", 1_234_567_890)]))
    found = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    bounds = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
    buckets = [(route, bound) for route in ("/a/{id}", "/b") for bound in bounds]
    counts = [0] * 6 + [1] * 3 + [2] * 3 + [0] * 11 + [1]
    assert found == {
        ("visterm_requests_total", "GET", "/a/{id}", "200"): 2,
        ("visterm_requests_total", "PUT", "/b", "404"): 1,
        **{
            ("visterm_request_seconds_bucket", bound, route): n
            for (route, bound), n in zip(buckets, counts, strict=True)
        },
        ("visterm_request_seconds_sum", "/a/{id}"): 3.5,
        ("visterm_request_seconds_count", "/a/{id}"): 2,
        ("visterm_request_seconds_sum", "/b"): 20,
        ("visterm_request_seconds_count", "/b"): 1,
        ("visterm_body_bytes",): 1_234_567_890,
    }


def test_the_page_of_the_api_lists_every_address_and_needs_no_other_host(service):
    described = service.get(f"{API}/openapi.json").json()
    page = service.get(f"{API}/docs").text
    assert all(path in page for path in described["paths"])
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
