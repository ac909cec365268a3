"""Access control: host names, requests of other sites' pages, tokens; and headers that restrict browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.core.errors import UserError
from visterm.core.wording import printable
from visterm.store.database import WHO
from visterm.web.errors import HttpError, http_error_of
from visterm.web.pages.render import answer_of
from visterm.web.roles import PERSON, Person, Role, check_role, role_for

COOKIE = "visterm_session"
OPEN_PATHS = ("/login", "/api/v1/health")
"""Addresses that need no token: the form that asks for it, and the health check."""

OPEN_FOLDER = "/static/"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_NAME_LETTERS = 100  # Maximum length of a person's name
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
DEFAULT_PORTS = {"http": 80, "https": 443}
WILDCARD_ADDRESSES = ("0.0.0.0", "::", "")  # Addresses to listen on that stand for all addresses of the machine
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class AccessToken(NamedTuple):
    """A token, the role that it gives, and whose it is.

    Programs send it as ``Authorization: Bearer`` (or as the password of Basic, which Label Studio uses), and people
    type it into a form once.
    """

    text: str
    role: Role = Role.OWNER
    name: str = ""

    @property
    def cookie(self) -> str:
        """The cookie that a browser keeps instead of the token, which it does not reveal."""
        return hmac.new(self.text.encode(), b"visterm session", hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Access:
    """What a request needs to be accepted."""

    tokens: tuple[AccessToken, ...] = ()  # None: no token is needed, and everybody is an owner
    hosts: frozenset[str] = frozenset(LOOPBACK_NAMES)
    """Accepted names in the ``Host`` header. They exclude the name of another site that points here (DNS rebinding)."""
    any_address: bool = False  # Whether numeric addresses are accepted as well: no name can be made to look like one

    fetched_hosts: frozenset[str] = frozenset()  # Origins from which pictures may be fetched for a request
    person_header: str = ""  # Header in which a proxy names the person; empty: the token does. It gives no rights
    writes_from_anywhere: bool = False  # Whether requests of other machines may write into files, see `may_write`

    @classmethod
    def of(
        cls,
        host: str,
        tokens: str | Iterable[AccessToken] = (),
        names: Iterable[str] = (),
        vision_hosts: Iterable[str] = (),
        person_header: str = "",
        *,
        may_write: bool = False,
    ) -> Access:
        """Return the access rules of a service that listens on `host` and has further `names`.

        A text as `tokens` is the only token, of an owner. The service fetches pictures from `vision_hosts`,
        ``HOST[:PORT]``; without a port, only from the standard port of http or https. Raises UserError if a host is
        invalid.
        """
        hosts = {name.lower() for name in (host, *names, *LOOPBACK_NAMES) if name}
        allowed_origins: set[str] = set()
        for name in vision_hosts:
            netloc = f"[{name}]" if name.count(":") > 1 and "[" not in name else name
            origins = [origin for scheme in DEFAULT_PORTS if (origin := origin_of(f"{scheme}://{netloc}"))]
            if len(origins) < len(DEFAULT_PORTS) or set(netloc) & set("/?#@"):
                raise UserError(setting="vision_host", value=name, expected="HOST or HOST:PORT, such as photos.home")
            allowed_origins.update(origins)
        tokens = ((AccessToken(tokens),) if tokens else ()) if isinstance(tokens, str) else tuple(tokens)
        is_any_address = host in WILDCARD_ADDRESSES
        return cls(tokens, frozenset(hosts), is_any_address, frozenset(allowed_origins), person_header, may_write)

    def token_of(self, text: str) -> AccessToken | None:
        """Return the token with this text, if any, in a time that does not reveal how much of it is right."""
        encoded = text.encode("utf-8", "replace")
        return next((token for token in self.tokens if hmac.compare_digest(encoded, token.text.encode())), None)

    def person_of(self, headers: Headers) -> Person | None:
        """Return who sends a request with a token or a browser's cookie; None without these."""
        token: AccessToken | None = AccessToken("")
        if self.tokens:
            text = _token_of(headers.get("authorization", ""))
            cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "").encode()
            by_cookie = (other for other in self.tokens if hmac.compare_digest(cookie, other.cookie.encode()))
            token = next(by_cookie, None) if text is None else self.token_of(text)
        if token is None:
            return None
        name = headers.get(self.person_header, "") if self.person_header else ""
        with suppress(UnicodeError):  # proxies send UTF-8, which starlette reads as Latin-1
            name = name.encode("latin-1").decode()
        return Person(printable(" ".join(name.split()))[:MAX_NAME_LETTERS] or token.name, token.role)

    def answers_to(self, host: str) -> bool:
        """Return whether a ``Host`` header names this service."""
        name = _name_in(host)
        return name in self.hosts or (self.any_address and _address(name) is not None)

    def may_write(self, request: HTTPConnection) -> bool:
        """Return whether a request may write into files of photos: it comes from this machine, and not by a proxy."""
        name = _name_in(request.headers.get("host", ""))
        is_local = request.client is not None and is_loopback(request.client.host) and name in LOOPBACK_NAMES
        return self.writes_from_anywhere or (is_local and not any(name in request.headers for name in PROXY_HEADERS))


