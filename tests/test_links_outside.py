"""Links that lead out of a photo folder: not indexed, not served and not written through, unless asked for."""

from __future__ import annotations

import pytest

from tiny_catalogues import draw_photo, draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.core.types import Skipped
from visterm.library.export.items import ExportItem, Predicted
from visterm.library.export.writing import export_tags, make_target
from visterm.library.photos import LEADS_OUT, stays_inside

SEA = (Predicted("sea", 0.9),)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")


@pytest.fixture
def photos(tmp_path):
    """Three photos, a link to one of them, and a link to one outside."""
    draw_photos(tmp_path / "photos", 3)
    (tmp_path / "elsewhere").mkdir()
    draw_photo(tmp_path / "elsewhere" / "secret.png", "red", 90)
    (tmp_path / "photos" / "again.png").symlink_to("000.png")
    (tmp_path / "photos" / "link.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    return tmp_path / "photos"


def test_a_link_out_of_the_folder_is_indexed_only_on_request(run, photos, tmp_path):
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    done = catalogue.index(photos)
    assert (done.new, done.skipped) == (3, [Skipped(str(photos / "link.png"), LEADS_OUT)])
    assert catalogue.index(photos).kept == 4  # and the link to a photo of the folder
    assert catalogue.stored.skipped.count() == 1
    asked = catalogue.index(photos, follow_links=True)
    assert (asked.new, asked.skipped, catalogue.stored.skipped.count()) == (1, [], 0)
    assert catalogue.index(photos).gone == 0  # what an earlier one took in stays
    assert len(catalogue) == 4


def test_the_folder_that_is_named_may_be_a_link_itself(run, photos, tmp_path):
    (tmp_path / "mine").symlink_to(photos)
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    assert catalogue.index(tmp_path / "mine").new == 3


def test_a_photo_that_became_a_link_out_of_the_folders_is_not_shown_and_one_inside_is(run, photos, tmp_path):
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(photos)
    path = photos / "001.png"
    assert stays_inside(catalogue.stored, str(path))
    path.rename(photos / "moved.png")
    path.symlink_to(photos / "moved.png")
    assert stays_inside(catalogue.stored, str(path))
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere" / "secret.png")
    assert not stays_inside(catalogue.stored, str(path))
    photos.rename(tmp_path / "disk")
    photos.symlink_to(tmp_path / "disk")  # as when a library moves to another disk
    assert stays_inside(catalogue.stored, str(photos / "002.png"))


@pytest.mark.parametrize(
    ("to", "ending", "there"), [("txt", ".txt", False), ("txt", ".txt", True), ("xmp", ".png.xmp", True)]
)
def test_tags_are_not_written_through_a_link_out_of_the_folder(photos, tmp_path, to, ending, there):
    image, outside = photos / "000.png", tmp_path / "elsewhere" / f"theirs{ending}"
    image.with_name(f"000{ending}").symlink_to(outside)
    if there:
        made = make_target(to)
        list(export_tags([ExportItem(tmp_path / "elsewhere" / "theirs.png", (), (Predicted("sky", 0.8),))], made))
    before = {path.name: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()}
    (skipped,) = export_tags([ExportItem(image, (), SEA)], make_target(to))
    assert "out of its folder, and is not followed" in skipped.reason
    assert {path.name: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()} == before


def test_notes_of_texts_are_not_written_through_a_link_out_of_the_folder(photos, tmp_path):
    (photos / ".visterm_texts.jsonl").symlink_to(tmp_path / "elsewhere" / "notes")
    (skipped,) = export_tags([ExportItem(photos / "000.png", (), SEA)], make_target("txt"))
    assert "out of its folder" in skipped.reason
    assert not (tmp_path / "elsewhere" / "notes").exists()
