"""The library page: counts of photos, skipped files, runs, and jobs with their results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form, Request, Response

from visterm.core.errors import StorageError, UserError
from visterm.core.wording import count_of
from visterm.library.backup import BACK_UP
from visterm.library.catalogue import Catalogue
from visterm.library.info import describe
from visterm.library.learned import NO_TAGS, QUICK, START, Comparison
from visterm.library.runs import FIT, GO_BACK, NOT_USED, USE_RUN, known_runs, shown_runs
from visterm.store import RUNS
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import StoredJob, StoredRun
from visterm.web.api.jobs import JobId, earlier_run, fit_options
from visterm.web.bodies import FormFlag, FormText
from visterm.web.exports import EXPORT, last_dry_run
from visterm.web.pages.render import PageRoute, answer_form, date_and_time, is_for_script, redirect, render
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_SKIPPED = 200
MAX_JOBS = 12
START_JOBS = ("index", FIT, USE_RUN)  # Jobs of a catalogue that has learned nothing yet
IDLE_TIME = timedelta(seconds=20)  # Time without such a job after which no more photos come in
N_START_WORDS = 12  # Words of the network to start from
STARTABLE_JOBS = ("index", "fit", "duplicates", "mistakes", "map")
JOB_LABELS = {
    "index": "Look for new photos", "fit": "Learn", "duplicates": "Look for duplicates", "use run": "Use another run",
    "go back": "Go back", "mistakes": "Look for mistakes", "map": "Draw the map of similarity", EXPORT: "Write tags",
}  # fmt: skip
"""The page's names of the kinds of jobs."""

FACT_LABELS = {
    "model": "model", "encoder": "encoder", "images": "photos learned from", "tags": "tags", "epochs": "epochs",
    "best validation MAP": "MAP on photos held out (1 is perfect)", "validation word MAP": "MAP of searches on them",
    "compared": "photos compared on", "before": "MAP of the previous run on them", "after": "MAP of this run on them",
}  # fmt: skip
"""Facts of a run that the page shows, and its names for them."""


class FitOutcome(NamedTuple):
    """The run that a job learned."""

    run: StoredRun
    comparison: Comparison | None  # With the previous run; None if there was no photo to compare them on
    old: StoredRun | None  # The previous run
    why_not: str  # Why it was not used, see `Learned.why_not`; empty if it was
    learned: str  # What it learned from and which tags are new, as a sentence
    latest: bool  # Whether no later job has learned: only then a button changes the run


@router.get("/library")
@in_threads("browsing")
def library_page(service: ServiceDep) -> Response:
    """Show the photos, runs and jobs of the catalogue."""
    catalogue, stored = service.catalogue, service.catalogue.stored
    skipped, jobs, runs = stored.skipped.all(), stored.jobs.latest(MAX_JOBS), known_runs(stored)
    folder = stored.folder
    assert folder is not None
    shown_runs_and_facts = []
    for run in reversed(runs):
        facts = _facts_of(folder / RUNS / run.fingerprint) | run.facts
        shown_facts = {label: facts[name] for name, label in FACT_LABELS.items() if facts.get(name) is not None}
        shown_runs_and_facts.append((run, shown_facts))

    values = job_values(stored, jobs) | {"run_names": _run_names(stored, runs)}
    return render(
        "library.html", counts=stored.database.keep("library", lambda: _counts(catalogue)),
        skipped=skipped[:MAX_SKIPPED], n_skipped=len(skipped), runs=shown_runs_and_facts,
        run_numbers={run.fingerprint: run.id for run in runs}, jobs=[service.jobs.with_end(job) for job in jobs],
        history=stored.history.latest(MAX_JOBS), backup=next(iter(stored.history.of(BACK_UP)[::-1]), None),
        started=STARTABLE_JOBS, names=FACT_LABELS, searched=stored.how_it_searches(), folder=str(folder), **values,
    )  # fmt: skip


@router.post("/library/jobs")
async def start_job(
    request: Request, service: ServiceDep, kind: FormText, full: FormFlag = False, use_even_if_worse: FormFlag = False,
    run: Annotated[str, Form(pattern="^[0-9a-f]{0,64}$")] = "",
) -> Response:  # fmt: skip
    """Start a job, and show its progress."""
    if kind not in (*STARTABLE_JOBS, GO_BACK) and not (kind == USE_RUN and run):
        raise UserError(setting="kind", value=kind, expected=f"one of: {', '.join(STARTABLE_JOBS)}")
    job = await service.jobs.start(kind, *([run] if run else fit_options(full, use_even_if_worse)))
    return await answer_job(request, service, job.id)


@router.get("/library/start")
@in_threads("searching")
def start_part(request: Request, service: ServiceDep) -> Response:
    """Show how far a catalogue is that has learned nothing yet; the script requests it again until it has."""
    if not is_for_script(request):
        return redirect("/")
    return render("_start.html", start=start_values(service) or {"learned": True})


