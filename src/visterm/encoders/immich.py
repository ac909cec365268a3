"""Immich's machine-learning server as an encoder: photos and texts go there, and vectors of one space come back."""

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

SERVER = "VISTERM_IMMICH"  # The environment variable that names the server in place of `url`
MAX_SIDE = 1440  # Pixels of the longer side of the photos that are sent: Immich's own previews have as many
QUALITY = 95  # Of the JPEG that is sent, colours in full resolution
MOST_BYTES = 2**20  # Of an answer: 1,152 numbers of the widest model take 15 kB
MOST_WIDTH = 2**14
UNDER_WAY = 300.0  # Seconds after the answer to a photo for which work counts as under way: a server was there


@dataclass(kw_only=True, eq=False, repr=False)
class Immich(Encoder):
    """Vectors of photos from the machine-learning server of Immich, which also has vectors of texts.

    The server does what it does for Immich: it prepares the photo as the model wants it, and runs the model. Rows are
    the model's vectors divided by their length, so that products with `text_rows` are cosines. Nothing but photos, of
    at most 1,440 pixels a side, and texts is sent, and only to a server that was named when visterm was started.

    Parameters
    ----------
    url : str, optional
        The server's address: ``http://host:3003``. The environment variable VISTERM_IMMICH replaces it, for runs whose
        server has moved. Where neither is there, it is the address that was in use at the fit.
    model : str
        The model, as Immich names it in its settings of smart search; the server downloads it at its first use.
    at_once : int
        Photos or texts that the server works on at the same time.
    timeout : float
        Seconds that an answer may take; the first one waits for the model.
    retries : int
        How often a photo is sent again, where the server cannot be reached, answers too late or with a status from 500
        on; texts, for which somebody waits, at most once. A connection that is refused is tried again only for photos
        whose work is under way.
    wait : float
        Seconds before the first of these; before each other one twice as many as before the last, at most 30.
    batch_size : int
        Photos held in memory at a time.
    n_jobs : int, optional
        Threads that decode photos; None is all cores.

    Attributes
    ----------
    width_ : int
        Numbers of a row. With the model's name it is all that names the output, as the server says no more of a model.
    server_ : str
        The address that was in use.
    """

    argument = "url"
    speed_params = ("url", "at_once", "timeout", "retries", "wait", "batch_size", "n_jobs")
    location_attributes = ("server_",)
    test_params: ClassVar[dict[str, object]] = {"retries": 1, "wait": 0.01}

    learned: ClassVar[dict[str, Kind]] = {"width_": Whole(least=1, most=MOST_WIDTH), "server_": Text()}

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
        """One column a number of the model's vectors."""
        return getattr(self, "width_", None)

    @property
    def reads_texts(self) -> bool:
        """Every model of smart search has a text tower."""
        return True

    @property
    def text_fingerprint(self) -> str:
        """Return a hash of the model's name, by which the server knows it."""
        return hashlib.sha256(f"immich {self.model}".encode()).hexdigest()

    def text_rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts from the same model, of length 1, shape (n_texts, width); no `fit` is needed.

        Raises UserError if a text is empty; ServiceError as `encode` does.
        """
        if empty := [text for text in texts if not text.strip()]:
            raise UserError(f"A text is {empty[0]!r}.", setting="texts", value=empty[0], expected="at least a letter")
        return self._rows(len(texts), lambda i: ("textual", "text", texts[i].encode("utf-8", "replace")))

    def check_settings(self) -> None:
        """Ask the server for one vector: what it cannot do is then known.

        Raises UserError if a setting is out of its range; ServiceError if there is no such server, or no such model.
        """
        super().check_settings()
        server = self._server()
        answer = self._ask(f"{server}/ping")
        if answer.status != 200 or answer.content.strip() != b"pong":
            raise ServiceError(
                f"{server} is not Immich's machine-learning server: GET /ping gives {answer.status}, "
                f"'{answer.shown[:60]}', and not 'pong'. That server's port is 3003, the one of Immich itself 2283."
            )
        self._vector("visual", "image", _jpeg(np.full((32, 32, 3), 128, np.uint8)), patient=False)

    def check_allowed(self) -> None:
        """Raise UserError if nobody has named the server."""
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

    def _rows(self, n: int, item: Callable[[int], tuple[str, str, bytes]]) -> NDArray[np.float32]:
        """Return the vectors of `n` things, each of length 1; `item` gives what `_vector` takes of each."""
        self._check_params()
        rows: list[NDArray[np.float32]] = []
        if n:
            with Team(min(self.at_once, n)) as team:
                rows = team.run(lambda i: self._vector(*item(i)), n)
        width = getattr(self, "width_", len(rows[0]) if rows else 0)
        if wrong := [len(row) for row in rows if len(row) != width]:
            raise ShapeError(
                f"The model '{self.model}' of {self._server()} gives {wrong[0]} numbers, and {width} were expected: "
                "the server's models have changed. Fit again."
            )
        return unit_rows(np.array(rows, np.float32).reshape(n, width))

    def _vector(self, kind: str, name: str, content: bytes, *, patient: bool = True) -> NDArray[np.float32]:
        """Return the vector of one photo ("visual", "image") or text ("textual", "text").

        Unless `patient`, nobody has to wait for a server that is down.
        """
        photo = kind == "visual"
        server = self._server("photos" if photo else "words")
        entries = json.dumps({"clip": {kind: {"modelName": self.model, "options": {}}}})
        boundary = f"visterm-{secrets.token_hex(16)}"  # which is in no photo
        body = _form(boundary, [("entries", entries.encode()), (name, content)])
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Accept": "application/json"}
        answer = self._ask(f"{server}/predict", body, headers, patient=patient and photo)
        if answer.status != 200:
            reply, advice = answer.shown or "nothing said", _WHICH
            if answer.status >= 500:
                advice = (
                    "It does so for names that it does not know, and where it cannot download a model: see its log, "
                    "and take a name from Immich's settings of smart search: `encoder.model`=NAME."
                )
            problem = f"{server} refuses the model '{self.model}' (status {answer.status}: {reply})."
            raise ServiceError(problem, setting="model", value=self.model, advice=advice)

        if patient and photo:
            self._answered = time.monotonic()
        try:
            vector = json.loads(answer.content)["clip"]
            with np.errstate(over="ignore"):
                row = np.asarray(json.loads(vector) if isinstance(vector, str) else vector, np.float32)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ServiceError(f"{server} answers with no vector ({answer.shown[:80]}). {_WHICH}") from error

        if row.ndim != 1 or not 0 < len(row) <= MOST_WIDTH:
            raise ServiceError(f"{server} answers with an array of shape {row.shape}; expected a vector. {_WHICH}")
        if not (patient and photo) and not np.isfinite(row).all():  # such a photo is left out
            raise ServiceError(f"{server} answers with a vector that holds NaN or infinity. {_WHICH}")
        return row

    def _server(self, sent: str = "photos") -> str:
        """Return the address of the server: from the environment, from `url` or, of a run, the one that it was.

        Raises UserError if there is none, or nobody named it, so that nothing (`sent`) may go there.
        """
        if named := os.environ.get(SERVER):
            return server_address(named, SERVER)
        url = getattr(self, "server_", None) if self.url is None else self.url
        if url is None:
            advice = f"Name it: `encoder` immich:http://host:3003, or {SERVER}=http://host:3003 in the environment."
            raise UserError("immich needs the address of a server.", setting="url", advice=advice)
        server = server_address(url, "url")
        if not is_named(server):
            advice = f"If you trust it: {SERVER}={server} visterm ..."
            raise UserError(f"This run would send your {sent} to {server}.", setting="url", value=server, advice=advice)
        return server

    def _ask(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, patient: bool = False
    ) -> ServerAnswer:
        under_way = patient and time.monotonic() - getattr(self, "_answered", -UNDER_WAY) < UNDER_WAY
        patience = Patience(self.timeout, self.retries if patient else min(self.retries, 1), self.wait, under_way)
        return ask(url, body=body, headers=headers, patience=patience, most=MOST_BYTES)


_WHICH = "Is it the machine-learning server of a recent Immich?"


def _jpeg(pixels: Pixels) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=QUALITY, subsampling=0)
    return buffer.getvalue()


def _form(boundary: str, fields: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a form of RFC 7578; the field "image" is a file."""
    parts = []
    for name, content in fields:
        file = '; filename="photo.jpg"\r\nContent-Type: image/jpeg' if name == "image" else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()
