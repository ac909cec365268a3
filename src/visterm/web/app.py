"""The application: a catalogue behind its layers, the API, Label Studio's routes, and the page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

import visterm
from visterm.web.errors import handle_errors
from visterm.web.pages.routes import router as pages
from visterm.web.security import Access, Security
from visterm.web.service import Bounds, Service


def create_app(
    catalogue: str | os.PathLike[str],
    *,
    access: Access | None = None,
    bounds: Bounds | None = None,
    folders: Sequence[str | os.PathLike[str]] = (),
    n_jobs: int | None = None,
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
        Threads of one piece of work; None is all cores.

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
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    handle_errors(app)
    app.include_router(pages)
    app.add_middleware(Security, access=service.access)
    return app
