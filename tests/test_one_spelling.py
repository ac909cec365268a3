"""A tag has one spelling in a catalogue, whether files or people name it, and whatever spellings they use."""

from __future__ import annotations

import json

import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger


@pytest.fixture
def place(tmp_path):
    tags = draw_photos(tmp_path / "photos", 8)
    fit_run(tmp_path / "photos", tags, tmp_path / "run")
    Catalogue.create(tmp_path / "cat", Tagger.load(tmp_path / "run", n_jobs=1)).index(tmp_path / "photos")
    return tmp_path


@pytest.fixture
def catalogue(place):
    return Catalogue.load(place / "cat", n_jobs=1)


@pytest.mark.parametrize(("by_hand", "in_file"), [("dog", "DOG"), ("new york", "New  York"), ("É", "e\u0301")])
def test_a_tag_of_a_person_and_of_a_file_in_another_spelling_is_one(by_hand, in_file, place, catalogue):
    catalogue.give(0, [by_hand])
    table = write_tags(place / "tags.csv", {"000.png": [in_file], "001.png": [in_file]})
    catalogue.index(place / "photos", table)
    assert [catalogue.image(i).tags for i in (0, 1)] == [[by_hand], [by_hand]]
    (count,) = [tag for tag in catalogue.tags() if tag.images]
    assert (count.tag, count.images, count.given) == (by_hand, 2, 2)
    assert [hit.id for hit in catalogue.search(in_file, 2).hits] == [0, 1]
    assert visterm("export cat --to xmp -k 1", place)[0] == 0
    text = (place / "photos" / "000.png.xmp").read_text(encoding="utf-8")
    assert f"<rdf:li>{by_hand}</rdf:li>" in text
    assert f"<rdf:li>{in_file}</rdf:li>" not in text


def test_files_in_two_spellings_are_one_tag_and_are_not_written_down_again(place, catalogue):
    table = write_tags(place / "tags.csv", {"000.png": ["Cat"], "001.png": ["cat"], "002.png": ["CAT", "cat"]})
    catalogue.index(place / "photos", table)
    assert [catalogue.image(i).tags for i in range(3)] == [["Cat"]] * 3
    catalogue.take(2, ["cat"])
    assert (catalogue.image(2).tags, catalogue.image(2).verdicts) == ([], {"Cat": -1})
    catalogue.index(place / "photos", table)
    assert catalogue.image(2).tags == []


def test_a_run_that_spells_a_tag_otherwise_names_it_from_then_on(place, catalogue):
    catalogue.give(0, ["dog"])
    table = write_tags(place / "tags.csv", {"001.png": ["dog"]})
    catalogue.index(place / "photos", table)
    tags = {name: [tag.replace("red", "Dog") for tag in given] for name, given in draw_photos(place / "photos").items()}
    catalogue.use(Tagger.load(fit_run(place / "photos", tags, place / "other"), n_jobs=1))
    assert [catalogue.image(i).tags for i in (0, 1)] == [["Dog"], ["Dog"]]
    assert "Dog" in {tag.tag for tag in catalogue.image(0).predicted} | set(catalogue.image(0).tags)


def test_the_command_shows_one_tag(place):
    assert visterm("tag cat 000.png --add dog", place)[0] == 0
    write_tags(place / "tags.csv", {"000.png": ["DOG"]})
    assert visterm("index cat photos --tags tags.csv", place)[0] == 0
    assert json.loads(visterm("tag cat 000.png --json", place)[1])["tags"] == ["dog"]
