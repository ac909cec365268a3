"""Requests to another program's server: answers are bounded in time and size, and passing failures are tried again."""

from __future__ import annotations

import base64
import html
import http.client
import io
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from visterm.core.errors import ServiceError, UserError
from visterm.core.progress import Say

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_BYTES = 2**24  # Of an answer, where the caller does not say otherwise
MOST_AROUND = 2**20  # Of headers, signs between chunks and all else that comes with an answer
MOST_CONNECTING = 10.0  # Seconds, at most, until an address answers: a computer that is off gives none
LONGEST_WAIT = 30.0  # Seconds between two tries, at most
LONGEST_SHOWN = 300  # Letters of an answer that a message repeats
MOST_READ = 2**14  # Letters in which these are looked for
SOON = 3.0  # Seconds of tries after which a message says that a server is waited for
PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that is starting, busy or behind a proxy that does not reach it."""
_PRINTED = re.compile("[!-~]+")  # No spaces, no letters beyond ASCII


class ServerAnswer(NamedTuple):
    """What a server answered."""

    status: int
    content: bytes
    wait: float = 0.0  # Seconds that the server asks to wait before the next try (Retry-After); 0: it does not say
    date: str = ""  # The server's clock (Date), as it writes it
    secrets: tuple[str, ...] = ()  # That went with the request: a server may repeat them, and messages don't

    @property
    def shown(self) -> str:
        """Return the beginning of the content in one line, for messages."""
        return in_short(self.content.decode("utf-8", "replace"), self.secrets)


def masked(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without secrets."""
    for secret in secrets:
        text = text.replace(secret, "(secret)")
    return text


def _spellings(letter: str) -> str:
    """Return a pattern of the ways in which a server writes a letter: as it is, in JSON, in an address, in HTML.

    No two of them begin with the same whole way: a search would try all their combinations.
    """
    n, plain, coded = ord(letter), re.escape(letter), quote(letter, safe="", errors="replace")
    escaped = () if letter == "\\" else (rf"\\{{1,4}}{plain}",)  # the next letter takes the second of two
    named = re.escape(html.escape(letter))
    ways = (plain, rf"\\u{n:04x}", rf"&#(?:{n}|x{n:x});", coded if n > 127 else f"%{n:02x}", named, *escaped)
    return f"(?:{'|'.join(dict.fromkeys(ways))})"


