"""`visterm serve PHOTOS`: one command from a folder to photos found by words, whenever it is killed on the way."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from PIL import Image
from starlette.testclient import TestClient

from drawn_pictures import draw_scene
from drawn_stores import lightroom
from refusals import refused
from tiny_scenes import scene
from visterm import Catalogue
from visterm.connectors.folder_changes import Stop
from visterm.connectors.watch import FolderWatcher, folders_to_watch, tags_as_indexed
from visterm.core.errors import DataError, StorageError
from visterm.encoders.effnet_lite import weights_file
from visterm.encoders.named import TABLE_ENV
from visterm.learning.fit_request import FitRequest
from visterm.library.learned import QUICK, START
from visterm.library.runs import earlier_runs
from visterm.library.start import catalogue_of, learn_first, learn_quickly, open_or_start
from visterm.web.app import create_app

LONGEST = 600.0  # Seconds until something that must happen counts as never
N_PHOTOS = 48
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/">'
    "<dc:subject><rdf:Bag>{}</rdf:Bag></dc:subject><lr:hierarchicalSubject><rdf:Bag>{}</rdf:Bag>"
    "</lr:hierarchicalSubject></rdf:Description></rdf:RDF></x:xmpmeta>"
)
KINDS = {"stripes": "pattern|stripes", "dots": "pattern|dots"}
VISTERMS = {"codebook": 20, "scales": [1.0], "sample_blocks": 2000, "max_side": 64}
REQUEST = FitRequest(encoder="visterms", encoder_params=VISTERMS, n_jobs=1)
"""An encoder that is quick for a few photos, and knows no words."""


def draw(photo: Path, kind: str, seed: int, *, tagged: bool = True) -> None:
    photo.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene(kind, seed)).save(photo)
    if tagged:
        items = (f"<rdf:li>{text}</rdf:li>" for text in (kind, KINDS[kind]))
        Path(f"{photo}.xmp").write_text(XMP.format(*items))


@pytest.fixture
def photos(tmp_path):
    """Photos of two kinds in two folders, three of four with a sidecar; and a file that is no photo."""
    folder = tmp_path / "Ferien Süd"
    for number in range(N_PHOTOS):
        photo = folder / ("2023" if number < 20 else "北京") / f"{number:03d}.png"
        draw(photo, list(KINDS)[number % 2], number, tagged=number % 4 != 3)
    (folder / "broken.png").write_bytes(b"no photo")
    return folder


def watched(out: Path, lines: list[str]) -> Catalogue:
    """Open a catalogue, after one round of what `visterm serve` runs beside the service."""
    catalogue = Catalogue.load(out, n_jobs=1)
    stored = catalogue.stored
    source = tags_as_indexed(stored)
    work = FolderWatcher(catalogue, folders_to_watch(stored), tags=source, stop=Stop(), say=lines.append)
    assert [found.done.cancelled for found in work.compare_folders()] == [False]
    if message := learn_first(catalogue, lambda: False):
        lines.append(message)
    return catalogue


def test_folders_of_one_name_have_catalogues_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "link").symlink_to(tmp_path / "one")
    folders = [tmp_path / "one" / "photos", tmp_path / "two" / "photos", tmp_path / "link" / "photos"]
    one, two, linked = map(catalogue_of, folders)
    assert one.name.startswith("photos-")
    assert one != two
    assert linked == one
    if sys.platform == "linux":
        assert one.parent == tmp_path / "data" / "visterm" / "catalogues"


def test_what_cannot_become_a_catalogue_is_refused_before_any_work(tmp_path, photos):
    with refused("out", value=photos / "catalogue"):
        open_or_start(photos, photos / "catalogue", REQUEST)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="has no files"):
        open_or_start(tmp_path / "none", tmp_path / "catalogue", REQUEST)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="is not a catalogue of visterm, so it is not replaced"):
        open_or_start(photos, tmp_path / "other", REQUEST)
    assert not (tmp_path / "catalogue").exists()


def test_tags_of_files_are_learned_with_their_tree_and_each_photo_is_encoded_once(tmp_path, photos, monkeypatch):
    lines: list[str] = []
    out = tmp_path / "catalogue"
    assert open_or_start(photos, out, REQUEST)
    assert not open_or_start(photos, out, REQUEST)  # it is there
    started = Catalogue.load(out)
    assert started.tagger.vocabulary.tags == []
    assert started.like(0, 3).hits  # before anything is learned
    started.stored.close()
    (tmp_path / "more").mkdir()
    draw(tmp_path / "more" / "0.png", "dots", 0)
    with refused("out", value=out):
        open_or_start(tmp_path / "more", out, REQUEST)

    catalogue = watched(out, lines)
    names = {record.name for record in catalogue.records}
    assert (len(catalogue), "2023/000.png" in names) == (N_PHOTOS, True)
    assert catalogue.tagger.vocabulary.tags == ["dots", "pattern", "stripes"]
    assert catalogue.tagger.tree.words.parents("dots") == ["pattern"]
    assert lines[-1].startswith("Learned 3 tags (3 new: dots, pattern, stripes) from 36 photos. On new photos, about")
    untagged = {record.id for record in catalogue.records if int(Path(record.name).stem) % 4 == 3}
    best = [hit.id for hit in catalogue.search("stripes", k=N_PHOTOS).hits]
    assert untagged & set(best[:36])  # photos of stripes that nobody tagged
    assert earlier_runs(catalogue.stored) == []  # the run that knew nothing is none to go back to

    monkeypatch.setattr(type(catalogue.tagger.encoder), "_encode_batch", None)  # nothing is encoded again
    assert watched(out, lines).tagger.fingerprint == catalogue.tagger.fingerprint
    assert learn_first(catalogue, lambda: False) == ""


def test_without_any_tag_people_give_the_first_ones(tmp_path, photos):
    for sidecar in photos.rglob("*.xmp"):
        sidecar.unlink()
    flat = tmp_path / "flat"
    flat.mkdir()
    for photo in photos.rglob("*.png"):
        photo.rename(flat / photo.name)
    lines: list[str] = []
    open_or_start(flat, tmp_path / "catalogue", REQUEST)
    catalogue = watched(tmp_path / "catalogue", lines)
    assert "No photo has a tag yet." in lines[-1]
    by_name = {record.name: record.id for record in catalogue.records}
    for number in range(0, 16, 2):
        catalogue.give(by_name[f"{number:03d}.png"], ["striped"])
    assert catalogue.learn().tags == 1
    best = [Path(str(hit.image)).stem for hit in catalogue.search("striped", k=16).hits]
    assert sum(int(stem) % 2 == 0 for stem in best) >= 14


@pytest.mark.skipif(weights_file() is None, reason="the package with the network's weights is not installed")
def test_the_words_of_the_network_are_offered_until_people_gave_tags(tmp_path, monkeypatch):
    monkeypatch.delenv(TABLE_ENV)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for number in range(12):
        Image.fromarray(draw_scene(number).image).save(tmp_path / "photos" / f"{number}.png")
    lines: list[str] = []
    open_or_start(tmp_path / "photos", tmp_path / "catalogue", FitRequest(n_jobs=1))
    catalogue = watched(tmp_path / "catalogue", lines)
    assert "searches know 993 words of the network" in lines[-1]
    assert len(catalogue.search("seashore", k=3).hits) == 3
    words = catalogue.stored.tags.often_best(catalogue.stored.runs.current().id, 5)
    assert sum(n for _, n in words) <= 12
    assert all(word in catalogue.tagger.vocabulary for word, _ in words)
    with TestClient(create_app(tmp_path / "catalogue"), base_url="http://127.0.0.1") as client:
        part = client.get("/library/start", headers={"x-part": "1"}).text
    assert "No photo came with a tag." in part
    assert f">{words[0][0]}</a> ({words[0][1]})" in part
    assert "data-again" not in part  # nothing changes until people give tags
    assert learn_first(catalogue, lambda: False) == ""  # said once

    catalogue.give(0, ["my beach"])
    catalogue.learn()
    assert {"my beach", "seashore"} <= set(catalogue.tagger.vocabulary.tags)
    assert catalogue.search("my beach", k=1).hits[0].id == 0


class Served:
    """`visterm serve PHOTOS` as a process; `wait` waits for a line, and `get` asks its API."""

    def __init__(self, photos: Path, out: Path, *options: str) -> None:
        command = [sys.executable, "-m", "visterm", "serve", str(photos), "-o", str(out), "--port", "0", *options]
        environment = {name: value for name, value in os.environ.items() if name != TABLE_ENV}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment | {"XDG_CACHE_HOME": str(out.parent / "cache")},
        )  # fmt: skip
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(LONGEST)
        self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait(self, pattern: str) -> re.Match[str]:
        with self._news:
            arrived = self._news.wait_for(
                lambda: self._ended or any(re.search(pattern, line) for line in self.lines), LONGEST
            )
            found = next(filter(None, (re.search(pattern, line) for line in self.lines)), None)
        assert arrived, f"never: {pattern} in {self.lines}"
        assert found, f"ended without {pattern}: {self.lines}"
        return found

    def get(self, path: str, part: bool = False):
        address = self.wait(r"http://127\.0\.0\.1:\d+")[0]
        request = Request(f"{address}{path}", headers={"x-part": "1"} if part else {})
        with urlopen(request, timeout=LONGEST) as answer:
            text = answer.read().decode()
        return text if part else json.loads(text)

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(LONGEST)
        with self._news:  # the process that watches has the pipe, too: it ends with this one
            assert self._news.wait_for(lambda: self._ended, LONGEST)


def test_it_goes_on_where_it_was_after_a_kill_at_any_step(tmp_path, photos):
    out = tmp_path / "catalogue"
    for event in ("New catalogue of", "Watching", "Serving .* at http", "photos in the catalogue"):
        with Served(photos, out, "--workers", "1") as served:
            served.wait(event.replace("New c", "(New c|C)"))
            served.end(signal.SIGKILL)
        stored = Catalogue.load(out).stored
        assert stored.database.check() == []
        stored.close()

    with Served(photos, out) as served:
        served.wait("Catalogue of ")
        served.wait("Learned 3 tags")
        assert served.get("/api/v1/about")["images"] == N_PHOTOS
        assert len(served.get("/api/v1/search?q=stripes&limit=36")["hits"]) == 36
        assert "are learned" in served.get("/library/start", part=True)
        draw(photos / "new" / "one.png", "dots", 99)
        served.wait("1 new.*; 49 photos in the catalogue")
        served.end(signal.SIGINT)
    catalogue = Catalogue.load(out)
    assert all(job.ended for job in catalogue.stored.jobs.latest(1000))
    assert len(catalogue.stored.runs.all()) == 2  # what was learned half is gone


def test_one_command_learns_from_a_catalogue_of_lightroom_alone_and_finds_by_its_words(tmp_path, photos):
    kinds = {"stripes": "Möwe", "dots": "Hund"}  # with a tree above them, and synonyms
    drawn = {}
    for sidecar in photos.rglob("*.xmp"):
        sidecar.unlink()
        name = sidecar.relative_to(photos).as_posix().removesuffix(".xmp")
        drawn[name] = [kinds[list(KINDS)[int(Path(name).stem) % 2]]]
    store = lightroom(photos / "all.lrcat", photos, drawn)
    before = store.read_bytes()
    with Served(photos, tmp_path / "catalogue") as served:
        served.wait("Learned 4 tags")  # those two and the tags above them
        hits = served.get("/api/v1/search?q=gull&limit=24")["hits"]
        served.end(signal.SIGINT)
    found = [int(Path(hit["image"]).stem) for hit in hits]
    assert sum(number % 2 == 0 for number in found) >= 20
    assert [number for number in found if number % 4 == 2]  # photos without a keyword, too
    assert store.read_bytes() == before
    assert sorted(path.name for path in photos.iterdir()) == ["2023", "all.lrcat", "broken.png", "北京"]


@pytest.fixture
def indexed(tmp_path, photos):
    """A catalogue with all photos, and nothing learned."""
    open_or_start(photos, tmp_path / "catalogue", REQUEST)
    catalogue = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    work = FolderWatcher(catalogue, [str(photos)], tags="auto", stop=Stop(), say=print)
    assert len(list(work.compare_folders())) == 1
    return catalogue


def test_many_photos_are_found_by_a_quick_model_until_the_default_model_has_learned(indexed, tmp_path, monkeypatch):
    catalogue, out = indexed, tmp_path / "catalogue"
    assert not learn_quickly(catalogue, lambda: False)
    assert len(catalogue.tagger.vocabulary) == 0  # the default model is quick enough for so few

    monkeypatch.setattr("visterm.library.start.MANY_PHOTOS", 10)
    assert not learn_quickly(catalogue, lambda: False)
    rows = catalogue.stored.database.value("SELECT count(*) FROM rows")
    assert rows == len(catalogue)  # those of the run that knew no tag serve this one, too
    assert type(catalogue.tagger.model).__name__ == "TextRidge"
    found = Catalogue.load(out).search("dots", k=10).hits
    assert sum(int(Path(hit.image).stem) % 2 == 1 for hit in found) >= 9

    assert "Learned" in learn_first(catalogue, lambda: False)
    assert type(catalogue.tagger.model).__name__ == "Auto"
    assert catalogue.earlier_runs() == []
    runs = len(catalogue.stored.runs.all())
    learn_quickly(catalogue, lambda: False)
    assert len(catalogue.stored.runs.all()) == runs


def test_other_programs_get_no_tags_of_the_quick_model_and_pages_say_that_it_is_one(
    indexed, tmp_path, photos, monkeypatch
):
    monkeypatch.setattr("visterm.library.start.MANY_PHOTOS", 10)
    sentence = "a quick model answers until the default model has learned"
    photo = base64.b64encode((photos / "2023" / "000.png").read_bytes()).decode()
    to_label = {"images": [f"data:image/png;base64,{photo}"]}
    tasks = {"tasks": [{"data": {"image": "visterm:0"}}]}
    with TestClient(create_app(tmp_path / "catalogue"), base_url="http://127.0.0.1") as client:
        learn_quickly(indexed, lambda: False)
        assert indexed.stored.jobs.latest(1)[0].message == f"{sentence}."
        assert indexed.stored.history.latest(1)[0].details["learned"] == sentence
        answer = client.post("/api/v1/vision/labels", json=to_label)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
        assert "no confidences" in answer.json()["error"]
        suggested = client.post("/label-studio/predict", json=tasks).json()["results"][0]
        assert suggested["result"] == []
        assert "no confidences" in suggested["error"]
        jobs = client.get("/library").text
        assert f"<p>{sentence}.</p>" in jobs
        assert "not compared" not in jobs
        indexed.stored.database.write("UPDATE jobs SET finished = '2026-01-01T00:00:00.000000Z'", ())
        part = client.get("/library/start", headers={"x-part": "1"}).text
        assert f"48 photos are in, and {sentence}." in part
        indexed.stored.jobs.start("fit")
        part = client.get("/library/start", headers={"x-part": "1"}).text
        assert "A quick model answers until" in part

        learn_first(indexed, lambda: False)
        assert client.post("/api/v1/vision/labels", json=to_label).status_code == 200
        assert client.post("/label-studio/predict", json=tasks).json()["results"][0]["result"]
        assert "no confidences" not in client.get("/library").text


def test_a_kill_right_after_the_quick_model_is_in_use_leaves_it_marked(indexed, tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.library.start.MANY_PHOTOS", 10)

    def kill(stored):
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("visterm.library.runs.forget_old_rows", kill)  # the first step after the change of the run
        with pytest.raises(KeyboardInterrupt):
            learn_quickly(indexed, lambda: False)
    catalogue = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    assert catalogue.stored.runs.current().facts[START] == QUICK
    assert "Learned 3 tags" in learn_first(catalogue, lambda: False)
    assert catalogue.earlier_runs() == []


def test_who_stops_the_quick_model_stops_the_default_model_too(indexed, monkeypatch):
    monkeypatch.setattr("visterm.library.start.MANY_PHOTOS", 10)

    def stop(writer, chunk_size, job, progress):
        indexed.stored.jobs.cancel(job.id)

    with monkeypatch.context() as stopped:
        stopped.setattr("visterm.library.learn.RowWriter.predict", stop)
        assert learn_first(indexed, lambda: False) == ""
    assert [job.state for job in indexed.stored.jobs.latest() if job.kind == "fit"] == ["cancelled"]
    assert len(indexed.tagger.vocabulary) == 0
    assert "Learned 3 tags" in learn_first(indexed, lambda: False)  # in the next round


def test_its_page_says_how_far_it_is(tmp_path, photos):
    out = tmp_path / "catalogue"
    open_or_start(photos, out, REQUEST)
    with TestClient(create_app(out), base_url="http://127.0.0.1") as client:
        asked = {"headers": {"x-part": "1"}}
        stored = Catalogue.load(out).stored
        job = stored.jobs.start("index")
        stored.jobs.progress(job, 20, 48)
        part = client.get("/library/start", **asked).text
        assert "Photos are coming in." in part
        assert '<progress max="48" value="20">' in part
        assert 'data-again="/library/start"' in part
        assert 'id="start"' in client.get("/").text
        stored.jobs.finish(job)
        assert "Photos are coming in." in client.get("/library/start", **asked).text  # their tags are not read yet
        for page in (
            "/browse",
            "/review",
            "/tags",
            "/library",
            "/map",
            "/duplicates",
            "/image/0",
            "/?q=dots",
            "/alike",
        ):
            assert client.get(page).status_code in (200, 404, 422), page

        watched(out, [])
        assert "Not learned yet" not in client.get("/tags?view=list").text  # the page knows the run of another process
        assert "are learned" in client.get("/library/start", **asked).text
        assert 'id="start"' not in client.get("/").text


def test_its_page_says_that_learning_was_killed_and_starts_it_again(tmp_path, photos):
    out = tmp_path / "catalogue"
    open_or_start(photos, out, REQUEST)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with TestClient(create_app(out), base_url="http://127.0.0.1") as client:
        asked = {"headers": {"x-part": "1"}}
        stored = Catalogue.load(out).stored
        stored.database.write("UPDATE jobs SET finished = '2026-01-01T00:00:00.000000Z'", ())
        part = client.get("/library/start", **asked).text
        assert "are in, and their tags are not learned yet" in part
        assert "coming in" not in part
        stored.jobs.start("fit", pid=ended.pid)
        part = client.get("/library/start", **asked).text
        assert "<b>Learning was stopped.</b> Its process was killed." in part
        assert 'name="kind" value="fit"' in part
        assert "Start again" in client.get("/library").text
