"""The page on a real server over a drawn library: by plain forms and links, and in a browser by keyboard."""

from __future__ import annotations

import base64
import re
import time
from collections import Counter
from datetime import datetime
from importlib.resources import files
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from served_library import MARKED_NAME, MARKUP, WITH_TAGS, make_catalogue, served
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.core.errors import UserError
from visterm.library.dictionary import merge_tags
from visterm.library.runs import shown_runs
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.tagging.tag_map import PlacedTag
from visterm.web.app import create_app
from visterm.web.pages.form import FoundPhotos, SearchForm
from visterm.web.pages.render import decimal, percent, render
from visterm.web.pages.search import PHOTOS_PER_PAGE, _count
from visterm.web.pages.tags import LETTER_HEIGHT, ZOOMS, draw_map

PATIENCE = 600.0  # Seconds that all tests in a browser wait for anything: how fast the machine is must not matter
PAGES = ["/", "/?q=sky", "/?like=1", "/?tag=sky&unreviewed=1", "/image/0", "/review", "/tags", "/tags?order=precision",
         "/tag?name=sky", "/tags/map", "/tags/alike", "/library", "/related?q=sky", "/image/99999"]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("served"))


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


def ids_in(html):
    return [int(number) for number in re.findall(r'href="/image/(\d+)[^"]*" data-item', html)]


# ---- What the pages are made of -------------------------------------------------------------------------------------


def test_the_shares_of_the_words_of_a_search_sum_to_its_score(catalogue):
    hits = catalogue.search("sky grass", 5, combine="sum").hits
    for hit, shares in zip(hits, catalogue.shares("sky grass", [hit.id for hit in hits]), strict=True):
        assert sum(share.score for share in shares) == pytest.approx(hit.score, abs=1e-4)
        assert sum(abs(share.share) for share in shares) == pytest.approx(1)
        assert {share.word for share in shares} == {"sky", "grass"}


def test_a_word_that_is_not_wanted_speaks_against_what_shows_it(catalogue):
    hits = catalogue.search("sky", 3, combine="sum").hits
    (first, *_) = catalogue.shares("grass -sky", [hits[0].id])
    (sky,) = [share for share in first if share.word == "sky"]
    assert not sky.wanted
    assert sky.score < 0
    assert catalogue.shares("sky", []) == []


def test_names_on_the_map_do_not_cover_each_other_where_they_are_shown():
    placed = [PlacedTag(f"tag {i}", (i * 0.37) % 1, (i * i * 0.11) % 1, 60 - i) for i in range(60)]
    drawn = draw_map(placed)
    assert [tag.images for tag in drawn] == sorted((tag.images for tag in drawn), reverse=True)
    assert drawn[0].zoom == 1
    assert all(tag.zoom in ZOOMS for tag in drawn)
    for zoom in ZOOMS:
        shown = [tag for tag in drawn if tag.zoom <= zoom]
        for i, one in enumerate(shown):
            for other in shown[:i]:
                across = abs(one.x - other.x) * zoom >= (len(one.tag) + len(other.tag)) * LETTER_HEIGHT * 0.58 / 2
                assert across or abs(one.y - other.y) * zoom >= LETTER_HEIGHT


