"""How training and models grow: seconds an epoch with the images and with the tags, and bytes of a loaded model.

Seconds are those of an epoch of `wsabie` on drawn visterms: over more and more images from one state of the weights;
with more and more tags as the second epoch of a training of its own. Draws a pair are shown beside, because the cost
of a pair depends on them. Memory is the peak of a fresh process that loads a saved model, over that of one that loads a
tiny model.

    python growth.py --json growth.json
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, say, spread, write
from lab.epochs import timed_epoch

from visterm.core.persist import new_folder, save_estimator
from visterm.core.tables import MODELS
from visterm.models.ranking.wsabie import Wsabie
from visterm_research.data.drawn_tags import DrawnVisterms, draw_visterms

SETTINGS = {"dim": 100, "learning_rate": 0.01, "max_norm": 2.0}
DIM = 100

STANDSTILL = 1e-9
"""A learning rate at which all steps are taken and nothing is learned."""

MODEL_TAGS = 109_444
"""Annotations of WSABIE's Web-data (Table 1)."""

MODEL_FEATURES = 10_000

TINY = 10
"""Tags and features of the model that stands for an interpreter with its imports."""

LOAD = """
import sys
from pathlib import Path
from visterm.core.persist import load_estimator, open_folder
from visterm.core.tables import MODELS
model = load_estimator(MODELS, open_folder(sys.argv[1], "run"), "model")
ranking = model.annotate([[0.0] * model.n_features_in_], 1)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line[:6] == "VmHWM:"))
"""
"""Loads a model, uses it on one image, and prints the peak of its resident memory in KiB."""


def by_images(n: int, n_tags: int, runs: int, threads: int) -> list[dict[str, Any]]:
    """Time an epoch over n, 2n, 4n and 8n images, all from one state of the weights, so that all draw equally often."""
    drawn = draw(8 * n, n_tags)
    model = MODELS.create("wsabie", **SETTINGS, epochs=2, valid_share=0, n_jobs=threads).fit(drawn.X, drawn.Y)
    model.set_params(learning_rate=STANDSTILL)
    sizes = [n * times for times in (1, 2, 4, 8)]
    timed: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for _ in range(runs):
        for size in sizes:
            timed[size].append(deepcopy(model).partial_fit(drawn.X[:size], drawn.Y[:size]).history_[-1])
    return [case(size, n_tags, drawn.Y[:size].nnz, found) for size, found in timed.items()]


def by_tags(n_images: int, n_tags: int, runs: int, threads: int) -> list[dict[str, Any]]:
    """Time the second epoch with Y, 4Y and 16Y tags."""
    drawn = {size: draw(n_images, size) for size in (n_tags, 4 * n_tags, 16 * n_tags)}
    timed: dict[int, list[dict[str, Any]]] = {size: [] for size in drawn}
    for _ in range(runs):
        for size, (X, Y) in ((size, (each.X, each.Y)) for size, each in drawn.items()):
            epoch = timed_epoch(X, Y, before=1, n_jobs=threads, **SETTINGS)
            timed[size].append({"seconds": epoch.seconds, "draws": epoch.draws})
    return [case(n_images, size, drawn[size].Y.nnz, found) for size, found in timed.items()]


def draw(n_images: int, n_tags: int) -> DrawnVisterms:
    return draw_visterms(n_images, n_tags, n_features=2_000, words_an_image=100, random_state=0)


def case(n_images: int, n_tags: int, pairs: int, timed: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = spread([each["seconds"] for each in timed])
    micro, draws = 1e6 * seconds["median"] / pairs, timed[0]["draws"]
    say(
        f"  {n_images:8,} images × {n_tags:7,} tags  {seconds['median']:8.3f} s an epoch  {micro:7.2f} µs a pair  "
        f"{draws:6.1f} draws a pair"
    )
    return {"images": n_images, "tags": n_tags, "pairs": pairs, "seconds": seconds, "µs a pair": micro, "draws": draws}


def exponent(results: list[dict[str, Any]], of: str) -> float:
    """Fit seconds ~ size^exponent: 1 is linear."""
    sizes, seconds = zip(*[(math.log(each[of]), math.log(each["seconds"]["median"])) for each in results], strict=True)
    return float(np.polyfit(sizes, seconds, 1)[0])


def memory(n_tags: int, n_features: int, runs: int) -> dict[str, Any]:
    """Measure what a loaded model adds to a process."""
    if not Path("/proc/self/status").exists():
        say("memory is not measured: only Linux tells")
        return {"missing": "no /proc/self/status"}
    with tempfile.TemporaryDirectory() as made:
        tiny, large = (
            _saved(Path(made) / name, *size) for name, size in (("tiny", (TINY, TINY)), ("large", (n_tags, n_features)))
        )
        added = [1024 * (_peak(large) - _peak(tiny)) for _ in range(runs)]
    weights = 4 * DIM * (n_tags + n_features - 2 * TINY)
    found = spread([each / weights for each in added])
    say(
        f"  {n_tags:,} tags, {n_features:,} features, {DIM} dimensions: {weights / 2**20:.1f} MiB of weights "
        f"take {spread(added)['median'] / 2**20:.1f} MiB: {found['median']:.2f} times"
    )
    return {"bytes": spread(added), "bytes of weights": weights, "times": found}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=5_000, help="n; also 2n, 4n and 8n")
    parser.add_argument("--tags", type=int, default=2_000, help="Y; also 4Y and 16Y")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parse(parser)
    n, n_tags = (300, 100) if chosen.quick else (chosen.images, chosen.tags)
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads}
    say("images")
    images = by_images(n, n_tags, chosen.runs, chosen.threads)
    per_pair = [each["µs a pair"] for each in images]
    result["images"] = {"cases": images, "exponent": exponent(images, "pairs")}
    result["images"]["largest over smallest, a pair"] = max(per_pair) / min(per_pair)
    say(f"  seconds grow as pairs to the power {result['images']['exponent']:.3f}")
    say("tags")
    tags = by_tags(4 * n, n_tags, chosen.runs, chosen.threads)
    result["tags"] = {"cases": tags, "exponent": exponent(tags, "tags")}
    say(f"  seconds grow as tags to the power {result['tags']['exponent']:.3f}")
    say("memory of a loaded model")
    size = (2_000, 500) if chosen.quick else (MODEL_TAGS, MODEL_FEATURES)
    result["memory"] = memory(*size, chosen.runs)
    write(result, chosen.json)


def _saved(path: Path, n_tags: int, n_features: int) -> Path:
    rng = np.random.default_rng(0)
    model = Wsabie(dim=DIM)
    model.n_features_in_, model.n_tags_ = n_features, n_tags
    model.image_map_ = rng.standard_normal((n_features, DIM), np.float32)
    model.tag_rows_ = rng.standard_normal((n_tags, DIM), np.float32)
    model.history_ = []
    with new_folder(path, "run") as folder:
        save_estimator(model, MODELS, folder, "model")
    return path


def _peak(path: Path) -> int:
    command = [sys.executable, "-c", LOAD, str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
