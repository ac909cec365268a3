"""Videos: frames taken by ffmpeg, kept in a catalogue as rows of one image, found at their best moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from drawn_videos import draw_video, needs_ffmpeg
from tiny_catalogues import draw_photos, fit_run, touch
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import ImageError
from visterm.data import videos
from visterm.data.contents import Exif
from visterm.data.image_folders import count_not_read
from visterm.data.images import read_image
from visterm.data.sidecars import read_sidecar
from visterm.data.videos import VideoFrames, video_facts
from visterm.library.records import NEEDS_FOLDER
from visterm.models.confidence.calibration import Calibration
from visterm.store.filters import Filter

pytestmark = needs_ffmpeg


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A film of three scenes, and one of a single colour whose name looks like an option."""
    folder = tmp_path_factory.mktemp("films")
    draw_video(folder / "film.mp4", "red", "green", "blue")
    draw_video(folder / "-i grey.webm", "grey", seconds=2)
    return folder


def photos_in(folder, films):
    draw_photos(folder, 4)
    for film in films.iterdir():
        os.link(film, folder / film.name)
    return folder


def indexed(folder, run, photos, frames=None):
    made = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=2))
    if frames is not None:
        shutil.copytree(frames, folder / "catalogue" / "frames")
    assert made.index(photos).new == 6
    return made


@pytest.fixture
def photos(tmp_path, films):
    return photos_in(tmp_path / "photos", films)


@pytest.fixture(scope="module")
def only_read(tmp_path_factory, run, films):
    """A catalogue that tests must not change."""
    folder = tmp_path_factory.mktemp("read")
    return indexed(folder, run, photos_in(folder / "photos", films))


@pytest.fixture
def catalogue(run, photos, only_read, tmp_path):
    """A catalogue that takes the frames of its videos as they were extracted for another."""
    return indexed(tmp_path, run, photos, only_read.stored.folder / "frames")


def id_of(catalogue, name):
    [found] = [record.id for record in catalogue.records if record.name == name]
    return found


def hit_of(catalogue, words, name="film.mp4", **how):
    hits = catalogue.search(words, 0, **how).hits
    assert len({hit.id for hit in hits}) == len(hits)
    return next(hit for hit in hits if hit.image == name)


# ---- ffmpeg ---------------------------------------------------------------------------------------------------------


def test_a_video_has_a_frame_for_each_scene(films, tmp_path):
    frames = VideoFrames(tmp_path / "frames")
    moments = frames.moments(films / "film.mp4", "ab12")
    assert moments == [0.0, 6.0, 12.0]
    colours = [read_image(frames.file(films / "film.mp4", "ab12", at)).mean((0, 1)) for at in moments]
    assert [int(np.argmax(colour)) for colour in colours] == [0, 1, 2]
    facts = video_facts(films / "film.mp4")
    assert (facts.width, facts.height, round(facts.seconds)) == (64, 48, 18)


@pytest.mark.parametrize(
    ("scenes", "seconds", "moments"),
    [
        pytest.param(["red", "blue"] * 4, 2, [0, 5, 10, 15], id="quick cuts"),
        pytest.param(["red"], 70, [0, 30, 60], id="no cut"),
        pytest.param(["red"], 0.2, [0], id="one picture"),
    ],
)
def test_frames_are_at_least_five_seconds_apart_and_at_most_thirty(scenes, seconds, moments, tmp_path):
    film = draw_video(tmp_path / "film.mp4", *scenes, seconds=seconds)
    found = VideoFrames(tmp_path / "frames").moments(film, "ab12")
    assert found[0] == 0
    assert min(np.diff(found), default=5) >= 5
    assert found == pytest.approx(moments, abs=2.5)  # key frames are 2 s apart


def test_a_long_film_has_a_bounded_number_of_frames_over_its_whole_length(monkeypatch, tmp_path):
    monkeypatch.setattr(videos, "MAX_FRAMES", 4)
    film = draw_video(tmp_path / "film.mp4", *["red", "green"] * 10, seconds=6)
    moments = VideoFrames(tmp_path / "frames").moments(film, "ab12")
    assert len(moments) == 4
    assert moments[-1] >= 80


