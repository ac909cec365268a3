"""What is particular to Immich: two shapes of its API, tags under tags, and changes that leave no trace."""

from __future__ import annotations

import pytest

from fakes.immich import KEY, FakeImmich
from fakes.served import changed
from visterm.connectors.contract import PhotoTag
from visterm.connectors.immich import ImmichLibrary
from visterm.connectors.immich_search import PagePosition, Search
from visterm.core.errors import DataError, ServiceError
from visterm.core.web_client import Patience

VERSIONS = [(3, 1, 0), (3, 2, 1)]


@pytest.fixture(params=VERSIONS, ids=["3.1", "3.2"])
def fake(request):
    with FakeImmich(request.param) as made:
        yield made


def connected(fake, **patience):
    return ImmichLibrary(fake.url, KEY, Patience(timeout=600, **{"wait": 0.01, "retries": 3, **patience}))


def read(library, since=""):
    """Return the tags of changed photos by id, and the last mark."""
    pages = list(library.changes(since))
    return {photo.id: set(photo.tags) for page in pages for photo in page.photos}, pages[-1].mark


def test_asks_the_version_in_its_own_shape(fake):
    photo = fake.add_photo("a.jpg", tags=("sky",))
    library = connected(fake)
    assert library.check() == f"Immich {'.'.join(map(str, fake.version))}"
    assert read(library)[0] == {photo: {"sky"}}
    assert library.count() == 1
    bodies = [each["body"] for each in fake.traffic if each["path"].startswith("/api/search/")]
    assert all(("filter" in body) == (fake.version >= (3, 2)) for body in bodies)


def test_tells_a_tag_from_those_under_it(fake):
    kinds = {"child": ("animals/dog",), "parent": ("animals",), "both": ("animals", "animals/dog"), "none": ()}
    photos = {fake.add_photo(f"{name}{i}.jpg", tags=tags): set(tags) for name, tags in kinds.items() for i in range(9)}
    assert read(connected(fake))[0] == photos


def test_finds_that_a_tag_was_deleted_though_no_photo_changed(fake):
    photos = [fake.add_photo(f"{i}.jpg", tags=("sky", "tree")) for i in range(5)]
    library = connected(fake)
    mark = read(library)[1]
    assert read(library, mark)[0] == {}
    fake.delete_tag("sky")
    assert read(library, mark)[0] == {photo: {"tree"} for photo in photos}


def test_looks_at_all_photos_once_a_day_for_changes_without_a_trace(fake):
    photo = fake.add_photo("a.jpg", tags=("sky",))
    library = connected(fake)
    mark = read(library)[1]
    fake.photos[photo].tags = {fake.tag("sea").id}
    assert read(library, mark)[0] == {}
    fake.offset += 25 * 3600
    assert read(library, mark)[0] == {photo: {"sea"}}


def test_a_photo_whose_file_cannot_be_written_loses_a_tag_and_comes_again(fake):
    photo = fake.add_photo("a.jpg", tags=("sky",), read_only=True, library="00000000-0000-4000-8000-000000000001")
    library = connected(fake)
    mark = read(library)[1]
    fake.person_tags(photo, "sea")
    assert fake.tags_of(photo) == {"sky", "sea"}
    fake.finish_jobs()
    assert read(library, mark)[0] == {photo: {"sky"}}
    (page,) = library.changes()
    assert [each.folder for each in page.photos] == ["00000000-0000-4000-8000-000000000001"]


def test_looks_at_all_photos_where_the_servers_clock_was_set_back(fake):
    fake.offset = 10 * 3600
    photos = [fake.add_photo(f"{i}.jpg", age=86_400) for i in range(3)]
    library = connected(fake)
    mark = read(library)[1]
    fake.offset = 0
    fake.set_clock()
    fake.person_tags(photos[0], "sky")
    assert read(library, mark)[0] == {photos[0]: {"sky"}, photos[1]: set(), photos[2]: set()}


def test_photos_that_came_just_now_are_not_ready_and_come_again(fake):
    photo = fake.add_photo("a.jpg", age=0)
    library = connected(fake)
    (page,) = library.changes()
    assert [each.ready for each in page.photos] == [False]
    fake.offset += 301
    (page,) = library.changes(page.mark)
    assert [(each.id, each.ready) for each in page.photos] == [(photo, True)]
    (page,) = library.changes(page.mark)
    assert page.photos == [], "it is ready, and has not changed"


def test_photos_without_a_preview_come_once_it_is_made(fake):
    photo = fake.add_photo("a.jpg", preview=None)
    library = connected(fake)
    (page,) = library.changes()
    assert [(each.id, each.version) for each in page.photos] == [(photo, "")]
    mark = page.mark
    with pytest.raises(DataError, match="no preview"):
        library.preview(photo)
    fake.edit(photo, b"\xff\xd8 a picture")
    assert read(library, mark)[0] == {photo: set()}
    assert library.preview(photo) == b"\xff\xd8 a picture"


def test_writes_again_where_the_nightly_job_deleted_an_empty_tag(fake):
    photo = fake.add_photo("a.jpg")
    library = connected(fake)
    pairs = [PhotoTag(photo, "visterm/cat")]
    for _ in range(2):
        assert library.add(pairs) == {}
        assert library.existing(pairs) == {(photo, "visterm/cat")}
        assert library.remove(pairs) == {}
        assert library.existing(pairs) == set()
        fake.clean_tags()
        assert fake.tags == {}
        assert library.remove(pairs) == {}, "a tag that is not there has no photos"


