"""Table 3 of the sampled tagging paper and its two tables without a number, beside the paper's, and their orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from visterm_research.comparison.claims import Claim, percent
from visterm_research.comparison.verdicts import NO, UNSURE, YES, by_interval, p_of_interval
from visterm_research.papers import read_paper
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, K, interval_of
from visterm_research.ugc.methods import (
    AVERAGE,
    COCO,
    CORRELATED,
    DENSECAP,
    ESP,
    FAST0TAG,
    FASTTAG,
    FIXED,
    FULL,
    GENOME,
    IA,
    LABELS,
    LEAST_SQUARES,
    PROPOSED,
    SAMPLED_FAST0TAG,
    SAMPLED_FIXED,
    TAGPROP,
)
from visterm_research.ugc.problems import PROCESSOR
from visterm_research.ugc.tag_run import TagRun

paper = read_paper("ugc")

NONE = "–"

BESIDE = {BY_TAG: (IA, ESP), BY_IMAGE: (COCO, GENOME)}
"""The paper's data whose figures stand beside: averaged in the same way, by all signs (see `AVERAGED`)."""

AVERAGED = (
    "The paper does not say how it averages. Its rows of TagProp and FastTag in Table 3 are those published for these "
    "data, precision and recall of each tag averaged over the tags; on MS COCO, with about three tags an image, its "
    "precision and recall fit averages over images only. Both are given here for all data, and settings are chosen for "
    "each. F1 is that of the two means, as in the paper. A tag that is never given has precision 0; N+ is the "
    "number of tags that are right at least once. Intervals come from resampled test images."
)

PLAIN = (
    "'least-squares' is plain least squares, without a penalty, as the paper's row is called; it has no settings. "
    "Ridge, the same with a penalty that is chosen on validation rows, is a row of ours and in none of the paper's "
    "orders."
)

PLACES = {"precision": 0, "recall": 1, "F1": 2}

ROOM = 0.01
"""What sampling may cost: the goal is F1 within one point of the full cross-entropy's, or better."""

WITHIN = "at most 1 point below"

GOAL = {YES: "met", NO: "not met", UNSURE: "too close to call"}


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
    Order(PROPOSED, FULL, "F1", COCO),
    Order(PROPOSED, FAST0TAG, "F1", COCO),
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


def data_part(run: TagRun) -> None:
    """Describe how many images, tags and features there are."""
    rows = run.problem.rows
    parts = [rows.train, rows.valid, rows.test]
    sizes = [f"{part.Y.shape[0]:,}" for part in parts]
    tags_an_image = float((rows.train.Y > 0).sum()) / rows.train.Y.shape[0]
    cells = [run.name, *sizes, f"{len(rows.tags):,}", f"{tags_an_image:.1f}", f"{rows.train.X.shape[1]:,}"]
    header = ("data", "training images", "validation", "test", "tags", "tags an image", "features")
    run.comparison.document.table(f"Data of {run.name}", header, [cells])
    run.comparison.document.text(run.problem.words.what)


def five_tags_part(run: TagRun, kind: str) -> None:
    """Write precision, recall and F1 of all methods, averaged in one way, beside the paper's."""
    if not any(run.has(label, kind) for label in LABELS):
        return
    beside = BESIDE[kind]
    labels = [*LABELS, *([DENSECAP] if kind == BY_IMAGE else [])]
    rows = []
    for label in labels:
        theirs = [_figures(paper.TABLES[data].get(label)) for data in beside]
        ours = _ours(run, label, kind)
        if ours is None and not any(any(cell != NONE for cell in part) for part in theirs):
            continue
        rows.append([label, *(ours or [NONE] * 5), *(cell for part in theirs for cell in part)])
    name = "Table 3" if kind == BY_TAG else "Tables on MS COCO and Visual Genome"
    header = ["method", "P", "R", "F1", "interval of F1"]
    header += ["N+"] if kind == BY_TAG else ["MAP"]
    header += [f"{data} {figure} (paper)" for data in beside for figure in ("P", "R", "F1")]
    run.comparison.document.table(f"{name} on {run.name}: {K} tags an image, {kind}", header, rows)


def _ours(run: TagRun, label: str, kind: str) -> list[str] | None:
    if not run.has(label, kind):
        return None
    five = run.five(label, kind)
    low, high = interval_of(run.resampled(label, kind)[:, 2], five.f1)
    metrics = run.judged[label, kind].metrics
    more = f"{metrics[f'n_plus@{K}']:.0f}" if kind == BY_TAG else f"{metrics['map']:.3f}"
    return [*map(percent, five), f"{percent(low)} to {percent(high)}", more]


