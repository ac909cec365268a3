"""Where the time of a training step goes: microseconds a pair of each part, for the three kinds of features.

One thread, so that the parts add up; an epoch in the middle of a training. The parts are timed around the calls of the
training loop, and a call costs about 0.2 µs of timing, shared by the pairs of a block.

    python profile_steps.py --json profile.json
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

from harness.runs import machine, options, parse, say, write
from lab.epochs import timed_epoch
from same_bytes import CASES, SETTINGS

from visterm.models.ranking import image_sides, warp

BEFORE = 3
"""Epochs before the one that is profiled."""

PARTS = {
    "embed the images": [(image_sides.EmbeddedImages, "embed")],
    "draw": [(warp.UniformDraws, "draw")],
    "weigh": [(warp, "weigh_pairs")],
    "move the images' side": [(image_sides.EmbeddedImages, "move")],
    "move the tags": [(warp, "add_tag_steps")],
}


@contextmanager
def clocks(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds of each part."""
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for place, name in places:
                stack.enter_context(mock.patch.object(place, name, timed(getattr(place, name), part, spent)))
        yield


def timed(call: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def clocked(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[part] += time.perf_counter() - began

    return clocked


def profile(X: Any, own: Any, runs: int) -> dict[str, Any]:
    """Take the seconds of all epochs from those of all but the last: what is left is the last.

    The first run loads the compiled loops and is left out.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs + 1):
        whole: dict[str, float] = defaultdict(float)
        first: dict[str, float] = defaultdict(float)
        with clocks(whole):
            epoch = timed_epoch(X, own, before=BEFORE, n_jobs=1, **SETTINGS)
        with clocks(first):
            timed_epoch(X, own, before=BEFORE - 1, n_jobs=1, **SETTINGS)
        for part in whole:
            seconds[part].append(whole[part] - first[part])
        seconds["all"].append(epoch.seconds)
    found = {part: median(times[1:]) / own.nnz * 1e6 for part, times in seconds.items()}
    found["the rest"] = 2 * found["all"] - sum(found.values())
    return {"pairs": own.nnz, "draws": epoch.draws, "violated": epoch.violated, "microseconds a pair": found}


def main() -> None:
    chosen = parse(options(__doc__))
    result: dict[str, Any] = {"machine": machine()}
    for name, (draw, n_images, n_tags) in CASES.items():
        X, own = draw(500, 300) if chosen.quick else draw(n_images, n_tags)
        found = result[name] = profile(X, own, chosen.runs)
        micros = found["microseconds a pair"]
        say(f"{name}: {micros['all']:.2f} µs a pair, {found['draws']:.1f} draws, {found['violated']:.0%} violated")
        for part in (*PARTS, "the rest"):
            if part in micros:
                say(f"  {part:24s}{micros[part]:8.3f} µs   {micros[part] / micros['all']:6.1%}")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
