"""Every command that writes ends clean on a full disk: exit code 2, one line that says so, and nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from command_line import run_command
from small_disks import small_disk
from tiny_catalogues import ENCODER, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.core.errors import OutOfSpaceError
from visterm.core.persist import write_skipped
from visterm.core.types import Skipped
from visterm.features.job import encode_folder

SIZE = 6 * 2**20
QUICK_ENCODER = "--encoder visterms " + " ".join(
    f"--encoder-set {name}={str(value).replace(' ', '')}" for name, value in ENCODER.items()
)
QUICK = f"--set dim=4 --set epochs=5 {QUICK_ENCODER}"

COMMANDS = {
    "fit": "fit {photos} --tags {tags} -o {disk}/new --model wsabie {quick}",
    "fit over a run": "fit {photos} --tags {tags} -o {disk}/run --overwrite --model wsabie {quick}",
    "fit with aliases": "fit {photos} --tags {tags} --tag-rules {aliases} -o {disk}/new --model wsabie {quick}",
    "fit by queries": "fit {photos} --queries {queries} -o {disk}/new --model pamir --set epochs=2 {encoder}",
    "fit a catalogue": "fit {disk}/catalogue --full",
    "tune": "tune {features} --tags {tags} -o {disk}/new --model wsabie --grid learning_rate=0.1,0.01 --set dim=4 "
    "--set epochs=5",
    "encode": "encode {photos} -o {disk}/new --shard-size 8 --encoder {run}",
    "annotate": "annotate {run} {photos} -o {disk}/new",
    "index": "index {run} {photos} -o {disk}/new",
    "index again": "index {run} {more} -o {disk}/catalogue",
    "evaluate": "evaluate {run} {photos} --tags {tags} --report {disk}/new",
    "explain": "explain {run} {photos}/001.png green -o {disk}/new.png",
    "suggestions": "tags {run} {photos} --tags {tags} --suggest -o {disk}/new.toml",
    "add words": "tags {disk}/worded --add {words} --json",
    "relations": "tags {parts} --parts predicted -k 0 -o {disk}/new.csv",
    "export to xmp": "export {catalogue} --to xmp -k 2",
    "export to txt": "export {catalogue} --to txt -k 2",
    "export to embed": "export {catalogue} --to embed -k 2",
    "export to csv": "export {catalogue} --to csv -k 2 -o {disk}/table.csv",
    "export to jsonl": "export {catalogue} --to jsonl -k 2 -o {disk}/new.jsonl",
}
STAYS = (
    "tune",
    "encode",
    "annotate",
    "index",
    "index again",
    "fit a catalogue",
    *(f"export to {t}" for t in ("xmp", "txt", "embed")),
)
"""What was done before the disk was full is whole and stays: the same command goes on from there."""


@pytest.fixture(scope="module")
def disk():
    with ExitStack() as held:
        try:
            made = held.enter_context(small_disk(SIZE))
        except OSError as error:
            pytest.skip(str(error))
        yield made


@pytest.fixture(scope="module")
def places(disk, tmp_path_factory):
    """Where things lie: photos, a run and a catalogue to be written over on the small disk, others on a large one."""
    large = tmp_path_factory.mktemp("large_disk")
    kept = large / "kept"
    tags = draw_photos(kept / "photos", 12)
    draw_photos(large / "more", 16, seed=1)
    run = fit_run(kept / "photos", tags, large / "run")
    shutil.copytree(run, kept / "run")
    for name in ("old.csv", "old.png"):
        (kept / name).write_bytes(b"from before")
    (kept / "table.csv").write_text("file_name,tags,predicted,confidence\n", encoding="utf-8")  # an earlier export
    disk.restore(kept)
    found = {"disk": disk.folder, "kept": kept, "run": run, "photos": disk.folder / "photos", "more": large / "more"}
    found |= {"tags": write_tags(large / "tags.csv", tags), "catalogue": large / "catalogue", "quick": QUICK}
    clicks = "".join(f"{tag},{name}\n" for name, given in tags.items() for tag in given)
    (large / "clicks.csv").write_text(f"query,image\n{clicks}", encoding="utf-8")
    found |= {"queries": large / "clicks.csv", "encoder": QUICK_ENCODER}
    draw_photos(large / "broken", 2, seed=2)
    (large / "broken" / "000.png").write_bytes(b"no picture")
    (large / "aliases.toml").write_text('aliases = {rosy = "red"}\n', encoding="utf-8")
    (large / "parts.toml").write_text("part_of = 'part_of.csv'\n", encoding="utf-8")
    (large / "part_of.csv").write_text("red,warm\ngreen,cool\n", encoding="utf-8")
    found |= {name: large / name for name in ("broken", "parts")} | {"aliases": large / "aliases.toml"}
    fit = f"fit {kept / 'photos'} --tags {found['tags']} --set epochs=1 --set valid_share=0 {QUICK_ENCODER}"
    parts = f"--model objects_and_parts --set dim=4 --tag-rules {large / 'parts.toml'} -o {large / 'parts'}"
    done = run_command(f"{fit} {parts}".split())
    assert done.returncode == 0, done.stderr
    if find_spec("torch"):
        names = ("red", "green", "blue", "grey", "warm", "cool", "rosy")
        vectors = "".join(f"{word} {number} 1 {number % 3}\n" for number, word in enumerate(names))
        (large / "vectors.txt").write_text(vectors, encoding="utf-8")
        (large / "words.txt").write_text("rosy\n", encoding="utf-8")
        words = (
            f"--model sampled_tagger --set hidden=[4] --set fixed_vectors=true --word-vectors {large / 'vectors.txt'}"
        )
        done = run_command(f"{fit} {words} -o {kept / 'worded'}".split())
        assert done.returncode == 0, done.stderr
        found["words"] = large / "words.txt"
    encode_folder(kept / "photos", large / "features", encoder="visterms", encoder_params=ENCODER)
    found["features"] = large / "features"
    made = Catalogue.create(large / "catalogue", Tagger.load(run, n_jobs=1))
    made.index(found["photos"], tags=found["tags"])
    made.stored.close()
    shutil.copytree(large / "catalogue", kept / "catalogue")
    return found


def command(name, places):
    return run_command(COMMANDS[name].format(**places).split(), places["kept"].parent)


def check_refused(done):
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done
    assert last.startswith("visterm: "), done.stderr
    assert "disk" in last, last
    assert "full" in last or "space" in last, last


def check_nothing_is_half(listed):
    assert not [path for path in listed if ".tmp" in str(path) or "_exiftool_" in str(path)]
    for path in listed:
        if path.suffix == ".json":
            json.loads(listed[path])


def space_taken(name, disk, places):
    """Run a command with space for all, and return the bytes that it took."""
    disk.restore(places["kept"])
    start, before = disk.used(), disk.listed()
    whole = command(name, places)
    assert whole.returncode == 0, whole.stderr
    changed = sum(len(content) for path, content in disk.listed().items() if before.get(path) != content)
    return max(disk.used() - start, changed)


def check(name, disk, places, share):
    """Run a command twice: with space for a share of what it takes, and then with space for all."""
    if name == "export to embed" and shutil.which("exiftool") is None:
        pytest.skip("exiftool is not installed")
    if name == "add words":
        pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    code = 0
    room = int(share * space_taken(name, disk, places)) if share else 0
    shutil.rmtree(places["catalogue"])
    shutil.copytree(places["kept"] / "catalogue", places["catalogue"])
    disk.restore(places["kept"])
    before = disk.listed()
    disk.leave(room)
    full = command(name, places)
    try:
        check_refused(full)
        after = disk.listed()
        check_nothing_is_half(after)
        if name not in STAYS:
            assert after == before
    finally:
        disk.free()
    again = command(name, places)
    assert again.returncode == code, again.stderr
    if (disk.folder / "catalogue").is_dir():
        opened = Catalogue.load(disk.folder / "catalogue", n_jobs=1)
        assert opened.stored.database.check() == []
        here = os.getpid()  # of a job whose end did not fit the disk, the process is gone otherwise, and the job lost
        assert all(job.ended or job.pid == here for job in opened.stored.jobs.latest())
        opened.stored.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_clean_where_nothing_can_be_written(name, disk, places):
    check(name, disk, places, 0.0)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_clean_where_the_disk_fills_up_midway(name, disk, places):
    check(name, disk, places, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_clean_wherever_the_disk_fills_up(name, share, disk, places):
    check(name, disk, places, share)


def test_a_list_of_skipped_images_that_the_disk_does_not_take_leaves_the_earlier_one(disk, places):
    disk.restore(places["kept"])
    listed = disk.folder / "skipped.jsonl"
    write_skipped(listed, [Skipped("a.png", "not an image")])
    before = listed.read_bytes()
    disk.leave(0)
    try:
        with pytest.raises(OutOfSpaceError):
            write_skipped(listed, [Skipped("b.png", "not an image")] * 100)
        assert listed.read_bytes() == before
        assert [path.name for path in disk.folder.iterdir() if "skipped" in path.name] == ["skipped.jsonl"]
    finally:
        disk.free()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["models", "models --json"])
def test_results_that_standard_output_does_not_take_end_in_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "visterm", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "visterm: The disk is full. Make space there and try again.\n"
