"""A process that upgrades, backs up or restores a catalogue, and kills itself (-9) before its nth step on the disk.

    python killed.py upgrade N CATALOGUE
    python killed.py backup N CATALOGUE FILE
    python killed.py restore N FILE CATALOGUE

A step is a call of C code that changes files or the database. With N 0 it ends alive, and prints its number of steps.
"""

import os
import signal
import sys
from collections.abc import Callable

STEPS = {
    "backup", "close", "execute", "executemany", "fsync", "link", "mkdir", "open", "rename", "replace", "rmdir",
    "sendfile", "truncate", "unlink", "write",
}  # fmt: skip


def newer_formats(database, persist):
    """Make this visterm one of a later release: its tables have stars, and its runs a file more."""

    def add_stars(connection):
        connection.execute("ALTER TABLE images ADD COLUMN stars INTEGER")
        connection.execute("UPDATE images SET stars = 5")

    def add_file(run):
        (run / "newer.json").write_text("{}", encoding="utf-8")

    database.FORMAT, persist.FORMAT = 4, 2
    database.MIGRATIONS = {**database.MIGRATIONS, 3: add_stars}
    persist.UPGRADES = {1: add_file}


def call_of(what: str, paths: list[str]) -> Callable[[], object]:
    """Return what the process does."""
    from visterm.core import persist
    from visterm.library.backup import back_up, restore
    from visterm.library.catalogue import Catalogue
    from visterm.store import database

    if what == "upgrade":
        newer_formats(database, persist)
        return lambda: Catalogue.load(paths[0])
    if what == "backup":
        return lambda: back_up(*paths, overwrite=True)
    return lambda: restore(*paths)


def main() -> None:
    """Do it, and count the steps."""
    call, nth, count = call_of(sys.argv[1], sys.argv[3:]), int(sys.argv[2]), 0

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal count
        if event == "c_call" and getattr(argument, "__name__", "") in STEPS:
            count += 1
            if count == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(step)
    call()
    sys.setprofile(None)
    print(count)


if __name__ == "__main__":
    main()
