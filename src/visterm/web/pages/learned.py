"""What came of learning again: the old and the new run on the same photos, which one is in use, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.core.wording import count_of
from visterm.library.comparison import Comparison
from visterm.library.earlier_runs import FIT, NOT_USED, run_to_go_back_to, shown_runs
from visterm.store.catalogue import StoredCatalogue
from visterm.store.jobs import Job
from visterm.store.runs import StoredRun
from visterm.web.pages.render import date_and_time

KINDS = {
    "index": "Look for new photos", "fit": "Learn", "duplicates": "Look for duplicates", "use run": "Use another run",
    "go back": "Go back", "mistakes": "Look for mistakes", "map": "Draw the map",
}  # fmt: skip
"""Jobs, as the page names them."""


class Outcome(NamedTuple):
    """The run that a job learned."""

    run: StoredRun
    comparison: Comparison | None  # With the run that was in use before; None if no photo could be compared
    old: StoredRun | None  # That run
    why_not: str  # Why it was not used, see `Learned.why_not`; empty if it was
    learned: str  # From how much it learned and which tags are new, in words
    latest: bool  # Whether no job has learned since: only then a button changes the run


def job_values(stored: StoredCatalogue, jobs: Sequence[Job]) -> dict[str, Any]:
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
                found = Comparison.of(run.facts)
                old = runs.get(found.run_before) if found else None
                why, said = (str(event.details.get(name, "")) for name in ("why", "learned"))
                outcomes[job.id] = Outcome(run, found, old, why, said, event is events[-1])
    back = way_back(stored)
    shown = [back, *(run for outcome in outcomes.values() for run in (outcome.run, outcome.old))]
    names = named(stored, [run for run in shown if run is not None])
    return {"outcomes": outcomes, "back": back, "kinds": KINDS, "run_names": names}


def named(stored: StoredCatalogue, runs: Sequence[StoredRun]) -> dict[str, str]:
    """Return what people call runs, by fingerprint: "learned 24 November 2026, 14:05, from 3,120 photos"."""
    return {
        found.run.fingerprint: f"learned {date_and_time(found.run.added)}"
        + ("" if found.images is None else f", from {count_of(found.images, 'photo')}")
        for found in shown_runs(stored, runs)
    }


def way_back(stored: StoredCatalogue) -> StoredRun | None:
    """Return the run that "Go back" leads to; None if there is none whose files are there."""
    with suppress(UserError, StorageError):
        return run_to_go_back_to(stored)
    return None
