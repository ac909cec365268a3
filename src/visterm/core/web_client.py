"""HTTP requests to other programs' servers, with limits on time and size, and retries after temporary failures."""

from __future__ import annotations

import base64
import html
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from visterm.core.errors import ServiceError, UserError
from visterm.core.progress import Say

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_RESPONSE_BYTES = 2**24  # Default maximum size of a response body
MAX_OVERHEAD_BYTES = 2**20  # Maximum size of the rest of a response: headers, chunk sizes, trailers
CONNECT_TIMEOUT_SECONDS = 10.0  # A computer that is off does not answer at all
MAX_WAIT_SECONDS = 30.0  # Maximum wait between two attempts
MAX_EXCERPT_LENGTH = 300  # Maximum length of the excerpt of a response in a message
MAX_EXCERPT_SOURCE = 2**14  # Number of characters of the response from which the excerpt is made
SECONDS_BEFORE_REPORT = 3.0  # Time without an answer after which a server is reported
TEMPORARY_STATUSES = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that is starting, busy, or not reached by its proxy; the request is tried again."""
_silent_servers: set[str] = set()  # Servers that were reported, and have not answered since
_VISIBLE_ASCII = re.compile("[!-~]+")


class ServerAnswer(NamedTuple):
    """The response of a server."""

    status: int
    content: bytes
    wait: float = 0.0  # Seconds to wait before the next attempt (header Retry-After); 0: not given
    date: str = ""  # Header Date, the server's clock
    secrets: tuple[str, ...] = ()  # Secrets in the request, which messages must not repeat

    @property
    def text(self) -> str:
        """Return the beginning of the content as one line without secrets, for messages."""
        return excerpt(self.content.decode("utf-8", "replace"), self.secrets)


def masked(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text in which each secret is replaced by "(secret)"."""
    for secret in secrets:
        text = text.replace(secret, "(secret)")
    return text


def _letter_pattern(letter: str) -> str:
    """Return a pattern for a letter as a server may write it: plain, or escaped for JSON, a URL or HTML.

    No alternative is a prefix of another alternative, as the search would then try all combinations.
    """
    code, literal, percent_form = ord(letter), re.escape(letter), quote(letter, safe="", errors="replace")
    escaped = () if letter == "\\" else (rf"\\{{1,4}}{literal}",)  # for "\", the next letter matches the second one
    html_name = re.escape(html.escape(letter))
    url = percent_form if code > 127 else f"%{code:02x}"
    alternatives = (literal, rf"\\u{code:04x}", rf"&#(?:{code}|x{code:x});", url, html_name, *escaped)
    return f"(?:{'|'.join(dict.fromkeys(alternatives))})"


def excerpt(text: str, secrets: tuple[str, ...]) -> str:
    """Return the beginning of a response as one line; secrets are removed first, while they are complete."""
    for secret in filter(None, secrets):
        base64_secret = base64.b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")
        pattern = f"{''.join(map(_letter_pattern, secret))}|{re.escape(base64_secret)}=*"
        text = re.sub(pattern, "(secret)", text[: 2 * MAX_EXCERPT_SOURCE], flags=re.IGNORECASE)
    text = " ".join(text[:MAX_EXCERPT_SOURCE].split())
    return text if len(text) <= MAX_EXCERPT_LENGTH else f"{text[:MAX_EXCERPT_LENGTH]} ..."


class Patience(NamedTuple):
    """Timeout and retries of requests to a server."""

    timeout: float = 120.0  # Seconds per attempt, from connecting to the end of the response
    retries: int = 5  # Attempts after the first one
    wait: float = 1.0  # Seconds before the second attempt; doubled before each further one
    retry_refused: bool = True  # Whether to retry a refused connection: the server may be restarting
    say: Say | None = None  # Called with a line if a server does not answer for a while, once until it answers
    pause: Callable[[float], object] = time.sleep  # Waits for this many seconds while a server works on a job


def server_address(url: str, parameter: str) -> str:
    """Return the address of a server without a trailing slash.

    Raises UserError if `url` does not have the form ``http://host:port`` (or ``https``; a path is allowed). `parameter`
    names it in the message.
    """
    with suppress(ValueError, TypeError):
        parts = urlsplit(url if _VISIBLE_ASCII.fullmatch(url) else "")
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if is_server and not (parts.query or parts.fragment or parts.username is not None):
            return url.rstrip("/")
    expected = "the address of a server, such as http://host:3003"
    raise UserError(f"{parameter} is {url!r}", setting="url", value=url, expected=expected)


