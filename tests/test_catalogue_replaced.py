"""A catalogue that is removed or replaced while it is open: nothing more is written to it, and it says why."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading

import numpy as np
import pytest

from empty_catalogues import empty_catalogue
from visterm.core.errors import ReplacedError
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.database import Database
from visterm.store.images import NewImage

ROWS = np.array([[1, 0], [0, 1]], np.float32)


@pytest.fixture
def stored(tmp_path):
    made = empty_catalogue(tmp_path / "catalogue", Origin("", "f00d"))
    made.add([NewImage(name, f"/photos/{name}", 10, 4, 3, "ab", ("sky",)) for name in ("a.jpeg", "b.jpeg")], ROWS)
    yield made
    made.close()


def removed(folder):
    shutil.rmtree(folder)


def restored_over(folder):
    backup = shutil.copytree(folder, folder.with_name("backup"))
    shutil.rmtree(folder)
    backup.rename(folder)


def database_restored(folder):
    copy = folder / "copy.sqlite"
    with sqlite3.connect(folder / "catalogue.sqlite") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    os.replace(copy, folder / "catalogue.sqlite")


def log_removed(folder):
    (folder / "catalogue.sqlite-wal").unlink()


happenings = pytest.mark.parametrize("happens", [removed, restored_over, database_restored, log_removed])


@happenings
def test_nothing_is_acknowledged_into_a_catalogue_that_is_not_there_any_more(stored, happens):
    stored.tags.judge(1, "sky", 1)
    happens(stored.folder)
    with pytest.raises(ReplacedError, match=r"catalogue was (removed|replaced).* Restart visterm"):
        stored.tags.judge(1, "sky", -1)


@happenings
def test_its_rows_are_not_searched_any_more(stored, happens):
    assert len(stored.search([1, 0]).ids[0]) == 2
    happens(stored.folder)
    with pytest.raises(ReplacedError):
        stored.search([1, 0])


def test_a_thread_that_comes_later_does_not_read_the_one_that_replaced_it(stored):
    restored_over(stored.folder)
    told = []

    def read():
        try:
            told.append(stored.images.count())
        except ReplacedError as error:
            told.append(type(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert told == [ReplacedError]


def test_the_catalogue_that_is_there_now_opens_and_has_all_that_was_acknowledged(stored):
    stored.tags.judge(1, "sky", 1)
    restored_over(stored.folder)
    with pytest.raises(ReplacedError):
        stored.tags.judge(0, "sky", -1)
    again = StoredCatalogue.open(stored.folder)
    again.tags.judge(0, "sea", 1)
    assert [(verdict.image_id, verdict.tag) for verdict in again.tags.feedback()] == [(1, "sky"), (0, "sea")]
    again.close()


def test_a_database_that_another_process_also_uses_stays_in_place(stored):
    other = Database(stored.folder / "catalogue.sqlite")
    other.write("PRAGMA user_version = 7")
    other.close()
    stored.tags.judge(1, "sky", 1)
    assert len(stored.tags.feedback()) == 1


def test_a_catalogue_that_was_closed_and_moved_back_is_written_again(stored):
    stored.close()
    restored_over(stored.folder)
    stored.tags.judge(1, "sky", 1)
    assert len(stored.tags.feedback()) == 1
