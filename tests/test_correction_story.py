"""The story of corrections by commands: tag by hand, search, reject, learn, compare, go back."""

from __future__ import annotations

import json

import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run, write_tags

N_PHOTOS = 240
FOGGY = [f"{number:03d}.png" for number in range(3, N_PHOTOS, 8)]  # Every second grey photo


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run, and a catalogue of other photos with their tags; 24 of them are never learned from."""
    folder = tmp_path_factory.mktemp("story")
    run = fit_run(folder / "first", draw_photos(folder / "first", 40, seed=7), folder / "run", model="ridge")
    write_tags(folder / "tags.csv", draw_photos(folder / "photos", N_PHOTOS))
    assert visterm(f"index {run} photos -o catalogue --tags tags.csv --jobs 1", folder)[0] == 0
    return folder


def results(line, place):
    """Run a command with --json, and return its lines."""
    code, out, err = visterm(f"{line} --json", place)
    assert code == 0, err
    return [json.loads(one) for one in out.splitlines()]


def found(words, place, k=0):
    return [hit["image"] for hit in results(f"search catalogue {words} -k {k}", place)]


def test_the_whole_story(place):
    # Tag by hand: a new word is found from now on
    code, out, err = visterm(f"correct catalogue {' '.join(FOGGY)} --give fog", place)
    assert (code, out.splitlines()[0]) == (0, "003.png: cool, fog, grey")
    assert err == "30 photos: fog given. To learn from it: visterm fit --catalogue catalogue"
    assert visterm("search catalogue fog -k 1", place)[1] == "003.png  (tagged by hand)\n"
    assert found("fog", place)[:30] == FOGGY

    # Search, and reject what is wrong: it is away from now on, and its photo has a right tag
    first = found("red", place)[0]
    assert results(f"correct catalogue {first} --reject red --accept crimson", place) == [
        {"image": first, "id": int(first[:3]), "tags": ["crimson", "warm"], "rejected": ["red"]}
    ]
    assert first not in found("red", place)

    # Learn, and compare both runs on the same photos
    [learned] = results("fit --catalogue catalogue --jobs 1", place)
    compared = learned["comparison"]
    assert (learned["in_use"], learned["new_tags"], learned["number"]) == (True, 2, 2)
    assert (compared["measure"], compared["compared"]) == ("MAP", learned["held_out"])
    assert compared["compared"] >= 20
    assert compared["interval"][0] <= compared["difference"] <= compared["interval"][1]
    assert compared["in_words"] in visterm("info catalogue", place)[1]
    assert results("use catalogue", place)[1]["comparison"] == compared
    others = [name for name in found("fog", place) if name not in FOGGY]
    assert len(others) > 100  # fog is predicted, too
    assert first not in found("red", place)

    # Go back: the old run searches, and what was said stays
    code, _, err = visterm("go-back catalogue", place)
    assert (code, "catalogue is back to run 1" in err) == (0, True)
    assert found("fog", place) == FOGGY
    assert first not in found("red", place)
    assert results(f"correct catalogue {first}", place)[0]["tags"] == ["crimson", "warm"]

    # Learning again without another correction makes the run that was not wanted: it is not used
    code, out, err = visterm("fit --catalogue catalogue --jobs 1", place)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["on", "run", "run", "difference"]
    assert out.splitlines()[1].split() == ["run", "1", f"{compared['before']:.3f}"]
    assert out.splitlines()[2].split() == ["run", "2,", "new", f"{compared['after']:.3f}"]
    assert "The new run 2 is the one that a person went back from, so catalogue goes on with its run 1." in err
    assert visterm("use catalogue 2", place)[0] == 0
    assert len(found("fog", place)) > 100


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("correct catalogue nothing.png --give fog", "There is no file nothing.png, and no image of the catalogue"),
        ("correct catalogue tags.csv --give fog", "tags.csv is not in catalogue. Put it there first: visterm index"),
        ("correct catalogue 000.png --give ' '", "there is nothing in it"),
        ("correct catalogue 000.png 001.png --give mist --accept ''", "there is nothing in it"),
        ("correct run 000.png", "is a run; expected a catalogue"),
    ],
)
def test_what_cannot_be_corrected_is_refused_and_nothing_is_changed(line, message, place):
    before = results("correct catalogue 000.png 001.png", place)
    code, _, err = visterm(line, place)
    assert (code, message in err) == (2, True), err
    assert results("correct catalogue 000.png 001.png", place) == before


def test_a_tag_is_taken_off_and_a_verdict_changed(place):
    assert results("correct catalogue 001.png --give moss --give lichen", place)[0]["tags"] == [
        "cool", "green", "lichen", "moss",
    ]  # fmt: skip
    assert results("correct catalogue 001.png --take moss --take green", place) == [
        {"image": "001.png", "id": 1, "tags": ["cool", "lichen"], "rejected": ["green"]}
    ]
    assert results("correct catalogue photos/001.png --give green", place)[0]["rejected"] == []