def ask(
    url: str,
    *,
    method: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    patience: Patience = Patience(),  # noqa: B008 (it is a tuple)
    limit: int = MAX_RESPONSE_BYTES,
    secrets: tuple[str, ...] = (),
) -> ServerAnswer:
    """Send a request and return the response, also for an error status.

    The default `method` is GET, or POST with a `body`. Broken or refused connections, timeouts and the statuses
    `TEMPORARY_STATUSES` are tried again, as `patience` says, after at most `MAX_WAIT_SECONDS`; use 0 `retries` for a
    request that must not be repeated. Redirects are not followed, and no proxy is used. The caller must check that the
    user named the server (`visterm.core.remote.is_named`). Messages never contain `secrets`. Raises ServiceError if the
    server cannot be reached, or its response is larger than `limit` bytes.
    """
    start, address = time.monotonic(), masked(url, secrets)
    server = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"
    for attempt in range(patience.retries + 1):
        server_wait = 0.0
        is_last = attempt == patience.retries
        try:
            answer = _try_once(url, method, body, headers or {}, patience.timeout, limit)._replace(secrets=secrets)
        except _TooManyBytesError:
            raise ServiceError(f"{address} answers with more than {limit:,} bytes; expected fewer.") from None
        except ssl.SSLCertVerificationError as error:
            raise ServiceError(f"The certificate of {address} is not trusted: {error.verify_message}.") from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = excerpt(str(error) or type(error).__name__, secrets)
            if is_last or (isinstance(error, ConnectionRefusedError) and not patience.retry_refused):
                tries = f" ({attempt + 1} tries)" if attempt else ""
                text = f"{address} gives no answer: {reason.rstrip('.')}{tries}. Check the address, and that it runs."
                raise ServiceError(text) from (None if secrets else error)
        else:
            if is_last or answer.status not in TEMPORARY_STATUSES:
                if answer.status not in TEMPORARY_STATUSES:
                    _silent_servers.discard(server)
                return answer
            server_wait, reason = answer.wait, f"it answers {answer.status}"
        seconds = min(max(patience.wait * 2**attempt, server_wait), MAX_WAIT_SECONDS)
        waited, remaining = time.monotonic() - start, patience.retries - attempt
        if patience.say is not None and waited >= SECONDS_BEFORE_REPORT and server not in _silent_servers:
            _silent_servers.add(server)
            tries = "one more try" if remaining == 1 else f"{remaining} more tries"
            patience.say(f"Waiting for {server} ({reason.rstrip('.')}): {tries}, the next one in {seconds:.0f} s.")
        time.sleep(seconds)

    raise AssertionError("the last try returns or raises")


def _try_once(
    url: str, method: str | None, body: bytes | None, headers: Mapping[str, str], timeout: float, limit: int
) -> ServerAnswer:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline = time.monotonic() + timeout
    connection, sock = _connect(parts, deadline)

    with sock:
        connection.sock = _BoundedSocket(sock, deadline, limit + MAX_OVERHEAD_BYTES)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, {"Connection": "close", **headers}
            )
            response = connection.getresponse()
            content = bytearray()
            while chunk := response.read1(2**16):
                content += chunk
                if len(content) > limit:
                    raise _TooManyBytesError
        except TimeoutError as error:
            raise TimeoutError(f"timed out after {timeout:g} s") from error
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        retry_after = response.getheader("Retry-After", "").strip()
        wait = float(retry_after) if re.fullmatch("[0-9]{1,6}", retry_after) else 0.0  # ignores dates: clocks differ
        return ServerAnswer(response.status, bytes(content), wait, response.getheader("Date", ""))


def _connect(parts: SplitResult, deadline: float) -> tuple[http.client.HTTPConnection, socket.socket]:
    """Connect to the first address of a server that answers before the deadline; the DNS lookup has no deadline."""
    is_https = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_https else 80)
    sock = socket.create_connection((host, port), min(CONNECT_TIMEOUT_SECONDS, deadline - time.monotonic()))
    if not is_https:
        return http.client.HTTPConnection(host, port), sock
    try:
        context = ssl.create_default_context()  # reads a file, which is slow on a busy machine
        tls_socket = context.wrap_socket(_with_remaining_time(sock, deadline), server_hostname=host)
    except BaseException:
        sock.close()
        raise
    return http.client.HTTPSConnection(host, port, context=context), tls_socket


def _with_remaining_time(sock: socket.socket, deadline: float) -> socket.socket:
    """Set a socket's timeout to the time until the deadline, and return it. Raises TimeoutError after the deadline."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(seconds)
    return sock


class _TooManyBytesError(Exception):
    """A response, with its headers, is larger than allowed."""


class _BoundedSocket(io.RawIOBase):
    """A socket for http.client with one deadline for all operations, which reads at most `max_bytes` bytes.

    A socket's own timeout restarts with every byte: a server that sends headers or chunks slowly, or without end, would
    block the reader for ever.
    """

    def __init__(self, sock: socket.socket, deadline: float, max_bytes: int) -> None:
        self._sock, self._deadline, self._bytes_left = sock, deadline, max_bytes

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a buffered reader of the responses."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return True: the socket can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read the bytes that have arrived into a buffer, and return their number."""
        n = _with_remaining_time(self._sock, self._deadline).recv_into(buffer)
        self._bytes_left -= n
        if self._bytes_left < 0:
            raise _TooManyBytesError
        return n

    def sendall(self, content: bytes) -> None:
        """Send the whole request."""
        unsent = memoryview(content)
        while unsent:
            unsent = unsent[_with_remaining_time(self._sock, self._deadline).send(unsent) :]

    def close(self) -> None:
        """Do nothing: http.client closes the socket before the response is read."""
