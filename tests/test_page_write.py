"""Tags are written from the page, in a browser: what would be written, writing it, undo; and a download."""

from __future__ import annotations

import pytest

from axe import violations
from served_library import make_catalogue, served
from test_export import files
from test_pages import Window

SECONDS = 600_000.0  # For a job, in milliseconds


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("written"), 80)


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture
def window(browser, address, artefacts):
    context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True)
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []


def test_tags_are_shown_written_and_removed_again_by_the_page_alone(window, path):
    photos = path.parent / "library"
    before = files(photos)
    page = window.open("/library")
    page.locator("a", has_text="Write tags").click()
    page.locator("select[name=to]").select_option("digikam")
    page.locator("[name=branch]").check()
    page.locator("button", has_text="Show what would be written").click()
    page.locator(".job.done .message", has_text="right; with precision 0.9:").wait_for(timeout=SECONDS)
    assert files(photos) == before
    assert page.locator(".job .message").inner_text().startswith("Would add ")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 860})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        window.shoot(f"write_{width}")
    page.locator("button", has_text="Write these tags").click()
    page.locator(".job.done .message", has_text="In digiKam, switch on").wait_for(timeout=SECONDS)
    sidecars = [*photos.rglob("*.xmp")]
    assert len(sidecars) >= 70
    assert any(b"visterm/" in sidecar.read_bytes() for sidecar in sidecars)
    page.locator("button", has_text="Undo").click()
    page.locator(".job.done .message", has_text="Removed ").wait_for(timeout=SECONDS)
    assert files(photos) == before


def test_chosen_photos_are_downloaded_and_stay_chosen(window):
    page = window.open("/?tag=sky")
    window.press("j", "x", "j", "x")
    with page.expect_download() as zipped:
        window.press("d")
    assert zipped.value.suggested_filename == "photos.zip"
    with page.expect_download() as table:
        page.locator("button", has_text="List (CSV)").click()
    assert table.value.suggested_filename == "photos.csv"
    assert page.inner_text("#n-chosen") == "2 photos"
