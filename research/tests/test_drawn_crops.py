"""Crops of drawn objects and parts: one tag each, true pairs, splits by picture, same seed, same bytes."""

import csv
import hashlib
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from visterm.core.errors import StorageError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.relations import PART_OF_FILE, part_pairs, read_related
from visterm.models.parts.relations import Quadruplets
from visterm_research.scenes import IS_A, PART_OF, draw_scene
from visterm_research.scenes.crops import SIZE, draw_crops, read_drawn_crops


@pytest.fixture(scope="module")
def crops(tmp_path_factory):
    return draw_crops(tmp_path_factory.mktemp("drawn") / "crops", n_scenes=60, seed=3, n_jobs=1)


def bytes_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def test_crops_are_written_whole_and_read_back_equal(crops):
    assert read_drawn_crops(crops.folder) == crops
    assert rows_of(crops.tags_file) == list(crops.crops)
    assert rows_of(crops.part_of_file) == list(PART_OF)
    assert rows_of(crops.folder / "isa.csv") == list(IS_A)
    assert sorted(path.name for path in crops.images.iterdir()) == [crop.file_name for crop in crops.crops]


def test_every_pair_is_an_object_and_a_true_part_of_one_picture(crops):
    tags = {crop.file_name: (crop.tag, crop.split) for crop in crops.crops}
    assert len(crops.pairs) > 60
    for pair in crops.pairs:
        assert (pair.part, pair.object) in PART_OF
        assert tags[pair.object_image] == (pair.object, pair.split)
        assert tags[pair.part_image] == (pair.part, pair.split)
        assert pair.object_image[:6] == pair.part_image[:6]
    assert max(Counter(pair.part_image for pair in crops.pairs).values()) == 1


def test_all_crops_of_a_picture_are_in_one_split(crops):
    splits = {}
    for crop in crops.crops:
        assert splits.setdefault(crop.file_name[:6], crop.split) == crop.split
    assert set(splits.values()) == {"train", "valid", "test"}


def area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def largest(things, name):
    """The largest box of a name, and whether another is as large."""
    found = sorted((thing for thing in things if thing.name == name), key=lambda thing: area(thing.box))
    return found[-1], len(found) > 1 and area(found[-2].box) == area(found[-1].box)


def test_crops_show_the_largest_object_and_part_of_each_name_with_their_surroundings(crops):
    """Boxes far from the picture's edge that are not slim are cut out by hand, a tenth added on each side."""
    compared = 0
    for pair in crops.pairs:
        scene = draw_scene((3, int(pair.part_image[:6])), SIZE)
        thing, tied = largest(scene.objects, pair.object)
        part, tied_part = largest(thing.parts, pair.part)
        left, top, right, bottom = part.box
        longer, shorter = sorted((right - left, bottom - top))[::-1]
        room = 0.1 * longer
        inside = min(left, top, SIZE[0] - right, SIZE[1] - bottom) > room
        if tied or tied_part or not inside or shorter + 2 * room < 0.6 * longer:
            continue
        cut = Image.fromarray(scene.image).crop((left - room, top - room, right + room, bottom + room))
        with Image.open(crops.images / pair.part_image) as image:
            found = np.asarray(image.resize((8, 8)), float)
        assert np.abs(found - np.asarray(cut.resize((8, 8)), float)).mean() < 12, pair
        compared += 1
        if compared == 12:
            break
    assert compared == 12


def test_slim_parts_are_shown_with_what_is_beside_them(crops):
    for crop in crops.crops:
        with Image.open(crops.images / crop.file_name) as image:
            assert max(image.size) == 96
            assert min(image.size) >= 44, crop


def test_what_is_too_small_is_left_out(crops, tmp_path):
    large = draw_crops(tmp_path / "large", n_scenes=60, seed=3, smallest=60, n_jobs=1)
    assert 0 < len(large.crops) < len(crops.crops)
    for pair in large.pairs[:40]:
        scene = draw_scene((3, int(pair.part_image[:6])), SIZE)
        sides = [
            max(part.box[2] - part.box[0], part.box[3] - part.box[1])
            for thing in scene.objects
            for part in thing.parts
            if (part.name, thing.name) == (pair.part, pair.object)
        ]
        assert max(sides) >= 60


def test_the_same_seed_writes_the_same_bytes_for_any_number_of_threads(tmp_path):
    one = draw_crops(tmp_path / "one", n_scenes=12, seed=5, n_jobs=1)
    two = draw_crops(tmp_path / "two", n_scenes=12, seed=5, n_jobs=3)
    assert bytes_of(one.folder) == bytes_of(two.folder)
    assert one.crops != draw_crops(tmp_path / "other", n_scenes=12, seed=6, n_jobs=1).crops


def test_crops_are_a_corpus_whose_relations_give_quadruplets(crops):
    corpus = Corpus.read(crops.images, crops.tags_file)
    assert list(zip(corpus.names, corpus.tags, corpus.splits, strict=True)) == [
        (crop.file_name, [crop.tag], crop.split) for crop in crops.crops
    ]
    vocabulary = Vocabulary.from_lists(corpus.tags)
    Y = vocabulary.encode(corpus.tags)
    stream = Quadruplets(Y, part_pairs(read_related(crops.part_of_file, PART_OF_FILE), vocabulary))
    shown = {(pair.part, pair.object) for pair in crops.pairs}
    assert {tuple(vocabulary.tags[tag] for tag in pair) for pair in stream.relations} >= shown


def test_only_drawn_crops_are_replaced(tmp_path):
    other = tmp_path / "holiday"
    other.mkdir()
    (other / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(StorageError, match="not a drawn set of crops"):
        draw_crops(other, n_scenes=1)
    assert [path.name for path in other.iterdir()] == ["photo.jpg"]
    draw_crops(tmp_path / "mine", n_scenes=3)
    again = draw_crops(tmp_path / "mine", n_scenes=2)
    assert read_drawn_crops(tmp_path / "mine").crops == again.crops
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holiday", "mine"]
    with pytest.raises(StorageError, match="no drawn set of crops"):
        read_drawn_crops(other)


def test_an_error_while_drawing_leaves_the_old_crops(tmp_path):
    class Stop:
        def start(self, task, total=None):
            pass

        def advance(self, steps=1, note=""):
            raise KeyboardInterrupt

        def finish(self):
            pass

    before = draw_crops(tmp_path / "crops", n_scenes=2)
    with pytest.raises(KeyboardInterrupt):
        draw_crops(tmp_path / "crops", n_scenes=4, progress=Stop())
    assert read_drawn_crops(tmp_path / "crops") == before
    assert [path.name for path in tmp_path.iterdir()] == ["crops"]


@pytest.mark.parametrize("wrong", [{"n_scenes": 0}, {"seed": -1}, {"side": 8}, {"side": 385}, {"smallest": 0}])
def test_arguments_out_of_range_leave_nothing_behind(tmp_path, wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        draw_crops(tmp_path / "crops", **wrong)
    assert list(tmp_path.iterdir()) == []
