"""Earlier runs of a catalogue: which runs it can go back to, and which runs a person went back from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import folder_kind, read_json
from visterm.library.learned import START, Comparison
from visterm.store.catalogue import RUNS, StoredCatalogue
from visterm.store.history import SHORT_FINGERPRINT_LENGTH, StoredRun

FIT, NOT_USED, USE_RUN, GO_BACK = "fit", "fit, not used", "use run", "go back"  # Kinds of events in the history
MIN_LETTERS = 4  # Minimum length of an abbreviated fingerprint; shorter texts are run numbers


class ShownRun(NamedTuple):
    """A run of a catalogue with figures that help people to recognise it."""

    run: StoredRun
    images: int | None  # Number of training photos; None if its files are gone
    tags: int | None
    comparison: Comparison | None  # With the run that was current when this run was trained

    def as_dict(self) -> dict[str, object]:
        """Return the run as JSON data."""
        return {
            "number": self.run.id, "run": self.run.fingerprint, "added": self.run.added, "current": self.run.current,
            "images": self.images, "tags": self.tags,
            "comparison": None if self.comparison is None else self.comparison.as_dict(),
        }  # fmt: skip


def known_runs(stored: StoredCatalogue) -> list[StoredRun]:
    """List the usable runs of a catalogue, oldest first.

    Runs whose training was interrupted are left out, and one with which the catalogue began and that is replaced.
    """
    return [run for run in stored.runs.all() if run.current or run.facts.keys().isdisjoint(("unfinished", START))]


def earlier_runs(stored: StoredCatalogue) -> list[StoredRun]:
    """List the runs that a catalogue can go back to, latest first: those in use before the current run."""
    runs = {run.fingerprint: run for run in known_runs(stored)}
    previous, _, _ = steps_to_current(stored)
    return [runs[name] for name in dict.fromkeys(reversed(previous)) if name in runs and not runs[name].current]


@contextmanager
def go_back_advice(stored: StoredCatalogue) -> Iterator[None]:
    """Add the command that goes back to the previous run to the error of a current run that cannot be opened."""
    try:
        yield
    except StorageError as error:
        if not earlier_runs(stored):
            raise
        raise type(error)(f"{error} Or go back to the previous run: visterm use {stored.folder} --back") from error


def run_to_go_back_to(stored: StoredCatalogue, name: str = "") -> StoredRun:
    """Return the previous run, or the earlier run whose number or start of the fingerprint is `name`.

    Raises UserError if there is no such run; StorageError if its files are gone.
    """
    current, earlier = stored.runs.current(), earlier_runs(stored)
    if not earlier:
        raise UserError(
            f"There is no run to go back to: no other run was in use before run {current.id}.",
            advice=f"To list the runs: visterm use {stored.folder}",
        )

    run = find_run(earlier, name, f"To use any other run: visterm use {stored.folder} RUN") if name else earlier[0]
    if stored.folder is not None and folder_kind(stored.folder / RUNS / run.fingerprint) != "run":
        numbers = " or ".join(f"{other.id}" for other in earlier if other is not run)
        advice = f"Choose another: visterm use {stored.folder} {numbers} --back." if numbers else "Restore them."
        raise StorageError(
            f"The files of run {run.id} are no longer in {stored.folder / RUNS / run.fingerprint}, so the catalogue "
            f"still uses run {current.id}. {advice}"
        )
    return run


def find_run(runs: Sequence[StoredRun], name: str, hint: str = "") -> StoredRun:
    """Return the run with the number `name`, or whose fingerprint begins with `name` (at least four letters).

    Raises UserError, ending with `hint`, unless exactly one of `runs` matches.
    """
    matches = [run for run in runs if str(run.id) == name]
    if not matches and len(name) >= MIN_LETTERS:
        matches = [run for run in runs if run.fingerprint.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    choice = ", ".join(f"{run.id} ({run.fingerprint[:SHORT_FINGERPRINT_LENGTH]})" for run in runs)
    subject = "More than one run begins" if matches else "No run has the number, or begins,"
    problem = f"{subject} with '{name}'."
    raise UserError(problem, setting="run", value=name, expected=f"one of {choice}", advice=hint)


def shown_runs(stored: StoredCatalogue, runs: Sequence[StoredRun]) -> list[ShownRun]:
    """Return runs with their figures."""
    results = []
    for run in runs:
        folder = None if stored.folder is None else stored.folder / RUNS / run.fingerprint
        facts = read_json(folder / "facts.json") if folder is not None and folder_kind(folder) == "run" else {}
        facts = facts if isinstance(facts, dict) else {}
        results.append(ShownRun(run, facts.get("images"), facts.get("tags"), Comparison.of(run.facts)))
    return results


def steps_to_current(stored: StoredCatalogue) -> tuple[list[str], set[str], str]:
    """Return the steps that led to the current run of a catalogue, according to its history.

    Returns the runs that were in use previously, latest last, without those that were skipped by going back; the runs
    that a person went back from and nobody has used since; and the kind of the last change (`FIT`, `USE_RUN`, `GO_BACK`
    or "").
    """
    previous: list[str] = []
    undone: set[str] = set()
    last_change = ""
    for event in stored.history.of(FIT, USE_RUN, GO_BACK):
        if "run" not in event.details:  # the run was not changed
            continue
        run, last_change = str(event.details["run"]), event.what
        if event.what == GO_BACK:
            undone.add(str(event.details["before"]))
            while previous and previous.pop() != run:
                pass
        else:
            previous.append(str(event.details.get("before_run" if event.what == FIT else "before")))
        undone.discard(run)
    return previous, undone, last_change
