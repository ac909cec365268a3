"""What n workers would take, played from measured rates of one: for 100 million photos, a billion, and two here.

Of one worker come the seconds of its pieces; measured apart from that are how much cores at work slow each other, what
the driver does beside a worker, and what a meeting takes. Nothing is fitted to a run of more workers. `--measured`
compares what is predicted for two workers with what `two_workers.py` measured; `--docs` writes all tables into a page.

    python simulate_scale.py --measured figures/two_workers.json --docs ../../docs/scale.md
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from harness.runs import say, write
from lab.pages import table, told, volume, written
from lab.played import Setting, ends, play
from lab.stages import Rates, crowd, limits, rate_rows, rates, stages

from visterm.cluster import MAX_TASKS
from visterm.features.job import SHARD_SIZE

SIZES = {"100 million": 10**8, "a billion": 10**9}
WORKERS = (1, 2, 4, 8, 16, 64, 256)
CORES, LOST_AN_HOUR, UNEVEN, DRIVER = 16, 0.01, 0.2, 0.01
"""Assumed: cores of a machine, losses of a worker, deviation of a piece's seconds (as a share), the driver's seconds of
a piece."""


def predicted(found: dict[str, Any]) -> dict[str, float]:
    """Predict what two workers do in a second after start-up, by a part of two_workers.json, and compare.

    Its "simulate" has "pieces" (seconds of each piece of the one worker), "units" (of a piece), "cores", "crowd" (how
    much longer a piece takes with both cores at work) and "driver" (seconds of a core, a piece). As there, pieces are
    counted from the first that is through, without the first two.
    """
    of = found["simulate"]
    setting = Setting(workers=2, cores=of["cores"], crowd=of["crowd"], driver=of["driver"])
    through = ends(of["pieces"], setting)
    rate = (len(through) - 2) * of["units"] / (through[-1] - through[0])
    [measured] = [each["2"]["median"] for name, each in found.items() if name.endswith(" a second")]
    return {"predicted": rate, "measured": measured, "off": rate / measured - 1}


def encoding(n: int, workers: int, of: Rates) -> float:
    """Return the hours that workers take to encode n photos, some of them lost on the way."""
    rng = random.Random(workers)
    blocks = min(MAX_TASKS, -(-n // SHARD_SIZE))
    each = n * of.encode / blocks
    pieces = [each * max(0.1, rng.gauss(1, UNEVEN)) for _ in range(blocks)]
    setting = Setting(workers, CORES, crowd("encode"), DRIVER, apart=workers > CORES, lost_an_hour=LOST_AN_HOUR)
    return play(pieces, setting) / 3600


def staged(of: Rates) -> dict[str, str]:
    """Return the tables of the rates and of the stages, which nothing is played for."""
    tables = {"rates": table(["one core, to", "takes", "measured in"], rate_rows(of))}
    head = ["stage", "read", "stored", "hours of a core", "dollars", "days by one process"]
    for size, n in SIZES.items():
        rows = [
            [s.name, volume(s.read), volume(s.left), told(s.core_hours), f"{s.dollars:,.0f}", told(s.one_by_one / 24)]
            for s in stages(n, of)
        ]
        tables[f"stages of {size}"] = table(head, rows)
    both = [limits(n, of) for n in SIZES.values()]
    tables["limits"] = table(["what grows", *SIZES], [[what, *(found[what] for found in both)] for what in both[0]])
    return tables


def played(of: Rates) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the hours of encoding, and their tables."""
    result: dict[str, Any] = {}
    tables = {}
    for size, n in SIZES.items():
        ways = {"encode": [(w, encoding(n, w, of)) for w in WORKERS]}
        result[size] = {way: {str(w): hours for w, hours in by} for way, by in ways.items()}
        rows = [[way, *(told(hours) for _, hours in by)] for way, by in ways.items()]
        tables[f"hours of {size}"] = table(["workers", *map(str, WORKERS)], rows)
    return result, tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, help="what two_workers.py wrote")
    parser.add_argument("--docs", type=Path, help="the page to write the tables into")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the figures are written")
    chosen = parser.parse_args()
    of = rates()
    hours, tables = played(of)
    result: dict[str, Any] = {"rates": of._asdict(), "hours": hours}
    tables = staged(of) | tables
    if chosen.measured is not None:
        measured = json.loads(chosen.measured.read_text(encoding="utf-8"))
        ways = {way: part for way, part in measured.items() if isinstance(part, dict) and "simulate" in part}
        found = {way: predicted(part) for way, part in ways.items()}
        result["two workers"] = found
        rows = [[way, told(f["predicted"]), told(f["measured"]), f"{f['off']:+.0%}"] for way, f in found.items()]
        tables["two workers"] = table(["two workers, a second", "predicted", "measured", "off"], rows)
    for name, shown in tables.items():
        say(f"{name}\n\n{shown}")
    if chosen.docs is not None:
        chosen.docs.write_text(written(chosen.docs.read_text(encoding="utf-8"), tables), encoding="utf-8")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
