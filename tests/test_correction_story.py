"""The story of corrections by commands: tag by hand, search, reject, learn, compare, go back."""

from __future__ import annotations

import io
import json
import shutil

import pytest

from command_line import visterm
from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue
from visterm.library.review import review_queue

N_PHOTOS = 240
FOGGY = [f"{number:03d}.png" for number in range(3, N_PHOTOS, 8)]  # Every second grey photo


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run, and a catalogue of other photos with their tags; 24 of them are never learned from."""
    folder = tmp_path_factory.mktemp("story")
    run = fit_run(folder / "first", draw_photos(folder / "first", 40, seed=7), folder / "run", model="ridge")
    write_tags(folder / "tags.csv", draw_photos(folder / "photos", N_PHOTOS))
    assert visterm(f"index {run} photos -o catalogue --tags tags.csv", folder)[0] == 0
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
    code, out, err = visterm(f"tag catalogue {' '.join(FOGGY)} --add fog", place)
    assert (code, out.splitlines()[0]) == (0, "003.png: cool, fog, grey")
    said, _, undo = err.partition("; to take it back: visterm ")
    assert said == "30 photos: fog added. To learn from it: visterm fit catalogue"
    assert visterm(undo, place)[2].endswith("is taken back: 30 photos")
    assert "Unknown tag 'fog'" in visterm("search catalogue fog", place)[2]
    assert visterm(f"tag catalogue {' '.join(FOGGY)} --add fog", place)[0] == 0
    assert visterm("search catalogue fog -k 1", place)[1] == "003.png  (tagged by hand)\n"
    assert found("fog", place)[:30] == FOGGY

    # Search, and reject what is wrong: it is away from now on, and its photo has a right tag
    first = found("red", place)[0]
    assert results(f"tag catalogue {first} --remove red --add crimson", place) == [
        {"image": first, "id": int(first[:3]), "tags": ["crimson", "warm"], "rejected": ["red"]}
    ]
    assert first not in found("red", place)

    # Learn, and compare both runs on the same photos
    [learned] = results("fit catalogue", place)
    compared = learned["comparison"]
    assert (learned["in_use"], learned["new_tags"], learned["number"]) == (True, 2, 2)
    assert (compared["measure"], compared["compared"]) == ("MAP", learned["held_out"])
    assert compared["compared"] >= 20
    assert compared["interval"][0] <= compared["difference"] <= compared["interval"][1]
    assert compared["in_words"] in visterm("info catalogue", place)[1]
    runs = results("info catalogue", place)[0]["runs"].values()
    assert [run["comparison"] for run in runs if "comparison" in run] == [compared]
    others = [name for name in found("fog", place) if name not in FOGGY]
    assert len(others) > 100  # fog is predicted, too
    assert first not in found("red", place)

    # Go back: the old run searches, and what was said stays
    code, _, err = visterm("use catalogue --back", place)
    assert (code, "catalogue is back to run 1" in err) == (0, True)
    assert found("fog", place) == FOGGY
    assert first not in found("red", place)
    assert results(f"tag catalogue {first}", place)[0]["tags"] == ["crimson", "warm"]

    # Learning again without another correction makes the run that was not wanted: it is not used
    code, out, err = visterm("fit catalogue", place)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["on", "run", "run", "difference"]
    assert out.splitlines()[1].split() == ["run", "1", f"{compared['before']:.3f}"]
    assert out.splitlines()[2].split() == ["run", "2,", "new", f"{compared['after']:.3f}"]
    assert "The new run 2 is a run that a person went back from, so catalogue still uses run 1." in err
    assert visterm("use catalogue 2", place)[0] == 0
    assert len(found("fog", place)) > 100


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tag catalogue nothing.png --add fog", "There is no file nothing.png, and no image of the catalogue"),
        ("tag catalogue tags.csv --add fog", "tags.csv is not in "),
        ("tag catalogue 000.png --add ' '", "is not a tag: it is empty"),
        ("tag catalogue 000.png 001.png --add mist --remove ''", "is not a tag: it is empty"),
        ("tag run 000.png", "is a run; expected a catalogue"),
        ("tag catalogue", "PHOTOS are missing. Name at least one photo"),
        ("tag catalogue 000.png --undo 1", "Leave the photos and tags out"),
        ("tag catalogue --undo 999", "There is no step 999"),
    ],
)
def test_what_cannot_be_corrected_is_refused_and_nothing_is_changed(line, message, place):
    before = results("tag catalogue 000.png 001.png", place)
    code, _, err = visterm(line, place)
    assert (code, message in err) == (2, True), err
    assert results("tag catalogue 000.png 001.png", place) == before


def test_a_tag_is_taken_off_and_a_verdict_changed(place):
    assert results("tag catalogue 001.png --add moss --add lichen", place)[0]["tags"] == [
        "cool", "green", "lichen", "moss",
    ]  # fmt: skip
    assert results("tag catalogue 001.png --remove moss --remove green", place) == [
        {"image": "001.png", "id": 1, "tags": ["cool", "lichen"], "rejected": ["green", "moss"]}
    ]
    assert results("tag catalogue photos/001.png --add green", place)[0]["rejected"] == ["moss"]
    assert results("tag catalogue 001.png --remove green", place)[0]["rejected"] == ["green", "moss"]


def questions_of(folder, k):
    catalogue = Catalogue.load(folder / "catalogue", n_jobs=1)
    names = {record.id: record.name for record in catalogue.records}
    return [
        {**item.as_dict(), "image": names[item.image_id], "id": item.image_id}
        for item in review_queue(catalogue.stored, k, tree=catalogue.tree)
    ]


@pytest.fixture(scope="module")
def untagged(place):
    """The catalogue of all photos in a folder of its own, without their tags."""
    (place / "untagged").mkdir()
    assert visterm(f"index {place / 'run'} {place / 'photos'} -o catalogue", place / "untagged")[0] == 0
    return place / "untagged" / "catalogue"


@pytest.fixture
def asked(untagged, tmp_path):
    """A copy of the catalogue without tags, and what visterm asks about it."""
    shutil.copytree(untagged, tmp_path / "catalogue")
    return tmp_path, questions_of(tmp_path, 6)


def test_questions_are_answered_by_keys_and_undone(asked, monkeypatch):
    folder, questions = asked
    assert [question["why"][0] for question in questions] == ["the run has no confidences"] * 6
    keys = iter("yx" + "nu" + "n" + "su" + "s" + "q")
    monkeypatch.setattr("visterm.cli.tag.at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.getchar", lambda: next(keys))
    code, out, err = visterm("judge catalogue -k 6", folder)
    assert (code, out.splitlines()[0].split()[:2]) == (0, ["1/6", f"{questions[0]['tag']}?"])
    assert "1 right, 1 wrong, 4 left open. To learn from it: visterm fit" in err
    first, second, third, *_ = questions
    assert results(f"tag catalogue {first['image']}", folder)[0]["tags"] == [first["tag"]]
    assert results(f"tag catalogue {second['image']}", folder)[0]["rejected"] == [second["tag"]]
    assert results(f"tag catalogue {third['image']}", folder)[0]["tags"] == []
    left = [(question["image"], question["tag"]) for question in questions_of(folder, 100)]
    assert not {(one["image"], one["tag"]) for one in (first, second)} & set(left)


@pytest.mark.parametrize("form", ["csv", "json lines", "standard input"])
def test_answers_come_from_a_spreadsheet_or_a_program(form, asked, monkeypatch):
    folder, questions = asked
    verdicts = ["right", "no", "", "Yes", "-1", ""]
    lines = [json.dumps(one | {"verdict": verdict}) for one, verdict in zip(questions, verdicts, strict=True)]
    (folder / "answers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if form == "csv":
        assert visterm("judge catalogue -k 6 -o answers.csv", folder)[0] == 0
        header, *rows = (folder / "answers.csv").read_text(encoding="utf-8").splitlines()
        assert header == "image,tag,verdict,why"
        filled = [row.replace(",,", f",{verdict},", 1) for row, verdict in zip(rows, verdicts, strict=True)]
        (folder / "answers.csv").write_text("\n".join([header, *filled]), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO((folder / "answers.jsonl").read_text(encoding="utf-8")))
    source = {"csv": "answers.csv", "json lines": "answers.jsonl", "standard input": "-"}[form]
    assert "2 right, 2 wrong, 2 left open." in visterm(f"judge catalogue --answers {source}", folder)[2]
    assert results(f"tag catalogue {questions[3]['image']}", folder)[0]["tags"] == [questions[3]["tag"]]
    assert results(f"tag catalogue {questions[4]['image']}", folder)[0]["rejected"] == [questions[4]["tag"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{image},maybe,{tag}", "line 3: the verdict is 'maybe'; expected right or wrong, or nothing"),
        ("nothing.png,right,{tag}", "There is no file nothing.png"),
        ("{image},right,", "is not a tag: it is empty"),
    ],
)
def test_after_an_answer_that_cannot_be_used_none_is_stored(line, message, asked):
    folder, [first, second, *_] = asked
    good = "{image},right,{tag}".format(**first)
    (folder / "bad.csv").write_text(f"image,verdict,tag\n{good}\n{line.format(**second)}\n", encoding="utf-8")
    code, _, err = visterm("judge catalogue --answers bad.csv", folder)
    assert (code, message in err) == (2, True), err
    (folder / "bad.csv").write_text("image,tag\n1.png,red\n", encoding="utf-8")
    assert "has no column named 'verdict'" in visterm("judge catalogue --answers bad.csv", folder)[2]
    (folder / "moved.jsonl").write_text(json.dumps(first | {"id": second["id"], "verdict": "right"}), encoding="utf-8")
    assert "Leave the column id out" in visterm("judge catalogue --answers moved.jsonl", folder)[2]
    assert results(f"tag catalogue {first['image']}", folder)[0]["tags"] == []