def luminance(colour):
    """Relative luminance of #rrggbb, as WCAG 2.1 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_stands_out_from_what_it_lies_on(mode):
    style = (files("visterm.web.pages") / "static" / "visterm.css").read_text("utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in style.split(":root {")[1:3])
    colours = light if mode == "light" else light | dark
    pairs = [(text, under) for text in ("ink", "soft", "accent") for under in ("paper", "sheet", "sunk")]
    pairs += [("ink", "note"), ("ink", "tint"), ("accent", "tint"), ("on-accent", "accent"), ("paper", "ink")]
    pairs += [("right", "right-tint"), ("wrong", "wrong-tint"), ("right", "sunk"), ("wrong", "sunk")]
    for text, under in pairs:
        low, high = sorted(luminance(colours[name]) for name in (text, under))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, under)


# ---- Without a script: links and forms ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_script_or_style_of_their_own_and_show_markup_as_text(page, client):
    answer = client.get(page)
    assert answer.status_code == (404 if page == "/image/99999" else 200)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|javascript:", answer.text)
    assert not re.search(r"<[^>]+\son[a-z]+=", re.sub(r'"[^"]*"', '""', answer.text))  # not in a text
    assert MARKUP not in answer.text
    assert MARKED_NAME not in answer.text
    outside = re.findall(r'(?:src|href|action)="(?!/|\?|#)([^"]*)"', answer.text)
    assert outside == []


def test_markup_in_names_and_tags_is_there_as_text(client, catalogue):
    (marked,) = [record.id for record in catalogue.records if MARKED_NAME in record.name]
    assert "&lt;img src=x onerror=alert(2)&gt;.jpg" in client.get(f"/image/{marked}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in client.get("/image/0").text
    assert client.get("/tag", params={"name": MARKUP}).status_code == 200


def test_letters_that_hide_are_visible_and_forms_send_the_tag_as_it_is(client, catalogue):
    sly, seen = "gpj\u2060exe\u200b", "gpj\ufffdexe\ufffd"
    catalogue.stored.tags.give(0, [sly], "person")  # as a hostile catalogue has it: a form's own loses these letters
    page = client.get("/image/0").text
    assert f">{seen}</a>" in page
    assert f'aria-label="Remove {seen}"' in page
    assert f'name="tag" value="{sly}"' in page
    assert seen in client.get("/tag", params={"name": sly}).text.partition("<h1>")[2].partition("</h1>")[0]
    taken = client.post("/image/0/tags", data={"tag": sly, "do": "take"}, headers={"x-part": "1"}).text
    assert seen not in taken.partition("<h2>Predicted")[0].partition("<h2>Tags")[2]


def test_names_of_files_and_folders_are_shown_without_letters_that_hide():
    page = render("_merged.html", tag="a\u2066/b\udcff", into="می\u200cخواهم", n_images=1).body.decode()
    assert "replaces a\ufffd/b\ufffd on" in page
    assert ">می\u200cخواهم</a>" in page  # a joiner that the script needs


def test_links_to_more_pictures_lead_through_all_of_them_once(client, catalogue):
    for first in ("/", "/?q=sky"):
        found, here = [], first
        while here:
            html = client.get(here).text
            found += ids_in(html)
            more = re.search(r'href="([^"]+)" data-more', html)
            here = more and more[1].replace("&amp;", "&")
        assert len(found) == len(set(found))
        assert set(found) == {record.id for record in catalogue.records}


def test_filters_narrow_and_what_is_wrong_with_them_is_told(client):
    assert 0 < len(ids_in(client.get("/?q=sky&tag=sky").text)) <= WITH_TAGS
    assert "no photo matches" in client.get("/?tag=nothing").text.lower()
    assert "&#39;soon&#39;; expected a year, a month or a day" in client.get("/?taken_from=soon").text
    assert "&#39;2024-13&#39;; expected a year, a month or a day" in client.get("/?taken_from=2024-13").text
    for wrong in ("min_mb=nan", "min_mb=inf", "max_mb=1e300", "max_mb=-1", "sure=nan", "folder=%00"):
        answer = client.get(f"/?{wrong}")
        assert answer.status_code < 500, wrong
        assert "expected" in answer.text, wrong
    refused = client.get("/?min_mb=much").text  # the field by its label
    assert "“At least (MB)” is &#39;much&#39;; expected a number of 0 or more." in refused
    assert "<label>At least (MB)<input" in refused
    told = client.get("/?q=skyy").text
    assert "Did you mean" in told
    assert '<a class="button" href="/?q=sky">sky</a>' in told
    assert 'href="/tags">All tags</a>' in told  # no dead end
    partly = client.get("/", params={"q": "grass skyy", "without": "sea"}).text
    assert "Ignored: Unknown tag &#39;skyy&#39;. Did you mean &#39;sky&#39;?" in partly
    assert '<a class="button" href="/?q=grass+sky&amp;without=sea">grass sky</a>' in partly
    assert "Search for <a" not in client.get("/?q=zzzz").text
    assert client.get("/?q=sky&start=999999999").status_code == 200
    assert client.get("/tags?order=beauty").status_code == 422


def test_a_page_says_how_many_photos_are_likely_to_match_and_that_none_is():
    form, found = SearchForm(q="snow"), FoundPhotos(np.arange(48), [], [], 1540, 0)
    assert _count(form, found) == "No photo is likely to match. The nearest of 1,540 photos come first"
    assert _count(form, found._replace(n_likely=2)) == "2 likely to match, of 1,540 photos"
    assert _count(form, found._replace(n_likely=None)) == "1,540 photos"


def test_words_that_are_like_no_tag_list_the_most_frequent_tags_once(client):
    notes = client.get("/", params={"q": "zzzz qqqq xxxx"}).text
    assert "Unknown tags &#39;zzzz&#39;, &#39;qqqq&#39;, &#39;xxxx&#39;." in notes
    assert notes.count("The most frequent tags are: ") == 1


@pytest.mark.parametrize(
    ("page", "status", "headline"),
    [("/foo", 404, "Not found"), ("/like", 405, "Nothing to see here"), ("/tags?order=x", 422, "That didn’t work")],
)
def test_a_browser_gets_errors_as_pages_with_plain_headlines(page, status, headline, client):
    answer = client.get(page, headers={"accept": "text/html,application/xhtml+xml"})
    assert answer.status_code == status
    assert f"<h1>{headline}</h1>" in answer.text


@pytest.mark.parametrize(("page", "accept"), [("/foo", "*/*"), ("/api/v1/foo", "text/html")])
def test_programs_get_errors_as_json(page, accept, client):
    answer = client.get(page, headers={"accept": accept})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_numbers_are_rounded_and_never_minus_zero():
    assert [decimal(value) for value in (-0.001, 0.5346944876462122, 3, "a")] == ["0.00", "0.53", 3, "a"]
    assert [percent(value) for value in (-0.004, 0.004, 0.996, 0.5)] == [">−1 %", "<1 %", ">99 %", "50 %"]


HASH = re.compile(r"(?<![0-9a-f])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-f])")


def test_runs_are_shown_by_number_and_date_and_their_hashes_are_titles_only(client, catalogue):
    run, gone = catalogue.stored.runs.current(), "fedcba9876543210"
    catalogue.stored.history.note("use run", run=run.fingerprint, before=gone)
    page = client.get("/library").text
    assert f'run <span title="{run.fingerprint}">{run.id}</span>, ' in page
    assert f'before <span title="{gone}">that is not here any more</span>' in page
    at = datetime.fromisoformat(run.added).astimezone()
    learned = f"learned {at.day} {at:%B %Y, %H:%M}, from {shown_runs(catalogue.stored, [run])[0].images} photos"
    assert f'<h3 title="{run.fingerprint}">Run {run.id} <small>{learned}' in page
    for address in PAGES:
        text = re.sub(r"<[^>]*>", " ", client.get(address).text)
        assert not HASH.search(text.replace(gone, "")), address


def test_the_history_shows_rounded_measures_and_names_them(client, catalogue):
    catalogue.stored.history.note("fit", before=0.5346944876462122, after=0.61)
    html = client.get("/library").text
    assert "MAP of the previous run on them 0.535" in html
    assert "0.5346" not in html


def test_a_tag_is_predicted_where_its_confidence_is_above_the_cut_off(client, catalogue):
    predicted = [found for record in catalogue.records for found in catalogue.image(record.id).predicted]
    [(tag, n_likely)] = Counter(found.tag for found in predicted if found.confidence >= PREDICTED_FROM).most_common(1)
    n_stored = sum(found.tag == tag for found in predicted)
    (count,) = [count for count in catalogue.tags() if count.tag == tag]
    assert 0 < count.predicted == n_likely < n_stored
    page = client.get("/tag", params={"name": tag}).text
    shown = int(re.search(r'predicted=[^"]*">(\d+)<', page)[1])
    assert shown == n_likely == len(catalogue.browse(Filter(predicted=(tag,), min_confidence=PREDICTED_FROM), 0).hits)
    assert len(ids_in(client.get("/", params={"predicted": tag}).text)) == min(n_likely, PHOTOS_PER_PAGE)


def test_duplicates_are_shown_in_groups_with_thumbnails(client, catalogue):
    before = client.get("/duplicates").text
    assert "Not looked for yet" in before
    assert "Look for duplicates</button>" in before
    assert "No duplicates found" not in before
    catalogue.stored.images.set_phashes([(catalogue.records[0].id, 0b1010)])
    assert "No duplicates found" in client.get("/duplicates").text
    first = catalogue.records[0]
    same = [record.id for record in catalogue.records if record.width * first.height == record.height * first.width]
    alike = same[:3]
    catalogue.stored.images.set_phashes(list(zip(alike, (0b1010, 0b1011, 0b1010), strict=True)))
    for _ in range(600):  # the page keeps what it found for two seconds
        html = client.get("/duplicates").text
        if "1 group" in html:
            break
        time.sleep(0.1)
    assert set(re.findall(r'href="/image/(\d+)" data-item><img src="/api/v1/images/\1/thumbnail', html)) == set(
        map(str, alike)
    )
    assert 'href="/duplicates"' in client.get("/library").text


def test_a_run_without_vectors_of_tags_offers_no_map(tmp_path):
    tiny = make_tiny_catalogue(tmp_path, model="kernel_ridge")
    with TestClient(create_app(tiny.folder), base_url="http://127.0.0.1") as client:
        assert "/tags/map" not in client.get("/tags").text
        assert "Similar tags" not in client.get("/tag?name=dots").text
        refused = client.get("/tags/map")
        assert refused.status_code == 404
        assert "Fit a model that can, such as wsabie." in refused.text
        assert "data-heat" not in client.get("/image/1").text


def test_a_run_of_auto_explains_and_compares_tags_and_only_the_api_names_the_models(tmp_path):
    tiny = make_tiny_catalogue(tmp_path, model="auto")
    members = {type(member).__name__ for member in Catalogue.load(tiny.folder).tagger.model.members_}
    linear = [name for name in ("ridge", "logistic") if name.title() in members]
    assert linear
    assert len(linear) < len(members)
    with TestClient(create_app(tiny.folder), base_url="http://127.0.0.1") as client:
        picture = client.get("/image/1").text
        assert "data-heat" in picture
        pages = [
            picture,
            *(client.get(page).text for page in ("/tag?name=dots", "/tags/map", "/review", "/tags/alike")),
        ]
        assert not any(name in page for name in linear for page in pages)
        library = client.get("/library").text
        assert library.index("How it was learned") < library.index(">auto<") < library.index("Skipped")
        neighbours = client.get("/api/v1/tags/neighbours?tag=dots").json()
        assert neighbours["from"] == linear
        assert client.get("/api/v1/images/1/explain?tag=dots").json()["from"] == linear
        assert client.get("/api/v1/images/1/heat?tag=dots").headers["content-type"] == "image/png"


def test_static_files_are_known_by_their_content(client):
    html = client.get("/").text
    for link in re.findall(r'"(/static/[^"]+)"', html):
        answer = client.get(link)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        again = client.get(link, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/../routes.py").status_code == 404
    assert client.get("/static/routes.py").status_code == 404


def test_tags_are_accepted_rejected_given_and_taken_by_plain_forms(client, catalogue):
    image_id = WITH_TAGS + 5
    right, wrong = [found.tag for found in catalogue.image(image_id).predicted[:2]]

    def say(tag, do):
        answer = client.post(f"/image/{image_id}/tags", data={"tag": tag, "do": do})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/image/{image_id}")
        return catalogue.image(image_id)

    assert say(right, "accept").tags == [right]
    assert say(wrong, "reject").verdicts == {right: 1, wrong: -1}
    assert say(wrong, "back").verdicts == {right: 1}
    assert say("a new one", "give").tags == sorted([right, "a new one"])
    assert say("a new one", "take").tags == [right]
    say(right, "back")
    assert client.post(f"/image/{image_id}/tags", data={"tag": "x", "do": "burn"}).status_code == 422
    assert client.post("/image/99999/tags", data={"tag": "x", "do": "give"}).status_code == 404
    assert client.get("/image/99999999999999999999").status_code in (404, 422)


def test_forms_of_other_sites_change_nothing(client, catalogue):
    before = catalogue.image(WITH_TAGS + 5).verdicts
    answer = client.post(
        f"/image/{WITH_TAGS + 5}/tags", data={"tag": "sky", "do": "reject"}, headers={"origin": "https://example.org"}
    )
    assert answer.status_code == 403
    assert catalogue.image(WITH_TAGS + 5).verdicts == before


def test_review_goes_on_by_plain_forms_and_takes_answers_back(client, catalogue):
    def hidden(html, name):
        return re.search(rf'name="{name}" value="([^"]*)"', html)[1].replace("&#34;", '"')

    first = client.get("/review").text
    image, tag = int(hidden(first, "image")), hidden(first, "tag")
    answered = client.post("/review", data={"image": image, "tag": tag, "trail": "[]", "do": "right"}).text
    assert catalogue.image(image).verdicts[tag] == 1
    assert (int(hidden(answered, "image")), hidden(answered, "tag")) != (image, tag)
    again = client.post("/review", data={"trail": hidden(answered, "trail"), "do": "undo"}).text
    refused = client.post("/review", data={"image": image, "tag": tag, "do": "perhaps"}, headers={"x-part": "1"})
    assert refused.json()["message"] == "do is 'perhaps': input should be 'right', 'wrong', 'skip' or 'undo'."
    assert (int(hidden(again, "image")), hidden(again, "tag")) == (image, tag)
    assert tag not in catalogue.image(image).verdicts
    skipped = client.post("/review", data={"image": image, "tag": tag, "trail": "[]", "do": "skip"}).text
    assert (int(hidden(skipped, "image")), hidden(skipped, "tag")) != (image, tag)
    for trail in ("no list", '[[1, "a"]]', '[[1, "a", "burn"]]', "[1]"):
        assert client.post("/review", data={"trail": trail, "do": "undo"}).status_code == 422


def test_a_model_that_learns_in_a_moment_learns_after_each_twenty_answers(tmp_path):
    folder = make_tiny_catalogue(tmp_path, "text_ridge").folder
    with served(folder) as address, httpx.Client(base_url=address, timeout=600) as client:

        def learnings():
            return [job for job in client.get("/api/v1/jobs").json()["jobs"] if job["kind"] == "fit"]

        for number in range(1, 21):
            page = client.get("/review").text
            fields = {name: re.search(rf'name="{name}" value="([^"]*)"', page)[1] for name in ("image", "tag")}
            assert not learnings(), number
            answered = client.post("/review", data={**fields, "trail": "[]", "do": "right" if number % 2 else "wrong"})
        assert "Learning from your last answers" in answered.text
        while learnings()[0]["state"] in ("waiting", "running"):
            time.sleep(0.1)
        assert [job["state"] for job in learnings()] == ["done"]
        assert "0 not learned from yet" in client.get("/review").text
        for verdict in (1, 0):  # an answer that is taken back is none
            client.post("/api/v1/images/0/feedback", json={"tag": "sky", "verdict": verdict})
            assert f"{verdict} not learned from yet" in client.get("/review").text


def test_merging_puts_one_tag_in_place_of_another(client, catalogue):
    images = [WITH_TAGS + 8, WITH_TAGS + 9]
    for image_id in images:
        catalogue.give(image_id, ["heaven"])
    assert merge_tags(catalogue, "heaven", "sky") == 2
    assert [catalogue.image(image_id).tags for image_id in images] == [["sky"], ["sky"]]
    assert merge_tags(catalogue, "heaven", "sky") == 0
    with pytest.raises(UserError, match="spellings of the same tag"):
        merge_tags(catalogue, "Sky", "sky ")
    answer = client.post("/tags/merge", data={"tag": "heaven", "into": "sky"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/tag?name=sky")


def test_a_run_that_took_over_is_named_among_the_jobs_and_is_started_only_with_its_name(client, catalogue):
    jobs = catalogue.stored.jobs
    jobs.finish(jobs.start("use run"))
    html = client.get("/library").text
    assert html.count("Use another run") - html.count('data-said="Use another run') == 1
    for run in ("", "no run", "ff\0"):
        assert client.post("/library/jobs", data={"kind": "use run", "run": run}).status_code == 422


def test_the_library_tells_what_was_left_out(client):
    html = client.get("/library").text
    assert "broken.jpg" in html
    assert "Look for new photos" in html


def test_parts_and_siblings_of_a_search_are_groups(client):
    html = client.get("/related?q=sky").text
    assert "part of sky" in html
    assert "like sea a kind of water" in client.get("/related?q=sea").text


# ---- In a browser ---------------------------------------------------------------------------------------------------


NO_HURRY = """{
  const later = setTimeout;
  window.setTimeout = (does, ms, ...more) => later(does, [1500, 5000].includes(ms) ? 2 ** 31 - 1 : ms, ...more);
}"""
"""Messages stay, and "g" waits for the next key for as long as it takes."""


class Window:
    """A page of the browser that remembers what it complained of and whom it asked."""

    def __init__(self, context, address, folder):
        context.set_default_timeout(1000 * PATIENCE)
        self.page = context.new_page()
        self.page.add_init_script(NO_HURRY)
        self.address, self.folder = address, folder
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def open(self, path):
        self.page.goto(self.address + path)
        self.ready()
        return self.page

    def ready(self):
        """Wait until the page's scripts listen."""
        self.page.locator("html[data-ready]").wait_for(state="attached")

    def press(self, *keys):
        self.ready()
        for key in keys:
            self.page.keyboard.press(key)

    def until(self, true):
        """Wait until an expression is true: Playwright's own way to wait for one is forbidden by the page's policy."""
        end = time.monotonic() + PATIENCE
        while not self.page.evaluate(true):
            assert time.monotonic() < end, f"{true} did not become true"
            self.page.wait_for_timeout(20)

    def shoot(self, name):
        if self.folder is not None:
            self.page.screenshot(path=self.folder / f"{name}.png")


