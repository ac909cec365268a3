"""Immich's machine-learning server for tests: HTTP on the loopback address, as strict and as odd as the real one.

Checked against `machine-learning/immich_ml/main.py` of Immich: its routes, forms, statuses and texts. In place of
networks there is a picture of 4 x 4 colours times a matrix that is drawn by the model's name; a text that ends with the
name of a colour has the vector of a picture in that colour.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image, ImageColor

MODELS = {"ViT-B-32__openai": 512, "ViT-B-32-SigLIP2-256__webli": 768}
SOURCES = ("ViT-", "RN", "XLM-Roberta", "nllb")  # A name of another family is an exception that Immich does not catch


def image_vector(picture: Image.Image, model: str) -> np.ndarray:
    """Return what the server's model makes of a picture: float32, of any length."""
    colours = np.asarray(picture.convert("RGB").resize((4, 4), Image.Resampling.BOX), np.float32).ravel() / 255 - 0.5
    seed = int.from_bytes(hashlib.sha256(model.encode()).digest()[:8])
    return 3 * colours @ np.random.default_rng(seed).normal(size=(48, MODELS[model])).astype(np.float32)


def text_vector(text: str, model: str) -> np.ndarray:
    """Return what the server's model makes of a text."""
    try:
        return image_vector(Image.new("RGB", (8, 8), ImageColor.getrgb(text.rstrip(".").split()[-1])), model)
    except ValueError:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
        return np.random.default_rng(seed).normal(size=MODELS[model]).astype(np.float32)


class FakeImmichMl(ThreadingHTTPServer):
    """The server. `faults` are taken one a request to /predict; `predicted` lists what was asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = "http://{}:{}".format(*self.server_address)
        self.faults: list[Callable[[_Handler], None]] = []
        self.predicted: list[dict[str, object]] = []
        self.most_at_once = self._at_once = 0
        self.gate: threading.Barrier | None = None  # Where requests wait for each other
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request among those that run now."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def next_fault(self) -> Callable[[_Handler], None] | None:
        """Take the fault of this request, if there is one left."""
        with self._lock:
            return self.faults.pop(0) if self.faults else None

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that leave are part of the tests."""


@contextmanager
def immich_ml() -> Iterator[FakeImmichMl]:
    """Run the server in threads of this process."""
    with FakeImmichMl() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def status(code: int, text: str = "Internal Server Error") -> Callable[[_Handler], None]:
    """Return a fault: an answer of this status."""
    return lambda handler: handler.answer(code, text.encode(), "text/plain; charset=utf-8")


def json_answer(content: str) -> Callable[[_Handler], None]:
    """Return a fault: an answer that is not what the form asks for."""
    return lambda handler: handler.answer(200, content.encode(), "application/json")


def reset(handler: _Handler) -> None:
    """Break the connection: the client's next read fails."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.rfile.close()
    handler.wfile.close()
    handler.connection.close()


def cut_off(handler: _Handler) -> None:
    """Promise more than comes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"clip": "[0.1, ')
    handler.close_connection = True


