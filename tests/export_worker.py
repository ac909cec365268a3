"""Exports and undoes from a small catalogue, killed by SIGKILL at a given step that reaches the disk; see `main`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from visterm.core.vocabulary import Vocabulary
from visterm.library.export import writing
from visterm.library.export.items import ExportItem, Predicted
from visterm.library.export.writing import CatalogueNotes, export_tags, make_target, undo_tags
from visterm.store.catalogue import StoredCatalogue
from visterm.store.history import WrittenTags

writing.CHUNK = 3
PREDICTED = ("sea", "sky")
STEPS = ("fsync", "replace", "unlink", "mkdir")


def work(folder, to, what):
    """Export to the photos of a catalogue, or take back what was; notes are flushed after a few tags already."""
    stored = StoredCatalogue.open(folder / "catalogue")
    photos = sorted((folder / "photos").glob("*.jpg"))
    notes = CatalogueNotes(stored, to, Vocabulary(list(PREDICTED)))
    if what == "export":
        items = [ExportItem(photo, ("Ann",), tuple(Predicted(tag, 0.9) for tag in PREDICTED)) for photo in photos]
        changes = list(export_tags(items, make_target(to), run="run1", notes=notes))
    else:
        changes = list(undo_tags(map(ExportItem, photos), make_target(to), notes=notes))
    stored.close()
    return changes


def kill_at(step):
    """Let the process kill itself before its n-th call that reaches the disk."""
    left = [step]

    def counted(call):
        def wrapped(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    WrittenTags.note = counted(WrittenTags.note)


def killed(folder, to, what, step):
    """Do it in a child that is killed; say whether it was, or had ended before."""
    child = os.fork()
    if child == 0:
        kill_at(step)
        work(folder, to, what)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def state(folder):
    """What the files of the photos hold, but for the notes of texts, and what the catalogue notes of them."""
    files = {path.name: path.read_bytes() for path in (folder / "photos").iterdir() if path.name[0] != "."}
    hidden = sorted(path.name for path in (folder / "photos").iterdir() if path.name[0] == ".")
    stored = StoredCatalogue.open(folder / "catalogue")
    noted = {to: [(one.image_id, one.tag) for one in stored.written.of_target(to)] for to in ("xmp", "txt")}
    stored.close()
    return files, hidden, noted


def main(start, to, steps):
    """Kill export and undo at every step asked for; after each a second one brings the state of one never killed."""
    here = Path(start).with_name("here")  # where the catalogue says that its photos are
    whole = Path(start).with_name("whole")
    shutil.copytree(start, here)
    before = state(here)
    work(here, to, "export")
    exported = state(here)
    assert exported[2][to], "nothing was noted"
    here.rename(whole)
    for what, wanted in (("export", exported), ("undo", before)):
        kills = 0
        for step in map(int, steps.split(",")):
            shutil.copytree(start if what == "export" else whole, here)
            kills += killed(here, to, what, step)
            work(here, to, what)
            assert state(here) == wanted, f"{what} killed at step {step}"
            work(here, to, "undo")
            assert state(here) == before, f"undo after {what} killed at step {step}"
            shutil.rmtree(here)
        print(what, kills)


if __name__ == "__main__":
    main(*sys.argv[1:])
