"""The service itself: whether it runs, what it serves, its figures, and the list of its addresses."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from visterm.web.answers import json_answer
from visterm.web.description import description_page
from visterm.web.metrics import CONTENT_TYPE
from visterm.web.schemas import AboutAnswer, HealthAnswer, errors
from visterm.web.service import VERSION, service_of

router = APIRouter(tags=["service"])


@router.get("/health", response_model=HealthAnswer, responses=errors())
async def health() -> Response:
    """Say that the service runs; the one address that never wants a token."""
    return json_answer({"status": "ok", "version": VERSION}, headers={"cache-control": "no-store"})


@router.get("/about", response_model=AboutAnswer, responses=errors())
async def about(request: Request) -> Response:
    """Say what is served: how many images and tags, and the run."""
    service = service_of(request)
    return json_answer(await service.searching.run(service.about), headers={"cache-control": "no-store"})


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors()},
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Give figures in the text form that Prometheus reads."""
    service = service_of(request)
    images = await service.searching.run(service.catalogue.stored.images.count)
    return Response(service.metrics_text(images), media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """List the addresses of the API, as a page without scripts."""
    described: dict[str, Any] = request.app.openapi()
    return Response(description_page(described), media_type="text/html; charset=utf-8")
