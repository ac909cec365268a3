"""Wall time of whole commands, start included: `visterm --help` and `visterm annotate` of one image.

python benchmarks/start_up.py RUN IMAGE --json figures.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run that visterm fit wrote")
    parser.add_argument("image", help="an image to annotate")
    parser.add_argument("--repeat", type=int, default=9, help="counted runs of each, after one to warm the caches")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    visterm = [sys.executable, "-m", "visterm"]
    commands = {
        "visterm --help": [*visterm, "--help"],
        "visterm annotate, one image": [*visterm, "annotate", arguments.run, arguments.image],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(arguments.repeat + 1):
        for name, command in commands.items():
            spent = seconds(command)
            if turn > 0:
                taken[name].append(spent)
    figures = {
        name: {"median s": statistics.median(t), "least s": min(t), "most s": max(t)} for name, t in taken.items()
    }
    for name, figure in figures.items():
        print(name, {key: round(value, 3) for key, value in figure.items()})
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


main()
