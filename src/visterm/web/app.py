"""The application: a catalogue behind its layers, the API, Label Studio's routes, and the page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

import visterm
from visterm.web.api import about, images, jobs, search, tags
from visterm.web.body_limit import BodyLimit
from visterm.web.errors import handle_errors
from visterm.web.label_studio import router as label_studio
from visterm.web.login import router as login
from visterm.web.metrics import Counting
from visterm.web.pages import files, library, picture, review
from visterm.web.pages import search as search_page
from visterm.web.pages import tags as tags_page
from visterm.web.security import Access, Security
from visterm.web.service import Bounds, Service

PREFIX = "/api/v1"


def create_app(
    catalogue: str | os.PathLike[str],
    *,
    access: Access | None = None,
    bounds: Bounds | None = None,
    folders: Sequence[str | os.PathLike[str]] = (),
    n_jobs: int = 1,
) -> FastAPI:
    """Make the application that serves a catalogue; routes find all they need in ``request.app.state.service``.

    Parameters
    ----------
    catalogue : path-like
        A folder that `visterm index` wrote. It is opened here, so that what is wrong with it is said at once.
    access : Access, optional
        None: this machine only, without a token.
    bounds : Bounds, optional
        How much is worked at and waits; what is beyond is answered 503.
    folders : sequence of path-like
        Folders of photos that the job "index" looks into; empty: those that the catalogue's photos lie in.
    n_jobs : int, optional
        Threads of one search or one batch of pictures: with one each, many requests share the cores best.

    Raises
    ------
    StorageError
        If there is no catalogue, or it is damaged.
    """
    service = Service(catalogue, access or Access(), bounds or Bounds(), folders, n_jobs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="visterm",
        version=visterm.__version__,
        description="Tags for photos and photos for words, of one catalogue.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    handle_errors(app)
    for part in (about, search, images, tags, jobs):
        app.include_router(part.router, prefix=PREFIX)
    app.include_router(label_studio)
    app.include_router(login)
    for page in (search_page, picture, review, tags_page, library, files):
        app.include_router(page.router, include_in_schema=False)
    most, seconds = service.bounds.upload_bytes, service.bounds.body_seconds
    app.add_middleware(BodyLimit, bodies=service.bodies, most=most, seconds=seconds)  # the innermost layer comes first
    app.add_middleware(Security, access=service.access)
    app.add_middleware(Counting, metrics=service.metrics)
    return app