def start_values(service: Service) -> dict[str, object] | None:
    """Return the values of a template about a catalogue that has learned nothing yet; None for any other one."""
    catalogue, stored = service.catalogue, service.catalogue.stored
    if START not in catalogue.tagger.facts:
        return None
    jobs = [service.jobs.with_end(job) for job in stored.jobs.latest(MAX_JOBS) if job.kind in START_JOBS]
    job = next((job for job in jobs if not job.ended), None)
    latest = jobs[0] if jobs else None
    last_end = datetime.fromisoformat(latest.finished or latest.started) if latest else datetime.now(UTC)
    has_no_tags = stored.runs.current().facts.get(START) == NO_TAGS and not stored.tags.come_from_files()
    words = stored.tags.often_best(stored.runs.current().id, N_START_WORDS) if has_no_tags and not job else []
    return {
        "learned": False, "job": job, "photos": stored.images.count(), "has_no_tags": has_no_tags, "words": words,
        "n_words": len(catalogue.tagger.vocabulary), "is_quick": catalogue.tagger.facts[START] == QUICK,
        "stopped": latest if job is None and latest and latest.kind == FIT and latest.state != "done" else None,
        "are_in": job is None and latest is not None and datetime.now(UTC) - last_end > IDLE_TIME,
    }  # fmt: skip


@router.get("/library/jobs/{job_id}")
@in_threads("searching")
def job_page(job_id: JobId, request: Request, service: ServiceDep) -> Response:
    """Show the progress of a job; the script requests it again until the job has ended."""
    values = _shown_job(service, service.jobs.get(job_id))
    return render("_job.html" if is_for_script(request) else "job.html", **values)


@router.post("/library/jobs/{job_id}/cancel")
async def cancel_job(job_id: JobId, request: Request, service: ServiceDep) -> Response:
    """Stop a job."""
    await service.jobs.cancel(job_id)
    return await answer_job(request, service, job_id)


async def answer_job(request: Request, service: Service, job_id: int) -> Response:
    """Show a job that a form has started or changed."""
    values = await service.searching.run(lambda: _shown_job(service, service.jobs.get(job_id)))
    return answer_form(request, "_job.html", f"/library/jobs/{job_id}", **values)


def _shown_job(service: Service, job: StoredJob | None) -> dict[str, object]:
    """Return the values of a template that shows a job, if there is one."""
    jobs = [] if job is None else [service.jobs.with_end(job)]
    return {"job": jobs[0] if jobs else None, **job_values(service.catalogue.stored, jobs)}


def _counts(catalogue: Catalogue) -> dict[str, int]:
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
def _facts_of(folder: Path) -> dict[str, object]:
    """Read the facts of a run; there are none if its files were removed to save space."""
    try:
        return describe(folder)
    except StorageError:
        return {}


def job_values(stored: StoredCatalogue, jobs: Sequence[StoredJob]) -> dict[str, object]:
    """Return the values of the jobs' template: the outcomes of jobs that learned, and the run to go back to."""
    runs = {run.fingerprint: run for run in known_runs(stored)}
    events = [event for event in stored.history.of(FIT, NOT_USED) if event.details.get("run") in runs]
    outcomes = {}
    for job, event in product(jobs, events):
        if job.kind == FIT and job.finished is not None and job.started <= event.at <= job.finished:
            run = runs[event.details["run"]]
            comparison = Comparison.of(run.facts)
            old = runs.get(comparison.run_before) if comparison else None
            why_not, learned = (str(event.details.get(name, "")) for name in ("why", "learned"))
            outcomes[job.id] = FitOutcome(run, comparison, old, why_not, learned, event is events[-1])

    back = earlier_run(stored)
    shown = [back, *(run for outcome in outcomes.values() for run in (outcome.run, outcome.old))]
    names = _run_names(stored, [run for run in shown if run is not None])
    return {"outcomes": outcomes, "back": back, "kinds": JOB_LABELS, "run_names": names, "tried": last_dry_run(stored)}


def latest_job(service: Service, kind: str, *, ended: bool = True) -> dict[str, object]:
    """Return the values of a template with the newest job of a kind; without `ended`, only of a job that is running."""
    job = next((job for job in service.catalogue.stored.jobs.latest() if job.kind == kind), None)
    return _shown_job(service, None if job is not None and job.ended and not ended else job)


def _run_names(stored: StoredCatalogue, runs: Sequence[StoredRun]) -> dict[str, str]:
    """Return readable names of runs by fingerprint: "learned 24 November 2026, 14:05, from 3,120 photos"."""
    return {
        entry.run.fingerprint: f"learned {date_and_time(entry.run.added)}"
        + ("" if entry.images is None else f", from {count_of(entry.images, 'photo')}")
        for entry in shown_runs(stored, runs)
    }
