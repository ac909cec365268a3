"""The page of the library: its photos, skipped files and why, runs with their curves, and jobs with what they did."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form, Request, Response

from visterm.core.errors import StorageError, UserError
from visterm.core.wording import count_of
from visterm.library.catalogue import Catalogue
from visterm.library.earlier_runs import FIT, GO_BACK, NOT_USED, USE_RUN, shown_runs
from visterm.library.info import describe, training_history
from visterm.library.learned import Comparison
from visterm.store.catalogue import RUNS, StoredCatalogue
from visterm.store.history import StoredJob, StoredRun
from visterm.tagging.plot import history_panels
from visterm.web.api.jobs import JobId, fit_options, way_back
from visterm.web.pages.render import PageRoute, answer_form, date_and_time, is_for_script, render
from visterm.web.service import Service, Shared

router = APIRouter(include_in_schema=False, route_class=PageRoute)

SKIPPED = 200
JOBS = 12
STARTED = ("index", "fit", "duplicates", "mistakes", "map")  # Jobs that the page starts
KINDS = {
    "index": "Look for new photos", "fit": "Learn", "duplicates": "Look for duplicates", "use run": "Use another run",
    "go back": "Go back", "mistakes": "Look for mistakes", "map": "Draw the map",
}  # fmt: skip
"""Jobs, as the page names them."""

CURVE_WIDTH, CURVE_HEIGHT = 220.0, 60.0
SHOWN = {
    "model": "model", "encoder": "encoder", "images": "photos learned from", "tags": "tags", "epochs": "epochs",
    "best validation MAP": "best validation MAP", "validation word MAP": "validation MAP of searches",
    "compared": "photos held out", "before": "MAP of the run before on them", "after": "MAP of this run on them",
}  # fmt: skip
"""Facts of a run that the page shows, and their names there."""


class Sparkline(NamedTuple):
    """A measure epoch by epoch, as the points of a line in a box of `CURVE_WIDTH` by `CURVE_HEIGHT`."""

    title: str
    points: str
    first: float
    last: float
    best: float | None


class FitOutcome(NamedTuple):
    """The run that a job learned."""

    run: StoredRun
    comparison: Comparison | None  # With the run that was in use before; None if no photo could be compared
    old: StoredRun | None  # That run
    why_not: str  # Why it was not used, see `Learned.why_not`; empty if it was
    learned: str  # From how much it learned and which tags are new, in words
    latest: bool  # Whether no job has learned since: only then a button changes the run


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
        raise UserError(setting="kind", value=kind, expected=f"one of: {', '.join(STARTED)}")
    job = await service.jobs.start(kind, *([run] if run else fit_options(full, use_even_if_worse)))
    page = f"/library/jobs/{job.id}"
    return answer_form(request, "_job.html", page, job=job, outcomes={}, kinds=KINDS, run_names={})


@router.get("/library/jobs/{job_id}")
async def job_page(job_id: JobId, request: Request, service: Shared) -> Response:
    """Show the progress of a job; the script requests it again until the job has ended."""
    values = await service.searching.run(_job, service, job_id)
    return render("_job.html" if is_for_script(request) else "job.html", **values)


@router.post("/library/jobs/{job_id}/cancel")
async def cancel_job(job_id: JobId, request: Request, service: Shared) -> Response:
    """Stop a job."""
    await service.jobs.cancel(job_id)
    values = await service.searching.run(_job, service, job_id)
    return answer_form(request, "_job.html", f"/library/jobs/{job_id}", **values)


def _job(service: Service, job_id: int) -> dict[str, object]:
    """Return the values of a job's template, or refuse an id that no job has."""
    job = service.jobs.get(job_id)
    return {"job": job, **job_values(service.catalogue.stored, [job])}


