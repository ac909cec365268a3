"""Requests that are too large, too slow, too many or made up: each is refused in one line, and the others go on."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from io import BytesIO
from types import SimpleNamespace

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tiny_catalogue import make_tiny_catalogue
from visterm.data.images import max_image_pixels
from visterm.library.catalogue import Catalogue
from visterm.tagging.tagger import Tagger
from visterm.web import decoding
from visterm.web.app import create_app
from visterm.web.bodies import MAX_VALUES, MEDIUM_BODY, SMALL_BODY
from visterm.web.decoding import DECODER_DIED
from visterm.web.decoding_process import PIXELS, READY, REQUEST
from visterm.web.errors import HttpError
from visterm.web.service import Bounds
from visterm.web.work import SLOW_SECONDS, Figures, Work

HERE = "http://127.0.0.1:8080"
API = "/api/v1"
PATIENCE = 600.0
HUGE = 2**63


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("limits"))


@pytest.fixture(scope="module")
def service(tiny):
    with TestClient(create_app(tiny.folder), base_url=HERE) as client:
        yield client


def bounded(tiny, **bounds):
    return TestClient(create_app(tiny.folder, bounds=Bounds(**bounds)), base_url=HERE)


def refusal(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def keys(n_bytes):
    """Write JSON of about some bytes, that is all keys."""
    return json.dumps({f"k{i}": 1 for i in range(n_bytes // 12)}).encode()


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "most"),
    [
        ("/images/1/feedback", SMALL_BODY),
        ("/jobs", SMALL_BODY),
        ("/images/1/tags", MEDIUM_BODY),
        ("/annotate", 32 * 2**20),
    ],
)
def test_each_route_takes_bodies_of_its_own_size(service, address, most):
    told = refusal(service.post(API + address, content=b" " * (most + 1), headers={"content-type": "image/png"}), 413)
    assert f"{most:,}" in told["message"]


def test_a_body_is_counted_where_its_length_is_not_said(service):
    answer = service.post(
        f"{API}/jobs", content=iter([b" " * SMALL_BODY, b" "]), headers={"content-type": "application/json"}
    )
    assert refusal(answer, 413)["code"] == "too_large"


def test_json_of_a_million_values_is_refused_before_it_is_read(service, monkeypatch):
    reads = SimpleNamespace(loads=lambda body: pytest.fail("it was read"))
    monkeypatch.setattr("visterm.web.bodies.json", reads)
    sent = b'{"tasks": [' + b"0," * MAX_VALUES + b"0]}"
    answer = service.post("/label-studio/predict", content=sent, headers={"content-type": "application/json"})
    assert f"{MAX_VALUES:,} values" in refusal(answer, 413)["message"]


def test_long_json_is_read_in_another_thread_than_requests_are_answered_in(service, monkeypatch):
    threads = []
    reads = SimpleNamespace(loads=lambda body: threads.append(threading.current_thread()) or json.loads(body))
    monkeypatch.setattr("visterm.web.bodies.json", reads)
    for text in ("", "x" * SMALL_BODY):
        assert service.post("/label-studio/setup", json={"schema": "", "more": text}).status_code == 200
    answers_in, reads_in = threads
    assert answers_in is not reads_in


def test_of_many_unknown_names_the_first_alone_is_told(service):
    sent = keys(MEDIUM_BODY // 2)
    answer = service.post(f"{API}/images/1/tags", content=sent, headers={"content-type": "application/json"})
    assert refusal(answer, 422)["field"] == "k0"


def send(app, method, path, receive):
    """Have an application answer a request whose body comes from `receive`; give its status and JSON."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"image/png")]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80)}  # fmt: skip
    found = []

    async def note(message):
        found.append(message)

    return app(scope, receive, note), found


def answer_of(found):
    return found[0]["status"], json.loads(found[1]["body"])["error"]


def test_a_body_that_trickles_is_refused_at_its_deadline(tiny):
    app = create_app(tiny.folder, bounds=Bounds(body_seconds=0.2))

    async def trickle():
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def ask():
        answering, found = send(app, "POST", f"{API}/annotate", trickle)
        await answering
        return answer_of(found)

    status, error = asyncio.run(ask())
    assert (status, error["code"]) == (408, "too_slow")
    assert app.state.service.bodies.n_bytes.value == 0


