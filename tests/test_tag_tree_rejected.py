"""A rejected tag of a tree takes those of tag files under it away at every door, and never what a person gave."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from command_line import visterm
from visterm import Catalogue, Tagger
from visterm.library.dictionary import photos_of_tags, tree_level
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.search.judgements import manual_tags
from visterm.library.training import judged_images
from visterm.models.confidence.calibration import Calibration
from visterm.store.filters import Filter
from visterm.web.app import create_app

pytestmark = pytest.mark.usefixtures("plugin")

TREE = [("husky", "dog"), ("poodle", "dog"), ("dog", "animals"), ("cat", "animals")]
COLOURS = {"husky": (0, 0, 255), "poodle": (0, 90, 200), "cat": (0, 200, 0), "sky": (230, 230, 230)}
ENCODER = {"encoder": "mean_colour"}
FILES = {"a": ["husky"], "b": ["cat"], "c": ["poodle", "cat"], "d": ["animals/dog/pug"], "e": ["husky"], "f": ["sky"]}
NOW = {  # After what `folder` says
    "a": [],  # dog rejected: animals, which only husky led to, is gone with it
    "b": [],
    "c": ["animals", "cat"],  # another tag of the file leads to animals
    "d": [],  # a new tag, whose path says where it lies
    "e": ["animals", "dog", "husky"],  # animals rejected, but a person gave husky
    "f": ["sky"],
}
TAGS = ["animals", "dog", "husky", "poodle", "cat", "pug", "sky"]
HAVE = {tag: sorted(name for name in NOW if tag in NOW[name]) for tag in TAGS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalogue of six photos with tags of files, of which a person rejected some that lie above."""
    folder = tmp_path_factory.mktemp("rejected")
    rng = np.random.default_rng(0)
    drawn = [
        (tag, np.uint8(np.clip(rng.normal(COLOURS[tag], 25, (12, 12, 3)), 0, 255)))
        for _ in range(20)
        for tag in COLOURS
    ]
    tagger = Tagger(**ENCODER, model="ridge").fit([image for _, image in drawn], [[tag] for tag, _ in drawn], tree=TREE)
    tagger.parts = tagger.parts.changed(calibration=Calibration(np.ones(6), np.full(6, -1.0), 0.5, 100))
    (folder / "photos").mkdir()
    for name, (_, image) in zip(FILES, drawn, strict=False):
        Image.fromarray(image).save(folder / "photos" / f"{name}.png")
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    lines = [f"{name}.png,{';'.join(tags)}" for name, tags in FILES.items()]
    (folder / "tags.csv").write_text("\n".join(["image,tags", *lines]))
    catalogue.index(folder / "photos", folder / "tags.csv")
    number = {hit.image: hit.id for hit in catalogue.browse(k=0).hits}
    for name, tag in (("a", "dog"), ("b", "animals"), ("c", "dog"), ("d", "dog"), ("e", "animals")):
        catalogue.judge(number[f"{name}.png"], tag, -1)
    catalogue.give(number["e.png"], ["husky"])
    catalogue.stored.close()
    return folder


@pytest.fixture
def catalogue(folder):
    catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)
    yield catalogue
    catalogue.stored.close()


def names(hits):
    return sorted(hit.image.removesuffix(".png") for hit in hits)


def test_judgements_in_a_tree_are_merged_once_for_repeated_searches(catalogue):
    vocabulary, query = catalogue.tagger.vocabulary, catalogue.query_weights("husky")
    tree = catalogue.tagger.tree.words
    first = manual_tags(catalogue.stored, vocabulary, query, tree)
    assert manual_tags(catalogue.stored, vocabulary, query, tree) is first
    assert len(first.left_out) > len(manual_tags(catalogue.stored, vocabulary, query, None).left_out)


@pytest.mark.parametrize("tag", TAGS)
def test_a_filter_finds_what_still_has_a_tag(catalogue, tag):
    assert names(catalogue.browse(Filter(tags=(tag,)), 0).hits) == HAVE[tag]
    assert names(catalogue.browse(Filter(without=(tag,)), 0).hits) == sorted(set(FILES) - set(HAVE[tag]))


def test_a_filter_by_predictions_passes_over_those_under_a_rejected_tag(catalogue):
    stored, current = catalogue.stored, catalogue.stored.runs.current().id
    predicted = dict(stored.database.rows("SELECT image_id, count(*) FROM predictions GROUP BY image_id"))
    assert len(predicted) == len(FILES)
    with stored.database.transaction() as connection:  # as they were before dog was rejected
        husky = stored.tags.ids(["husky"], create=True)["husky"]
        connection.execute("DELETE FROM predictions")
        connection.execute(
            "INSERT INTO predictions SELECT id, ?, ?, 1.0, 0.9 FROM images WHERE state = 'here'", (current, husky)
        )
    assert names(catalogue.browse(Filter(predicted=("animals",)), 0).hits) == ["f"]