def _values(service: Service) -> dict[str, object]:
    catalogue, stored = service.catalogue, service.catalogue.stored
    skipped = stored.skipped.all()
    jobs = stored.jobs.latest(JOBS)
    runs, shown, folder = stored.runs.all(), [], stored.folder
    assert folder is not None

    for run in reversed(runs):
        facts, curves = _read_run(folder / RUNS / run.fingerprint)
        facts = facts | run.facts
        shown.append((run, {SHOWN[name]: facts[name] for name in SHOWN if facts.get(name) is not None}, curves))
    return job_values(stored, jobs) | {
        "counts": stored.database.keep("library", lambda: _counts(catalogue)),
        "skipped": skipped[:SKIPPED], "n_skipped": len(skipped),
        "runs": shown, "run_names": _named(stored, runs), "run_numbers": {run.fingerprint: run.id for run in runs},
        "jobs": [service.jobs.with_end(job) for job in jobs], "history": stored.history.latest(JOBS),
        "started": STARTED, "names": SHOWN, "searched": stored.how_it_searches(), "folder": str(folder),
    }  # fmt: skip


def _counts(catalogue: Catalogue) -> dict[str, int]:
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


@lru_cache(maxsize=64)
def _read_run(folder: Path) -> tuple[dict[str, object], list[Sparkline]]:
    """Read the facts and the history of a run; both are empty if its files were removed to save room."""
    try:
        facts = describe(folder)
    except StorageError:
        return {}, []
    try:
        panels = history_panels(training_history(folder))
    except UserError:  # its model learns in one step
        return facts, []
    curves = []
    for panel in panels:
        if len(panel.values) > 1 and panel.name in ("loss", "map"):
            best = None if panel.best is None else panel.values[panel.epochs.index(panel.best)]
            curves.append(_curve(panel.title, panel.values, best))
    return facts, curves


def _curve(title: str, values: Sequence[float], best: float | None) -> Sparkline:
    """Return a line from 0, or from the least value if that is negative, up to the largest value."""
    low, high = min(0.0, *values), max(values)
    height = (high - low) or 1.0
    step = CURVE_WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{step * i:.1f},{CURVE_HEIGHT * (1 - (value - low) / height):.1f}" for i, value in enumerate(values)
    )
    return Sparkline(title, points, values[0], values[-1], best)


def job_values(stored: StoredCatalogue, jobs: Sequence[StoredJob]) -> dict[str, object]:
    """Return what the template of jobs shows beside them: what those that learned changed, and the way back."""
    runs = {run.fingerprint: run for run in stored.runs.all()}
    events = [event for event in stored.history.of(FIT, NOT_USED) if event.details.get("run") in runs]
    outcomes = {}
    for job in jobs:
        if job.kind != FIT or job.finished is None:
            continue
        for event in events:
            if job.started <= event.at <= job.finished:
                run = runs[event.details["run"]]
                comparison = Comparison.of(run.facts)
                old = runs.get(comparison.run_before) if comparison else None
                why, learned = (str(event.details.get(name, "")) for name in ("why", "learned"))
                outcomes[job.id] = FitOutcome(run, comparison, old, why, learned, event is events[-1])
    back = way_back(stored)
    mentioned = [back, *(run for outcome in outcomes.values() for run in (outcome.run, outcome.old))]
    names = _named(stored, [run for run in mentioned if run is not None])
    return {"outcomes": outcomes, "back": back, "kinds": KINDS, "run_names": names}


def latest_job(service: Service, kind: str, *, ended: bool = True) -> dict[str, object]:
    """Return the newest job of a kind, and what its template shows beside it; without `ended` only one that goes on."""
    stored = service.catalogue.stored
    job = next((job for job in stored.jobs.latest() if job.kind == kind), None)
    if job is None or (job.ended and not ended):
        return {"job": None, **job_values(stored, [])}
    return {"job": service.jobs.with_end(job), **job_values(stored, [job])}


def _named(stored: StoredCatalogue, runs: Sequence[StoredRun]) -> dict[str, str]:
    """Return what people call runs, by fingerprint: "learned 24 November 2026, 14:05, from 3,120 photos"."""
    return {
        entry.run.fingerprint: f"learned {date_and_time(entry.run.added)}"
        + ("" if entry.images is None else f", from {count_of(entry.images, 'photo')}")
        for entry in shown_runs(stored, runs)
    }
