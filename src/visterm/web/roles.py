"""Who may do what: host names and tokens of a service, and the role that each address needs; by default an owner."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from visterm.core.errors import UserError
from visterm.core.wording import printable

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import HTTPConnection

COOKIE = "visterm_session"
MAX_NAME_LETTERS = 100  # Maximum length of a person's name
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
DEFAULT_PORTS = {"http": 80, "https": 443}
WILDCARD_ADDRESSES = ("0.0.0.0", "::", "")  # Addresses to listen on that stand for all addresses of the machine


class Role(IntEnum):
    """What a person may do; each role includes those before it."""

    READER = 1  # looks and searches
    REVIEWER = 2  # judges and tags
    OWNER = 3  # learns, writes, hides photos, merges tags


class Person(NamedTuple):
    """Who sends a request, and the person's role."""

    name: str
    role: Role


UNKNOWN = Person("", Role.READER)
PERSON: ContextVar[Person] = ContextVar("person", default=UNKNOWN)
"""Who sent the request that is being answered."""

ROUTES: dict[tuple[Role, str], str] = {
    (Role.READER, "GET"): """
        / /browse /duplicates /duplicates/files.txt /facets /image/{id} /image/{id}/alike /library /library/jobs/{id}
        /library/start /map /map/photos /map/places /related /tag /tags /tags/alike /tags/map /tags/tree
        /api/v1/about /api/v1/docs /api/v1/duplicates /api/v1/images/{id} /api/v1/images/{id}/explain
        /api/v1/images/{id}/heat /api/v1/images/{id}/original /api/v1/images/{id}/thumbnail /api/v1/images/{id}/video
        /api/v1/jobs /api/v1/jobs/{id} /api/v1/metrics /api/v1/mistakes /api/v1/openapi.json /api/v1/runs
        /api/v1/search /api/v1/tags /api/v1/tags/complete /api/v1/tags/map /api/v1/tags/neighbours /api/v1/tags/tree
        /label-studio /label-studio/ /label-studio/health""",
    (Role.READER, "POST"): """
        /chosen/download /like /logout /api/v1/annotate /api/v1/similar /api/v1/vision/labels
        /label-studio/predict /label-studio/setup""",
    (Role.REVIEWER, "GET"): "/review /review/grid",
    (Role.REVIEWER, "POST"): """
        /chosen /image/{id}/tags /review /review/grid /steps/{id}/undo
        /api/v1/feedback/{id}/undo /api/v1/images/tags /api/v1/images/{id}/feedback /api/v1/images/{id}/tags
        /api/v1/steps/{id}/undo /label-studio/webhook""",
    (Role.OWNER, "GET"): "/write",
    (Role.OWNER, "POST"): """
        /duplicates/keep /duplicates/keep-all /duplicates/undo /library/jobs /library/jobs/{id}/cancel /tags/merge
        /write /write/{id} /api/v1/exports /api/v1/jobs /api/v1/jobs/{id}/cancel""",
}  # fmt: skip
"""(Role, method) -> the addresses for which a person needs the role."""

_PATTERNS = [
    (method, re.compile("|".join(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in paths.split())), role)
    for (role, method), paths in ROUTES.items()
]


def role_for(method: str, path: str) -> Role:
    """Return the role that a request needs: the highest of those of its address."""
    method = "GET" if method == "HEAD" else method
    roles = [role for name, pattern, role in _PATTERNS if name == method and pattern.fullmatch(path)]
    return max(roles, default=Role.OWNER)


def check_role(role: Role) -> None:
    """Raise HttpError (403) if the sender of the request lacks a role."""
    actual = PERSON.get().role
    if actual < role:
        from visterm.web.errors import HttpError

        names = actual.name.lower(), role.name.lower()
        raise HttpError(403, f"Your token is one of a {names[0]}; this needs one of a {names[1]}.", code="role")


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
            from starlette.requests import cookie_parser

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