def test_bodies_that_are_held_open_share_one_budget(tiny):
    app = create_app(tiny.folder, bounds=Bounds(body_bytes=1000))

    async def ask():
        held, gone = asyncio.Event(), asyncio.Event()
        pieces = iter([{"type": "http.request", "body": b"x" * 900, "more_body": True}])

        async def hold():
            for piece in pieces:
                return piece
            held.set()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def some():
            return {"type": "http.request", "body": b"y" * 200, "more_body": False}

        first, _ = send(app, "POST", f"{API}/annotate", hold)
        holding = asyncio.create_task(first)
        await held.wait()
        second, found = send(app, "POST", f"{API}/annotate", some)
        await second
        gone.set()
        await holding
        return found

    found = asyncio.run(ask())
    status, error = answer_of(found)
    assert (status, error["code"]) == (503, "busy")
    assert (b"retry-after", b"1") in found[0]["headers"]
    assert app.state.service.bodies.n_bytes.value == 0


def test_pictures_that_are_sent_in_a_form_are_never_on_a_disk(service, monkeypatch):
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", lambda file: pytest.fail("it was written to a disk"))
    sent = [("image", ("large.png", bytes(2 * MEDIUM_BODY)))]
    assert "not an image" in refusal(service.post(f"{API}/annotate", files=sent), 422)["message"]
    answer = service.post(f"{API}/annotate", content=b"--x", headers={"content-type": "multipart/form-data"})
    assert "form can't be read" in refusal(answer, 400)["message"]


@pytest.mark.parametrize("path", ["/login", f"{API}/annotate", "/like", "/review"])
def test_a_request_that_is_broken_off_is_not_logged(service, path, caplog):
    async def gone():
        return {"type": "http.disconnect"}

    async def ask():
        answering, _ = send(service.app, "POST", path, gone)
        await answering

    with caplog.at_level(logging.DEBUG, logger="visterm"):
        asyncio.run(ask())
    assert not caplog.records


# -- writing and decoding beside all else ------------------------------------------------------------------------------


def in_thread(do):
    found = []
    thread = threading.Thread(target=lambda: found.append(do()))
    thread.start()
    return thread, found


def wait_for(true):
    """Wait until something holds, for as long as it takes."""
    ticks = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if true():
            return
        ticks.wait(0.01)
    raise AssertionError("it did not come about")


