"""A tag has one spelling in a catalogue, whether files or people name it, and whatever spellings they use."""

from __future__ import annotations

import json
import sqlite3

import pytest

from command_line import visterm
from tiny_catalogue import TO_FORMAT_7
from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.library.steps import tag_photos, undo_step


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


def test_a_catalogue_with_a_tag_in_two_spellings_has_one_when_it_is_opened_again(place, catalogue):
    catalogue.give(0, ["dog"])
    catalogue.give(1, ["dog"])
    catalogue.judge(3, "dog", -1)
    step = tag_photos(catalogue, [4], give=["dog"])
    path = catalogue.stored.database.path
    catalogue.stored.close()
    with sqlite3.connect(path) as connection:  # as an earlier visterm left it
        connection.executescript(TO_FORMAT_7)
        connection.execute("INSERT INTO tags (id, name, key) VALUES (900, 'DOG', 'dog')")
        for image, source in ((0, "file"), (2, "file")):
            connection.execute("INSERT INTO given VALUES (?, 900, ?)", (image, source))
        for image, verdict in ((1, -1), (3, 1)):
            connection.execute(
                "INSERT INTO feedback (image_id, tag_id, verdict, at) VALUES (?, 900, ?, '2026')", (image, verdict)
            )
    opened = Catalogue.load(place / "cat", n_jobs=1)
    assert [opened.image(i).tags for i in range(5)] == [["dog"], [], ["dog"], ["dog"], ["dog"]]
    assert {tag.tag: tag.source for tag in opened.image(0).given} == {"dog": "person"}
    assert [opened.image(i).verdicts for i in (1, 3)] == [{"dog": -1}, {"dog": 1}]
    undo_step(opened, step.number)
    assert opened.image(4).tags == []
    assert opened.stored.database.check() == []


def test_a_step_about_a_spelling_that_went_can_still_be_undone(place, catalogue):
    catalogue.give(0, ["dog"])
    catalogue.give(1, ["dog"])
    step = tag_photos(catalogue, [4], give=["wolf"])
    database = catalogue.stored.database
    path, wolf = database.path, database.value("SELECT id FROM tags WHERE name = 'wolf'")
    catalogue.stored.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(TO_FORMAT_7)
        connection.execute("UPDATE tags SET name = 'DOG', key = 'dog' WHERE id = ?", (wolf,))
    opened = Catalogue.load(place / "cat", n_jobs=1)
    assert opened.image(4).tags == ["dog"]
    undo_step(opened, step.number)
    assert opened.image(4).tags == []


def test_letters_that_nobody_sees_made_no_second_tag_once_the_catalogue_is_opened_again(place, catalogue):
    catalogue.give(0, ["dog"])
    path = catalogue.stored.database.path
    catalogue.stored.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(TO_FORMAT_7)
        connection.execute("INSERT INTO tags (id, name, key) VALUES (900, 'do\u200bg', 'do\u200bg')")
        connection.execute("INSERT INTO given VALUES (1, 900, 'person')")
    opened = Catalogue.load(place / "cat", n_jobs=1)
    assert [opened.image(i).tags for i in (0, 1)] == [["dog"], ["dog"]]


def test_the_command_shows_one_tag(place):
    assert visterm("tag cat 000.png --add dog", place)[0] == 0
    write_tags(place / "tags.csv", {"000.png": ["DOG"]})
    assert visterm("index cat photos --tags tags.csv", place)[0] == 0
    assert json.loads(visterm("tag cat 000.png --json", place)[1])["tags"] == ["dog"]
