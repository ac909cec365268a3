"""A catalogue of an older format becomes one of the newest when it is opened: tried by steps that are made up here."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from empty_catalogues import empty_catalogue
from visterm.core.errors import CorruptFileError, StorageError
from visterm.store import database
from visterm.store.catalogue import DATABASE, Origin, StoredCatalogue
from visterm.store.images import NewImage

STEPS = {3: ("ALTER TABLE images ADD COLUMN stars INTEGER",), 4: ("UPDATE images SET stars = 5", "DROP TABLE jobs")}
U = np.random.default_rng(0).random((30, 4)).astype(np.float32)

KILLED = """
import os, sys
from visterm.store import database
from visterm.store.catalogue import StoredCatalogue

def step(connection):
    connection.execute("UPDATE images SET stars = 4")
    connection.execute("DELETE FROM given")
    os.kill(os.getpid(), 9)

database.FORMAT = 5
database.MIGRATIONS = {3: lambda connection: connection.execute("ALTER TABLE images ADD COLUMN stars INTEGER"), 4: step}
StoredCatalogue.open(sys.argv[1])
"""


@pytest.fixture
def folder(tmp_path):
    """A catalogue of today's format, with tags and a verdict of people."""
    made = empty_catalogue(tmp_path / "catalogue", Origin("", "f00d"))
    made.add([NewImage(f"{i}.jpg", f"/photos/{i}.jpg", 10, 4, 3, "ab") for i in range(len(U))], U)
    made.tags.give(3, ["sea"], "person")
    made.tags.judge(4, "sea", -1)
    made.close()
    return made.folder


@pytest.fixture
def newer(monkeypatch):
    """Let this visterm be one whose format is newer by two."""
    monkeypatch.setattr(database, "FORMAT", 5)
    steps = {n: lambda c, some=some: [c.execute(each) for each in some] for n, some in STEPS.items()}
    monkeypatch.setattr(database, "MIGRATIONS", steps)


def state_of(stored):
    """Return what people gave, and what a search finds."""
    found = stored.search(U[7], 0)
    tags = [(image, stored.tags.given(image), stored.tags.verdicts(image)) for image in range(len(U))]
    return tags, found.ids.tolist(), found.scores.tolist()


def tags_of(stored):
    return [given.tag for given in stored.tags.given(3)]


def format_of(stored):
    return stored.database.value("PRAGMA user_version")


def test_each_step_is_taken_in_its_order_and_nothing_is_lost(folder, newer, monkeypatch):
    with monkeypatch.context() as first:
        first.setattr(database, "FORMAT", 3)
        old = StoredCatalogue.open(folder)
        before = state_of(old)
        assert format_of(old) == 3
        old.close()
    opened = StoredCatalogue.open(folder)
    assert state_of(opened) == before
    assert format_of(opened) == 5
    assert opened.database.rows("SELECT DISTINCT stars FROM images") == [(5,)]
    assert opened.database.check() == []
    opened.close()
    assert state_of(StoredCatalogue.open(folder)) == before


def test_a_kill_in_a_step_leaves_the_old_tables_and_their_copy_and_the_next_opening_goes_on(folder, newer):
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    with sqlite3.connect(folder / DATABASE) as left:
        before = [*left.execute("PRAGMA user_version"), *left.execute("SELECT count(*) FROM given")]
        columns = {row[1] for row in left.execute("PRAGMA table_info(images)")}
    left.close()
    with closing(sqlite3.connect(folder / f"{DATABASE}.format-3")) as copy:
        assert before == [*copy.execute("PRAGMA user_version"), *copy.execute("SELECT count(*) FROM given")]
    assert before == [(3,), (1,)]
    assert "stars" not in columns
    opened = StoredCatalogue.open(folder)
    assert format_of(opened) == 5
    assert opened.database.rows("SELECT DISTINCT stars FROM images") == [(5,)]
    assert tags_of(opened) == ["sea"]
    assert not list(folder.glob(f"{DATABASE}.format-*"))


def test_a_step_that_fails_changes_nothing(folder, newer, monkeypatch):
    monkeypatch.setitem(database.MIGRATIONS, 4, lambda c: (c.execute("DELETE FROM given"), c.execute("no SQL")))
    with pytest.raises(sqlite3.OperationalError, match="syntax"):
        StoredCatalogue.open(folder)
    breaks_a_key = "PRAGMA defer_foreign_keys = ON", "DELETE FROM tags"
    monkeypatch.setitem(database.MIGRATIONS, 4, lambda c: [c.execute(each) for each in breaks_a_key])
    with pytest.raises(CorruptFileError, match="cannot be upgraded: foreign key broken"):
        StoredCatalogue.open(folder)
    monkeypatch.setattr(database, "FORMAT", 3)
    opened = StoredCatalogue.open(folder)
    assert (format_of(opened), tags_of(opened)) == (3, ["sea"])


def test_of_several_that_open_it_at_once_one_takes_the_steps(folder, newer):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: StoredCatalogue.open(folder), range(6)))
    assert [format_of(stored) for stored in opened] == [5] * 6  # a second ADD COLUMN would have failed


def test_a_catalogue_of_a_newer_visterm_is_refused(folder, monkeypatch):
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError, match="has format 99; this visterm reads up to 3"):
        StoredCatalogue.open(folder)


def test_a_catalogue_of_a_format_that_is_no_longer_upgraded_is_refused(folder, newer, monkeypatch):
    monkeypatch.delitem(database.MIGRATIONS, 3)
    with pytest.raises(StorageError, match=r"has format 3; this visterm reads 4 to 5\. Open it with the visterm of a"):
        StoredCatalogue.open(folder)


@pytest.mark.parametrize("pragma", ["application_id = 0", "user_version = 0", "user_version = -1"])
def test_a_database_without_the_marker_of_the_first_format_is_refused(folder, pragma):
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(f"PRAGMA {pragma}")
    connection.close()
    with pytest.raises(CorruptFileError, match="not a catalogue's database: its application_id is"):
        StoredCatalogue.open(folder)