def test_facets_and_counts_agree_with_the_filter(catalogue):
    counts = {tag: n for tag, n in photos_of_tags(catalogue).items() if n}
    assert counts == {tag: len(found) for tag, found in HAVE.items() if found}
    assert {each.tag: each.images for each in tree_level(catalogue, "animals")} == {"dog": 1, "cat": 1}
    assert {one.tag: one.images for one in catalogue.tags() if one.images} == {"husky": 1, "cat": 1, "sky": 1}
    with TestClient(create_app(catalogue.stored.folder), base_url="http://127.0.0.1") as client:
        level = client.get("/api/v1/tags/tree?under=animals").json()["tags"]
        assert [(one["tag"], one["images"]) for one in level] == [("dog", 1), ("cat", 1)]
        found = client.get("/api/v1/search", params={"tag": "animals", "limit": 50}).json()["hits"]
        assert sorted(hit["image"] for hit in found) == ["c.png", "e.png"]


def test_searches_and_completions_know_no_tag_that_no_photo_has_any_more(catalogue):
    assert names(catalogue.search("husky", 0).hits) == ["e", "f"]  # rejected, or under it, of all others
    for tag in ("dog", "husky"):
        found = catalogue.search(tag, 0).hits
        assert (found[0].image, found[0].source) == ("e.png", "person")
        assert not {"a", "b", "d"} & set(names(found))
    assert "animals/dog/pug" not in catalogue.new_tags()
    with TestClient(create_app(catalogue.stored.folder), base_url="http://127.0.0.1") as client:
        found = [client.get(f"/api/v1/tags/complete?prefix={typed}").json()["tags"] for typed in ("animals", "HUS")]
    assert [[one["tag"] for one in tags] for tags in found] == [["animals"], ["husky"]]
    assert catalogue.search("pug sky", 0).unknown == ["pug"]


def test_learning_takes_the_same_tags(catalogue):
    features = CatalogueFeatures(catalogue.stored, catalogue.tagger.encoder.fingerprint)
    part = judged_images(catalogue.tagger, catalogue.stored, features)
    learned = {image.name[0]: sorted(tags) for image, tags in zip(part.images, part.tags, strict=True)}
    assert learned == {name: sorted(tags) for name, tags in NOW.items()}


def test_an_export_writes_the_same_tags(folder, catalogue):
    code, _, err = visterm("export catalogue --to jsonl -o out.jsonl --min-confidence 0.99", folder)
    assert code == 0, err
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    written = {line["file_name"][0]: line["tags"] for line in lines}
    assert {name: tags for name, tags in written.items() if tags} == {"c": ["cat"], "e": ["husky"], "f": ["sky"]}
    code, _, err = visterm("export catalogue --min-confidence 0.99", folder)
    assert code == 0, err
    sidecars = {path.name[0]: path.read_text() for path in (folder / "photos").glob("*.xmp")}
    assert sorted(sidecars) == ["c", "e", "f"]
    assert ("animals|cat" in sidecars["c"], "animals|dog|husky" in sidecars["e"]) == (True, True)


def test_a_photo_and_copies_of_it_say_what_still_counts(catalogue):
    number = {hit.image[0]: hit.id for hit in catalogue.browse(k=0).hits}
    assert (catalogue.image(number["b"]).tags, catalogue.image(number["c"]).tags) == ([], ["cat"])
    assert catalogue.stored.tags.held() == {number["c"]: ["cat"], number["e"]: ["husky"], number["f"]: ["sky"]}


def test_what_is_taken_back_lets_the_file_speak_again(catalogue):
    number = next(hit.id for hit in catalogue.browse(k=0).hits if hit.image == "b.png")
    catalogue.judge(number, "animals", 0)
    assert "b" in names(catalogue.browse(Filter(tags=("animals",)), 0).hits)
    catalogue.judge(number, "animals", -1)
    assert "b" not in names(catalogue.browse(Filter(tags=("cat",)), 0).hits)
    catalogue.judge(number, "cat", 1)  # what a person accepts stands
    assert photos_of_tags(catalogue)["animals"] == 3
    assert {one.tag: one.images for one in catalogue.tags()}["cat"] == 2
    catalogue.judge(number, "cat", 0)
