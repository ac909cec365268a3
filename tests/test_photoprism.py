"""PhotoPrism's labels: whose they are, what a "no" is, names that it changes, and answers that are none of its own."""

from __future__ import annotations

import pytest

from fakes import served
from fakes.photoprism import FakePhotoPrism
from visterm.connectors.contract import PhotoTag
from visterm.connectors.photoprism import READ_ALL_SECONDS, PhotoPrismLibrary, uncertainty_of
from visterm.core.errors import DataError, ServiceError
from visterm.core.web_client import MAX_EXCERPT_LENGTH, Patience


@pytest.fixture(params=[True, False], ids=["new", "2024"])
def fake(request):
    with FakePhotoPrism(new=request.param) as made:
        yield made


@pytest.fixture
def library(fake):
    return PhotoPrismLibrary(fake.url, fake.key, Patience(20.0, 2, 0.01))


def only(library, since=""):
    (page,) = library.changes(since)
    (photo,) = page.photos
    return photo


def test_labels_that_people_gave_are_tags_and_removed_ones_are_rejections(fake, library):
    photo = fake.add_photo("a.jpg", tags=("snow tree",))
    fake.give(photo, "beach", "batch")
    fake.give(photo, "dog", "image", 30)
    fake.give(photo, "Berlin", "location", 10)
    fake.give(photo, "cat", "image", 5)
    fake.person_untags(photo, "cat")
    found = only(library)
    assert set(found.tags) == {"Snow Tree", "Beach"}
    assert found.rejected == ("Cat",)


def test_a_label_has_the_uncertainty_of_its_confidence_but_never_a_persons(fake, library):
    photo = fake.add_photo("a.jpg")
    pairs = [PhotoTag(photo, "sea", 0.874), PhotoTag(photo, "sky", 1.0), PhotoTag(photo, "sand", 0.0)]
    assert library.add(pairs) == {}
    stored = {fake.tags[number].name: (on.source, on.uncertainty) for number, on in fake.photos[photo].labels.items()}
    assert stored == {"Sea": ("manual", 13), "Sky": ("manual", 1), "Sand": ("manual", 99)}
    assert [uncertainty_of(each) for each in (-1.0, 0.5, 2.0)] == [99, 50, 1]


def test_what_is_taken_back_is_no_rejection(fake, library):
    photo = fake.add_photo("a.jpg")
    pair = PhotoTag(photo, "sea", 0.9)
    library.add([pair])
    found = only(library)
    assert (found.tags, found.guessed) == ((), ("Sea",))
    assert library.remove([pair]) == {}
    found = only(library)
    assert (found.tags, found.rejected, found.guessed) == ((), (), ())
    assert fake.photos[photo].labels == {}
    assert library.add([pair]) == {}


def test_a_persons_label_is_never_taken(fake, library):
    photo = fake.add_photo("a.jpg", tags=("sea",))
    (reason,) = library.remove([PhotoTag(photo, "Sea")]).values()
    assert "a person gave or confirmed it" in reason
    assert fake.tags_of(photo) == {"Sea"}


def test_a_label_of_ours_that_a_person_confirmed_stays(fake, library):
    photo = fake.add_photo("a.jpg")
    library.add([PhotoTag(photo, "sea", 0.9)])
    fake.person_tags(photo, "sea")
    assert len(library.remove([PhotoTag(photo, "sea")])) == 1
    assert fake.tags_of(photo) == {"Sea"}


def test_what_somebody_removed_is_not_written_again(fake, library):
    photo = fake.add_photo("a.jpg")
    fake.give(photo, "sea", "image", 20)
    fake.person_untags(photo, "sea")
    (reason,) = library.add([PhotoTag(photo, "sea", 0.99)]).values()
    assert "somebody removed it" in reason
    assert fake.rejected(photo) == {"Sea"}
    assert library.existing([PhotoTag(photo, "sea")]) == set()


