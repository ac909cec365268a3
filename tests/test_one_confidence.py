"""A photo and a tag have one confidence at every door, tags raised by a tree included; a mistake has one chance."""

from __future__ import annotations

import csv
import html
import json
import re

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from command_line import visterm
from visterm import Catalogue, Tagger
from visterm.web.app import create_app
from visterm.web.pages.render import percent

pytestmark = pytest.mark.usefixtures("plugin")

TREE = [("husky", "dog"), ("poodle", "dog"), ("dog", "animal"), ("cat", "animal")]
COLOURS = {"husky": (0, 0, 255), "poodle": (0, 90, 200), "cat": (0, 200, 0), "sky": (230, 230, 230)}
TAGS = ["animal", "cat", "dog", "husky", "poodle", "sky"]
UNTAGGED = "070.png"  # Half a husky and half a poodle: each is less likely than dog, which both raise


def draw(tag, rng):
    return np.uint8(np.clip(rng.normal(COLOURS[tag], 60, (12, 12, 3)), 0, 255))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalogue of 70 tagged photos, some of them wrongly, and one without tags, and its run."""
    folder, rng = tmp_path_factory.mktemp("doors"), np.random.default_rng(0)
    tags = [list(COLOURS)[i % len(COLOURS)] for i in range(160)]
    given = [["sky" if tag == "husky" else "husky"] if i % 20 == 0 else [tag] for i, tag in enumerate(tags)]
    pictures = [draw(tag, rng) for tag in tags]
    tagger = Tagger(encoder="mean_colour", model="ridge", n_jobs=1).fit(pictures, given, tree=TREE)
    tagger.save(folder / "run")
    (folder / "photos").mkdir()
    between = np.concatenate([draw("husky", rng)[:6], draw("poodle", rng)[:6]])
    for number, picture in enumerate([*pictures[:70], between]):
        Image.fromarray(picture).save(folder / "photos" / f"{number:03d}.png")
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    catalogue.index(folder / "photos", [*given[:70], []])
    catalogue.stored.close()
    return folder


@pytest.fixture(scope="module")
def catalogue(folder):
    catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)
    yield catalogue
    catalogue.stored.close()


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(create_app(folder / "catalogue"), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def expected(folder):
    """The confidences of the photo without tags, by hand: those of the model's scores, raised by descendants."""
    run = Tagger.load(folder / "run", n_jobs=1)
    X = run.encoder.transform([folder / "photos" / UNTAGGED])
    single = run.calibration.confidences(run.model.decision_function(X)[0])
    chances = dict(zip(run.vocabulary.tags, single.tolist(), strict=True))
    dog = max(chances[tag] for tag in ("dog", "husky", "poodle"))
    raised = chances | {"dog": dog, "animal": max(chances["animal"], chances["cat"], dog)}
    assert raised != chances  # else the tree would change nothing here
    return raised


def photo_id(catalogue):
    return next(record.id for record in catalogue.records if record.name == UNTAGGED)


def by_python(folder, catalogue, client):
    [image] = catalogue.tagger.annotate([folder / "photos" / UNTAGGED], 0).images
    return {tag.tag: tag.confidence for tag in image.tags}


def by_stored_rows(folder, catalogue, client):
    number = photo_id(catalogue)
    return {tag.tag: tag.confidence for tag in catalogue.annotate([number], 0)[number]}


def by_search(folder, catalogue, client):
    hits = {tag: catalogue.search(tag, 0).hits for tag in TAGS}
    return {tag: hit.confidence for tag in TAGS for hit in hits[tag] if hit.image == UNTAGGED}


def by_sorted_search(folder, catalogue, client):
    hits = {tag: catalogue.search(tag, 0, combine="confidence").hits for tag in TAGS}
    return {tag: hit.confidence for tag in TAGS for hit in hits[tag] if hit.image == UNTAGGED}


