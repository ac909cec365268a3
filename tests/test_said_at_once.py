"""What a person says is in the next answer of every door: Python, the command line, requests and the page."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata

import numpy as np
import pytest
from starlette.testclient import TestClient

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run
from visterm import Catalogue, Tagger
from visterm.core.errors import UnknownNameError
from visterm.core.vocabulary import Vocabulary
from visterm.models.confidence.calibration import Calibration
from visterm.store.filters import Filter
from visterm.web.app import create_app

N = 12
UNKNOWN = "unknown"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A catalogue of 12 photos on disk, whose run has confidences and an alias, of which each test takes a copy."""
    folder = tmp_path_factory.mktemp("said")
    run = fit_run(folder / "learned", draw_photos(folder / "learned", seed=7), folder / "run")
    tagger = Tagger.load(run, n_jobs=1)
    n_tags = len(tagger.vocabulary)
    tagger.parts = tagger.parts.changed(calibration=Calibration(np.ones(n_tags), np.full(n_tags, -1.0), 0.5, 100))
    tagger.parts = tagger.parts.changed(
        vocabulary=Vocabulary(tagger.vocabulary.tags, tagger.vocabulary.counts, {"crimson": "red"})
    )
    draw_photos(folder / "photos", N)
    Catalogue.create(folder / "catalogue", tagger).index(folder / "photos")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made / "catalogue", tmp_path / "catalogue")
    return tmp_path


@pytest.fixture
def catalogue(folder):
    return Catalogue.load(folder / "catalogue", n_jobs=1)


@pytest.fixture
def doors(folder):
    """All ways to ask, each open before anything is said."""
    with TestClient(create_app(folder / "catalogue"), base_url="http://127.0.0.1:8080") as client:
        yield [InPython(folder), ByCommands(folder), ByRequests(client), OnThePage(client)]


class InPython:
    """Each door has ids with whether a person tagged them (or UNKNOWN), tags that complete, and counts of tags."""

    def __init__(self, folder):
        self.catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)

    def search(self, words="", **among):
        filters = Filter(**{{"tag": "tags"}.get(name, name): (tag,) for name, tag in among.items()})
        try:
            found = self.catalogue.search(words, 0, among=filters) if words else self.catalogue.browse(filters, 0)
        except UnknownNameError:
            return UNKNOWN
        return [(hit.id, hit.source is not None) for hit in found.hits]

    def complete(self, typed):
        return [tag for tag in self.catalogue.new_tags() if tag.startswith(typed)]

    def count(self, tag):
        return next((count.images for count in self.catalogue.tags() if count.tag == tag), 0)


class ByCommands:
    def __init__(self, folder):
        self.folder = folder

    def search(self, words="", **among):
        if set(among) - {"tag"}:  # a filter that the terminal doesn't have
            return InPython(self.folder).search(words, **among)
        filters = " ".join(f"--{name} '{tag}'" for name, tag in among.items())
        code, out, err = visterm(f"search catalogue {words and repr(words)} -k 0 --json {filters}", self.folder)
        if code:
            assert "Unknown tag" in err
            return UNKNOWN
        return [(line["id"], "source" in line) for line in map(json.loads, out.splitlines())]

    def complete(self, typed):
        return InPython(self.folder).complete(typed)  # a shell completes no tags

    def count(self, tag):
        """Count the photos to which an export gives the tag."""
        code, _, err = visterm("export catalogue --to jsonl -o tags.jsonl", self.folder)
        assert code == 0, err
        return sum(tag in json.loads(line)["tags"] for line in (self.folder / "tags.jsonl").read_text().splitlines())


class ByRequests:
    def __init__(self, client):
        self.client = client

    def search(self, words="", **among):
        answer = self.client.get("/api/v1/search", params={"q": words, "limit": 200, **among})
        if answer.status_code == 422:
            return UNKNOWN
        return [(hit["id"], "source" in hit) for hit in answer.json()["hits"]]

    def complete(self, typed):
        return [tag["tag"] for tag in self.client.get(f"/api/v1/tags/complete?prefix={typed}").json()["tags"]]

    def count(self, tag):
        tags = self.client.get("/api/v1/tags?limit=1000").json()["tags"]
        return next((count["images"] for count in tags if count["tag"] == tag), 0)