def test_a_guess_of_photoprism_stays_as_it_is(fake, library):
    photo = fake.add_photo("a.jpg")
    fake.give(photo, "sea", "image", 60)
    before = dict(fake.photos[photo].labels)
    (reason,) = library.add([PhotoTag(photo, "sea", 0.99)]).values()
    assert "own model" in reason
    assert library.remove([PhotoTag(photo, "sea")]) == {}
    assert library.existing([PhotoTag(photo, "sea")]) == set()
    assert fake.photos[photo].labels == before


def test_a_label_that_a_person_confirms_while_labels_are_taken_stays(fake, library):
    pairs = [PhotoTag(fake.add_photo(f"{i}.jpg"), "sea", 0.9) for i in range(20)]
    library.add(pairs)

    def person(handler, work):
        fake.person_tags(pairs[-1].photo, "sea")
        handler.send(work())

    fake.fail(person, where="DELETE .*")
    assert [*library.remove(pairs)] == [pairs[-1][:2]]
    assert [fake.tags_of(pair.photo) for pair in pairs] == [set()] * 19 + [{"Sea"}]


def test_labels_are_taken_out_of_the_archive_too(fake, library):
    photo = fake.add_photo("a.jpg")
    pair = PhotoTag(photo, "sea", 0.9)
    library.add([pair])
    fake.trash(photo)
    assert library.existing([pair]) == {pair[:2]}
    assert library.remove([pair]) == {}
    fake.trash(photo, back=True)
    assert fake.photos[photo].labels == {}


def test_what_was_taken_and_comes_back_is_no_persons_label(fake, library):
    photo = fake.add_photo("a.jpg", tags=("tree",))
    pair = PhotoTag(photo, "sea", 0.9)
    library.add([pair])
    with fake.saving(photo):
        library.remove([pair])
        assert library.existing([pair]) == set()
    assert only(library).tags == ("Tree",)
    assert library.existing([pair]) == {pair[:2]}
    library.remove([pair])
    assert fake.tags_of(photo) == {"Tree"}


def test_a_label_of_ours_on_a_photo_that_was_stacked_is_no_persons_label(fake, library):
    first, second = (fake.add_photo(f"{i}.jpg") for i in range(2))
    library.add([PhotoTag(second, "sea", 0.9)])
    fake.stack(first, second)
    assert only(library).tags == ()
    assert only(library).guessed == ("Sea",)


def test_a_label_of_ours_that_somebody_renamed_is_still_ours(fake, library):
    photo, other = fake.add_photo("a.jpg"), fake.add_photo("b.jpg", tags=("snow tree",))
    pair = PhotoTag(photo, "snow tree", 0.9)
    library.add([pair])
    fake.rename("snow tree", "winter")
    found = {each.id: each for page in library.changes() for each in page.photos}
    assert (found[photo].tags, found[other].tags) == ((), ("Winter",))
    assert {"Winter", "snow tree"} <= set(found[photo].guessed)
    assert library.existing([pair, PhotoTag(other, "snow tree")]) == {pair[:2]}
    assert library.remove([pair, PhotoTag(other, "snow tree")]) == {}
    assert (fake.tags_of(photo), fake.tags_of(other)) == (set(), {"Winter"})


@pytest.mark.parametrize(("uncertainty", "how"), [(60, "the photo has"), (100, "somebody removed there")])
def test_a_name_that_was_a_labels_first_one_changes_no_guess_and_no_no(fake, library, uncertainty, how):
    photo = fake.add_photo("a.jpg")
    fake.give(photo, "sea", "image", uncertainty)
    fake.rename("sea", "ocean")
    (reason,) = library.add([PhotoTag(photo, "sea", 0.9)]).values()
    assert reason == f"PhotoPrism takes it for 'Ocean', which {how}"
    assert [(on.source, on.uncertainty) for on in fake.photos[photo].labels.values()] == [("image", uncertainty)]


