"""What a catalogue holds, for `visterm info`: images, tags, runs, features, how it is searched, jobs, history."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from visterm.library.learn import FROM_HERE
from visterm.store.catalogue import FEATURES, StoredCatalogue
from visterm.store.runs import StoredRun

SHOWN = 5
"""Of jobs and of the history, the latest so many."""


def catalogue_facts(stored: StoredCatalogue) -> dict[str, Any]:
    """Return the facts of a catalogue, but for those of its run."""
    known = stored.runs.all()
    one = stored.database.value
    runs = {
        run.fingerprint: {
            "since": run.added,
            "current": run.current,
            "rows": one("SELECT count(*) FROM rows WHERE run_id = ?", (run.rows_of,)),
            "rows of": next(other.fingerprint for other in known if other.id == run.rows_of),
            "made by": _maker(run),
            **{name: value for name, value in run.facts.items() if name != FROM_HERE},
        }
        for run in known
    }
    return {
        "images": len(stored),
        "images without a row": stored.images.count() - len(stored),
        "gone images": stored.images.count("gone"),
        "reviewed images": one("SELECT count(*) FROM images WHERE state = 'here' AND reviewed IS NOT NULL"),
        "skipped images": stored.skipped.count(),
        "tags of files": one("SELECT count(*) FROM given WHERE source = 'file'"),
        "tags of people": one("SELECT count(*) FROM given WHERE source = 'person'"),
        "accepted tags": one("SELECT count(*) FROM verdicts WHERE verdict = 1"),
        "rejected tags": one("SELECT count(*) FROM verdicts WHERE verdict = -1"),
        "made by": next(_maker(run) for run in known if run.current),
        "searched": stored.how_it_searches(),
        "rows in": stored.where_rows_are(),
        "features": _features(stored),
        "runs": runs,
        "jobs": {f"{job.id} {job.kind}": _told(job.state, job.message, job.error) for job in stored.jobs.latest(SHOWN)},
        "history": {
            f"{event.at} {event.what}": ", ".join(f"{k}: {v}" for k, v in event.details.items())
            for event in stored.history.latest(SHOWN)
        },
    }


def _maker(run: StoredRun) -> str:
    if FROM_HERE in run.facts:
        return "this catalogue"
    return run.folder or "a run that was not saved"


def _features(stored: StoredCatalogue) -> dict[str, str]:
    found = stored.database.rows(
        "SELECT encoder_fingerprint, count(*), count(DISTINCT shard) FROM features GROUP BY encoder_fingerprint"
    )
    facts = {}
    for fingerprint, rows, shards in found:
        size = _size(stored.folder / FEATURES / fingerprint) if stored.folder is not None else 0
        facts[fingerprint] = f"{rows:,} rows in {shards:,} shards, {size / 1e6:,.1f} MB"
    return facts


def _size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder)) if folder.is_dir() else 0


def _told(state: str, message: str, error: str | None) -> str:
    return ": ".join(part for part in (state, error or message) if part)
