"""Kills (-9) at random moments while a catalogue is written: what was acknowledged is there, and work goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.core.persist import file_hash

WORKER = Path(__file__).with_name("catalogue_worker.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    tags = draw_photos(folder / "photos", 40)
    run = fit_run(folder / "photos", tags, folder / "run")
    catalogue = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(folder / "photos", tags=write_tags(folder / "tags.csv", tags))
    return folder


def killed(kind, folder, seed):
    """Let a worker work for a moment, kill it, and give what it had acknowledged."""
    wait = random.Random(seed).uniform(0.02, 0.8)
    child = subprocess.Popen(
        [sys.executable, str(WORKER), kind, str(folder), str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    first = child.stdout.readline()
    assert first, child.stderr.read()
    time.sleep(wait)
    child.send_signal(signal.SIGKILL)
    out, err = child.communicate()
    assert child.returncode == -signal.SIGKILL, err
    return [json.loads(line) for line in out.splitlines() if line.endswith("}")]


def photos_in(folder):
    return sorted(path for path in (folder / "photos").iterdir() if not path.name.startswith("."))


def check_index(catalogue, folder, told):
    known = {record.sha256 for record in catalogue.records}
    for path, digest in ((p, d) for entry in told for p, d in entry.get("taken", {}).items()):
        changed_since = not os.path.exists(path) or file_hash(path) != digest
        assert digest in known or changed_since
    assert len(catalogue) == len(catalogue.records)
    assert catalogue.index(folder / "photos", chunk_size=2).skipped == []
    after = {record.path: record.sha256 for record in catalogue.records}
    assert after == {os.path.realpath(path): file_hash(path) for path in photos_in(folder)}
    fresh = Catalogue(catalogue.tagger).add(sorted(after))
    rows = fresh.stored.current_rows().rows(np.arange(len(after)))
    for record, expected in zip(fresh.records, rows, strict=True):
        [kept] = catalogue.stored.current_rows().rows([catalogue.stored.images.by_path(record.path).id])
        np.testing.assert_allclose(kept, expected, rtol=1e-5, atol=1e-6)


def check_feedback(catalogue, folder, told):
    log = {entry.id: entry for entry in catalogue.stored.tags.feedback(limit=10**6)}
    latest = {}
    for entry in told:
        if "judged" in entry:
            kept = log[entry["judged"]]
            assert (kept.image_id, kept.tag, kept.verdict) == (entry["image"], entry["tag"], entry["verdict"])
            latest[entry["image"], entry["tag"]] = entry
        elif "given" in entry:
            assert entry["given"] in catalogue.image(entry["image"]).tags
    for (image_id, tag), entry in latest.items():
        later = [e.verdict for e in log.values() if (e.image_id, e.tag) == (image_id, tag) and e.id > entry["judged"]]
        assert catalogue.image(image_id).verdicts[tag] == [entry["verdict"], *later][-1]


def check_fit(catalogue, folder, told):
    changes = [entry["changed_to"] for entry in told if "changed_to" in entry]
    happened = [event.details["run"] for event in catalogue.stored.history.of("fit", "go back")]
    at = len(happened) - len(changes)  # or one earlier: that the last change was done may not have been said
    assert changes in (happened[at:], happened[at - 1 : -1])
    current = catalogue.stored.origin.fingerprint
    assert catalogue.tagger.fingerprint == current
    assert not happened or current == happened[-1]
    assert len(catalogue) == len(catalogue.records)
    here = [record.id for record in catalogue.records]  # a run that was learned anew knows nothing of those gone
    assert all(catalogue.image(image_id).predicted for image_id in here)
    assert catalogue.learn(use_even_if_worse=True).run == catalogue.stored.origin.fingerprint


CHECKS = {"index": check_index, "feedback": check_feedback, "fit": check_fit}


def check(kind, folder, seed):
    told = killed(kind, folder, seed)
    catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)
    assert catalogue.stored.database.check() == []
    CHECKS[kind](catalogue, folder, told)
    assert catalogue.stored.database.check() == []
    assert all(job.ended for job in catalogue.stored.jobs.latest(1000))
    catalogue.stored.close()


@pytest.mark.parametrize(("kind", "seed"), [("index", 0), ("feedback", 1), ("fit", 2)])
def test_a_kill_loses_nothing_that_was_acknowledged(kind, seed, folder):
    check(kind, folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_kills_lose_nothing_that_was_acknowledged(seed, folder):
    check(("index", "feedback", "fit")[seed % 3], folder, seed)
