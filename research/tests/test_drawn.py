"""The drawn library: same seed, same bytes; boxes, relations, spellings and queries that agree with each other."""

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visterm.core.errors import StorageError, UserError
from visterm_research.scenes import (
    GROUPS,
    IS_A,
    PART_OF,
    SPELLINGS,
    TRUE_TAGS,
    NoiseSettings,
    ancestors,
    draw_library,
    draw_scene,
    implied,
    queries_of,
    read_drawn_library,
)
from visterm_research.scenes.places import PLACES


@pytest.fixture(scope="module")
def scenes():
    return [draw_scene((0, index)) for index in range(300)]


@pytest.fixture
def library(small_library):
    return small_library


def bytes_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_seed_draws_the_same_scene_and_another_seed_another():
    first, again, other = draw_scene((7, 5)), draw_scene((7, 5)), draw_scene((7, 6))
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.tags, first.objects, first.place) == (again.tags, again.objects, again.place)
    assert other.image.tobytes() != first.image.tobytes()


def test_a_generator_goes_on_from_scene_to_scene():
    one, two = np.random.default_rng(4), np.random.default_rng(4)
    assert draw_scene(one).tags == draw_scene(two).tags
    assert draw_scene(one).image.tobytes() == draw_scene(two).image.tobytes()


@pytest.mark.parametrize("size", [(48, 48), (100, 210), (384, 384)])
def test_a_scene_has_the_size_that_was_requested(size):
    for index in range(12):
        scene = draw_scene((1, index), size)
        assert scene.image.shape == (size[1], size[0], 3)
        assert scene.image.dtype == np.uint8


@pytest.mark.parametrize("size", [(47, 100), (100, 385), (0, 0)])
def test_a_size_out_of_range_is_refused_with_the_range(size):
    with pytest.raises(UserError, match="48 to 384"):
        draw_scene(0, size)


def test_boxes_lie_in_the_picture_and_parts_in_their_objects(scenes):
    for scene in scenes:
        height, width = scene.image.shape[:2]
        for thing in scene.objects:
            left, top, right, bottom = thing.box
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
            for part in thing.parts:
                assert left <= part.box[0] < part.box[2] <= right
                assert top <= part.box[1] < part.box[3] <= bottom


def test_the_box_of_a_lone_balloon_holds_it():
    """In a clear sky, the brightness inside the box varies; around it, it hardly does."""
    scene = next(
        scene
        for scene in (draw_scene((11, index)) for index in range(1138, 3000))  # the first such scene, or a later one
        if scene.place == "heaven" and [thing.name for thing in scene.objects] == ["sky", "balloon"]
    )
    balloon = scene.objects[1]
    left, top, right, bottom = balloon.box
    inside = scene.image[top:bottom, left:right].astype(float)
    above = scene.image[max(0, top - 8) : top, left:right].astype(float)
    assert inside.std(axis=(0, 1)).max() > 3 * above.std(axis=(0, 1)).max()
    basket = next(part for part in balloon.parts if part.name == "basket")
    assert basket.box[1] > (top + bottom) / 2


def test_tags_are_true_tags_with_the_kinds_above_them(scenes):
    for scene in scenes:
        assert set(scene.tags) <= set(TRUE_TAGS)
        assert list(scene.tags) == sorted(set(scene.tags))
        for tag in scene.tags:
            assert set(ancestors(tag)) <= set(scene.tags)


def test_a_tagged_thing_is_among_the_objects_or_said_of_them(scenes):
    moods = {"night", "sunset", "winter", "autumn", "rain", "fog", "snow"}
    for scene in scenes:
        said = set(moods)
        for thing in scene.objects:
            said |= {thing.name, *implied(thing.name), *thing.attributes, *(part.name for part in thing.parts)}
        assert set(scene.tags) <= said


def test_relations_stay_within_the_true_tags_and_have_no_circles():
    assert {tag for pair in (*IS_A, *PART_OF) for tag in pair} <= set(TRUE_TAGS)
    assert len({kind for kind, _ in IS_A}) == len(IS_A)
    assert ancestors("oak") == ("tree", "plant")
    assert ancestors("sailboat") == ("boat", "vehicle")
    assert all(tag not in ancestors(tag) for tag in TRUE_TAGS)


def test_every_part_that_is_drawn_is_in_the_table(scenes):
    drawn = {(part.name, thing.name) for scene in scenes for thing in scene.objects for part in thing.parts}
    assert drawn <= set(PART_OF)
    assert len(drawn) > 0.9 * len(PART_OF)


