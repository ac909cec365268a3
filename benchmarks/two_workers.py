"""Two workers of Ray against one on this machine, after start-up: what a second processor brings.

One engine of two workers serves all runs, which take turns: one worker, two workers, one again. Each run says
how many images were done since the first worker delivered something, and in how many seconds, so that starting
processes and loading what they need is left out (it is told beside). Each worker has one thread. The goal: 1.6 times.

* **encode**: `encode_folder` with `--ray`, images a second; MobileNetV2 by onnxruntime on Corel5k's training photos,
  where the data are beside the project, else visual words of drawn pictures. As the first shard that is done ends the
  start-up, and the second worker's is then nearly done too, the images of so many shards as there are workers are left
  out of the count.

Beside each run stands which share of the processors' time the host kept for others: with much of it a run says little.

    python benchmarks/two_workers.py [--images 1024] --json docs/figures/two_workers.json
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from harness.calibration import beside_workers, crowd
from harness.runs import machine, options, parse, ratios, say, spread, stolen, write
from visterms import photos

from visterm.cluster import RayExecutor
from visterm.cluster.engine import running_engine
from visterm.features.job import encode_folder

NETWORK = Path(__file__).resolve().parents[2] / "shared" / "models" / "mobilenet_v2.onnx"
SHARD = 16
"""Images in a shard: many shards a worker, so that both are busy to the end."""

WORKERS = (1, 2)


class Measured(NamedTuple):
    """What was done after start-up, in how many seconds, and how long the start took."""

    units: float
    seconds: float
    start: float


class Way(NamedTuple):
    """One kind of work: what is counted, what it runs on, and a function of the number of workers.

    `calibrate` gives, after the runs, what the simulation has to know of one worker (see `simulate_scale.predicted`).
    """

    unit: str
    about: dict[str, Any]
    run: Callable[[int], Measured]
    calibrate: Callable[[], dict[str, Any]]


class Clock:
    """Progress that notes when how many steps of its last task were done, and, `watched`, what ran beside workers."""

    def __init__(self, *, watched: bool = True) -> None:
        self.watched = watched
        self.began = 0.0
        self.told: list[tuple[float, int]] = []
        self.beside: list[float] = []

    def start(self, task: str, total: int | None = None) -> None:
        """Begin anew: an encoder that learns did so before."""
        self.began, self.told, self.beside = time.perf_counter(), [], []

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Note the steps."""
        self.told.append((time.perf_counter(), steps))
        if self.watched:
            self.beside.append(beside_workers())

    def gaps(self) -> list[float]:
        """Return the seconds from each delivery to the next."""
        times = [at for at, _ in self.told]
        return [after - before for before, after in pairwise(times)]

    def finish(self) -> None:
        """Ignore the end."""

    def after(self, n_first: int) -> Measured:
        """Count from the first delivery on, without the first `n_first`, which were in work until then."""
        first, last = self.told[0][0], self.told[-1][0]
        return Measured(sum(steps for _, steps in self.told[n_first:]), last - first, first - self.began)


def encoding(folder: Path, chosen: Any) -> Way:
    """Make ready to encode photos: by a network where there is one."""
    n = 64 if chosen.quick else chosen.images
    drawn, images = folder / "drawn", folder / "photos"
    drawn.mkdir()
    images.mkdir()
    paths, source = photos(n, drawn)
    for path in paths:
        (images / path.name).symlink_to(path)
    by_network = NETWORK.is_file() and not chosen.quick
    name = f"onnx:{NETWORK}" if by_network else "visterms"
    settings = {"output": "features"} if by_network else {"codebook": 200, "sample_blocks": 20_000}
    runs: list[Path] = []
    alone: list[Clock] = []

    def run(n_workers: int) -> Measured:
        clock = Clock()
        if n_workers == 1:
            alone.append(clock)
        runs.append(folder / f"features_{len(runs)}")
        encode_folder(
            images,
            runs[-1],
            encoder=name,
            encoder_params=settings,
            shard_size=SHARD,
            executor=RayExecutor("local", n_workers),
            progress=clock,
        )
        return clock.after(n_workers)

    def calibrate() -> dict[str, Any]:
        clock = sorted(alone, key=lambda each: each.after(1).seconds)[len(alone) // 2]
        gaps = clock.gaps()
        places = [(images, folder / f"beside_{number}", name, settings) for number in range(max(WORKERS))]
        return {
            "pieces": [statistics.median(gaps), *gaps],
            "units": SHARD,
            "cores": len(os.sched_getaffinity(0)),
            "driver": (clock.beside[-1] - clock.beside[0]) / len(gaps),
            "crowd": crowd(encoded_alone, places, chosen.runs)[0],
        }

    about = {"images": len(paths), "photos": source, "encoder": name.partition("/")[0].rstrip(":"), "shard": SHARD}
    return Way("images", about, run, calibrate)


def encoded_alone(images: Path, out: Path, name: str, settings: dict[str, Any]) -> list[float]:
    """Return the seconds of each shard that one thread of a plain process encodes."""
    clock = Clock(watched=False)
    with tempfile.TemporaryDirectory(prefix=out.name, dir=out.parent) as place:
        encode_folder(
            images, place, encoder=name, encoder_params=settings, shard_size=SHARD, n_jobs=1, progress=clock
        )  # fmt: skip
    gaps = clock.gaps()  # here an image each
    return [sum(gaps[start : start + SHARD]) for start in range(0, len(gaps) - SHARD + 1, SHARD)]


def compare(way: Way, runs: int) -> dict[str, Any]:
    """Let one and two workers take turns."""
    rates: dict[int, list[float]] = {n: [] for n in WORKERS}
    starts: dict[int, list[float]] = {n: [] for n in WORKERS}
    kept: dict[int, list[float]] = {n: [] for n in WORKERS}
    cores = len(os.sched_getaffinity(0))
    for _ in range(runs):
        for n in WORKERS:
            before, began = stolen(), time.perf_counter()
            found = way.run(n)
            kept[n].append((stolen() - before) / (cores * (time.perf_counter() - began)))
            rates[n].append(found.units / found.seconds)
            starts[n].append(found.start)
            done = f"{rates[n][-1]:,.1f} {way.unit} a second, after {found.start:.1f} s of start-up"
            say(f"  {n} workers: {done}; {kept[n][-1]:.1%} kept by the host")
    return {
        **way.about,
        f"{way.unit} a second": {str(n): spread(each) for n, each in rates.items()},
        "seconds of start-up": {str(n): spread(each) for n, each in starts.items()},
        "kept by the host": {str(n): each for n, each in kept.items()},
        "ratio": ratios(rates[2], rates[1]),
        "goal": 1.6,
        "simulate": way.calibrate(),
    }


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--images", type=int, default=1024, help="photos that are encoded")
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine(), "quick": chosen.quick}
    with tempfile.TemporaryDirectory() as temporary, running_engine("local", max(WORKERS)):
        result["encode"] = compare(encoding(Path(temporary), chosen), chosen.runs)
        say(f"encode: two workers over one {result['encode']['ratio']['median']:.2f}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
