"""Videos over HTTP and in a browser: parts of files, thumbnails of moments, found, reviewed and played."""

from __future__ import annotations

import re
import shutil
from io import BytesIO

import httpx
import numpy as np
import pytest
from PIL import Image

from drawn_videos import draw_video, needs_ffmpeg
from served_library import served
from test_pages import Window
from tiny_catalogues import draw_photos, fit_run
from visterm import Catalogue, Tagger

pytestmark = needs_ffmpeg

API = "/api/v1"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    run = fit_run(folder / "photos", draw_photos(folder / "photos", 12, seed=7), folder / "run")
    draw_video(folder / "photos" / "film.mp4", "red", "green", "blue", size="96x72")
    draw_video(folder / "photos" / "other.webm", "blue", "grey", size="96x72")
    catalogue = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(folder / "photos")
    catalogue.stored.close()
    return folder / "catalogue"


@pytest.fixture(scope="module")
def ids(path):
    return {record.name: record.id for record in Catalogue.load(path).records}


@pytest.fixture(scope="module")
def address(path):
    with served(path) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=600) as client:
        yield client


def colour_of(content):
    with Image.open(BytesIO(content)) as image:
        return ["red", "green", "blue"][int(np.argmax(np.asarray(image).mean((0, 1))))]


def test_a_video_is_sent_whole_or_in_the_parts_that_are_asked_for(client, ids, path):
    whole = (path.parent / "photos" / "film.mp4").read_bytes()
    address = f"{API}/images/{ids['film.mp4']}/video"
    answer = client.get(address)
    assert answer.content == whole
    assert answer.headers["content-type"] == "video/mp4"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "media-src 'self'" in answer.headers["content-security-policy"]
    part = client.get(address, headers={"range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, whole[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(whole)}"
    end = client.get(address, headers={"range": "bytes=-10"})
    assert (end.status_code, end.content) == (206, whole[-10:])
    beyond = client.get(address, headers={"range": f"bytes={len(whole)}-"})
    assert beyond.status_code == 416
    assert client.get(f"{API}/images/{ids['other.webm']}/video").headers["content-type"] == "video/webm"


def test_only_videos_of_the_catalogue_are_sent(client, ids, path):
    assert client.get(f"{API}/images/{ids['000.png']}/video").status_code == 404
    assert client.get(f"{API}/images/999999/video").status_code == 404
    outside = path.parent / "secret.mp4"
    outside.write_bytes(b"secret")
    film = path.parent / "photos" / "other.webm"
    film.rename(path.parent / "aside.webm")
    try:
        film.symlink_to(outside)
        answer = client.get(f"{API}/images/{ids['other.webm']}/video")
        assert (answer.status_code, b"secret" in answer.content) == (404, False)
    finally:
        film.unlink()
        (path.parent / "aside.webm").rename(film)


@pytest.mark.parametrize(("at", "colour"), [(None, "red"), (0, "red"), (5.5, "green"), (11, "blue"), (999, "blue")])
def test_a_thumbnail_shows_the_nearest_moment(client, ids, at, colour):
    query = {} if at is None else {"at": at}
    answer = client.get(f"{API}/images/{ids['film.mp4']}/thumbnail", params=query)
    assert colour_of(answer.content) == colour
    known = {"if-none-match": answer.headers["etag"]}
    assert client.get(f"{API}/images/{ids['film.mp4']}/thumbnail", params=query, headers=known).status_code == 304


@pytest.mark.parametrize("at", ["-1", "nan", "inf", "x"])
def test_moments_that_are_none_are_refused(client, ids, at):
    assert client.get(f"{API}/images/{ids['film.mp4']}/thumbnail", params={"at": at}).status_code == 422
    assert client.get(f"/image/{ids['film.mp4']}", params={"at": at}).status_code == 422


def test_a_frame_that_was_removed_is_made_again(client, ids, path):
    shutil.rmtree(path / "frames")
    answer = client.get(f"{API}/images/{ids['film.mp4']}/thumbnail", params={"at": 6, "size": 640})
    assert colour_of(answer.content) == "green"


def test_a_search_answers_with_the_moment_and_its_thumbnail(client, ids):
    hits = client.get(f"{API}/search", params={"q": "green"}).json()["hits"]
    [film] = [hit for hit in hits if hit["id"] == ids["film.mp4"]]
    assert film["at"] == 6.0
    assert colour_of(client.get(film["thumbnail"]).content) == "green"
    assert all("at" not in hit for hit in hits if hit["image"].endswith(".png"))


def test_pages_show_videos_with_their_moments(client, ids):
    film = ids["film.mp4"]
    html = client.get("/", params={"q": "green"}).text
    assert f"/api/v1/images/{film}/thumbnail?size=320&amp;at=6.000" in html
    assert re.search(rf'href="/image/{film}\?q=green&amp;n=\d+&amp;at=6.0"', html)
    assert "▶ 0:06" in html
    html = client.get(f"/image/{film}", params={"at": 6}).text
    assert f'src="/api/v1/images/{film}/video#t=6.000"' in html
    assert "data-heat" not in html
    for page in (f"/image/{film}/alike", "/review", "/tag?name=blue", "/library"):
        assert client.get(page, headers={"x-part": "1"}).status_code == 200


@pytest.fixture(scope="module")
def window(browser, address, artefacts):
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []


VIDEO = "document.querySelector('video')"


@pytest.mark.parametrize(("name", "tag", "at"), [("film.mp4", "green", 6), ("other.webm", "grey", 6)])
def test_a_video_that_was_found_plays_from_its_moment_on(window, ids, name, tag, at):
    page = window.open(f"/?q={tag}")
    page.locator(f"a.picture-link[href^='/image/{ids[name]}?']").click()
    page.locator("video").wait_for()
    window.until(f"{VIDEO}.readyState >= 2")
    assert page.evaluate(f"{VIDEO}.currentTime") == pytest.approx(at, abs=0.5)
    assert page.evaluate(f"{VIDEO}.videoWidth") == 96
    page.evaluate(f"{VIDEO}.muted = true")
    page.evaluate(f"{VIDEO}.play()")
    window.until(f"{VIDEO}.currentTime > {at + 0.5}")


def test_a_tag_of_a_video_is_reviewed_while_it_plays(window, ids, path):
    catalogue = Catalogue.load(path)
    film = ids["film.mp4"]
    catalogue.stored.database.write(
        "DELETE FROM predictions WHERE image_id != ? OR tag_id != (SELECT id FROM tags WHERE name = 'green')", (film,)
    )
    page = window.open("/review")
    window.until(f"{VIDEO} && {VIDEO}.readyState >= 2")
    assert page.locator("h1 q").inner_text() == "green"
    assert page.evaluate(f"{VIDEO}.currentTime") == pytest.approx(6, abs=0.5)
    window.press("y")
    page.get_by_text("No more questions").wait_for()
    assert catalogue.image(film).verdicts == {"green": 1}
