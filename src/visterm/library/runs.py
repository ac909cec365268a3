"""Runs of a catalogue: list them, go back, store copies, switch, and delete old rows and unfinished runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import folder_kind, read_json
from visterm.core.progress import SILENT, Progress
from visterm.core.types import CHUNK
from visterm.learning.run import Run, check_opens
from visterm.library.learned import START, Comparison
from visterm.library.rows import Filled, RowWriter
from visterm.models.base import Annotator
from visterm.store import RUNS
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import SHORT_FINGERPRINT_LENGTH, CatalogueJob, StoredProgress, StoredRun
from visterm.store.stored_rows import MAX_MEASURED_QUERIES
from visterm.tagging.tagger import Tagger

FIT, NOT_USED, USE_RUN, GO_BACK = "fit", "fit, not used", "use run", "go back"  # Kinds of events in the history
N_RUNS_WITH_ROWS = 2  # Number of runs whose rows are kept
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


def switch_run(
    tagger: Tagger,
    stored: StoredCatalogue,
    *,
    kind: str = USE_RUN,
    job_id: int | None = None,
    progress: Progress = SILENT,
) -> Filled:
    """Make a run the current run of a catalogue once all images have rows of it; see `Catalogue.use`.

    `kind` is the kind of the job and of the history entry: `USE_RUN` or `GO_BACK`.
    """
    with CatalogueJob(stored.jobs, kind, job_id) as job, stored.writing():
        previous_run = stored.origin.fingerprint
        if previous_run == tagger.fingerprint:
            keep_run(tagger, stored)  # repairs the copy if it is damaged
            return Filled(0, 0)
        forget_unfinished(stored)
        run_id = keep_run(tagger, stored)
        progress = StoredProgress(stored.jobs, job.id, progress)
        filled = bring_into_use(
            tagger, stored, run_id, job, progress, kind=kind, before=previous_run, folder=tagger.path
        )
        job.message = f"{filled.rows:,} rows, {filled.encoded:,} encoded"
        if kind == GO_BACK and not job.cancelled:
            job.message = f"Back to run {run_id}; {job.message}"
        return filled


def keep_run(
    tagger: Tagger, stored: StoredCatalogue, *, rows_of: int | None = None, facts: Mapping[str, object] | None = None
) -> int:
    """Copy a run into the catalogue, and return its id in the catalogue. `bring_into_use` makes it the current run.

    Raises StorageError if the copy cannot be written.
    """
    if stored.folder is not None:
        folder = stored.folder / RUNS / tagger.fingerprint
        try:
            check_opens(Run, folder)
        except StorageError:  # no copy yet, or a damaged copy
            tagger.save(folder, overwrite=True)
    return stored.runs.add(
        tagger.fingerprint, tagger.encoder.fingerprint, folder=tagger.path, rows_of=rows_of, facts=facts
    )


def bring_into_use(
    tagger: Tagger,
    stored: StoredCatalogue,
    run_id: int,
    job: CatalogueJob,
    progress: Progress,
    *,
    kind: str,
    facts: Mapping[str, object] | None = None,
    **details: object,
) -> Filled:
    """Write the rows and predictions of a run, and make it the current run unless the job is cancelled.

    Before that, its copy in the catalogue has to answer a search. `facts` replace the facts of the run, if given;
    `kind` and `details` are its entry in the history.
    """
    writer = RowWriter(tagger, stored, run_id)
    filled = writer.fill(CHUNK, job, progress)
    writer.predict(CHUNK, job, progress)
    if job.cancelled:
        return filled

    with stored.transaction():
        stored.runs.add(tagger.fingerprint, tagger.encoder.fingerprint, facts=facts)
        stored.use_run(run_id)
        if stored.folder is not None:
            run = Run.open(stored.run_folder, None)
            stored.search(run.tag_rows(np.arange(min(1, len(run.vocabulary)), dtype=np.int32)), 1)
        stored.tags.spell_as(tagger.vocabulary.tags)
        stored.history.note(kind, run=tagger.fingerprint, **details)
    forget_old_rows(stored)
    index_rows_if_due(tagger, stored)
    return filled


def forget_old_rows(stored: StoredCatalogue) -> None:
    """Delete rows and predictions of all runs except the current run and the run that `go_back` would use.

    The runs themselves are kept, and can be used again.
    """
    runs = stored.runs.all()
    by_priority = [*(run for run in runs if run.current), *earlier_runs(stored), *reversed(runs)]
    kept_ids = list(dict.fromkeys(run.id for run in by_priority))[:N_RUNS_WITH_ROWS]
    ids_with_rows = {run.rows_of for run in runs if run.id in kept_ids}
    with stored.transaction():
        for run in runs:
            if run.id not in ids_with_rows:
                stored.database.write("DELETE FROM rows WHERE run_id = ?", (run.id,))
                stored.database.write("DELETE FROM segments WHERE run_id = ?", (run.id,))
            if run.id not in kept_ids:
                stored.database.write("DELETE FROM predictions WHERE run_id = ?", (run.id,))


def index_rows_if_due(tagger: Tagger, stored: StoredCatalogue) -> None:
    """Index the rows if there are very many, an index library is installed, and the index makes searches faster."""
    if stored.folder is None or not stored.index_is_due():
        return
    stored.build_index(sample_queries(tagger.model, np.arange(tagger.model.n_tags_)))


def sample_queries(model: Annotator, tags: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return query rows of searches for random pairs of tags, shape (at most 200, width), to test an index.

    Query rows are distributed differently from image rows, and are harder for an index than rows of single tags.
    """
    sample = np.random.default_rng(2).permutation(tags)[:MAX_MEASURED_QUERIES]
    words = sp.eye_array(model.n_tags_, format="csr", dtype=np.float32)
    queries = model.query_rows(sp.csr_array(words[sample] + words[np.roll(sample, 1)]))
    return np.asarray(queries if isinstance(queries, np.ndarray) else queries.toarray(), np.float32)


def forget_unfinished(stored: StoredCatalogue) -> None:
    """Delete runs whose training was interrupted before they became the current run."""
    for run in stored.runs.all():
        if run.current or run.facts.get("unfinished") is not True:
            continue
        with stored.transaction():
            for table in ("rows", "segments", "predictions"):
                stored.database.write(f"DELETE FROM {table} WHERE run_id = ?", (run.id,))
            stored.database.write("UPDATE feedback SET run_id = NULL WHERE run_id = ?", (run.id,))
            stored.database.write("DELETE FROM runs WHERE id = ?", (run.id,))
        if stored.folder is not None:
            shutil.rmtree(stored.folder / RUNS / run.fingerprint, ignore_errors=True)
