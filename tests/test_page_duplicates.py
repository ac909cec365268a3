"""Photos that look the same, side by side in a browser: one of each is kept, the others hidden, and all undone."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image

from axe import violations
from command_line import run_command
from served_library import served
from test_pages import Window
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.core.errors import DataError, UserError
from visterm.library.duplicates import find_duplicates, keeper_by
from visterm.library.info import describe
from visterm.library.steps import Choice, keep_one_of_each, undo_step

ALIKE = ((0, 2, 4), (1, 3), (5, 7))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Make a catalogue with three groups of photos that look the same."""
    tiny = make_tiny_catalogue(tmp_path_factory.mktemp("alike"))
    Image.open(tiny.photos / "02.jpg").resize((128, 96)).save(tiny.photos / "02.jpg")
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    catalogue.index(tiny.photos)
    hashes = {image_id: (place + 1) * 0x0F0F0F0F0F0F for place, group in enumerate(ALIKE) for image_id in group}
    hashes |= {image_id: image_id * 0x1234567890ABC for image_id in range(8, 24)}
    catalogue.stored.images.set_phashes(hashes.items())
    catalogue.give(4, ["harvest"])
    catalogue.stored.close()
    return tiny


@pytest.fixture
def catalogue(tiny):
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture(scope="module")
def address(tiny):
    with served(tiny.folder) as address:
        yield address


@pytest.fixture
def window(request, browser, address, artefacts):
    width, scheme = getattr(request, "param", (1400, "light"))
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []


def here(catalogue):
    return {record.id for record in catalogue.records}


def test_rules_choose_the_largest_the_oldest_that_with_most_tags_or_in_a_folder(catalogue):
    images = catalogue.stored.images.get_many([0, 2, 4])
    tags = catalogue.stored.tags.held()
    assert keeper_by("largest", images, tags).id == 2
    assert keeper_by("oldest", images, tags).id == min(images, key=lambda one: one.mtime_ns).id
    assert keeper_by("most tags", images, tags).id == 4
    assert keeper_by("folder", images, tags, images[0].folder).id == 0
    assert keeper_by("folder", images, tags, "/elsewhere") is None
    with pytest.raises(UserError, match="expected one of: largest, oldest"):
        keeper_by("smallest", images, tags)


def test_hidden_photos_are_not_found_stay_hidden_when_indexed_again_and_come_back(tiny, catalogue):
    before, tags = here(catalogue), catalogue.image(0).tags
    step = keep_one_of_each(catalogue, [Choice(0, [2, 4])])
    assert here(catalogue) == before - {2, 4}
    assert "harvest" in catalogue.image(0).tags
    assert not {2, 4} & {hit.id for hit in catalogue.search("stripes", 24).hits}
    done = catalogue.index(tiny.photos)
    assert (done.new, done.moved, done.gone) == (0, 0, 0)
    assert here(catalogue) == before - {2, 4}
    assert [record.id for record in catalogue.stored.images.hidden()] == [2, 4]
    assert describe(tiny.folder)["hidden images"] == 2
    undo_step(catalogue, step.number)
    assert here(catalogue) == before
    assert catalogue.image(0).tags == tags
    assert catalogue.stored.images.hidden() == []
    assert (tiny.photos / "02.jpg").exists()
    with pytest.raises(UserError, match="undone already"):
        undo_step(catalogue, step.number)


def test_what_cannot_be_hidden_changes_nothing(catalogue):
    before = here(catalogue)
    for wrong in ([Choice(0, [0])], [Choice(0, [])], [Choice(0, [2]), Choice(2, [4])], []):
        with pytest.raises(UserError):
            keep_one_of_each(catalogue, wrong)
    with pytest.raises(DataError):
        keep_one_of_each(catalogue, [Choice(0, [2, 999])])
    assert here(catalogue) == before


def test_a_file_that_has_changed_since_it_was_hidden_is_indexed_again(tmp_path):
    tiny = make_tiny_catalogue(tmp_path)
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    keep_one_of_each(catalogue, [Choice(0, [2])])
    Image.new("RGB", (70, 50), (9, 99, 9)).save(tiny.photos / "02.jpg")
    catalogue.index(tiny.photos)
    assert any(record.name == "02.jpg" for record in catalogue.records)


def test_the_command_keeps_by_a_rule_and_hides(tiny, tmp_path):
    folder = tmp_path / "catalogue"
    shutil.copytree(tiny.folder, folder)
    listed = run_command(["duplicates", folder, "--keep", "most tags", "--json"]).stdout.splitlines()
    assert json.loads(listed[0])["keep"]["id"] == 4
    inside = run_command(["duplicates", folder, "--keep", tiny.photos])
    assert inside.returncode == 0
    assert "--keep is 'odd'; expected largest" in run_command(["duplicates", folder, "--keep", "odd"]).stderr
    run_command(["duplicates", folder, "--keep", "most tags", "--hide"])
    hidden = [image.path for image in Catalogue.load(folder).stored.images.hidden()]
    assert hidden == [str(tiny.photos / f"{number:02d}.jpg") for number in (0, 2, 3, 7)]
    assert len(find_duplicates(Catalogue.load(folder).stored, hash_new=False).groups) == 0


def test_one_of_a_group_is_kept_by_keys_and_that_is_undone(window, catalogue):
    page = window.open("/duplicates")
    assert page.locator(".side-by-side").count() == 3
    first = page.locator(".side-by-side").first
    assert first.locator("[name=keep]:checked").get_attribute("value") == "2"
    assert "128 × 96" in first.locator("strong").all_inner_texts()
    window.press("j", "j", "y")
    page.locator(".kept", has_text="kept, 2 photos hidden").wait_for()
    assert len({0, 2, 4} & here(catalogue)) == 1
    assert page.request.get(f"{window.address}/duplicates/files.txt").text().count(".jpg") == 2
    [gone, _] = catalogue.stored.images.hidden()
    assert "This photo is hidden" in page.request.get(f"{window.address}/image/{gone.id}").text()
    window.press("u")
    page.locator(".side-by-side").nth(2).wait_for()
    assert {0, 2, 4} <= here(catalogue)


def test_all_groups_are_resolved_by_a_rule_at_once_and_that_is_undone(window, catalogue):
    page = window.open("/duplicates?rule=most+tags")
    page.wait_for_load_state("networkidle")  # a thumbnail of a photo that is hidden by now would be missing
    page.locator("#group-all summary").click()
    page.locator("#group-all button.main").click()
    page.locator(".kept", has_text="One photo of each of 3 groups kept").wait_for()
    assert {4} == {0, 2, 4} & here(catalogue)
    assert "No duplicates found" in page.request.get(f"{window.address}/duplicates").text()
    page.locator(".undo-keep").click()
    page.locator(".kept", has_text="Undone").wait_for()
    assert {0, 1, 2, 3, 4, 5, 7} <= here(catalogue)


WINDOWS = [(390, "dark"), (820, "light"), (1400, "dark")]


@pytest.mark.parametrize("window", WINDOWS, indirect=True, ids=[f"{width}-{scheme}" for width, scheme in WINDOWS])
def test_groups_fit_and_axe_finds_nothing_wrong(window):
    page = window.open("/duplicates")
    page.wait_for_load_state("networkidle")
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    one, other = (page.locator(".side-by-side").first.locator("li").nth(place).bounding_box() for place in (0, 1))
    assert one["y"] == other["y"]  # beside each other on a phone, too
    assert one["x"] + one["width"] <= other["x"]
    window.shoot(f"duplicates_{width}")
