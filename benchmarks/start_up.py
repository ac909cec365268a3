"""What a command takes from its start to its end, and a service to its first page, beside imports it can't do without.

    python benchmarks/start_up.py                       # on the tiny run and catalogue of tests/data/tiny
    python benchmarks/start_up.py --runs 15 --json docs/figures/start_up.json

Each command runs beside its floor in turn, so that both meet the same load. The ratio is the median of those of the
pairs. Processor time is that of the whole process and of those that it starts; the service's ends with the page: the
list of photos in HTML, with its style sheet and scripts, not with thumbnails. The network is effnet-lite, in a run of
the default model, learned here.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from harness.runs import options, parse, say, spread, write
from harness.walks import small_library
from serve import SERVE, processor_seconds, served

LIBRARIES, WEB, TYPER = "import numpy, numba, PIL.Image", "import fastapi, uvicorn", "import typer"
NETWORK = ["fit", "images", "--tags", "tags.csv", "--encoder", "effnet-lite", "-o", "network"]
ANNOTATE, SEARCH = ["annotate", "run", "images/46.jpg"], ["search", "catalogue", "sky tree"]
PAGE = "the first page of visterm serve"
ROWS: dict[str, tuple[list[str], str, float]] = {
    "visterm annotate, one image": (["-m", "visterm", *ANNOTATE], LIBRARIES, 3),
    "the same, a network": (["-m", "visterm", "annotate", "network", ANNOTATE[-1]], f"{LIBRARIES}, onnxruntime", 3),
    "visterm search, two words": (["-m", "visterm", *SEARCH], LIBRARIES, 3),
    "visterm --help": (["-m", "visterm", "--help"], TYPER, 1.3),
    "import visterm": (["-c", "import visterm"], "import numpy", 0.25),
    PAGE: ([], WEB, 1.5),
}
"""Python's arguments, the floor that it is compared with, and how many times that it may take; the page: seconds."""


class Cost(NamedTuple):
    """What a process took."""

    wall: float
    processor: float


def cost_of(arguments: Sequence[str], folder: Path) -> Cost:
    """Run Python in a folder and return what it took."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(time.perf_counter() - began, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def first_page(catalogue: Path) -> Cost:
    """Serve a catalogue and return what it took until the first page is there."""
    began = time.perf_counter()
    with served(*SERVE, str(catalogue)) as (port, pid):
        page = urlopen(address := f"http://127.0.0.1:{port}").read().decode()
        for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
            urlopen(address + file).read()
        return Cost(time.perf_counter() - began, processor_seconds(pid))


def compared(name: str, folder: Path, runs: int) -> dict[str, Any]:
    """Return the medians and ranges of a row, its floor and their ratios; the first pair warms the caches."""
    arguments, floor, goal = ROWS[name]
    pairs = []
    for _ in range(runs + 1):
        low = cost_of(["-c", floor], folder)
        pairs.append((cost_of(arguments, folder) if arguments else first_page(folder / "catalogue"), low))
    figures: dict[str, Any] = {"floor": floor}
    for kind in Cost._fields:
        own, low = ([getattr(pair[side], kind) for pair in pairs[1:]] for side in (0, 1))
        ratios = [a / b for a, b in zip(own, low, strict=True)]
        parts = {"seconds": spread(own), "seconds of the floor": spread(low), "times the floor": spread(ratios)}
        figures |= {f"{kind}: {what}": values for what, values in parts.items()}
        seconds, least, ratio = (values["median"] for values in parts.values())
        limit = f"{goal:g} s" if name == PAGE else f"{goal:g} times"
        say(f"{name:32}{kind:10}{seconds:7.3f} s, floor {least:.3f} s: {ratio:.2f} times (at most {limit})")
    return figures | {"goal": goal}


def main() -> None:
    chosen = parse(options(__doc__ or ""))
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{temporary}/bytecode"  # as an installed package has it, whoever measures
        folder = small_library(Path(temporary))
        cost_of(["-m", "visterm", *NETWORK], folder)
        found = {name: compared(name, folder, chosen.runs) for name in ROWS}
    write(found, chosen.json)


if __name__ == "__main__":
    main()
