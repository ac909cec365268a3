"""The linear WARP on sparse visterms: an epoch whose draws are by marks, beside one that scores each tag when drawn.

5,000 drawn images, each with about 90 of 5,000 visterms and 2 of 5,000 tags; one thread. Both sides learn the same
bytes, so only the second epoch is timed: the first one tells how many draws are needed, and scores each tag when drawn
on both sides.

    python linear_draws.py --json figures/linear_draws.json
"""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm.core.tables import MODELS
from visterm_research.data.drawn_tags import draw_visterms
from visterm_research.models.ranking import warp_linear

SIDES = {"by marks": warp_linear.MARKS_FROM, "scored when drawn": float("inf")}
"""Mean draws a pair, as a share of the tags, from which on draws are by marks."""


class Clock:
    """A monitor that notes the processor's seconds after each epoch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def start(self, task: str, total: int | None = None) -> None:
        self.advance()

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.seconds.append(time.process_time())

    def finish(self) -> None:
        return


def main() -> None:
    chosen = parse(options(__doc__))
    n_images, n = (300, 400) if chosen.quick else (5_000, 5_000)
    drawn = draw_visterms(n_images, n, n_features=n, words_an_image=100, random_state=0)
    result: dict[str, Any] = {"machine": machine(), "images": n_images, "tags": n, "features": n, "pairs": drawn.Y.nnz}
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    learned = set()
    for run in range(chosen.runs + 1):  # the first one loads the compiled loops
        for side, least in SIDES.items():
            clock = Clock()
            model = MODELS.create("warp_linear", epochs=2, max_norm=10.0, valid_share=0, n_jobs=1, random_state=0)
            mark = mock.Mock(wraps=warp_linear.mark_violators)
            with mock.patch.multiple(warp_linear, MARKS_FROM=least, mark_violators=mark):
                model.fit(drawn.X, drawn.Y, monitor=clock)
            if mark.called != (least < 1):
                raise SystemExit(f"{side}: expected other draws. Do the second epoch's pairs need enough of them?")
            learned.add(model.tag_rows_.tobytes())
            if run:
                seconds[side].append(clock.seconds[2] - clock.seconds[1])
    if len(learned) != 1:
        raise SystemExit("The sides learned different weights: expected the same bytes.")
    result["draws"] = model.history_[-1]["draws"]
    result["microseconds a pair"] = {
        side: spread([one / drawn.Y.nnz * 1e6 for one in found]) for side, found in seconds.items()
    }
    result["times as fast"] = ratios(seconds["scored when drawn"], seconds["by marks"])
    for side, found in result["microseconds a pair"].items():
        say(f"{side:18} {found['median']:7.0f} µs a pair at {result['draws']:.0f} draws")
    say(f"{result['times as fast']['median']:.1f} times as fast")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
