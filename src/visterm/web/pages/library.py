"""The page of the library: its photos, skipped files and why, runs with their curves, and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from visterm.core.errors import StorageError, UserError
from visterm.library.catalogue import Catalogue
from visterm.library.earlier_runs import GO_BACK, USE_RUN
from visterm.library.info import describe, training_history
from visterm.store.catalogue import RUNS
from visterm.store.runs import StoredRun
from visterm.tagging.plot import history_panels
from visterm.web.api.jobs import JobId, fit_options
from visterm.web.errors import Refused
from visterm.web.pages.cache import cache_of
from visterm.web.pages.learned import KINDS, job_values, named
from visterm.web.pages.render import PageRoute, is_for_script, render, send_on
from visterm.web.pages.search import Shared
from visterm.web.service import Service

router = APIRouter(include_in_schema=False, route_class=PageRoute)

SKIPPED = 200
JOBS = 12
STARTED = ("index", "fit", "duplicates", "mistakes", "map")  # Jobs that the page starts
CURVE_WIDTH, CURVE_HEIGHT = 220.0, 60.0
SHOWN = {
    "model": "model",
    "encoder": "encoder",
    "images": "photos learned from",
    "tags": "tags",
    "epochs": "epochs",
    "best validation MAP": "best validation MAP",
    "validation word MAP": "validation MAP of searches",
    "compared": "photos held out",
    "before": "MAP of the run before on them",
    "after": "MAP of this run on them",
}
"""Facts of a run that the page shows, and their names there."""


class Curve(NamedTuple):
    """A measure epoch by epoch, as the points of a line in a box of `CURVE_WIDTH` by `CURVE_HEIGHT`."""

    title: str
    points: str
    first: float
    last: float
    best: float | None


class ShownRun(NamedTuple):
    """A run with its figures."""

    run: StoredRun
    facts: dict[str, Any]
    curves: list[Curve]


@router.get("/library")
async def library_page(service: Shared) -> Response:
    """Show what the catalogue holds."""
    return render("library.html", **await service.browsing.run(_values, service))


@router.post("/library/jobs")
async def start_job(
    request: Request,
    service: Shared,
    kind: Annotated[str, Form()],
    full: Annotated[bool, Form()] = False,
    use_even_if_worse: Annotated[bool, Form()] = False,
    run: Annotated[str, Form(pattern="^[0-9a-f]{0,64}$")] = "",
) -> Response:
    """Start a job, and show its progress."""
    if kind not in (*STARTED, GO_BACK) and not (kind == USE_RUN and run):
        raise Refused(422, f"kind is {kind!r}; expected one of {', '.join(STARTED)}.", field="kind")
    job = await service.jobs.start(kind, *([run] if run else fit_options(full, use_even_if_worse)))
    if not is_for_script(request):
        return send_on(f"/library/jobs/{job.id}")
    return render("_job.html", job=job, outcomes={}, kinds=KINDS, run_names={})


@router.get("/library/jobs/{job_id}")
async def job_page(job_id: JobId, request: Request, service: Shared) -> Response:
    """Show the progress of a job; the script requests it again until the job has ended."""
    values = await service.searching.run(_job, service, job_id)
    return render("_job.html" if is_for_script(request) else "job.html", **values)


@router.post("/library/jobs/{job_id}/cancel")
async def cancel_job(job_id: JobId, request: Request, service: Shared) -> Response:
    """Stop a job."""
    await service.jobs.cancel(job_id)
    if not is_for_script(request):
        return send_on(f"/library/jobs/{job_id}")
    return render("_job.html", **await service.searching.run(_job, service, job_id))


def _job(service: Service, job_id: int) -> dict[str, Any]:
    """Return the values of a job's template, or refuse an id that no job has."""
    job = service.catalogue.stored.jobs.get(job_id)
    if job is None:
        raise Refused(404, f"There is no job {job_id}.")
    return {"job": service.jobs.shown(job), **job_values(service.catalogue.stored, [job])}


def _values(service: Service) -> dict[str, Any]:
    """Return the values of the library's template."""
    catalogue, stored = service.catalogue, service.catalogue.stored
    skipped = stored.skipped.all()
    jobs = stored.jobs.latest(JOBS)
    return {
        "counts": catalogue.stored.database.keep("library", lambda: _counts(catalogue)),
        "skipped": skipped[:SKIPPED],
        "n_skipped": len(skipped),
        "runs": [_shown_run(catalogue, run) for run in reversed(stored.runs.all())],
        "jobs": [service.jobs.shown(job) for job in jobs],
        **job_values(stored, jobs),
        "run_names": named(stored, stored.runs.all()),
        "run_numbers": {run.fingerprint: run.id for run in stored.runs.all()},
        "started": STARTED,
        "history": stored.history.latest(JOBS),
        "names": SHOWN,
        "searched": stored.how_it_searches(),
        "folder": str(stored.folder),
    }


def _counts(catalogue: Catalogue) -> dict[str, int]:
    """Count photos and tags, under the names that the page shows."""
    catalogue.refresh()
    value = catalogue.stored.database.value
    images = "SELECT count(*) FROM images WHERE state = 'here'"
    return {
        "photos": value(images),
        "reviewed": value(f"{images} AND reviewed IS NOT NULL"),
        "with tags": value(
            f"{images} AND id IN (SELECT image_id FROM given UNION SELECT image_id FROM verdicts WHERE verdict = 1)"
        ),
        "hidden": (n_hidden := len(catalogue.stored.images.hidden())),
        "files missing": catalogue.stored.images.count("gone") - n_hidden,
        "files skipped": catalogue.stored.skipped.count(),
        "tags learned": len(catalogue.tagger.vocabulary),
    }


def _shown_run(catalogue: Catalogue, run: StoredRun) -> ShownRun:
    """Return a run with the facts and curves of its files."""
    folder = catalogue.stored.folder
    if folder is None:
        return ShownRun(run, {}, [])
    place = folder / RUNS / run.fingerprint
    facts, curves = cache_of(catalogue).get(("run", run.fingerprint), lambda: _facts_and_curves(place))
    known = facts | run.facts
    return ShownRun(run, {SHOWN[name]: known[name] for name in SHOWN if known.get(name) is not None}, curves)


def _facts_and_curves(place: Path) -> tuple[dict[str, Any], list[Curve]]:
    """Read the facts and the history of a run; both are empty if its files were removed to save room."""
    try:
        facts = describe(place)
    except StorageError:
        return {}, []
    try:
        panels = history_panels(training_history(place))
    except UserError:  # its model learns in one step
        return facts, []
    curves = []
    for panel in panels:
        if len(panel.values) > 1 and panel.name in ("loss", "map"):
            best = None if panel.best is None else panel.values[panel.epochs.index(panel.best)]
            curves.append(_curve(panel.title, panel.values, best))
    return facts, curves


def _curve(title: str, values: Sequence[float], best: float | None) -> Curve:
    """Return a line from 0, or from the least value if that is negative, up to the largest value."""
    low, high = min(0.0, *values), max(values)
    height = (high - low) or 1.0
    step = CURVE_WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{step * i:.1f},{CURVE_HEIGHT * (1 - (value - low) / height):.1f}" for i, value in enumerate(values)
    )
    return Curve(title, points, values[0], values[-1], best)
