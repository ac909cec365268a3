"""The form that asks people for the token once: the browser then keeps a cookie, which is not the token."""

from __future__ import annotations

import asyncio
from html import escape

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from visterm.web.security import COOKIE, local_address, logged_in
from visterm.web.service import service_of

router = APIRouter(include_in_schema=False)

WRONG_SECONDS = 0.5  # Delay after a wrong token, so that nobody finds one by trying
_FORM = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>visterm: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/static/visterm.css"></head><body><main>
<h1>visterm</h1>
{message}
<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<p><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus></p>
<p><button>Log in</button></p>
</form></main></body></html>
"""


@router.get("/login")
async def form(request: Request, next: str = "/") -> Response:
    """Show the form."""
    if service_of(request).access.knows(request.headers):
        return RedirectResponse(local_address(next), 303)
    return _page(next)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Check the token, and send the browser on to the page."""
    access = service_of(request).access
    async with request.form(max_files=0, max_fields=4) as given:
        token, address = given.get("token", ""), given.get("next", "/")
    if not access.token or (isinstance(token, str) and access.is_token(token.strip())):
        return logged_in(access, local_address(address if isinstance(address, str) else "/"))
    await asyncio.sleep(WRONG_SECONDS)
    return _page(address if isinstance(address, str) else "/", '<p role="alert">This token is wrong.</p>', 401)


@router.post("/logout")
async def log_out() -> Response:
    """Delete the cookie."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _page(address: str, message: str = "", status: int = 200) -> Response:
    """Return the form."""
    text = _FORM.format(message=message, next=escape(local_address(address), quote=True))
    return Response(text, status, {"cache-control": "no-store"}, "text/html; charset=utf-8")
