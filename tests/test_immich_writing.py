"""Tags in Immich, whose jobs replace a photo's tags some seconds after each request: nothing lost, nothing left."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta

import pytest

import immich_people
from command_line import visterm
from fakes.immich import KEY, FakeImmich
from remembered_library import LOW, N_TAGGED, REQUEST, colour_of, picture, tags_of
from visterm import Catalogue
from visterm.connectors import keys, passes
from visterm.connectors.connect import connect
from visterm.connectors.contract import PhotoTag
from visterm.connectors.immich import ImmichLibrary
from visterm.connectors.sync import sync, undo
from visterm.core.web_client import Patience

LIBRARY = "00000000-0000-4000-8000-000000000001"
FOUR = ("visterm/a", "visterm/b", "visterm/c", "visterm/d")
N_PHOTOS = 140
DAY = 86_400.0


@pytest.fixture(params=[(3, 1, 0), (3, 2, 1)], ids=["3.1", "3.2"])
def fake(request):
    with FakeImmich(request.param) as made:
        yield made


def client(fake):
    return ImmichLibrary(fake.url, KEY, Patience(timeout=600, retries=0, pause=fake.advance))


def ours(fake):
    return {(photo, tag) for photo in fake.photos for tag in fake.tags_of(photo) if tag.startswith("visterm/")}


def pairs_of(photos):
    return [PhotoTag(photo, tag) for photo in photos for tag in FOUR]


def test_a_request_for_each_tag_loses_tags_and_one_for_all_keeps_them(fake):
    photos = [fake.add_photo(f"{i}.jpg") for i in range(100)]
    library = client(fake)
    for tag in FOUR:
        library.add([PhotoTag(photo, tag) for photo in photos])
    fake.finish_jobs()
    assert len(ours(fake)) < 400
    for tag in FOUR:
        library.remove([PhotoTag(photo, tag) for photo in photos])
    fake.finish_jobs()
    assert ours(fake) != set()


def test_passes_write_all_tags_and_take_all_of_them_back(fake):
    photos = [fake.add_photo(f"{i}.jpg") for i in range(100)]
    library, pairs = client(fake), pairs_of(photos)
    before = fake.asked("PUT /api/tags/assets")
    outcome = passes.write(library, pairs, touched={})
    assert fake.asked("PUT /api/tags/assets") - before == 1, "photos of the same tags go together"
    fake.finish_jobs()
    assert outcome.existing == ours(fake) == {pair[:2] for pair in pairs}
    assert (outcome.unsent, outcome.unsettled, outcome.refused) == (set(), set(), {})
    outcome = passes.write(library, pairs, remove=True, touched=outcome.stamps)
    fake.finish_jobs()
    assert outcome.existing == ours(fake) == set()
    assert max(len(each["body"]["ids"]) for each in fake.traffic if each["method"] == "DELETE") == 100


def test_a_queue_that_is_paused_is_not_waited_for_and_the_next_round_goes_on(fake):
    photos = [fake.add_photo(f"{i}.jpg") for i in range(3)]
    library, pairs = client(fake), pairs_of(photos)
    fake.pause()
    began = fake.clock
    outcome = passes.write(library, pairs, touched={})
    assert outcome.stalled
    assert outcome.unsettled == {pair[:2] for pair in pairs}
    assert passes.STALL_SECONDS <= fake.clock - began < 1.2 * passes.STALL_SECONDS
    fake.resume()
    fake.finish_jobs()
    assert library.existing(pairs) == {pair[:2] for pair in pairs}


def test_a_photo_that_somebody_changed_lately_is_left_for_the_next_round(fake):
    mine, other = fake.add_photo("a.jpg"), fake.add_photo("b.jpg")
    library = client(fake)
    fake.person_tags(mine, "sky")
    fake.finish_jobs()
    outcome = passes.write(library, pairs_of([mine, other]), touched={})
    assert outcome.unsent == {(mine, tag) for tag in FOUR}
    assert {photo for photo, _ in ours(fake)} == {other}
    again = passes.write(library, [PhotoTag(other, "visterm/e")], touched=outcome.stamps)
    assert again.unsent == set(), "the last change was ours"
    fake.advance(301.0)
    assert passes.write(library, pairs_of([mine]), touched={}).unsent == set()


def test_a_photo_that_was_deleted_meanwhile_does_not_stop_the_round(fake):
    gone = "00000000-0000-4000-8000-000000000000"
    outcome = passes.write(client(fake), pairs_of([gone]), touched={})
    assert not outcome.stalled
    assert outcome.existing == set()


def test_a_tag_of_ours_and_one_under_it_are_told_apart(fake):
    kinds = {"upper": ("visterm/people",), "lower": ("visterm/people/boy",), "both": ("visterm/people",
             "visterm/people/boy"), "none": ()}  # fmt: skip
    photos = {fake.add_photo(f"{name}{i}.jpg", tags=tags): set(tags) for name, tags in kinds.items() for i in range(9)}
    tags = {photo.id: set(photo.tags) for page in client(fake).changes() for photo in page.photos}
    assert tags == photos


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server of a library, part of which lies in an external library, and a catalogue of it."""
    folder = tmp_path_factory.mktemp("writing")
    with FakeImmich() as fake:
        for number in range(N_PHOTOS):
            tags = tuple(tags_of(number)) if number < N_TAGGED else ()
            library = LIBRARY if number >= N_TAGGED + 10 else None
            fake.add_photo(f"p{number:03d}.jpg", picture(colour_of(number), number), tags, library=library)
        connect(folder / "catalogue", client(fake), key_file=None, run=None, request=REQUEST)[0].stored.close()
        yield folder, fake, fake.kept()


