"""Annotating shared out by Ray: the very lines of one process, in their order, printed or written."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import run_command
from remote_photos import content, picture
from tiny_networks import colour_network
from visterm.core.errors import StorageError
from visterm.core.progress import SILENT
from visterm.core.threads import Team
from visterm.tagging import annotation_job as pieces
from visterm.tagging.annotating import TagsWanted
from visterm.tagging.annotation_job import AnnotateJob
from visterm.tagging.tagger import Tagger

pytest.importorskip("ray", reason="wants the extra ray")

N = 30
TAGS = [["sea", "sky"], ["tree"], ["tree", "sky"]]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with photos, one of them broken, features of them, and a run."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "photos").mkdir()
    for i in range(N):
        (folder / "photos" / f"{i:02}.png").write_bytes(picture(i, 6, 4))
    network = colour_network(folder / "tiny.onnx")
    tagger = Tagger(encoder=f"onnx:{network}", model="ridge", n_jobs=1)
    tagger.fit(folder / "photos", tags=[TAGS[i % 3] for i in range(N)])
    tagger.save(folder / "run")
    (folder / "photos" / "07.png").write_bytes(b"no picture")
    made = run_command(
        ["encode", folder / "photos", "--encoder", folder / "run", "-o", folder / "F", "--shard-size", 6]
    )
    assert made.returncode == 3, made.stderr
    return folder


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK", 6)
    monkeypatch.setattr("visterm.tagging.annotating.CHUNK", 6)
    monkeypatch.setattr("visterm.features.streaming.shards.ROWS_PER_CHUNK", 6)


def annotate(library, *arguments):
    done = run_command(["annotate", library / "run", *arguments, "-k", 2], library)
    assert done.returncode == 3, done.stderr
    return done


@pytest.mark.usefixtures("ray_engine")
def test_the_lines_that_are_printed_are_those_of_one_process(library):
    alone = annotate(library, "F", "--json")
    shared = annotate(library, "F", "--json", "--ray", "local")
    assert "not asked" not in shared.stderr
    assert len(shared.stdout.splitlines()) == N - 1
    assert shared.stdout == alone.stdout
    assert [line for line in shared.stderr.splitlines() if line.startswith("Skipped 07.png: ")] != []


@pytest.mark.usefixtures("ray_engine")
def test_the_folder_that_is_written_has_the_bytes_of_one_process_and_is_gone_on_with(library, tmp_path):
    annotate(library, "photos", "-o", tmp_path / "alone")
    shutil.copytree(tmp_path / "alone", tmp_path / "shared")
    for part in sorted((tmp_path / "shared" / "data").iterdir())[::2]:
        part.unlink()
    done = annotate(library, "photos", "-o", tmp_path / "shared", "--ray", "local", "--json")
    summary = json.loads(done.stdout)
    assert summary["shared"]
    assert 0 < summary["new"] < N - 1
    assert content(tmp_path / "shared") == content(tmp_path / "alone")


def test_a_worker_that_does_not_see_the_photos_or_the_run_says_so(library, tmp_path):
    first = pieces.Piece(["photos/00.png"], [], 1)
    job = AnnotateJob(None, str(library / "run"), TagsWanted(), str(library), [], first)
    assert len(job.begin(Team(1), SILENT)(first)) == 1
    with pytest.raises(StorageError, match=r"finds nothing at .*/photos/00.png.*share"):
        replace(job, current_folder=str(tmp_path)).begin(Team(1), SILENT)
    with pytest.raises(StorageError, match="finds nothing at /nowhere"):
        replace(job, run="/nowhere").begin(Team(1), SILENT)


def test_one_piece_is_done_here_without_an_engine(library, monkeypatch):
    monkeypatch.setattr("visterm.cluster.load_ray", lambda: pytest.fail("Ray was loaded"))
    done = run_command(["annotate", library / "run", Path("photos", "01.png"), "--ray", "local"], library)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "Other machines ignored: all images are in one part" in done.stderr
