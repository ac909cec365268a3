"""The application: a catalogue behind its layers, the API, Label Studio, the page, and the form of its token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

import visterm
from visterm.core.errors import VistermError
from visterm.core.writing import Place
from visterm.web.api import about, images, jobs, search, tags, vision
from visterm.web.bodies import BodyLimit
from visterm.web.errors import http_error_of
from visterm.web.label_studio import router as label_studio
from visterm.web.metrics import Counting
from visterm.web.pages import browse, duplicates, library, picture, review
from visterm.web.pages import search as search_page
from visterm.web.pages import tags as tags_page
from visterm.web.pages.render import error_page, render
from visterm.web.pages.render import router as static_files
from visterm.web.query import refuse_unknown
from visterm.web.security import COOKIE, Access, Security, local_address, logged_in
from visterm.web.service import Bounds, Service, Shared
from visterm.web.work import Member

PREFIX = "/api/v1"
WRONG_SECONDS = 0.5  # Delay after a wrong token, so that nobody finds one by trying

router = APIRouter(include_in_schema=False)  # Of the token: the browser then keeps a cookie, which is not the token


def create_app(
    catalogue: Place, *, access: Access | None = None, bounds: Bounds | None = None, member: Member | None = None
) -> FastAPI:
    """Return the application that serves a catalogue; routes find all they need in ``request.app.state.service``.

    The catalogue's folder is opened at once, so that errors in it are raised here: StorageError if there is no
    catalogue, or it is damaged. `access` says who may send requests; None: this machine only, without a token. `bounds`
    says how many requests run and wait; others are answered 503. `member` says which process of a service this is;
    None: the only one.
    """
    service = Service(catalogue, access or Access(), bounds or Bounds(), member or Member())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = Application(
        title="visterm", version=visterm.__version__,
        description="Search one catalogue of photos by words, and tag photos.", openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None, redoc_url=None, lifespan=lifespan,  # generated clients call a route by its function's name
        generate_unique_id_function=lambda it: it.name if it.path.startswith(PREFIX) else f"label_studio_{it.name}",
    )  # fmt: skip
    app.state.service = service
    for kind in (HTTPException, RequestValidationError, VistermError):
        app.add_exception_handler(kind, answer_error)
    for part in (search, images, about, tags, jobs, vision):
        refusing = [] if part is about else [Depends(refuse_unknown)]  # whoever checks health may add what it likes
        app.include_router(part.router, prefix=PREFIX, dependencies=refusing)
    for each in (label_studio, router, static_files):
        app.include_router(each)
    for page in (search_page, browse, picture, review, tags_page, library, duplicates):
        app.include_router(page.router)
    most, seconds = service.bounds.upload_bytes, service.bounds.body_seconds
    app.add_middleware(BodyLimit, bodies=service.bodies, most=most, seconds=seconds)  # the innermost layer comes first
    app.add_middleware(Security, access=service.access)
    app.add_middleware(Counting, metrics=service.metrics)
    return app


class Application(FastAPI):
    """FastAPI with an OpenAPI description whose summaries are the first lines of the routes' docstrings."""

    def openapi(self) -> dict[str, object]:
        """Return the OpenAPI description."""
        if self.openapi_schema is None:
            for methods in super().openapi()["paths"].values():
                for operation in methods.values():
                    operation["summary"], _, rest = operation.pop("description").partition("\n\n")
                    operation |= {"description": rest} if rest else {}
        return super().openapi()


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error that no route of a page has answered: with a page for browsers, else in JSON."""
    for_programs = request.url.path.startswith(("/api/", "/label-studio"))
    if "text/html" in request.headers.get("accept", "") and not for_programs:
        return error_page(request, error)
    return http_error_of(error).answer()


@router.get("/login")
async def form(request: Request, service: Shared, next: str = "/") -> Response:
    """Show the form."""
    if service.access.knows(request.headers):
        return RedirectResponse(local_address(next), 303)
    return _page(next)


@router.post("/login")
async def log_in(request: Request, service: Shared) -> Response:
    """Check the token, and send the browser on to the page."""
    async with request.form(max_files=0, max_fields=4) as form:
        token, address = form.get("token", ""), form.get("next", "/")
    access = service.access
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
    return render("login.html", 401 if wrong else 200, wrong=wrong, next=local_address(address))