def in_short(text: str, secrets: tuple[str, ...]) -> str:
    """Return the beginning of what a server sent, in one line. Secrets go first: half of one is not recognised."""
    for secret in filter(None, secrets):
        coded = base64.b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")
        spelled = "".join(map(_spellings, secret))
        text = re.sub(f"{spelled}|{re.escape(coded)}=*", "(secret)", text[: 2 * MOST_READ], flags=re.IGNORECASE)
    text = " ".join(text[:MOST_READ].split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."


class Waiting:
    """Says in one line that a server fails and is waited for; the next time only after it has answered.

    Requests of several threads share it. `after` are the seconds from the first try on in which nothing is said.
    """

    def __init__(self, say: Say, after: float = SOON) -> None:
        self._say, self._after = say, after
        self._lock, self._said = threading.Lock(), False

    def failed(self, url: str, reason: str, *, waited: float, wait: float, remaining: int) -> None:
        """Take note of a try that failed `waited` seconds after the first one; the next comes in `wait` seconds."""
        with self._lock:
            if self._said or waited < self._after:
                return
            self._said = True
        parts = urlsplit(url)
        tries = "one more try" if remaining == 1 else f"{remaining} more tries"
        server, reason = f"{parts.scheme}://{parts.netloc}", reason.rstrip(".")
        self._say(f"Waiting for {server} ({reason}): {tries}, the next one in {wait:.0f} s.")

    def answered(self) -> None:
        """Take note of a good answer."""
        self._said = False


class Patience(NamedTuple):
    """How long a server is waited for."""

    timeout: float = 120.0  # Seconds for one try, from its connection to the end of its answer
    retries: int = 5  # Tries after the first one
    wait: float = 1.0  # Seconds before the second try; twice that before the third, and so on
    refused: bool = True  # Whether a connection that is refused is tried again: the server may be restarting
    waiting: Waiting | None = None  # Who says that it is tried again
    pause: Callable[[float], object] = time.sleep  # Lets seconds pass, where a server works for some time


def server_address(url: str, parameter: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises UserError if it is none of the form ``http://host:port`` (or ``https``, and with a path); messages name the
    `parameter`.
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) and _PRINTED.fullmatch(url) else None
        server = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, server = None, False
    if parts is None or not server or parts.query or parts.fragment or parts.username is not None:
        raise UserError(
            f"{parameter} is {url!r}",
            setting="url",
            value=url,
            expected="the address of a server, such as http://host:3003",
        )
    return url.rstrip("/")


def ask(
    url: str,
    *,
    method: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    patience: Patience = Patience(),  # noqa: B008 (it is a tuple)
    most: int = MOST_BYTES,
    secrets: tuple[str, ...] = (),
) -> ServerAnswer:
    """Return the answer to a request, whatever its status is; without a `method`, to a GET, or with a `body` to a POST.

    Connections that break or, unless `patience` says no, are refused, timeouts and the statuses `PASSING` are tried
    again, after as long as the server asks for, at most `LONGEST_WAIT`; a request that must not be done twice wants no
    `retries`. Redirections are not followed, and no proxy is used. The caller knows that somebody named the server
    (`visterm.core.remote.is_named`). No message shows `secrets`. Raises ServiceError if it cannot be reached, or
    its answer is larger than `most` bytes.
    """
    began, address = time.monotonic(), masked(url, secrets)
    for attempt in range(patience.retries + 1):
        server_wait = 0.0
        last = attempt == patience.retries
        try:
            answer = _try_once(url, method, body, headers or {}, patience.timeout, most)._replace(secrets=secrets)
        except _TooManyBytesError:
            raise ServiceError(f"{address} answers with more than {most:,} bytes; expected fewer.") from None
        except ssl.SSLCertVerificationError as error:
            raise ServiceError(f"The certificate of {address} is not trusted: {error.verify_message}.") from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = in_short(str(error) or type(error).__name__, secrets)
            if last or (isinstance(error, ConnectionRefusedError) and not patience.refused):
                tries = f" ({attempt + 1} tries)" if attempt else ""
                text = f"{address} gives no answer: {reason.rstrip('.')}{tries}. Check the address, and that it runs."
                raise ServiceError(text) from (None if secrets else error)
        else:
            if last or answer.status not in PASSING:
                if patience.waiting is not None and answer.status not in PASSING:
                    patience.waiting.answered()
                return answer
            server_wait, reason = answer.wait, f"it answers {answer.status}"
        seconds = min(max(patience.wait * 2**attempt, server_wait), LONGEST_WAIT)
        if patience.waiting is not None:
            waited, remaining = time.monotonic() - began, patience.retries - attempt
            patience.waiting.failed(address, reason, waited=waited, wait=seconds, remaining=remaining)
        time.sleep(seconds)

    raise AssertionError("the last try returns or raises")


def _try_once(
    url: str, method: str | None, body: bytes | None, headers: Mapping[str, str], timeout: float, most: int
) -> ServerAnswer:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    until = time.monotonic() + timeout
    connection, sock = _connected(parts, until)

    with sock:
        connection.sock = _BoundedSocket(sock, until, most + MOST_AROUND)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, {"Connection": "close", **headers}
            )
            response = connection.getresponse()
            content = bytearray()
            while part := response.read1(2**16):
                content += part
                if len(content) > most:
                    raise _TooManyBytesError
        except TimeoutError as error:
            raise TimeoutError(f"timed out after {timeout:g} s") from error
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        after = response.getheader("Retry-After", "").strip()
        wait = float(after) if re.fullmatch("[0-9]{1,6}", after) else 0.0  # of a date too, as clocks differ
        return ServerAnswer(response.status, bytes(content), wait, response.getheader("Date", ""))


def _connected(parts: SplitResult, until: float) -> tuple[http.client.HTTPConnection, socket.socket]:
    """Connect to the first address of a server that answers. How long a name is looked up is the system's matter."""
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    sock = socket.create_connection((host, port), min(MOST_CONNECTING, until - time.monotonic()))
    if not secure:
        return http.client.HTTPConnection(host, port), sock
    try:
        context = ssl.create_default_context()  # which reads a file, for long on a busy machine
        wrapped = context.wrap_socket(_in_time(sock, until), server_hostname=host)
    except BaseException:
        sock.close()
        raise
    return http.client.HTTPSConnection(host, port, context=context), wrapped


def _in_time(sock: socket.socket, until: float) -> socket.socket:
    """Return a socket whose next step ends at a time. Raises TimeoutError if that is over."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(seconds)
    return sock


class _TooManyBytesError(Exception):
    """A server sends more than its answer may have, with all that is around it."""


class _BoundedSocket(io.RawIOBase):
    """What http.client takes for a socket, whose steps all end at one time, and which reads `most` bytes.

    A socket's own timeout begins again with every byte: a status line, headers, chunks, trailers or "100 Continue" that
    drip, or have no end, hold a reader for ever.
    """

    def __init__(self, sock: socket.socket, until: float, most: int) -> None:
        self._sock, self._until, self._rest = sock, until, most

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what answers are read from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read what has come."""
        n = _in_time(self._sock, self._until).recv_into(buffer)
        self._rest -= n
        if self._rest < 0:
            raise _TooManyBytesError
        return n

    def sendall(self, content: bytes) -> None:
        """Send all of a request."""
        rest = memoryview(content)
        while rest:
            rest = rest[_in_time(self._sock, self._until).send(rest) :]

    def close(self) -> None:
        """Leave the socket open: http.client closes it before the answer is read."""
