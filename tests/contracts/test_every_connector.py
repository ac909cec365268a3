"""What every connector promises, tried on a server of its program that does all that servers do when they fail.

A program joins by a fake that derives from `fakes.served.FakeServer` and has these beside: `kind`, `key`, `guarded` and
`forbid` (permissions), `ours` and `scripts` (tags that can be written, and tags in all scripts), `pictures` (requests
for previews), `add_photo`, `person_tags`, `person_untags`, `trash`, `edit` and `tags_of`.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest

from fakes import served
from fakes.immich import FakeImmich
from fakes.photoprism import FakePhotoPrism
from visterm.connectors import immich_search, json_answers, photoprism
from visterm.connectors.contract import KINDS, PhotoTag, connector_class, open_library
from visterm.core.errors import DataError, ServiceError, UserError, VistermError
from visterm.core.vocabulary import tag_key
from visterm.core.web_client import MAX_EXCERPT_LENGTH, Patience
from visterm.store.connected import PROGRAMS


def immich_3_1():
    return FakeImmich((3, 1, 0))


def immich_3_2():
    return FakeImmich((3, 2, 1))


def photoprism_2024():
    return FakePhotoPrism(new=False)


FAKES = {"immich-3.1": immich_3_1, "immich-3.2": immich_3_2, "photoprism": FakePhotoPrism,
         "photoprism-2024": photoprism_2024}  # fmt: skip
once_a_program = pytest.mark.parametrize("fake", ["immich-3.2", "photoprism"], indirect=True)
"""Of what is done alike for all versions: requests that fail, answers that are none."""
MANY = 115  # Photos of some pages
FEW = 20
PASSING = {
    "500": served.status(500),
    "502": served.status(502, content=b"<html>Bad Gateway</html>"),
    "503": served.status(503, retry_after=0),
    "429": served.status(429),
    "reset": served.reset,
    "lost": served.lost,
    "cut": served.cut,
}


@pytest.fixture
def small_pages(monkeypatch):
    """Pages of a twentieth of what they are, so that `MANY` photos fill some of them."""
    monkeypatch.setattr(immich_search, "PAGE_SIZE", immich_search.PAGE_SIZE // 20)
    for name in ("SEARCH_PAGE_SIZE", "PAGE_SIZE"):
        monkeypatch.setattr(photoprism, name, getattr(photoprism, name) // 20)


@pytest.fixture(params=FAKES)
def fake(request, small_pages):
    with FAKES[request.param]() as made:
        made.another = FAKES[request.param]
        yield made


def connected(fake, key=None, *, address=None, timeout=600.0, retries=4, wait=0.01):
    return connector_class(fake.kind)(address or fake.url, key or fake.key, Patience(timeout, retries, wait))


def filled(fake, n=60):
    """Add photos with tags, taken a second apart, and return their ids."""
    return [fake.add_photo(f"{i}.jpg", tags=("sky", "tree")[: i % 3], taken=1e9 + i) for i in range(n)]


def read(library, since=""):
    """Return the photos of all pages by id, and the last mark."""
    photos, mark = {}, since
    for page in library.changes(since):
        photos |= {photo.id: photo for photo in page.photos}
        mark = page.mark
    return photos, mark


def held(fake, photos):
    return {photo: fake.tags_of(photo) for photo in photos}


def shown(photos):
    return {photo.id: {*photo.tags, *photo.guessed} for photo in photos.values()}


def everything(library, fake, photos):
    """Use all of the contract, and return what came of it."""
    pairs = [PhotoTag(photo, tag) for photo in photos[:8] for tag in fake.ours]
    changed, mark = read(library)
    return [
        library.check(),
        library.count(),
        sorted(id for page in library.ids() for id in page),
        shown(changed),
        library.preview(photos[0]),
        library.add(pairs),
        library.existing(pairs),
        library.remove(pairs[:5]),
        library.existing(pairs),
        held(fake, photos),
        set(shown(read(library, mark)[0])) >= set(photos[:8]),
    ]


def test_is_made_from_the_table(fake):
    made = open_library(fake.kind, fake.url + "/", fake.key)
    assert fake.kind in KINDS
    assert made.kind == fake.kind
    assert made.address == fake.url
    assert made.check().startswith(made.title)
    assert made.key_variable.isupper()
    with pytest.raises(UserError, match="expected the address of a server"):
        open_library(fake.kind, "file:///etc/passwd", fake.key)


def test_photos_and_tags_come_page_by_page(fake):
    photos = filled(fake, MANY)
    library = connected(fake)
    pages = list(library.changes())
    assert len(pages) > 2
    assert max(len(page.photos) for page in pages) <= 50
    found = {photo.id: photo for page in pages for photo in page.photos}
    assert shown(found) == held(fake, photos)
    assert [found[photo].name for photo in photos] == [f"{i}.jpg" for i in range(MANY)]
    listed = [id for page in library.ids() for id in page]
    assert sorted(listed) == sorted(photos)
    assert library.count() == MANY


def test_a_reader_goes_on_by_any_mark(fake):
    photos = filled(fake, MANY)
    read_so_far = set()
    for page in connected(fake).changes():
        read_so_far |= {photo.id for photo in page.photos}
        rest, _ = read(connected(fake), page.mark)
        assert read_so_far | set(rest) == set(photos)


def test_many_photos_of_one_time(fake):
    photos = [fake.add_photo(f"{i}.jpg", taken=1e9) for i in range(105)]
    read_so_far = set()
    for page in connected(fake).changes():
        read_so_far |= {photo.id for photo in page.photos}
        assert read_so_far | set(read(connected(fake), page.mark)[0]) == set(photos)


@pytest.mark.parametrize("offset", [-10 * 365 * 86_400, -3600, 0, 3600, 365 * 86_400])
def test_changes_since_a_mark_by_the_servers_clock(fake, offset):
    fake.offset = offset
    photos = filled(fake)
    library = connected(fake)
    before, mark = read(library)
    assert shown(before) == held(fake, photos)
    assert shown(read(library, mark)[0]) == {}
    fake.person_tags(photos[0], "boat")
    fake.person_untags(photos[1], "sky")
    fake.finish_jobs()
    fake.edit(photos[2], b"\xff\xd8 another picture")
    new = fake.add_photo("new.jpg", tags=("sky",), age=1)
    after, mark = read(library, mark)
    assert shown(after) == held(fake, [*photos[:3], new])
    assert [after[photo].version == before[photo].version for photo in photos[:3]] == [True, True, False]
    assert set(read(library, mark)[0]) <= set(after), "only what changed just now may come again"


def before_each_request(fake, action):
    """Let people do something before each answer."""

    def fault(handler, work):
        action()
        handler.send(work())

    fake.fail(fault, times=10_000)


def test_what_changes_while_pages_are_read_comes_at_the_latest_next_time(fake):
    photos = filled(fake, MANY)
    rng = random.Random(1)

    def people_tag():
        for photo in rng.sample(photos, 5):
            fake.person_untags(photo, "sky") if rng.random() < 0.5 else fake.person_tags(photo, "boat")

    before_each_request(fake, people_tag)
    library = connected(fake)
    found, mark = read(library)
    fake.forget_faults()
    fake.finish_jobs()
    found |= read(library, mark)[0]
    assert shown(found) == held(fake, photos)


def test_deleted_photos_hide_no_others(fake):
    photos = filled(fake, MANY)
    gone = iter(photos[:50])
    before_each_request(fake, lambda: [fake.trash(photo) for photo in itertools.islice(gone, 5)])
    library = connected(fake)
    found = set(read(library)[0])
    assert set(gone) | set(photos[50:]) <= found
    gone = iter(photos[50:100])
    found = {id for page in library.ids() for id in page}
    assert set(gone) | set(photos[100:]) <= found
    fake.forget_faults()
    left = {photo for photo in photos if not fake.photos[photo].trashed}
    assert {id for page in library.ids() for id in page} == left
    assert library.count() == len(left) < MANY


def test_previews(fake):
    photos = [fake.add_photo(f"{i}.jpg", b"\xff\xd8 picture %d" % i) for i in range(20)]
    library = connected(fake)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(library.preview, photos)) == [b"\xff\xd8 picture %d" % i for i in range(20)]
    with pytest.raises(DataError):
        library.preview(photos[0][:-4] + "ffff")


def test_tags_are_written_once_and_taken_once(fake):
    photos = filled(fake)
    library = connected(fake)
    pairs = [PhotoTag(photo, tag, 0.9) for photo in photos[:7] for tag in fake.ours]
    persons = held(fake, photos)
    assert library.existing(pairs) == set()
    for _ in range(2):
        assert library.add(pairs) == {}
        others = [PhotoTag(photos[9], fake.ours[0]), PhotoTag(photos[1], "none")]
        assert library.existing([*pairs, *others]) == {pair[:2] for pair in pairs}
    assert shown(read(library)[0]) == held(fake, photos)
    for _ in range(2):
        assert library.remove(pairs) == {}
    assert library.existing(pairs) == set()
    assert held(fake, photos) == persons
    assert library.add([]) == library.remove([]) == {}
    assert library.existing([]) == set()


def test_tags_in_all_scripts(fake):
    photo = fake.add_photo("a.jpg", tags=fake.scripts[:3])
    library = connected(fake)
    assert shown(read(library)[0]) == held(fake, [photo])
    pairs = [PhotoTag(photo, tag) for tag in fake.scripts[3:]]
    assert library.add(pairs) == {}
    assert library.existing(pairs) == {pair[:2] for pair in pairs}
    assert shown(read(library)[0]) == held(fake, [photo])
    assert {tag_key(tag) for tag in fake.tags_of(photo)} == {tag_key(tag) for tag in fake.scripts}


def test_a_key_that_is_refused(fake):
    with pytest.raises(ServiceError, match=r"401.*key is wrong") as raised:
        connected(fake, "some-other-key").check()
    assert "some-other-key" not in str(raised.value)


def test_a_permission_that_is_missing_is_named(fake):
    photos = filled(fake, 3)
    calls = {
        "changes": lambda library: read(library),
        "count": lambda library: library.count(),
        "preview": lambda library: library.preview(photos[0]),
        "add": lambda library: library.add([PhotoTag(photos[0], fake.ours[0])]),
    }
    for permission, call in fake.guarded.items():
        with fake.another() as other:
            other.photos, other.tags = fake.photos, fake.tags
            other.forbid(permission)
            for refused in (calls[call], lambda library: library.check()):
                with pytest.raises(ServiceError, match=permission) as raised:
                    refused(connected(other))
                assert other.key not in str(raised.value)


def test_an_address_of_something_else(fake):
    with pytest.raises(ServiceError, match=r"40[46].*Check the address"):
        connected(fake, address=f"{fake.url}/photos").check()
    fake.fail(served.redirect("http://127.0.0.1:1/"), times=100)
    with pytest.raises(ServiceError, match=r"302.*Redirections are not followed"):
        connected(fake).check()


def try_a_passing_failure(fake, fault):
    wanted = everything(connected(fake), fake, filled(fake, FEW))
    count, failed = itertools.count(), set[str]()

    def third(handler, work):  # Of concurrent requests, none fails until its retries are spent
        asked = f"{handler.command} {handler.path}"
        if next(count) % 3 == 0 and asked not in failed:
            failed.add(asked)
            PASSING[fault](handler, work)
        else:
            handler.send(work())

    with fake.another() as other:
        photos = filled(other, FEW)
        other.fail(third, times=10_000)
        assert everything(connected(other), other, photos) == wanted
    assert next(count) > 10


@once_a_program
@pytest.mark.parametrize("fault", PASSING)
def test_failures_that_pass_change_nothing(fake, fault):
    try_a_passing_failure(fake, fault)


def test_answers_that_are_lost_change_nothing_with_any_version(fake):
    try_a_passing_failure(fake, "lost")


@once_a_program
@pytest.mark.parametrize("fault", ["500", "reset", "cut"])
def test_failures_that_stay_are_errors(fake, fault):
    photos = filled(fake, 3)
    fake.fail(PASSING[fault], times=10_000)
    library = connected(fake, retries=2)
    pairs = [PhotoTag(photos[0], fake.ours[0])]
    for call in (library.check, library.count, lambda: list(library.ids()), lambda: read(library),
                 lambda: library.preview(photos[0]), lambda: library.add(pairs), lambda: library.remove(pairs),
                 lambda: library.existing(pairs)):  # fmt: skip
        with pytest.raises(ServiceError) as raised:
            call()
        assert fake.key not in str(raised.value)


@once_a_program
@pytest.mark.parametrize("fault", [served.hang, served.drip])
def test_time_outs(fake, fault):
    photos = filled(fake, 3)
    fake.fail(fault, times=3)
    with pytest.raises(ServiceError, match="timed out"):
        connected(fake, timeout=0.1, retries=2).check()
    fake.fail(served.slow(0.2))
    assert set(read(connected(fake))[0]) == set(photos)


@once_a_program
def test_a_limit_of_requests(fake, monkeypatch):
    """Time goes ten times as fast: the server asks to wait for a second."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(seconds / 10))
    monkeypatch.setattr("visterm.core.web_client.time", clock)
    photos = filled(fake, 12)
    fake.rate = (10, 0.05)
    library = connected(fake)
    for photo in photos:
        assert library.preview(photo)
    assert fake.asked(fake.pictures) == 12


