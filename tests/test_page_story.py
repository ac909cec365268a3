"""The story that people go through on the page: tag by hand, search, reject, learn, compare, go back."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from served_library import served
from test_pages import Window, artefacts, browser  # noqa: F401  # fixtures
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue

N_IMAGES = 240  # So many that 20 photos with tags are held out, from which on runs can be told apart


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Make a catalogue whose run has never seen the photos that are held out."""
    tiny = make_tiny_catalogue(tmp_path_factory.mktemp("story"), "text_ridge", N_IMAGES)
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    catalogue.learn()
    catalogue.stored.close()
    return tiny.folder


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture
def window(request, browser, address, artefacts):  # noqa: F811
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme=request.param)
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []
    assert window.hosts <= {urlsplit(address).netloc, ""}


def ids_in(page):
    return [int(link.get_attribute("href").split("/")[2].split("?")[0]) for link in page.locator("[data-item]").all()]


@pytest.mark.parametrize("window", ["light"], indirect=True)
def test_tag_search_reject_learn_compare_and_go_back(window, path):
    catalogue = Catalogue.load(path, n_jobs=1)
    before = catalogue.stored.runs.current()

    page = window.open("/image/7")  # a photo of dots
    window.press("t")
    page.keyboard.type("polka")
    window.press("Enter")
    page.locator('.held [data-tag="polka"]').wait_for()

    page = window.open("/")
    window.press("/")
    page.keyboard.type("polka")
    window.press("Enter")
    page.wait_for_url("**/?q=polka**")
    assert ids_in(page)[0] == 7

    page = window.open("/?q=dots")
    wrong = ids_in(page)[0]
    window.press("j", "Enter")
    page.locator('.held [data-tag="dots"]').focus()
    window.press("x")
    page.locator('.rejected [data-tag="dots"]').wait_for()
    page = window.open("/?q=dots")
    assert wrong not in ids_in(page)

    page = window.open("/review")
    window.press("l")
    page.locator("#learned .comparison", has_text=f"New: run {before.id + 1}").wait_for()
    learned = catalogue.stored.runs.current()
    text = page.inner_text("#learned")
    assert f"Old: run {before.id}" in text
    assert f"Run {learned.id} is in use." in text
    assert re.search(r"95 % interval [+−]\d\.\d{3} to [+−]\d\.\d{3}", text)

    page.locator("#learned summary", has_text="Go back").focus()
    window.press("Enter")
    assert "Your tags and answers stay" in page.inner_text("#learned")
    window.press("Tab", "Tab", "Enter")
    page.locator("#learned .job.done b", has_text="Go back").wait_for()
    assert catalogue.stored.runs.current().id == before.id
    window.open("/library")
    window.shoot("went_back")
