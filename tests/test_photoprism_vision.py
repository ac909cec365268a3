"""PhotoPrism's vision requests, built as its source builds them; answers are read as its Go structs read them."""

from __future__ import annotations

import base64
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from tiny_catalogue import KINDS, make_tiny_catalogue
from visterm.core.types import Tag
from visterm.models.confidence.calibration import Calibration, HeldOutChances
from visterm.web.api.vision import FEW, together, why_none
from visterm.web.app import create_app
from visterm.web.security import Access

HERE = "http://127.0.0.1:8080"
ADDRESS = "/api/v1/vision/labels"
TOKEN = "a token of letters"
LABEL = {
    "name": str, "source": str, "priority": int, "confidence": (int, float), "topicality": (int, float),
    "categories": list, "nsfw": bool, "nsfw_confidence": (int, float),
}  # fmt: skip
"""LabelResult of api_response.go."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("vision"), n_images=140)


@pytest.fixture(scope="module")
def service(tiny):
    access = Access.of("127.0.0.1", TOKEN, fetched=["127.0.0.1"])
    with TestClient(create_app(tiny.folder, access=access), base_url=HERE) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
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
    labels = together([[Tag(f"tag {number}", float(-number)) for number in range(2 * FEW)]])
    assert [label["name"] for label in labels] == [f"tag {number}" for number in range(FEW)]
    assert [stored_uncertainty(label) for label in labels] == [20] * FEW


def test_nobody_but_a_person_is_as_sure_as_a_person():
    (label,) = together([[Tag("sea", 9.0, confidence=1.0)]])
    assert stored_uncertainty(label) == 1


def test_no_label_is_an_empty_list_which_changes_nothing_there_and_the_log_says_why(service, monkeypatch, caplog):
    monkeypatch.setattr("visterm.web.api.vision.together", lambda found: [])
    answer = post(service, as_photoprism_asks(png(Image.new("RGB", (8, 8)))))
    assert answer.status_code == 200
    assert read_as_go(answer.text)[0]["result"] == {"labels": []}
    [why] = [record.getMessage() for record in caplog.records if record.name == "visterm.web"]
    assert re.match(r"PhotoPrism got no label .*: none of the \d+ tags that can have precision 0.9 is sure enough", why)
    assert "set a lower ?precision= in the Uri" in why


def test_that_no_tag_of_the_run_can_be_a_label_is_said_in_other_words():
    always_wrong = HeldOutChances.of(np.full((50, 2), 0.95), np.zeros((50, 2), bool), np.array([30, 30]))
    calibration = Calibration(np.ones(2), np.zeros(2), 0.0, 50, held_out=always_wrong)
    text, *numbers = why_none(SimpleNamespace(calibration=calibration), 0.9)
    assert "no tag of the run reaches precision 0.9 on held-out photos" in text % tuple(numbers)
    [why] = why_none(SimpleNamespace(calibration=None), 0.9)
    assert "none of its best tags has a photo that the run learned from" in why


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


@pytest.fixture
def pictures(tiny):
    """Serve a photo at /photo, and a redirection to it anywhere else; yield the address."""

    class Pictures(BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/photo"
            self.send_response(200 if found else 302)
            self.send_header("location", "/photo")
            self.end_headers()
            if found:
                self.wfile.write(min(tiny.photos.iterdir()).read_bytes())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_picture_is_fetched_from_a_host_that_was_allowed_and_redirections_are_not_followed(service, tiny, pictures):
    fetched = read_as_go(post(service, as_photoprism_asks(f"{pictures}/photo")).text)
    sent = read_as_go(post(service, as_photoprism_asks(data_url(tiny.photos / "000.jpg"))).text)
    assert fetched == sent
    answer = post(service, as_photoprism_asks(url=f"{pictures}/elsewhere"))
    assert answer.status_code == 422
    assert "answers 302" in read_as_go(answer.text)[0]["error"]