@pytest.fixture
def opened(served, tmp_path):
    """Both as they were made, with a client."""
    folder, fake, before = served
    fake.put_back(before)
    shutil.copytree(folder / "catalogue", tmp_path / "catalogue")
    catalogue = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    yield catalogue, fake, client(fake)
    catalogue.stored.close()


def rejections(catalogue):
    return catalogue.stored.database.value("SELECT count(*) FROM verdicts WHERE verdict = -1")


def test_a_library_whose_files_cannot_be_written_is_left_alone_and_tried_again_after_a_day(opened, monkeypatch):
    catalogue, fake, library = opened
    for photo in fake.photos.values():
        photo.read_only = photo.library is not None
    done = sync(catalogue, library, LOW)
    external = {photo.id for photo in fake.photos.values() if photo.library}
    assert {photo for _, photo, _ in fake.writes if photo in external} == {min(
        {photo for _, photo, _ in fake.writes if photo in external})}, "one photo is tried first"  # fmt: skip
    assert any("keeps no tags on 10 photos (their files can't be written): left alone" in r for r in done.remarks)
    assert done.pushed.refused == 0
    n_writes = len(fake.writes)
    fake.advance(600.0)
    assert sync(catalogue, library, LOW).pushed.unwritable_photos == 10
    assert (len(fake.writes), rejections(catalogue)) == (n_writes, 0)
    assert not {photo for photo, _ in ours(fake)} & external
    for photo in fake.photos.values():
        photo.read_only = False
    monkeypatch.setattr("visterm.connectors.push.RETRY_AFTER", timedelta(days=-1))
    assert sync(catalogue, library, LOW).pushed.unwritable_photos == 0
    assert {photo for photo, _ in ours(fake)} > external


def test_what_the_server_loses_is_written_again_and_is_no_rejection(opened):
    catalogue, fake, library = opened
    sync(catalogue, library, LOW)
    fake.finish_jobs()
    photo, tag = min(ours(fake))
    connected = catalogue.stored.connected
    pair = next(pair for pair in connected.pairs("written") if pair.remote_key == (photo, tag))
    connected.set_state("written", [pair])  # as after a kill: it was read once
    fake.advance(600.0)
    fake.person_untags(photo, tag)
    fake.finish_jobs()
    fake.advance(600.0)
    done = sync(catalogue, library, LOW)
    assert (done.pulled.taken_off, done.pushed.written, rejections(catalogue)) == (0, 1, 0)
    fake.finish_jobs()
    assert (photo, tag) in ours(fake)
    fake.advance(600.0)
    fake.person_untags(photo, tag)
    fake.finish_jobs()
    fake.advance(600.0)
    done = sync(catalogue, library, LOW)
    assert (done.pulled.taken_off, rejections(catalogue)) == (1, 1)
    assert (photo, tag) not in ours(fake)


def test_what_was_taken_back_and_is_there_again_is_taken_once_more(opened):
    catalogue, fake, library = opened
    sync(catalogue, library, LOW)
    written = ours(fake)
    undo(catalogue, library)
    fake.finish_jobs()
    photo, tag = min(written)
    fake.person_tags(photo, tag)  # as the server does where two requests cross
    fake.finish_jobs()
    fake.advance(600.0)
    assert undo(catalogue, library, dry_run=True).taken == 1
    done = undo(catalogue, library)
    assert (done.taken, done.refused, done.waiting, ours(fake)) == (1, 0, 0, set())


def test_undo_says_what_it_had_to_leave_and_why(opened):
    catalogue, fake, library = opened
    sync(catalogue, library, LOW)
    fake.finish_jobs()
    written = ours(fake)
    for photo in fake.photos.values():
        photo.read_only = photo.library is not None
    kept = {(photo, tag) for photo, tag in written if fake.photos[photo].library}
    done = undo(catalogue, library)
    assert (done.taken, done.refused) == (len(written) - len(kept), len(kept))
    assert done.reasons == {"it came back each time that it was taken": len(kept)}
    fake.pause()
    for photo in fake.photos.values():
        photo.read_only = False
    done = undo(catalogue, library)
    assert (done.taken, done.waiting) == (0, len(kept))
    fake.resume()
    fake.finish_jobs()
    undo(catalogue, library)
    fake.finish_jobs()
    assert ours(fake) == set()