def test_a_frame_is_upright_as_the_film_is(tmp_path):
    film = draw_video(tmp_path / "plain.mp4", "red", seconds=1)
    turned = tmp_path / "turned.mp4"
    command = ["ffmpeg", "-v", "error", "-i", film, "-c", "copy", "-metadata:s:v:0", "rotate=90", turned]
    subprocess.run(command, check=True)
    assert video_facts(turned)[:2] == (48, 64)
    with Image.open(VideoFrames(tmp_path).file(turned, "ab12", 0.0)) as frame:
        assert frame.size == (48, 64)


def test_the_clock_of_the_camera_is_read(tmp_path):
    film = draw_video(tmp_path / "film.mp4", "red", seconds=1, more=("-metadata", "creation_time=2024-05-31T10:20:30Z"))
    assert video_facts(film).exif == Exif("2024-05-31T10:20:30")


@pytest.mark.parametrize(
    ("location", "place"), [("+48.1372-011.5755+519.000/", (48.1372, -11.5755)), ("+99.0+011.5/", (None, None))]
)
def test_where_a_video_was_filmed_is_read(location, place, tmp_path):
    film = draw_video(tmp_path / "film.mp4", "red", seconds=1, more=("-metadata", f"location={location}"))
    assert video_facts(film).exif[2:] == place


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"no film at all" * 100, "damaged: Invalid data", id="text"),
        pytest.param(b"", "damaged: ", id="empty"),
        pytest.param(b"ffconcat version 1.0\nfile secret.mp4\n", "not supported: ", id="a list of other files"),
        pytest.param(
            b"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n", "not supported: ",
            id="a playlist",
        ),
    ],
)  # fmt: skip
def test_what_is_no_film_is_refused_with_the_reason(content, reason, tmp_path):
    draw_video(tmp_path / "secret.mp4", "red", seconds=1)
    (tmp_path / "film.mp4").write_bytes(content)
    with pytest.raises(ImageError) as refused:
        video_facts(tmp_path / "film.mp4")
    assert refused.value.reason.startswith(reason)


def test_a_truncated_film_is_read_as_far_as_it_goes_or_refused(films, tmp_path):
    whole = (films / "film.mp4").read_bytes()
    (tmp_path / "half.mp4").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match="damaged"):
        VideoFrames(tmp_path / "frames").moments(tmp_path / "half.mp4", "ab12")
    assert not [path for path in (tmp_path / "frames").rglob("*") if path.is_file()]


def test_a_program_that_takes_too_long_is_ended(films, monkeypatch, tmp_path):
    monkeypatch.setattr(videos, "SCAN_SECONDS", 0.0)
    with pytest.raises(ImageError, match="too slow to decode"):
        VideoFrames(tmp_path / "frames").moments(films / "film.mp4", "ab12")


def test_sound_alone_is_no_video(tmp_path):
    sound = tmp_path / "sound.mp4"
    subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "sine=d=1", str(sound)], check=True)
    with pytest.raises(ImageError, match="not a video: it has no pictures"):
        video_facts(sound)


# ---- In a catalogue -------------------------------------------------------------------------------------------------


def test_a_video_is_one_image_with_a_row_for_each_frame(only_read):
    film = id_of(only_read, "film.mp4")
    assert len(only_read) == len(only_read.records) == only_read.stored.images.count() == 6
    assert [frame.at for frame in only_read.stored.frames.of([film])] == [0.0, 6.0, 12.0]
    assert len(only_read.stored.current_rows().frames_apart.ids) == 8
    assert sorted(only_read.stored.current_rows().ids.tolist()) == sorted(record.id for record in only_read.records)
    assert len(only_read.browse(k=0).hits) == 6


@pytest.mark.parametrize(("words", "at"), [("red", 0.0), ("green", 6.0), ("blue", 12.0)])
def test_a_search_finds_a_video_once_at_its_best_moment(only_read, words, at):
    hit = hit_of(only_read, words)
    assert hit.at == at
    assert hit.as_dict()["at"] == at
    assert hit.path.endswith("film.mp4")
    first = only_read.search(words, 3).hits
    assert [one.id for one in first] == [one.id for one in only_read.search(words, 0).hits[:3]]


