"""What a catalogue's tables keep of images, tags, filters, jobs and runs."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest

from empty_catalogues import empty_catalogue
from refusals import refused
from visterm.core.errors import StorageError
from visterm.core.types import Skipped
from visterm.library.encoded_features import CatalogueFeatures
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.database import WHO, Database
from visterm.store.filters import Filter
from visterm.store.images import NewImage
from visterm.store.tags import GivenTag, Prediction


def record(name, **facts):
    values = {"n_bytes": 10, "width": 4, "height": 3, "sha256": f"hash of {name}"} | facts
    return NewImage(name=name, path=f"/photos/{name}", **values)


@pytest.fixture(params=["memory", "folder"])
def catalogue(request, tmp_path):
    origin = Origin("/runs/one", "f00d", "enc")
    made = StoredCatalogue(origin) if request.param == "memory" else empty_catalogue(tmp_path / "c", origin)
    made.images.add(
        [
            record("a.jpeg", taken="2019-07-03T10:00:00", file_type="jpeg", tags=()),
            record("trips/b.png", taken="2019-12-31T23:59:59", file_type="png", n_bytes=500),
            record("trips/rome/c.png", file_type="png", n_bytes=9000, phash=-(2**63)),
            record("tripsy/d.jpeg", taken="2021-01-01T00:00:00", file_type="jpeg", n_bytes=20),
        ]
    )
    yield made
    made.close()


def test_images_are_found_by_id_and_path(catalogue):
    images = catalogue.images
    assert [image.name for image in images.get_many([3, 99, 0])] == ["tripsy/d.jpeg", "a.jpeg"]
    assert images.get(99) is None
    assert images.by_path("/photos/a.jpeg") == images.get(0)
    assert images.by_path("/nowhere") is None
    assert [(image.id, image.phash) for image in images.all() if image.phash is not None] == [(2, -(2**63))]
    assert [one.name for one in catalogue.locations([1] * 60)] == ["trips/b.png"] * 60
    assert images.files()["/photos/a.jpeg"] == 0


def test_an_image_that_moved_or_changed_keeps_its_id_and_its_tags(catalogue):
    catalogue.tags.give(0, ["sea"], "person")
    catalogue.mark([0], "gone")
    assert catalogue.images.by_path("/photos/a.jpeg") is None
    catalogue.images.move(0, "/elsewhere/z.jpeg", "z.jpeg", 5)
    moved = catalogue.images.by_path("/elsewhere/z.jpeg")
    assert (moved.id, moved.name, moved.folder, moved.mtime_ns, moved.state) == (0, "z.jpeg", "/elsewhere", 5, "here")
    catalogue.images.update(0, record("a.jpeg", sha256="new", width=9))
    assert (catalogue.images.get(0).sha256, catalogue.images.get(0).width) == ("new", 9)
    assert catalogue.tags.given(0) == [GivenTag("sea", "person")]


def test_another_file_may_come_to_the_place_of_one_that_is_gone(catalogue):
    with pytest.raises(sqlite3.IntegrityError):
        catalogue.images.add([record("a.jpeg")])
    catalogue.mark([0], "gone")
    assert catalogue.images.add([record("a.jpeg")]) == [4]
    assert catalogue.images.by_path("/photos/a.jpeg").id == 4
    assert (catalogue.images.count(), catalogue.images.count("gone")) == (4, 1)


def test_the_log_and_the_history_tell_who_said_what(catalogue):
    tags = catalogue.tags
    tags.give(0, ["sea"], "file")
    told = WHO.set("anna")
    tags.give(0, ["sea", "boat"], "person")
    tags.judge(1, "sea", -1)
    catalogue.history.note("tag photos", photos=2)
    WHO.set("ben")
    tags.give(0, ["boat"], "person")  # it has that tag from anna
    tags.give(1, ["sky"], "file")
    WHO.reset(told)
    tags.judge(1, "sea", 0)
    assert tags.given(0) == [GivenTag("boat", "person", "anna"), GivenTag("sea", "person", "anna")]
    assert tags.given(1) == [GivenTag("sky", "file", "")]
    assert [(entry.verdict, entry.who) for entry in tags.feedback()] == [(-1, "anna"), (0, "")]
    assert catalogue.history.latest(1)[0].details == {"photos": 2, "who": "anna"}


def test_the_tags_of_a_file_are_replaced_and_those_of_a_person_stay(catalogue):
    tags = catalogue.tags
    tags.set_from_file(0, ["sea", "sky"])
    tags.give(0, ["boat", "sky"], "person")
    tags.set_from_file(0, ["sky", "sun"])
    assert tags.given(0) == [GivenTag("boat", "person"), GivenTag("sky", "person"), GivenTag("sun", "file")]
    tags.remove(0, ["sun", "sky"], "file")
    assert tags.given(0) == [GivenTag("boat", "person"), GivenTag("sky", "person")]
    tags.remove(0, ["boat", "no such tag"])
    assert tags.held() == {0: ["sky"]}


def test_the_latest_verdict_counts_and_all_are_kept(catalogue):
    tags = catalogue.tags
    tags.give(0, ["sea", "sky"], "file")
    for tag, verdict in (("sea", -1), ("tree", 1), ("car", -1), ("tree", -1), ("tree", 1), ("car", 0)):
        tags.judge(0, tag, verdict, run_id=1)
    assert tags.held([0]) == {0: ["sky", "tree"]}
    assert tags.rejected() == {0: ["sea"]}
    assert tags.verdicts(0) == {"sea": -1, "tree": 1}
    assert [(v.tag, v.verdict) for v in tags.feedback()][-2:] == [("tree", 1), ("car", 0)]
    assert [v.id for v in tags.feedback(after=4)] == [5, 6]
    with refused("verdict", value=2):
        tags.judge(0, "sea", 2)


def test_a_rejected_tag_is_never_predicted_again_for_that_image(catalogue):
    answers = [Prediction("sea", 2.0, 0.9), Prediction("tree", 3.0, None)]
    catalogue.tags.judge(0, "tree", -1)
    catalogue.tags.set_predictions(1, {0: answers, 1: answers})
    assert catalogue.tags.predictions(0, 1) == [("sea", 2.0, 0.9)]
    assert catalogue.tags.predictions(1, 1) == [("tree", 3.0, None), ("sea", 2.0, 0.9)]
    assert catalogue.find(Filter(predicted=("tree",))).tolist() == [1]
    catalogue.tags.set_predictions(1, {1: answers[:1]})
    assert catalogue.tags.predictions(1, 1) == [("sea", 2.0, 0.9)]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, [0, 1, 2, 3]),
        ({"tags": ("sea",)}, [0, 3]),
        ({"tags": ("sea", "sky")}, [0]),
        ({"tags": ("no such tag",)}, []),
        ({"without": ("sea",)}, [1, 2]),
        ({"tags": ("sea",), "without": ("sky",)}, [3]),
        ({"predicted": ("tree",)}, [1]),
        ({"predicted": ("tree",), "min_confidence": 0}, [0, 1]),
        ({"predicted": ("tree",), "min_confidence": 0.5}, [1]),
        ({"folder": "/photos/trips"}, [1, 2]),
        ({"folder": "/photos/trips/"}, [1, 2]),
        ({"folder": "/"}, [0, 1, 2, 3]),
        ({"taken_from": "2019-07-03"}, [0, 1, 3]),
        ({"taken_from": "2020"}, [3]),
        ({"taken_to": "2019"}, [0, 1]),
        ({"taken_to": "2019-07-03"}, [0]),
        ({"min_bytes": 20, "max_bytes": 500}, [1, 3]),
        ({"file_type": "PNG"}, [1, 2]),
        ({"file_type": ".jpg"}, [0, 3]),
        ({"unreviewed": True}, [1, 2, 3]),
        ({"file_type": "jpeg", "unreviewed": True, "tags": ("sea",)}, [3]),
        ({"tags": ("'); DROP TABLE images; --",)}, []),
    ],
    ids=str,
)
def test_a_filter_passes_the_images_that_are_all_it_says(catalogue, wanted, ids):
    tags = catalogue.tags
    tags.give_many([(0, ["sea", "sky"]), (1, ["sea"]), (2, ["sky"])], "file")
    tags.judge(1, "sea", -1)
    tags.judge(3, "sea", 1)
    tags.set_predictions(1, {0: [Prediction("tree", 1.0, 0.2)], 1: [Prediction("tree", 1.0, 0.6)]})
    catalogue.images.mark_reviewed([0])
    gone = catalogue.images.add([record("gone.png", taken="2019", file_type="png")])
    tags.give(gone[0], ["sea", "sky"], "file")
    catalogue.mark(gone, "gone")
    assert catalogue.find(Filter(**wanted)).tolist() == ids
    assert bool(Filter(**wanted)) == bool(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"taken_from": "2024-13"}, {"taken_from": "2023-02-29"}, {"taken_to": "2024-05-31T25:00"}, {"taken_to": "may"},
        {"tags": "sea"}, {"taken_to": "2024-05-31T10:61"}, {"folder": "/photos\0"}, {"min_bytes": -1},
        {"max_bytes": 2**63},
    ],
    ids=repr,
)  # fmt: skip
def test_a_filter_that_nothing_could_pass_is_refused_by_name(wanted):
    [name] = wanted
    with refused(name, value=wanted[name]):
        Filter(**wanted)


@pytest.mark.parametrize("text", ["2024", "2024-02-29", "2024-05", "2024-05-31T10", "2024-05-31T23:59:59"])
def test_dates_are_taken_as_far_as_they_go(text):
    assert Filter(taken_from=text, taken_to=text).taken_to == text


def test_jobs_say_how_far_they_are_and_stop_when_asked(catalogue):
    jobs = catalogue.jobs
    first, second = jobs.start("index"), jobs.start("fit", waiting=True)
    jobs.progress(first, 4, None)
    assert (jobs.get(first).state, jobs.get(first).done, jobs.get(first).total) == ("running", 4, None)
    assert jobs.cancel(second)
    assert jobs.get(second).ended
    assert not jobs.cancel(second)
    assert jobs.cancel(first)
    assert jobs.is_cancelled(first)
    jobs.finish(first)
    assert jobs.get(first).state == "cancelled"
    third = jobs.start("fit")
    jobs.finish(third, error="too few tags")
    assert (jobs.get(third).state, jobs.get(third).error) == ("failed", "too few tags")
    assert [job.id for job in jobs.latest(2)] == [third, second]
    assert [job.id for job in jobs.latest(before=second)] == [first]


def test_a_job_whose_process_is_gone_is_lost(catalogue):
    mine, lost = catalogue.jobs.start("index"), catalogue.jobs.start("fit")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    catalogue.database.write("UPDATE jobs SET pid = ? WHERE id = ?", (child.pid, lost))
    assert catalogue.jobs.mark_lost() == [lost]
    assert (catalogue.jobs.get(lost).state, catalogue.jobs.get(mine).state) == ("lost", "running")


def test_a_job_of_an_earlier_process_with_the_same_number_is_lost(catalogue):
    """As in a container, where a service is process 1 after each start."""
    mine = catalogue.jobs.start("index")
    catalogue.database.write(
        "INSERT INTO jobs (kind, state, started, pid, host) VALUES ('fit', 'running', '2026-01-01T00:00:00Z', ?, ?)",
        (os.getpid(), socket.gethostname()),
    )
    (lost,) = catalogue.jobs.mark_lost()
    assert (catalogue.jobs.get(lost).state, catalogue.jobs.get(mine).state) == ("lost", "running")


def test_the_history_is_told_newest_first(catalogue):
    catalogue.history.note("index", images=4)
    catalogue.history.note("fit", run="f00d")
    assert [(event.what, event.details) for event in catalogue.history.latest()] == [
        ("fit", {"run": "f00d"}),
        ("index", {"images": 4}),
    ]


def test_written_tags_skipped_files_and_places_of_features_are_kept_and_forgotten(catalogue):
    catalogue.written.note("xmp", [(0, "sea"), (1, "sky")])
    catalogue.written.note("txt", [(0, "sea")])
    catalogue.written.forget("xmp", [(0, "sea"), (0, "no such tag")])
    assert [(w.image_id, w.tag, w.target) for w in catalogue.written.of_target("xmp")] == [(1, "sky", "xmp")]
    catalogue.skipped.add([Skipped("/b", "empty"), Skipped("/a", "damaged"), Skipped("/b", "damaged: x")])
    catalogue.skipped.remove(["/a"])
    assert (catalogue.skipped.all(), catalogue.skipped.count()) == ([Skipped("/b", "damaged: x")], 1)
    features = CatalogueFeatures(catalogue, "enc")
    features.note([0, 2], "one")
    features.note([0], "two")
    assert features.locations() == [(2, "one", 1), (0, "two", 0)]
    assert features.locations([2, 3]) == [(2, "one", 1)]
    assert CatalogueFeatures(catalogue, "other").locations() == []


def test_runs_are_known_by_fingerprint(catalogue):
    assert catalogue.runs.current().fingerprint == "f00d"
    later = catalogue.runs.add("beef", "enc", facts={"map": 0.5})
    assert catalogue.runs.add("beef", "enc") == later
    assert catalogue.runs.all()[-1].facts == {"map": 0.5}
    catalogue.use_run(later)
    assert [run.current for run in catalogue.runs.all()] == [False, True]
    with pytest.raises(StorageError, match="no run 77"):
        catalogue.use_run(77)
    assert catalogue.runs.current().id == later


def test_threads_write_feedback_at_once(catalogue):
    def judge(image_id):
        for i in range(10):
            catalogue.tags.judge(image_id, f"tag {i}", 1)

    threads = [threading.Thread(target=judge, args=(image_id,)) for image_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(catalogue.tags.feedback()) == 40
    assert catalogue.tags.counts()[0] == {"tag": "tag 0", "images": 4, "given": 0, "accepted": 4, "rejected": 0}


def test_a_catalogue_that_was_closed_says_so(tmp_path):
    made = StoredCatalogue(Origin("", "f00d"))
    made.add([record("a")], np.ones((1, 2)))
    made.close()
    with pytest.raises(StorageError, match="was closed"):
        made.images.count()


def test_what_is_kept_of_the_tables_goes_when_anybody_changes_them(tmp_path):
    path = tmp_path / "catalogue.sqlite"
    database, other = Database(path, new=True), Database(path)
    asked = []

    def read():
        asked.append(1)
        return database.value("SELECT value FROM meta WHERE key = 'test'")

    def kept():
        return database.keep("test", read)

    assert [kept(), kept(), len(asked)] == [None, None, 1]
    other.write("INSERT INTO meta VALUES ('test', 'another process')")
    assert [kept(), kept(), len(asked)] == ["another process", "another process", 2]
    database.write("UPDATE meta SET value = 'this thread' WHERE key = 'test'")
    assert [kept(), kept(), len(asked)] == ["this thread", "this thread", 3]
    writer = threading.Thread(target=database.write, args=("UPDATE meta SET value = 'a thread' WHERE key = 'test'",))
    writer.start()
    writer.join()
    assert kept() == "a thread"

    def change_and_fail():
        with database.transaction() as connection:
            connection.execute("UPDATE meta SET value = 'rolled back' WHERE key = 'test'")
            assert kept() == "rolled back"
            raise KeyError

    with pytest.raises(KeyError):
        change_and_fail()
    assert kept() == "a thread"
    for each in (database, other):
        each.close()


def test_what_is_kept_of_the_tables_has_an_end(monkeypatch):
    database = Database()
    monkeypatch.setattr("visterm.store.database.MAX_CACHED_BYTES", 4000)
    for number in range(100):
        assert database.keep(number, lambda: np.zeros(100))[0] == 0
        assert sum(each.nbytes for each in database._cache.values()) <= 4000 + 800
    database.keep("large", lambda: np.zeros(1000))
    assert "large" not in database._cache
    monkeypatch.setattr("visterm.store.database.MAX_CACHED_RESULTS", 10)
    for number in range(100):
        database.keep(number, lambda: 0)
        assert len(database._cache) <= 12