def test_a_label_that_photoprism_takes_and_does_not_keep_is_refused(fake, library):
    photo = fake.add_photo("a.jpg")
    fake.fail(served.changed(lambda answer: answer | {"Labels": []}), where="POST .*")
    (reason,) = library.add([PhotoTag(photo, "sea", 0.9)]).values()
    assert "did not keep it" in reason


def test_keywords_are_not_lost_with_a_label(fake, library):
    photo = fake.add_photo("beach.jpg", keywords=["sea", "teal", "beach"])
    (reason,) = library.add([PhotoTag(photo, tag, 0.9) for tag in ("deep sea", "teal", "beach party")]).values()
    assert reason == "the photo has the keyword 'sea', which PhotoPrism removes together with the label"
    assert "sea" in only(library).guessed
    library.remove([PhotoTag(photo, tag) for tag in ("deep sea", "teal", "beach party")])
    assert fake.tags_of(photo) == set()
    assert "sea" in fake.photos[photo].keywords


def test_changes_that_move_no_time_are_read_within_a_day(fake, library):
    photos = [fake.add_photo(f"{i}.jpg", tags=("sea", "sky")) for i in range(3)]
    library.add([PhotoTag(photos[0], "sand", 0.9)])
    *_, last = library.changes()
    fake.edit_several(photos[:2], add="boat", remove="sky")
    fake.edit_several(photos[:1], remove="sand")
    fake.delete_label("sea")
    fake.vision(photos[2], "cloud", 30)
    assert {photo.id for page in library.changes(last.mark) for photo in page.photos} <= {photos[0]}
    fake.offset += READ_ALL_SECONDS + 1
    (page,) = library.changes(last.mark)
    found = {photo.id: (photo.tags, set(photo.guessed) - {"sea"}) for photo in page.photos}  # a keyword, in 2024
    boat = (("Boat",), set())
    assert found == {photos[0]: boat, photos[1]: boat, photos[2]: (("Sky",), {"Cloud"})}
    assert not {photo.id for page in library.changes(page.mark) for photo in page.photos} - {photos[0]}


def test_a_mark_of_an_earlier_version_reads_all_once(fake, library):
    photos = {fake.add_photo(f"{i}.jpg") for i in range(3)}
    (page,) = library.changes(f"2030-01-01T00:00:00Z {min(photos)}")
    assert {photo.id for photo in page.photos} == photos
    assert list(library.changes(page.mark)) == []


@pytest.mark.parametrize(("there", "tag"), [("Cafe", "café"), ("Sea side", "sea-side")], ids=["accent", "sign"])
def test_names_that_are_one_label_there_are_refused(fake, library, there, tag):
    photo = fake.add_photo("a.jpg", tags=(there,))
    other = fake.add_photo("b.jpg")
    first, second = library.add([PhotoTag(photo, tag, 0.9), PhotoTag(other, tag, 0.9)]).values()
    assert "which the photo has" in first
    assert "would keep it as" in second
    assert fake.tags_of(photo) == {fake.label(there).name}
    assert fake.photos[other].labels == {}


def test_a_name_with_slashes_is_refused_as_photoprism_rewrites_it(fake, library):
    photo = fake.add_photo("a.jpg")
    (reason,) = library.add([PhotoTag(photo, "visterm/cat", 0.9)]).values()
    assert "'Visterm / Cat'" in reason
    assert fake.photos[photo].labels == {}


def test_a_name_that_is_none_is_refused_and_the_others_are_written():
    with FakePhotoPrism() as fake:
        photo = fake.add_photo("a.jpg")
        library = PhotoPrismLibrary(fake.url, fake.key)
        (reason,) = library.add([PhotoTag(photo, "!?", 0.9), PhotoTag(photo, "sea", 0.9)]).values()
        assert "accepts no label of this name" in reason
        assert fake.tags_of(photo) == {"Sea"}


