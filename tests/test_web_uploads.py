"""Damaged pictures sent to the service: each is tagged or refused with a reason, none is an error, no decoder dies."""

from __future__ import annotations

import asyncio
from io import BytesIO

import pytest
from PIL import Image
from starlette.testclient import TestClient

from fuzzed_files import case, sound_files
from tiny_catalogue import make_tiny_catalogue
from visterm.core.errors import ImageError
from visterm.web import decoding
from visterm.web.app import create_app
from visterm.web.decoding import DECODER_DIED, Decoders
from visterm.web.decoding_process import PIXELS

HERE = "http://127.0.0.1:8080"
TOGETHER = 10
MEGABYTES = 2**20


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    tiny = make_tiny_catalogue(tmp_path_factory.mktemp("uploads"))
    with TestClient(create_app(tiny.folder), base_url=HERE) as client:
        yield client


def send_all(service, first, end):
    """Send cases some at a time; give how many were tagged and how many refused."""
    tagged = refused = 0
    for start in range(first, end, TOGETHER):
        cases = [case(number) for number in range(start, min(start + TOGETHER, end))]
        parts = [("image", (f"{start + i}", each.content)) for i, each in enumerate(cases)]
        answer = service.post("/api/v1/annotate?k=1", files=parts)
        assert answer.status_code in (200, 422), (start, answer.text)
        if answer.status_code == 200:
            told = answer.json()
            assert len(told["images"]) + len(told["skipped"]) == len(cases)
            assert all(item["reason"] for item in told["skipped"])
            tagged += len(told["images"])
            refused += len(told["skipped"])
        else:
            assert answer.json()["error"]["code"] == "unreadable_image", answer.text
            refused += len(cases)
    return tagged, refused


def test_damaged_pictures_are_tagged_or_refused(service):
    died = service.app.state.service.decoders.n_died.value
    tagged, refused = send_all(service, 0, 200)
    assert tagged + refused == 200
    assert tagged > 20
    assert refused > 20
    assert service.app.state.service.decoders.n_died.value == died
    assert service.get("/api/v1/health").status_code == 200


@pytest.mark.slow
def test_two_thousand_damaged_pictures_are_tagged_or_refused(service):
    died = service.app.state.service.decoders.n_died.value
    assert sum(send_all(service, 200, 2200)) == 2000
    assert service.app.state.service.decoders.n_died.value == died


def ask_all(decoders, pictures):
    """Have pictures decoded one after the other, and give their shapes or the errors."""

    async def ask():
        found = []
        for picture in pictures:
            try:
                found.append((await decoders.pixels(picture, None)).shape)
            except ImageError as error:
                found.append(error.reason)
        return found

    try:
        return asyncio.run(ask())
    finally:
        decoders.close()


@pytest.fixture
def sound():
    return sound_files()["png"]


def test_a_picture_that_kills_its_decoder_is_refused_and_the_next_one_is_read(monkeypatch, sound):
    decoders = Decoders(1, 4, memory_bytes=1536 * MEGABYTES, max_pixels=10_000_000, seconds=20)
    exchange = decoding._exchange

    def killing(process, header, content):
        if content == b"killer":
            process.kill()
        return exchange(process, header, content)

    monkeypatch.setattr(decoding, "_exchange", killing)
    assert ask_all(decoders, [sound, b"killer", sound]) == [(48, 32, 3), DECODER_DIED, (48, 32, 3)]  # its EXIF turns it
    assert decoders.n_died.value == 1


def test_a_decoder_that_takes_too_long_is_killed(monkeypatch, sound):
    decoders = Decoders(1, 4, memory_bytes=1536 * MEGABYTES, max_pixels=10_000_000, seconds=0.2)
    exchange = decoding._exchange

    def waiting(process, header, content):  # it is told of more bytes than come, so that it waits for ever
        return exchange(process, decoding.REQUEST.pack(PIXELS, False, 0, 10**6), content)

    monkeypatch.setattr(decoding, "_exchange", waiting)
    assert ask_all(decoders, [sound]) == [DECODER_DIED]
    assert decoders.n_died.value == 1


def test_a_decoder_has_no_more_memory_than_it_is_given():
    large = BytesIO()
    Image.new("RGB", (9000, 9000)).save(large, "PNG")  # 243 MB of pixels
    decoders = Decoders(1, 4, memory_bytes=400 * MEGABYTES, max_pixels=100_000_000, seconds=20)
    (told,) = ask_all(decoders, [large.getvalue()])
    assert "memory" in told or told == DECODER_DIED


def test_too_many_pixels_are_refused_before_they_are_decoded(sound):
    decoders = Decoders(1, 4, memory_bytes=1536 * MEGABYTES, max_pixels=48 * 32 - 1, seconds=20)
    (told,) = ask_all(decoders, [sound])
    assert told.startswith("decompression bomb")