@pytest.fixture
def window(request, browser, address, artefacts):
    size = getattr(request, "param", (1280, 860))
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    window = Window(context, address, artefacts)
    yield window
    context.close()
    assert window.complaints == []
    assert window.hosts <= {urlsplit(address).netloc, ""}


def test_a_search_is_typed_with_completion_and_goes_on_as_one_scrolls(window):
    page = window.open("/")
    window.press("/")
    page.keyboard.type("gras")
    page.locator(".completions:visible li").first.wait_for()
    window.press("ArrowDown", "Enter")
    assert page.input_value("#q") == "grass "
    window.press("Enter")
    page.wait_for_url("**/?q=grass**")
    n = page.locator("#grid .hit").count()
    page.mouse.move(640, 500)
    page.mouse.wheel(0, 20_000)
    window.until(f"document.querySelectorAll('#grid .hit').length > {n}")
    page.evaluate("scrollTo(0, 0)")
    window.press("j", "w")
    page.locator(".shares:visible").wait_for()
    assert "grass" in page.locator(".shares:visible").inner_text()
    window.shoot("search")


def test_a_picture_is_opened_and_its_tags_judged_by_keyboard(window, catalogue):
    page = window.open("/?q=sky&unreviewed=1")
    window.press("j", "j", "Enter")
    page.locator("#picture-tags").wait_for()
    image_id = int(urlsplit(page.url).path.rpartition("/")[2])
    page.locator("#alike .hit").first.wait_for()
    rows = page.locator(".predicted [data-row]")
    right, wrong = rows.nth(0).get_attribute("data-tag"), rows.nth(1).get_attribute("data-tag")
    if not rows.nth(0).is_visible():  # no tag is likelier than not
        page.locator("#picture-tags details summary").click()
    rows.nth(0).focus()
    page.locator(".heat").wait_for(state="attached")
    window.until("document.querySelector('.heat').naturalWidth > 0")
    window.until("document.querySelector('#heat-said').textContent.endsWith('comes from')")
    window.shoot("picture")
    window.press("a")
    page.locator(f'.held [data-tag="{right}"]').wait_for()
    if not page.locator(f'.predicted [data-tag="{wrong}"]').is_visible():
        page.locator("#picture-tags details summary").click()
    page.locator(f'.predicted [data-tag="{wrong}"]').focus()
    window.press("x")
    page.locator(f'.rejected [data-tag="{wrong}"]').wait_for()
    verdicts = catalogue.image(image_id).verdicts
    assert (verdicts[right], verdicts[wrong]) == (1, -1)
    window.press("u")
    page.locator(f'.predicted [data-tag="{wrong}"]').wait_for()
    window.press("t")
    page.keyboard.type(MARKUP)
    window.press("Enter")
    page.locator(".held .name", has_text=MARKUP).wait_for()
    assert catalogue.image(image_id).tags == sorted({*catalogue.image(image_id).tags, right, MARKUP})
    window.press("Escape")
    page.locator(f'.held [data-tag="{right}"]').focus()
    window.press("x")
    page.locator(f'.held [data-tag="{right}"]').wait_for(state="detached")


