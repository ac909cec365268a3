"""The sampled tagger by two of Ray's workers against one on this machine, after start-up, one thread each.

Every run is a fit of its own on drawn rows (dense features, tags by Zipf's law): one worker, two workers, one again.
What counts are the images a second of all epochs but the first, in which kernels are compiled and pages first touched.
`--tags` shows that what is sent does not grow with the dictionary: `--tags 1000 109444 432213`.

    python benchmarks/deep_together.py --json docs/figures/deep_together.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm.cluster import RayExecutor
from visterm.cluster.engine import engine
from visterm.core.progress import SILENT
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.models.deep.sampled_tagger import SampledTagger
from visterm.tagging.deep_fit_together import fit_on_machines
from visterm_research.ugc.times import drawn_tags

WORKERS = (1, 2)
N_FEATURES = 1280
"""As many as MobileNetV2 gives."""

SETTINGS: dict[str, Any] = {"hidden": (2048, 1024), "dim": 300, "epochs": 3, "batch_size": 256, "valid_share": 0}
QUICK: dict[str, Any] = {**SETTINGS, "hidden": (32,), "dim": 16}


def drawn_rows(n_images: int, n_tags: int) -> TrainingRows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_images, N_FEATURES), np.float32)
    return TrainingRows(Vocabulary([f"tag {t}" for t in range(n_tags)]), X, drawn_tags(n_images, n_tags), None, [])


def run(rows: TrainingRows, settings: dict[str, Any], n_workers: int, folder: Path) -> tuple[float, float]:
    """Fit, and give images a second, and the seconds of the whole that were no epoch."""
    model = SampledTagger(**settings)
    start = time.perf_counter()
    fit_on_machines(model, rows, RayExecutor("local", n_workers), folder, SILENT)
    seconds = [entry["seconds"] for entry in model.history_]
    return rows.X.shape[0] * len(seconds[1:]) / sum(seconds[1:]), time.perf_counter() - start - sum(seconds)


def compare(n_tags: int, chosen: Any, folder: Path) -> dict[str, Any]:
    n_images, settings = (512, QUICK) if chosen.quick else (chosen.images, SETTINGS)
    rows = drawn_rows(n_images, n_tags)
    rates: dict[int, list[float]] = {n: [] for n in WORKERS}
    starts: dict[int, list[float]] = {n: [] for n in WORKERS}
    for _ in range(chosen.runs):
        for n in WORKERS:
            rate, start = run(rows, settings, n, folder / "work")
            rates[n].append(rate)
            starts[n].append(start)
            say(f"  {n} workers: {rate:,.0f} images a second; {start:.1f} s of start-up and end")
    return {
        "tags": n_tags,
        "images": n_images,
        "settings": settings,
        "images a second": {str(n): spread(each) for n, each in rates.items()},
        "seconds of start-up and end": {str(n): spread(each) for n, each in starts.items()},
        "ratio": ratios(rates[2], rates[1]),
    }


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--images", type=int, default=8192, help="drawn images")
    parser.add_argument("--tags", type=int, nargs="+", default=[1000, 109_444], help="sizes of the dictionary")
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine(), "quick": chosen.quick, "features": N_FEATURES, "sizes": []}
    with tempfile.TemporaryDirectory() as folder, engine("local", max(WORKERS)):
        for n_tags in [50] if chosen.quick else chosen.tags:
            say(f"{n_tags:,} tags:")
            result["sizes"].append(compare(n_tags, chosen, Path(folder)))
            say(f"{n_tags:,} tags: two workers over one {result['sizes'][-1]['ratio']['median']:.2f}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