class OnThePage(ByRequests):
    def search(self, words="", **among):
        text = self.client.get("/", params={"q": words, **among}).text
        hits = text.split('<li class="hit"')[1:]
        if not hits and "Unknown tag" in text:
            return UNKNOWN
        return [(int(re.search(r"/image/(\d+)", hit)[1]), "tagged by hand" in hit) for hit in hits]

    def count(self, tag):
        row = re.search(rf'name={tag}".*?<td class="n">(\d+)</td>', self.client.get("/tags").text, re.DOTALL)
        facet = re.search(rf">{tag}</a> <small>(\d+)</small>", self.client.get("/facets").text)
        n = int(row[1]) if row else 0
        assert int(facet[1] if facet else 0) == n
        return n


def check(doors, photos):
    """All doors know that exactly some photos have the new tag "Okapi", in this order."""
    by_hand, others = [(i, True) for i in photos], [i for i in range(N) if i not in photos]
    for door in doors:
        assert door.search("OKAPI") == (by_hand or UNKNOWN), door
        assert sorted(i for i, _ in door.search(tag="okapi")) == sorted(photos), door
        assert sorted(i for i, _ in door.search(without="oKapi")) == others, door
        assert door.complete("Ok") == ["Okapi"] * bool(photos), door
        assert door.count("Okapi") == len(photos), door
        if photos:
            assert {i for i, _ in door.search("red okapi")[: len(photos)]} == set(photos), door
            assert sorted(i for i, _ in door.search("red -okapi")) == others, door
            assert sorted(i for i, _ in door.search("okapi -sky -red")) == sorted(photos), door
            assert sorted(i for i, _ in door.search("red", tag="OKAPI")) == sorted(photos), door


def test_all_doors_know_at_once_what_was_given_accepted_rejected_and_taken_back(catalogue, doors):
    check(doors, [])
    catalogue.give(3, ["Okapi"])
    check(doors, [3])
    catalogue.judge(2, "okapi", 1)
    check(doors, [3, 2])
    number = catalogue.judge(3, "OKAPI", -1)
    check(doors, [2])
    doors[2].client.post(f"/api/v1/feedback/{number}/undo")
    check(doors, [3, 2])
    catalogue.judge(2, "okapi", 0)
    catalogue.take(3, ["okapi"])
    check(doors, [])


def test_a_photo_that_is_gone_has_no_tag_for_any_door_until_it_is_back(catalogue, doors):
    catalogue.give(3, ["Okapi"])
    catalogue.stored.mark([3], "gone")
    for door in doors:
        assert door.search("okapi") == UNKNOWN
        assert door.search(tag="okapi") == []
        assert door.count("Okapi") == 0
        assert 3 not in [i for i, _ in door.search("red -blue")]
    assert doors[0].complete("Ok") == doors[2].complete("Ok") == []
    catalogue.stored.mark([3], "here")
    check(doors, [3])


def test_a_learned_tag_that_is_rejected_leaves_searches_filters_counts_and_exports(catalogue, doors):
    best = doors[0].search("red")[0][0]
    counts = [door.count("red") for door in doors]
    catalogue.give(best, ["red"])
    assert [door.count("red") for door in doors] == [n + 1 for n in counts]
    catalogue.judge(best, "Crimson", -1)
    catalogue.judge(best, "red", -1)
    for door in doors:
        for answer in (
            door.search("red"),
            door.search("crimson"),
            door.search(tag="red"),
            door.search(predicted="red"),
        ):
            assert best not in [i for i, _ in answer], door
        assert best in [i for i, _ in door.search(without="crimson")]
    assert [door.count("red") for door in doors] == counts


