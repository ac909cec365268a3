"""The real digiKam, darktable and exiv2 read from exported sidecars exactly the paths that were written."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, contextmanager, suppress

import pytest
from PIL import Image

from visterm.core.persist import file_hash
from visterm.data.tag_files import find_tags
from visterm.data.xmp.keywords import Mark
from visterm.library.export.items import ExportItem
from visterm.library.export.writing import make_target

PATHS = {
    "Köln/0.jpg": [("sea",), ("animal", "dog")],
    "Köln/1.jpg": [("animal", "Vögel", "Möwe"), ("places", "北京"), ("sea",)],
    "2.png": [("rock & roll",), ("animal", "dog"), ("animal", "Vögel")],
}
FOREVER = 600.0
OWN_TAGS = "_Digikam_Internal_Tags_"  # the topmost of the tags that digiKam gives by itself

SETTINGS = """\
[Album Settings]
Album Collections=none

[General Settings]
Version=7.9.0
Scan At Start=true
Show Splash=false

[Database Settings]
Database Type=QSQLITE
Database Name={folder}/
Database Name Face={folder}/
Database Name Similarity={folder}/
Database Name Thumbnails={folder}/
Internal Database Server=false

[Metadata Settings]
Use XMP Sidecar For Reading=true
"""
TAGS = """
    WITH RECURSIVE paths (id, path) AS (
      SELECT id, name FROM Tags WHERE pid = 0
      UNION ALL SELECT Tags.id, path || '|' || name FROM Tags JOIN paths ON Tags.pid = paths.id)
    SELECT ltrim(relativePath || '/', '/') || Images.name, path FROM ImageTags
    JOIN paths ON paths.id = tagid JOIN Images ON Images.id = imageid JOIN Albums ON Albums.id = album
"""


def photos_for(program, folder):
    """Make photos with the sidecars that an export for a program writes; return their folder."""
    target = make_target(program)
    for number, (name, paths) in enumerate(PATHS.items()):
        photo = folder / "photos" / name
        photo.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48), (80 * number, 20, 90)).save(photo)
        marks = [Mark(path[-1], "given", path=path if len(path) > 1 else ()) for path in paths]
        assert target.export(ExportItem(photo), marks, dry_run=False).target == f"{photo}.xmp"
    target.close()
    return folder / "photos"


@contextmanager
def digikam_running(folder):
    """Run digiKam with the database in a folder, on a screen that nobody sees."""
    home = folder / "home"
    (home / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "digikamrc").write_text(SETTINGS.format(folder=folder), encoding="utf-8")
    own = {f"XDG_{name}_HOME": str(home) for name in ("CONFIG", "DATA", "CACHE")}
    environment = {
        **os.environ, **own, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "LC_ALL": "C.UTF-8",
        "QTWEBENGINE_DISABLE_SANDBOX": "1",
    }  # fmt: skip
    with (home / "log").open("ab") as log:
        command = ["xvfb-run", "--auto-servernum", "digikam"]
        program = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield program
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # to the screen, too
            with suppress(ProcessLookupError):
                os.killpg(program.pid, number)
            with suppress(subprocess.TimeoutExpired):
                program.wait(30)


def rows_when(program, database, query, is_done):
    """Return the rows of a query as soon as they are all there."""
    end, rows = time.monotonic() + FOREVER, []
    while time.monotonic() < end and program.poll() is None:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as tables:
            try:
                rows = tables.execute(query).fetchall()
            except sqlite3.OperationalError:  # no such table yet, or digiKam writes
                rows = []
        if is_done(rows):
            return rows
        time.sleep(0.5)
    pytest.fail(f"digiKam ended with {program.poll()}, or was not done in time: {rows}")


@pytest.mark.slow
def test_digikam_reads_the_paths_that_were_written_and_its_database_is_read_while_it_runs(tmp_path):
    if shutil.which("digikam") is None or shutil.which("xvfb-run") is None:
        pytest.skip("wants digikam and xvfb-run (Debian: digikam, xvfb, xauth)")
    photos, folder = photos_for("digikam", tmp_path), tmp_path / "digikam"
    folder.mkdir()
    database = folder / "digikam4.db"
    database.touch()
    with digikam_running(folder) as program:  # it makes its tables
        rows_when(program, database, "SELECT value FROM Settings WHERE keyword = 'DBVersion'", bool)
    with closing(sqlite3.connect(database)) as tables, tables:
        tables.execute(
            "INSERT INTO AlbumRoots (label, status, type, identifier, specificPath) VALUES ('photos', 0, 1, ?, '/')",
            [f"volumeid:?path={photos}"],
        )

    expected = sorted((name, "|".join(path)) for name, paths in PATHS.items() for path in paths)
    with digikam_running(folder) as program:
        query = f"{TAGS} WHERE path NOT LIKE '{OWN_TAGS}%'"
        rows_when(program, database, query, lambda rows: len(rows) >= len(expected))
        time.sleep(3)  # for tags that nobody wrote
        assert sorted(rows_when(program, database, query, bool)) == expected
        before = file_hash(database)
        records = {record.image: record.tags for record in find_tags(f"digikam:{database}", photos).records}
        assert file_hash(database) == before
        assert program.poll() is None
    assert {name: sorted(tags) for name, tags in records.items()} == {
        name: sorted(path[-1] for path in paths) for name, paths in PATHS.items()
    }


@pytest.mark.slow
def test_darktable_reads_the_paths_that_were_written(tmp_path):
    if shutil.which("darktable-cli") is None:
        pytest.skip("wants darktable-cli (Debian: darktable)")
    photos, folder = photos_for("darktable", tmp_path), tmp_path / "darktable"
    core = ["--core", "--configdir", folder, "--cachedir", folder / "cache", "--library", folder / "library.db"]
    (folder / "home").mkdir(parents=True)
    for number, name in enumerate(PATHS):  # it develops the photo, as its sidecar says
        command = ["darktable-cli", photos / name, photos / f"{name}.xmp", folder / f"{number}.jpg", *core]
        environment = {**os.environ, "HOME": str(folder / "home"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run([*command, "--conf", "write_sidecar_files=never"], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()

    with closing(sqlite3.connect(folder / "library.db")) as tables:
        tables.execute("ATTACH ? AS data", [str(folder / "data.db")])
        rows = tables.execute(
            "SELECT film_rolls.folder || '/' || filename, tags.name FROM tagged_images "
            "JOIN data.tags ON tags.id = tagid JOIN images ON images.id = imgid "
            "JOIN film_rolls ON film_rolls.id = film_id "
            "WHERE tags.name NOT LIKE 'darktable|%'"
        ).fetchall()
    assert sorted(rows) == sorted(
        (str(photos / name), "|".join(path)) for name, paths in PATHS.items() for path in paths
    )


@pytest.mark.parametrize("program", ["digikam", "darktable"])
def test_exiv2_reads_the_paths_that_were_written(program, tmp_path):
    if shutil.which("exiv2") is None:
        pytest.skip("wants exiv2 (Debian: exiv2)")
    photos = photos_for(program, tmp_path)
    for name, paths in PATHS.items():
        for key, separator in (("Xmp.digiKam.TagsList", "/"), ("Xmp.lr.hierarchicalSubject", "|")):
            command = ["exiv2", "-K", key, "-Pv", str(photos / f"{name}.xmp")]
            printed = subprocess.run(command, capture_output=True, check=True).stdout.decode().strip()
            assert printed.split(", ") == [separator.join(path) for path in paths]
