"""Requests to other programs' servers end by their time and their size, whatever a server sends, and how slowly."""

from __future__ import annotations

import base64
import html
import json
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import quote

import pytest

from visterm.connectors.json_answers import JsonServer
from visterm.core import web_client
from visterm.core.errors import ServiceError
from visterm.core.web_client import MAX_EXCERPT_LENGTH, MAX_OVERHEAD_BYTES, Patience, ServerAnswer, ask, excerpt

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "status line": (b"HTTP/1.1 20", b"0"),
    "header": (OK + b"X: ", b"a"),
    "headers": (OK, b"X: a\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers of 100 Continue": (b"HTTP/1.1 100 Continue\r\n", b"X: a\r\n"),
    "body": (OK + b"\r\n", b"a"),
    "size of a chunk": (CHUNKED, b"0"),
    "extension of a chunk": (CHUNKED + b"5;", b"a"),
    "chunk": (CHUNKED + b"fffffff\r\n", b"a"),
    "chunks": (CHUNKED, b"1\r\na\r\n"),
    "trailer": (CHUNKED + b"0\r\nX: ", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"X: a\r\n"),
}
HANDSHAKE = (b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc", b"\0")  # The beginning of a ServerHello of 16 kB


@contextmanager
def endless(first, then, *, pause=0.0, reads=True, times=1):
    """Serve connections that begin with some bytes, and send others, if any, again and again until they break.

    Yields the port, and an event that is set when the last one broke.
    """
    broke = threading.Event()

    def serve():
        for _ in range(times):
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                if reads:
                    connection.recv(2**16)
                connection.sendall(first)
                while then is not None and not stop.wait(pause):
                    connection.sendall(then)
        broke.set()

    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], broke
        finally:
            stop.set()
            thread.join(60)


def patience(seconds):
    return Patience(timeout=seconds, retries=0)


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_that_drips_ends_with_its_time(kind):
    first, then = ENDLESS[kind]
    with endless(first, then, pause=0.01) as (port, broke):
        with pytest.raises(ServiceError, match=r"gives no answer: timed out after 0\.3 s"):
            ask(f"http://127.0.0.1:{port}/", patience=patience(0.3))
        assert broke.wait(60)


def test_a_handshake_that_drips_ends_with_its_time():
    first, then = HANDSHAKE
    with endless(first, then, pause=0.01) as (port, broke):
        with pytest.raises(ServiceError, match=r"gives no answer: .*timed out"):
            ask(f"https://127.0.0.1:{port}/", patience=patience(0.3))
        assert broke.wait(60)


def test_a_connection_is_closed_where_its_time_ends_before_the_handshake(monkeypatch):
    context = ssl.create_default_context()
    monkeypatch.setattr(ssl, "create_default_context", lambda: time.sleep(0.4) or context)
    with endless(b"", b"a", pause=0.01, reads=False) as (port, broke):
        with pytest.raises(ServiceError, match=r"gives no answer: .*timed out") as raised:
            ask(f"https://127.0.0.1:{port}/", patience=patience(0.3))
        assert broke.wait(60)
    assert raised.value.__cause__ is not None  # which holds what was open


def test_a_server_that_takes_no_request_ends_with_its_time():
    with (
        endless(b"", b"", pause=0.01, reads=False) as (port, _),
        pytest.raises(ServiceError, match=r"gives no answer: timed out after 0\.3 s"),
    ):
        ask(f"http://127.0.0.1:{port}/", body=bytes(2**26), patience=patience(0.3))


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_ends_with_its_size(kind):
    """Each is refused in one try of an hour: no line, number of headers or number of bytes has no bound."""
    first, then = ENDLESS[kind]
    with endless(first, then * 10_000) as (port, broke):
        with pytest.raises(
            ServiceError, match=r"answers with more than 1,000 bytes|got more than|too long|gives no ans"
        ):
            ask(f"http://127.0.0.1:{port}/", patience=patience(3600), limit=1000)
        assert broke.wait(60)


def test_what_comes_with_an_answer_has_a_bound_of_its_own():
    content = b"x" * 1000
    chunks = b"".join(b"1;%s\r\nx\r\n" % (b"a" * (MAX_OVERHEAD_BYTES // 2000)) for _ in content) + b"0\r\n\r\n"
    with endless(CHUNKED + chunks, None) as (port, _):
        answer = ask(f"http://127.0.0.1:{port}/", patience=patience(3600), limit=1000)
    assert answer.content == content
    with (
        endless(CHUNKED + chunks.replace(b"a", b"aaa"), None) as (port, _),
        pytest.raises(ServiceError, match="answers with more than 1,000 bytes"),
    ):
        ask(f"http://127.0.0.1:{port}/", patience=patience(3600), limit=1000)


@pytest.mark.parametrize("first", [b"HTTP/9.9 %s", b"%s", OK + b"Transfer-Encoding: chunked\r\n\r\n%s\r\n"])
def test_a_secret_that_a_server_repeats_out_of_place_is_not_shown(first, monkeypatch):
    monkeypatch.setattr(web_client, "SECONDS_BEFORE_REPORT", 0.0)
    monkeypatch.setattr(web_client, "_silent_servers", set())
    secret = "a-secret-that-went-with-the-request"
    for n in (0, 250, 280):
        lines = []
        patient = Patience(20.0, 1, 0.0, say=lines.append)
        with (
            endless(first % (b"-" * n + secret.encode()) + b"\r\n\r\n", None, times=2) as (port, _),
            pytest.raises(ServiceError, match="gives no answer") as raised,
        ):
            ask(f"http://127.0.0.1:{port}/{secret}", patience=patient, secrets=(secret,))
        assert len(lines) == 1
        assert not [text for text in (str(raised.value), str(raised.value.__cause__), *lines) if secret[:9] in text]


SECRET = 'k3y/with+"all"\\kinds=of%signs&é'


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        "".join(f"\\u{ord(letter):04X}" for letter in SECRET),
        SECRET.replace("/", "\\/"),
        quote(SECRET),
        quote(SECRET, safe="").lower(),
        html.escape(SECRET),
        "".join(f"&#{ord(letter)};" for letter in SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.upper(),
    ],
)
def test_a_secret_is_not_shown_in_other_spellings_either(written):
    for n in (0, MAX_EXCERPT_LENGTH - 8, MAX_EXCERPT_LENGTH):
        answer = ServerAnswer(400, f"{'-' * n}<{written}>".encode(), secrets=(SECRET,))
        assert answer.text == f"{'-' * n}<(secret)>"[:MAX_EXCERPT_LENGTH] + (
            " ..." if n + 10 > MAX_EXCERPT_LENGTH else ""
        )


@pytest.mark.parametrize("text", ["k3y" * 20_000, "\\" * 60_000, "&#0" * 20_000, " " * 60_000])
def test_no_text_takes_long_to_be_searched_for_a_secret(text):
    assert "(secret)" not in excerpt(text, (SECRET, "k3y" * 30 + "!", "\\" * 30 + "!", "&#" * 30 + "!"))


def test_a_key_that_comes_back_in_escapes_is_no_value():
    server = JsonServer("Immich", "http://host", "a-key-of-20-letters/", {})
    answer = ServerAnswer(200, rb'{"tag": "\u0061-key-of-20-letters\/", "\ud800": ["a\/b"]}', secrets=(server.key,))
    assert server.parse(answer, "GET /x") == {"tag": "(secret)", "\ufffd": ["a/b"]}
