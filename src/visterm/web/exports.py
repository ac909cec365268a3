"""What a job of the service exports, and the last dry run, which a page shows."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from visterm.connectors import sync as syncing
from visterm.core.progress import Progress
from visterm.core.wording import count_of
from visterm.library.catalogue import Catalogue
from visterm.library.export.request import ExportRequest, ExportTotals, export_files
from visterm.library.export.sources import CatalogueSource, Limits
from visterm.library.export.writing import PROFILES, writes_into_photos
from visterm.library.photos import indexed_folders
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import CatalogueJob

EXPORT = "export"  # Kind of these jobs
LAST_DRY_RUN = "last dry run"  # Key of the table `meta`
CHANGES_BETWEEN_CHECKS = 20  # Changed photos after which a job looks whether it was cancelled


class DryRun(NamedTuple):
    """The last dry run of a catalogue's export."""

    job: int  # Id of the job
    request: ExportRequest
    into_photos: bool  # Whether the tags would be written into the photos themselves


def last_dry_run(stored: StoredCatalogue) -> DryRun | None:
    """Return the last dry run of an export; None if there was none, or something was written since."""
    text = stored.database.value("SELECT value FROM meta WHERE key = ?", (LAST_DRY_RUN,))
    if not text:
        return None
    content = json.loads(text)
    request = _request_of(content["request"])
    return DryRun(content["job"], request, stored.connected.get() is None and writes_into_photos(request.to))


def run_export(catalogue: Catalogue, text: str, job_id: int, progress: Progress) -> None:
    """Do an export in a job; `text` is the request as JSON. Only photos inside the indexed folders are written."""
    request, stored = _request_of(json.loads(text)), catalogue.stored
    with CatalogueJob(stored.jobs, EXPORT, job_id) as job:
        if stored.connected.get() is None:
            job.message = _write_files(catalogue, request, job, progress)
        else:
            job.message = _sync(catalogue, request, progress)
        is_shown = request.dry_run and not job.cancelled
        content = json.dumps({"job": job_id, "request": asdict(request)}) if is_shown else ""
        stored.database.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (LAST_DRY_RUN, content))
        if not request.dry_run:
            stored.history.note("undo export" if request.undo else EXPORT, to=request.to, result=job.message)


def _request_of(content: dict[str, object]) -> ExportRequest:
    limits = content.pop("limits")
    assert isinstance(limits, list)
    return ExportRequest(limits=Limits(*limits), **content)  # type: ignore[arg-type]


def _write_files(catalogue: Catalogue, request: ExportRequest, job: CatalogueJob, progress: Progress) -> str:
    totals, source = ExportTotals(), CatalogueSource(catalogue)
    folders = [Path(folder).resolve() for folder in indexed_folders(catalogue.stored)]
    with closing(export_files(source, request, totals, progress, folders=folders)) as changes:
        for number, _ in enumerate(changes):
            if number % CHANGES_BETWEEN_CHECKS == 0 and job.cancelled:
                break
    sentences = [totals.summary(request)]
    reasons = Counter(item.reason for item in totals.skipped)
    if reasons:
        listed = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common())
        sentences.append(f"Skipped {count_of(reasons.total(), 'photo')} ({listed}).")
    if request.to in PROFILES and not request.dry_run and not request.undo:
        sentences.append(PROFILES[request.to].next_step)
    return " ".join(sentences)


def _sync(catalogue: Catalogue, request: ExportRequest, progress: Progress) -> str:
    """Write predictions into the program that the catalogue is connected to, or take them back."""
    connection, dry_run = syncing.connection_of(catalogue), request.dry_run
    library = syncing.library_of(connection)
    remarks: list[str] = []
    if request.undo:
        pushed = syncing.undo(catalogue, library, dry_run=dry_run, progress=progress)
    else:
        limits = request.limits
        settings = syncing.PushSettings(**connection.settings).changed(
            connection.kind, parent=request.parent, precision=limits.precision, k=limits.k or None
        )
        result = syncing.sync(catalogue, library, settings, dry_run=dry_run, progress=progress)
        pushed, remarks = result.pushed, result.remarks
    reasons = [f"{reason}: {count_of(n, 'tag')}." for reason, n in pushed.reasons.most_common(3)]
    return " ".join([pushed.summary(connection.title, dry_run=dry_run), *reasons, *remarks])
