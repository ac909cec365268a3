"""What users' scripts hold on to: commands, options, JSON lines, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_command
from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run

FAST = ["--model", "wsabie", "--set", "dim=8", "--set", "epochs=3", "--set", "valid_share=0"]
FAST += ["--encoder-set", "codebook=200", "--encoder-set", "max_side=64", "--encoder-set", "sample_blocks=8000"]


def visterm(*arguments, cwd=None):
    return run_command(arguments, cwd)


@pytest.fixture(scope="module")
def library(small_library):
    return small_library


@pytest.fixture(scope="module")
def run(library, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    done = visterm("fit", library.images, "--tags", library.tags_file, "-o", path, *FAST)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def catalogue(run, library, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "catalogue"
    done = visterm("index", run, library.images, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_annotate_prints_one_json_object_an_image_and_nothing_else(run, library, tmp_path):
    done = visterm("annotate", run, library.images, "-k", 3, "--json", cwd=tmp_path)
    assert done.returncode == 0
    answers = lines(done)
    assert len(answers) == len(list(library.images.iterdir()))
    assert set(answers[0]) == {"image", "tags"}
    assert [set(tag) for tag in answers[0]["tags"]] == [{"tag", "score", "confidence"}] * 3
    scores = [tag["score"] for tag in answers[0]["tags"]]
    assert scores == sorted(scores, reverse=True)
    assert list(tmp_path.iterdir()) == []


def test_people_see_one_number_per_tag_in_its_order(run, library, tmp_path):
    image = next(iter(sorted(library.images.iterdir())))
    [line] = visterm("annotate", run, image, cwd=tmp_path).stdout.splitlines()
    shown = re.findall(r"[<>]?(\d+)%", line)
    assert [int(number) for number in shown] == sorted(map(int, shown), reverse=True)
    assert len(shown) == 5
    assert "." not in line.partition(".jpg: ")[2]


def test_a_search_for_people_prints_confidences_and_no_scores(catalogue):
    shown = visterm("search", catalogue, "tree -sky").stdout.splitlines()
    assert all(re.match(r" *[<>]?\d+%  \S+\.jpg", line) for line in shown)
    assert len(shown) == 10


def test_k_0_means_all(run, library, tmp_path):
    image = next(iter(sorted(library.images.iterdir())))
    n_tags = len(json.loads((run / "vocabulary.json").read_text())["tags"])
    [answer] = lines(visterm("annotate", run, image, "-k", 0, "--json", cwd=tmp_path))
    assert len(answer["tags"]) == n_tags


def test_search_prints_images_best_first(catalogue):
    done = visterm("search", catalogue, "tree", "-k", 5, "--json")
    hits = lines(done)
    assert len(hits) == 5
    assert all({"image", "score"} <= set(hit) <= {"image", "score", "confidence", "id", "path"} for hit in hits)
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert all(Path(hit["path"]).is_file() for hit in hits)


def test_search_takes_away_what_has_a_minus(catalogue):
    plain = {hit["image"]: hit["score"] for hit in lines(visterm("search", catalogue, "tree", "-k", 0, "--json"))}
    minus = lines(visterm("search", catalogue, "tree -sky", "-k", 0, "--json"))
    assert len(minus) == len(plain)
    assert [hit["image"] for hit in minus] != list(plain)


def test_evaluate_prints_one_object_of_metrics(run, library, tmp_path):
    done = visterm(
        "evaluate", run, library.images, "--tags", library.tags_file,
        "--metric", "p@5", "--metric", "map", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [values] = lines(done)
    assert list(values) == ["p@5", "map"]
    assert all(0 < value < 1 for value in values.values())


def test_evaluate_says_when_it_measures_on_images_that_were_learned_from(run, library, tmp_path):
    measured: dict[str, list[str]] = {"train": [], "test": []}
    for split, said in measured.items():
        request = EvaluateRequest(
            runs=[run], images=library.images, tags=library.tags_file, metrics=["p@5"], split=split
        )
        evaluate_run(request, say=said.append)
    assert "The run has learned from" in " ".join(measured["train"])
    assert "learned from" not in " ".join(measured["test"])


def test_evaluate_measures_sibling_precision_by_an_is_a_file(run, library, tmp_path):
    options = ("evaluate", run, library.images, "--tags", library.tags_file, "--json")
    refused = visterm(*options, "--metric", "psib@5", cwd=tmp_path)
    assert refused.returncode == 2
    assert "psib@5 needs to know which tags are siblings" in refused.stderr
    tags = [item["tag"] for item in lines(visterm("tags", run, "--like", "tree", "-k", 3, "--json"))]
    (tmp_path / "isa.csv").write_text("".join(f"{tag},what grows\n" for tag in ["tree", *tags]), encoding="utf-8")
    (tmp_path / "rules.toml").write_text("isa = 'isa.csv'\n", encoding="utf-8")
    rules = ("--tag-rules", tmp_path / "rules.toml")
    done = visterm(*options, *rules, cwd=tmp_path)
    [values] = lines(done)
    assert values["p@5"] < values["psib@5"] <= 1
    n_tags = len(json.loads((run / "vocabulary.json").read_text())["tags"])
    assert f"4 of {n_tags} tags have siblings." in done.stderr
    without = visterm(*options, "--metric", "p@5", *rules, cwd=tmp_path)
    assert list(lines(without)[0]) == ["p@5"]
    assert visterm(*options, "--queries", "tags", *rules, cwd=tmp_path).returncode == 0


def test_neighbours_and_info_speak_json(run, catalogue):
    near = lines(visterm("tags", run, "--like", "tree", "-k", 4, "--json"))
    assert len(near) == 4
    assert all(set(item) == {"tag", "score", "from"} and item["tag"] != "tree" for item in near)
    assert near[0]["from"] == ["wsabie"]
    assert visterm("tags", run, "--like", "tree").stdout.splitlines()[0].split() == [
        "tag",
        "similarity,",
        "by",
        "wsabie",
    ]
    [facts] = lines(visterm("info", run, "--json"))
    assert facts["kind"] == "run"
    assert facts["model"] == "wsabie"
    [facts] = lines(visterm("info", catalogue, "--json"))
    assert facts["kind"] == "catalogue"
    assert facts["made by"] == str(run)
    assert facts["run"]["model"] == "wsabie"


def test_equal_seeds_give_equal_bytes_for_any_number_of_threads(library, tmp_path, monkeypatch):
    for name, jobs in (("one", 1), ("two", 2), ("again", 2)):
        monkeypatch.setenv("OMP_NUM_THREADS", str(jobs))
        done = visterm("fit", library.images, "--tags", library.tags_file, "-o", tmp_path / name, *FAST)
        assert done.returncode == 0, done.stderr
    for file in ("encoder.safetensors", "model.safetensors", "vocabulary.json"):
        reference = (tmp_path / "one" / file).read_bytes()
        assert (tmp_path / "two" / file).read_bytes() == reference
        assert (tmp_path / "again" / file).read_bytes() == reference


def test_broken_files_are_skipped_and_listed_with_exit_code_3(run, library, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    pictures = sorted(library.images.iterdir())
    for number in range(90):
        shutil.copy(pictures[number], photos / f"good{number:03}.jpg")
    for number in range(10):
        (photos / f"bad{number}.jpg").write_bytes(b"" if number % 2 else b"this is not a picture")
    done = visterm("annotate", run, photos, "--json", cwd=tmp_path)
    assert done.returncode == 3
    assert len(lines(done)) == 90
    listed = re.findall(r"Skipped \S+/(bad\d\.jpg): \w", done.stderr)
    assert sorted(listed) == [f"bad{number}.jpg" for number in range(10)]
    assert "Skipped 10 photos" in done.stderr

    done = visterm("index", run, photos, "-o", tmp_path / "catalogue", cwd=tmp_path)
    assert done.returncode == 3
    assert "index photos: 100 in " in done.stderr
    assert len((tmp_path / "catalogue" / "skipped.jsonl").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "IMAGES", "--tags", "TAGS", "-o", "OUT", "--model", "wsabi"], "Did you mean 'wsabie'?"),
        (["fit", "IMAGES", "--tags", "TAGS", "-o", "OUT", "--encoder", "visterm"], "Did you mean 'visterms'?"),
        (
            ["fit", "IMAGES", "--tags", "TAGS", "-o", "OUT", "--model", "wsabie", "--set", "dmi=3"],
            "Did you mean 'dim'?",
        ),
        (["fit", "IMAGES", "--tags", "TAGS", "-o", "OUT", "--set", "dim"], "expected NAME=VALUE"),
        (["fit", "IMAGES", "--tags", "nothing.csv", "-o", "OUT"], "nothing.csv"),
        (["fit", "nowhere", "--tags", "TAGS", "-o", "OUT"], "nowhere"),
        (["fit", "IMAGES", "--tags", "TAGS", "-o", "IMAGES"], "not a run of visterm"),
        (
            ["fit", "IMAGES", "--tags", "TAGS", "-o", "OUT", "--model", "wsabie", "--set", "dim=-3"],
            "--set dim is -3; expected a whole number of 1 or more.",
        ),
        (["annotate", "nowhere", "IMAGES"], "visterm fit IMAGES --tags FILE -o RUN"),
        (["annotate", "RUN", "nowhere.jpg"], "nowhere.jpg"),
        (["evaluate", "RUN", "IMAGES", "--tags", "TAGS", "--metric", "p5"], "Did you mean 'p@5'?"),
        (["search", "CATALOGUE", "xyzzy"], "xyzzy"),
        (["search", "CATALOGUE", ""], "The search is empty"),
        (["search", "CATALOGUE", "tree -tree"], "cancel each other out"),
        (["search", "CATALOGUE"], "Missing argument WORDS"),
        (["annotate", "RUN", "IMAGES", "-k", "x"], "-k is x; expected a whole number of 0 or more"),
        (["annotate", "RUN", "EMPTY"], "has no files"),
        (["index", "RUN", "EMPTY", "-o", "OUT"], "has no files"),
        (["index", "RUN", "IMAGES", "-o", "FILE/out"], "cannot be written"),
        (["search", "RUN", "tree"], "is a run; expected a catalogue"),
        (["tags", "RUN", "--like", "trewe"], "Did you mean 'tree'?"),
        (["info", "IMAGES"], "neither a run nor a catalogue"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, run, catalogue, library, tmp_path, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    places = {
        "EMPTY": empty,
        "FILE/out": library.tags_file / "out",
        "IMAGES": library.images,
        "TAGS": library.tags_file,
        "RUN": run,
        "CATALOGUE": catalogue,
        "OUT": "out",
    }
    done = visterm(*[places.get(argument, argument) for argument in arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("visterm: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["fit", "index"])
def test_a_kill_leaves_the_old_result_or_none(command, run, catalogue, library, tmp_path):
    out = tmp_path / "out"
    old = {"fit": run, "index": catalogue}[command]
    shutil.copytree(old, out)
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    arguments = {
        "fit": ["fit", library.images, "--tags", library.tags_file, "-o", out, "--overwrite", *FAST],
        "index": ["index", run, library.images, "-o", out],
    }[command]
    for wait in (0.6, 1.1):
        child = subprocess.Popen(
            [sys.executable, "-m", "visterm", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        done = visterm("info", out, "--json")
        assert done.returncode == 0, done.stderr
    if child.returncode == -signal.SIGKILL:
        after = {file.name for file in out.iterdir() if file.is_file()}
        # of a database that was open, and of a lock that was held
        beside_sqlite = {"catalogue.sqlite-wal", "catalogue.sqlite-shm", "writer.lock.json"}
        assert after - beside_sqlite == set(before) - beside_sqlite


def test_a_reader_that_closes_early_is_no_error(run, library):
    command = f"{sys.executable} -m visterm annotate {run} {library.images} --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=os.environ)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_python_does_the_same_as_the_command_line(run, catalogue, library, tmp_path):
    from visterm import Catalogue, Tagger

    pixels = np.asarray(Image.open(sorted(library.images.iterdir())[0]).convert("RGB"))
    image = tmp_path / "photo.png"  # a JPEG is decoded at a smaller size, which gives other pixels
    Image.fromarray(pixels).save(image)
    tagger = Tagger.load(run)
    [annotated] = tagger.annotate([image], k=3).images
    [answer] = lines(visterm("annotate", run, image, "-k", 3, "--json"))
    assert annotated.as_dict() == answer
    assert [tag.as_dict() for tag in tagger.annotate([pixels], k=3).images[0].tags] == answer["tags"]
    found = Catalogue.load(catalogue).search("tree", 4)
    assert [hit.as_dict() for hit in found.hits] == lines(visterm("search", catalogue, "tree", "-k", 4, "--json"))


def test_files_that_are_in_a_catalogue_already_are_not_taken_in_twice(run, library):
    from visterm import Catalogue, Tagger

    first, second = sorted(library.images.iterdir())[:2]
    catalogue = Catalogue(Tagger.load(run)).add([first]).add([first, second])
    assert [record.name for record in catalogue.records] == [str(first), str(second)]


def test_a_list_of_skipped_photos_is_printed_and_not_written(run, library, tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    done = visterm("annotate", run, "bad.jpg", cwd=tmp_path)
    assert done.returncode == 3
    assert "Skipped bad.jpg: not an image" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jpg"]
