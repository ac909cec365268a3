"""Every model and its rivals with their defaults, on the same rows: quality, time, memory, and what a search takes.

The rivals are scikit-learn's own estimators, LightFM, implicit and PECOS (docs/performance.md says how to install
them). Data are photos with features of a network, photos and drawn scenes with visterms, pages with words, drawn images
of many tags, and images known by number. Contestants learn from the training rows and meet the test rows once in a run;
nothing is chosen. Three of the networks get word vectors that are learned from the tag lists.

Each fit is a process of its own, with one thread; times are the processor's. Memory is the peak while it learns, above
what was there with the data loaded. A photo is what it takes to score all tags, in a batch. A query is what it takes to
rank all judged photos for one tag, from what is kept of them. A fit that takes longer than `--minutes` is ended. What a
data set doesn't suit is listed with what it says. The JSON is written after each fit, and a run with the same file goes
on where it was; with other `--minutes` it tries those again that were ended.

    python methods.py SHARED --cache CACHE --lightfm-python RIVALS/bin/python \
        --pecos-python PECOS/bin/python --json docs/figures/methods.json
    make docs                                    # the tables of docs/which_method.md, of docs/methods.md and its pages
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from harness.runs import TEST_ROWS, machine, options, say, write
from lab.child import Child, RivalError
from lab.contestants import SCIKIT_LEARN
from lab.measuring import ended_after, measure
from lab.method_sets import MethodSet, method_sets
from lab.rivals import RIVALS

from visterm.core.tables import MODELS

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")


def in_its_own_process(name: str, data: MethodSet, python: Path | None, minutes: float) -> dict[str, Any]:
    """Measure a contestant in a fresh process, which ends when it has used up its minutes."""
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(there, name, data, python, minutes))
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return {"over": ended_after(minutes)}
        return {"refused": f"Its process ended with {process.exitcode}."}
    process.join()
    return found


def is_settled(found: dict[str, Any] | None, minutes: float) -> bool:
    """Return whether a contestant needs no further try: not those that were missing, or had another time at most."""
    if found is None or "missing" in found:
        return False
    return not found.get("over", "").endswith("seconds") or found["over"] == ended_after(minutes)


def versions(pythons: dict[str, Path | None]) -> dict[str, str]:
    """Return the versions of the rivals that are installed."""
    found = {}
    for name, kind in RIVALS.items():
        try:
            with Child(pythons[name], kind.script, 1) as child:
                found[name] = child.version
        except RivalError as error:
            say(f"{name} is missing: {error}")
    return found


def goes_on(path: Path | None, about: dict[str, Any]) -> dict[str, Any]:
    """Return what the file has of a run of the same kind, or a new result."""
    if path is None or not path.exists():
        return {"machine": machine(), **about, "data": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if other := {name: found.get(name) for name, value in about.items() if found.get(name) != value}:
        raise SystemExit(f"{path} is of another run ({other}); expected {about}. Name another file with --json.")
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--minutes", type=float, default=2, help="of the processor, for one fit at most")
    parser.add_argument("--lightfm-python", type=Path, metavar="PATH", help="has LightFM")
    parser.add_argument("--implicit-python", type=Path, metavar="PATH", help="has implicit; default: that of LightFM")
    parser.add_argument("--pecos-python", type=Path, metavar="PATH", help="has PECOS")
    parser.add_argument("--only", action="append", default=[], help="only data sets whose name has this; repeat it")
    parser.add_argument("--model", action="append", default=[], help="only this contestant; repeat it")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    os.environ.update({f"{pool}_NUM_THREADS": "1" for pool in THREADS})
    multiprocessing.get_context("forkserver").set_forkserver_preload(["harness.measuring"])
    result = goes_on(chosen.json, {"seed": chosen.seed, "quick": chosen.quick})
    result |= {"minutes": chosen.minutes, "measured on": TEST_ROWS}
    pythons = {
        "LightFM": chosen.lightfm_python,
        "implicit": chosen.implicit_python or chosen.lightfm_python,
        "PECOS": chosen.pecos_python,
    }
    result["rivals"] = versions(pythons)
    names = [*MODELS.names(), *(f"scikit-learn {kind}" for kind in SCIKIT_LEARN), *RIVALS]
    for data in method_sets(None if chosen.quick else chosen.shared, chosen.cache, chosen.seed, chosen.only):
        say(f"\n{data.name}: {data.about}")
        entry = result["data"].setdefault(data.name, {"about": data.about, "models": {}})
        if entry["about"] != data.about:
            raise SystemExit(f"{chosen.json} has other data of this name: {entry['about']}. Name another file.")
        for name in chosen.model or names:
            if is_settled(entry["models"].get(name), chosen.minutes):
                continue
            if name in RIVALS and name not in result["rivals"]:
                entry["models"][name] = {"missing": f"not installed: `{RIVALS[name].install}`"}
            else:
                entry["models"][name] = in_its_own_process(name, data, pythons.get(name), chosen.minutes)
            say(f"  {name:32} {entry['models'][name]}")
            write(result, chosen.json)


if __name__ == "__main__":
    main()
