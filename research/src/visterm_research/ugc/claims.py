"""The orders of the sampled tagging paper's tables of five tags, and what is aimed at; intervals over images."""

from __future__ import annotations

from typing import NamedTuple

from visterm_research.comparison.claims import Claim, percent
from visterm_research.papers import ugc as paper
from visterm_research.papers.ugc import (
    AVERAGE,
    COCO,
    CORRELATED,
    FAST0TAG,
    FASTTAG,
    FIXED,
    FULL,
    IA,
    LEAST_SQUARES,
    PROPOSED,
    SAMPLED_FAST0TAG,
    SAMPLED_FIXED,
    TAGPROP,
)
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, K, interval_of
from visterm_research.ugc.run import TagRun

PLACES = {"precision": 0, "recall": 1, "F1": 2}

ROOM = 0.01
"""What sampling may cost: the goal is F1 within one point of the full cross-entropy's, or better."""

WITHIN = "at most 1 point below"


class Order(NamedTuple):
    """What the paper has above what, by which of its tables."""

    first: str
    second: str
    of: str
    data: str


ORDERS = (
    Order(FULL, FAST0TAG, "F1", IA),
    Order(FULL, FAST0TAG, "F1", COCO),
    Order(PROPOSED, SAMPLED_FAST0TAG, "F1", IA),
    Order(PROPOSED, SAMPLED_FAST0TAG, "F1", COCO),
    Order(PROPOSED, SAMPLED_FIXED, "F1", COCO),
    Order(FULL, FIXED, "F1", COCO),
    Order(PROPOSED, FULL, "recall", IA),
    Order(PROPOSED, FULL, "recall", COCO),
    Order(SAMPLED_FIXED, FIXED, "recall", IA),
    Order(SAMPLED_FIXED, FIXED, "recall", COCO),
    Order(SAMPLED_FAST0TAG, FAST0TAG, "recall", IA),
    Order(SAMPLED_FAST0TAG, FAST0TAG, "recall", COCO),
    Order(PROPOSED, AVERAGE, "F1", IA),
    Order(PROPOSED, AVERAGE, "F1", COCO),
    Order(PROPOSED, CORRELATED, "F1", COCO),
    Order(PROPOSED, LEAST_SQUARES, "F1", IA),
    Order(PROPOSED, FASTTAG, "F1", IA),
    Order(TAGPROP, PROPOSED, "F1", IA),
    Order(TAGPROP, FASTTAG, "F1", IA),
)
"""All that the text says of these tables (section 4: optimised cross-entropy above Fast0Tag, sampling lifts recall),
and what their figures show of the proposed method beside the others."""

KIND_OF = {IA: BY_TAG, COCO: BY_IMAGE}


def five_claims(run: TagRun) -> None:
    """Judge the orders on one problem, and whether sampling costs no more than a point."""
    for order in ORDERS:
        kind = KIND_OF[order.data]
        if run.has(order.first, kind) and run.has(order.second, kind):
            run.comparison.claims.append(_judged(run, order, kind))
    for data, kind in KIND_OF.items():
        if run.has(PROPOSED, kind) and run.has(FULL, kind):
            run.comparison.claims.append(_judged(run, Order(PROPOSED, FULL, "F1", data), kind, ROOM))


def goal_part(run: TagRun) -> None:
    """Say plainly how far the sampled method's F1 is from the full one's, with the same budget."""
    found = []
    for kind in (BY_TAG, BY_IMAGE):
        if not (run.has(PROPOSED, kind) and run.has(FULL, kind)):
            continue
        sampled, full = (run.five(label, kind).f1 for label in (PROPOSED, FULL))
        low, high = _interval(run, PROPOSED, FULL, "F1", kind)
        met = "met" if sampled >= full - ROOM else "not met"
        found.append(
            f"{kind}: sampled {percent(sampled)}, full {percent(full)}, a difference of "
            f"{100 * (sampled - full):+.2f} points (95 % interval {100 * low:+.2f} to {100 * high:+.2f}): goal {met}"
        )
    if found:
        run.comparison.document.text(
            f"**F1@{K} of the sampled method against the full cross-entropy, same budget; the goal is within 1 point "
            "or better.**"
        )
        run.comparison.document.items(found)


def _judged(run: TagRun, order: Order, kind: str, room: float = 0.0) -> Claim:
    low, high = (bound + room for bound in _interval(run, order.first, order.second, order.of, kind))
    verdict = "yes" if low > 0 else "no" if high < 0 else "too close to call"
    place = PLACES[order.of]
    here = [percent(run.five(label, kind)[place]) for label in (order.first, order.second)]
    table = paper.TABLES[order.data]
    theirs = [f"{100 * table[label][place]:g} %" for label in (order.first, order.second)]
    detail = f"95 % interval of the difference {percent(low - room)} to {percent(high - room)}"
    relation = WITHIN if room else "better than"
    return Claim(
        order.first, order.second, f"{order.of} {kind}", paper.PLACES[order.data], run.name, (theirs[0], theirs[1]),
        (here[0], here[1]), verdict, detail, relation,
    )  # fmt: skip


def _interval(run: TagRun, first: str, second: str, of: str, kind: str) -> tuple[float, float]:
    place = PLACES[of]
    differences = run.resampled(first, kind)[:, place] - run.resampled(second, kind)[:, place]
    return interval_of(differences, run.five(first, kind)[place] - run.five(second, kind)[place])