def by_annotate_command(folder, catalogue, client):
    code, out, err = visterm(f"annotate run photos/{UNTAGGED} -k 0 --json", folder)
    assert code == 0, err
    return {tag["tag"]: tag["confidence"] for tag in json.loads(out.splitlines()[0])["tags"]}


def by_search_command(folder, catalogue, client):
    answers = {tag: visterm(f"search catalogue {tag} -k 0 --json", folder)[1] for tag in TAGS}
    hits = {tag: [json.loads(line) for line in out.splitlines()] for tag, out in answers.items()}
    return {tag: hit["confidence"] for tag in TAGS for hit in hits[tag] if hit.get("image") == UNTAGGED}


def by_export(folder, catalogue, client):
    code, _, err = visterm("export catalogue --to csv -o tags.csv --min-confidence 0", folder)
    assert code == 0, err
    with open(folder / "tags.csv", encoding="utf-8", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["file_name"].endswith(UNTAGGED))
    return dict(zip(row["predicted"].split(";"), map(float, row["confidence"].split(";")), strict=True))


def by_api_annotate(folder, catalogue, client):
    photo = (folder / "photos" / UNTAGGED).read_bytes()
    answer = client.post("/api/v1/annotate?k=20", files={"image": (UNTAGGED, photo, "image/png")})
    return {tag["tag"]: tag["confidence"] for tag in answer.raise_for_status().json()["images"][0]["tags"]}


def by_api_search(folder, catalogue, client):
    hits = {tag: client.get("/api/v1/search", params={"q": tag, "limit": 100}).json()["hits"] for tag in TAGS}
    return {tag: hit["confidence"] for tag in TAGS for hit in hits[tag] if hit["image"] == UNTAGGED}


DOORS = [
    by_python,
    by_stored_rows,
    by_search,
    by_sorted_search,
    by_annotate_command,
    by_search_command,
    by_export,
    by_api_annotate,
    by_api_search,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_door_gives_the_same_confidences(door, folder, catalogue, client, expected):
    shown = door(folder, catalogue, client)
    assert set(shown) == set(TAGS)
    assert shown == pytest.approx(expected, abs=1e-4)  # exports have four digits


def test_the_page_of_a_photo_shows_the_same_confidences(catalogue, client, expected):
    page = html.unescape(client.get(f"/image/{photo_id(catalogue)}").text)
    shown = re.findall(r'data-tag="(\w+)".*?<span class="chance">.*?<span>([^<]+)</span></span>', page, re.DOTALL)
    assert {"animal", "dog"} <= dict(shown).keys()
    for tag, text in shown:
        assert text == percent(expected[tag]), tag


def test_a_filter_by_predictions_keeps_the_photo_up_to_its_confidence(catalogue, client, expected):
    for tag, confidence in expected.items():
        for least, is_kept in ((confidence - 0.001, True), (confidence + 0.001, False)):
            params = {"predicted": tag, "min_predicted": least, "limit": 100}
            hits = client.get("/api/v1/search", params=params).raise_for_status().json()["hits"]
            assert (UNTAGGED in [hit["image"] for hit in hits]) == is_kept, (tag, least)


def test_a_probable_mistake_has_the_same_chance_in_python_by_the_command_and_the_api(folder, catalogue, client):
    assert catalogue.look_for_mistakes()
    chances = {(m.image, m.tag, m.kind): m.chance for m in catalogue.mistakes(200)}
    code, out, err = visterm("mistakes catalogue -k 200 --json", folder)
    assert code == 0, err
    of_command = [json.loads(line) for line in out.splitlines()]
    of_api = client.get("/api/v1/mistakes?limit=200").raise_for_status().json()["mistakes"]
    for listed in (of_command, of_api):
        assert {(m["image"], m["tag"], m["kind"]): m["chance"] for m in listed} == pytest.approx(chances)
    page = html.unescape(client.get("/review?queue=mistakes").text)
    assert f"</b>: {percent(catalogue.mistakes(1)[0].chance)}</p>" in page