def test_the_score_of_a_video_is_the_largest_of_its_frames(only_read):
    film = id_of(only_read, "film.mp4")
    rows = only_read.stored.current_rows()
    ids = [frame.image_id for frame in only_read.stored.frames.of([film])]
    V = only_read.tagger.tag_rows(np.arange(len(only_read.tagger.vocabulary)))
    np.testing.assert_array_equal(rows.products(V, [film])[0], rows.frames_apart.products(V, ids).max(axis=0))
    predicted = {tag.tag: tag.score for tag in only_read.image(film).predicted}
    for tag, score in predicted.items():
        column = only_read.tagger.vocabulary.index(tag)
        assert score == pytest.approx(rows.frames_apart.products(V[[column]], ids).max(), rel=1e-5)
    assert {"red", "green", "blue"} <= predicted.keys()


def test_the_confidence_of_a_video_is_the_highest_of_its_frames(catalogue):
    tagger = catalogue.tagger
    n = len(tagger.vocabulary)
    tagger.parts = tagger.parts.changed(calibration=Calibration(np.full(n, 2.0), np.linspace(-0.5, 0.5, n), 0.0, 100))
    film = id_of(catalogue, "film.mp4")
    ids = [frame.image_id for frame in catalogue.stored.frames.of([film])]
    V = tagger.tag_rows(np.arange(n))
    scores = catalogue.stored.current_rows().frames_apart.products(V, ids)
    best = tagger.calibration.confidences(scores).max(axis=0)
    for tag in ("red", "green", "blue"):
        hit = hit_of(catalogue, tag, combine="confidence")
        assert hit.confidence == pytest.approx(best[tagger.vocabulary.index(tag)], rel=1e-5)
    for tag in catalogue.annotate([film], 0)[film]:
        assert tag.confidence == pytest.approx(best[tagger.vocabulary.index(tag.tag)], rel=1e-5)


def test_videos_pass_filters_and_are_found_by_another_picture(only_read, photos):
    assert {hit.image for hit in only_read.browse(Filter(file_type="mp4"), 0).hits} == {"film.mp4"}
    assert hit_of(only_read, "green", among=Filter(file_type="mp4")).at == 6.0
    hits = only_read.like(photos / "002.png", 0).hits  # blue
    assert next(hit.at for hit in hits if hit.image == "film.mp4") == 12.0
    assert max(hit.score for hit in hits) <= 1.0001
    film = id_of(only_read, "film.mp4")
    assert film not in [hit.id for hit in only_read.like(film, 0).hits]


def test_people_say_what_a_video_shows_as_of_photos(catalogue):
    film = id_of(catalogue, "film.mp4")
    catalogue.judge(film, "green", -1)
    assert film not in [hit.id for hit in catalogue.search("green", 0).hits]
    assert "green" not in [tag.tag for tag in catalogue.annotate([film], 0)[film]]
    catalogue.give(film, ["grey"])
    first = catalogue.search("grey", 0).hits[0]
    assert (first.id, first.source) == (film, "person")


def test_words_by_hand_and_words_by_frames_of_a_video_count_together(catalogue):
    film, plain = id_of(catalogue, "film.mp4"), id_of(catalogue, "-i grey.webm")
    catalogue.give(film, ["Party"])
    catalogue.judge(plain, "party", 1)
    assert [(hit.id, hit.source) for hit in catalogue.search("party", 0).hits] == [
        (film, "person"),
        (plain, "accepted"),
    ]
    for k in (1, 2, 0):  # the new word says which videos lead, the learned one at which moment
        hits = catalogue.search("party blue", k).hits
        assert [(hit.id, hit.at) for hit in hits[:2]] == [(film, 12.0), (plain, 0.0)][: k or 2]
    assert film not in [hit.id for hit in catalogue.search("red -party", 0).hits]
    assert [hit.id for hit in catalogue.browse(Filter(tags=("PARTY",)), 0).hits] == sorted([film, plain])
    assert film not in [hit.id for hit in catalogue.search("red", 0, among=Filter(without=("party",))).hits]
    before = [hit.id for hit in catalogue.search("blue -grey", 0, combine="sum").hits]
    catalogue.judge(plain, "grey", -1)
    assert plain not in [hit.id for hit in catalogue.search("grey", 0).hits]
    now = [hit.id for hit in catalogue.search("blue -grey", 0, combine="sum").hits]
    assert now.index(plain) <= before.index(plain)
    catalogue.give(film, ["grey"])
    assert film not in [hit.id for hit in catalogue.search("blue -grey", 0).hits]
    assert hit_of(catalogue, "grey").source == "person"


