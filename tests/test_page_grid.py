"""Review in grids, in a browser: the wrong ones are marked, one key accepts the rest, and undo takes all of it back."""

from __future__ import annotations

import re

import httpx
import pytest

from axe import violations
from served_library import make_catalogue, served
from test_pages import Window
from visterm import Catalogue
from visterm.library.steps import REVIEW
from visterm.store.tags import Prediction

N_SURE, N_ON_SCREEN = 60, 24
SURE, NEXT = "balloon", "kite"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = make_catalogue(tmp_path_factory.mktemp("served"), 80)
    catalogue = Catalogue.load(folder, n_jobs=1)
    stored = catalogue.stored
    certain = {i: [Prediction(SURE, 1.0, 0.99 - i / 1000), Prediction(NEXT, 0.5, 0.6)] for i in range(1, 11)}
    likely = {i: [Prediction(SURE, 1.0, 0.99 - i / 1000)] for i in range(11, N_SURE + 1)}
    others = {record.id: [Prediction(SURE, 0.1, 0.3)] for record in catalogue.records}
    stored.tags.set_predictions(stored.runs.current().id, others | certain | likely)
    stored.close()
    return folder


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
    width, height, scheme = getattr(request, "param", (1400, 860, "light"))
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 1000
    )
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []


def shown(page):
    return [int(box.get_attribute("value")) for box in page.locator(".tile [name=wrong]").all()]


def wait_for_photos(window, n=N_ON_SCREEN):
    window.until(f"document.querySelector('#n-right').textContent == '{n}'")


def verdicts(catalogue, tag=SURE):
    answers = catalogue.stored.tags.answers()
    return {image_id: accepted for image_id, name, accepted, _ in answers if name == tag}


def test_the_wrong_ones_are_marked_by_keys_one_key_accepts_the_rest_and_undo_takes_back_the_screen(window, catalogue):
    page = window.open("/review/grid")
    first = shown(page)
    assert first == list(range(1, 25))
    wait_for_photos(window)
    window.press("3", "a")  # the keys that are on photos
    window.press("ArrowRight", "ArrowRight", "x", "x")
    wait_for_photos(window, 22)
    window.press("y")
    page.locator("#said", has_text=f"{SURE}: 22 right, 2 wrong").wait_for()
    assert verdicts(catalogue) == {image: image not in (first[2], first[10]) for image in first}
    wait_for_photos(window)
    assert shown(page) == list(range(25, 49))
    [event] = catalogue.stored.history.of(REVIEW)
    assert (event.details["accepted_in_bulk"], event.details["rejected"]) == (22, 2)
    window.press("u")
    page.locator("#said", has_text="undone for 24 photos").wait_for()
    wait_for_photos(window, 22)
    assert shown(page) == first
    assert [int(box.get_attribute("value")) for box in page.locator(".tile :checked").all()] == [first[2], first[10]]
    assert verdicts(catalogue) == {}


def test_photos_that_were_not_wholly_on_the_screen_are_not_accepted_and_come_again(window, catalogue):
    page = window.page
    page.set_viewport_size({"width": 1400, "height": 420})
    window.open("/review/grid")
    window.until("[...document.querySelectorAll('.tile img')].every((photo) => photo.complete)")
    seen = int(page.inner_text("#n-right"))
    assert 0 < seen < N_ON_SCREEN
    before = shown(page)
    window.press("y")
    page.locator("#said", has_text=f"{seen} right, 0 wrong").wait_for()
    assert list(verdicts(catalogue)) == before[:seen]
    assert shown(page)[0] == before[seen]
    window.press("u")
    page.locator("#said", has_text="undone for").wait_for()


def test_a_tag_is_skipped_and_comes_again_and_a_tag_without_sure_photos_says_so(window):
    page = window.open(f"/review/grid?tag={SURE}")
    window.press("s")
    page.locator("h1", has_text=f"{NEXT}?").wait_for()
    assert len(shown(page)) == 10
    window.press("s")
    page.locator("h1", has_text="No more sure ones").wait_for()
    window.press("u")
    page.locator("h1", has_text=f"{NEXT}?").wait_for()
    assert "No photo is left that probably has “dragon”" in window.open("/review/grid?tag=dragon").inner_text("#screen")


def test_without_the_script_the_form_accepts_all_photos_but_the_marked_ones(address, catalogue):
    def hidden(html, name):
        return re.search(rf'name="{name}" value="([^"]*)"', html)[1].replace("&#34;", '"')

    with httpx.Client(base_url=address, timeout=600) as client:
        page = client.get("/review/grid").text
        images = re.findall(r'name="image" value="(\d+)"', page)
        form = {"do": "accept", "tag": hidden(page, "tag"), "trail": "[]", "image": images, "wrong": images[:2]}
        answered = client.post("/review/grid", data=form).text
        assert verdicts(catalogue) == {int(image): image not in images[:2] for image in images}
        undone = client.post("/review/grid", data={"do": "undo", "trail": hidden(answered, "trail")}).text
        assert re.findall(r'name="image" value="(\d+)"', undone) == images
        assert verdicts(catalogue) == {}
        assert "There is nothing to undo" in client.post("/review/grid", data={"do": "undo"}).text
        for wrong in ({"do": "burn"}, {"do": "accept", "tag": SURE}, {"do": "undo", "trail": '[[1, "a"]]'}):
            assert client.post("/review/grid", data=wrong).status_code == 422, wrong


WINDOWS = [(390, 800, "dark"), (820, 1100, "light"), (1400, 860, "light"), (1400, 860, "dark")]


@pytest.mark.parametrize("window", WINDOWS, indirect=True, ids=[f"{width}-{scheme}" for width, _, scheme in WINDOWS])
def test_the_grid_fits_each_screen_and_is_pressed_by_a_finger(window, catalogue):
    page = window.open("/review/grid")
    width = page.viewport_size["width"]
    second = page.locator(".tile label").nth(1)
    second.tap() if width < 1000 else second.click()
    assert page.locator(".tile :checked").count() == 1
    if width < 500:  # a phone shows the last photos after scrolling
        for number in range(0, N_ON_SCREEN, 3):
            page.locator(".tile").nth(number).evaluate("(tile) => tile.scrollIntoView({ block: 'center' })")
            window.until(f"!document.querySelectorAll('[name=image]')[{number}].disabled")
    wait_for_photos(window, N_ON_SCREEN - 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    window.shoot(f"grid_{width}")
    page.locator("#answers [value=accept]").click()
    page.locator("#said", has_text=f"{SURE}: 23 right, 1 wrong").wait_for()
    page.locator("#answers [value=undo]").click()
    page.locator("#said", has_text="undone for 24 photos").wait_for()
    assert verdicts(catalogue) == {}


def test_the_page_of_a_tag_opens_the_review_of_its_photos(window, catalogue):
    catalogue.give(N_SURE + 1, [SURE])
    page = window.open(f"/tag?name={SURE}")
    page.get_by_role("link", name="Review its photos").click()
    page.locator("h1", has_text=f"{SURE}?").wait_for()
    assert len(shown(page)) == N_ON_SCREEN
    assert violations(window.open(f"/tag?name={SURE}")) == []


def test_chances_that_are_shown_alike_are_no_range(address):
    def chances(tag):
        text = httpx.get(f"{address}/review/grid", params={"tag": tag}, timeout=600).text
        return re.search(r"wrong\. (.*?), ", text.replace("\N{NO-BREAK SPACE}", " "))[1]

    assert chances(NEXT) == "60 % likely"
    assert chances(SURE) == "99 % to 97 % likely"
