"""Jobs in the background: look for new photos, learn from verdicts, compare photos; and the runs that were learned."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from visterm.core.errors import StorageError, UserError
from visterm.core.vocabulary import MAX_LETTERS, MAX_TAGS
from visterm.library.export.request import ExportRequest
from visterm.library.export.sources import Limits
from visterm.library.export.writing import writes_into_photos
from visterm.library.runs import GO_BACK, USE_RUN, known_runs, run_to_go_back_to, shown_runs
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import StoredJob, StoredRun
from visterm.web.bodies import JsonRoute
from visterm.web.errors import HttpError, json_answer
from visterm.web.exports import EXPORT
from visterm.web.query import Cursor, Limit, cursor_at, position_of
from visterm.web.schemas import Next, RequestBody, answer, errors, listed
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(tags=["jobs"], route_class=JsonRoute)

JobId = Annotated[int, Path(ge=0, le=2**63 - 1, description="Id of the job.")]

JobAnswer = answer(
    "JobAnswer", "A job and its progress.",
    id=(int, "Id of the job."), kind=(str, "The kind of job."),
    state=(
        Literal["waiting", "running", "cancelling", "done", "failed", "cancelled", "lost"],
        "The state; lost: the service ended before the job did.",
    ),
    done=(int, "Steps done so far."),
    total=(int | None, "Steps in all, if known."),
    message=(str, "Progress or result in words."),
    started=(str, "When it started (UTC)."), finished=(str | None, "When it ended (UTC)."),
    error=(str | None, "Why it failed."),
)  # fmt: skip

JobsAnswer = answer("JobsAnswer", "One page of the jobs.", jobs=listed(JobAnswer, "The jobs, newest first."), next=Next)


class JobRequest(RequestBody):
    """A job to run in the background."""

    kind: Literal["index", "fit", "duplicates", "mistakes", "map", "use run", "go back"] = Field(
        description="index: look for new, changed and missing photos; fit: learn from tags and verdicts; duplicates: "
        "compare photos that were not compared yet; mistakes: look for tags that are probably wrong or missing; map: "
        "draw the map of the photos, or add new ones; use run: search with another run of the catalogue; go back: "
        "search with the previous run."
    )
    full: bool = Field(False, description="For fit: learn from scratch, including tags that are new.")
    use_even_if_worse: bool = Field(False, description="For fit: use the new run even if it is significantly worse.")
    run: str = Field(
        "",
        pattern="^[0-9a-f]{0,64}$",
        description="For use run, and for go back by more than one run: its number or the first letters of its name.",
    )


class ExportBody(RequestBody):
    """Tags to write into files of photos, or to remove from them."""

    to: str = Field(
        "xmp",
        max_length=MAX_LETTERS,
        description="Where the tags go: xmp, embed, txt, lightroom, digikam, darktable, immich or photoprism; for a "
        "connected catalogue the name of its program.",
    )
    k: int = Field(0, ge=0, le=MAX_TAGS, description="Maximum predictions per photo; 0 for no limit.")
    min_confidence: float | None = Field(
        None, ge=0, le=1, description="Least confidence of predictions (0-1); null for 0.5, without a precision."
    )
    precision: float | None = Field(None, gt=0, lt=1, description="Expected share of right predictions, per tag.")
    parent: str | None = Field(None, max_length=MAX_LETTERS, description="Tag above all predictions, such as visterm.")
    take_off: bool = Field(False, description="Also remove keywords of other programs that people rejected.")
    undo: bool = Field(False, description="Remove all tags that visterm wrote with the same `to`.")
    dry_run: bool = Field(True, description="Only say what would be written.")
    into_photos: bool = Field(False, description="Confirms that photos themselves are changed, where `to` does that.")


ComparisonAnswer = answer(
    "ComparisonAnswer", "A run and the previous one, measured on photos that neither learned from.",
    before=(float, "Value of the measure for the previous run."),
    after=(float, "Value of the measure for this run."),
    compared=(int, "Number of photos on which both runs were measured."),
    interval=(
        tuple[float, float] | None,
        "95 % interval of the difference, by resampling these photos; null if there are too few.",
    ),
    run_before=(str, "Fingerprint of the previous run; empty if it isn't known."),
    measure=(str, "The measure: MAP, mean average precision (1 is perfect)."),
    difference=(float, "`after` minus `before`."),
    verdict=(
        Literal["better", "worse", "no clear difference", "too few photos"],
        "Whether this run is significantly better or worse.",
    ),
    in_words=(str, "The comparison as a sentence."),
)  # fmt: skip

RunAnswer = answer(
    "RunAnswer", "A run of the catalogue, and how it compares with the previous one.",
    number=(int, "Number of the run in the catalogue."),
    run=(str, "Fingerprint of the run."),
    added=(str, "When it was added (UTC)."),
    current=(bool, "Whether it is in use."),
    images=(int | None, "Number of photos that it learned from; null if its files are gone."),
    tags=(int | None, "Number of tags that it knows; null if its files are gone."),
    comparison=(ComparisonAnswer | None, "Comparison with the previous run; null without photos to compare them on."),
)  # fmt: skip

RunsAnswer = answer(
    "RunsAnswer", "The runs of the catalogue.",
    runs=listed(RunAnswer, "The runs, newest first."),
    back=(int | None, "Number of the run that the job go back would use; null if there is none."),
)  # fmt: skip


@router.get("/jobs", response_model=JobsAnswer, responses=errors())
@in_threads("searching")
def jobs(service: ServiceDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the jobs, newest first."""
    before = None if cursor is None else position_of("jobs", cursor)
    latest = service.catalogue.stored.jobs.latest(limit + 1, before=before)
    page = latest[:limit]
    return json_answer({
        "jobs": [_as_dict(service.jobs.with_end(job)) for job in page],
        "next": cursor_at("jobs", page[-1].id) if len(latest) > limit else None,
    })  # fmt: skip


