"""A process that runs one job of a catalogue, so that the service keeps answering; it ends with the service.

``python -m visterm.web.job_process CATALOGUE JOB_ID KIND [OPTIONS]``; a kill loses nothing that was committed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from visterm.core.errors import StorageError, VistermError
from visterm.core.progress import Progress
from visterm.core.threads import end_with_standard_input
from visterm.core.wording import count_of, printable
from visterm.core.writing import storage_error
from visterm.library.catalogue import Catalogue
from visterm.library.duplicates import find_duplicates
from visterm.library.photo_map import draw_map
from visterm.library.runs import FIT, GO_BACK, USE_RUN, run_to_go_back_to
from visterm.store.catalogue import StoredCatalogue
from visterm.store.database import WHO
from visterm.store.history import CatalogueJob, StoredProgress
from visterm.web.exports import EXPORT, run_export

NICENESS = 10  # Requests of the service come first
CHUNK_IMAGES = 128  # Images between two commits; a job can be stopped after each
WHO_ENV = "VISTERM_WHO"  # Environment variable with the name of the person who started the job
REASON_NOT_STORED = 4  # Exit status of a job that failed and could not store the reason


def main() -> int:
    """Run the job, and return the exit status."""
    path, number, kind, *options = sys.argv[1:]
    end_with_standard_input()
    WHO.set(os.environ.get(WHO_ENV, ""))
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    job_id = int(number)
    try:
        run = options[0] if kind == USE_RUN else None
        if kind == GO_BACK:
            run = run_to_go_back_to(StoredCatalogue.open(path), *options).fingerprint
        catalogue = Catalogue.load(path, run=run)
        progress = StoredProgress(catalogue.stored.jobs, job_id)
        tasks: dict[str, Callable[[], object]] = {
            "index": lambda: catalogue.index(options[0], chunk_size=CHUNK_IMAGES, job_id=job_id),
            FIT: lambda: catalogue.learn(
                full="full" in options, use_even_if_worse="use-even-if-worse" in options,
                by_itself="by-itself" in options, job_id=job_id,
            ),
            USE_RUN: lambda: catalogue.use(catalogue.tagger, kind=USE_RUN, job_id=job_id),
            GO_BACK: lambda: catalogue.use(catalogue.tagger, kind=GO_BACK, job_id=job_id),
            "duplicates": lambda: _look_for_duplicates(catalogue, job_id, progress),
            "mistakes": lambda: catalogue.look_for_mistakes(job_id=job_id, progress=progress),
            EXPORT: lambda: run_export(catalogue, options[0], job_id, progress),
            "map": lambda: draw_map(catalogue, anew="full" in options, job_id=job_id, progress=progress),
        }  # fmt: skip
        tasks[kind]()
    except Exception as error:
        reason = error if isinstance(error, VistermError) else storage_error(error)
        if reason is None:
            raise
        try:
            StoredCatalogue.open(Path(path)).jobs.finish(job_id, error=str(reason))
        except StorageError:  # the service stores the reason later
            print(f"visterm: job {job_id} failed: {printable(str(reason))}", file=sys.stderr)
            return REASON_NOT_STORED

    return 0


def _look_for_duplicates(catalogue: Catalogue, job_id: int, progress: Progress) -> None:
    with CatalogueJob(catalogue.stored.jobs, "duplicates", job_id) as job:
        groups, _, skipped = find_duplicates(catalogue.stored, progress=progress, stop=lambda: job.cancelled)
        if not job.cancelled:
            skipped_text = f", {count_of(len(skipped), 'photo')} skipped" if skipped else ""
            job.message = f"{count_of(len(groups), 'group')} of photos that look the same{skipped_text}"


if __name__ == "__main__":
    sys.exit(main())
