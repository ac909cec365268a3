"""The map of the photos: places that keep alike photos together, kept and added to, and zoomed into in a browser."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from axe import violations
from command_line import run_command
from served_library import served
from test_pages import Window
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.core.errors import CorruptFileError, MissingExtraError
from visterm.library import photo_map
from visterm.library.photo_map import MAP_FILE, PhotoMap, draw_map, map_clusters, read_map


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Make a catalogue of so few photos that principal components are the map."""
    return make_tiny_catalogue(tmp_path_factory.mktemp("map"))


@pytest.fixture
def catalogue(tiny):
    catalogue = Catalogue.load(tiny.folder, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


def apart(found):
    """Distance of the middles of stripes and dots, in mean distances of photos from the middle of their kind."""
    kinds = [found.places[found.ids % 2 == kind] for kind in (0, 1)]
    spread = np.mean([np.linalg.norm(kind - kind.mean(axis=0), axis=1).mean() for kind in kinds])
    return np.linalg.norm(kinds[0].mean(axis=0) - kinds[1].mean(axis=0)) / spread


def test_photos_that_look_alike_lie_together_and_the_map_is_kept(catalogue):
    found = draw_map(catalogue)
    assert found.ids.tolist() == list(range(24))
    assert (found.places.min(), found.places.max()) == (0, 1)
    assert apart(found) > 1.5
    kept = read_map(catalogue.stored)
    np.testing.assert_array_equal(kept.places, found.places)
    np.testing.assert_array_equal(draw_map(catalogue, anew=True).places, found.places)


def test_new_photos_are_placed_by_their_neighbours_and_the_others_stay(catalogue, monkeypatch):
    whole = draw_map(catalogue)
    known = np.isin(whole.ids, [3, 8, 14, 21], invert=True)
    photo_map._write(catalogue.stored.folder / MAP_FILE, PhotoMap(whole.ids[known], whole.places[known]))
    monkeypatch.setattr(photo_map, "N_NEIGHBOURS", 3)
    monkeypatch.setattr(photo_map, "PHOTOS_PER_WRITE", 2)
    assert photo_map.n_not_on_map(catalogue.stored, read_map(catalogue.stored)) == 4
    found = draw_map(catalogue)
    assert found.ids.tolist() == list(range(24))
    np.testing.assert_array_equal(found.places[known], whole.places[known])
    assert apart(found) > 1.5
    assert ((found.places >= 0) & (found.places <= 1)).all()


def test_a_kill_between_two_chunks_loses_no_chunk_that_was_written(catalogue, monkeypatch):
    whole = draw_map(catalogue)
    photo_map._write(catalogue.stored.folder / MAP_FILE, PhotoMap(whole.ids[:16], whole.places[:16]))
    monkeypatch.setattr(photo_map, "PHOTOS_PER_WRITE", 3)
    write, written = photo_map._write, []

    def die_at_the_third(file, found):
        written.append(found)
        if len(written) == 3:
            raise KeyboardInterrupt
        write(file, found)

    monkeypatch.setattr(photo_map, "_write", die_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        draw_map(catalogue)
    assert len(read_map(catalogue.stored).ids) == 22
    monkeypatch.setattr(photo_map, "_write", write)
    found = draw_map(catalogue)
    assert len(found.ids) == 24
    np.testing.assert_array_equal(found.places[:22], written[1].places)


def test_photos_that_are_gone_are_not_on_the_map_and_a_damaged_map_is_said_to_be(tmp_path):
    catalogue = Catalogue.load(make_tiny_catalogue(tmp_path).folder, n_jobs=1)
    assert read_map(catalogue.stored) is None
    draw_map(catalogue)
    catalogue.stored.mark([5], "gone")
    assert 5 not in read_map(catalogue.stored).ids
    (catalogue.stored.folder / MAP_FILE).write_bytes(b"no map")
    with pytest.raises(CorruptFileError, match="draw the map again"):
        read_map(catalogue.stored)
    draw_map(catalogue, anew=True)
    assert len(read_map(catalogue.stored).ids) == 23


def test_groups_of_photos_are_named_by_the_tags_that_set_them_apart(catalogue, monkeypatch):
    found = draw_map(catalogue)
    monkeypatch.setattr(photo_map, "MAX_CLUSTERS", 2)
    sides = np.where(found.ids % 2 == 0, 0.1, 0.9).astype(np.float32)
    first, second = map_clusters(
        catalogue.stored, PhotoMap(found.ids, np.stack([sides, found.places[:, 1] / 9], axis=1))
    )
    assert {first.tag, second.tag} == {"stripes", "dots"}
    for cluster in (first, second):
        assert cluster.tag in catalogue.image(cluster.image_id).tags
    assert map_clusters(catalogue.stored, PhotoMap(found.ids[:0], found.places[:0])) == []


def test_without_umap_learn_the_message_names_the_extra(catalogue, monkeypatch):
    monkeypatch.setattr(photo_map, "MIN_PHOTOS_FOR_UMAP", 10)
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'visterm\[map\]'"):
        draw_map(catalogue, anew=True)


@pytest.mark.slow
def test_umap_keeps_alike_photos_together(tmp_path):
    pytest.importorskip("umap", reason="wants umap-learn: pip install 'visterm[map]'")
    catalogue = Catalogue.load(make_tiny_catalogue(tmp_path, n_images=60).folder, n_jobs=1)
    found = draw_map(catalogue)
    assert apart(found) > 1.5
    np.testing.assert_array_equal(draw_map(catalogue, anew=True).places, found.places)


def test_the_command_draws_the_map(tiny):
    done = run_command(["map", tiny.folder])
    assert (done.returncode, done.stdout) == (0, "")
    assert "24 photos on the map." in done.stderr


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


def test_the_map_is_zoomed_by_keys_and_lists_the_photos_in_view(window, catalogue):
    draw_map(catalogue)
    page = window.open("/map")
    page.locator("#photo-map[data-ready='24']").wait_for()
    page.locator("#n-in-view", has_text="24 photos").wait_for()
    page.locator("#in-view .hit").nth(23).wait_for()
    page.locator("#photo-map").focus()
    window.press("+", "+", "+", "+", "+", "+", "ArrowLeft")
    window.until("parseInt(document.querySelector('#n-in-view').textContent) < 24")
    window.press("0")
    page.locator("#in-view .hit").nth(23).wait_for()
    window.press("j", "x", "j", "x")
    assert page.locator(".choose:checked").count() == 2
    assert page.locator("#chosen-bar").is_visible()
    page.locator("#photo-map").hover()
    for _ in range(8):
        page.mouse.wheel(0, -120)
    window.until("parseInt(document.querySelector('#n-in-view').textContent) < 24")
    page.locator("#photo-map").focus()
    window.press("0")
    page.locator("#n-in-view", has_text="24 photos").wait_for()
    window.press("Enter")
    page.wait_for_url("**/image/*")


def test_places_that_come_before_the_canvas_is_measured_are_drawn(window, catalogue):
    draw_map(catalogue)
    window.page.add_init_script("window.ResizeObserver = class { observe() {} disconnect() {} }")  # never calls
    page = window.open("/map")
    page.locator("#n-in-view", has_text="24 photos").wait_for()
    page.locator("#in-view .hit").nth(23).wait_for()


def test_two_fingers_zoom_into_the_map(browser, address, artefacts, catalogue):
    draw_map(catalogue)
    context = browser.new_context(viewport={"width": 390, "height": 860}, has_touch=True)
    page = Window(context, address, artefacts).open("/map")
    page.locator("#n-in-view", has_text="24 photos").wait_for()
    box = page.locator("#photo-map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = context.new_cdp_session(page)
    for kind, apart_by in (("touchStart", 20), *(("touchMove", 20 + 10 * i) for i in range(1, 13)), ("touchEnd", None)):
        points = (
            [] if apart_by is None else [{"x": x - apart_by, "y": y, "id": 0}, {"x": x + apart_by, "y": y, "id": 1}]
        )
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.locator("#n-in-view").filter(has_not_text="24 photos").wait_for()
    assert page.url.endswith("/map")  # nothing was opened
    context.close()


WINDOWS = [(390, "dark"), (820, "light"), (1400, "dark")]


@pytest.mark.parametrize("window", WINDOWS, indirect=True, ids=[f"{width}-{scheme}" for width, scheme in WINDOWS])
def test_the_page_of_the_map_fits_and_axe_finds_nothing_wrong(window, catalogue):
    draw_map(catalogue)
    page = window.open("/map")
    page.locator("#in-view .hit").first.wait_for()
    page.wait_for_load_state("networkidle")
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    window.shoot(f"photo_map_{width}")


def test_a_map_that_is_not_drawn_yet_is_drawn_from_the_page(tmp_path, window):
    with served(make_tiny_catalogue(tmp_path).folder) as address:
        window.page.goto(f"{address}/map")
        window.page.get_by_role("button", name="Draw the map").click()
        window.page.get_by_role("link", name="Show the map").click()
        window.page.locator("#photo-map[data-ready='24']").wait_for()
        window.page.goto("about:blank")  # asks nothing of a service that ends