@router.post("/jobs", status_code=202, response_model=JobAnswer, responses=errors(408, 409, 413))
async def start(service: ServiceDep, body: JobRequest) -> Response:
    """Start a job.

    One job runs at a time; a few more may wait.
    """
    options = [body.run] if body.kind in (USE_RUN, GO_BACK) else fit_options(body.full, body.use_even_if_worse)
    job = await service.jobs.start(body.kind, *options)
    return json_answer(_as_dict(job), 202, {"location": f"/api/v1/jobs/{job.id}"})


@router.get("/jobs/{job_id}", response_model=JobAnswer, responses=errors(404))
@in_threads("searching")
def job(service: ServiceDep, job_id: JobId) -> Response:
    """Return a job and its progress."""
    return json_answer(_as_dict(service.jobs.get(job_id)))


@router.post("/jobs/{job_id}/cancel", response_model=JobAnswer, responses=errors(404))
async def cancel(service: ServiceDep, job_id: JobId) -> Response:
    """Stop a job.

    The job keeps what it has stored so far. A job that has ended doesn't change.
    """
    await service.jobs.cancel(job_id)
    return json_answer(_as_dict(await service.searching.run(service.jobs.get, job_id)))


@router.post("/exports", status_code=202, response_model=JobAnswer, responses=errors(408, 409, 413))
async def export(request: Request, service: ServiceDep, body: ExportBody) -> Response:
    """Write tags into files of photos, or show what would be written.

    A job does it; its message has the totals. From another machine, only dry runs are allowed, unless the service was
    started with --may-write.
    """
    values = body.model_dump()
    limits = Limits(*(values.pop(name) for name in Limits._fields))
    into_photos = values.pop("into_photos")
    job = await start_export(service, request, ExportRequest(limits=limits, **values), into_photos=into_photos)
    return json_answer(_as_dict(job), 202, {"location": f"/api/v1/jobs/{job.id}"})


@router.get("/runs", response_model=RunsAnswer, responses=errors())
@in_threads("searching")
def runs(service: ServiceDep) -> Response:
    """List the runs of the catalogue, newest first, each compared with the previous one."""
    stored = service.catalogue.stored
    earlier = earlier_run(stored)
    entries = shown_runs(stored, known_runs(stored)[::-1])
    return json_answer({"runs": [run.as_dict() for run in entries], "back": None if earlier is None else earlier.id})


def earlier_run(stored: StoredCatalogue) -> StoredRun | None:
    """Return the run that "go back" would use; None if there is no earlier run with its files."""
    with suppress(UserError, StorageError):
        return run_to_go_back_to(stored)
    return None


def fit_options(full: bool, use_even_if_worse: bool) -> list[str]:
    """Return the options of a job that learns."""
    return [option for option, is_set in (("full", full), ("use-even-if-worse", use_even_if_worse)) if is_set]


async def start_export(service: Service, request: Request, export: ExportRequest, *, into_photos: bool) -> StoredJob:
    """Start a job that exports tags. Raises HttpError (403) if this request may only start dry runs.

    `into_photos` confirms that photos themselves are changed. Raises UserError if it is missing, or the request is
    invalid.
    """
    connection = await service.searching.run(service.catalogue.stored.connected.get)
    if connection is None:
        export.check()
    elif export.to != connection.kind:
        raise UserError(setting="to", value=export.to, expected=f"'{connection.kind}', which has these photos")
    else:
        for setting, value in (("take_off", export.take_off), ("min_confidence", export.limits.min_confidence)):
            if value:
                problem = f"`{setting}` is for files of photos, and these photos are in {connection.title}."
                raise UserError(problem, setting=setting, value=value, advice="Leave it out.")
    if not export.dry_run and not service.access.may_write(request):
        advice = "Start it with: visterm serve CATALOGUE --may-write"
        raise HttpError(403, f"From another machine, this service only shows what would be written. {advice}")
    if not export.dry_run and not into_photos and connection is None and writes_into_photos(export.to):
        problem = f"Tags for {export.to} are written into the photos themselves."
        raise UserError(problem, setting="into_photos", value=False, advice="Confirm it with `into_photos`.")
    return await service.jobs.start(EXPORT, json.dumps(asdict(export)))


def _as_dict(job: StoredJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in JobAnswer.model_fields}
