"""The tables of docs/which_method.md: for each data set, how good each method is and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from visterm.core.tables import MODELS

COLUMNS = ("method", "MAP", "MAP of searches", "learning", "memory", "a photo")

BEST, ALWAYS, BEST_RIVALS = 4, ("ridge", "knn", "wsabie"), 2
"""Rows of a table: so many of our best models, these models, and so many of the best other programs."""

LEFT_OUT = ("Drawn scenes, visterms", "Drawn tags, visterms", "NUS-WIDE, by number")
"""Data sets without a table here: docs/methods.md has their quality, the JSON their costs."""

TIMES = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (float("inf"), 60, "min"))
"""Up to so many seconds: a unit, in seconds, and its name."""


def cost_tables(found: dict[str, Any]) -> str:
    """Return the tables of a JSON of research/experiments/methods.py, with what was not measured and why."""
    versions = ", ".join(f"{name} {version}" for name, version in found["rivals"].items())
    at_most = f"A fit that takes more than {60 * found['minutes']:g} seconds is ended."
    lines = [f"Measured on {found['machine']['processor']}, with one thread" + (f"; {versions}" if versions else "")]
    lines[0] += f". {at_most}"
    for name, data in found["data"].items():
        if name in LEFT_OUT:
            continue
        lines += ["", f"### {name}", "", f"{data['about']}.", "", *table(data["models"]), "", *reasons(data["models"])]
    return "\n".join([*lines, "", *settings(found["data"])]).rstrip() + "\n"


def table(models: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, the best MAP first."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for name in shown(models):
        each = models[name]
        qualities = [f"{each['map']:.3f}", f"{each['word_map']:.3f}"]
        costs = [time(each["seconds"]), memory(each["bytes"]), time(1e-6 * each["microseconds a photo"])]
        yield f"| {code(name)} | {' | '.join(qualities + costs)} |"


def shown(models: dict[str, Any]) -> list[str]:
    """Return the models and programs that a table has, the best first."""
    ranked = sorted((name for name in models if "map" in models[name]), key=lambda name: -models[name]["map"])
    ours = [name for name in ranked if name in MODELS.names()]
    rivals = [name for name in ranked if name not in ours]
    kept = {*ours[:BEST], *ALWAYS, *rivals[:BEST_RIVALS]}
    return [name for name in ranked if name in kept]


def time(seconds: float) -> str:
    """Return a time with the unit that suits it."""
    _, unit, name = next(row for row in TIMES if seconds < row[0])
    value = seconds / unit
    return f"{value:.1f} {name}" if value < 9.95 else f"{value:.0f} {name}"


def memory(size: int) -> str:
    """Return bytes as megabytes."""
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else "< 1 MB"


def reasons(models: dict[str, Any]) -> Iterator[str]:
    """Yield a line of a list for each reason why methods that suit the data have no figures here."""
    without: dict[str, list[str]] = {}
    for name, each in models.items():
        if "map" not in each and "refused" not in each:
            why = each.get("over") or each["missing"]
            without.setdefault(why, []).append(code(name))
    if without:
        yield "Without figures:\n"
    for why, names in without.items():
        yield f"- {', '.join(names)}: {why.rstrip('.')}."


def settings(data: dict[str, Any]) -> Iterator[str]:
    """Yield what differs from the defaults, of the models and programs in the tables."""
    others: dict[str, list[str]] = {}
    for each in (each for name, each in data.items() if name not in LEFT_OUT):
        for name in shown(each["models"]):
            for key, value in each["models"][name].get("settings", {}).items():
                names = others.setdefault(f"`{key}`: {value}", [])
                names += [] if code(name) in names else [code(name)]
    if others:
        yield "### What differs from the defaults\n"
    for what, names in others.items():
        yield f"- {what} ({', '.join(names)})"


def code(name: str) -> str:
    """Return the name of a model of ours as code; programs of others are names."""
    return f"`{name}`" if name in MODELS.names() else name
