"""Kills (-9) at steps on the disk while a catalogue is upgraded, backed up or restored: nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import killed
from visterm import Catalogue
from visterm.core import persist
from visterm.library.backup import back_up, restore
from visterm.store import DATABASE, RUNS, database

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

RELEASED = Path(__file__).parent / "data" / "tiny"  # a library as 0.1.0 wrote it
KILLS = [pytest.param(4, id="4"), pytest.param(50, id="50", marks=pytest.mark.slow)]


@pytest.fixture
def library(tmp_path):
    """A copy of the library that 0.1.0 wrote, whose photos are where its catalogue has them."""
    library = Path(shutil.copytree(RELEASED, tmp_path / "library"))
    with closing(sqlite3.connect(library / "catalogue" / DATABASE)) as tables, tables:
        tables.execute("UPDATE images SET folder = ?1, path = ?1 || '/' || name", [str(library / "images")])
        for path, modified in tables.execute("SELECT path, mtime_ns FROM images").fetchall():
            os.utime(path, ns=(modified, modified))
    return library


def contents(opened):
    """Return what people see and said."""
    hits = [(hit.id, round(hit.score, 3)) for hit in opened.search("sky", 50).hits]
    log = [(entry.image_id, entry.tag, entry.verdict, entry.at) for entry in opened.stored.tags.feedback()]
    return hits, log, opened.stored.tags.held(), opened.stored.tags.rejected()


def run(what, nth, *paths):
    """Do something in a process that is killed before its nth step; return its number of steps if it is not (0)."""
    command = [sys.executable, Path(killed.__file__), what, str(nth), *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if nth == 0:
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1])
    assert done.returncode == -signal.SIGKILL, done.stderr
    return 0


def steps(what, n_kills, *paths):
    """Return the steps to kill at: spread over all, the first and the last among them."""
    n_steps = run(what, 0, *paths)
    assert n_steps > n_kills
    return [1 + round(i * (n_steps - 1) / (n_kills - 1)) for i in range(n_kills)]


@pytest.mark.parametrize("n_kills", KILLS)
def test_an_upgrade_that_is_killed_loses_nothing_and_the_next_opening_goes_on(library, tmp_path, n_kills, monkeypatch):
    expected = contents(Catalogue.load(shutil.copytree(library / "catalogue", tmp_path / "today")))
    numbers = steps("upgrade", n_kills, shutil.copytree(library / "catalogue", tmp_path / "whole"))
    seen = set()
    for number in numbers:
        folder = Path(shutil.copytree(library / "catalogue", tmp_path / f"killed-{number}"))
        run("upgrade", number, folder)
        with closing(sqlite3.connect(folder / DATABASE)) as tables:
            [stored_format] = tables.execute("PRAGMA user_version").fetchone()
            assert tables.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            has_stars = "stars" in {row[1] for row in tables.execute("PRAGMA table_info(images)")}
        seen.add((stored_format, has_stars))
        with monkeypatch.context() as newer:
            for module, names in ((database, ("FORMAT", "MIGRATIONS")), (persist, ("FORMAT", "UPGRADES"))):
                for name in names:
                    newer.setattr(module, name, getattr(module, name))
            killed.newer_formats(database, persist)
            opened = Catalogue.load(folder)
            assert contents(opened) == expected
            assert opened.stored.database.rows("SELECT DISTINCT stars FROM images") == [(5,)]
        opened.stored.close()
        [run_folder] = [entry for entry in (folder / RUNS).iterdir() if not entry.name.startswith(".")]
        assert (run_folder / "newer.json").exists()
        assert persist.read_json(run_folder / persist.MANIFEST)[persist.FORMAT_KEY] == 2
        assert not list(folder.glob(f"{DATABASE}.format-*"))
        shutil.rmtree(folder)
    assert seen == {(1, False), (4, True)}  # never anything between the two


def leftovers(catalogue, file):
    """Return what killed backups left in the folders of a catalogue and of its backup."""
    return [*catalogue.glob(".backup.*"), *file.parent.glob(".visterm-backup*")]


@pytest.mark.parametrize("n_kills", KILLS)
def test_a_backup_that_is_killed_leaves_the_old_one_or_the_new_one(library, tmp_path, n_kills, monkeypatch):
    catalogue, file, temporary = library / "catalogue", tmp_path / "b.zip", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    opened = Catalogue.load(catalogue)
    back_up(catalogue, file)
    numbers = steps("backup", n_kills, catalogue, tmp_path / "other.zip")
    opened.give(3, ["after the first backup"])
    expected, old, new, left = contents(opened), file.read_bytes(), 0, 0
    for number in numbers:
        file.write_bytes(old)
        run("backup", number, catalogue, file)
        left = max(left, len(leftovers(catalogue, file)))
        new += file.read_bytes() != old
        restore(file, tmp_path / "again")
        restored = Catalogue.load(tmp_path / "again")
        held = restored.stored.tags.held()
        assert ("after the first backup" in held[3]) == (file.read_bytes() != old)
        restored.stored.close()
        shutil.rmtree(tmp_path / "again")
        assert contents(opened) == expected
    assert 0 < new < n_kills
    assert left == 2  # one of each kind at most: the next backup removed it
    assert back_up(catalogue, tmp_path / "another day.zip").images == len(opened)
    assert leftovers(catalogue, file) == list(temporary.iterdir()) == []


@pytest.mark.parametrize("n_kills", KILLS)
def test_a_restore_that_is_killed_goes_on(library, tmp_path, n_kills):
    file = tmp_path / "b.zip"
    expected = contents(Catalogue.load(library / "catalogue"))
    back_up(library / "catalogue", file)
    for number in steps("restore", n_kills, file, tmp_path / "whole"):
        run("restore", number, file, tmp_path / "again")
        restore(file, tmp_path / "again")
        restored = Catalogue.load(tmp_path / "again")
        assert contents(restored) == expected
        restored.stored.check()
        restored.stored.close()
        shutil.rmtree(tmp_path / "again")
