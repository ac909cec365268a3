"""Pictures that were sent, shown to the model in micro-batches: each request has its own wishes of how many tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import ImageError
from visterm.core.types import Tag
from visterm.tagging.annotating import Annotated
from visterm.tagging.tagger import Tagger

BATCH = 16
"""Pictures that are encoded together at most: what waits behind them waits for all."""


class HowMany(NamedTuple):
    """How many tags a picture is given; as `Tagger.annotate` takes it."""

    precision: float | None = None
    best_f1: bool = False
    min_confidence: float | None = None


class Wanted(NamedTuple):
    """A picture and what is wanted of it; `k` None: all above the cut-off, or five."""

    pixels: NDArray[np.uint8]
    k: int | None
    how: HowMany


def annotate_together(tagger: Callable[[], Tagger], batch: Sequence[Wanted]) -> list[list[Tag] | Exception]:
    """Return the tags of each picture, or the error that it met; those of like wishes are encoded together."""
    groups: defaultdict[tuple[HowMany, bool], list[int]] = defaultdict(list)
    for place, wanted in enumerate(batch):
        groups[wanted.how, wanted.k is None].append(place)
    found: list[list[Tag] | Exception] = [ImageError("image", "it was left out")] * len(batch)
    for (how, _), places in groups.items():
        pictures: Any = [batch[place].pixels for place in places]
        counts = [batch[place].k for place in places]
        most = None if counts[0] is None else max(k or 0 for k in counts)
        try:
            answers = list(tagger().annotate_each(pictures, most, **how._asdict()))
        except Exception as error:  # whatever it is, it is the answer to these requests, and not to the others
            for place in places:
                found[place] = error
            continue
        for place, k, answer in zip(places, counts, answers, strict=True):
            found[place] = answer.tags[:k] if isinstance(answer, Annotated) else ImageError(answer.image, answer.reason)
    return found