def test_learning_takes_the_frame_that_shows_the_tag(run, tmp_path):
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    tags = draw_photos(tmp_path / "photos", 24)
    draw_video(tmp_path / "photos" / "film.mp4", "red", "green")
    catalogue.index(tmp_path / "photos")
    film = id_of(catalogue, "film.mp4")
    for record in catalogue.records:
        catalogue.give(record.id, tags.get(record.name, ["green"]))
    from visterm.library.encoded_features import CatalogueFeatures
    from visterm.library.training import learnable_and_held_out

    features = CatalogueFeatures(catalogue.stored, catalogue.tagger.encoder.fingerprint)
    parts = learnable_and_held_out(catalogue.tagger, catalogue.stored, features)
    assert sum(map(len, parts)) == 25
    [(part, place)] = [(p, i) for p in parts for i, image in enumerate(p.images) if image.id == film]
    _ids, X = features.rows([catalogue.stored.frames.of([film])[1].image_id])
    np.testing.assert_array_equal(part.X[[place]].toarray(), X.toarray())
    assert catalogue.learn(full=True).images > 0
    assert hit_of(catalogue, "green").at == 6.0


def test_another_run_gives_all_frames_rows_without_decoding_the_video(catalogue, photos, tmp_path, monkeypatch):
    other = fit_run(tmp_path / "others", draw_photos(tmp_path / "others", seed=8), tmp_path / "other", seed=5)
    monkeypatch.setattr(videos, "_run", lambda *_: pytest.fail("the video was decoded again"))
    catalogue.use(Tagger.load(other, n_jobs=1))
    assert len(catalogue.stored.current_rows().frames_apart.ids) == 8
    assert hit_of(catalogue, "green").at == 6.0


def test_moved_gone_and_changed_videos_are_seen_as_what_they_are(catalogue, photos, films):
    film = id_of(catalogue, "film.mp4")
    (photos / "deep").mkdir()
    (photos / "film.mp4").rename(photos / "deep" / "other.mp4")
    done = catalogue.index(photos)
    assert (done.moved, done.encoded) == (1, 0)
    hit = hit_of(catalogue, "green", "deep/other.mp4")
    assert (hit.id, hit.at) == (film, 6.0)

    (photos / "deep" / "other.mp4").unlink()
    assert catalogue.index(photos).gone == 1
    assert film not in [hit.id for hit in catalogue.search("green", 0).hits]
    assert len(catalogue) == 5
    assert catalogue.stored.images.count("gone") == 1

    os.link(films / "film.mp4", photos / "back.mp4")
    assert catalogue.index(photos).moved == 1
    assert hit_of(catalogue, "blue", "back.mp4").at == 12.0

    (photos / "back.mp4").unlink()
    draw_video(photos / "back.mp4", "blue", "grey")
    touch(photos / "back.mp4", 1_000_000_000)
    assert catalogue.index(photos).changed == 1
    assert [frame.at for frame in catalogue.stored.frames.of([film])] == [0.0, 6.0]
    assert hit_of(catalogue, "grey", "back.mp4").at == 6.0
    assert len(catalogue.stored.current_rows().frames_apart.ids) == 7
    kept = list((catalogue.stored.folder / "frames").iterdir())
    catalogue.index(photos)
    assert len(list((catalogue.stored.folder / "frames").iterdir())) == len(kept) - 1  # the old film's
    catalogue.stored.check()


def test_a_broken_video_is_skipped_with_the_reason_and_the_others_are_taken(run, photos, tmp_path):
    (photos / "broken.mov").write_bytes(b"no film" * 1000)
    catalogue = Catalogue.create(tmp_path / "c", Tagger.load(run, n_jobs=1))
    done = catalogue.index(photos)
    assert done.new == 6
    [(image, reason)] = [(item.image, item.reason) for item in done.skipped]
    assert image == str(photos / "broken.mov")
    assert reason.startswith("damaged: Invalid data")
    assert catalogue.skipped == done.skipped