def test_letters_fold_in_filters_as_in_searches(catalogue, doors):
    catalogue.give(4, ["Ärmel"])
    catalogue.give(5, ["CRIMSON"])
    for door in doors:
        for spelled in ("ärmel", "ÄRMEL", unicodedata.normalize("NFD", "Ärmel")):
            assert door.search(spelled) == [(4, True)], door
            assert [i for i, _ in door.search(tag=spelled)] == [4], door
        for spelled in ("red", "Crimson"):
            assert door.search(spelled)[0] == (5, True), door
            assert [i for i, _ in door.search(tag=spelled)] == [5], door
            assert door.search("cool", tag=spelled) == [(5, False)], door
    assert doors[0].count("red") == doors[2].count("red") == 1


def test_a_rejected_word_with_a_minus_counts_as_not_there_and_a_given_one_excludes(catalogue):
    def places(words, **limits):
        return [hit.id for hit in catalogue.search(words, 0, **limits).hits]

    worst = places("green -blue")[-1]
    chance = next(hit.confidence for hit in catalogue.search("-blue", 0).hits if hit.id == worst)
    sure = {"min_confidence": chance + 0.001}
    assert worst not in places("-blue", **sure)
    before = {how: places("green -blue", combine=how) for how in ("sum", "confidence")}
    catalogue.judge(worst, "blue", -1)
    assert places("-blue")[0] == places("-blue", **sure)[0] == worst
    assert catalogue.search("-blue", 1).hits[0].confidence == 1
    for how, order in before.items():
        now = places("green -blue", combine=how)
        assert now.index(worst) < order.index(worst)
        assert [i for i in now if i != worst] == [i for i in order if i != worst]
        for k in range(1, N):
            assert [hit.id for hit in catalogue.search("green -blue", k, combine=how).hits] == now[:k]
    best = places("green -blue")[0]
    catalogue.give(best, ["blue"])
    for how in before:
        assert best not in places("green -blue", combine=how)
        assert best not in places("green -blue", combine=how, among=Filter(without=("red",)))


def test_pages_of_mixed_searches_are_one_list(catalogue):
    for image_id, tags in {1: ["red", "cool"], 2: ["cool"], 3: ["red", "okapi"], 4: ["okapi"], 6: ["red"]}.items():
        catalogue.give(image_id, tags)
    catalogue.judge(7, "cool", 1)
    catalogue.judge(7, "red", 1)
    for words in ("red cool", "cool -red", "okapi red", "okapi red -cool", "red cool -blue"):
        for limits in ({}, {"combine": "confidence"}, {"among": Filter(without=("grey",))}):
            whole = [(hit.id, hit.source) for hit in catalogue.search(words, 0, **limits).hits]
            for k in range(1, N):
                assert [(hit.id, hit.source) for hit in catalogue.search(words, k, **limits).hits] == whole[:k]
    assert [hit.source for hit in catalogue.search("red cool", 3).hits] == ["person", "accepted", None]


def test_of_a_new_word_nothing_is_said_where_nobody_gave_it(catalogue):
    catalogue.give(3, ["okapi"])
    hits = catalogue.search("red okapi", 0).hits
    assert [hit.confidence is None for hit in hits] == [hit.id != 3 for hit in hits]
    assert [hit.id for hit in catalogue.search("red okapi", 0, min_confidence=0.0).hits] == [3]
    assert catalogue.search("okapi", 0, cutoff=True).n_likely == 1


def test_words_that_only_leave_out_are_no_search_where_the_others_are_unknown(folder, catalogue):
    code, out, err = visterm("search catalogue 'zebra -red'", folder)
    assert (code, out) == (2, "")
    assert "Unknown tag 'zebra'" in err
    assert "only leave photos out" in err
    assert len(catalogue.search("-red -zebra", 0).hits) == len(catalogue.search("blue zebra", 0).hits) == N
    assert "Unknown tag, left out of the search: zebra" in visterm("search catalogue 'blue zebra'", folder)[2]
    assert "Name the catalogue first" in visterm("search visterm", folder)[2]
