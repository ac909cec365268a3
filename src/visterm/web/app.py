"""The application that serves a catalogue: middleware, the API, Label Studio, the pages and the login form."""

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
from visterm.core.types import Place
from visterm.web.api import about, images, jobs, search, tags, vision
from visterm.web.bodies import BodyLimit
from visterm.web.direct import DirectAnswers
from visterm.web.label_studio import router as label_studio
from visterm.web.metrics import MetricsMiddleware
from visterm.web.pages import browse, duplicates, library, picture, review, review_grid, write
from visterm.web.pages import search as search_page
from visterm.web.pages import tags as tags_page
from visterm.web.pages.render import answer_of, render
from visterm.web.pages.render import router as static_files
from visterm.web.query import refuse_unknown
from visterm.web.roles import COOKIE, Access, AccessToken
from visterm.web.security import Security, local_address, login_redirect
from visterm.web.service import Bounds, Service, ServiceDep
from visterm.web.work import Member

PREFIX = "/api/v1"
WRONG_TOKEN_SECONDS = 0.5  # Delay after a wrong token, which makes guessing slow

router = APIRouter(include_in_schema=False)  # Logging in and out: the browser keeps a cookie, not the token


def create_app(
    catalogue: Place, *, access: Access | None = None, bounds: Bounds | None = None, member: Member | None = None
) -> FastAPI:
    """Return the application that serves a catalogue; routes use its `Service`, ``request.app.state.service``.

    The catalogue is opened at once: raises StorageError if there is no catalogue, or it is damaged. `access` says who
    may send requests; None: only this machine, without a token. `bounds` says how many requests may run and wait;
    further ones are answered 503. `member` says which process of a service this is; None: the only one.
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
        generate_unique_id_function=lambda r: r.name if r.path.startswith(PREFIX) else f"label_studio_{r.name}",
    )  # fmt: skip
    app.state.service = service
    for error_type in (HTTPException, RequestValidationError, VistermError):
        app.add_exception_handler(error_type, answer_error)
    pages = (search_page, browse, picture, review, review_grid, tags_page, library, duplicates, write)
    for page in (static_files, *(module.router for module in pages), router):  # first: a router's first match is slow
        app.include_router(page)
    modules = (search, images, about, tags, jobs, vision)
    for module in modules:
        dependencies = [] if module is about else [Depends(refuse_unknown)]  # health checks may add any parameters
        app.include_router(module.router, prefix=PREFIX, dependencies=dependencies)

    app.include_router(label_studio)
    routes = [route for module in modules if module is not about for route in module.router.routes]
    app.add_middleware(DirectAnswers, service=service, prefix=PREFIX, routes=routes)  # innermost layer first
    max_bytes, seconds = service.bounds.upload_bytes, service.bounds.body_seconds
    app.add_middleware(BodyLimit, bodies=service.bodies, max_bytes=max_bytes, seconds=seconds)
    app.add_middleware(Security, access=service.access)
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
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
    """Answer an error, without a thread."""
    return answer_of(request, error)


@router.get("/login")
async def login_form(request: Request, service: ServiceDep, next: str = "/") -> Response:
    """Show the login form."""
    if service.access.person_of(request.headers) is not None:
        return RedirectResponse(local_address(next), 303)
    return _login_page(next)


@router.post("/login")
async def log_in(request: Request, service: ServiceDep) -> Response:
    """Check the token, and redirect the browser to the page that it asked for."""
    async with request.form(max_files=0, max_fields=4) as form:
        text, address = form.get("token", ""), form.get("next", "/")
    access = service.access
    token = access.token_of(text.strip() if isinstance(text, str) else "") if access.tokens else AccessToken("")
    if token is not None:
        return login_redirect(token, local_address(address if isinstance(address, str) else "/"))
    await asyncio.sleep(WRONG_TOKEN_SECONDS)
    return _login_page(address if isinstance(address, str) else "/", is_wrong=True)


@router.post("/logout")
async def log_out() -> Response:
    """Delete the cookie."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _login_page(address: str, *, is_wrong: bool = False) -> Response:
    return render("login.html", 401 if is_wrong else 200, is_wrong=is_wrong, next=local_address(address))