def test_a_photo_without_a_preview_is_named_and_does_not_make_each_round_list_the_library(opened):
    catalogue, fake, library = opened
    fake.add_photo("broken.jpg", preview=None, age=600.0)
    for photo in fake.photos.values():
        photo.updated = fake.now() if photo.name == "broken.jpg" else photo.updated
    for _ in range(2):
        done = sync(catalogue, library, LOW)
        assert [item.reason for item in done.pulled.skipped] == ["Immich could not make a preview of it"]
        assert done.pulled.skipped[0].image.startswith("broken.jpg (")
    assert library.count() == catalogue.stored.connected.count()


def test_photos_of_a_partner_who_shares_later_are_read_at_once(opened):
    catalogue, fake, library = opened
    sync(catalogue, library, LOW)
    fake.add_photo("theirs.jpg", picture("red", 5), partner=True, age=30 * DAY)
    fake.advance(600.0)
    assert sync(catalogue, library, LOW).pulled.new == 1


def test_photos_that_came_just_now_are_named_as_the_reason(opened):
    catalogue, fake, library = opened
    sync(catalogue, library, LOW)
    undo(catalogue, library)
    for photo in fake.photos.values():
        photo.created = photo.updated = fake.now()
    remarks = sync(catalogue, library, LOW, dry_run=True).remarks
    assert any("photos came in the last five minutes" in remark for remark in remarks)
    assert not any("lower precision" in remark for remark in remarks)


def test_a_server_is_tried_by_a_tag_on_one_photo_of_each_library(opened, tmp_path, monkeypatch):
    _, fake, _ = opened
    fake.virtual(monkeypatch)
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    before = fake.state()
    for read_only in (False, True):
        for photo in fake.photos.values():
            photo.read_only = read_only and photo.library is not None
        code, out, err = visterm(f"connect immich {fake.url} --key-file key --check", tmp_path)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert len(lines) <= 10
        assert lines[0] == f"Immich 3.1.0 at {fake.url}: the key has all permissions."
        assert sum("the tag visterm/check is kept" in line for line in lines) == 2 - read_only
        assert sum("the tag was taken back" in line for line in lines) == 2
        assert fake.state() == before
        fake.advance(600.0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["key"]
    fake.pause()
    code, out, _ = visterm(f"connect immich {fake.url} --key-file key --check", tmp_path)
    assert (code, "Is its queue paused?" in out) == (4, True)


def test_what_is_wrong_is_said_before_previews_are_fetched(opened, tmp_path, monkeypatch):
    _, fake, _ = opened
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    before = fake.asked("GET .*/thumbnail")
    for more, message in (("--words none.txt", "none.txt"), ("", "pass -o CATALOGUE")):
        out = "-o other" if more else ""
        code, _, err = visterm(f"connect immich {fake.url} --key-file key {out} {more}", tmp_path)
        assert (code, message in err) == (2, True), err
    code, _, err = visterm(f"connect immich {fake.url}/elsewhere --key-file key -o other", tmp_path)
    assert (code, "Check the address" in err) == (2, True), err
    assert fake.asked("GET .*/thumbnail") == before


def test_a_renewed_key_is_given_by_its_file_alone(opened, tmp_path, monkeypatch):
    catalogue, fake, _ = opened
    fake.virtual(monkeypatch)
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    for name in ("old", "new"):
        (tmp_path / name).write_text(KEY)
        (tmp_path / name).chmod(0o600)
    stored = catalogue.stored.connected
    stored.put(stored.get()._replace(key_file=str(tmp_path / "old")))
    code, _, err = visterm("sync catalogue --dry-run --key-file new", tmp_path)
    assert (code, "Nobody has said on this computer" in err) == (2, True)
    keys.allow(fake.url, str(tmp_path / "old"))
    assert visterm("sync catalogue --dry-run --key-file new --json", tmp_path)[0] == 0
    code, out, err = visterm("sync catalogue --dry-run --json", tmp_path)
    assert (code, json.loads(out.splitlines()[-1])["dry_run"]) == (0, True), err
    assert str(tmp_path / "new") in visterm("info catalogue", tmp_path)[1]
    (tmp_path / "bad").write_text("not-the-key-of-this-server")
    (tmp_path / "bad").chmod(0o600)
    for slip in ("--key-file bad", "--key-file none", "--url http://127.0.0.1:9 --key-file none"):
        assert visterm(f"sync catalogue --dry-run {slip}", tmp_path)[0] == 2
    assert str(tmp_path / "new") in visterm("info catalogue", tmp_path)[1], "a slip leaves what was there"
    assert visterm("sync catalogue --dry-run", tmp_path)[0] == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_person_who_tags_and_takes_off_and_rounds_that_stop(seeds, seed):
    seeds.seed(seed)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, FakeImmich() as fake:
        immich_people.without_learning(patch)
        yield immich_people.Seeds(tmp_path_factory.mktemp("seeds"), fake)
