"""PhotoPrism's vision requests, built as its source builds them; answers are read as its Go structs read them."""

from __future__ import annotations

import base64
import json
import socket
import threading
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from PIL import Image
from starlette.testclient import TestClient

from refusals import refused
from test_web_limits import in_thread, wait_for
from tiny_catalogue import KINDS, make_tiny_catalogue
from visterm.core.types import Tag
from visterm.core.web_client import ServerAnswer
from visterm.web.api import vision
from visterm.web.api.vision import N_LABELS_WITHOUT_CONFIDENCE, merge_labels
from visterm.web.app import create_app
from visterm.web.roles import Access, origin_of
from visterm.web.service import Bounds

HERE = "http://127.0.0.1:8080"
ADDRESS = "/api/v1/vision/labels"
TOKEN = "a token of letters"
PATIENCE = 600.0
LABEL = {
    "name": str, "source": str, "priority": int, "confidence": (int, float), "topicality": (int, float),
    "categories": list, "nsfw": bool, "nsfw_confidence": (int, float),
}  # fmt: skip
"""LabelResult of api_response.go."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("vision"), n_images=140)


class Pictures(BaseHTTPRequestHandler):
    """A photo at /photo, the same only after `go_on` at /late, byte by byte until then at /drip; others: moved."""

    go_on = threading.Event()
    paths: ClassVar[list[str]] = []  # Of all requests
    photo = b""

    def do_GET(self):
        self.paths.append(self.path)
        known = self.path in ("/photo", "/late", "/drip")
        self.send_response(200 if known else 302)
        self.send_header("location", "/photo")
        self.end_headers()
        if self.path == "/late":
            self.go_on.wait(PATIENCE)
        if self.path == "/drip":
            with suppress(OSError):  # nobody reads it any more
                self.wfile.write(b"x")
                while not self.go_on.wait(0.01):
                    self.wfile.write(b"x")
        if known:
            with suppress(OSError):
                self.wfile.write(self.photo)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def pictures(tiny):
    """Serve pictures; yield the address."""
    Pictures.photo = min(tiny.photos.iterdir()).read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Pictures.go_on.set()
        server.shutdown()


def started(tiny, pictures, **bounds):
    access = Access.of("127.0.0.1", TOKEN, vision_hosts=[urlsplit(pictures).netloc])
    app = create_app(tiny.folder, access=access, bounds=Bounds(**bounds))
    return TestClient(app, base_url=HERE, headers={"authorization": f"Bearer {TOKEN}"})


@pytest.fixture(scope="module")
def service(tiny, pictures):
    with started(tiny, pictures) as client:
        yield client


def data_url(path):
    return "data:image/jpeg;base64," + base64.b64encode(path.read_bytes()).decode()


def as_photoprism_asks(*images, **more):
    """Return the body of a request: Go leaves out empty texts, but not "suffix" and "stream"."""
    body = {"id": str(uuid.UUID(int=7)), "model": "visterm", "version": "latest", "suffix": "", "stream": False}
    return json.dumps(body | ({"images": list(images)} if images else {}) | more, separators=(",", ":")).encode()


def post(service, body, address=ADDRESS, **headers):
    return service.post(address, content=body, headers={"content-type": "application/json", **headers})


def read_as_go(text):
    """Read an ApiResponse as encoding/json would: a field of another type is an error, unknown fields are ignored."""
    answer = json.loads(text)
    for name, kind in {"id": str, "code": int, "error": str, "model": dict, "result": dict}.items():
        assert isinstance(answer.get(name, kind()), kind), (name, answer)
    model = answer.get("model", {})
    for name, kind in {"type": str, "name": str, "version": str, "resolution": int}.items():
        assert isinstance(model.get(name, kind()), kind), (name, model)
    labels = answer.get("result", {}).get("labels") or []
    for label in labels:
        assert set(label) <= set(LABEL), label
        for name, kind in LABEL.items():
            assert isinstance(label.get(name, kind[0]() if isinstance(kind, tuple) else kind()), kind), label
    return answer, labels


def stored_uncertainty(label):
    """Return what LabelResult.ToClassify stores: 20 without a confidence, else rounded half to even."""
    confidence = label.get("confidence", 0)
    return 20 if confidence <= 0 else round(100 - confidence * 100)


@pytest.mark.parametrize("number", [0, 1, 6, 7])
def test_a_photo_gets_the_users_own_tags_with_uncertainties_that_photoprism_can_store(service, tiny, number):
    answer = post(service, as_photoprism_asks(data_url(tiny.photos / f"{number:03d}.jpg")))
    assert answer.status_code == 200, answer.text
    read, labels = read_as_go(answer.text)
    assert read["id"] == str(uuid.UUID(int=7))
    assert read["code"] == 200
    assert read["model"]["type"] == "labels"
    assert {label["name"] for label in labels} <= {*KINDS, "rare one", "thing"}
    assert KINDS[number % 2] in [label["name"] for label in labels]
    assert KINDS[(number + 1) % 2] not in [label["name"] for label in labels]
    uncertainties = [stored_uncertainty(label) for label in labels]
    assert uncertainties == sorted(uncertainties)
    assert all(1 <= uncertainty < 100 for uncertainty in uncertainties)  # 0: a person said so; 100: it is not there


def test_labels_are_those_above_the_wanted_precision(service, tiny):
    body = as_photoprism_asks(data_url(tiny.photos / "006.jpg"))
    some = {label["name"] for label in read_as_go(post(service, body).text)[1]}
    many = {label["name"] for label in read_as_go(post(service, body, f"{ADDRESS}?precision=0.05").text)[1]}
    assert some <= many
    assert KINDS[0] in many
    assert post(service, body, f"{ADDRESS}?precision=2").status_code == 422


def test_parts_of_one_photo_give_each_label_once_with_its_highest_confidence(service, tiny):
    parts = [data_url(tiny.photos / f"{number:03d}.jpg") for number in (0, 2, 1)]
    alone = {}
    for part in parts:
        for label in read_as_go(post(service, as_photoprism_asks(part)).text)[1]:
            alone[label["name"]] = max(alone.get(label["name"], 0), label["confidence"])
    _, labels = read_as_go(post(service, as_photoprism_asks(*parts)).text)
    assert {label["name"]: label["confidence"] for label in labels} == pytest.approx(alone, abs=1e-3)


def test_a_run_without_confidences_sends_its_best_few_and_leaves_the_confidence_to_photoprism():
    labels = merge_labels([[Tag(f"tag {number}", float(-number)) for number in range(2 * N_LABELS_WITHOUT_CONFIDENCE)]])
    assert [label["name"] for label in labels] == [f"tag {number}" for number in range(N_LABELS_WITHOUT_CONFIDENCE)]
    assert [stored_uncertainty(label) for label in labels] == [20] * N_LABELS_WITHOUT_CONFIDENCE


def test_nobody_but_a_person_is_as_sure_as_a_person():
    (label,) = merge_labels([[Tag("sea", 9.0, confidence=1.0)]])
    assert stored_uncertainty(label) == 1


def test_no_label_is_an_empty_list_which_changes_nothing_there_and_the_log_says_why(service, monkeypatch, caplog):
    monkeypatch.setattr("visterm.web.api.vision.merge_labels", lambda found, tree: [])
    answer = post(service, as_photoprism_asks(png(Image.new("RGB", (8, 8)))))
    assert answer.status_code == 200
    assert read_as_go(answer.text)[0]["result"] == {"labels": []}
    [why] = [record.getMessage() for record in caplog.records if record.name == "visterm.web"]
    assert why.startswith("PhotoPrism got no label for a photo: no tag of the run is sure enough")
    assert "set a lower ?precision= in the Uri" in why


def png(picture):
    content = BytesIO()
    picture.save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def test_more_of_what_photoprism_sends_is_accepted(service, tiny):
    more = {"options": {"temperature": 0.1}, "context": [1, 2], "system": "x", "prompt": "y", "normalize": "false"}
    answer = post(service, as_photoprism_asks(data_url(tiny.photos / "000.jpg"), **more))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (as_photoprism_asks(), 422, "no picture"),
        (as_photoprism_asks("https://photos.example/api/v1/dl/x"), 422, "--vision-host"),
        (as_photoprism_asks(url="http://169.254.169.254/latest"), 422, "--vision-host"),
        (as_photoprism_asks("/photoprism/originals/a.jpg"), 422, "FileScheme: data"),
        (as_photoprism_asks("file:///etc/passwd"), 422, "FileScheme: data"),
        (as_photoprism_asks("http://[half"), 422, "FileScheme: data"),
        (as_photoprism_asks("data:image/jpeg;base64,%%%"), 422, "not base64"),
        (as_photoprism_asks("data:image/jpeg;base64,AAAA"), 422, "can't be read"),
        (as_photoprism_asks(*["data:image/jpeg;base64,AAAA"] * 17), 422, "at most 16"),
        (as_photoprism_asks("data:image/jpeg;base64," + "A" * 2**25), 413, "at most"),
        (b'{"images": 3}', 422, "images"),
        (b"{", 422, "JSON"),
    ],
    ids=[
        "none", "https", "url", "path", "file", "half an address", "not base64", "no picture", "many", "large",
        "number", "half",
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_shape_that_photoprism_reads(service, body, status, says):
    answer = post(service, body)
    assert answer.status_code == status
    read, labels = read_as_go(answer.text)
    assert read["code"] == status
    assert says in read["error"]
    assert not labels


def test_one_part_that_cannot_be_read_leaves_the_others(service, tiny):
    answer = post(service, as_photoprism_asks("data:image/jpeg;base64,AAAA", data_url(tiny.photos / "000.jpg")))
    assert answer.status_code == 200, answer.text


def test_the_token_is_asked_for(service, tiny):
    body = as_photoprism_asks(data_url(tiny.photos / "000.jpg"))
    assert post(service, body, authorization="Bearer another token").status_code == 401
    assert post(service, body, authorization="").status_code == 401


def test_a_picture_is_fetched_from_a_host_that_was_allowed_and_redirections_are_not_followed(service, tiny, pictures):
    fetched = read_as_go(post(service, as_photoprism_asks(f"{pictures}/photo")).text)
    sent = read_as_go(post(service, as_photoprism_asks(data_url(tiny.photos / "000.jpg"))).text)
    assert fetched == sent
    answer = post(service, as_photoprism_asks(url=f"{pictures}/elsewhere"))
    assert answer.status_code == 422
    assert "answers 302" in read_as_go(answer.text)[0]["error"]


def test_no_other_port_of_an_allowed_host_is_reached(service):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = post(service, as_photoprism_asks(f"http://127.0.0.1:{port}/photo"))
        assert f"--vision-host 127.0.0.1:{port}" in read_as_go(answer.text)[0]["error"]
        assert answer.status_code == 422
        other.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody connected
            other.accept()


@pytest.mark.parametrize("port", ["0", "65536", "99999999999999999999", "-1", "x", "8080x", "80:80", "\u0661"])
def test_a_port_that_is_none_is_refused(service, port):
    answer = post(service, as_photoprism_asks(f"http://127.0.0.1:{port}/photo"))
    assert answer.status_code == 422
    assert "neither a data: address with base64 nor one of a server" in read_as_go(answer.text)[0]["error"]


@pytest.mark.parametrize(
    ("host", "origins"),
    [
        ("Photos.Home", {"http://photos.home:80", "https://photos.home:443"}),
        ("photos.home:2342", {"http://photos.home:2342", "https://photos.home:2342"}),
        ("::1", {"http://::1:80", "https://::1:443"}),
        ("[::1]:2342", {"http://::1:2342", "https://::1:2342"}),
    ],
)
def test_a_host_without_a_port_is_one_of_the_usual_ports(host, origins):
    assert Access.of("127.0.0.1", vision_hosts=[host]).fetched_hosts == origins


@pytest.mark.parametrize(
    "host", ["", "http://photos.home", "photos.home/", "a@b", "a b", "a:0", "a:65536", "a:x", "[a"]
)
def test_what_is_no_host_with_a_port_is_refused_when_the_service_starts(host):
    with refused("vision_host", value=host):
        Access.of("127.0.0.1", vision_hosts=[host])


def test_an_address_is_at_the_port_that_it_names_or_at_that_of_its_scheme():
    addresses = ("http://a/x", "https://A:443", "http://a:443", "http://b@a", "http://[::1]/", "http://a:", "ftp://a")
    assert [origin_of(address) for address in addresses] == [
        "http://a:80", "https://a:443", "http://a:443", "http://a:80", "http://::1:80", "http://a:80", None,
    ]  # fmt: skip


@pytest.fixture
def held_back():
    """Let /late and /drip answer only at the end of the test, or earlier."""
    Pictures.go_on.clear()
    Pictures.paths.clear()
    yield Pictures.go_on
    Pictures.go_on.set()


def test_pictures_of_few_requests_are_fetched_at_once_a_few_wait_and_others_are_refused(tiny, pictures, held_back):
    with started(tiny, pictures, fetchers=2, fetching=5) as service:
        late = as_photoprism_asks(*[f"{pictures}/late"] * 3)
        fetching = [in_thread(lambda: post(service, late)) for _ in range(5)]
        wait_for(lambda: service.app.state.service.fetching.waiting.value == 5 and len(Pictures.paths) == 2)
        refused = post(service, late)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "5 requests for fetch" in read_as_go(refused.text)[0]["error"]
        sent = post(service, as_photoprism_asks(data_url(tiny.photos / "000.jpg")))
        assert sent.status_code == 200  # what was sent is decoded and tagged meanwhile
        assert len(Pictures.paths) == 2
        held_back.set()
        for thread, answers in fetching:
            thread.join(PATIENCE)
            assert answers[0].status_code == 200


def test_a_dozen_dripping_answers_keep_no_other_picture_from_being_fetched(service, pictures, held_back):
    dripping = [in_thread(lambda: post(service, as_photoprism_asks(f"{pictures}/drip"))) for _ in range(12)]
    wait_for(lambda: len(Pictures.paths) == 12)
    assert post(service, as_photoprism_asks(f"{pictures}/photo")).status_code == 200
    held_back.set()
    for thread, answers in dripping:
        thread.join(PATIENCE)
        assert answers[0].status_code == 422  # no picture


def test_an_answer_that_drips_is_given_up(tiny, pictures, held_back):
    with started(tiny, pictures, fetch_seconds=0.2) as service:
        answer = post(service, as_photoprism_asks(f"{pictures}/drip"))
    assert answer.status_code == 503
    assert "gives no answer" in read_as_go(answer.text)[0]["error"]


def test_all_pictures_of_a_request_share_its_time_and_its_bytes(monkeypatch):
    now, allowed = [0.0], []

    def ask(address, *, patience, limit):
        allowed.append((patience.timeout, patience.retries, limit))
        now[0] += 8
        return ServerAnswer(200, b"123")

    monkeypatch.setattr(vision, "ask", ask)
    monkeypatch.setattr(vision, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert vision._fetch(["a", "b", "c"], Bounds(fetch_seconds=20, fetch_bytes=10)) == [b"123"] * 3
    assert allowed == [(20, 0, 10), (12, 0, 7), (4, 0, 4)]


def test_bytes_that_are_fetched_have_a_limit_and_count_until_the_request_is_answered(tiny, pictures):
    n_bytes = len(Pictures.photo)
    addresses = [f"{pictures}/photo"] * 3
    with started(tiny, pictures, fetch_bytes=2 * n_bytes) as service:
        assert post(service, as_photoprism_asks(*addresses[:2])).status_code == 200
        assert f"more than {0:,} bytes" in post(service, as_photoprism_asks(*addresses)).json()["error"]
    with started(tiny, pictures, body_bytes=2 * n_bytes) as service:
        bodies, answers = service.app.state.service.bodies, []
        assert post(service, as_photoprism_asks(addresses[0])).status_code == 200
        assert bodies.n_bytes.total == 0
        answers = post(service, as_photoprism_asks(*addresses))
        assert (answers.status_code, bodies.n_bytes.total, bodies.n_refused.total) == (503, 0, 1)
        assert "are being received" in answers.json()["error"]