def test_ids_that_are_dropped_without_a_word_are_not_there(fake):
    mine, partners = fake.add_photo("a.jpg"), fake.add_photo("b.jpg", partner=True)
    library = connected(fake)
    gone = "00000000-0000-4000-8000-000000000000"
    pairs = [PhotoTag(photo, "visterm/cat") for photo in (mine, partners, gone)]
    library.add(pairs)
    assert library.existing(pairs) == {(mine, "visterm/cat")}


def test_partners_photos_are_read_but_take_no_tags(fake):
    mine = fake.add_photo("a.jpg", tags=("sky",))
    partners = [fake.add_photo(f"{i}.jpg", tags=("theirs",), partner=True) for i in range(3)]
    before = fake.asked("GET /api/assets/.*")
    (page,) = connected(fake).changes()
    assert {photo.id: (photo.tags, photo.ready) for photo in page.photos} == {
        mine: (("sky",), True), **dict.fromkeys(partners, ((), False))}  # fmt: skip
    assert fake.asked("GET /api/assets/.*") - before <= 1


def test_few_requests_for_many_pairs(fake):
    photos = [fake.add_photo(f"{i}.jpg") for i in range(60)]
    library = connected(fake)
    library.check()
    pairs = [PhotoTag(photo, f"visterm/{tag}") for i, photo in enumerate(photos) for tag in "abcd"[: 1 + i % 4]]
    for work in (library.add, library.existing):
        before = fake.asked()
        work(pairs)
        assert fake.asked() - before <= 5, work
    assert sorted((photo, tag) for _, photo, tag in fake.writes) == sorted(pair[:2] for pair in pairs)


def test_photos_of_years_with_five_digits(fake):
    """Such dates stand in files; Immich lists them, but does not take them in a search."""
    photos = [fake.add_photo(f"{i}.jpg", tags=("sky",), taken=1e9 + i) for i in range(1100)]

    def last_is_far(answer):
        for item in answer.get("assets", {}).get("items", []) if isinstance(answer, dict) else []:
            if item["id"] == photos[-1]:
                item["fileCreatedAt"] = "+010000-01-01T00:00:00.000Z"
        return answer

    fake.fail(changed(last_is_far), times=10_000)
    library = connected(fake)
    for page in library.changes():
        read(library, page.mark)
    pairs = [PhotoTag(photo, "sky") for photo in photos[-3:]]
    assert library.existing(pairs) == {pair[:2] for pair in pairs}


def test_old_versions_are_refused():
    with FakeImmich((2, 7, 3)) as fake, pytest.raises(ServiceError, match=r"Immich 2\.7; expected 3\.0 or newer"):
        connected(fake).check()


def test_what_is_no_mark_is_refused(fake):
    for mark in ("{", "[]", '{"since": "yesterday"}', '{"other": 1}', "null"):
        with pytest.raises(DataError, match="not a checkpoint"):
            list(connected(fake).changes(mark))


def test_few_requests_where_only_our_own_tags_moved_photos(fake):
    people = [f"people/{i}" for i in range(5)] + [f"thing {i}" for i in range(60)]
    photos = [fake.add_photo(f"{i}.jpg", tags=(people[i % 65],) if i >= 40 else ()) for i in range(200)]
    library = connected(fake)
    mark = read(library)[1]
    library.add([PhotoTag(photo, f"visterm/{i % 3}") for i, photo in enumerate(photos[:40])])
    fake.finish_jobs()
    fake.person_tags(photos[3], "thing 3")
    fake.person_tags(photos[150], "people/4")
    fake.finish_jobs()
    before = fake.asked()
    assert read(library, mark)[0] == {photo: fake.tags_of(photo) for photo in [*photos[:40], photos[150]]}
    most = {(3, 1, 0): 41 + 3, (3, 2, 1): 12}[fake.version]  # 3.1 has no search for one of many tags
    assert fake.asked() - before <= most


def test_what_was_written_to_new_photos_is_not_looked_for_among_all():
    """A tag of ours may have many photos; a search for it is bounded by the time of the photos that were written to."""
    with FakeImmich((3, 1, 0)) as fake:
        old = [fake.add_photo(f"{i}.jpg", age=10 * 86_400) for i in range(1500)]
        library = connected(fake)
        library.add([PhotoTag(photo, "visterm/cat") for photo in old])
        mark = read(library)[1]
        new = [fake.add_photo(f"new {i}.jpg", age=200 - i) for i in range(20)]
        read(library, mark)
        pairs = [PhotoTag(photo, "visterm/cat") for photo in new]
        library.add(pairs)
        before = fake.asked()
        assert library.existing(pairs) == {pair[:2] for pair in pairs}
        assert fake.asked() - before == 2
        fake.photos[new[3]].taken -= 10 * 365 * 86_400
        for other in (library, connected(fake)):
            assert other.existing(pairs) == {pair[:2] for pair in pairs}


def test_a_cursor_that_is_remembered_of_a_newer_server_is_no_page_of_an_older_one():
    assert "page" not in Search().flat_body(PagePosition("2026-01-01T00:00:00.000Z", "cursor"))
    assert Search().flat_body(PagePosition("2026-01-01T00:00:00.000Z", "2"))["page"] == 2