def test_searches_go_on_while_writes_wait_for_another_process(service, tiny):
    with closing(sqlite3.connect(tiny.folder / "catalogue.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        given = {"tag": "dots", "verdict": 1}
        waiting = [in_thread(lambda: service.post(f"{API}/images/1/feedback", json=given)) for _ in range(3)]
        writing = service.app.state.service.writing
        wait_for(lambda: writing.waiting.value == len(waiting))
        for address in ("search?q=dots", "images/1", "tags", "health"):
            assert service.get(f"{API}/{address}").status_code == 200
        assert writing.waiting.value == len(waiting)
        other.execute("ROLLBACK")
        for thread, found in waiting:
            thread.join(PATIENCE)
            assert found[0].status_code == 200


def test_a_queue_that_is_slow_is_shorter():
    async def ask(waited_seconds):
        work, free = Work("search", 1, 8, slow_bound=2), threading.Event()
        running = asyncio.create_task(work.do(free.wait))
        await asyncio.sleep(0)
        work.note_start(time.monotonic() - waited_seconds)
        tasks = [asyncio.create_task(work.run(free.wait)) for _ in range(9)]
        try:
            while not (refused := [task for task in tasks if task.done()]):
                await asyncio.sleep(0)
            with pytest.raises(HttpError, match="busy"):
                await refused[0]
        finally:
            free.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            await running
            work.close()
        return sum(answer is True for answer in answers)

    assert asyncio.run(ask(0)) == 8
    assert asyncio.run(ask(2)) == 2


def test_a_process_that_was_slow_goes_on_while_the_others_have_many_requests(tmp_path):
    with (tmp_path / "figures").open("w+b") as file:
        own, other = (Figures(2, row, file.fileno()) for row in range(2))
        work = Work("search", 1, 8, slow_bound=2, figures=own)
        other.gauge("search").value = 7
        work.note_start(time.monotonic() - 2 * SLOW_SECONDS)
        with work.slot(), pytest.raises(HttpError, match="8 requests for search"), work.slot():
            pass
        work.close()


def test_a_queue_that_became_empty_is_no_longer_slow():
    work = Work("search", 1, 8, slow_bound=1)
    work.note_start(time.monotonic() - 2 * SLOW_SECONDS)
    with work.slot(), pytest.raises(HttpError, match="1 requests for search"), work.slot():
        pass
    with work.slot(), work.slot():
        assert work.waiting.value == 2
    work.close()


def test_slow_queues_take_the_uploads_of_two_requests_and_all_photos_of_the_catalogue(service, tiny):
    shared = service.app.state.service
    queues = (shared.upload_decoders.work, shared.encoding, shared.decoders.work)
    n_waiting = (shared.bounds.pictures, shared.bounds.pictures, shared.bounds.decoding - 1)
    for work, n in zip(queues, n_waiting, strict=True):
        work.note_start(time.monotonic() - 2 * SLOW_SECONDS)
        work.waiting.value += n
    picture = (tiny.photos / "01.jpg").read_bytes()
    files = [("image", (f"{i}.jpg", picture)) for i in range(shared.bounds.pictures)]
    try:
        tagged = service.post(f"{API}/annotate", files=files)
        thumbnail = service.get(f"{API}/images/1/thumbnail?size=160")
    finally:
        for work, n in zip(queues, n_waiting, strict=True):
            work.waiting.value -= n
    assert (tagged.status_code, thumbnail.status_code) == (200, 200)
    assert len(tagged.json()["images"]) == shared.bounds.pictures


def test_searches_beyond_the_queue_are_refused_at_once_and_the_others_answered_whole(tiny, monkeypatch):
    free = threading.Event()
    with bounded(tiny, searching=4) as client:
        searching, search = client.app.state.service.searching, Catalogue.search
        monkeypatch.setattr(Catalogue, "search", lambda *args, **kwargs: free.wait() and search(*args, **kwargs))
        waiting = [in_thread(lambda: client.get(f"{API}/search?q=dots")) for _ in range(4)]
        try:
            wait_for(lambda: searching.waiting.value == 4)
            answer = client.get(f"{API}/search?q=dots")
            assert refusal(answer, 503)["code"] == "busy"
            assert answer.headers["retry-after"] == "1"
            assert searching.waiting.value == 4
        finally:
            free.set()
        for thread, answers in waiting:
            thread.join(PATIENCE)
            assert answers[0].status_code == 200
            assert answers[0].content == client.get(f"{API}/search?q=dots").content


def test_searches_go_on_while_uploads_wait_for_the_model(service, monkeypatch):
    free = threading.Event()
    monkeypatch.setattr(Tagger, "annotate_each", lambda *args, **kwargs: free.wait() and [])
    encoding = service.app.state.service.encoding
    picture = BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    waiting = [in_thread(lambda: service.post(f"{API}/annotate", content=picture.getvalue())) for _ in range(3)]
    try:
        wait_for(lambda: encoding.waiting.value == 3)
        assert service.get(f"{API}/search?q=stripes").status_code == 200
        assert encoding.waiting.value == 3
    finally:
        free.set()
    for thread, _ in waiting:
        thread.join(PATIENCE)


def test_a_write_that_has_waited_too_long_for_its_turn_is_not_done_any_more():
    async def ask():
        work, free, done = Work("write", 1, 4, patience_seconds=0.0), threading.Event(), []
        first = asyncio.create_task(work.do(free.wait))
        second = asyncio.create_task(work.run(done.append, 1))
        await asyncio.sleep(0.01)
        free.set()
        try:
            with pytest.raises(HttpError, match="busy"):
                await second
            await first
        finally:
            work.close()
        return done, work.waiting.value

    assert asyncio.run(ask()) == ([], 0)


def test_thumbnails_go_on_while_pictures_that_were_sent_take_long(service, monkeypatch):
    exchange, go_on = decoding._exchange, threading.Event()

    def take_long(process, header, content):
        if content.startswith(b"slow"):
            go_on.wait(PATIENCE)
        return exchange(process, header, content)

    monkeypatch.setattr(decoding, "_exchange", take_long)
    sent = [("image", (f"{i}", b"slow")) for i in range(3)]
    thread, found = in_thread(lambda: service.post(f"{API}/annotate", files=sent))
    wait_for(lambda: service.app.state.service.upload_decoders.work.waiting.value == len(sent))
    assert service.get(f"{API}/images/5/thumbnail").status_code == 200
    assert service.app.state.service.upload_decoders.work.waiting.value == len(sent)
    go_on.set()
    thread.join(PATIENCE)
    assert found[0].status_code == 422


def test_a_picture_that_was_sent_has_less_time_than_those_of_the_catalogue(tiny, monkeypatch):
    assert Bounds().upload_seconds < Bounds().decoding_seconds
    exchange = decoding._exchange

    def wait_for_more(process, header, content):
        more = REQUEST.pack(PIXELS, False, 0, 10**6) if content == b"slow" else header
        return exchange(process, more, content)

    monkeypatch.setattr(decoding, "_exchange", wait_for_more)
    with bounded(tiny, upload_seconds=0.2) as service:
        answer = service.post(f"{API}/annotate", content=b"slow", headers={"content-type": "image/png"})
        assert DECODER_DIED in refusal(answer, 422)["message"]
        assert service.get(f"{API}/images/5/thumbnail").status_code == 200


def test_the_time_of_a_picture_begins_when_the_process_that_decodes_it_has_started(tiny, monkeypatch):
    steps, read_exactly = [], decoding.read_exactly

    def read(stream, n_bytes):
        content = read_exactly(stream, n_bytes)
        steps.append(content)
        return content

    class Timer(threading.Timer):
        def start(self):
            steps.append("time begins")
            super().start()

    monkeypatch.setattr(decoding, "read_exactly", read)
    monkeypatch.setattr(decoding.threading, "Timer", Timer)
    decoders = decoding.Decoders(1, 4, memory_bytes=2**31, max_pixels=10**6, seconds=600)
    with closing(decoders):
        assert asyncio.run(decoders.pixels((tiny.photos / "05.jpg").read_bytes(), None)).ndim == 3
    assert steps[:2] == [READY, "time begins"]


def test_what_was_indexed_is_shown_however_small_pictures_have_to_be_that_are_sent(tiny):
    with bounded(tiny, upload_pixels=100) as service:
        picture = (tiny.photos / "05.jpg").read_bytes()
        answer = service.post(f"{API}/annotate", content=picture, headers={"content-type": "image/jpeg"})
        assert "decompression bomb" in refusal(answer, 422)["message"]
        assert service.get(f"{API}/images/5/thumbnail").status_code == 200


def test_a_picture_may_be_sent_that_is_as_large_as_a_photo_may_be(monkeypatch):
    assert Bounds().upload_pixels == max_image_pixels()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert Bounds().upload_pixels == 400


# -- numbers and names that are made up --------------------------------------------------------------------------------


def test_made_up_methods_are_counted_together(service):
    for i in range(20):
        for path in (f"{API}/health", "/nothing"):
            service.request(f"MADE{i}", path)
    lines = service.get(f"{API}/metrics").text
    assert "MADE" not in lines
    assert 'method="other",route="/api/v1/health",status="405"} 20' in lines


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{API}/jobs/{HUGE}"),
        ("POST", f"{API}/jobs/{HUGE}/cancel"),
        ("GET", f"/library/jobs/{HUGE}"),
        ("POST", f"/library/jobs/{HUGE}/cancel"),
        ("GET", f"/image/{HUGE}"),
        ("GET", f"/image/{HUGE}/alike"),
        ("POST", f"{API}/feedback/{HUGE}/undo"),
        ("GET", f"{API}/images/{HUGE}/thumbnail"),
        ("GET", "/library/jobs/-1"),
    ],
)
def test_numbers_beyond_those_of_the_database_name_nothing(service, method, path):
    assert service.request(method, path, headers={"x-part": "1"}).status_code in (404, 422)


@pytest.mark.parametrize(
    "trail",
    ['[[1e999, "a", "skip"]]', "[" * 50_000, '[[1, "a", "skip"]' + "]" * 9, f'[[{HUGE}, "a", "skip"]]', "[NaN]", "{}"],
    ids=["infinite", "deep", "closed", "huge", "no number", "no list"],
)
def test_answers_of_a_sitting_that_are_made_up_are_refused(service, trail):
    assert service.post("/review", data={"trail": trail, "do": "undo"}).status_code == 422


@pytest.mark.parametrize("number", [0, 10**6])
def test_an_entry_that_is_not_in_the_log_cannot_be_undone(service, number):
    service.post(f"{API}/images/2/feedback", json={"tag": "dots", "verdict": 1})
    told = refusal(service.post(f"{API}/feedback/{number}/undo"), 404)
    assert told["message"] == f"The log of feedback has no entry {number}."
