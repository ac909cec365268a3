"""A catalogue is brought to what lies in a folder: new, changed, moved, gone and unchanged files, and other runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational
from typer.testing import CliRunner

from tiny_catalogues import draw_photo, draw_photos, fit_run, touch, write_tags
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import DataError, StorageError, TagFileError, UserError
from visterm.data.contents import Exif, content_hash, exif_of
from visterm.library import files
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.photos import photos_of
from visterm.store.filters import Filter


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")


@pytest.fixture
def photos(tmp_path):
    draw_photos(tmp_path / "photos", 12)
    return tmp_path / "photos"


@pytest.fixture
def catalogue(run, photos, tmp_path):
    made = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    assert made.index(photos).new == 12
    return made


def counts(done):
    return {name: value for name, value in done.as_dict().items() if value}


def ids_by_name(catalogue):
    return {os.path.basename(record.path): record.id for record in catalogue.records}


def rows_are_those_of(catalogue):
    """The rows that a new catalogue of the same files has, by name."""
    fresh = Catalogue(catalogue.tagger).add([record.path for record in catalogue.records])
    for name, image_id in ids_by_name(catalogue).items():
        [expected] = fresh.stored.current_rows().rows([ids_by_name(fresh)[name]])
        np.testing.assert_allclose(catalogue.stored.current_rows().rows([image_id])[0], expected, rtol=1e-6)


def test_what_has_not_changed_is_not_read_again(catalogue, photos, monkeypatch):
    monkeypatch.setattr("visterm.library.files.content_hash", lambda path: pytest.fail(f"{path} was read"))
    monkeypatch.setattr(type(catalogue.tagger.encoder), "encode", lambda *_, **__: pytest.fail("encoded"))
    assert counts(catalogue.index(photos)) == {"kept": 12}


def test_a_folder_is_listed_once_also_to_count_what_is_not_read(catalogue, photos, monkeypatch):
    (photos / "notes.txt").write_text("no photo")
    (photos / "clip.mp4").touch()
    listed = []
    monkeypatch.setattr("os.walk", lambda folder, walk=os.walk, **how: listed.append(folder) or walk(folder, **how))
    found = catalogue.index(photos)
    assert list(map(str, listed)) == [str(photos)]
    assert found.not_read.counts["other"] == 1
    assert "1 other (.txt)" in catalogue.stored.history.details_of("index")[-1]["not read"]


def test_more_photos_than_are_compared_at_once_are_all_compared(catalogue, photos, monkeypatch):
    batches = catalogue.stored.database.batches
    monkeypatch.setattr(type(catalogue.stored.database), "batches", lambda _, *query: batches(*query, size=5))
    (photos / "moved").mkdir()
    first, second, *_ = sorted(photos.glob("*.png"))
    first.rename(photos / "moved" / first.name)
    second.unlink()
    assert counts(catalogue.index(photos)) == {"kept": 10, "moved": 1, "gone": 1}


def test_a_file_with_other_content_of_the_same_size_is_read_once_to_compare_it(catalogue, photos, monkeypatch):
    draw_photo(photos / "a.bmp", "red", 1)
    catalogue.index(photos)
    read = []
    monkeypatch.setattr(files, "content_hash", lambda path: read.append(path) or content_hash(path))
    touch(draw_photo(photos / "a.bmp", "blue", 2), 5)
    assert counts(catalogue.index(photos))["changed"] == 1
    assert read == [str(photos / "a.bmp")]


def test_new_changed_moved_and_gone_files_are_each_seen_as_what_they_are(catalogue, photos):
    ids = ids_by_name(catalogue)
    draw_photo(photos / "new.png", "red", 500)
    draw_photo(photos / "003.png", "green", 501)
    (photos / "deep").mkdir()
    (photos / "004.png").rename(photos / "deep" / "else.png")
    (photos / "005.png").unlink()
    touch(photos / "006.png", 1_000_000)
    catalogue.give(ids["003.png"], ["mine"])
    done = catalogue.index(photos)
    assert counts(done) == {"new": 1, "changed": 1, "moved": 1, "gone": 1, "kept": 9, "encoded": 2}
    after = ids_by_name(catalogue)
    assert after["003.png"] == ids["003.png"]
    assert after["else.png"] == ids["004.png"]
    assert "005.png" not in after
    assert catalogue.image(ids["005.png"]).record.state == "gone"
    assert [tag.tag for tag in catalogue.image(ids["003.png"]).given] == ["mine"]
    rows_are_those_of(catalogue)
    assert {hit.id for hit in catalogue.search("red", 0).hits} == set(after.values())
    assert counts(catalogue.index(photos)) == {"kept": 12}


def test_files_that_change_places_keep_what_is_known_of_their_content(catalogue, photos):
    ids = ids_by_name(catalogue)
    (photos / "000.png").rename(photos / "x")
    (photos / "001.png").rename(photos / "000.png")
    (photos / "x").rename(photos / "001.png")
    assert counts(catalogue.index(photos)) == {"moved": 2, "kept": 10}
    after = ids_by_name(catalogue)
    assert (after["000.png"], after["001.png"]) == (ids["001.png"], ids["000.png"])
    rows_are_those_of(catalogue)


def test_a_content_that_is_overwritten_by_another_is_gone(catalogue, photos):
    ids = ids_by_name(catalogue)
    (photos / "000.png").rename(photos / "001.png")
    assert counts(catalogue.index(photos)) == {"moved": 1, "gone": 1, "kept": 10}
    assert ids_by_name(catalogue)["001.png"] == ids["000.png"]
    assert catalogue.image(ids["001.png"]).record.state == "gone"


def test_a_copy_is_new_and_what_comes_back_is_the_image_it_was(catalogue, photos, tmp_path):
    ids = ids_by_name(catalogue)
    (photos / "copy.png").write_bytes((photos / "002.png").read_bytes())
    assert counts(catalogue.index(photos)) == {"new": 1, "kept": 12, "encoded": 1}
    photos.rename(tmp_path / "away")
    photos.mkdir()
    draw_photo(photos / "other.png", "blue", 77)
    assert counts(catalogue.index(photos)) == {"new": 1, "gone": 13, "encoded": 1}
    assert len(catalogue) == 1
    (photos / "other.png").rename(tmp_path / "away" / "other.png")
    photos.rmdir()
    (tmp_path / "away").rename(photos)
    assert counts(catalogue.index(photos)) == {"moved": 13, "kept": 1}
    assert ids.items() <= ids_by_name(catalogue).items()


def test_images_of_other_folders_stay_and_move_between_folders(catalogue, photos, tmp_path):
    ids = ids_by_name(catalogue)
    draw_photo(tmp_path / "more" / "a.png", "red", 900)
    (photos / "007.png").rename(tmp_path / "more" / "7.png")
    assert counts(catalogue.index(tmp_path / "more")) == {"new": 1, "moved": 1, "encoded": 1}
    assert len(catalogue) == 13
    assert ids_by_name(catalogue)["7.png"] == ids["007.png"]


def test_an_unreadable_file_is_listed_until_it_can_be_read_and_never_loses_what_was_there(catalogue, photos):
    ids = ids_by_name(catalogue)
    (photos / "bad.png").write_bytes(b"no picture")
    (photos / "001.png").write_bytes(b"broken")
    done = catalogue.index(photos)
    assert counts(done) == {"kept": 11, "skipped": 2}
    assert [os.path.basename(item.image) for item in catalogue.skipped] == ["001.png", "bad.png"]
    assert ids_by_name(catalogue)["001.png"] == ids["001.png"]
    draw_photo(photos / "bad.png", "green", 40)
    (photos / "001.png").unlink()
    assert counts(catalogue.index(photos)) == {"new": 1, "gone": 1, "kept": 11, "encoded": 1}
    assert catalogue.skipped == []


def test_tags_of_files_follow_the_files_and_those_of_people_stay(catalogue, photos, tmp_path):
    ids = ids_by_name(catalogue)
    first = write_tags(tmp_path / "tags.csv", {"000.png": ["red", "old"], "001.png": ["Green"]})
    catalogue.index(photos, tags=first)
    catalogue.give(ids["000.png"], ["person's", "old"])
    catalogue.index(photos, tags=write_tags(tmp_path / "tags.csv", {"000.png": ["red", "newer"], "001.png": ["x"]}))
    assert {(t.tag, t.source) for t in catalogue.image(ids["000.png"]).given} == {
        ("red", "file"), ("newer", "file"), ("old", "person"), ("person's", "person")
    }  # fmt: skip
    assert [t.tag for t in catalogue.image(ids["001.png"]).given] == ["x"]
    catalogue.index(photos)
    assert len(catalogue.image(ids["000.png"]).given) == 4


def test_predictions_are_kept_with_the_rows_as_annotate_gives_them(catalogue):
    record = catalogue.records[3]
    [expected] = catalogue.tagger.annotate([record.path], 10).images
    found = catalogue.image(record.id).predicted
    assert [tag.tag for tag in found] == [tag.tag for tag in expected.tags]
    np.testing.assert_allclose([tag.score for tag in found], [tag.score for tag in expected.tags], rtol=1e-5)


def test_features_are_kept_and_rows_of_another_run_are_made_of_them(catalogue, run, photos, tmp_path, monkeypatch):
    kept = CatalogueFeatures(catalogue.stored, catalogue.tagger.encoder.fingerprint)
    ids, X = kept.rows([2, 0])
    order = [int(os.path.basename(catalogue.image(i).record.path)[:3]) for i in ids]
    expected = catalogue.tagger.encoder.encode([photos / f"{i:03d}.png" for i in order]).rows
    np.testing.assert_array_equal(X.toarray(), expected.toarray())
    other = Tagger.load(run, n_jobs=1)
    other.model.set_params(random_state=5).fit(expected[[0, 1, 0, 1]], np.eye(len(other.vocabulary))[[0, 1, 2, 3]])
    with monkeypatch.context() as patch:
        patch.setattr(type(other.encoder), "encode", lambda *_, **__: pytest.fail("encoded"))
        done = catalogue.use(other)
    assert (done.rows, done.encoded) == (12, 0)
    rows_are_those_of(catalogue)
    again = Catalogue.load(tmp_path / "catalogue")
    assert again.tagger.fingerprint == other.fingerprint
    assert [r.current for r in again.stored.runs.all()] == [False, True]
    assert again.image(0).predicted[0].tag == other.annotate([again.image(0).record.path], 1).images[0].tags[0].tag


def test_a_run_with_another_encoder_encodes_anew(catalogue, photos, tmp_path):
    tags = {f"{i:03d}.png": [["a", "b"][i % 2]] for i in range(12)}
    other = Tagger.load(fit_run(photos, tags, tmp_path / "other"), n_jobs=1)
    done = catalogue.use(other)
    assert (done.rows, done.encoded) == (12, 12)
    assert {hit.id for hit in catalogue.search("a", 0).hits} == set(range(12))


def test_a_job_that_is_cancelled_keeps_what_it_has_and_the_next_one_goes_on(run, photos, tmp_path):
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    job = catalogue.stored.jobs.start("index")
    commit = catalogue.stored.set_rows

    def then_cancel(*given, **how):
        commit(*given, **how)
        catalogue.stored.jobs.cancel(job)

    catalogue.stored.set_rows = then_cancel
    done = catalogue.index(photos, chunk_size=5, job_id=job)
    assert (done.new, done.cancelled) == (5, True)
    assert catalogue.stored.jobs.get(job).state == "cancelled"
    catalogue.stored.set_rows = commit
    assert counts(catalogue.index(photos)) == {"new": 7, "kept": 5, "encoded": 7}


def test_a_second_process_is_told_who_is_at_it(catalogue, photos, tmp_path):
    child = "import sys; from visterm import Catalogue; Catalogue.load(sys.argv[1]).index(sys.argv[2])"
    with catalogue.stored.writing():
        done = subprocess.run(
            [sys.executable, "-c", child, str(tmp_path / "catalogue"), str(photos)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"in use by process {os.getpid()}" in done.stderr


@pytest.mark.parametrize("name", ["file:x", "file:x?mode=memory", "s3:x"])
def test_a_catalogue_lies_in_a_folder_whose_name_looks_like_an_address(name, run, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalogue = Catalogue.create(name, Tagger.load(run))
    catalogue.index(photos)
    catalogue.save(f"{name}-copy")
    copied = Catalogue.load(f"{name}-copy")
    rows_are_those_of(copied)
    assert counts(copied.index(photos)).get("new", 0) == 0
    assert sorted(file.name for file in tmp_path.glob("*x*")) == [name, f"{name}-copy"]


def test_a_folder_without_images_and_images_by_number_are_refused(catalogue, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no files"):
        catalogue.index(tmp_path / "empty")
    assert len(catalogue) == 12
    with pytest.raises(StorageError, match="not empty"):
        Catalogue.create(tmp_path / "catalogue", catalogue.tagger)


def test_the_date_is_that_of_the_camera(tmp_path, catalogue, photos):
    exif = Image.Exif()
    exif[306] = "2024:05:31 10:20:30"
    Image.new("RGB", (8, 8)).save(photos / "dated.jpg", exif=exif)
    exif.get_ifd(0x8769)[0x9003] = "2023:01:02 03:04:05"
    Image.new("RGB", (9, 8)).save(photos / "shot.jpg", exif=exif)
    exif.get_ifd(0x8769)[0x9003] = "0000:00:00 00:00:00"
    del exif[306]
    Image.new("RGB", (9, 9)).save(tmp_path / "never.jpg", exif=exif)
    catalogue.index(photos)
    taken = {os.path.basename(record.path): record.taken for record in catalogue.records}
    assert (taken["dated.jpg"], taken["shot.jpg"]) == ("2024-05-31T10:20:30", "2023-01-02T03:04:05")
    assert taken["000.png"] is None
    assert exif_of(tmp_path / "never.jpg").taken is None
    assert exif_of(tmp_path / "nowhere.jpg") == Exif()


def dated(path, original, digitized=None, changed="2021:01:01 00:00:00"):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = original
    if digitized is not None:
        exif.get_ifd(0x8769)[0x9004] = digitized
    exif[306] = changed
    Image.new("RGB", (8, 8), (9, 9, len(str(path)))).save(path, exif=exif)
    return path


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("2020:7:1 9:5:3", "2020-07-01T09:05:03"),
        ("2020/07/01 10:00:00", "2020-07-01T10:00:00"),
        ("2020.07.01 10.20.30", "2020-07-01T10:20:30"),
        ("20200701 100000", "2020-07-01T10:00:00"),
        ("20200701T1020", "2020-07-01T10:20:00"),
        ("20200701102030", "2020-07-01T10:20:30"),
        ("20200701", "2020-07-01"),
        ("2020:07:01 10:20", "2020-07-01T10:20:00"),
        ("2020-07-01T10:20:30", "2020-07-01T10:20:30"),
        ("2020-07-01T10:20:30.125+02:00", "2020-07-01T10:20:30"),
        ("2020:07:01 10:20:30Z", "2020-07-01T10:20:30"),
        ("2020:07:01  10:20:30", "2020-07-01T10:20:30"),
        ("2020: 7: 1  9: 5: 3", "2020-07-01T09:05:03"),
        ("2020:07:01\x0010:20:30", "2020-07-01T10:20:30"),
        ("2020:07:01 10:20:30\x00\x00", "2020-07-01T10:20:30"),
        ("2020:07:01 02:20:30 PM", "2020-07-01T14:20:30"),
        ("2020:07:01 12:20:30 am", "2020-07-01T00:20:30"),
        ("2020:07:01 24:61:00", "2020-07-01"),
        ("2020:07:01", "2020-07-01"),
    ],
)
def test_a_date_is_read_in_every_spelling_that_has_one_meaning(text, taken, tmp_path):
    unread = []
    assert exif_of(dated(tmp_path / "1.jpg", text), unread=unread).taken == taken
    assert unread == []


@pytest.mark.parametrize("blank", ["0000:00:00 00:00:00", "    :  :     :  :  ", "", "\x00" * 19, "--", "0"])
def test_a_date_that_is_not_set_leaves_the_next_one(blank, tmp_path):
    assert exif_of(dated(tmp_path / "1.jpg", blank)).taken == "2021-01-01T00:00:00"
    assert exif_of(dated(tmp_path / "2.jpg", blank, "2020:07:01 10:00:00")).taken == "2020-07-01T10:00:00"


ODD_DATES = ["01/07/2020 10:00", "last summer", "2020:13:01 10:00:00", "2020:02:30", "2020", "202007011", "20:07:01"]


@pytest.mark.parametrize("text", ODD_DATES)
def test_a_date_that_cannot_be_read_is_none_and_no_other_takes_its_place(text, tmp_path):
    unread = []
    photo = dated(tmp_path / "1.jpg", text, "2020:07:01 10:00:00")
    assert exif_of(photo, unread=unread).taken is None
    assert unread == [f"{photo} ('{text}')"]


def test_photos_whose_date_cannot_be_read_are_counted_and_the_first_is_named(catalogue, photos):
    for number, text in enumerate(("last summer", "never", "2020:07:01 10:00:00")):
        dated(photos / f"odd{number}.jpg", text)
    done = catalogue.index(photos)
    assert done.remarks == [
        f"Without a date: 2 photos whose date cannot be read, such as {photos / 'odd0.jpg'} ('last summer')."
    ]
    assert catalogue.index(photos).remarks == []


def placed(path, latitude=((48, 8, 13.92), "N"), longitude=((11, 34, 31.8), "W"), **camera):
    """Draw a photo that says where it was taken, and by which camera."""
    exif = Image.Exif()
    for number, name in ((271, "make"), (272, "model")):
        if name in camera:
            exif[number] = camera[name]
    gps = exif.get_ifd(0x8825)
    gps[2], gps[1] = latitude
    gps[4], gps[3] = longitude
    Image.new("RGB", (8, 8), (90, 120, len(path.name))).save(path, exif=exif)
    return path


@pytest.mark.parametrize(
    ("make", "model", "name"),
    [
        ("NIKON CORPORATION", "NIKON D90", "NIKON D90"),
        ("FUJIFILM", "X-T3", "FUJIFILM X-T3"),
        ("Canon\0\0", " ", "Canon"),
        ("", "", None),
    ],
)
def test_the_camera_is_named_once(make, model, name, tmp_path):
    assert exif_of(placed(tmp_path / "a.jpg", make=make, model=model)).camera == name


def test_the_place_is_read_in_degrees_north_and_east(tmp_path):
    assert exif_of(placed(tmp_path / "a.jpg"))[2:] == pytest.approx((48.137200, -11.575500))


@pytest.mark.parametrize(
    "latitude",
    [((0, 0, 0), "N"), ((91, 0, 0), "N"), ((IFDRational(1, 0), 0, 0), "N"), ((48, 8), "N")],
    ids=["zeros", "beyond the pole", "no number", "two parts"],
)
def test_what_is_no_place_is_left_out(latitude, tmp_path):
    assert exif_of(placed(tmp_path / "a.jpg", latitude=latitude, longitude=((0, 0, 0), "E")))[2:] == (None, None)


def test_the_command_makes_and_updates_and_counts(run, photos, tmp_path):
    out = tmp_path / "made"

    def index(*arguments):
        done = CliRunner().invoke(app, ["index", *map(str, arguments), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert index(run, photos, "-o", out)["new"] == 12
    draw_photo(photos / "new.png", "red", 500)
    facts = index(out, photos)
    assert (facts["new"], facts["kept"], facts["images"]) == (1, 12, 13)
    assert index(run, photos, "-o", out)["kept"] == 13
    refused = CliRunner().invoke(app, ["index", str(run), str(photos)])
    assert "-o CATALOGUE" in refused.output + str(refused.exception)
    refused = CliRunner().invoke(app, ["index", str(tmp_path / "mistyped"), str(photos)])
    assert "no run or catalogue at" in refused.output + str(refused.exception)


def test_tags_of_a_file_keep_to_the_bounds_of_all_tags_and_nothing_is_written_before_that_is_known(catalogue, photos):
    paths = sorted(photos.iterdir())
    with pytest.raises((UserError, TagFileError), match="201 letters; a tag has at most 200"):
        catalogue.index(paths, tags=[["red"]] * 11 + [["x" * 201]])
    assert catalogue.image(0).tags == []


def test_a_file_with_more_tags_than_a_person_gives_at_once_stops_no_others(catalogue, photos):
    many = [f"tag {i}" for i in range(101)]
    catalogue.index(sorted(photos.iterdir()), tags=[["red"]] * 11 + [many])
    assert len(catalogue.image(11).tags) == 101
    assert catalogue.image(0).tags


def test_a_long_tag_of_an_earlier_version_is_found_and_taken_away(catalogue):
    long = "y" * 300
    catalogue.stored.tags.give(0, [long], "person")
    assert [hit.id for hit in catalogue.browse(Filter(tags=(long,)), 0).hits] == [0]
    catalogue.take(0, [long])
    assert catalogue.image(0).tags == []


def test_full_paths_are_those_of_each_file_but_each_folder_is_resolved_once(tmp_path, monkeypatch):
    for folder in ("real", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jpg").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "b.jpg").symlink_to("../other/a.jpg")
    monkeypatch.chdir(tmp_path)
    written = [
        "real/a.jpg",
        "link/a.jpg",
        "link/../real/a.jpg",
        "real/b.jpg",
        "real/",
        "real/..",
        ".",
        "a.jpg",
        "//x/a",
    ]
    assert files.full_paths(written) == [os.path.realpath(os.path.abspath(path)) for path in written]
    assert files.full_paths(["link/b.jpg"], follow_files=False) == [str(tmp_path / "real" / "b.jpg")]

    resolved = []
    monkeypatch.setattr(files.os.path, "realpath", lambda path: resolved.append(path) or path)
    files.full_paths([tmp_path / "real" / f"{number}.jpg" for number in range(100)])
    assert resolved == [str(tmp_path / "real")]


def test_the_photos_of_a_folder_are_listed_as_texts_which_take_less_memory_than_paths(catalogue, photos):
    listed = photos_of(catalogue.tagger.encoder, photos)
    assert {type(item) for item in listed.items} == {str}
    assert listed.items == [str(path) for path in sorted(photos.glob("*.png"))]
