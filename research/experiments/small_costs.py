"""Small costs that add up with a hundred million images: of a name, of an image in a catalogue.

* **names**: memory that the list of image files takes in the command that encodes, bytes an image.
* **catalogue** (of scenes that visterm-research draws): SQLite's bytes an image, with tags, ten predictions and
  features noted; and the processor's time to take an image over from its features by another run (rows and predictions,
  no photo opened).

The figures also have what a meeting of workers cost when visterm trained on several machines; that went.

python small_costs.py --json figures/small_costs.json
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.runs import machine, options, parse, say, write

from visterm import Catalogue, Tagger
from visterm_research.scenes import draw_library

NAMES = """
from pathlib import Path
from visterm.features.folder import cut
from visterm.features.job import encode_folder
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = resident()
names = sorted(f"{i // 1000:06d}/{i:09d}.jpg" for i in range(N))
parts = [[names[i] for i in part] for part in cut(names, 512)]
print((resident() - before) / N)
"""
"""What `encode_folder` does with the names of files before it begins."""


COUNTED = ("given", "predictions")


def names(n: int) -> float:
    """Return the bytes that a file's path and name take, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES.replace("N", str(n))], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def catalogue(folder: Path, n: int) -> dict[str, float]:
    """Return SQLite's bytes an image, and the processor's seconds of taking an image over from its features."""
    drawn = draw_library(folder / "drawn", n_scenes=n, n_jobs=1)
    settings = {"encoder": "histograms", "encoder_params": {"max_side": 64}, "model": "wsabie", "n_jobs": 1}
    runs = [Tagger(**settings, model_params={"epochs": epochs}).fit(drawn.images, drawn.tags_file) for epochs in (1, 2)]
    for run, name in zip(runs, ("first", "second"), strict=True):
        run.save(folder / name)
    made = Catalogue.create(folder / "catalogue", Tagger.load(folder / "first", n_jobs=1))
    made.index(drawn.images, tags=drawn.tags_file)
    with sqlite3.connect(f"file:{folder / 'catalogue' / 'catalogue.sqlite'}?mode=ro", uri=True) as read:
        [[pages]], [[size]] = (read.execute(f"PRAGMA {name}").fetchall() for name in ("page_count", "page_size"))
        counts = {name: read.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTED}
    read.close()
    started = time.process_time()
    made.use(Tagger.load(folder / "second", n_jobs=1))
    return {
        "images": len(made),
        **{f"{name} an image": n / len(made) for name, n in counts.items()},
        "bytes": pages * size / len(made),
        "seconds": (time.process_time() - started) / len(made),
    }


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--scenes", type=int, default=3000, help="pictures in the catalogue")
    chosen = parse(parser)
    n_names = 20_000 if chosen.quick else 1_000_000
    result: dict[str, Any] = {"machine": machine()}
    result["bytes a name"] = names(n_names)
    say(f"a file's path and name: {result['bytes a name']:.0f} bytes")
    with tempfile.TemporaryDirectory() as folder:
        found = result["catalogue"] = catalogue(Path(folder), 60 if chosen.quick else chosen.scenes)
    say(f"an image in SQLite: {found['bytes']:.0f} bytes; taken over from features in {1e3 * found['seconds']:.2f} ms")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
