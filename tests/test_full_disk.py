"""Every command that writes ends clean on a full disk: exit code 2, one line that says so, and nothing half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest

from command_line import run_command
from small_disks import small_disk
from tiny_catalogues import ENCODER, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger

SIZE = 6 * 2**20
QUICK_ENCODER = "--encoder visterms " + " ".join(
    f"--encoder-set {name}={str(value).replace(' ', '')}" for name, value in ENCODER.items()
)
QUICK = f"--set dim=4 --set epochs=5 --jobs 1 {QUICK_ENCODER}"

COMMANDS = {
    "fit": "fit {photos} --tags {tags} -o {disk}/new --model wsabie {quick}",
    "fit over a run": "fit {photos} --tags {tags} -o {disk}/run --model wsabie {quick}",
    "fit by queries": "fit {photos} --queries {queries} -o {disk}/new --model pamir --set epochs=2 --jobs 1 {encoder}",
    "fit a catalogue": "fit --catalogue {disk}/catalogue --full --jobs 1",
    "tune": "tune {photos} --tags {tags} -o {disk}/new --model wsabie --grid learning_rate=0.1,0.01 {quick}",
    "encode": "encode {photos} -o {disk}/new --shard-size 8 --jobs 1 --run {run}",
    "annotate": "annotate {run} {photos} -o {disk}/new --jobs 1",
    "index": "index {run} {photos} -o {disk}/new --jobs 1",
    "index again": "index {run} {more} -o {disk}/catalogue --jobs 1",
    "union": "union {catalogue} {disk}/catalogue -o {disk}/new",
    "evaluate": "evaluate {run} {photos} --tags {tags} --report {disk}/new --jobs 1",
    "explain": "explain {run} {photos}/001.png green -o {disk}/new.png",
    "info": "info {run} --plot {disk}/old.png",
    "suggestions": "tags {run} {photos} --tags {tags} --suggest --out {disk}/old.csv",
    "export to xmp": "export {catalogue} --to xmp -k 2",
    "export to txt": "export {catalogue} --to txt -k 2",
    "export to embed": "export {catalogue} --to embed -k 2",
    "export to csv": "export {catalogue} --to csv -k 2 -o {disk}/old.csv",
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
    disk.restore(kept)
    found = {"disk": disk.folder, "kept": kept, "run": run, "photos": disk.folder / "photos", "more": large / "more"}
    found |= {"tags": write_tags(large / "tags.csv", tags), "catalogue": large / "catalogue", "quick": QUICK}
    clicks = "".join(f"{tag},{name}\n" for name, given in tags.items() for tag in given)
    (large / "clicks.csv").write_text(f"query,image\n{clicks}", encoding="utf-8")
    found |= {"queries": large / "clicks.csv", "encoder": QUICK_ENCODER}
    made = Catalogue.create(large / "catalogue", Tagger.load(run, n_jobs=1))
    made.index(found["photos"], tags=found["tags"])
    made.stored.close()
    shutil.copytree(large / "catalogue", kept / "catalogue")
    return found


def command(name, places):
    return run_command(COMMANDS[name].format(**places).split(), places["kept"].parent)


def check(name, disk, places, share):
    """Run a command twice: with space for a share of what it takes, and then with space for all."""
    if name == "export to embed" and shutil.which("exiftool") is None:
        pytest.skip("exiftool is not installed")
    disk.restore(places["kept"])
    start, before = disk.used(), disk.listed()
    whole = command(name, places)
    assert whole.returncode == 0, whole.stderr
    changed = sum(len(content) for path, content in disk.listed().items() if before.get(path) != content)
    needed = max(disk.used() - start, changed)
    shutil.rmtree(places["catalogue"])
    shutil.copytree(places["kept"] / "catalogue", places["catalogue"])
    disk.restore(places["kept"])
    disk.leave(int(share * needed))
    full = command(name, places)
    try:
        last = full.stderr.splitlines()[-1]
        assert full.returncode == 2, full
        assert last.startswith("visterm: "), full.stderr
        assert "disk" in last, last
        assert "full" in last or "space" in last, last
        after = disk.listed()
        assert not [path for path in after if ".tmp" in str(path) or "_exiftool_" in str(path)]
        if name not in STAYS:
            assert after == before
    finally:
        disk.free()
    again = command(name, places)
    assert again.returncode == 0, again.stderr
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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["models", "models --json"])
def test_results_that_standard_output_does_not_take_end_in_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "visterm", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "visterm: The disk is full. Make space there and try again.\n"
