"""The addresses of the page."""

from __future__ import annotations

from fastapi import APIRouter

from visterm.web.pages import files, library, picture, review, search, tags

router = APIRouter(include_in_schema=False)
for part in (search, picture, review, tags, library, files):
    router.include_router(part.router)
