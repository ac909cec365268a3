"""Runs of a catalogue: store copies, switch the current run, and delete old rows and unfinished runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import CHUNK
from visterm.learning.run import Run, check_opens
from visterm.library.earlier_runs import GO_BACK, USE_RUN, earlier_runs
from visterm.library.rows import Filled, RowWriter
from visterm.models.base import Annotator
from visterm.store.catalogue import RUNS, StoredCatalogue
from visterm.store.history import CatalogueJob, StoredProgress
from visterm.store.stored_rows import MAX_MEASURED_QUERIES
from visterm.tagging.tagger import Tagger

N_RUNS_WITH_ROWS = 2  # Number of runs whose rows are kept


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
