"""Commands on photos and features of an object store: what they give is what they give of folders."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import run_command
from planted_features import fitted_encoder, plant
from remote_photos import N, content, paint, picture, put
from visterm import Tagger
from visterm.core.errors import ImageError, StorageError, TagFileError
from visterm.data.images import read_image
from visterm.features.job import encode_folder
from visterm.features.stored import Features
from visterm.features.training_rows import read_corpus
from visterm.web.decoding import Decoders

pytest_plugins = ["encoding_fixtures"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("drawn"), fitted_encoder())


def test_features_of_a_store_are_learned_from_in_memory_and_streamed_as_those_on_disk(
    bucket, drawn, tmp_path, no_cache
):
    put(drawn / "features", bucket / "F")
    (bucket / "tags.jsonl").write_bytes((drawn / "tags.jsonl").read_bytes())
    settings = ["--model", "wsabie", "--set", "dim=8", "--set", "epochs=2"]
    both = [(bucket / "F", bucket / "tags.jsonl"), (drawn / "features", drawn / "tags.jsonl")]
    for name, more in [("whole", []), ("streamed", ["--memory", "1M"])]:
        runs = []
        for place, tags in both:
            runs.append(tmp_path / f"{name} {isinstance(place, Path)}")
            done = run_command(["fit", place, "--tags", tags, *settings, *more, "-o", runs[-1]])
            assert done.returncode == 0, done.stderr
            assert ("streamed from disk" in done.stderr) == bool(more)
        remote, local = (Tagger.load(run) for run in runs)
        np.testing.assert_array_equal(remote.model.tag_rows_, local.model.tag_rows_, strict=True)
        told = [
            run_command(["evaluate", runs[0], place, "--tags", tags, "--json"], tmp_path).stdout for place, tags in both
        ]
        assert told[0] == told[1] != ""
    told = [
        run_command(["annotate", runs[0], place, "--json"], tmp_path).stdout
        for place in (bucket / "F", drawn / "features")
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 600


def test_commands_take_addresses_and_name_images_by_them(bucket, tmp_path, small):
    paint(bucket / "photos")
    (bucket / "photos/broken.png").write_bytes(b"no picture")
    rows = [f"{place}/{i:02}.png,{place}" for i in range(N) for place in [("sea" if i % 3 == 0 else "sky")]]
    (tmp_path / "tags.csv").write_text("\n".join(["file_name,tags", *rows]) + "\n")
    encoder = ["--encoder", small["encoder"]]
    done = run_command(["encode", bucket / "photos", "-o", bucket / "F", *encoder, "--shard-size", 5], tmp_path)
    assert done.returncode == 3, done.stderr
    assert f"Wrote the features of 12 photos to {bucket}/F" in " ".join(done.stderr.split())
    fit = ["fit", bucket / "F", "--tags", "tags.csv", "--model", "ridge", "-o", "run"]
    done = run_command(fit, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "visterm fit" not in done.stderr
    assert Tagger.load(tmp_path / "run").facts["images"] == N
    done = run_command(
        ["annotate", "run", bucket / "photos/sea/00.png", bucket / "photos/broken.png", "--json"], tmp_path
    )
    assert done.returncode == 3
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == [f"{bucket}/photos/sea/00.png"]
    assert f"Skipped {bucket}/photos/broken.png: " in done.stderr
    done = run_command(
        ["evaluate", "run", bucket / "photos", "--tags", "tags.csv", "--metric", "p@1", "--json"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"p@1"}
    done = run_command(["info", bucket / "F"], tmp_path)
    assert done.returncode == 0
    assert f"{bucket}/photos" in done.stdout


def test_tags_of_photos_in_a_store_come_from_a_table(memory, tmp_path):
    paint(memory / "photos")
    with pytest.raises(TagFileError, match=rf"images in an object store \({memory}/photos\).*'auto' is not a table"):
        read_corpus(None, str(memory / "photos"), "auto")
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n00.png,a\nphotos/sky/01.png,b\n{memory}/photos/sky/02.png,c\n")
    corpus = read_corpus(None, memory / "photos", tmp_path / "tags.csv")
    assert corpus.images == [memory / "photos/sea/00.png", memory / "photos/sky/01.png", memory / "photos/sky/02.png"]
    assert len(corpus.untagged) == N - 3


def test_tags_are_written_into_a_store_to_the_bytes_of_a_folder_and_a_later_job_tags_what_is_new(
    memory, photos, tmp_path, small
):
    put(photos, memory / "photos")
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in content(photos))
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n{rows}")
    tagger = Tagger(encoder=small["encoder"], model="ridge", n_jobs=1).fit(photos, tags=tmp_path / "tags.csv")
    tagger.save(tmp_path / "run")
    for out in (memory / "tags", tmp_path / "tags"):
        done = run_command(["annotate", "run", memory / "photos", "-o", out, "--json"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["new"] == N
    assert content(memory / "tags") == content(tmp_path / "tags")
    lines = "".join(data.decode() for name, data in content(memory / "tags").items() if name.startswith("data/"))
    assert [json.loads(line)["image"] for line in lines.splitlines()] == [
        f"{memory}/photos/{n}" for n in content(photos)
    ]
    (memory / "photos/sky/99.png").write_bytes(picture(99))
    done = run_command(["annotate", "run", memory / "photos", "-o", memory / "tags", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["annotated"] == N + 1
    with pytest.raises(StorageError, match=r"tags exists and is not a features folder"):
        encode_folder(photos, memory / "tags", **small)


def test_photos_of_a_store_are_indexed_by_their_features_or_as_they_are_and_brought_up_to_date(
    memory, photos, tmp_path, small
):
    put(photos, memory / "photos")
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in content(photos))
    (tmp_path / "tags.csv").write_text(f"file_name,tags\n{rows}")
    encode_folder(memory / "photos", memory / "F", **small)
    tagger = Tagger(model="ridge", n_jobs=1).fit(memory / "F", tags=tmp_path / "tags.csv")
    tagger.save(tmp_path / "run")
    assert tagger.encoder.fingerprint == Features(memory / "F").fingerprint

    def index(out, *images):
        done = run_command(["index", *images, "-o", out, "--json"], tmp_path)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return {name: told[name] for name in ("new", "changed", "gone", "kept", "moved", "encoded")}

    nothing = {"new": 0, "changed": 0, "gone": 0, "kept": 0, "moved": 0, "encoded": 0}
    assert index("of_features", "run", memory / "F") == nothing | {"new": N}
    assert index("of_photos", "run", memory / "photos") == nothing | {"new": N, "encoded": N}
    assert index("here", "run", photos) == nothing | {"new": N, "encoded": N}
    found = [
        [json.loads(line) for line in run_command(["search", name, "sea", "--json"], tmp_path).stdout.splitlines()]
        for name in ("of_features", "of_photos", "here")
    ]
    assert len(found[0]) == 10
    assert {hit["image"] for hit in found[0]} <= set(content(photos))
    scores = [[hit["score"] for hit in hits] for hits in found]
    np.testing.assert_allclose(scores[0], scores[2], rtol=1e-5)
    np.testing.assert_allclose(scores[1], scores[2], rtol=1e-5)
    assert index("of_photos", "of_photos", memory / "photos") == nothing | {"kept": N}
    assert run_command(["export", "of_photos", "--to", "csv", "-k", 1, "-o", "table.csv"], tmp_path).returncode == 0
    table = (tmp_path / "table.csv").read_text()
    assert sorted(line.split(",")[0] for line in table.splitlines()[1:]) == sorted(content(photos))
    before = content(memory)
    done = run_command(["export", "of_photos", "--to", "xmp", "-k", 1], tmp_path)
    assert done.returncode == 3
    assert "in an object store, where no tags are written" in done.stderr
    assert content(memory) == before
    like = ["search", "of_features", "--like", memory / "photos/sea/00.png", "--json"]
    hits = [json.loads(line)["image"] for line in run_command([*like, "-k", 0, "--json"], tmp_path).stdout.splitlines()]
    inside = sorted(hit for hit in hits if hit.startswith("sea/"))
    assert inside == [f"sea/{i:02}.png" for i in range(3, N, 3)]  # all of the folder but itself
    (memory / "photos/sea/00.png").write_bytes(picture(100))
    (memory / "photos/sky/11.png").unlink()
    (memory / "photos/sky/98.png").write_bytes(picture(98))
    expected = {"new": 1, "changed": 1, "gone": 1, "kept": N - 2, "moved": 0, "encoded": 2}
    assert index("of_photos", "of_photos", memory / "photos") == expected
    done = run_command(["index", "run", memory / "F", "-o", "later", "--json"], tmp_path)
    assert done.returncode == 3
    told = {
        Path(item["image"]).name: item["reason"]
        for item in map(json.loads, (tmp_path / "later/skipped.jsonl").read_text().splitlines())
    }
    assert told == {"00.png": "changed since its features were made", "11.png": "no such file"}


def test_the_service_shows_photos_of_a_store_without_letting_decoders_reach_it(memory):
    paint(memory / "photos", [1])
    decoders = Decoders(1, 4, memory_bytes=1536 * 2**20, max_pixels=10**6, seconds=60)
    place = f"{memory}/photos/sky/01.png"  # in the memory of this process alone

    async def ask():
        pixels = await decoders.pixels(place, None)
        small = await decoders.jpeg(place, 8)
        with pytest.raises(ImageError, match="no such file"):
            await decoders.jpeg(f"{memory}/gone.png", 8)
        return pixels, small

    try:
        pixels, small = asyncio.run(ask())
    finally:
        decoders.close()
    np.testing.assert_array_equal(pixels, read_image(place))
    assert Image.open(io.BytesIO(small)).size == (8, 8)
    assert small[:2] == b"\xff\xd8"  # how JPEGs begin
