"""The story that people go through on the page: tag by hand, search, reject, learn, compare, go back; and its parts.

The tree of tags, the comparison of two runs and the queue of probable mistakes are looked at by axe-core, too, which
finds what people who don't see the page, or don't use a mouse, can't use.
"""

from __future__ import annotations

import re
import time
from urllib.parse import urlsplit

import httpx
import pytest

from axe import violations
from served_library import served
from test_pages import HASH, Window
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.library.training import is_held_out

N_IMAGES = 240  # So many that 20 photos with tags are held out, from which on runs can be told apart
TREE = [("dots", "pattern"), ("stripes", "pattern"), ("pattern", "look")]
WIDTHS = (1280, 768, 390)
COLOURS = ("light", "dark")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Make a catalogue whose run has never seen the photos that are held out."""
    tiny = make_tiny_catalogue(tmp_path_factory.mktemp("story"), "text_ridge", N_IMAGES, tree=TREE)
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    catalogue.learn()
    catalogue.stored.close()
    return tiny.folder


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture
def window(browser, address, artefacts):
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []
    assert window.hosts <= {urlsplit(address).netloc, ""}


def ids_in(page):
    return [int(link.get_attribute("href").split("/")[2].split("?")[0]) for link in page.locator("[data-item]").all()]


WIDER = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("main *")]
  .filter((element) => element.getBoundingClientRect().right > innerWidth && !element.closest(".scroll, .hidden"))
  .map((element) => element.outerHTML.slice(0, 120))"""


def look_at(window, name):
    """Refuse what axe-core finds wrong in the page as it is, and what is wider than it, in light and dark, 3 widths."""
    page = window.page
    size = page.viewport_size
    for colours in COLOURS:
        page.emulate_media(color_scheme=colours)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 860})
            if (colours == "dark") == (width == WIDTHS[0]):  # each width once: only the colours are others
                assert violations(page) == []
            assert page.evaluate(WIDER) == [], (name, width)
            window.shoot(f"{name}_{colours}_{width}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)


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
    page.locator("#learned .comparison", has_text=f"New: run {before.id + 1}, learned ").wait_for()
    learned = catalogue.stored.runs.current()
    text = page.inner_text("#learned")
    assert f"Old: run {before.id}, learned " in text
    assert f"Run {learned.id} is in use." in text
    assert re.search(r"95 % interval [+−]\d\.\d{3} to [+−]\d\.\d{3}", text)

    page.locator("#learned summary", has_text="Go back").focus()
    window.press("Enter")
    assert "Your tags and answers stay" in page.inner_text("#learned")
    window.press("Tab", "Tab", "Enter")
    page.locator("#learned .job.done b", has_text="Go back").wait_for()
    assert catalogue.stored.runs.current().id == before.id
    page = window.open("/library")
    assert not HASH.search(page.inner_text("main"))
    window.shoot("went_back")


def in_focus(page):
    return page.evaluate("document.activeElement.textContent")


def shown_tags(page):
    return [link.inner_text() for link in page.locator(".tree [data-item]").all() if link.is_visible()]


def test_the_tree_of_tags_is_unfolded_and_folded_by_keys(window):
    page = window.open("/tags")
    assert shown_tags(page)[0] == "look"
    assert "pattern" not in shown_tags(page)
    page.locator(".tree [data-item]").first.focus()
    window.press("ArrowRight")
    page.locator(".tree [data-item]", has_text="pattern").wait_for()
    window.press("j")
    assert in_focus(page) == "pattern"
    window.press("ArrowRight")
    page.locator(".tree [data-item]", has_text="dots").wait_for()
    assert shown_tags(page)[:2] == ["look", "pattern"]
    assert {"dots", "stripes"} <= set(shown_tags(page)[2:4])
    look_at(window, "tree")
    window.press("j")
    assert in_focus(page) in ("dots", "stripes")
    window.press("ArrowLeft")  # folds what it lies in
    assert in_focus(page) == "pattern"
    assert "dots" not in shown_tags(page)
    window.press("ArrowRight")
    assert "dots" in shown_tags(page)
    window.press("ArrowLeft")
    assert (in_focus(page), "dots" in shown_tags(page)) == ("pattern", False)
    window.press("ArrowLeft")
    assert in_focus(page) == "look"
    assert "pattern" not in shown_tags(page)
    window.press("v")
    page.locator("table.list").wait_for()
    window.press("v")
    page.locator(".tree").wait_for()


def test_tags_to_filter_by_are_unfolded_by_a_key(window):
    page = window.open("/?tag=thing")
    window.press("t")
    page.locator("#facets .tree").get_by_role("link", name="look", exact=True).wait_for()
    page.locator("#facets .tree summary", has_text="look").focus()
    window.press("Enter")
    pattern = page.locator("#facets .tree .tree").get_by_role("link", name="pattern", exact=True)
    pattern.wait_for()
    look_at(window, "facets")
    pattern.focus()
    window.press("Enter")
    page.wait_for_url("**tag=thing%2C+pattern**")


def test_a_worse_run_is_used_only_if_a_person_asks_for_it(window, path, address):
    catalogue = Catalogue.load(path, n_jobs=1)
    before = catalogue.stored.runs.current()
    other = {"dots": "stripes", "stripes": "dots"}
    with catalogue.stored.database.transaction():  # somebody mixes up two tags, on all photos that are learned from
        for record in catalogue.records:
            wrong = [tag for tag in catalogue.image(record.id).tags if tag in other and not is_held_out(record)]
            catalogue.stored.tags.remove(record.id, wrong)
            catalogue.stored.tags.give(record.id, [other[tag] for tag in wrong], "person")
    page = window.open("/review")
    window.press("l")
    # The button alone may still be of the run that was gone back from.
    page.locator("#learned .comparison", has_text="It isn’t in use, as it is worse.").wait_for()
    assert catalogue.stored.runs.current().id == before.id
    look_at(window, "worse")
    page.locator("#learned button", has_text="Use it anyway").focus()
    window.press("Enter")
    page.locator("#learned .job.done b", has_text="Use another run").wait_for()
    worse = catalogue.stored.runs.current()
    assert worse.id > before.id
    assert window.open("/library").locator("button", has_text="Use it anyway").count() == 0
    with httpx.Client(base_url=f"{address}/api/v1", timeout=600) as client:
        ask_for_it_by_a_program(client, before, worse)


def ask_for_it_by_a_program(client, better, worse):
    """Go back, and use the worse run again."""

    def in_use_after(**job):
        found = client.post("/jobs", json=job).raise_for_status().json()
        while found["state"] not in ("done", "failed"):
            time.sleep(0.05)
            found = client.get(f"/jobs/{found['id']}").json()
        assert (found["state"], found["error"]) == ("done", None)
        runs = client.get("/runs").json()["runs"]
        assert [run["comparison"]["verdict"] for run in runs if run["number"] == worse.id] == ["worse"]
        return next(run["number"] for run in runs if run["current"])

    assert in_use_after(kind="go back") == better.id
    assert in_use_after(kind="use run", run=worse.fingerprint) == worse.id


def test_probable_mistakes_are_asked_about_in_light_and_dark(window):
    page = window.open("/library")
    page.locator("button", has_text="Look for mistakes").click()
    page.locator(".job.done b", has_text="Look for mistakes").wait_for()
    page = window.open("/review?queue=questions")
    window.press("m")
    page.locator(".mistake").wait_for()
    look_at(window, "mistakes")
    tag = page.input_value(".answers [name=tag]")
    window.press("s")
    page.locator("#said", has_text=f"{tag} skipped").wait_for()
