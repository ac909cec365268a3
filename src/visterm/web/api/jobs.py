"""Jobs in the background: look for new photos, learn from verdicts, compare photos; and the runs that were learned."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from visterm.library.earlier_runs import GO_BACK, USE_RUN, known_runs, shown_runs
from visterm.store.jobs import Job
from visterm.web.body_limit import JsonRoute
from visterm.web.errors import Refused, json_answer
from visterm.web.pages.learned import way_back
from visterm.web.query import Cursor, Limit, cursor_at, place_of
from visterm.web.run_schemas import RunsAnswer
from visterm.web.schemas import JobAnswer, JobRequest, JobsAnswer, errors
from visterm.web.service import Service, service_of

router = APIRouter(tags=["jobs"], route_class=JsonRoute)

JobId = Annotated[int, Path(ge=0, le=2**63 - 1, description="Id of the job.")]


@router.get("/jobs", response_model=JobsAnswer, responses=errors())
async def jobs(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the jobs, newest first."""
    service = service_of(request)
    before = None if cursor is None else place_of("jobs", cursor)
    found = await service.searching.run(service.catalogue.stored.jobs.latest, limit + 1, before=before)
    shown = found[:limit]
    content = {
        "jobs": [_as_dict(service.jobs.shown(job)) for job in shown],
        "next": cursor_at("jobs", shown[-1].id) if len(found) > limit else None,
    }
    return json_answer(content, headers={"cache-control": "no-store"})


@router.post("/jobs", status_code=202, response_model=JobAnswer, responses=errors(408, 409, 413))
async def start(request: Request, given: JobRequest) -> Response:
    """Start a job.

    One job runs at a time; a few more may wait.
    """
    of_a_run = given.kind in (USE_RUN, GO_BACK)
    options = [given.run] if of_a_run else fit_options(given.full, given.use_even_if_worse)
    job = await service_of(request).jobs.start(given.kind, *options)
    return json_answer(_as_dict(job), 202, {"location": f"/api/v1/jobs/{job.id}"})


@router.get("/jobs/{job_id}", response_model=JobAnswer, responses=errors(404))
async def job(request: Request, job_id: JobId) -> Response:
    """Return a job and its progress."""
    service = service_of(request)
    return _answer(service, job_id, await service.searching.run(service.catalogue.stored.jobs.get, job_id))


@router.post("/jobs/{job_id}/cancel", response_model=JobAnswer, responses=errors(404))
async def cancel(request: Request, job_id: JobId) -> Response:
    """Stop a job.

    The job keeps what it has stored so far. A job that has ended doesn't change.
    """
    service = service_of(request)
    await service.jobs.cancel(job_id)
    return _answer(service, job_id, await service.searching.run(service.catalogue.stored.jobs.get, job_id))


@router.get("/runs", response_model=RunsAnswer, responses=errors())
async def runs(request: Request) -> Response:
    """List the runs of the catalogue, newest first, each beside the run that was in use before it."""
    stored = service_of(request).catalogue.stored

    def find() -> dict[str, Any]:
        back = way_back(stored)
        found = shown_runs(stored, known_runs(stored)[::-1])
        return {"runs": [run.as_dict() for run in found], "back": None if back is None else back.id}

    return json_answer(await service_of(request).searching.run(find), headers={"cache-control": "no-store"})


def fit_options(full: bool, use_even_if_worse: bool) -> list[str]:
    """Return the options of a job that learns."""
    return [option for option, chosen in (("full", full), ("use-even-if-worse", use_even_if_worse)) if chosen]


def _as_dict(job: Job) -> dict[str, Any]:
    """Return a job as JSON."""
    return {name: getattr(job, name) for name in JobAnswer.model_fields}


def _answer(service: Service, job_id: int, job: Job | None) -> Response:
    """Return a job, or refuse an id that no job has."""
    if job is None:
        raise Refused(404, f"There is no job {job_id}.")
    return json_answer(_as_dict(service.jobs.shown(job)), headers={"cache-control": "no-store"})
