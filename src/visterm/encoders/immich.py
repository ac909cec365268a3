"""Immich's machine-learning server as an encoder: turns photos and texts into vectors of one space."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.checks import check_count, check_number
from visterm.core.errors import ServiceError, ShapeError, UserError
from visterm.core.learned import Kind, Text, Whole
from visterm.core.progress import Progress
from visterm.core.remote import is_named
from visterm.core.threads import Team
from visterm.core.web_client import Patience, ServerAnswer, ask, server_address
from visterm.encoders.base import Encoder, Images, Pixels
from visterm.encoders.word_rows import unit_rows

SERVER_ENV = "VISTERM_IMMICH"  # The environment variable that overrides `url`
MAX_SIDE = 1440  # Maximum side of the photos that are sent, in pixels, as in Immich's own previews
JPEG_QUALITY = 95  # Quality of the JPEG files that are sent, with colours in full resolution
MAX_ANSWER_BYTES = 2**20  # Maximum size of an answer: the 1,152 numbers of the widest model take 15 kB
MAX_WIDTH = 2**14
RETRY_SECONDS = 300.0  # Retry refused connections for this time after an answer


@dataclass(kw_only=True, eq=False, repr=False)
class Immich(Encoder):
    """Vectors of photos from the machine-learning server of Immich, which also turns texts into vectors.

    As in Immich, the server prepares the photo for the model and runs the model. Rows are the model's vectors divided
    by their length, so that products with `text_rows` are cosines. Only photos, of at most 1,440 pixels per side, and
    texts are sent, and only to a server that was named when visterm was started.

    Parameters
    ----------
    url : str, optional
        The server's address: ``http://host:3003``. The environment variable VISTERM_IMMICH overrides it, for runs whose
        server has moved. If neither is set, the address from `fit` is used.
    model : str
        The model's name in Immich's settings of smart search; the server downloads the model at first use.
    at_once : int
        Number of photos or texts that are sent to the server at the same time.
    timeout : float
        Maximum time for an answer, in seconds; the first one includes loading the model.
    retries : int
        Maximum number of retries for a photo if the server cannot be reached, times out or answers with status 500 or
        above; at most one for texts, which users wait for. A refused connection is retried only for photos, and only if
        the server has answered recently.
    wait : float
        Seconds before the first retry; the time doubles with each retry, up to 30.
    batch_size : int
        Photos in memory at a time.
    n_jobs : int, optional
        Threads that decode photos; None is all cores.

    Attributes
    ----------
    width_ : int
        Numbers per row. Together with the model's name, it identifies the output: the server reports nothing else.
    server_ : str
        The address that was used by `fit`.
    """

    argument = "url"
    speed_params = ("url", "at_once", "timeout", "retries", "wait", "batch_size", "n_jobs")
    location_attributes = ("server_",)
    test_params: ClassVar[dict[str, object]] = {"retries": 1, "wait": 0.01}

    learned: ClassVar[dict[str, Kind]] = {"width_": Whole(least=1, most=MAX_WIDTH), "server_": Text()}

    url: str | None = None
    model: str = "ViT-B-32__openai"
    at_once: int = 4
    timeout: float = 120.0
    retries: int = 5
    wait: float = 1.0
    batch_size: int = 32
    n_jobs: int | None = None

    @property
    def width(self) -> int | None:
        """One column per number of the model's vectors."""
        return getattr(self, "width_", None)

    @property
    def reads_texts(self) -> bool:
        """Always True: every model of smart search has a text tower."""
        return True

    @property
    def text_fingerprint(self) -> str:
        """Return a hash of the model's name."""
        return hashlib.sha256(f"immich {self.model}".encode()).hexdigest()

    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts from the same model, of length 1, shape (n_texts, width); no `fit` is needed.

        Raises UserError if a text is empty; ServiceError as in `encode`.
        """
        if blanks := [text for text in texts if not text.strip()]:
            raise UserError(f"A text is {blanks[0]!r}.", setting="texts", value=blanks[0], expected="some text")
        return self._rows(len(texts), lambda i: ("textual", "text", texts[i].encode("utf-8", "replace")))

    def check_settings(self) -> None:
        """Check the settings, and request one vector from the server.

        Raises UserError if a setting is out of its range; ServiceError if the server or the model is not available.
        """
        super().check_settings()
        server = self._server()
        answer = self._ask(f"{server}/ping")
        if answer.status != 200 or answer.content.strip() != b"pong":
            raise ServiceError(
                f"{server} is not Immich's machine-learning server: GET /ping returns {answer.status}, "
                f"'{answer.text[:60]}', and not 'pong'. The port of that server is 3003, the port of Immich is 2283."
            )
        self._vector("visual", "image", _jpeg(np.full((32, 32, 3), 128, np.uint8)), patient=False)

    def check_allowed(self) -> None:
        """Raise UserError if the user has not named the server."""
        self._server()

    def _check_params(self) -> None:
        if self.url is not None:
            server_address(self.url, "url")
        if not isinstance(self.model, str) or not self.model.strip():
            raise UserError(setting="model", value=self.model, expected="a name such as 'ViT-B-32__openai'")
        check_count(self.at_once, "at_once")
        check_count(self.batch_size, "batch_size")
        check_number(self.timeout, "timeout", above=0, most=86_400)
        check_number(self.wait, "wait", least=0, most=3600)

        if self.retries != 0:
            check_count(self.retries, "retries", "or 0")
        check_number(self.retries, "retries", least=0, most=100)

    def _check_learned(self) -> None:
        server_address(self.server_, "server_")

    def _learns(self) -> bool:
        return False

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        server = self._server()
        self.width_ = len(self._vector("visual", "image", _jpeg(np.full((32, 32, 3), 128, np.uint8)), patient=False))
        self.server_ = server

    def _encode_batch(self, batch: list[Pixels]) -> NDArray[np.float32]:
        return self._rows(len(batch), lambda i: ("visual", "image", _jpeg(batch[i])))

    @property
    def _max_side(self) -> int:
        return MAX_SIDE

    def _rows(self, n: int, request: Callable[[int], tuple[str, str, bytes]]) -> NDArray[np.float32]:
        """Return the vectors of `n` photos or texts, of length 1; ``request(i)`` returns the arguments of `_vector`."""
        self._check_params()
        rows: list[NDArray[np.float32]] = []
        if n:
            with Team(min(self.at_once, n)) as team:
                rows = team.run(lambda i: self._vector(*request(i)), n)
        width = getattr(self, "width_", len(rows[0]) if rows else 0)
        if others := [len(row) for row in rows if len(row) != width]:
            raise ShapeError(
                f"The model '{self.model}' of {self._server()} returns {others[0]} numbers instead of {width}: the "
                "server's models have changed. Fit again."
            )
        return unit_rows(np.array(rows, np.float32).reshape(n, width))

    def _vector(self, kind: str, name: str, content: bytes, *, patient: bool = True) -> NDArray[np.float32]:
        """Return the vector of one photo (`kind` "visual", `name` "image") or text ("textual", "text").

        With `patient`, requests for photos are retried.
        """
        is_photo = kind == "visual"
        server = self._server("photos" if is_photo else "words")
        entries = json.dumps({"clip": {kind: {"modelName": self.model, "options": {}}}})
        boundary = f"visterm-{secrets.token_hex(16)}"  # does not occur in a photo
        body = _form(boundary, [("entries", entries.encode()), (name, content)])
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "application/json"}
        answer = self._ask(f"{server}/predict", body, headers, patient=patient and is_photo)
        if answer.status != 200:
            reply, advice = answer.text or "no message", _HINT
            if answer.status >= 500:
                advice = (
                    "The name is unknown to the server, or the server cannot download the model: see its log, and use "
                    "a name from Immich's settings of smart search: `encoder.model`=NAME."
                )
            problem = f"{server} refuses the model '{self.model}' (status {answer.status}: {reply})."
            raise ServiceError(problem, setting="model", value=self.model, advice=advice)

        if patient and is_photo:
            self._answered = time.monotonic()
        try:
            vector = json.loads(answer.content)["clip"]
            with np.errstate(over="ignore"):
                row = np.asarray(json.loads(vector) if isinstance(vector, str) else vector, np.float32)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ServiceError(f"{server} answers without a vector ({answer.text[:80]}). {_HINT}") from error

        if row.ndim != 1 or not 0 < len(row) <= MAX_WIDTH:
            raise ServiceError(f"{server} answers with an array of shape {row.shape}; expected a vector. {_HINT}")
        if not (patient and is_photo) and not np.isfinite(row).all():  # such photos are skipped later
            raise ServiceError(f"{server} answers with a vector that has NaN or infinity. {_HINT}")
        return row

    def _server(self, data: str = "photos") -> str:
        """Return the server's address: from the environment, from `url` or, for a run, from `fit`.

        Raises UserError if there is no address, or the user has not named it; `data` is what would be sent.
        """
        if address := os.environ.get(SERVER_ENV):
            return server_address(address, SERVER_ENV)
        url = getattr(self, "server_", None) if self.url is None else self.url
        if url is None:
            advice = f"Pass `encoder` immich:http://host:3003, or set {SERVER_ENV}=http://host:3003 in the environment."
            raise UserError("immich needs the address of a server.", setting="url", advice=advice)
        server = server_address(url, "url")
        if not is_named(server):
            advice = f"If you trust the server: {SERVER_ENV}={server} visterm ..."
            raise UserError(f"This run would send your {data} to {server}.", setting="url", value=server, advice=advice)
        return server

    def _ask(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, patient: bool = False
    ) -> ServerAnswer:
        has_answered = patient and time.monotonic() - getattr(self, "_answered", -RETRY_SECONDS) < RETRY_SECONDS
        patience = Patience(self.timeout, self.retries if patient else min(self.retries, 1), self.wait, has_answered)
        return ask(url, body=body, headers=headers, patience=patience, limit=MAX_ANSWER_BYTES)


_HINT = "Is it the machine-learning server of a recent Immich?"


def _jpeg(pixels: Pixels) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=JPEG_QUALITY, subsampling=0)
    return buffer.getvalue()


def _form(boundary: str, fields: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a multipart form (RFC 7578); the field "image" is a file."""
    parts = []
    for name, content in fields:
        file_header = '; filename="photo.jpg"\r\nContent-Type: image/jpeg' if name == "image" else ""
        header = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file_header}\r\n\r\n'
        parts.append(header.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()
