"""`visterm connect` and `visterm sync` against a server of Immich's API, once, and as a service."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import datetime

import pytest
from starlette.testclient import TestClient

from command_line import visterm
from fakes import served
from fakes.immich import KEY, FakeImmich
from remembered_library import N_PHOTOS, N_TAGGED, colour_of, picture, tags_of
from visterm import Catalogue
from visterm.cli.connect import RoundPrinter, explain_chances, lines_of_tags, serve_rounds
from visterm.connectors import keys
from visterm.connectors.push import PushResult, TagChange
from visterm.connectors.sync import SyncRound
from visterm.core import web_client
from visterm.core.errors import ServiceError, UserError
from visterm.core.web_client import Patience, ask
from visterm.web.app import create_app

FIT = "--encoder visterms --encoder-set codebook=12 --encoder-set scales=(1.0,) --encoder-set max_side=32 --model ridge"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A server, and a folder with a key and a catalogue that was connected by the command line."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "key").write_text(KEY)
    (folder / "key").chmod(0o600)
    with pytest.MonkeyPatch.context() as patch, FakeImmich() as fake:
        patch.setenv(keys.ALLOWED_VARIABLE, str(folder / "connected.json"))
        fake.virtual(patch)
        for number in range(N_PHOTOS):
            tags = tuple(tags_of(number)) if number < N_TAGGED else ()
            fake.add_photo(f"p{number:03d}.jpg", picture(colour_of(number), number), tags)
        code, out, err = visterm(f"connect immich {fake.url}/ --key-file key -o catalogue {FIT}", folder)
        assert (code, out) == (0, ""), err
        assert f"Indexed {N_PHOTOS} photos" in err
        assert f"Immich 3.1.0 at {fake.url}" in err
        yield fake, folder


@pytest.fixture
def calm(library):
    """The server as it is without tags of visterm."""
    fake, folder = library
    yield library
    assert visterm("sync catalogue --undo", folder)[0] == 0
    fake.finish_jobs()
    fake.advance(600.0)
    fake.photos = {photo: each for photo, each in fake.photos.items() if not each.name.startswith("new")}


def ours(fake):
    return {(name, tag) for name, tags in fake.state().items() for tag in tags if tag.startswith("visterm/")}


def test_a_dry_run_a_round_and_undo(calm):
    fake, folder = calm
    before = fake.state()
    code, out, err = visterm("sync catalogue --precision 0.6 --dry-run --json", folder)
    assert code == 0, err
    *changes, would = map(json.loads, out.splitlines())
    assert fake.state() == before
    assert {change["change"] for change in changes} == {"written"}
    assert (would["dry_run"], would["written"], would["taken"]) == (True, len(changes), 0)
    *wrote, done = map(json.loads, visterm("sync catalogue --precision 0.6 --json", folder)[1].splitlines())
    assert {(change["name"], change["tag"]) for change in changes} == ours(fake)
    assert sorted(wrote, key=str) == sorted(changes, key=str)
    assert done == {**would, "dry_run": False}
    code, _, err = visterm("sync catalogue", folder)
    assert (code, err.endswith("Done: nothing new.")) == (0, True)
    undone = [visterm(f"sync catalogue --undo --json {dry}", folder)[1].splitlines() for dry in ("--dry-run", "")]
    assert undone[0][:-1] == undone[1][:-1]
    for lines, dry_run in zip(undone, (True, False), strict=True):
        counts = {"dry_run": dry_run, "written": 0, "taken": len(changes), "refused": 0, "waiting": 0}
        assert json.loads(lines[-1]) == counts
        assert {tuple(json.loads(line)) for line in lines[:-1]} == {("photo", "name", "tag", "change")}
    assert fake.state() == before


def test_hits_have_the_photo_s_name_and_address_in_the_other_program(calm, tmp_path):
    fake, folder = calm
    photo, name = next((photo, each.name) for photo, each in fake.photos.items() if each.name == "p004.jpg")
    address = f"{fake.url}/photos/{photo}"
    for words in ("red", "--tag red"):
        lines = visterm(f"search catalogue {words} -k 0", folder)[1].splitlines()
        assert any(f"{name}  " in line and line.endswith(f"  {address}") for line in lines), lines
        hits = [json.loads(line) for line in visterm(f"search catalogue {words} -k 0 --json", folder)[1].splitlines()]
        assert [hit["image"] for hit in hits if hit["link"] == address] == [name]
    image_id = next(hit["id"] for hit in hits if hit["link"] == address)
    shutil.copytree(folder / "catalogue", tmp_path / "catalogue")  # a service leaves files of the database open
    with TestClient(create_app(tmp_path / "catalogue"), base_url="http://127.0.0.1:8080") as client:
        found = client.get("/api/v1/search?tag=red&limit=200").json()["hits"]
        assert [hit["image"] for hit in found if hit["link"] == address] == [name]
        assert client.get(f"/api/v1/images/{image_id}").json()["image"]["link"] == address
        page = client.get(f"/image/{image_id}").text
    assert f'<a href="{address}">' in page
    assert name in page
    assert "previews" not in page


def test_a_dry_run_lists_a_line_per_tag_and_each_photo_as_json(calm):
    fake, folder = calm
    code, out, err = visterm("sync catalogue --precision 0.55 --dry-run", folder)
    assert code == 0, err
    assert "Immich gets predictions as tags under visterm/, with precision 0.55 (not remembered by a dry run)." in err
    lines = out.splitlines()
    assert all(re.fullmatch(r"\+ visterm/\w+: \d+ photos?, >?\d+%( to \d+%)?", line) for line in lines)
    *pairs, _ = visterm("sync catalogue --precision 0.55 --dry-run --json", folder)[1].splitlines()
    assert all(re.fullmatch(r"p\d{3}\.jpg", json.loads(line)["name"]) for line in pairs)
    counts = [int(line.split(": ")[1].split()[0]) for line in lines]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == len(pairs) > len(lines)
    assert re.search(
        rf"Would write {len(pairs)} tags, about \d+ right, and take back 0 in Immich; nothing was changed there", err
    )
    assert visterm("sync catalogue --precision 0.55 --json", folder)[1].splitlines()[:-1] == pairs
    assert len(ours(fake)) == len(pairs)
    taken = visterm("sync catalogue --undo --dry-run", folder)[1].splitlines()
    assert [line.replace("-", "+", 1) for line in taken] == [line.partition(",")[0] for line in lines]


def test_one_line_per_tag_has_its_surest_and_its_least_sure_photo():
    found = [
        TagChange("1", "a", "visterm/cat", 0.97),
        TagChange("2", "b", "visterm/cat", 0.41),
        TagChange("3", "c", "visterm/dog"),
    ]
    assert lines_of_tags([*found, TagChange("4", "d", "visterm/sea", 0.8)]) == [
        "+ visterm/cat: 2 photos, 97% to 41%", "- visterm/dog: 1 photo", "+ visterm/sea: 1 photo, 80%"
    ]  # fmt: skip


def test_a_single_photo_that_is_less_sure_than_the_precision_is_explained(capsys):
    explain_chances([TagChange("1", "a", "visterm/cat", 0.97), TagChange("2", "b", "visterm/cat", 0.41)], 0.5)
    assert "of all photos with a tag" in (said := capsys.readouterr().err)
    assert "a single photo may be less sure, here down to 41%." in said
    explain_chances([TagChange("1", "a", "visterm/cat", 0.97), TagChange("3", "c", "visterm/dog")], 0.5)
    assert capsys.readouterr().err == ""


def test_settings_are_remembered_and_said_and_a_parent_ends_as_own(calm):
    fake, folder = calm
    _, _, err = visterm("sync catalogue --parent '' --precision 0.6 -k 1", folder)
    assert "Immich gets predictions as your own tags, with precision 0.6, at most 1 per photo, and in the next" in err
    assert ours(fake) == set()
    code, _, err = visterm("sync catalogue", folder)
    assert (code, "at most 1 per photo, as remembered from an earlier round." in err) == (0, True)
    assert visterm("sync catalogue --parent visterm", folder)[0] == 0
    assert max(Counter(name for name, _ in ours(fake)).values()) == 1
    n_before = len(ours(fake))
    assert visterm("sync catalogue -k 0", folder)[0] == 0
    assert len(ours(fake)) > n_before
    assert max(Counter(name for name, _ in ours(fake)).values()) > 1


def test_undo_says_that_the_next_round_would_write_again_and_it_does(calm):
    fake, folder = calm
    assert visterm("sync catalogue --precision 0.6", folder)[0] == 0
    wrote = ours(fake)
    code, _, err = visterm("sync catalogue --undo", folder)
    assert f"Took back {len(wrote)} tags. Its empty tags go in Immich's nightly job. The next visterm sync" in err
    assert (code, ours(fake)) == (0, set())
    assert visterm("sync catalogue", folder)[0] == 0
    assert ours(fake) == wrote


def test_a_server_that_is_waited_for_is_named_in_one_line_and_not_at_once(monkeypatch):
    said = []
    for after in (60.0, 0.0):
        monkeypatch.setattr(web_client, "SECONDS_BEFORE_REPORT", after)
        for _ in range(2):
            with pytest.raises(ServiceError):
                ask("http://127.0.0.1:1/a/secret", patience=Patience(wait=0.0, retries=2, say=said.append))
    assert said == [
        "Waiting for http://127.0.0.1:1 ([Errno 111] Connection refused): 2 more tries, the next one in 0 s."
    ]
    with FakeImmich() as fake:
        fake.fail(served.status(503), times=2)
        ask(fake.url, patience=Patience(wait=0.0, say=said.append))
        fake.fail(served.status(503))
        ask(fake.url, patience=Patience(wait=0.0, retries=1, say=said.append))
    waits = f"Waiting for {fake.url} (it answers 503):"
    assert said[1:] == [f"{waits} 5 more tries, the next one in 0 s.", f"{waits} one more try, the next one in 0 s."]


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


@pytest.mark.parametrize("where", ["--to xmp", "--to txt --dry-run", "--to immich"])
def test_tags_are_not_written_beside_previews(library, where):
    _, folder = library

    def files():  # a service leaves files of the database open, which the next process that opens it takes away
        return sorted(path for path in (folder / "catalogue").rglob("*") if ".sqlite-" not in path.name)

    before = files()
    code, _, err = visterm(f"export catalogue {where}", folder)
    assert code == 2
    assert re.search(r"are in Immich at http://.*visterm sync catalogue", err)
    assert files() == before
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
        ("sync catalogue --every 1h --undo", "--dry-run and --undo run once"),
        ("sync catalogue --parent a//b", "--parent 'a//b' has an empty part; expected a tag such as visterm."),
        ("sync catalogue --precision 2", "--precision"),
        ("connect flickr http://nas -o other --key-file key", "PROGRAM is 'flickr'; expected immich or photoprism."),
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


def test_a_service_says_when_the_next_round_is_and_prints_each_as_one_object(capsys):
    photo = TagChange("1", "a.jpg", "visterm/cat", 0.97)
    first = SyncRound(pushed=PushResult(written=1, changes=[photo]))
    rounds = [first, ServiceError("http://nas gives no answer."), SyncRound()]

    def work():
        if not rounds:
            raise KeyboardInterrupt
        found = rounds.pop(0)
        if isinstance(found, ServiceError):
            raise found
        return found

    serve_rounds(work, 0.01, RoundPrinter("Immich", json=True, dry_run=False))
    out, err = capsys.readouterr()
    pair, first, second = map(json.loads, out.splitlines())
    assert pair == photo.as_dict() == {
        "photo": "1", "name": "a.jpg", "tag": "visterm/cat", "change": "written", "confidence": 0.97
    }  # fmt: skip
    assert (first["written"], second["written"], first["dry_run"]) == (1, 0, False)
    at, then = (datetime.fromisoformat(first[name]) for name in ("at", "next"))
    assert None not in (at.utcoffset(), then.utcoffset())
    lines = err.splitlines()
    assert re.search(r"\d\d:\d\d \S+ 1 tag written; next round at (\S+ )?\d\d:\d\d \S+$", lines[0])
    assert re.search(r"\d\d:\d\d \S+ http://nas gives no answer\. Next try at (\S+ )?\d\d:\d\d \S+\.$", lines[1])
    assert lines[-1] == "Stopped; nothing half-written is left behind."


def test_as_a_service_it_goes_on_after_the_server_s_death_and_ends_on_sigterm(calm):
    fake, folder = calm
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TZ": "UTC"}
    fake.per_request = 3.0  # as the service waits by its own clock
    command = [sys.executable, "-m", "visterm", "sync", "catalogue", "--every", "1s", "--precision", "0.6"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment) as service:
        ends = threading.Timer(300, service.kill)
        ends.start()
        lines = iter(service.stderr)
        assert "Immich gets predictions as tags under visterm/, with precision 0.6" in next(lines)
        clock = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC"
        assert re.fullmatch(rf"{clock} \d+ tags written; next round at {clock}\n", next(lines))
        fake.fail(lambda handler, work: handler.send(work()._replace(content=b"<html>", kind="text/html")), times=1)
        assert any(re.search(f"Next try at {clock}", line) for line in lines)
        photo = fake.add_photo("new.jpg", picture("red", 4711))
        fake.photos[photo].updated = fake.now()
        assert any("1 photo new" in line for line in lines)
        service.send_signal(signal.SIGTERM)
        assert any("Stopped" in line for line in lines)
        assert service.wait() == 0
        ends.cancel()
