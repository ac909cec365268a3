"""The runs that a catalogue had in use before: which it can go back to, and which a person went back from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import folder_kind, read_json
from visterm.library.learned import Comparison
from visterm.store.catalogue import RUNS, StoredCatalogue
from visterm.store.history import SHORT, StoredRun

FIT, NOT_USED, USE_RUN, GO_BACK = "fit", "fit, not used", "use run", "go back"  # What the history calls them
LEAST_LETTERS = 4  # Of a fingerprint that stand for it: fewer digits are the number of a run


class ShownRun(NamedTuple):
    """A run of a catalogue with the figures by which people tell it from others."""

    run: StoredRun
    images: int | None  # Photos that it learned from; None if its files are not there any more
    tags: int | None
    comparison: Comparison | None  # With the run that was in use when it was learned

    def as_dict(self) -> dict[str, object]:
        """Return the run as it stands in JSON."""
        return {
            "number": self.run.id, "run": self.run.fingerprint, "added": self.run.added, "current": self.run.current,
            "images": self.images, "tags": self.tags,
            "comparison": None if self.comparison is None else self.comparison.as_dict(),
        }  # fmt: skip


def known_runs(stored: StoredCatalogue) -> list[StoredRun]:
    """List the runs of a catalogue that can be used, oldest first: all but those whose learning was cut off."""
    return [run for run in stored.runs.all() if run.current or run.facts.get("unfinished") is not True]


def earlier_runs(stored: StoredCatalogue) -> list[StoredRun]:
    """List the runs that a catalogue can go back to, the latest first: those in use before the current one."""
    known = {run.fingerprint: run for run in known_runs(stored)}
    before, _, _ = steps_to_current(stored)
    return [known[run] for run in dict.fromkeys(reversed(before)) if run in known and not known[run].current]


def naming_earlier(stored: StoredCatalogue, error: StorageError) -> StorageError:
    """Return the error of a current run that cannot be opened, with the command that goes back to the one before."""
    if not earlier_runs(stored):
        return error
    return type(error)(f"{error} Or go back to the run before: visterm use {stored.folder} --back")


def run_to_go_back_to(stored: StoredCatalogue, name: str = "") -> StoredRun:
    """Return the run that was in use before, or another earlier one by its number or the first letters of its name.

    Raises UserError if there is none, or `name` is no earlier one; StorageError if its files are not there any more.
    """
    current, earlier = stored.runs.current(), earlier_runs(stored)
    if not earlier:
        raise UserError(
            f"There is no run to go back to: no other run was in use before run {current.id}.",
            advice=f"To list the runs: visterm use {stored.folder}",
        )
    run = find_run(earlier, name, f"To use any other run: visterm use {stored.folder} RUN") if name else earlier[0]
    if stored.folder is not None and folder_kind(stored.folder / RUNS / run.fingerprint) != "run":
        others = " or ".join(f"{other.id}" for other in earlier if other is not run)
        choose = f"Choose another: visterm use {stored.folder} {others} --back." if others else "Restore them."
        raise StorageError(
            f"The files of run {run.id} are not in {stored.folder / RUNS / run.fingerprint} any more, so the "
            f"catalogue goes on with run {current.id}. {choose}"
        )
    return run


def find_run(runs: Sequence[StoredRun], name: str, hint: str = "") -> StoredRun:
    """Return the run that has a number, or whose fingerprint begins with these letters, at least four.

    Raises UserError, which ends with a hint, if it is not one of `runs`.
    """
    matches = [run for run in runs if str(run.id) == name]
    if not matches and len(name) >= LEAST_LETTERS:
        matches = [run for run in runs if run.fingerprint.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    choice = ", ".join(f"{run.id} ({run.fingerprint[:SHORT]})" for run in runs)
    begins = "More than one run begins" if matches else "No run has the number, or begins,"
    problem = f"{begins} with '{name}'."
    raise UserError(problem, setting="run", value=name, expected=f"one of {choice}", advice=hint)


def shown_runs(stored: StoredCatalogue, runs: Sequence[StoredRun]) -> list[ShownRun]:
    """Return runs with their figures."""
    shown = []
    for run in runs:
        folder = None if stored.folder is None else stored.folder / RUNS / run.fingerprint
        facts = read_json(folder / "facts.json") if folder is not None and folder_kind(folder) == "run" else {}
        facts = facts if isinstance(facts, dict) else {}
        shown.append(ShownRun(run, facts.get("images"), facts.get("tags"), Comparison.of(run.facts)))
    return shown


def steps_to_current(stored: StoredCatalogue) -> tuple[list[str], dict[str, str], str]:
    """Follow the history of a catalogue from run to run, and return how it came to its current run.

    These are the runs that were in use before, the latest last, without those that it went back over; the runs that a
    person went back from and nobody has used since, with the time; and what the last change was (`FIT`, `USE_RUN`,
    `GO_BACK` or nothing).
    """
    before: list[str] = []
    went_back_from: dict[str, str] = {}
    last = ""
    for event in stored.history.of(FIT, USE_RUN, GO_BACK):
        if "run" not in event.details:  # Nothing else was used
            continue
        run, last = str(event.details["run"]), event.what
        if event.what == GO_BACK:
            went_back_from[str(event.details["before"])] = event.at
            while before and before.pop() != run:
                pass
        else:
            before.append(str(event.details.get("before_run" if event.what == FIT else "before")))
        went_back_from.pop(run, None)
    return before, went_back_from, last
