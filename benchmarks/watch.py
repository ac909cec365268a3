"""`visterm watch`: one new photo among many, taken up by itself and by comparing the whole folder, in turns.

python benchmarks/watch.py --json docs/figures/watch.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.runs import machine, options, parse, ratios, say, spread, write
from PIL import Image

from visterm import Catalogue, Tagger
from visterm.connectors.watch import FolderWatcher, Stop

SIDE = 32  # Pixels: what is measured is the bookkeeping
ENCODER = {"codebook": 12, "scales": [1.0], "sample_blocks": 2000, "max_side": SIDE}


def draw(path: Path, rng: np.random.Generator) -> Path:
    """Write a picture of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(path)
    return path


def measure(folder: Path, n: int, runs: int) -> dict[str, Any]:
    """Return the seconds of both ways."""
    rng, photos = np.random.default_rng(0), folder / "photos"
    drawn = [draw(photos / f"{i // 100:03d}" / f"{i:05d}.png", rng) for i in range(n)]
    tags = [[("even", "odd")[i % 2], "picture"] for i in range(40)]
    model = {"dim": 4, "epochs": 2, "valid_share": 0.0}
    tagger = Tagger(model="wsabie", model_params=model, encoder="visterms", encoder_params=ENCODER, n_jobs=1)
    catalogue = Catalogue.create(folder / "catalogue", tagger.fit(drawn[:40], tags, calibrate=False))
    catalogue.index(photos)
    watching = FolderWatcher(catalogue, [str(photos)], stop=Stop(), say=say)
    alone, whole = [], []
    for run in range(runs + 1):  # the first of each is not counted
        new = draw(photos / "new" / f"{run}.png", rng)
        started = time.perf_counter()
        [taken] = watching.update_paths([str(new)])
        alone.append(time.perf_counter() - started)
        draw(photos / "new" / f"{run} too.png", rng)
        started = time.perf_counter()
        [compared] = watching.compare_folders()
        whole.append(time.perf_counter() - started)
        assert taken.done.new == compared.done.new == 1
    both = {"seconds of one new photo": spread(alone[1:]), "seconds of the whole folder": spread(whole[1:])}
    return {"photos": n, **both, "ratio": ratios(alone[1:], whole[1:])}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=10_000)
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        result |= measure(Path(folder), 100 if chosen.quick else chosen.photos, chosen.runs)
    for name in ("seconds of one new photo", "seconds of the whole folder"):
        say(f"{name}, among {result['photos']:,}: {result[name]['median']:.2f}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