def test_indexing_goes_on_after_a_kill(run, tmp_path):
    folder = tmp_path / "films"
    for number, colour in enumerate(["red", "green", "blue", "grey"]):
        draw_video(folder / f"{number}.mp4", colour, "grey" if colour != "grey" else "red", seconds=5 + number / 10)
    Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    code = "import sys; from visterm import Catalogue; Catalogue.load(sys.argv[1], n_jobs=1).index(sys.argv[2])"
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "catalogue", folder])
    frames, end = tmp_path / "catalogue" / "frames", time.monotonic() + 600
    while (len(list(frames.glob("*"))) if frames.is_dir() else 0) < 3 and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    catalogue = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    done = catalogue.index(folder)
    assert done.new + done.kept == len(catalogue) == 4
    fresh = Catalogue.create(tmp_path / "fresh", Tagger.load(run, n_jobs=1))
    fresh.index(folder)
    for record in fresh.records:
        twin = catalogue.stored.images.by_path(record.path)
        moments = [
            [frame.at for frame in one.stored.frames.of([i])] for one, i in ((catalogue, twin.id), (fresh, record.id))
        ]
        assert moments[0] == moments[1]
    assert not [path for path in frames.iterdir() if path.name.startswith("new-")]
    catalogue.stored.check()


def test_a_catalogue_in_memory_takes_photos_only(run, photos):
    with pytest.warns(UserWarning, match="Skipped 2 photos"):
        made = Catalogue(Tagger.load(run, n_jobs=1)).add(photos)
    assert len(made) == 4
    assert {item.reason for item in made.skipped} == {NEEDS_FOLDER}


@pytest.mark.parametrize("sha256", ["../../etc", "", "a/b"])
def test_a_hash_that_is_none_leads_nowhere(sha256, films, tmp_path):
    frames = VideoFrames(tmp_path / "frames")
    for ask in (
        lambda: frames.file(films / "film.mp4", sha256, 0.0),
        lambda: frames.moments(films / "film.mp4", sha256),
    ):
        with pytest.raises(ImageError, match="the catalogue says that its hash is"):
            ask()


def test_tags_of_videos_are_exported_into_files_beside_them(catalogue, photos):
    film = id_of(catalogue, "film.mp4")
    catalogue.give(film, ["mine"])
    made = CliRunner().invoke(app, ["export", str(catalogue.stored.folder), "--to", "xmp", "-k", "2"])
    assert made.exit_code == 0, made.output
    best = [tag.tag for tag in catalogue.annotate([film], 2)[film]]
    assert set(read_sidecar(photos / "film.mp4.xmp").tags) == {"mine", *best}


def test_tags_in_files_beside_videos_are_read(run, photos, tmp_path):
    photo = next(photos.glob("*.png"), None) or next(photos.glob("*.jp*g"))
    for image in (photo, photos / "film.mp4"):
        Path(f"{image}.xmp").write_text(
            '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
            '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag>'
            "<rdf:li>colours</rdf:li></rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
        )
    made = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=2))
    made.index(photos, tags="xmp")
    assert [tag.tag for tag in made.image(id_of(made, "film.mp4")).given] == ["colours"]
    (photos / "film.mp4.xmp").write_bytes(b"<no")
    done = made.index(photos, tags="xmp")
    assert any("1 video whose keywords cannot be read" in remark for remark in done.remarks)
    assert [tag.tag for tag in made.image(id_of(made, "film.mp4")).given] == ["colours"]


# ---- Commands -------------------------------------------------------------------------------------------------------


def test_a_film_is_annotated_by_the_best_of_its_frames(run, films, only_read):
    made = CliRunner().invoke(app, ["annotate", str(run), str(films / "film.mp4"), "-k", "4", "--json"])
    assert made.exit_code == 0, made.output
    [line] = [json.loads(line) for line in made.stdout.splitlines()]
    assert {"red", "green", "blue"} & {tag["tag"] for tag in line["tags"]}
    film = id_of(only_read, "film.mp4")
    expected = {tag.tag: tag.score for tag in only_read.annotate([film], 4)[film]}
    assert {tag["tag"]: tag["score"] for tag in line["tags"]} == pytest.approx(expected, rel=1e-4)


def test_without_ffmpeg_videos_are_counted_and_named_in_one_line(run, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    made = CliRunner().invoke(app, ["index", str(run), str(photos), "-o", str(tmp_path / "c")])
    assert made.exit_code == 0, made.output
    assert "Not read as photos: 2 videos (.mp4, .webm; read with: the program ffmpeg)." in made.output
    assert len(Catalogue.load(tmp_path / "c")) == 4
    assert count_not_read([photos], videos=True).counts["video"] == 2