def test_review_goes_on_by_keyboard_and_learns(window, catalogue):
    page = window.open("/review")

    def asked():
        return page.input_value("[name=image]"), page.input_value(".answers [name=tag]")

    def press(key, told):
        window.press(key)
        page.locator("#said", has_text=told).wait_for()

    seen = []
    for key, told in (("y", "is right"), ("n", "is wrong"), ("y", "is right"), ("s", "skipped")):
        seen.append(asked())
        press(key, f"{asked()[1]} {told}")
        assert asked() not in seen
    (right, wrong, undone, _) = seen
    press("u", "one more time")
    press("u", f"{undone[1]}: one more time")
    window.until(f"document.querySelector('[name=image]').value == {undone[0]}")
    assert asked() == undone
    assert page.inner_text("#answered") == "2"
    said = [catalogue.image(int(image)).verdicts.get(tag) for image, tag in (right, wrong, undone)]
    assert said == [1, -1, None]
    window.shoot("review")
    before = catalogue.stored.runs.current().fingerprint
    window.press("l")
    page.locator("#learned .job.done").wait_for()
    learned = page.inner_text("#learned")
    assert "MAP" in learned or "The runs are not compared" in learned
    assert catalogue.stored.runs.current().fingerprint != before


def open_without_script(window, path):
    """Open a page whose script comes only after the function that is returned is called."""
    held, may_come = [], []

    def fetch(route):
        route.continue_() if may_come else held.append(route)

    def let_come():
        may_come.append(True)
        for route in held:
            route.continue_()

    window.page.route("**/static/visterm.js*", fetch)
    window.page.goto(window.address + path, wait_until="commit")
    window.page.locator("#main img").first.wait_for()
    return let_come


