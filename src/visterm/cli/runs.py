"""`visterm use`: search a catalogue with another of its runs; how runs and comparisons are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visterm.cli import options
from visterm.cli.output import in_minutes, say, table
from visterm.cli.progress import Bars
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.library.comparison import Comparison
    from visterm.library.earlier_runs import ShownRun

EXAMPLES = (
    ("visterm use catalogue", "list its runs, with dates and figures"),
    ("visterm use catalogue 3", "use run 3"),
    ("visterm use catalogue --back", "use the run of before again"),
)


def use(
    catalogue: options.CatalogueFolder,
    run: Annotated[
        str | None, options.argument(help="One of its runs, by its number. Leave it out to list them all.")
    ] = None,
    back: Annotated[
        bool, options.input_option("--back", help="Go back to the run that was used before, or to an earlier RUN.")
    ] = False,
) -> None:
    """Search a catalogue with another of its runs, or list them.

    Call --back twice to go back two runs. What is learned by itself later doesn't replace a run that you went back to
    unless it is clearly better. What people said of tags stays as it is.
    """
    if run is not None or back:
        _switch(catalogue, run or "", back=back)
        return
    from visterm.library.earlier_runs import known_runs, shown_runs
    from visterm.store.catalogue import StoredCatalogue

    stored = StoredCatalogue.open(catalogue)
    _show_runs(shown_runs(stored, known_runs(stored)))


def show_comparison(found: Comparison, *, old: str, new: str) -> None:
    """Print two runs on the same photos, with the difference and its interval."""
    interval = "" if found.interval is None else "{:+.3f} to {:+.3f}".format(*found.interval)
    rows = [[old, f"{found.before:.3f}", ""], [new, f"{found.after:.3f}", ""]]
    rows.append(["difference", f"{found.difference:+.3f}", interval])
    table(rows, [f"on {count_of(found.compared, 'photo')} held out", "MAP", "95 % interval"])


def _switch(catalogue: Path, name: str, *, back: bool) -> None:
    """Use another run, or go back to one, and say how to undo that."""
    from visterm.library.catalogue import Catalogue
    from visterm.library.earlier_runs import GO_BACK, USE_RUN, run_to_go_back_to
    from visterm.store.catalogue import StoredCatalogue

    if back:  # the current run is not read: it may be damaged
        name = run_to_go_back_to(StoredCatalogue.open(catalogue), name).fingerprint
    opened = Catalogue.load(catalogue, run=name)
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
        undo = f"visterm use {catalogue} {before.id}" if back else f"visterm use {catalogue} --back"
        what = "is back to" if back else "uses"
        kept = "All that people said is kept. " if back else ""
        undone = "To use the later run again" if back else "To go back"
        say(f"{catalogue} {what} run {now.id}, of {in_minutes(now.added)}.{rows} {kept}{undone}: {undo}")


def _show_runs(runs: Sequence[ShownRun]) -> None:
    """Print runs with dates and figures."""
    rows = []
    for shown in runs:
        counts = ["gone" if n is None else f"{n:,}" for n in (shown.tags, shown.images)]
        found = shown.comparison
        measured = ["-"] * 3 if found is None else [f"{found.before:.3f}", f"{found.after:.3f}", found.verdict]
        in_use = "in use" if shown.run.current else ""
        rows.append([str(shown.run.id), in_minutes(shown.run.added), in_use, *counts, *measured])
    if rows:
        table(rows, ["run", "made (UTC)", "", "tags", "photos", "MAP before", "MAP", "on held-out photos"])
