"""`visterm watch`: a catalogue follows its folders; a folder that disappears takes no photo with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from closed_folders import close
from drawn_videos import draw_video, needs_ffmpeg
from refusals import refused
from tiny_catalogues import COLOURS, draw_photo, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.connectors.folder_changes import ChangedFiles, Stop, is_on_network, mounts
from visterm.connectors.watch import FolderWatcher, folders_to_watch, tags_as_indexed
from visterm.core.errors import InUseError, UserError
from visterm.store.connected import ProgramConnection

LONGEST = 600.0  # Seconds until something that must happen counts as never
TICK = 0.05  # Seconds between two looks, here and in commands: a tenth of what it is
START = f"""from visterm.connectors import folder_changes, watch
folder_changes.TICK_SECONDS = watch.LOCK_RETRY_SECONDS = {TICK}
watch.FolderWatcher.__init__.__kwdefaults__["settle"] = 0.1
from visterm.cli import main
main()"""
N_PHOTOS = 24
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>{}</rdf:li></rdf:Bag>'
    "</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("visterm.connectors.folder_changes.TICK_SECONDS", TICK)
    monkeypatch.setattr("visterm.connectors.watch.LOCK_RETRY_SECONDS", TICK)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    tags = draw_photos(folder / "photos", N_PHOTOS)
    fit_run(folder / "photos", tags, folder / "run")
    return folder


@pytest.fixture
def library(made, tmp_path):
    """Photos in folders "a" and "b" of a folder, and a catalogue that was made of it."""
    photos = tmp_path / "photos"
    for number in range(N_PHOTOS):
        part = photos / "ab"[number % 2]
        part.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made / "photos" / f"{number:03d}.png", part)
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(made / "run", n_jobs=1))
    catalogue.index(photos)
    return catalogue, photos


def wait_until(condition, why=""):
    until = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < until, why() if callable(why) else why
        time.sleep(0.02)


def paths_of(catalogue):
    return {record.path: record.id for record in catalogue.stored.images.all()}


@contextmanager
def watching(catalogue, folder, **options):
    """Watch in another thread, after the first round; yields all rounds and all lines so far."""
    stop, rounds, lines, failed = Stop(), [], [], []
    opened = Catalogue.load(catalogue.stored.folder, n_jobs=1)
    work = FolderWatcher(opened, [str(folder)], settle=0.1, stop=stop, say=lines.append, **options)

    def run():
        try:
            rounds.extend(work.rounds())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: rounds or lines or failed)
        yield rounds, lines
        assert failed == []
    finally:
        stop.set()
        thread.join(LONGEST)
        opened.stored.close()


class Command:
    """`visterm watch` as a process, with what it has printed so far."""

    def __init__(self, *arguments, start=START):
        command = [sys.executable, "-c", start, "watch", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.rounds, self.lines = [], []
        self._readers = [
            threading.Thread(target=lambda: self.rounds.extend(self.process.stdout)),
            threading.Thread(target=lambda: self.lines.extend(self.process.stderr)),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.end()

    def end(self, signal_number=None):
        if signal_number is not None:
            self.process.send_signal(signal_number)
        code = self.process.wait(LONGEST)
        for reader in self._readers:
            reader.join(LONGEST)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.mark.parametrize("poll", [(), ("--poll", "0.2s")], ids=["reported", "polled"])
def test_new_changed_moved_deleted_and_restored_photos_are_followed(poll, library):
    catalogue, photos = library
    before = paths_of(catalogue)
    catalogue.give(before[str(photos / "a" / "000.png")], ["mine"])
    with Command(catalogue.stored.folder, *poll) as command:
        wait_until(lambda: command.rounds, lambda: command.lines)
        assert command.rounds[0] == f"{photos}: nothing new; {N_PHOTOS} photos in the catalogue\n"

        new = draw_photo(photos / "c" / "d" / "new.png", "red", 1)
        (photos / "c" / "note.odt").write_text("no photo")
        draw_photo(photos / ".hidden" / "not.png", "red", 2)
        wait_until(lambda: str(new) in paths_of(catalogue))

        changed = str(photos / "a" / "002.png")
        sha256 = catalogue.stored.images.by_path(changed).sha256
        draw_photo(Path(changed), "blue", 77)
        wait_until(lambda: catalogue.stored.images.by_path(changed).sha256 != sha256)
        assert paths_of(catalogue)[changed] == before[changed]

        (photos / "a" / "000.png").rename(photos / "c" / "moved.png")
        wait_until(lambda: paths_of(catalogue).get(str(photos / "c" / "moved.png")) == before[f"{photos}/a/000.png"])

        aside = photos.parent / "aside"
        (photos / "c").rename(aside)
        wait_until(lambda: not any("/c/" in path for path in paths_of(catalogue)))
        aside.rename(photos / "restored")
        back = str(photos / "restored" / "moved.png")
        wait_until(lambda: paths_of(catalogue).get(back) == before[f"{photos}/a/000.png"])
        assert catalogue.image(before[f"{photos}/a/000.png"]).tags == ["mine"]
        wait_until(lambda: all(f" {what}" in "".join(command.rounds) for what in ("new", "changed", "moved", "gone")))

        assert command.end(signal.SIGTERM) == 0
        assert command.lines[-1] == "Stopped.\n"
    assert len(paths_of(catalogue)) == N_PHOTOS + 1
    assert not any("hidden" in path for path in paths_of(catalogue))


def test_a_photo_that_is_copied_in_pieces_is_taken_up_whole(library):
    catalogue, photos = library
    content = draw_photo(photos.parent / "large.png", "green", 5).read_bytes()
    with Command(catalogue.stored.folder) as command:
        wait_until(lambda: command.rounds, lambda: command.lines)
        with (photos / "large.png").open("wb", buffering=0) as file:
            for start in range(0, len(content), 400):
                file.write(content[start : start + 400])
                time.sleep(0.05)
        shutil.copy2(photos / "large.png", photos / "a" / "other.png")
        wait_until(lambda: {f"{photos}/large.png", f"{photos}/a/other.png"} <= paths_of(catalogue).keys())
        wait_until(lambda: catalogue.stored.images.by_path(photos / "large.png").n_bytes == len(content))
        assert command.end(signal.SIGINT) == 0


def test_a_file_settles_when_its_size_and_date_stay(tmp_path):
    now, file = [0.0], tmp_path / "a.jpg"
    settling = ChangedFiles(2.0, clock=lambda: now[0])
    file.write_bytes(b"half")
    settling.touch([str(file), str(tmp_path / "gone.jpg")])
    now[0] = 1.5
    file.write_bytes(b"half and more")
    assert settling.settled() == []
    now[0] = 3.0
    assert settling.settled() == []
    now[0] = 3.5
    assert settling.settled() == [str(file), str(tmp_path / "gone.jpg")]  # in one update
    now[0] = 9.0
    assert settling.settled() == []


def test_files_that_are_written_one_after_the_other_are_one_update_and_one_that_grows_holds_up_none_for_long(tmp_path):
    now, updates = [0.0], []
    settling = ChangedFiles(2.0, clock=lambda: now[0])
    for number in range(7):
        sidecar = tmp_path / f"{number}.xmp"
        sidecar.write_text("tags")
        settling.touch([str(sidecar)])
        now[0] += 1.5
        updates.append(settling.settled())
    now[0] += 1.0
    updates.append(settling.settled())
    assert [len(update) for update in updates] == [0] * 7 + [7]
    growing = tmp_path / "long.mp4"
    settling.touch([str(sidecar)])
    for number in range(1, 30):
        growing.write_bytes(bytes(number))
        settling.touch([str(growing)])
        now[0] += 1.0
        if settling.settled():
            break
    assert number == 20


@pytest.mark.parametrize("poll", [None, 0.1], ids=["reported", "polled"])
@pytest.mark.parametrize("left", ["nothing", "an empty folder", "other files", "a few photos"])
def test_a_folder_that_disappears_is_waited_for_and_no_photo_is_gone(left, poll, library):
    catalogue, photos = library
    before = paths_of(catalogue)
    with watching(catalogue, photos, poll=poll) as (_, lines):
        photos.rename(photos.parent / "unplugged")
        if left != "nothing":
            photos.mkdir()
        if left == "other files":
            (photos / "NOT MOUNTED.txt").write_text("")
        if left == "a few photos":
            draw_photo(photos / "stray.png", "red", 9)
        wait_until(lambda: any("waiting for it" in line for line in lines), lambda: lines)
        assert before.keys() <= paths_of(catalogue).keys()
        shutil.rmtree(photos, ignore_errors=True)
        (photos.parent / "unplugged").rename(photos)
        wait_until(lambda: any("is back" in line for line in lines), lambda: lines)
        new = draw_photo(photos / "a" / "new.png", "red", 3)
        wait_until(lambda: str(new) in paths_of(catalogue))
    after = paths_of(catalogue)
    assert {path: after[path] for path in before} == before


def test_a_folder_that_is_missing_at_the_start_is_waited_for(library):
    catalogue, photos = library
    photos.rename(photos.parent / "unplugged")
    with watching(catalogue, photos) as (rounds, lines):
        assert f"{photos} is not there: waiting for it, its photos stay in the catalogue." in lines[0]
        (photos.parent / "unplugged").rename(photos)
        wait_until(lambda: rounds)
    assert rounds[0].done.kept == N_PHOTOS


def test_a_drive_in_a_folder_that_is_not_mounted_any_more_takes_no_photo_with_it(library, monkeypatch):
    catalogue, photos = library
    for number in range(5):
        draw_photo(photos / "a" / f"more{number}.png", "red", number)
    catalogue.index(photos)
    mounted = {"/": "ext4", str(photos / "b"): "ext4"}
    monkeypatch.setattr("visterm.connectors.watch.mounts", lambda: dict(mounted))
    with watching(catalogue, photos) as (rounds, _):
        (photos / "b").rename(photos.parent / "b")
        (photos / "a" / "000.png").unlink()
        del mounted[str(photos / "b")]
        wait_until(lambda: str(photos / "a" / "000.png") not in paths_of(catalogue))
        wait_until(lambda: sum(bool(found.folder) for found in rounds) > 1)
    assert len(paths_of(catalogue)) == N_PHOTOS + 4


def test_a_sub_folder_that_may_not_be_listed_any_more_keeps_its_photos_and_the_others_are_followed(
    library, monkeypatch
):
    catalogue, photos = library
    close(monkeypatch, photos / "b")
    with watching(catalogue, photos, poll=TICK) as (rounds, lines):
        wait_until(lambda: rounds)
        assert [item.image for item in rounds[0].done.skipped] == [str(photos / "b")]
        draw_photo(photos / "a" / "more.png", "red", 7)
        wait_until(lambda: str(photos / "a" / "more.png") in paths_of(catalogue))
    assert lines == []
    assert len(paths_of(catalogue)) == N_PHOTOS + 1


def test_a_folder_with_most_photos_may_be_renamed_and_half_of_them_deleted(library):
    catalogue, photos = library
    before = paths_of(catalogue)
    with watching(catalogue, photos) as (_, lines):
        shutil.move(photos / "b", photos / "a")
        (photos / "a").rename(photos / "z")
        wait_until(lambda: all(path.startswith(f"{photos}/z") for path in paths_of(catalogue)))
        assert sorted(paths_of(catalogue).values()) == sorted(before.values())
        shutil.rmtree(photos / "z" / "b")
        wait_until(lambda: len(paths_of(catalogue)) == N_PHOTOS // 2)
    assert lines == []


def test_a_photo_that_goes_to_another_drive_takes_what_people_said_with_it(library):
    catalogue, photos = library
    first, other = (paths_of(catalogue)[f"{photos}/a/{name}.png"] for name in ("000", "002"))
    catalogue.give(first, ["mine"])
    catalogue.judge(first, "warm", -1)
    catalogue.give(other, ["first"])
    with watching(catalogue, photos) as (_, lines):
        for name in ("000", "002"):  # copied, and only then deleted
            shutil.copy2(photos / "a" / f"{name}.png", photos / "b" / f"copy of {name}.png")
        copies = [f"{photos}/b/copy of {name}.png" for name in ("000", "002")]
        wait_until(lambda: set(copies) <= paths_of(catalogue).keys())
        moved, reviewed = (paths_of(catalogue)[path] for path in copies)
        catalogue.give(reviewed, ["another"])
        assert catalogue.image(moved).tags == []
        for name in ("000", "002"):
            (photos / "a" / f"{name}.png").unlink()
        wait_until(lambda: catalogue.image(moved).tags == ["mine"])
        wait_until(lambda: lines)
        catalogue.take(moved, ["mine"])
        new = draw_photo(photos / "new.png", "red", 3)
        wait_until(lambda: str(new) in paths_of(catalogue))
    assert catalogue.image(moved).verdicts == {"warm": -1}
    assert (catalogue.image(moved).tags, catalogue.image(reviewed).tags) == ([], ["another"])
    assert lines == ["Tags and corrections of 1 photo went to copies elsewhere."]


def test_a_process_that_writes_into_the_catalogue_is_waited_for(library):
    catalogue, photos = library
    with watching(catalogue, photos) as (_, lines):
        writing = ExitStack()

        def begins() -> bool:  # the first round may still be writing
            with suppress(InUseError):
                writing.enter_context(catalogue.stored.writing())
                return True
            return False

        wait_until(begins)
        with writing:
            new = draw_photo(photos / "new.png", "red", 3)
            wait_until(lambda: any("Waiting: " in line and "in use" in line for line in lines))
            assert str(new) not in paths_of(catalogue)
        wait_until(lambda: str(new) in paths_of(catalogue))
    assert sum("Waiting: " in line for line in lines) == 1


def test_keywords_in_sidecars_are_taken_as_at_indexing(library):
    catalogue, photos = library
    (photos / "a" / "000.png.xmp").write_text(XMP.format("garden"))
    assert tags_as_indexed(catalogue.stored) is None
    catalogue.index(photos, tags="xmp")
    source = tags_as_indexed(catalogue.stored)
    assert source == "xmp"
    ids = paths_of(catalogue)
    first, second = ids[f"{photos}/a/000.png"], ids[f"{photos}/a/002.png"]
    catalogue.give(first, ["a person's"])
    with watching(catalogue, photos, tags=source) as (rounds, _):
        (photos / "a" / "000.png.xmp").write_text(XMP.format("forest"))
        wait_until(lambda: sorted(catalogue.image(first).tags) == ["a person's", "forest"])
        (photos / "a" / "002.xmp").write_text(XMP.format("beach"))
        wait_until(lambda: catalogue.image(second).tags == ["beach"])
        (photos / "c").mkdir()
        draw_photo(photos / "c" / "new.png", "red", 3)
        (photos / "c" / "new.png.xmp").write_text(XMP.format("sunset"))
        wait_until(lambda: f"{photos}/c/new.png" in paths_of(catalogue))
        new = paths_of(catalogue)[f"{photos}/c/new.png"]
        wait_until(lambda: catalogue.image(new).tags == ["sunset"])
    assert sum(bool(found.folder) for found in rounds) == 1


def test_another_source_of_tags_is_taken_over_from_who_indexes_meanwhile(library):
    catalogue, photos = library
    (photos / "a" / "000.txt").write_text("garden")
    with watching(catalogue, photos, tags="auto") as (rounds, _):
        wait_until(lambda: rounds)
        assert "Tags: a .txt beside each image." in rounds[0].done.remarks
        (photos / "a" / "002.png.xmp").write_text(XMP.format("beach"))
        catalogue.index(photos, tags="xmp")
        draw_photo(photos / "a" / "new.png", "red", 3)
        (photos / "a" / "new.png.xmp").write_text(XMP.format("sunset"))
        path = f"{photos}/a/new.png"
        wait_until(
            lambda: path in paths_of(catalogue) and catalogue.image(paths_of(catalogue)[path]).tags == ["sunset"]
        )
    assert tags_as_indexed(catalogue.stored) == "xmp"
    assert catalogue.image(paths_of(catalogue)[f"{photos}/a/000.png"]).tags == ["garden"]


def test_a_tag_file_is_read_again_when_it_changes(library, tmp_path):
    catalogue, photos = library
    tags = write_tags(tmp_path / "tags.csv", {"a/000.png": ["one"]})
    first = paths_of(catalogue)[f"{photos}/a/000.png"]
    with watching(catalogue, photos, tags=str(tags)) as (_, lines):
        wait_until(lambda: catalogue.image(first).tags == ["one"])
        tags.write_text("no table at all")
        wait_until(lambda: any("indexed without new tags" in line for line in lines))
        write_tags(tags, {"a/000.png": ["two"]})
        wait_until(lambda: catalogue.image(first).tags == ["two"])
    assert tags_as_indexed(catalogue.stored) == str(tags)
    tags.unlink()
    assert tags_as_indexed(catalogue.stored) is None


def test_a_kill_at_any_time_loses_nothing(library):
    catalogue, photos = library
    colours = list(COLOURS)
    for number in range(60):
        draw_photo(photos / "more" / f"{number}.png", colours[number % 4], 1000 + number)
    for number in range(2):
        with Command(catalogue.stored.folder) as command:
            wait_until(lambda command=command: command.lines)
            time.sleep(0.3 * number)
            command.process.kill()
            assert command.end() == -signal.SIGKILL
        assert catalogue.stored.database.check() == []
        draw_photo(photos / "more" / f"{100 + number}.png", "red", number)
    with Command(catalogue.stored.folder) as command:
        wait_until(lambda: command.rounds, lambda: command.lines)
        assert command.end(signal.SIGTERM) == 0
    there = paths_of(catalogue)
    assert there.keys() == {str(path) for path in photos.rglob("*.png")}
    assert len(catalogue) == len(there) == N_PHOTOS + 62
    assert all(job.ended for job in catalogue.stored.jobs.latest(1000))


def test_it_ends_between_two_chunks(library, monkeypatch):
    catalogue, photos = library
    for number in range(6):
        draw_photo(photos / f"new{number}.png", "red", number)
    monkeypatch.setattr("visterm.connectors.watch.CHUNK_PHOTOS", 2)
    stop = Stop()

    class StopsAtTheFirst:
        def start(self, task, total=None):
            pass

        def advance(self, steps=1, note=""):
            stop.set()

        def finish(self):
            pass

    work = FolderWatcher(catalogue, [str(photos)], stop=stop, say=print, progress=StopsAtTheFirst())
    [only] = list(work.rounds())
    assert only.done.cancelled
    assert only.done.new == 2
    assert catalogue.stored.jobs.latest(1)[0].state == "cancelled"


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"caf\xe9.txt"])
def test_a_name_that_is_not_utf8_ends_the_reports_and_the_folder_is_looked_at_instead(name, library, monkeypatch):
    catalogue, photos = library
    monkeypatch.setattr("visterm.connectors.watch.POLL_SECONDS", TICK)
    drawn = draw_photo(photos.parent / "new.png", "red", 3)
    odd = Path(os.fsdecode(os.path.join(os.fsencode(photos / "a"), name)))
    with watching(catalogue, photos) as (rounds, lines):
        wait_until(lambda: rounds)
        (photos / "b" / "001.png").unlink()
        try:
            shutil.copy(drawn, odd)
        except OSError:
            pytest.skip("this file system takes only names that are UTF-8")
        wait_until(lambda: lines)
        assert "names that are not UTF-8: " in lines[0]
        assert "Looking at the folders every" in lines[0]
        wait_until(lambda: str(photos / "b" / "001.png") not in paths_of(catalogue))
        shutil.copy(drawn, photos / "after.png")
        drawn.unlink()
        wait_until(lambda: str(photos / "after.png") in paths_of(catalogue))
    assert len(lines) == 1
    assert (str(odd) in paths_of(catalogue)) == name.endswith(b".png")


def test_folders_on_the_network_are_known_by_their_file_system(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/sda1 / ext4 rw 0 0\nnas:/photos /mnt/my\\040photos nfs4 rw 0 0\nme@host: /home/me/far fuse.sshfs rw 0 0\n"
        "//nas/share /srv/share cifs rw 0 0\n/dev/sdb1 /srv/share/local ext4 rw 0 0\n"
    )
    mounted = mounts(table)
    assert mounted["/mnt/my photos"] == "nfs4"
    on_network = ["/mnt/my photos", "/mnt/my photos/2024", "/home/me/far", "/home/me", "/srv/share", "/mnt"]
    assert [is_on_network(folder, mounted) for folder in on_network] == [True] * 6
    assert [is_on_network(f, mounted) for f in ("/home/you", "/srv/share/local", "/home/me/far2")] == [False] * 3
    assert mounts(tmp_path / "none") == {}


@needs_ffmpeg
def test_a_video_is_taken_up_too(library):
    catalogue, photos = library
    with watching(catalogue, photos):
        film = draw_video(photos / "film.mp4", "red", seconds=2)
        wait_until(lambda: str(film) in paths_of(catalogue))


def test_a_catalogue_of_another_programs_library_is_followed_by_sync(library):
    catalogue, photos = library
    catalogue.stored.connected.put(ProgramConnection("immich", "http://nas:2283", None, {}))
    for folders in ([], [photos]):
        with pytest.raises(UserError, match=r"connected to Immich at http://nas:2283.*visterm sync CATALOGUE"):
            folders_to_watch(catalogue.stored, folders)


def test_folders_are_those_that_were_indexed_or_those_named(library, made, tmp_path):
    catalogue, photos = library
    for number in range(1100):  # rounds of watch are in the history, too
        catalogue.stored.history.note("index", folder="", new=number)
    assert folders_to_watch(catalogue.stored) == [str(photos)]
    assert folders_to_watch(catalogue.stored, [photos / "a", made / "photos"]) == [f"{photos}/a", f"{made}/photos"]
    assert folders_to_watch(catalogue.stored, [photos / "a", photos]) == [str(photos)]
    with refused("folders", value=tmp_path / "none"):
        folders_to_watch(catalogue.stored, [tmp_path / "none"])
    empty = Catalogue.create(tmp_path / "empty", Tagger.load(made / "run", n_jobs=1))
    with refused("folders"):
        folders_to_watch(empty.stored)
