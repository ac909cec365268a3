"""What is asked first is what would teach most: unsure answers, of rare tags, where runs disagree."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from visterm.data.tag_tree import TagTree
from visterm.library.review import review_queue, sure_photos
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.images import NewImage
from visterm.store.tags import Prediction


def catalogue(predictions, given=()) -> StoredCatalogue:
    """Make images 1, 2, ... with predicted tags and their confidences, and given tags."""
    stored = StoredCatalogue(Origin("", "run"))
    n = len(predictions)
    records = [NewImage(f"{i}.jpg", f"/photos/{i}.jpg", 10, 4, 4, f"hash {i}") for i in range(n)]
    stored.add(records, np.ones((n, 2), np.float32))
    ids = [image.id for image in stored.images.all()]
    run = stored.runs.current()
    stored.tags.set_predictions(
        run.id,
        {i: [Prediction(tag, 1.0, p) for tag, p in tags.items()] for i, tags in zip(ids, predictions, strict=True)},
    )
    for place, tags in given:
        stored.tags.give(ids[place], tags, "file")
    return stored


def asked(stored, **how):
    first = stored.images.all()[0].id
    return [(item.image_id - first, item.tag) for item in review_queue(stored, **how)]


def test_the_least_sure_answers_are_requested_first():
    stored = catalogue([{"sea": 0.9}, {"sky": 0.55}, {"tree": 0.2}])
    assert asked(stored) == [(1, "sky"), (2, "tree"), (0, "sea")]


def test_an_answer_is_worth_its_entropy_over_the_root_of_the_images_that_have_the_tag():
    stored = catalogue([{"sea": 0.5}, {}, {}, {}], given=[(1, ["sea"]), (2, ["sea"]), (3, ["sea"])])
    [item] = review_queue(stored)
    assert item.value == pytest.approx(1 / 2)  # one bit, and three images
    assert item.why == ["50% sure", "a rare tag: 3 photos"]


def test_a_tag_that_only_predictions_have_is_told_so():
    [item] = review_queue(catalogue([{"sea": 0.5}]))
    assert item.why == ["50% sure", "a rare tag: no photo has it yet"]


def test_what_follows_in_a_tree_is_not_asked_and_photos_of_children_count_for_their_parents():
    tree = TagTree([("husky", "dog"), ("poodle", "dog")])
    predicted = {"dog": 0.5, "husky": 0.6}
    stored = catalogue([predicted, predicted, predicted], given=[(0, ["husky"])])
    stored.tags.judge(stored.images.all()[1].id, "Dog", -1)
    assert asked(stored, tree=tree) == [(2, "dog")]
    [item] = review_queue(stored, tree=tree)
    assert item.why == ["50% sure", "a rare tag: 1 photo"]


def test_rare_tags_come_before_frequent_ones_of_the_same_sureness():
    stored = catalogue([{"sea": 0.5}, {"newt": 0.5}, {}, {}], given=[(2, ["sea"]), (3, ["sea"])])
    assert asked(stored) == [(1, "newt"), (0, "sea")]


def test_questions_are_of_many_tags_and_each_image_is_asked_about_once():
    stored = catalogue([{"sea": 0.5, "sky": 0.5}, {"sea": 0.5}, {"sea": 0.5}, {"tree": 0.4}])
    assert asked(stored) == [(0, "sea"), (3, "tree"), (1, "sea"), (2, "sea")]
    assert asked(stored, k=2) == [(0, "sea"), (3, "tree")]


def test_what_was_given_or_answered_or_is_skipped_is_not_asked():
    stored = catalogue([{"sea": 0.5, "sky": 0.6}, {"sea": 0.5}, {"sea": 0.5}], given=[(0, ["sea"])])
    ids = [image.id for image in stored.images.all()]
    stored.tags.judge(ids[1], "sea", -1)
    assert asked(stored) == [(0, "sky"), (2, "sea")]  # of 0.97 bits, and of one bit over the root of 2
    assert asked(stored, skip={(ids[2], "sea")}) == [(0, "sky")]
    stored.tags.judge(ids[1], "sea", 0)
    assert (1, "sea") in asked(stored)


def test_where_runs_disagree_is_asked_before_what_both_are_as_sure_of():
    stored = catalogue([{"sea": 0.8}, {"sky": 0.8}])
    first, second = [image.id for image in stored.images.all()]
    stored.use_run(stored.runs.add("second run", ""))
    stored.tags.set_predictions(
        stored.runs.current().id, {first: [Prediction("sea", 1.0, 0.8)], second: [Prediction("sky", 1.0, 0.2)]}
    )
    items = review_queue(stored)
    assert [item.tag for item in items] == ["sky", "sea"]
    assert items[0].why[1] == "the previous run was 80% sure"
    assert len(items[1].why) == 2


def test_a_run_without_confidences_is_reviewed_too_and_says_so():
    stored = catalogue([{"sea": None}])
    [item] = review_queue(stored)
    assert item.why[0] == "the run has no confidences"
    assert item.as_dict()["confidence"] is None


def test_without_confidences_questions_are_drawn_by_chance_and_are_the_same_at_each_call():
    stored = catalogue([{f"tag{tag}": None for tag in range(3)} for _ in range(30)])
    first = [(item.image_id, item.tag) for item in review_queue(stored, 9)]
    assert first == [(item.image_id, item.tag) for item in review_queue(stored, 9)]
    images = [image_id for image_id, _ in first]
    assert images != sorted(images)  # not one folder after the other
    assert Counter(tag for _, tag in first) == {"tag0": 3, "tag1": 3, "tag2": 3}


def test_images_that_are_gone_are_not_asked_about():
    stored = catalogue([{"sea": 0.5}, {"sea": 0.5}])
    stored.mark([stored.images.all()[0].id], "gone")
    assert [item.image_id for item in review_queue(stored)] == [stored.images.all()[0].id]


def test_doubts_about_frequent_tags_come_first_where_these_are_asked_for():
    stored = catalogue(
        [{"newt": 0.5}, {"sea": 0.6}, {"sea": 0.45}, {"sky": 0.99}, {}, {}],
        given=[(4, ["sea", "sky"]), (5, ["sea", "sky"])],
    )
    assert asked(stored)[0] == (0, "newt")
    assert asked(stored, frequent=True) == [(2, "sea"), (1, "sea"), (0, "newt"), (3, "sky")]


def sure(stored, k=24, **how):
    first, photos = stored.images.all()[0].id, sure_photos(stored, k, **how)
    return photos and (photos.tag, [image - first for image in photos.images], photos.total)


def test_a_screen_has_the_photos_that_most_certainly_have_the_tag_of_most_sure_photos():
    stored = catalogue([{"sea": 0.7, "sky": 0.9}, {"sea": 0.4, "sky": 0.99}, {"sea": 0.6}, {"sky": 0.8, "sun": 0.5}])
    assert sure(stored, 2) == ("sky", [1, 0], 3)
    assert sure(stored, tag="sea") == ("sea", [0, 2], 2)
    assert sure(stored, tag="no such tag") == ("sky", [1, 0, 3], 3)
    assert sure(stored, skip={"sky", "sea"}) == ("sun", [3], 1)
    assert sure(stored, skip={"sky", "sea", "sun"}) is None


def test_a_screen_has_no_photo_whose_answer_is_known_or_follows():
    predictions = [{"dog": 0.9}, {"dog": 0.8}, {"dog": 0.7, "animal": 0.9}, {"animal": 0.8}]
    stored = catalogue(predictions, given=[(0, ["dog"]), (2, ["dog"])])
    stored.tags.judge(stored.images.all()[1].id, "dog", -1)
    assert sure(stored) == ("animal", [2, 3], 2)
    tree = TagTree([("dog", "animal")])
    assert sure(stored, tree=tree) == ("animal", [3], 1)


def test_photos_of_a_run_without_confidences_are_shown_by_their_scores():
    stored = catalogue([{"sea": None}, {"sea": None}])
    assert sure(stored) == ("sea", [0, 1], 2)