def _figures(five: Sequence[float] | None) -> list[str]:
    """Write the paper's precision, recall and F1."""
    return [NONE] * 3 if five is None else [f"{100 * value:g} %" for value in five]


def settings_part(runs: Sequence[TagRun]) -> None:
    """Return which settings were chosen of which."""
    rows = []
    for run in runs:
        for (label, kind), choice in run.choices.items():
            epoch = NONE if choice.record["epoch"] is None else str(choice.record["epoch"])
            widened = ", ".join(choice.widened) or NONE
            seconds = f"{choice.record['seconds']:.1f}"
            rows.append([run.name, label, kind, choice.shown_tried, choice.shown, widened, epoch, seconds])
    if not rows:
        return
    document = runs[0].comparison.document
    document.section(
        "Settings",
        "All settings of a method are searched together: random points in a box of values, then steps from the best "
        "one. If the best value is at an edge of the box, the box is widened. The setting with the best F1 over the "
        "validation rows, averaged as in the table, was judged on the test rows, once for each version of the search. "
        "Networks have the same number of trials and epochs, and stop by MAP on the same validation rows; the paper's "
        "network, `hidden=[4096, 8192, 2048]`, is too slow here, so smaller ones are tried. On drawn tags the two "
        "cross-entropies that learn the vectors of tags may start from random ones (dim), and first try the best "
        "settings of `research/experiments/sampled_dictionary.py`, from the same validation rows. Fits ran on "
        f"{' and '.join(_devices(runs))}.",
    )
    header = ("data", "method", "averaged", "settings tried", "chosen", "box widened", "best epoch", "seconds")
    document.table("Settings chosen on validation rows", header, rows)


def _devices(runs: Sequence[TagRun]) -> list[str]:
    """List what the chosen settings were fitted on."""
    return sorted({choice.record.get("device", PROCESSOR) for run in runs for choice in run.choices.values()})


def examples_part(run: TagRun) -> None:
    """Write the tags that each method gives a few test images, and the words that are no tags."""
    rows = run.problem.rows
    wanted = [label for label in LABELS if run.has(label, BY_TAG)]
    if not wanted:
        return
    outside = run.judged.get((PROPOSED, BY_TAG))
    cells = []
    for number, image in enumerate(run.problem.shown):
        right = _tags_of(rows.test.Y, image)
        name = rows.test_names[image] if rows.test_names else f"test image {image}"
        line = [name, ", ".join(rows.tags[tag] for tag in right)]
        for label in wanted:
            given = run.judged[label, BY_TAG].values["ids"][image]
            line.append(", ".join(f"**{rows.tags[tag]}**" if tag in right else rows.tags[tag] for tag in given))
        if run.problem.words.outside and outside is not None:
            line.append(", ".join(run.problem.words.outside[word] for word in outside.values["outside"][number]))
        cells.append(line)
    header = ["image", "tags that people gave", *wanted]
    header += ["words that are no tags"] if len(cells[0]) > len(header) else []
    run.comparison.document.table(f"Tags of a few test images of {run.name}; right ones bold", header, cells)


def _tags_of(Y: Any, image: int) -> list[int]:
    part = slice(Y.indptr[image], Y.indptr[image + 1])
    found: list[int] = Y.indices[part][Y.data[part] > 0].tolist()
    return found


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
    """Describe how far the sampled method's F1 is from the full one's, with the same budget."""
    found = []
    for kind in (BY_TAG, BY_IMAGE):
        if not (run.has(PROPOSED, kind) and run.has(FULL, kind)):
            continue
        sampled, full = (run.five(label, kind).f1 for label in (PROPOSED, FULL))
        low, high = _interval(run, PROPOSED, FULL, "F1", kind)
        met = GOAL[by_interval(low + ROOM, high + ROOM)]
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
    place = PLACES[order.of]
    here = [percent(run.five(label, kind)[place]) for label in (order.first, order.second)]
    table = paper.TABLES[order.data]
    theirs = [f"{100 * table[label][place]:g} %" for label in (order.first, order.second)]
    detail = f"95 % interval of the difference {percent(low - room)} to {percent(high - room)}"
    relation = WITHIN if room else "better than"
    return Claim(
        order.first, order.second, f"{order.of} {kind}", paper.PLACES[order.data], run.name, (theirs[0], theirs[1]),
        (here[0], here[1]), by_interval(low, high), detail, relation,
        p_of_interval(low, high),
    )  # fmt: skip


def _interval(run: TagRun, first: str, second: str, of: str, kind: str) -> tuple[float, float]:
    place = PLACES[of]
    differences = run.resampled(first, kind)[:, place] - run.resampled(second, kind)[:, place]
    return interval_of(differences, run.five(first, kind)[place] - run.five(second, kind)[place])
