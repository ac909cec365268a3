"""Tags of a hierarchy on the page: parents first, with the photos of their children, folded and unfolded."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tiny_catalogue import N_IMAGES, make_tiny_catalogue
from visterm import Catalogue
from visterm.library.dictionary import TreeTag, photos_of_tags, tree_level
from visterm.store.filters import Filter
from visterm.web.app import create_app

TREE = [("dots", "pattern"), ("stripes", "pattern"), ("pattern", "look")]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("tree"), "ridge", tree=TREE).folder


@pytest.fixture(scope="module")
def catalogue(path):
    catalogue = Catalogue.load(path, n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture(scope="module")
def client(path):
    with TestClient(create_app(path), base_url="http://127.0.0.1") as client:
        yield client


def shown(html):
    """Return the tags of a part, in order, with their numbers and whether they can be unfolded."""
    found = re.findall(r"<li><a [^>]*>([^<]*)</a> <small>(\d+)</small>(<details>)?", html)
    return [(tag, int(n), bool(folded)) for tag, n, folded in found]


def test_a_parent_counts_each_photo_of_the_tags_under_it_once(catalogue):
    rare = N_IMAGES // 3
    assert tree_level(catalogue) == [TreeTag("look", N_IMAGES, 1), TreeTag("thing", N_IMAGES - rare, 0),
                                TreeTag("rare one", rare, 0)]  # fmt: skip
    assert tree_level(catalogue, "look") == [TreeTag("pattern", N_IMAGES, 2)]
    half = N_IMAGES // 2
    assert tree_level(catalogue, "Pattern") == [TreeTag("dots", half, 0), TreeTag("stripes", half, 0)]


def test_every_page_counts_the_same_photos_of_a_parent(client, catalogue):
    photos = photos_of_tags(catalogue)
    browsed = dict(re.findall(r'href="/\?tag=[^"]*"[^>]*>([^<]*) <small>([\d,]+)</small>', client.get("/browse").text))
    assert {tag: int(n) for tag, n in browsed.items()} == photos
    for tag in ("look", "pattern", "dots"):
        [on_page] = re.findall(
            r"photos tagged</dt><dd><a [^>]*>([\d,]+)<", client.get("/tag", params={"name": tag}).text
        )
        assert int(on_page) == photos[tag] == len(catalogue.browse(Filter(tags=(tag,)), 0).hits)


def test_tags_above_a_given_tag_are_given_and_neither_predicted_nor_taken_away(client, catalogue):
    page = client.get("/image/1").text  # a photo of dots
    given, predicted = page.split("<h2>Predicted</h2>")
    for tag in ("pattern", "look"):
        [row] = re.findall(rf'<li class="tag implied">.*?>{tag}</a>.*?</li>', given)
        assert "from dots" in row
        assert "<form" not in row
        assert f'data-tag="{tag}"' not in predicted
    catalogue.give(1, ["pattern"])
    assert "implied" not in client.get("/image/1").text.split(">pattern</a>")[0]
    catalogue.take(1, ["pattern"])


def test_only_photos_that_pass_the_filters_count(catalogue):
    photos = photos_of_tags(catalogue, Filter(tags=("rare one",), without=("dots",)))
    assert photos == {"stripes": 4, "pattern": 4, "look": 4, "rare one": 4}


def test_a_tag_that_a_person_gives_counts_at_once(catalogue):
    before = photos_of_tags(catalogue)["stripes"]
    catalogue.give(1, ["stripes"])  # a photo of dots
    now = photos_of_tags(catalogue)
    assert (now["stripes"], now["pattern"]) == (before + 1, N_IMAGES)
    catalogue.take(1, ["stripes"])
    assert photos_of_tags(catalogue)["stripes"] == before


def test_the_list_of_tags_is_unfolded_level_by_level(client):
    top = client.get("/tags").text
    assert [(tag, folded) for tag, _, folded in shown(top)] == [("look", True), ("thing", False), ("rare one", False)]
    address = re.search(r'data-open="([^"]*)"', top)[1]
    part = client.get(address, headers={"x-part": "1"}).text
    assert shown(part) == [("pattern", N_IMAGES, True)]
    assert shown(client.get(address).text) == shown(part)  # without a script it is a page of its own
    assert [item["tag"] for item in client.get("/api/v1/tags/tree?under=pattern").json()["tags"]] == ["dots", "stripes"]
    assert "<table" in client.get("/tags?view=list").text
    assert ">dots</a>" in client.get("/tags?find=dot").text


def test_tags_to_filter_by_keep_the_search_and_lead_to_as_many_photos(client):
    page = client.get("/?q=dots&tag=rare one").text
    address = re.search(r'data-open="(/facets[^"]*)"', page)[1].replace("&amp;", "&")
    (look, *others) = shown(part := client.get(address, headers={"x-part": "1"}).text)
    assert look == ("look", N_IMAGES // 3, True)
    assert others == [("rare one", N_IMAGES // 3, False)]
    link = re.search(r'href="([^"]*)">look', part)[1].replace("&amp;", "&")
    assert link == "/?q=dots&tag=rare+one%2C+look"
    assert len(re.findall("data-item", client.get(link.replace("q=dots&", "")).text)) == N_IMAGES // 3
    assert client.get("/facets?taken_from=soon").status_code == 422
