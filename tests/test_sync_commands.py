"""`visterm connect` and `visterm sync` against a server of Immich's API, once, and as a service."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from command_line import visterm
from fakes.immich import KEY, FakeImmich
from remembered_library import N_PHOTOS, N_TAGGED, colour_of, picture, tags_of
from visterm import Catalogue
from visterm.connectors import keys
from visterm.core.errors import UserError

FIT = "--encoder visterms --encoder-set codebook=12 --encoder-set scales=(1.0,) --encoder-set max_side=32 --model ridge"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A server, and a folder with a key and a catalogue that was connected by the command line."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "key").write_text(KEY)
    (folder / "key").chmod(0o600)
    with pytest.MonkeyPatch.context() as patch, FakeImmich() as fake:
        patch.setenv(keys.VARIABLE, str(folder / "connected.json"))
        for number in range(N_PHOTOS):
            tags = tuple(tags_of(number)) if number < N_TAGGED else ()
            fake.add_photo(f"p{number:03d}.jpg", picture(colour_of(number), number), tags)
        code, out, err = visterm(
            f"connect immich {fake.url}/ --key-file key -o catalogue {FIT} --jobs 1 --json", folder
        )
        assert code == 0, err
        assert json.loads(out)["images"] == N_PHOTOS
        assert f"Immich 3.1.0 at {fake.url}" in err
        yield fake, folder


@pytest.fixture
def calm(library):
    """The server as it is without tags of visterm."""
    fake, folder = library
    yield library
    assert visterm("sync catalogue --undo", folder)[0] == 0
    fake.photos = {photo: each for photo, each in fake.photos.items() if not each.name.startswith("new")}


def ours(fake):
    return {(name, tag) for name, tags in fake.state().items() for tag in tags if tag.startswith("visterm/")}


def test_a_dry_run_a_round_and_undo(calm):
    fake, folder = calm
    before = fake.state()
    code, out, err = visterm("sync catalogue --precision 0.6 --dry-run --json", folder)
    assert code == 0, err
    *changes, done = map(json.loads, out.splitlines())
    assert fake.state() == before
    assert done["totals"] == {"add": len(changes), "take": 0}
    assert visterm("sync catalogue --precision 0.6", folder)[0] == 0
    assert {(change["name"], change["add"]) for change in changes} == ours(fake)
    code, _, err = visterm("sync catalogue", folder)
    assert (code, err.endswith("Done: nothing new.")) == (0, True)
    code, out, err = visterm("sync catalogue --undo --json", folder)
    assert json.loads(out) == {"written": 0, "taken": len(changes), "refused": 0}
    assert fake.state() == before


def test_the_key_is_in_no_file_of_the_catalogue_and_in_no_message(library):
    _, folder = library
    for path in folder.rglob("*"):
        assert not path.is_file() or path.name == "key" or KEY.encode() not in path.read_bytes()
    _, out, err = visterm("info catalogue", folder)
    assert "key file: " in out
    assert KEY not in out + err


def test_info_says_where_tags_came_from_and_what_the_next_round_writes(calm):
    fake, folder = calm
    assert visterm("sync catalogue --precision 0.6", folder)[0] == 0
    assert visterm("sync catalogue", folder)[0] == 0
    code, out, err = visterm("info catalogue", folder)
    assert code == 0, err
    n_tags = sum(len(tags) for tags in fake.state().values()) - len(ours(fake))
    assert f"tags from Immich: {n_tags}\n" in out
    assert "run made by: visterm connect\n" in out
    assert "next sync writes: predictions as tags under visterm/, with precision 0.6\n" in out
    assert re.search(r"^  \S+ \S+ sync: nothing new$", out, re.MULTILINE)
    assert not re.search(r"tags from files|not saved|folder: ,|: $", out, re.MULTILINE)
    facts = json.loads(visterm("info catalogue --json", folder)[1])
    assert facts["next sync writes"] == "predictions as tags under visterm/, with precision 0.6"


def test_photos_of_a_folder_are_not_mixed_into_it(library):
    _, folder = library
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "mine.jpg").write_bytes(picture("red", 1))
    known = Catalogue.load(folder / "catalogue").stored
    run = str(known.run_folder)
    message = r"connected to Immich at http://.*visterm sync CATALOGUE"
    for line in ("index catalogue own", f"index {run} own -o catalogue", "watch catalogue", "watch catalogue own"):
        code, _, err = visterm(line, folder)
        assert code == 2
        assert re.search(message, err)
    opened = Catalogue.load(folder / "catalogue")
    for put in (opened.index, opened.add):
        with pytest.raises(UserError, match=message):
            put(folder / "own")
    assert len(opened) == N_PHOTOS
    assert not [job for job in opened.stored.jobs.latest(50) if job.state == "failed"]


@pytest.mark.parametrize("where", ["--to xmp", "--to txt --dry-run", "--for immich"])
def test_tags_are_not_written_beside_previews(library, where):
    _, folder = library
    before = sorted((folder / "catalogue").rglob("*"))
    code, _, err = visterm(f"export catalogue {where}", folder)
    assert code == 2
    assert re.search(r"are in Immich at http://.*visterm sync catalogue", err)
    assert sorted((folder / "catalogue").rglob("*")) == before
    code, _, err = visterm(f"export catalogue {where} --undo", folder)
    assert code == 0, err
    assert sorted((folder / "catalogue").rglob("*")) == before
    code, _, err = visterm("export catalogue --to csv -o tags.csv", folder)
    assert (code, len((folder / "tags.csv").read_text().splitlines())) == (0, N_PHOTOS + 1), err


def test_a_server_that_is_away_and_a_key_that_lost_its_rights_are_said_in_a_line(library):
    fake, folder = library
    before, fake.keys[KEY] = fake.keys[KEY], ("asset.read",)
    try:
        code, _, err = visterm("sync catalogue", folder)
    finally:
        fake.keys[KEY] = before
    assert code == 2
    assert re.search("permission|tag.read", err)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sync catalogue --every 1h --undo", "--dry-run and --undo are done once"),
        ("sync catalogue --parent a --as-own", "Leave one out"),
        ("sync catalogue --precision 2", "--precision"),
        (
            "connect flickr http://nas -o other --key-file key",
            "no connector to 'flickr'; expected immich or photoprism",
        ),
        ("sync nowhere", "no catalogue at nowhere that is connected to a library. Make a catalogue of one with:"),
        ("sync key", "no catalogue at key that is connected to a library. Make a catalogue of one with:"),
        ("connect immich nas -o other --key-file key", "expected the address of a server"),
        ("connect immich http://nas:1 -o other --key-file none", "cannot be read"),
    ],
    ids=["every and undo", "parent and own", "precision", "program", "no catalogue", "a file", "address", "key file"],
)
def test_what_cannot_be_asked_for_is_refused(library, line, message):
    code, _, err = visterm(line, library[1])
    assert code == 2
    assert message in err


def test_as_a_service_it_goes_on_after_the_server_s_death_and_ends_on_sigterm(calm):
    fake, folder = calm
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "visterm", "sync", "catalogue", "--every", "1s", "--precision", "0.6"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment) as service:
        ends = threading.Timer(300, service.kill)
        ends.start()
        lines = iter(service.stderr)
        assert "tags written" in next(lines)
        fake.fail(lambda handler, work: handler.send(work()._replace(content=b"<html>", kind="text/html")), times=1)
        assert any("Next try in" in line for line in lines)
        photo = fake.add_photo("new.jpg", picture("red", 4711))
        fake.photos[photo].updated = fake.now()
        assert any("1 photo new" in line for line in lines)
        service.send_signal(signal.SIGTERM)
        assert any("Stopped" in line for line in lines)
        assert service.wait() == 0
        ends.cancel()
