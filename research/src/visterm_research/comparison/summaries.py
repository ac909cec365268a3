"""What results.json has besides tables and claims: the machine, the problems, and what was chosen and found."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from visterm_research.comparison.problem import Problem
from visterm_research.comparison.trials import Judged


def machine() -> dict[str, Any]:
    """Return where the figures of time stem from."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor(),
        "threads": cpus,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "visterm": version("visterm"),
    }


def processor() -> str:
    """Return the maker's name of the processor, as Linux tells it; elsewhere its kind."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def described(problem: Problem) -> dict[str, Any]:
    """Return what a problem is, for results.json."""
    return {
        "name": problem.name,
        "what": problem.what,
        "training_images": problem.train.Y.shape[0],
        "validation_images": problem.valid.Y.shape[0],
        "test_images": problem.test.Y.shape[0],
        "features": problem.train.X.shape[1],
        "nonzeros": problem.nonzeros,
        "tags": len(problem.tags),
        "training_pairs": int((problem.train.Y > 0).sum()),
        "fingerprint": problem.fingerprint,
    }


def summary(tested: Judged) -> dict[str, Any]:
    """Return what was chosen and found of a method on a problem of annotation, for results.json."""
    choice, record = tested.choice, tested.choice.record
    return {
        "model": choice.method.model,
        "settings": choice.settings,
        "tried": [
            {"settings": one["settings"], "map": one["map"], "seconds": one.get("seconds")} for _, one in choice.tried
        ],
        "widened": list(choice.widened),
        "at_an_edge": choice.at_an_edge,
        "validation_map": record["map"],
        "epoch": record["epoch"],
        "seconds": record["seconds"],
        "curve": record["curve"],
        "test": tested.metrics,
        "cost": tested.record["cost"],
    }
