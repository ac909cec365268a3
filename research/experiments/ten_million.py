"""Ten million drawn images, 109,444 tags: one epoch of WSABIE streamed from disk, its time and memory at several sizes.

An image has a few tags, by Zipf's law, and some 30 of 50,000 sparse features: eight of each of its tags, and noise.
Features are written as a features folder, tags as JSON lines. Each size is fitted by a child process whose anonymous
memory is looked at fifty times a second, as `visterm fit FEATURES --memory` does it: tags joined, rows surveyed, an
epoch, the run written. The goal: ten times the images take ten times as long, in the same memory.

    python ten_million.py --images 1000000 10000000 --where /disk --json ten_million.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, write
from harness.watched import watched
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from visterm import Tagger
from visterm.core.progress import Progress
from visterm.data.feature_shards import Shard
from visterm.encoders.named import make_encoder
from visterm.features.streaming.memory import Plan, read_size
from visterm.learning.fit_request import FitRequest
from visterm.learning.streamed_fit import fit_streamed
from visterm_research.data.drawn_tags import draw_dictionary
from written_features import write_features

N_FEATURES, OF_A_TAG, NOISE = 50_000, 8, 6
SHARD = 2**14
FULL = 10_000_000


def draw(folder: Path, n_images: int, n_tags: int, tags_an_image: int) -> None:
    """Write features that tell of their tags, and the tags as JSON lines."""
    rng = np.random.default_rng(0)
    chances = np.cumsum(draw_dictionary(n_tags).weights)
    telling = rng.integers(0, N_FEATURES, (n_tags, OF_A_TAG), dtype=np.int32)
    encoder = make_encoder("histograms", {"max_side": 32}, {"random_state": 0, "n_jobs": 1})
    encoder.fit(list(rng.integers(0, 256, (8, 32, 32, 3), np.uint8)))
    with (folder / "tags.jsonl").open("w", encoding="utf-8") as lines:

        def shards() -> Iterator[Shard]:
            for start in range(0, n_images, SHARD):
                n = min(SHARD, n_images - start)
                tags = np.minimum(np.searchsorted(chances, rng.random((n, tags_an_image))), n_tags - 1)
                noise = rng.integers(0, N_FEATURES, (n, NOISE), dtype=np.int32)
                rows = _rows(np.concatenate([telling[tags].reshape(n, -1), noise], axis=1))
                names = [f"{number:09}.jpg" for number in range(start, start + n)]
                for name, own in zip(names, tags.tolist(), strict=True):
                    given = ",".join([f'"t{tag}"' for tag in own])
                    lines.write(f'{{"file_name":"{name}","tags":[{given}]}}\n')
                yield Shard(names, ["0" * 64] * n, rows)

        write_features(folder / "features", shards(), encoder)


def _rows(columns: NDArray[np.int32]) -> sp.csr_array:
    """Return rows of length 1 with some columns; those that are there twice count once."""
    columns = np.sort(columns, axis=1)
    new = np.ones(columns.shape, bool)
    new[:, 1:] = columns[:, 1:] != columns[:, :-1]
    counts = new.sum(axis=1)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    values = np.repeat(1 / np.sqrt(counts), counts).astype(np.float32)
    return sp.csr_array((values, columns[new], starts), shape=(len(columns), N_FEATURES))


class Stages(Progress):
    """Notes when each step of a fit began."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}

    def start(self, task: str, total: int | None = None) -> None:
        self.began.setdefault(task, time.perf_counter())


def be_child(folder: Path, memory: int, dim: int, trials: int, threads: int) -> None:
    """Fit in this process, and print the figures as JSON."""
    params = {"epochs": 1, "dim": dim, "max_trials": trials}
    tagger = Tagger(model="wsabie", model_params=params, n_jobs=threads)
    stages, start = Stages(), time.perf_counter()
    plan = Plan(memory + 1, memory)
    request = FitRequest(
        images=folder / "features", tags=folder / "tags.jsonl", work=folder / "work", valid=0.01, calibrate=False,
        tag_rules={"separator": ";"},
    )  # fmt: skip
    tagger.parts, _ = fit_streamed(tagger.parts, request, plan, any_encoder=True, progress=stages)
    end = time.perf_counter()
    tagger.save(folder / "run")
    [epoch] = tagger.model.history_
    survey, train = stages.began["survey features"], stages.began["train"]
    said = {
        "images": tagger.facts["images"],
        "tags": tagger.facts["tags"],
        "pairs": tagger.facts["tags given"],
        "stages": {"join": survey - start, "survey": train - survey, "train": end - train},
        "map": epoch["map"],
        "draws": epoch["draws"],
    }
    say(json.dumps(said))


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--images", type=int, nargs="+", default=[FULL // 10, FULL])
    parser.add_argument("--tags", type=int, default=109_444)
    parser.add_argument("--tags-an-image", type=int, default=3)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--max-trials", type=int, default=200, help="draws a pair at most: of all tags takes hours")
    parser.add_argument("--memory", default="1G", help="as of visterm fit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--where", type=Path, help="a folder for the features, on a real disk: 0.6 KB an image")
    chosen = parse(parser)
    if chosen.quick:
        chosen.images, chosen.tags, chosen.memory = [10_000, 20_000], 500, "8M"
    result: dict[str, Any] = {"machine": machine(), "memory": chosen.memory, "dim": chosen.dim}
    result |= {"max_trials": chosen.max_trials, "sizes": []}
    for n_images in chosen.images:
        with tempfile.TemporaryDirectory(dir=chosen.where) as temporary:
            folder = Path(temporary)
            start = time.perf_counter()
            draw(folder, n_images, chosen.tags, chosen.tags_an_image)
            drawn = time.perf_counter() - start
            on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            say(f"{n_images:,} images drawn in {drawn:.0f} s, {on_disk / 2**30:.2f} GB")
            memory = read_size(chosen.memory)
            settings = (memory, chosen.dim, chosen.max_trials, chosen.threads)
            found = watched(__file__, [str(folder), *map(str, settings)])
        result["sizes"].append({"drawn": n_images, "bytes": on_disk, "seconds_to_draw": drawn, **found})
        stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found["stages"].items())
        say(f"{found['images']:,} images learned from, {found['pairs']:,} pairs, {found['tags']:,} tags: {stages}")
        say(f"in all {found['seconds']:.0f} s, {found['peak_anonymous'] / 2**20:.0f} MB; MAP {found['map']:.3f}")
    if len(chosen.images) > 1:
        first, last = result["sizes"][0], result["sizes"][-1]
        more = result["more_images"] = last["pairs"] / first["pairs"]
        longer = result["more_seconds"] = last["stages"]["train"] / first["stages"]["train"]
        say(f"{more:.2f} times the pairs take {longer:.2f} times as long to train on")
    write(result, chosen.json)


def read_child() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=5, required=True)
    folder, memory, dim, trials, threads = parser.parse_args().child
    be_child(Path(folder), int(memory), int(dim), int(trials), int(threads))


if __name__ == "__main__":
    read_child() if "--child" in sys.argv else main()