@pytest.mark.parametrize(
    ("start", "keys", "end"),
    [
        ("/", ["j", "j", "Enter"], r"/image/\d+\?n=1"),
        ("/", ["/", "s", "k", "y", " ", "g", "Enter"], r"/\?q=sky\+g"),
        ("/", ["j", "g", "t"], "/tags"),
        ("/image/5", ["t", "Escape", "s"], r"/\?like=5"),
    ],
    ids=["open a photo", "search", "another page", "alike"],
)
def test_keys_that_are_pressed_before_the_script_is_there_count(start, keys, end, window):
    page = window.page
    let_script_come = open_without_script(window, start)
    for key in keys:
        page.keyboard.press(key)
    assert page.get_attribute("html", "data-ready") is None
    assert urlsplit(page.url).path == start
    let_script_come()
    page.wait_for_url(re.compile(end))


def test_keys_that_the_browser_knows_are_not_kept_until_the_script_is_there(window):
    page = window.page
    let_script_come = open_without_script(window, "/")
    page.locator("#q").focus()
    page.keyboard.type("grass")
    assert page.input_value("#q") == "grass"
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=grass**", wait_until="commit")
    let_script_come()
    window.ready()


DROP = """content => {
  const files = new DataTransfer();
  files.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], "m.png", { type: "image/png" }));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize("way", ["chosen", "dropped"])
def test_a_picture_from_outside_finds_its_like(way, window, tmp_path):
    page = window.open("/")
    picture = tmp_path / "meadow.png"
    Image.new("RGB", (90, 60), (70, 140, 60)).save(picture)
    if way == "chosen":
        page.set_input_files("#picture", picture)
    else:
        page.evaluate(DROP, base64.b64encode(picture.read_bytes()).decode())
    page.wait_for_url("**/like")
    assert page.locator("#grid .hit").count() > 10


def test_keys_are_listed_and_lead_to_the_pages(window):
    page = window.open("/")
    window.press("?")
    page.locator("#keys[open]").wait_for()
    assert "next or previous photo" in page.inner_text("#keys")
    window.press("Escape", "g", "t")
    page.wait_for_url("**/tags")
    page.locator(".list tbody tr").first.wait_for()
    window.shoot("tags")
    window.press("j", "Enter")
    page.wait_for_url("**/tag?name=**")
    window.press("g", "l")
    page.wait_for_url("**/library")
    window.shoot("library")


def test_the_map_of_the_tags_is_moved_by_keyboard(window):
    page = window.open("/tags/map")
    page.locator("#map").wait_for()
    shown = "[...document.querySelectorAll('#map text')].filter((name) => name.getBoundingClientRect().width).length"
    before, box = page.evaluate(shown), page.get_attribute("#map", "viewBox")
    page.locator("#map").focus()
    window.press("+", "+", "+", "+")
    assert page.evaluate(shown) > before > 0
    window.press("ArrowRight")
    window.shoot("map")
    window.press("0")
    assert page.get_attribute("#map", "viewBox") == box


COVERED = """() => {
  const [said, button] = ["#said", "[data-key=l]"].map((name) => document.querySelector(name).getBoundingClientRect());
  return said.bottom > button.top && said.top < button.bottom && said.right > button.left && said.left < button.right;
}"""


@pytest.mark.parametrize("window", [(1280, 860), (1280, 700), (390, 800)], indirect=True)
def test_a_message_does_not_cover_learn_now(window):
    page = window.open("/review")
    page.locator("[data-key=l]").scroll_into_view_if_needed()
    window.press("s")
    page.locator("#said", has_text="skipped").wait_for()
    assert not page.evaluate(COVERED)


@pytest.mark.parametrize("window", [(390, 800)], indirect=True)
def test_nothing_is_wider_than_a_phone(window):
    for number, path in enumerate(("/?q=sky", "/image/0", "/review", "/tags", "/library")):
        page = window.open(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        window.shoot(f"phone_{number}")
