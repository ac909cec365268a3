"""The service itself: its health, facts about the catalogue, metrics, and the list of addresses."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from visterm.core.errors import StorageError
from visterm.web.errors import HttpError, json_answer
from visterm.web.metrics import CONTENT_TYPE
from visterm.web.pages.render import render
from visterm.web.schemas import answer, errors
from visterm.web.service import VERSION, ServiceDep, in_threads

router = APIRouter(tags=["service"])

HealthAnswer = answer(
    "HealthAnswer", "The service runs and can read its catalogue.",
    status=(Literal["ok"], "Always ok; otherwise the answer is 503."),
    version=(str, "Version of visterm."),
)  # fmt: skip

AboutAnswer = answer(
    "AboutAnswer", "The catalogue that is served.",
    version=(str, "Version of visterm."), images=(int, "Number of photos."),
    searchable=(int, "Number of photos that searches can find."),
    tags=(int, "Number of tags that the run has learned."),
    run=(str, "Fingerprint of the run in use."),
    model=(str, "Name of the model."), encoder=(str, "Name of the encoder."),
    calibrated=(bool, "Whether the run has confidences."),
    search=(str, "Whether searches are exact, or use an index."),
    who=(str, "Whose token the request has; empty if that isn't known."),
    role=(Literal["reader", "reviewer", "owner"], "What the token allows."),
)  # fmt: skip


@router.get("/health", response_model=HealthAnswer, responses=errors())
async def health(request: Request, service: ServiceDep) -> Response:
    """Check that the service runs and can read its catalogue.

    If it can't, the answer is 503. This address needs no token.
    """
    try:
        await service.check_catalogue()
    except StorageError as error:
        # Without the token the answer does not say where the catalogue is.
        is_authorised = service.access.person_of(request.headers) is not None
        problem = str(error) if is_authorised else "The catalogue was removed or replaced, or can't be read."
        raise HttpError(503, problem, code="catalogue_unreadable") from error
    return json_answer({"status": "ok", "version": VERSION})


@router.get("/about", response_model=AboutAnswer, responses=errors())
@in_threads("searching")
def about(service: ServiceDep) -> Response:
    """Return facts about the catalogue: numbers of photos and tags, and the run in use."""
    return json_answer(service.about())


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors()},
    response_class=Response,
)
@in_threads("searching")
def metrics(service: ServiceDep) -> Response:
    """Return figures for Prometheus, a monitoring program."""
    return Response(service.metrics_text(), media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """List the addresses of the API, as a page without scripts."""
    return render("api.html", description=request.app.openapi(), type_of=_type_name)


def _type_name(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type_name(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type_name(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
