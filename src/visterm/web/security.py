"""The layer that refuses requests without access or of other sites' pages, and adds headers that restrict browsers."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.store.database import WHO
from visterm.web.errors import HttpError, http_error_of
from visterm.web.pages.render import answer_of
from visterm.web.roles import COOKIE, PERSON, Access, AccessToken, check_role, role_for

OPEN_PATHS = ("/login", "/api/v1/health")
"""Addresses that need no token: the form that asks for it, and the health check."""

OPEN_FOLDER = "/static/"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
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