def _name_in(host: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    return (host[1:].partition("]")[0] if host.startswith("[") else host.rsplit(":", 1)[0]).lower()


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def origin_of(address: str) -> str | None:
    """Return the scheme, host and port of an http or https address; None for other addresses and invalid ports."""
    try:
        parts = urlsplit(address) if re.fullmatch("[!-~]+", address) else None
        port = parts and (DEFAULT_PORTS.get(parts.scheme) if parts.port is None else parts.port)
    except ValueError:  # an unclosed bracket or an invalid port
        return None
    if not parts or not port or parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    return f"{parts.scheme}://{parts.hostname}:{port}"


class Security:
    """The outermost layer of the application: refuses requests, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(header for header in self._headers if header[0] not in names),
                ]
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)
        except Exception as error:
            if has_started:  # the client sees that the answer is cut off
                raise
            await http_error_of(error).answer()(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._access.answers_to(host):
            advice = "Start it with each host name that it has: visterm serve CATALOGUE --name NAME"
            return HttpError(421, f"This service is not called {host!r}. {advice}").answer()

        method, path = scope["method"], scope["path"]
        # Browsers say which site's page sends a request; programs send neither of these headers.
        origin = headers.get("origin")
        is_cross_site = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            is_cross_site = True
        if method not in SAFE_METHODS and is_cross_site:
            message = "Pages of other sites can't change anything here. Use this site's own pages."
            return HttpError(403, message, code="cross_site").answer()
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return None
        if (answer := self._log_in(scope, method, path)) is not None:
            return answer
        person = self._access.person_of(headers)
        if person is None:
            return _refuse(scope, headers)
        PERSON.set(person)
        WHO.set(person.name)
        try:
            check_role(role_for(method, path))
        except HttpError as error:
            return answer_of(Request(scope), error)
        return None

    def _log_in(self, scope: Scope, method: str, path: str) -> Response | None:
        """Read the token of a page's ``?token=`` once, put it into a cookie, and remove it from the address."""
        query = scope["query_string"]
        if not self._access.tokens or method != "GET" or path.startswith("/api/") or b"token=" not in query:
            return None
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        token = self._access.token_of(dict(pairs).get("token", ""))
        if token is None:
            return None
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        return login_redirect(token, local_address(path + (f"?{rest}" if rest else "")))


def login_redirect(token: AccessToken, address: str) -> Response:
    """Redirect a browser, and set a cookie that no other site and no script can read."""
    answer = RedirectResponse(address, 303)
    answer.set_cookie(COOKIE, token.cookie, httponly=True, samesite="strict", max_age=90 * 24 * 3600)
    return answer


def local_address(address: str) -> str:
    """Return an address on this service; for one that leads elsewhere, the first page."""
    leads_away = not address.startswith("/") or address.startswith("//") or "\\" in address
    return "/" if leads_away or any(ord(letter) < 32 for letter in address) else address


def _refuse(scope: Scope, headers: Headers) -> Response:
    wants_page = scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", "")
    if wants_page and not scope["path"].startswith("/api/"):
        address = quote(scope["path"])
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(f"/login?{urlencode({'next': address + (f'?{query}' if query else '')})}", 303)
    message = "Authentication required: send the token as 'Authorization: Bearer TOKEN', or log in at /login."
    return HttpError(401, message, headers={"www-authenticate": 'Bearer realm="visterm"'}).answer()


def _token_of(authorisation: str) -> str | None:
    scheme, _, value = authorisation.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