def drip(stop: threading.Event) -> Callable[[_Handler], None]:
    """Return a fault: an answer that comes byte by byte, until `stop`."""

    def dripping(handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not stop.wait(0.02):
            handler.wfile.write(b" ")
        handler.close_connection = True

    return dripping


def hang(stop: threading.Event) -> Callable[[_Handler], None]:
    """Return a fault: no answer, until `stop`."""

    def hanging(handler: _Handler) -> None:
        stop.wait()
        handler.close_connection = True

    return hanging


class _RefusedError(Exception):
    """An answer that is no vector."""

    def __init__(self, code: int, content: object) -> None:
        super().__init__(code)
        self.code, self.content = code, content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeImmichMl

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def answer(self, code: int, content: bytes, kind: str = "application/json") -> None:
        """Send an answer."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        if self.path == "/ping":
            self.answer(200, b"pong", "text/plain; charset=utf-8")
        elif self.path == "/":
            self.answer(200, b'{"message":"Immich ML"}')
        else:
            self.answer(404, b'{"detail":"Not Found"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.counted():  # until the answer is sent: the client's next request may come before this returns
            if (fault := self.server.next_fault()) is None:
                answer = self._answer_to(body)
        if fault is not None:
            fault(self)
        else:
            self.answer(*answer)

    def _answer_to(self, body: bytes) -> tuple[int, bytes, str]:
        if self.server.gate is not None:
            self.server.gate.wait(600)
        try:
            if self.path != "/predict":
                raise _RefusedError(404, {"detail": "Not Found"})
            made = self._predict(_form_of(self.headers["Content-Type"], body))
        except _RefusedError as error:
            if isinstance(error.content, str):
                return error.code, error.content.encode(), "text/plain"
            return error.code, json.dumps(error.content).encode(), "application/json"
        return 200, json.dumps(made).encode(), "application/json"

    def _predict(self, form: dict[str, tuple[bool, bytes]]) -> dict[str, object]:
        if "entries" not in form or form["entries"][0]:
            raise _RefusedError(
                422, {"detail": [{"type": "missing", "loc": ["body", "entries"], "msg": "Field required"}]}
            )
        is_file, image = form.get("image", (True, b""))
        if not is_file:
            raise _RefusedError(422, {"detail": [{"type": "bytes_type", "loc": ["body", "image"]}]})
        text = form["text"][1].decode() if "text" in form else ""
        kind, name = _entry_of(form["entries"][1])
        if kind not in ("visual", "textual") or not name.startswith(SOURCES):
            raise _RefusedError(500, "Internal Server Error")
        if not image and not text:
            raise _RefusedError(400, {"detail": "Either image or text must be provided"})
        if name not in MODELS:
            raise _RefusedError(500, {"detail": f"Failed to load model '{name}'"})
        asked = {"kind": kind, "model": name, "text": text, "size": None}
        self.server.predicted.append(asked)
        if not image:
            return {"clip": _serialized(text_vector(text, name))}
        try:
            picture = Image.open(io.BytesIO(image))
            picture.load()
        except OSError as error:
            raise _RefusedError(500, "Internal Server Error") from error
        asked["size"] = picture.size
        vector = _serialized(image_vector(picture, name))
        return {"clip": vector, "imageHeight": picture.height, "imageWidth": picture.width}


def _serialized(vector: np.ndarray) -> str:
    """Return a vector as a JSON *string*, as Immich does; what is not finite becomes null, as by orjson."""
    return json.dumps([float(value) if np.isfinite(value) else None for value in vector], separators=(",", ":"))


def _entry_of(content: bytes) -> tuple[str, str]:
    """Return kind and model of ``{"clip": {kind: {"modelName": name}}}``; all else is refused as Immich does."""
    try:
        [(task, kinds)] = json.loads(content).items()
        [(kind, entry)] = kinds.items()
        name = entry["modelName"]
    except (ValueError, KeyError, AttributeError) as error:
        raise _RefusedError(422, {"detail": "Invalid request format."}) from error
    if task != "clip":
        raise _RefusedError(500, "Internal Server Error")
    return kind, name


def _form_of(content_type: str | None, body: bytes) -> dict[str, tuple[bool, bytes]]:
    """Return the fields of a multipart form: whether each is a file, and its content."""
    found = re.fullmatch(r'multipart/form-data; boundary="?([!-~]{1,70}?)"?', content_type or "")
    if found is None:
        raise _RefusedError(422, {"detail": [{"type": "missing", "loc": ["body", "entries"], "msg": "Field required"}]})
    mark = b"--" + found[1].encode()
    if not body.startswith(mark + b"\r\n") or not body.endswith(b"\r\n" + mark + b"--\r\n"):
        raise _RefusedError(400, {"detail": "There was an error parsing the body"})
    fields = {}
    for part in body[len(mark) + 2 : -len(mark) - 6].split(b"\r\n" + mark + b"\r\n"):
        head, blank, content = part.partition(b"\r\n\r\n")
        named = re.match(rb'Content-Disposition: form-data; name="(\w+)"(; filename="[^"]+")?(\r\n|$)', head)
        if not blank or named is None:
            raise _RefusedError(400, {"detail": "There was an error parsing the body"})
        fields[named[1].decode()] = (named[2] is not None, content)
    return fields