def test_photos_in_the_archive_and_deleted_ones_are_gone(fake, library):
    photos = [fake.add_photo(f"{i}.jpg") for i in range(3)]
    fake.trash(photos[0])
    fake.delete(photos[1])
    assert [id for page in library.ids() for id in page] == photos[2:]
    pairs = [PhotoTag(photo, "sea", 0.9) for photo in photos]
    assert [*library.add(pairs)] == [pair[:2] for pair in pairs[:2]]
    assert library.existing(pairs) == {(photos[2], "sea")}
    assert library.remove(pairs) == {}


def test_videos_and_photos_that_cannot_be_shown_are_left_out(fake, library):
    fake.add_photo("a.mp4", type="video")
    fake.add_photo("broken.jpg", quality=-1)
    photo = fake.add_photo("a.jpg")
    assert only(library).id == photo
    assert list(library.ids()) == [[photo]]
    assert library.count() == 1


def test_a_404_of_a_proxy_deletes_nothing(fake, library):
    photo = fake.add_photo("a.jpg")
    fake.fail(served.status(404, content=b"<html>no such site</html>"), times=100)
    for call in (lambda: list(library.changes()), lambda: library.add([PhotoTag(photo, "sea")]),
                 lambda: library.existing([PhotoTag(photo, "sea")]), lambda: library.preview(photo)):  # fmt: skip
        with pytest.raises(ServiceError, match=r"404.*Check the address"):
            call()


def test_an_empty_list_is_doubted(fake, library):
    fake.add_photo("a.jpg")
    fake.fail(served.other(b"[]"), times=2, where="GET /api/v1/photos")
    with pytest.raises(ServiceError, match="counts photos, but lists none"):
        list(library.ids())


def test_a_photo_without_a_preview_has_none_and_new_tokens_are_asked_for(fake, library):
    photo = fake.add_photo("a.jpg", b"\xff\xd8 picture")
    none = fake.add_photo("b.jpg", None)
    assert library.preview(photo) == b"\xff\xd8 picture"
    fake.preview_token = "another1"
    assert library.preview(photo) == b"\xff\xd8 picture"
    with pytest.raises(DataError, match="no preview"):
        library.preview(none)
    fake.fail(served.status(403, content=b"<svg/>"), times=100, where="GET /api/v1/t/.*")
    with pytest.raises(ServiceError, match="to view photos") as raised:
        library.preview(photo)
    assert fake.preview_token not in str(raised.value)


def test_tokens_are_in_no_message(fake, library):
    photo = fake.add_photo("a.jpg", b"\xff\xd8 picture")
    for fault in (served.status(500), served.reset):
        fake.fail(fault, times=100, where="GET /api/v1/t/.*")
        with pytest.raises(ServiceError, match=r"/t/\w+/\(secret\)/") as raised:
            library.preview(photo)
        assert fake.preview_token not in f"{raised.value}{raised.value.__cause__}"
        fake.forget_faults()
    for n in range(MAX_EXCERPT_LENGTH - 8, MAX_EXCERPT_LENGTH):
        fake.fail(served.other(b"-" * n + fake.preview_token.encode(), 400), where="GET /api/v1/t/.*")
        with pytest.raises(ServiceError, match="with 400: ---") as raised:
            library.preview(photo)
        assert fake.preview_token[:2] not in str(raised.value).partition("---")[2]


def test_a_public_configuration_is_no_login(fake):
    with pytest.raises(ServiceError, match="401"):
        PhotoPrismLibrary(fake.url, "another-key").check()


@pytest.mark.parametrize("mark", ["yesterday", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z ps1"])
def test_a_mark_that_is_none_is_refused(library, mark):
    with pytest.raises(DataError, match="not the time of a change"):
        list(library.changes(mark))


def test_a_library_that_rests_is_asked_twice(fake, library):
    for i in range(1200):
        fake.add_photo(f"{i}.jpg")
    *_, last = library.changes()
    fake.traffic.clear()
    assert list(library.changes(last.mark)) == []
    assert len(fake.traffic) <= 3
