"""A process that runs one job of a catalogue, so that the service keeps answering; it ends with the service.

``python -m visterm.web.job_process CATALOGUE JOB_ID KIND [OPTIONS]``; a kill loses nothing that was committed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from visterm.core.errors import StorageError, VistermError
from visterm.core.progress import Progress
from visterm.core.threads import end_with_standard_input
from visterm.core.wording import count_of, printable
from visterm.core.writing import storage_error
from visterm.library.catalogue import Catalogue
from visterm.library.duplicates import find_duplicates
from visterm.library.earlier_runs import FIT, GO_BACK, USE_RUN, run_to_go_back_to
from visterm.library.photo_map import draw_map
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob, Jobs

NICE = 10  # Requests of the service come first
CHUNK = 128  # Images between two commits, after which it can be stopped
SECONDS = 0.5  # Time between two notes of the progress
NOT_NOTED = 4  # Exit status of a job that failed and could not store the reason


class NotedProgress(Progress):
    """Progress of a job, stored now and then."""

    def __init__(self, jobs: Jobs, job_id: int) -> None:
        self._jobs, self._job_id = jobs, job_id
        self._done, self._total, self._noted = 0, 0, 0.0

    def start(self, task: str, total: int | None = None) -> None:
        """Start a task."""
        self._done, self._total = 0, total or 0

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count steps."""
        self._done += steps
        if time.monotonic() - self._noted > SECONDS:
            self._noted = time.monotonic()
            self._jobs.progress(self._job_id, self._done, self._total, note or None)

    def finish(self) -> None:
        """Store the last steps."""
        self._jobs.progress(self._job_id, self._done, self._total)


def main() -> int:
    """Run the job, and return the exit status."""
    path, number, kind, *options = sys.argv[1:]
    end_with_standard_input()
    if hasattr(os, "nice"):
        os.nice(NICE)
    job_id = int(number)
    try:
        run = options[0] if kind == USE_RUN else None
        if kind == GO_BACK:
            run = run_to_go_back_to(StoredCatalogue.open(path), *options).fingerprint
        catalogue = Catalogue.load(path, run=run)
        progress = NotedProgress(catalogue.stored.jobs, job_id)
        work: dict[str, Callable[[], object]] = {
            "index": lambda: catalogue.index(options[0], chunk_size=CHUNK, job_id=job_id),
            FIT: lambda: catalogue.learn(
                full="full" in options, use_even_if_worse="use-even-if-worse" in options,
                by_itself="by-itself" in options, job_id=job_id,
            ),
            USE_RUN: lambda: catalogue.use(catalogue.tagger, kind=USE_RUN, job_id=job_id),
            GO_BACK: lambda: catalogue.use(catalogue.tagger, kind=GO_BACK, job_id=job_id),
            "duplicates": lambda: _look_for_duplicates(catalogue, job_id, progress),
            "mistakes": lambda: catalogue.look_for_mistakes(job_id=job_id, progress=progress),
            "map": lambda: draw_map(catalogue, anew="full" in options, job_id=job_id, progress=progress),
        }  # fmt: skip
        work[kind]()
    except Exception as error:
        why = error if isinstance(error, VistermError) else storage_error(error)
        if why is None:
            raise
        try:
            StoredCatalogue.open(Path(path)).jobs.finish(job_id, error=str(why))
        except StorageError:  # the service stores it later
            print(f"visterm: job {job_id} failed: {printable(str(why))}", file=sys.stderr)
            return NOT_NOTED

    return 0


def _look_for_duplicates(catalogue: Catalogue, job_id: int, progress: Progress) -> None:
    with CatalogueJob(catalogue.stored.jobs, "duplicates", job_id) as job:
        groups, _, skipped = find_duplicates(catalogue.stored, progress=progress, stop=lambda: job.cancelled)
        if not job.cancelled:
            unread = f", {count_of(len(skipped), 'photo')} skipped" if skipped else ""
            job.message = f"{count_of(len(groups), 'group')} of photos that look the same{unread}"


if __name__ == "__main__":
    sys.exit(main())
