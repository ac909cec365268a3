"""Several photos chosen in a grid and tagged at once, in a browser: by keys, by check boxes, at three widths."""

from __future__ import annotations

import re

import pytest

from axe import violations
from served_library import WITH_TAGS, make_catalogue, served
from test_pages import Window
from visterm import Catalogue
from visterm.store.filters import Filter


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("served"), 80)


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture(scope="module")
def catalogue(path):
    catalogue = Catalogue.load(path, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture
def window(request, browser, address, artefacts):
    width, scheme = getattr(request, "param", (1400, "light"))
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []


def chosen(page):
    return [int(box.get_attribute("value")) for box in page.locator(".choose:checked").all()]


def ids_in(page):
    return [int(box.get_attribute("value")) for box in page.locator("#grid .choose").all()]


def tagged(catalogue, tag):
    return set(catalogue.stored.find(Filter(tags=(tag,))).tolist())


def test_photos_are_chosen_and_tagged_by_keys_alone_and_that_is_undone(window, catalogue):
    page = window.open("/")
    ids = ids_in(page)
    window.press("j", "x", "j", "j", "x")
    assert chosen(page) == [ids[0], ids[2]]
    window.press("Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowLeft")
    assert chosen(page) == [ids[0], ids[2], ids[3]]
    assert page.inner_text("#n-chosen") == "3 photos"
    window.press("a")
    page.keyboard.type("harvest")
    window.press("Enter")
    page.locator("#step", has_text="“harvest” added to 3 photos").wait_for()
    assert tagged(catalogue, "harvest") == {ids[0], ids[2], ids[3]}
    assert page.locator(".hit:has(.choose:checked) .mark").count() == 3
    window.press("u")
    page.locator("#step", has_text="Undone for 3 photos").wait_for()
    assert tagged(catalogue, "harvest") == set()
    assert page.locator(".mark.now").count() == 0
    window.press("Escape")
    assert chosen(page) == []
    assert not page.locator("#chosen-bar").is_visible()
    window.press("Control+a")
    assert set(ids) <= set(chosen(page))
    assert page.locator("#chosen-bar").is_visible()


def test_a_range_is_chosen_by_shift_and_click_and_a_tag_is_completed_and_removed(window, catalogue):
    page = window.open("/?tag=sky")
    ids = ids_in(page)
    boxes = page.locator("#grid .choose")
    boxes.nth(1).check()
    boxes.nth(4).click(modifiers=["Shift"])
    assert chosen(page) == ids[1:5]
    boxes.nth(3).click(modifiers=["Shift"])
    assert chosen(page) == [*ids[1:3]]
    window.press("r")
    page.keyboard.type("sk")
    page.locator(".completions:visible li", has_text="sky").first.wait_for()
    window.press("ArrowDown", "Enter", "Enter")
    page.locator("#step", has_text="“sky” removed from 2 photos").wait_for()
    assert not tagged(catalogue, "sky") & set(ids[1:3])
    page.locator("#undo-step").click()
    page.locator("#step", has_text="Undone").wait_for()
    assert set(ids) <= tagged(catalogue, "sky")


def test_the_searched_word_is_wrong_for_the_chosen_and_all_counts_follow_at_once(window, catalogue):
    page = window.open("/?q=sky")
    page.locator("#facets > summary").click()
    count = page.locator("#facets .tree a", has_text=re.compile("^sky$")).locator("xpath=..")
    before = int(re.search(r"\d+", count.inner_text())[0])
    with_it = [image_id for image_id in ids_in(page) if image_id in tagged(catalogue, "sky")][:2]
    for image_id in with_it:
        page.locator(f'#grid .choose[value="{image_id}"]').check()
    window.press("n")
    page.locator("#step", has_text="“sky” is wrong for 2 photos").wait_for()
    assert page.locator("#grid .hit.is-wrong").count() == 2
    window.until(f"document.querySelector('#facets .tree')?.textContent.match(/sky\\s+(\\d+)/)[1] == {before - 2}")
    assert not set(with_it) & set(ids_in(window.open("/?q=sky")))
    step = catalogue.stored.history.latest(1)[0]
    page.request.post(f"{window.address}/api/v1/steps/{step.id}/undo")
    assert set(with_it) <= tagged(catalogue, "sky")


WINDOWS = [(390, "dark"), (820, "light"), (1400, "light"), (1400, "dark")]


@pytest.mark.parametrize("window", WINDOWS, indirect=True, ids=[f"{width}-{scheme}" for width, scheme in WINDOWS])
def test_the_bar_of_the_chosen_fits_and_axe_finds_nothing_wrong(window):
    page = window.open("/?q=sky")
    page.locator("#grid .choose").nth(1).check()
    window.press("y")
    page.locator("#step", has_text="is right for 1 photo").wait_for()
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("#chosen-bar").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert violations(page) == []
    window.shoot(f"chosen_{width}")
    page.locator("#undo-step").click()
    page.locator("#step", has_text="Undone").wait_for()


def test_photos_of_a_tag_and_similar_photos_are_chosen_too(window, catalogue):
    page = window.open("/tag?name=sky")
    page.locator(".choose").nth(0).check()
    page.locator(".choose").nth(2).check()
    page.locator("#chosen [value=right]").click()
    page.locator("#step", has_text="“sky” is right for 2 photos").wait_for()
    page = window.open(f"/image/{WITH_TAGS - 30}")
    page.locator("#alike .choose").nth(0).check()
    assert page.locator("#chosen-bar").is_visible()
    assert page.locator("#chosen [value=right]").count() == 0
