"""Table 3 of the sampled tagging paper and its two tables without a number: five tags an image, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visterm_research.comparison.claims import percent
from visterm_research.papers import ugc as paper
from visterm_research.papers.ugc import COCO, DENSECAP, ESP, GENOME, IA, Five
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, K, interval_of
from visterm_research.ugc.run import TagRun

NONE = "–"

BESIDE = {BY_TAG: (IA, ESP), BY_IMAGE: (COCO, GENOME)}
"""The paper's data whose figures stand beside: averaged in the same way, by all signs (see `AVERAGED`)."""

AVERAGED = (
    "The paper does not say how it averages. Its rows of TagProp and FastTag in Table 3 are those published for these "
    "data, precision and recall of each tag averaged over the tags; on MS COCO, with about three tags an image, its "
    "precision and recall fit averages over images only. Both are given here for all data, and settings are chosen for "
    "each. F1 is that of the two means, as in the paper. A tag that is never given has precision 0; N+ counts tags "
    "that are right at least once. Intervals are of resampled test images."
)


def data_part(run: TagRun) -> None:
    """Say how many images, tags and features there are."""
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
    beside = BESIDE[kind]
    labels = [*paper.METHODS, *([DENSECAP] if kind == BY_IMAGE else [])]
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
    header += [f"{data} {figure}" for data in beside for figure in ("P", "R", "F1")]
    run.comparison.document.table(f"{name} on {run.name}: {K} tags an image, {kind}", header, rows)


def _ours(run: TagRun, label: str, kind: str) -> list[str] | None:
    if not run.has(label, kind):
        return None
    five = run.five(label, kind)
    low, high = interval_of(run.resampled(label, kind)[:, 2], five.f1)
    metrics = run.judged[label, kind].metrics
    more = f"{metrics[f'n_plus@{K}']:.0f}" if kind == BY_TAG else f"{metrics['map']:.3f}"
    return [*map(percent, five), f"{percent(low)} to {percent(high)}", more]


def _figures(five: Five | None) -> list[str]:
    return [NONE] * 3 if five is None else [_short(value) for value in five]


def _short(share: float) -> str:
    return f"{100 * share:g} %"


def settings_part(runs: Sequence[TagRun]) -> None:
    """Say which settings were chosen of which."""
    rows = []
    for run in runs:
        for (label, kind), choice in run.choices.items():
            diverged = sum(record["metrics"] is None for _, record in choice.tried)
            chosen = {name: choice.settings[name] for name in choice.arm.grid}
            shown = ", ".join(f"{name}={value}" for name, value in chosen.items()) or NONE
            epoch = choice.record["epoch"]
            tried = f"{len(choice.tried)}" + (f" ({diverged} diverged)" if diverged else "")
            seconds = f"{choice.record['seconds']:.1f}"
            rows.append([run.name, label, kind, tried, shown, NONE if epoch is None else str(epoch), seconds])
    if not rows:
        return
    document = runs[0].comparison.document
    document.section(
        "Settings",
        "Every method was fitted with each setting of its grid on the training rows; the one of the best F1 over the "
        "validation rows, averaged as the table does, was judged by the test rows, once. Networks have six settings "
        "each and the same budget of epochs, and stop by the MAP of the same validation rows; the paper's network of "
        "4096, 8192 and 2048 hidden numbers is too slow here, and smaller ones are tried.",
    )
    header = ("data", "method", "averaged", "settings tried", "chosen", "best epoch", "seconds of its fit")
    document.table("Settings chosen on validation rows", header, rows)


def examples_part(run: TagRun) -> None:
    """Write the tags that each method gives a few test images, and the words that are no tags."""
    rows = run.problem.rows
    wanted = [label for label in paper.METHODS if run.has(label, BY_TAG)]
    if not wanted:
        return
    outside = run.judged.get((paper.PROPOSED, BY_TAG))
    cells = []
    for number, image in enumerate(run.problem.shown):
        right = _tags_of(rows.test.Y, image)
        name = rows.test_names[image] if rows.test_names else f"test image {image}"
        line = [name, ", ".join(rows.tags[tag] for tag in right)]
        for label in wanted:
            given = run.judged[label, BY_TAG].ids[image]
            line.append(", ".join(f"**{rows.tags[tag]}**" if tag in right else rows.tags[tag] for tag in given))
        if run.problem.words.outside and outside is not None:
            line.append(", ".join(run.problem.words.outside[word] for word in outside.outside[number]))
        cells.append(line)
    header = ["image", "tags that people gave", *wanted]
    header += ["words that are no tags"] if len(cells[0]) > len(header) else []
    run.comparison.document.table(f"Tags of a few test images of {run.name}; right ones bold", header, cells)


def _tags_of(Y: Any, image: int) -> list[int]:
    part = slice(Y.indptr[image], Y.indptr[image + 1])
    found: list[int] = Y.indices[part][Y.data[part] > 0].tolist()
    return found
