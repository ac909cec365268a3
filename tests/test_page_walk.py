"""The way through photos on the page: one beside the other, by folder, date and tag, sorted, and in full size."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image

from axe import violations
from served_library import served
from test_pages import Window
from tiny_catalogues import COLOURS, draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.store.filters import Filter
from visterm.web.pages.form import SearchForm, first_day, last_day

FOLDERS = {"Ägypten/Kairo & Gizeh": 15, "東京 2024/浅草": 14, 'It\'s "fun"/a b': 13, "": 12}
TOKYO = "/?folder=東京 2024&sort=name"
WINDOWS = [(390, "light"), (820, "dark"), (1400, "light"), (1400, "dark")]


def draw(path, number):
    """Draw a photo of a day of its own; the first one of all has a place."""
    exif = Image.Exif()
    exif[306] = f"{2019 + number % 3}:{1 + number % 2:02}:{1 + number % 28:02} 10:00:00"
    if number == 0:
        exif[272] = "X-T3"
        gps = exif.get_ifd(0x8825)
        gps[1], gps[2], gps[3], gps[4] = "N", (29, 58, 45.12), "E", (31, 8, 3.12)
    noise = np.random.default_rng(number).integers(-30, 30, (600, 900, 3))
    pixels = np.clip(np.array(list(COLOURS.values())[number % 4]) + noise, 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif, quality=30)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walk")
    run = fit_run(folder / "learned", draw_photos(folder / "learned"), folder / "run")
    photos, number = folder / "photos", 0
    for inside, n in FOLDERS.items():
        for i in range(n):
            draw(photos / inside / f"Foto {i}.jpg", number)
            number += 1
    Image.new("RGB", (40, 30), (1, 2, 3)).save(photos / "undated.tiff")
    catalogue = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(photos)
    catalogue.stored.close()
    return folder / "catalogue"


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=600) as client:
        yield client


@pytest.fixture(scope="module")
def catalogue(path):
    catalogue = Catalogue.load(path, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture
def window(request, browser, address, artefacts):
    width, scheme = getattr(request, "param", (1400, "light"))
    touches = {"has_touch": True} if width == 390 else {}
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme, **touches)
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []
    assert window.hosts <= {urlsplit(address).netloc, ""}


def ids_in(html):
    return [int(number) for number in re.findall(r'href="/image/(\d+)[^"]*" data-item', html)]


def links(html, start):
    return [unescape(link) for link in re.findall(r'href="([^"]*)"', html) if link.startswith(start)]


# ---- By links --------------------------------------------------------------------------------------------------------


def test_every_folder_date_and_tag_of_browse_leads_to_as_many_photos_as_it_says(client, catalogue):
    catalogue.give(3, ["mine"])
    todo, seen = ["/browse"], set()
    while todo:
        html = client.get(todo.pop()).text
        for link, n in re.findall(r'<a href="([^"]*)"(?: data-item)?>[^<]*<small>([\d,]+)</small></a>', html):
            link = unescape(link)
            if link in seen:
                continue
            seen.add(link)
            page = client.get(link).text
            assert f'id="count">{n} photo' in page, link
            assert len(ids_in(page)) == min(int(n), 48)
            todo.append(link)
    fields = [parse_qs(urlsplit(link).query) for link in seen]
    assert {field["folder"][0] for field in fields if "folder" in field} == {
        "Ägypten", "Ägypten/Kairo & Gizeh", "東京 2024", "東京 2024/浅草", 'It\'s "fun"', 'It\'s "fun"/a b'
    }  # fmt: skip
    assert {len(field["taken_from"][0]) for field in fields if "taken_from" in field} == {4, 7, 10}
    assert ["mine"] in [field.get("tag") for field in fields]
    assert "1 photo without a date" in client.get("/browse").text


def test_the_way_to_a_folder_and_a_day_is_shown_and_leads_back(client):
    page = client.get(
        "/", params={"folder": "東京 2024/浅草", "taken_from": "2019-01-01", "taken_to": "2019-01-31"}
    ).text
    crumbs = page.partition('class="crumbs"')[2].partition("</ol>")[0]
    assert re.findall(r">([^<>\s][^<>]*)</a>", crumbs) == ["Browse", "東京 2024", "浅草", "2019", "January"]
    assert 'name="taken_from" value="2019-01-01" type="date"' in page
    assert '<option value="東京 2024/浅草" selected>東京 2024/浅草 (14)</option>' in page


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2024", "2024-01-01", "2024-12-31"),
        ("2024-02", "2024-02-01", "2024-02-29"),
        ("2023-02", "2023-02-01", "2023-02-28"),
        ("2024-07-31", "2024-07-31", "2024-07-31"),
        ("2024-07-31T10:20", "2024-07-31", "2024-07-31"),
        ("soon", "", ""),
        ("", "", ""),
    ],
)
def test_a_period_has_a_first_and_a_last_day(text, first, last):
    assert (first_day(text), last_day(text)) == (first, last)
    assert SearchForm(taken_from=first, taken_to=last).period == ("" if text in ("soon", "") else text[:10])


def test_pages_of_a_list_lead_forth_and_back(client, catalogue):
    n = len(catalogue)
    first = client.get("/").text
    assert f'id="count">{n} photos' in first
    (more,) = re.findall(r'href="([^"]+)" data-more', first)
    second = client.get(unescape(more)).text
    assert sorted(ids_in(first) + ids_in(second)) == list(range(n))
    (earlier,) = re.findall(r'href="([^"]+)">Earlier photos', second)
    assert ids_in(client.get(unescape(earlier)).text) == ids_in(first)
    assert "this page is after the last one" in client.get("/?start=9999").text


@pytest.mark.parametrize("sort", ["taken", "oldest", "name", "added"])
def test_a_list_is_in_the_order_that_is_chosen(sort, client, catalogue):
    expected = [hit.id for hit in catalogue.browse(k=0, sort=sort).hits]
    assert ids_in(client.get(f"/?sort={sort}").text) == expected[:48]
    assert "expected one of: chance, taken, oldest, name, added" in client.get("/?q=red&sort=size").text


def test_a_photo_that_no_longer_matches_has_its_neighbours_all_the_same(client, catalogue):
    ids = [20, 21, 22]
    for image in ids:
        catalogue.give(image, ["walked"])
    found = ids_in(client.get("/?tag=walked").text)
    assert set(found) == set(ids)
    catalogue.take(found[1], ["walked"])

    def beside(image, place):
        page = client.get(f"/image/{image}?tag=walked&n={place}").text
        return [int(link) for link in re.findall(r'href="/image/(\d+)[^"]*" rel="(?:prev|next)"', page)]

    assert beside(found[1], 1) == [found[0], found[2]]  # as the search found them
    assert len(ids_in(client.get("/?tag=walked").text)) == 2
    assert beside(found[1], 1) == [found[0], found[2]]  # the search was done again
    assert beside(found[2], 2) == [found[0]]
    assert 'class="walk"' not in client.get(f"/image/{found[0]}?tag=nothing").text
    assert 'class="walk"' not in client.get(f"/image/{found[0]}?taken_from=soon").text


def test_the_original_is_the_file_and_what_browsers_do_not_show_is_a_jpeg(client, catalogue):
    records = {record.file_type: record for record in catalogue.records}
    jpeg = client.get(f"/api/v1/images/{records['jpeg'].id}/original")
    with open(records["jpeg"].path, "rb") as file:
        assert (jpeg.content, jpeg.headers["content-type"]) == (file.read(), "image/jpeg")
    assert jpeg.headers["x-content-type-options"] == "nosniff"
    tiff = client.get(f"/api/v1/images/{records['tiff'].id}/original")
    assert (tiff.content[:2], tiff.headers["content-type"]) == (b"\xff\xd8", "image/jpeg")
    assert client.get("/api/v1/images/99999/original").status_code == 404


def test_programs_sort_and_count_too_page_by_page(client, catalogue):
    for query in ("sort=oldest", "sort=name&q=red", "sort=name&like=1", "q=red", ""):
        found, here = [], ""
        while here is not None:
            answer = client.get(f"/api/v1/search?limit=20&{query}{here}").json()
            found += [hit["id"] for hit in answer["hits"]]
            here = f"&cursor={answer['next']}" if answer["next"] else None
        assert len(found) == len(set(found)) == answer["n_found"], query
    assert [hit.id for hit in catalogue.browse(k=0, sort="oldest").hits][:20] == [
        hit["id"] for hit in client.get("/api/v1/search?limit=20&sort=oldest").json()["hits"]
    ]
    other = client.get("/api/v1/search?limit=20&sort=name").json()["next"]
    assert client.get(f"/api/v1/search?limit=20&sort=taken&cursor={other}").status_code == 422


# ---- In a browser ----------------------------------------------------------------------------------------------------


def test_photos_of_a_folder_are_walked_by_keys_and_one_comes_back_to_the_photo(window, catalogue):
    page = window.open(TOKYO)
    ids = [hit.id for hit in catalogue.browse(Filter(folder="東京 2024"), 0, sort="name").hits]
    window.press("j", "j", "Enter")
    page.locator(".walk", has_text="2 of 14").wait_for()
    for number in (3, 4):
        window.press("ArrowRight")
        page.locator(".walk", has_text=f"{number} of 14").wait_for()
    window.press("ArrowLeft")
    page.locator(".walk", has_text="3 of 14").wait_for()
    assert urlsplit(page.url).path == f"/image/{ids[2]}"
    window.press("b")
    page.wait_for_url(f"**#photo-{ids[2]}")
    window.until(f"document.activeElement.id === 'photo-{ids[2]}'")


@pytest.mark.parametrize("window", [(390, "light")], indirect=True)
def test_a_swipe_shows_the_next_photo(window, catalogue):
    ids = [hit.id for hit in catalogue.browse(Filter(folder="東京 2024"), 0, sort="name").hits]
    page = window.open(f"/image/{ids[1]}?folder=東京 2024&sort=name&n=1")
    touches = page.context.new_cdp_session(page)
    box = page.locator(".stage").bounding_box()
    start, y = box["x"] + box["width"] - 20, box["y"] + 60
    for kind, x in (("touchStart", start), ("touchMove", start - 90), ("touchMove", start - 180), ("touchEnd", None)):
        touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if x is None else [{"x": x, "y": y}]})
    page.locator(".walk", has_text="3 of 14").wait_for()


def test_a_photo_is_shown_in_full_size_by_key_and_closed_again(window):
    page = window.open("/image/0")
    window.press("z")
    window.until("document.querySelector('#zoom img')?.naturalWidth === 900")
    window.press("ArrowRight")  # moves the photo and leads to no other one
    window.press("Escape")
    page.locator("#zoom").wait_for(state="hidden")
    assert urlsplit(page.url).path == "/image/0"


def test_where_and_when_a_photo_was_taken_is_shown_and_no_other_server_is_asked(window, catalogue):
    (placed,) = [record.id for record in catalogue.records if record.camera]
    page = window.open(f"/image/{placed}")
    facts = page.inner_text(".side .facts")
    assert "X-T3" in facts
    assert "29.9792° N, 31.1342° E" in facts
    link = page.get_by_role("link", name="OpenStreetMap")
    assert link.get_attribute("href").startswith("https://www.openstreetmap.org/?mlat=29.9792&mlon=31.1342#map=15/")
    assert link.get_attribute("rel") == "noreferrer noopener"
    page.locator(".facts a[title='All photos of this day']").click()
    page.locator("#count", has_text="photo").wait_for()


def test_one_browses_by_keys_from_all_folders_to_a_photo(window):
    page = window.open("/")
    window.press("g", "b")
    page.wait_for_url("**/browse")
    window.press("j", "ArrowRight")
    folder = page.evaluate("document.activeElement.textContent")
    window.press("Enter")
    page.wait_for_url("**folder=**")
    n = re.search(r"\d+$", folder.strip())[0]
    assert page.inner_text("#count") == f"{n} photos"
    window.press("n", "Enter")
    page.locator(".crumbs li").nth(2).wait_for()
    window.press("o")
    page.locator("#sort a", has_text="name").focus()
    window.press("Enter")
    page.locator("#sort summary", has_text="Sorted by name").wait_for()
    window.press("j", "Enter")
    page.locator(".walk", has_text=f"1 of {n}").wait_for()


def test_the_list_of_orders_lies_over_the_photos_and_escape_closes_it(window):
    page = window.open("/")
    first = page.locator("#grid .hit").first
    place = first.bounding_box()
    window.press("o")
    page.locator("#sort[open] a[aria-current]").wait_for()
    assert first.bounding_box() == place
    window.press("Escape")
    page.locator("#sort:not([open])").wait_for()
    window.press("o")
    page.locator("#count").click()
    page.locator("#sort:not([open])").wait_for()


def test_folder_and_dates_are_picked_in_the_filters(window, catalogue):
    page = window.open("/")
    window.press("f")
    page.select_option("[name=folder]", 'It\'s "fun"')
    page.fill("[name=taken_from]", "2020-01-01")
    page.fill("[name=taken_to]", "2020-12-31")
    page.get_by_role("button", name="Apply").click()
    page.locator(".crumbs", has_text="2020").wait_for()
    n = len(catalogue.ids(Filter(folder='It\'s "fun"', taken_from="2020", taken_to="2020")))
    assert page.inner_text("#count") == f"{n} photos"


@pytest.mark.parametrize("window", WINDOWS, indirect=True, ids=[f"{width}-{scheme}" for width, scheme in WINDOWS])
def test_axe_finds_nothing_wrong_and_nothing_is_wider_than_the_window(window):
    width = window.page.viewport_size["width"]
    for name, address, keys in (
        ("browse", "/browse", ()),
        ("folder", "/?folder=Ägypten&sort=name", ("o",)),
        ("day", "/?taken_from=2019&taken_to=2019", ("f",)),
        ("photo", "/image/20?folder=Ägypten&sort=name", ()),
        ("full_size", "/image/20?folder=Ägypten&sort=name", ("z",)),
        ("photo_keys", "/image/0?q=red", ("?",)),
        ("library", "/library", ()),
    ):
        page = window.open(address)
        window.press(*keys)
        page.wait_for_load_state("networkidle")
        assert violations(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        window.shoot(f"walk_{name}_{width}")