MILLIONS = {
    "numbers": b"[" + b"1," * 2**23 + b"1]",
    "lists": b"[" + b"[]," * 2**23 + b"1]",
    "objects": b"[" + b"{}," * 2**23 + b"1]",
    "deep lists": b"[" + (b"[" * 500 + b"]" * 500 + b",") * 2**14 + b"1]",
    "half": b"[" * 2**24,
}


@once_a_program
@pytest.mark.parametrize("kind", MILLIONS)
def test_millions_of_values_are_refused_before_they_are_read(fake, kind, monkeypatch):
    read_json = []
    loads = json_answers.json.loads
    monkeypatch.setattr(json_answers.json, "loads", lambda text: read_json.append(len(text)) or loads(text))
    fake.fail(served.other(MILLIONS[kind]), where="GET .*/tags|GET .*/photos", times=1)
    with pytest.raises(
        ServiceError, match=rf"{PROGRAMS[fake.kind]} answers GET .* values; expected 1,048,576 or fewer"
    ):
        read(connected(fake, retries=0))
    assert max(read_json, default=0) < 2**20


def lengthened(end):
    """Return a change of JSON that adds an end to names."""

    def change(value, name=""):
        if isinstance(value, dict):
            return {key: change(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [change(each, name) for each in value]
        return value + end if name in ("value", "originalFileName", "checksum", "Name") else value

    return change


def test_half_a_letter_in_names_is_replaced(fake):
    filled(fake, 6)
    fake.fail(served.changed(lengthened("\ud800")), times=1000)
    photos, mark = read(connected(fake, retries=0))
    texts = [mark, *(text for photo in photos.values() for text in (photo.name, photo.version, *photo.tags))]
    assert [text.encode() for text in texts]
    assert all(photo.name.endswith("\ufffd") for photo in photos.values())
    tags = {tag_key(tag) for photo in photos.values() for tag in photo.tags}
    assert tags == {tag_key("sky\ufffd"), tag_key("tree\ufffd")}


def test_a_whole_letter_in_two_escapes_stays(fake):
    filled(fake, 1)
    fake.fail(served.changed(lengthened("\U0001f600")), times=1000)
    (photo,) = read(connected(fake))[0].values()
    assert photo.name == "0.jpg\U0001f600"


@pytest.mark.parametrize("date", [
    "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -1200", "Sat, 01 Jan 0100 00:00:00 +1200", "now", "",
    "Fri, 31 Dec 99999999999 23:59:59 GMT", "Fri, 99999999999 Dec 2025 23:59:59 GMT", "Fri, 31 Dec 2025 23:59:59 +9999",
])  # fmt: skip
def test_a_clock_that_cannot_be_is_refused_or_not_used(fake, date):
    photos = filled(fake, 3)
    fake.date = date
    if fake.kind == "immich":
        with pytest.raises(ServiceError, match=re.escape(f"{fake.url} answers with the Date {date!r}")):
            read(connected(fake))
    else:
        assert set(read(connected(fake))[0]) == set(photos)


def test_a_clock_without_a_zone_is_that_of_greenwich(fake):
    photos = filled(fake, 3)
    for date in ("Fri, 28 Nov 2025 23:59:59 -0000", "Fri, 28 Nov 2025 23:59:59"):
        fake.date = date
        found, mark = read(connected(fake))
        assert set(found) == set(photos)
        assert not set(read(connected(fake), mark)[0]) - set(photos)


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59Z"])
def test_times_that_cannot_be_are_taken_or_refused(fake, time):
    def change(value):
        if isinstance(value, dict):
            return {name: time if re.search("At$|date", name) else change(each) for name, each in value.items()}
        return list(map(change, value)) if isinstance(value, list) else value

    filled(fake, 3)
    fake.fail(served.changed(change), times=1000)
    with suppress(ServiceError):
        read(connected(fake, retries=0), read(connected(fake, retries=0))[1])


@once_a_program
def test_half_an_answer_and_other_answers(fake):
    photos = filled(fake, 3)
    pairs = [PhotoTag(photos[0], fake.ours[0])]
    answers = [b"<html>Welcome</html>", b"null", b"[]", b"{}", b'"text"', b"[" * 100_000, b"\xff\xfe", b"NaN", b"1e999",
               b" " * (40 * 2**20)]  # fmt: skip
    faults = [served.half_json, *map(served.other, answers)]
    for fault in faults:
        for call in (lambda library: library.check(), lambda library: library.count(), lambda library: read(library)):
            with fake.another() as other:
                other.fail(fault, times=1000)
                with pytest.raises(ServiceError):
                    call(connected(other, retries=0))
    fake.fail(served.half_json, times=1000, where="PUT .*|POST .*")
    with pytest.raises(ServiceError):
        connected(fake).add(pairs)


@pytest.mark.parametrize("seed", range(30))
def test_answers_of_any_kind_are_taken_or_refused(fake, seed):
    """One value in each answer is replaced by one of another kind."""
    rng = random.Random(seed)
    photos = filled(fake, 6)
    odd = [
        None,
        True,
        -1,
        1e300,
        "",
        "../../x",
        "a\0b",
        "\ud800",
        "x" * 5000,
        [],
        {},
        [[]],
        {"id": 1},
        2**70,
        "0000-00-00",
    ]

    def change(value):
        if isinstance(value, dict) and value and rng.random() < 0.8:
            name = rng.choice(sorted(value))
            return {**value, name: change(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.9:
            at = rng.randrange(len(value))
            return [*value[:at], change(value[at]), *value[at + 1 :]]
        return rng.choice(odd)

    fake.fail(served.changed(change), times=10_000, where=".*")
    library = connected(fake, retries=0)
    pairs = [PhotoTag(photo, "sky") for photo in photos]
    for call in (library.check, library.count, lambda: list(library.ids()), lambda: read(library),
                 lambda: library.add(pairs), lambda: library.remove(pairs),
                 lambda: library.existing(pairs)):  # fmt: skip
        with suppress(VistermError):
            call()
    assert not [each for each in fake.traffic if ".." in each["path"]], "nothing of an answer leads elsewhere"


def test_ids_of_a_server_are_no_paths(fake):
    def change(value):
        if isinstance(value, dict):
            return {name: "../../x" if name.lower() in ("id", "uid") else change(each) for name, each in value.items()}
        return [change(each) for each in value] if isinstance(value, list) else value

    filled(fake, 3)
    fake.fail(served.changed(change), times=1000)
    with pytest.raises(ServiceError, match="id"):
        read(connected(fake, retries=0))
    assert not [each for each in fake.traffic if ".." in each["path"]]


def test_names_come_as_they_are(fake):
    names = ["../../x", "a\0b", "c:\\x", "<b>x</b>", "x" * 2000, "-rf"]
    photos = {fake.add_photo(name): name for name in names}
    assert {id: photo.name for id, photo in read(connected(fake))[0].items()} == photos


def test_pictures_have_a_bound(fake):
    photo = fake.add_photo("a.jpg", b"\xff\xd8" + bytes(40 * 2**20))
    with pytest.raises(ServiceError, match="more than"):
        connected(fake, retries=0).preview(photo)


@once_a_program
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_server_that_goes_away_and_comes_back(fake, nth):
    photos = filled(fake, MANY)
    library = connected(fake, retries=10, wait=0.05)
    fake.dies_in = nth
    comes_back = threading.Thread(target=_start_again, args=(fake,))
    comes_back.start()
    found, _ = read(library)
    comes_back.join()
    assert shown(found) == held(fake, photos)


def _start_again(fake):
    fake.died.wait(600)
    fake.start()


def test_a_server_that_goes_away_for_long(fake):
    photos = filled(fake, MANY)
    found, mark = {}, ""
    with pytest.raises(ServiceError, match="gives no answer"):  # noqa: PT012
        for page in connected(fake, retries=1).changes():
            found |= {photo.id: photo for photo in page.photos}
            mark = page.mark
            fake.kill()
            connected(fake, retries=0).check()
    fake.start()
    assert 0 < len(found) < len(photos)
    found |= read(connected(fake), mark)[0]
    assert shown(found) == held(fake, photos)


def test_keys_are_in_no_message_and_no_log(fake, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    photos = filled(fake, 3)
    library = connected(fake, retries=1)
    assert fake.key not in repr(library)
    for code in (400, 401, 403, 404, 409, 500):
        fake.fail(served.status(code, content=f'{{"message": "your key is {fake.key}"}}'.encode()), times=2)
        with pytest.raises(ServiceError) as raised:
            library.add([PhotoTag(photos[0], fake.ours[0])])
        assert fake.key not in "".join(map(str, (raised.value, raised.value.__cause__)))
        fake.forget_faults()
    fake.fail(served.other(f"<html>{fake.key}".encode()))
    with pytest.raises(ServiceError) as raised:
        library.check()
    assert fake.key not in str(raised.value)
    assert fake.key not in caplog.text
    assert fake.key not in "".join(capfd.readouterr())


@once_a_program
@pytest.mark.parametrize("code", [200, 400])
def test_no_part_of_a_key_is_shown_where_an_answer_is_cut(fake, code):
    parts = {fake.key[start : start + 11] for start in range(len(fake.key) - 10)}
    for n in (0, *range(MAX_EXCERPT_LENGTH - len(fake.key) - 4, MAX_EXCERPT_LENGTH + 4)):
        fake.fail(served.other(b"-" * n + fake.key.encode(), code))
        with pytest.raises(ServiceError) as raised:
            connected(fake, retries=0).check()
        assert not [part for part in parts if part in str(raised.value)]


def test_a_key_in_place_of_a_value_is_not_shown(fake):
    def change(value):
        return fake.key if isinstance(value, str) else {name: change(each) for name, each in value.items()} if (
            isinstance(value, dict)) else list(map(change, value)) if isinstance(value, list) else value  # fmt: skip

    filled(fake, 3)
    fake.fail(served.changed(change), times=1000)
    with pytest.raises(ServiceError) as raised:
        read(connected(fake, retries=0))
    assert fake.key[:8] not in str(raised.value)


@pytest.mark.parametrize("kind", ["immich-3.2", "photoprism"])
def test_photos_in_bounded_memory(kind, small_pages):
    assert most_memory(kind, 1500) < 2.4 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAKES)
def test_ten_thousand_photos_in_bounded_memory(kind):
    assert most_memory(kind, 10_000) < 24 * 2**20


def most_memory(kind, n):
    """Return the bytes that are held at most while `n` photos are read and listed."""
    with served.apart(FAKES[kind], n) as url:
        library = connected(FAKES[kind](), address=url)
        library.check()
        tracemalloc.start()
        try:
            found = sum(len(page.photos) for page in library.changes())
            listed = sum(len(page) for page in library.ids())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert found == listed == n
    return peak
