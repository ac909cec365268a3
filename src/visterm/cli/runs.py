"""`visterm use` and `go-back`: search a catalogue with another of its runs; how runs and comparisons are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visterm.cli import options
from visterm.cli.output import emit, in_minutes, say, table
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.comparison import Comparison
    from visterm.library.earlier_runs import ShownRun

USE_EXAMPLES = (
    ("visterm use catalogue", "list its runs, with dates and figures"),
    ("visterm use catalogue 3", "use run 3"),
)
GO_BACK_EXAMPLES = (
    ("visterm go-back catalogue", "use the run of before again"),
    ("visterm go-back catalogue --list", "list the runs that it can go back to"),
    ("visterm go-back catalogue --to 2", "go back to run 2"),
)


def use(
    catalogue: options.CatalogueFolder,
    run: Annotated[
        str | None, options.argument(help="One of its runs, by its number. Leave it out to list them all.")
    ] = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Search a catalogue with another of its runs.

    Any run that the catalogue has: a later one, or one that was learned and not used because it was worse. All that
    people said stays as it is.
    """
    if run is not None:
        _switch(catalogue, run, back=False, jobs=jobs, json=json)
        return
    from visterm.library.earlier_runs import known_runs, shown_runs
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    _show_runs(shown_runs(stored, known_runs(stored)), json=json)


def go_back(
    catalogue: options.CatalogueFolder,
    to: Annotated[
        str | None, options.input_option(help="Go back further, to this run of --list, by its number.", metavar="RUN")
    ] = None,
    list_: Annotated[
        bool, options.output_option("--list", help="List the runs that it can go back to, and change nothing.")
    ] = False,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Go back to the run that a catalogue used before.

    Twice goes back by two runs. All that people said stays as it is. What is learned by itself later doesn't replace
    the run that you went back to unless it is clearly better.
    """
    if not list_:
        _switch(catalogue, to or "", back=True, jobs=jobs, json=json)
        return
    if to is not None:
        raise UserError("--list and --to do not go together. Leave one out.")
    from visterm.library.earlier_runs import earlier_runs, shown_runs
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    found = shown_runs(stored, earlier_runs(stored))
    if not found and not json:
        say(f"There is no run to go back to. All runs: visterm use {catalogue}")
    _show_runs(found, json=json)


def show_comparison(found: Comparison, *, old: str, new: str) -> None:
    """Print two runs on the same photos, with the difference and its interval."""
    interval = "" if found.interval is None else "{:+.3f} to {:+.3f}".format(*found.interval)
    rows = [[old, f"{found.before:.3f}", ""], [new, f"{found.after:.3f}", ""]]
    rows.append(["difference", f"{found.difference:+.3f}", interval])
    table(rows, [f"on {count_of(found.compared, 'photo')} held out", "MAP", "95 % interval"])


def _switch(catalogue: Path, name: str, *, back: bool, jobs: int | None, json: bool) -> None:
    """Use another run, or go back to one, and say how to undo that."""
    from visterm.library.catalogue import Catalogue
    from visterm.library.earlier_runs import GO_BACK, USE_RUN, run_to_go_back_to
    from visterm.store.catalogue import StoredCatalogue

    if back:  # the current run is not read: it may be damaged
        name = run_to_go_back_to(StoredCatalogue.open(catalogue), name).fingerprint
    opened = Catalogue.load(catalogue, n_jobs=jobs, run=name)
    runs = opened.stored.runs
    before = runs.current()
    filled = opened.use(opened.tagger, kind=GO_BACK if back else USE_RUN, progress=Bars())
    now = runs.current()
    assert before is not None
    assert now is not None
    if now == before:
        say(f"{catalogue} uses run {now.id} already.")
    else:
        rows = f" {count_of(filled.rows, 'row')} made anew." if filled.rows else ""
        undo = f"visterm use {catalogue} {before.id}" if back else f"visterm go-back {catalogue}"
        what = "is back to" if back else "uses"
        kept = "All that people said is kept. " if back else ""
        undone = "To use the later run again" if back else "To go back"
        say(f"{catalogue} {what} run {now.id}, of {in_minutes(now.added)}.{rows} {kept}{undone}: {undo}")
    if json:
        emit(
            {
                "catalogue": str(catalogue), "run": now.fingerprint, "run_before": before.fingerprint,
                "number": now.id, "number_before": before.id, **filled._asdict(),
            }
        )  # fmt: skip


def _show_runs(runs: Sequence[ShownRun], *, json: bool) -> None:
    """Print runs with dates and figures."""
    if json:
        for shown in runs:
            emit(shown.as_dict())
        return
    rows = []
    for shown in runs:
        counts = ["gone" if n is None else f"{n:,}" for n in (shown.tags, shown.images)]
        found = shown.comparison
        measured = ["-"] * 3 if found is None else [f"{found.before:.3f}", f"{found.after:.3f}", found.verdict]
        in_use = "in use" if shown.run.current else ""
        rows.append([str(shown.run.id), in_minutes(shown.run.added), in_use, *counts, *measured])
    if rows:
        table(rows, ["run", "made (UTC)", "", "tags", "photos", "MAP before", "MAP", "on held-out photos"])
