"""The form that asks people for the token once: the browser then keeps a cookie, which is not the token."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from visterm.web.pages.render import render
from visterm.web.security import COOKIE, local_address, logged_in
from visterm.web.service import service_of

router = APIRouter(include_in_schema=False)

WRONG_SECONDS = 0.5  # Delay after a wrong token, so that nobody finds one by trying


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
    return _page(address if isinstance(address, str) else "/", wrong=True)


@router.post("/logout")
async def log_out() -> Response:
    """Delete the cookie."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _page(address: str, *, wrong: bool = False) -> Response:
    """Return the form."""
    return render("login.html", 401 if wrong else 200, wrong=wrong, next=local_address(address))