def test_there_are_many_tags_a_few_frequent_and_many_rare(scenes):
    counts = sorted(Counter(tag for scene in scenes for tag in scene.tags).values(), reverse=True)
    assert len(TRUE_TAGS) >= 60
    assert len(counts) >= 90
    assert counts[0] > 0.3 * len(scenes)
    assert sum(count < 0.03 * len(scenes) for count in counts) > len(counts) / 3
    assert sum(counts[: len(counts) // 5]) > 0.5 * sum(counts)


def test_things_are_where_they_belong(scenes):
    assert {scene.place for scene in scenes} == set(PLACES)
    for scene in scenes:
        if "camel" in scene.tags:
            assert "desert" in scene.tags
        if "ship" in scene.tags:
            assert "sea" in scene.tags


def test_a_season_is_a_tag_only_where_something_shows_it(scenes):
    for scene in scenes:
        seen = {thing.name for thing in scene.objects}
        assert "winter" not in scene.tags or seen & {"snow", "forest", "house", "oak", "pine"}
        assert "autumn" not in scene.tags or seen & {"grass", "oak", "birch"}
    assert any("winter" in scene.tags for scene in scenes)


def test_every_spelling_leads_back_to_one_true_tag():
    assert set(SPELLINGS) == set(TRUE_TAGS)
    owners = {}
    for tag, spellings in SPELLINGS.items():
        for word in (tag, *spellings.all()):
            assert owners.setdefault(word.casefold(), tag) == tag, word
    assert owners == GROUPS
    assert (GROUPS["maison"], GROUPS["haus"], GROUPS["home"], GROUPS["montain"]) == (
        "house",
        "house",
        "house",
        "mountain",
    )


def test_given_tags_are_spellings_of_mostly_true_tags(library):
    meant = [[GROUPS[word.casefold()] for word in picture.given] for picture in library.pictures]
    true = sum(tag in p.tags for p, tags in zip(library.pictures, meant, strict=True) for tag in tags)
    given = sum(map(len, meant))
    assert given * 0.95 < true < given
    assert given < 0.9 * sum(len(picture.tags) for picture in library.pictures)
    assert any(word not in TRUE_TAGS for picture in library.pictures for word in picture.given)
    assert all(picture.given for picture in library.pictures)


def test_without_noise_the_given_tags_are_the_true_ones(tmp_path):
    silent = NoiseSettings(
        german=0, french=0, terse=0, forget=0, synonym=0, plural=0, misspell=0, capital=0, wrong=0
    )  # fmt: skip
    library = draw_library(tmp_path / "clean", n_scenes=20, noise=silent, n_jobs=1)
    assert all(sorted(picture.given) == list(picture.tags) for picture in library.pictures)


@pytest.mark.parametrize("noise", [{"wrong": 1.5}, {"forget": -0.1}, {"people": 0}, {"german": 0.7, "french": 0.7}])
def test_noise_that_is_no_chance_is_refused(noise):
    with pytest.raises(UserError, match="expected"):
        NoiseSettings(**noise)


def test_queries_by_hand():
    tags = [("cat", "night"), ("cat",), ("dog", "night"), ("oak", "tree")]
    found = {query.words: query.n_relevant for query in queries_of(tags, split="test")}
    assert found == {
        ("cat",): 2, ("night",): 2, ("dog",): 1, ("oak",): 1, ("tree",): 1, ("cat", "night"): 1, ("dog", "night"): 1,
    }  # fmt: skip
    assert [query.text for query in queries_of([("rowing boat",)])] == ['"rowing boat"']


def test_what_follows_from_another_word_and_colours_make_no_query():
    tags = [("forest", "grass", "plant", "red", "tree"), ("grass", "red")]
    assert {query.words for query in queries_of(tags)} == {
        ("forest",), ("grass",), ("plant",), ("tree",), ("forest", "grass"), ("grass", "tree"),
    }  # fmt: skip


def test_a_meadow_or_a_forest_that_one_sees_is_in_the_truth(scenes):
    """A meadow that fills a third of the picture's height is a tag, and a forest is trees."""
    meadows = [scene for scene in scenes if scene.place == "village" and "snow" not in scene.tags]
    assert sum({"grass", "plant"} <= set(scene.tags) for scene in meadows) > 0.9 * len(meadows)
    forests = [scene for scene in scenes if "forest" in scene.tags]
    assert forests
    assert all({"tree", "plant"} <= set(scene.tags) for scene in forests)


def test_what_is_seen_of_a_picture_holds_its_tags_and_all_that_has_a_box(library):
    picture = next(p for p in library.pictures if any(thing.parts for thing in p.objects))
    thing = next(thing for thing in picture.objects if thing.parts)
    assert picture.seen >= {*picture.tags, thing.name, *ancestors(thing.name), *(part.name for part in thing.parts)}
    assert all(picture.seen <= set(TRUE_TAGS) for picture in library.pictures)


def test_every_query_of_a_library_counts_its_pictures(library):
    assert {query.split for query in library.queries} == {"train", "valid", "test"}
    for query in library.queries:
        shown = sum(set(query.words) <= set(p.tags) for p in library.pictures if p.split == query.split)
        assert 1 <= query.n_relevant == shown


def test_a_library_is_written_whole(library):
    truth = [json.loads(line) for line in (library.folder / "truth.jsonl").read_text("utf-8").splitlines()]
    assert [(row["file_name"], tuple(row["tags"]), row["person"]) for row in truth] == [
        (picture.file_name, picture.tags, picture.person) for picture in library.pictures
    ]
    tags = rows_of(library.tags_file)
    assert list(tags[0]) == ["file_name", "tags", "split"]
    assert [row["tags"].split(";") for row in tags] == [list(picture.given) for picture in library.pictures]
    assert [row["tags"].split(";") for row in rows_of(library.true_tags_file)] == [
        list(p.tags) for p in library.pictures
    ]
    assert Counter(row["split"] for row in tags) == {"train": 140, "valid": 20, "test": 40}
    assert [tuple(row.values()) for row in rows_of(library.folder / "isa.csv")] == list(IS_A)
    assert [tuple(row.values()) for row in rows_of(library.folder / "part_of.csv")] == list(PART_OF)
    assert {row["spelling"]: row["tag"] for row in rows_of(library.folder / "groups.csv")} == GROUPS
    for picture in library.pictures:
        with Image.open(library.images / picture.file_name) as image:
            assert (image.format, image.size) == ("JPEG", picture.size)


def test_the_same_seed_writes_the_same_bytes_for_any_number_of_threads(tmp_path):
    one, other = (draw_library(tmp_path / str(n), n_scenes=60, seed=3, n_jobs=n).folder for n in (1, 3))
    assert bytes_of(one) == bytes_of(other)


def test_a_picture_of_a_library_is_a_scene_that_can_be_drawn_alone(tmp_path):
    library = draw_library(tmp_path / "png", n_scenes=3, seed=8, format="png")
    scene = draw_scene((8, 2))
    with Image.open(library.images / library.pictures[2].file_name) as image:
        assert np.array_equal(np.asarray(image), scene.image)
    assert library.pictures[2].objects == scene.objects


def test_progress_hears_of_every_picture(tmp_path):
    class Heard:
        def __init__(self):
            self.events = []

        def start(self, task, total=None):
            self.events.append((task, total))

        def advance(self, steps=1, note=""):
            self.events.append(steps)

        def finish(self):
            self.events.append("end")

    heard = Heard()
    draw_library(tmp_path / "few", n_scenes=3, progress=heard)
    assert heard.events == [("drawing", 3), 1, 1, 1, "end"]


def test_only_a_drawn_library_is_replaced(tmp_path):
    other = tmp_path / "holiday"
    other.mkdir()
    (other / "photo.jpg").write_bytes(b"precious")
    with pytest.raises(StorageError, match="is not replaced"):
        draw_library(other, n_scenes=1)
    assert (other / "photo.jpg").read_bytes() == b"precious"
    mine = draw_library(tmp_path / "mine", n_scenes=4)
    draw_library(tmp_path / "mine", n_scenes=2)
    assert len((mine.folder / "truth.jsonl").read_text("utf-8").splitlines()) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holiday", "mine"]


@pytest.mark.parametrize("wrong", [{"n_scenes": 0}, {"seed": -1}, {"format": "bmp"}, {"n_jobs": 0}])
def test_arguments_out_of_range_leave_nothing_behind(tmp_path, wrong):
    with pytest.raises(UserError, match="expected"):
        draw_library(tmp_path / "library", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_drawing_leaves_the_old_library(tmp_path):
    class Failing:
        def start(self, task, total=None):
            pass

        def advance(self, steps=1, note=""):
            raise RuntimeError("no more")

        def finish(self):
            pass

    library = draw_library(tmp_path / "library", n_scenes=2)
    before = bytes_of(library.folder)
    with pytest.raises(RuntimeError, match="no more"):
        draw_library(tmp_path / "library", n_scenes=9, progress=Failing())
    assert bytes_of(library.folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["library"]


def test_a_kill_leaves_no_library_and_the_next_writing_cleans_up(tmp_path):
    target = tmp_path / "library"
    script = (
        f"from visterm_research.scenes import draw_library\ndraw_library({str(target)!r}, n_scenes=100000, n_jobs=1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ)
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob(".library.*/images/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(tmp_path.glob(".library.*/images/*"))
    assert not target.exists()
    draw_library(target, n_scenes=2)
    assert [path.name for path in tmp_path.iterdir()] == ["library"]


def test_importing_the_package_needs_neither_numba_nor_scikit_learn():
    script = "import sys, visterm_research.scenes\nassert not {'numba', 'sklearn', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_truth_is_json_lines_with_boxes(library):
    lines = (library.folder / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 200
    assert set(first) >= {"file_name", "tags", "given", "objects", "person", "place", "split"}
    assert all(len(thing["box"]) == 4 for thing in first["objects"])
    assert Path(library.images / first["file_name"]).is_file()


def test_a_drawn_library_is_read_back_equal(tmp_path):
    library = draw_library(tmp_path / "library", n_scenes=20, seed=1, n_jobs=1)
    assert read_drawn_library(library.folder) == library
    with pytest.raises(StorageError, match="no drawn library"):
        read_drawn_library(tmp_path)
