"""Table 1 of the sampled tagging paper: seconds an epoch, with all tags in each step and with few drawn ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import TooLargeError
from visterm_research.comparison.claims import least_claim
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Trials
from visterm_research.ugc.methods import FULL_SETTINGS, PAPER_HIDDEN, SAMPLED_SETTINGS

TAGS_AN_IMAGE = 5
"""Of drawn images: P of the paper, and about what people give a photo."""


class Shape(NamedTuple):
    """One size of the table.

    Attributes
    ----------
    name : str
        The paper's data of this size.
    n_tags : int
    n_images : int
        Images of the reported epoch; fewer are timed.
    """

    name: str
    n_tags: int
    n_images: int


SHAPES = (
    Shape("IAPR TC-12", 291, 17_665),
    Shape("NUS-WIDE", 925, 102_709),
    Shape("Visual Genome", 13_980, 100_000),
    Shape("YFCC100M", 432_213, 100_000),
)
"""The paper says how many images the first two have; for the others we report an epoch of 100,000."""

QUICK_SHAPES = (Shape("IAPR TC-12", 29, 1766), Shape("YFCC100M", 2000, 1000))

FULL, SAMPLED = "full", "sampled"


@dataclass(frozen=True)
class TimedRow:
    """A method of the table, in its two forms.

    Attributes
    ----------
    label : str
        As in the paper.
    full, sampled : (str, mapping)
        A model and its settings.
    paper : mapping of int to (float, float)
        The paper's seconds an epoch, full and sampled, by the number of tags.
    """

    label: str
    full: tuple[str, Mapping[str, Any]]
    sampled: tuple[str, Mapping[str, Any]]
    paper: Mapping[int, tuple[float, float]] = field(default_factory=dict)


ROWS = (
    TimedRow("Fast0Tag", ("fast0tag", {}), ("fast0tag", {"all_pairs": False}), {291: (2.12, 0.39), 925: (43.6, 3.22)}),
    TimedRow(
        "Fixed WV",
        ("cross_entropy_tagger", {**FULL_SETTINGS, "fixed_vectors": True}),
        ("sampled_tagger", {**SAMPLED_SETTINGS, "fixed_vectors": True}),
        {291: (1.21, 0.32), 925: (9.3, 1.94)},
    ),
    TimedRow(
        "Proposed Approach",
        ("cross_entropy_tagger", FULL_SETTINGS),
        ("sampled_tagger", SAMPLED_SETTINGS),
        {291: (1.30, 0.43), 925: (10.9, 2.31)},
    ),
)


@dataclass(frozen=True)
class Network:
    """Hidden layers, and how many images two timed fits have: the difference is what an image costs."""

    name: str
    hidden: tuple[int, ...]
    images: tuple[int, int]


BATCH = 256
FEATURES = 1024
EPOCHS, QUICK_EPOCHS = 3, 2
"""Of a fit; its fastest epoch counts, since others than the fit can only slow it."""

NETWORKS = (Network("512", (512,), (512, 2048)), Network("4096, 8192, 2048 (the paper's)", PAPER_HIDDEN, (256, 768)))
QUICK_NETWORKS = (Network("16", (16,), (128, 512)),)


def times_part(comparison: Comparison) -> None:
    """Table 1: time epochs on drawn data of the paper's shapes, and write the table, its notes and claims.

    Parameters
    ----------
    comparison : Comparison
        Its document and claims grow; what there is no time for is noted. In quick runs shapes are small.
    """
    shapes = QUICK_SHAPES if comparison.quick else SHAPES
    epochs = QUICK_EPOCHS if comparison.quick else EPOCHS
    for network in QUICK_NETWORKS if comparison.quick else NETWORKS:
        found: dict[tuple[int, str, str], Record] = {}
        for shape in shapes:
            for row in ROWS:
                for form, (model, settings) in ((FULL, row.full), (SAMPLED, row.sampled)):
                    record = comparison.while_time(
                        f"Table 1, {form} {row.label} with {shape.n_tags:,} tags and hidden layers {network.name}",
                        partial(epoch_time, comparison.trials, shape, network, model, settings, epochs),
                    )
                    if record is not None:
                        found[shape.n_tags, row.label, form] = record
        if not found:
            continue
        _table(comparison, network, shapes, found)
        _notes(comparison, network, shapes, found)
        if network is (QUICK_NETWORKS if comparison.quick else NETWORKS)[0]:
            time_claims(comparison, shapes, found)


def epoch_time(
    trials: Trials, shape: Shape, network: Network, model: str, settings: Mapping[str, Any], epochs: int = EPOCHS
) -> Record:
    """Time a model's epochs on drawn data, or look it up.

    Two fits of different numbers of images part what an image costs from what an epoch costs whatever its images.

    Returns
    -------
    dict
        ``image``: seconds an image; ``epoch``: seconds an epoch of the shape's images; or ``refused``, where the model
        says that a step would not fit in memory.
    """

    def work() -> Record:
        few, many = network.images
        try:
            seconds = [_fastest(trials, n, shape.n_tags, network, model, settings, epochs) for n in (few, many)]
        except TooLargeError as error:
            return {"refused": str(error)}
        image = (seconds[1] - seconds[0]) / (many - few)
        if image <= 0:  # the machine was slowed while it timed the few
            image = seconds[1] / many
        return {"image": image, "epoch": seconds[1] + image * (shape.n_images - many), "timed": seconds}

    of = [shape, network.hidden, network.images, model, dict(settings), epochs]
    shown = {"model": model, "tags": shape.n_tags, "hidden": network.hidden, **settings}
    return trials.once("times/epoch", of, work, shown)


def _fastest(
    trials: Trials, n_images: int, n_tags: int, network: Network, model: str, settings: Mapping[str, Any], epochs: int
) -> float:
    given = {
        **settings, "hidden": list(network.hidden), "epochs": epochs, "batch_size": BATCH, "valid_share": 0.0,
        "device": "cpu",
    }  # fmt: skip
    made = trials.make(model, given)
    made.fit(drawn_features(n_images, FEATURES), drawn_tags(n_images, n_tags))
    return float(min(entry["seconds"] for entry in made.history_))


def _table(
    comparison: Comparison, network: Network, shapes: Sequence[Shape], found: Mapping[tuple[int, str, str], Record]
) -> None:
    rows = []
    for shape in shapes:
        for row in ROWS:
            records = [found.get((shape.n_tags, row.label, form)) for form in (FULL, SAMPLED)]
            if records == [None, None]:
                continue
            full, sampled = (_seconds(record) for record in records)
            paper = row.paper.get(shape.n_tags)
            rows.append(
                [
                    f"{shape.n_tags:,}", f"{shape.n_images:,}", row.label, *map(_cell, records), _ratio(full, sampled),
                    *(("–", "–", "–") if paper is None else (*(f"{one:g}" for one in paper), _ratio(*paper))),
                ]
            )  # fmt: skip
    header = (
        "tags", "images", "method", "full (s)", "sampled (s)", "full / sampled", "full (s), paper",
        "sampled (s), paper", "full / sampled, paper",
    )  # fmt: skip
    comparison.document.table(f"Table 1: seconds an epoch, hidden layers {network.name}", header, rows)


def _notes(
    comparison: Comparison, network: Network, shapes: Sequence[Shape], found: Mapping[tuple[int, str, str], Record]
) -> None:
    few, many = network.images
    shrunk = ", ".join(f"{shape.n_images / many:,.0f}" for shape in shapes)
    comparison.document.text(
        f"Drawn photos of the sizes of {', '.join(shape.name for shape in shapes)}: {FEATURES:,} features, five tags "
        f"each by Zipf's law, batches of {BATCH}, on the processor. Fits of {few} and {many} images are timed, and an "
        f"epoch is computed from the time per image: {shrunk} times as many images as were timed. The paper "
        "times 291 and 925 tags on a TitanX GPU, and says that 13,980 were out of reach for full Fast0Tag and 432,213 "
        "for it and for the full cross-entropy."
    )
    refused = {record["refused"] for record in found.values() if "refused" in record}
    comparison.document.items([f"Does not fit: {message}" for message in sorted(refused)])
    proposed = ROWS[-1].label
    seconds = [
        found[shape.n_tags, proposed, SAMPLED]["image"]
        for shape in shapes[-2:]
        if (shape.n_tags, proposed, SAMPLED) in found
    ]
    if len(seconds) == 2:
        comparison.document.text(
            f"An image of the sampled tagger takes {seconds[1] / seconds[0]:.2f} times as long with "
            f"{shapes[-1].n_tags:,} tags as with {shapes[-2].n_tags:,}."
        )


def time_claims(comparison: Comparison, shapes: Sequence[Shape], found: Mapping[tuple[int, str, str], Record]) -> None:
    """Judge the seconds of Table 1: sampled below full, and all tags by cross-entropy below all pairs."""
    for shape in shapes:
        by_pairs, by_tags = (_seconds(found.get((shape.n_tags, ROWS[row].label, FULL))) for row in (0, -1))
        if shape.n_tags in ROWS[0].paper and by_pairs is not None and by_tags is not None:
            theirs = [f"{ROWS[row].paper[shape.n_tags][0]:g} s" for row in (-1, 0)]
            comparison.claims.append(
                least_claim(
                    f"Full {ROWS[-1].label}",
                    f"full {ROWS[0].label}",
                    "seconds an epoch",
                    where=f"Table 1, {shape.n_tags} labels",
                    paper=(theirs[0], theirs[1]),
                    problem=f"drawn photos with {shape.n_tags} tags",
                    here=(by_tags, by_pairs),
                    unit="s",
                )
            )
        for row in ROWS:
            full, sampled = (_seconds(found.get((shape.n_tags, row.label, form))) for form in (FULL, SAMPLED))
            if shape.n_tags in row.paper and full is not None and sampled is not None:
                figures = [f"{one:g} s" for one in row.paper[shape.n_tags]]
                comparison.claims.append(
                    least_claim(
                        f"Sampled {row.label}",
                        f"full {row.label}",
                        "seconds an epoch",
                        where=f"Table 1, {shape.n_tags} labels",
                        paper=(figures[1], figures[0]),
                        problem=f"drawn photos with {shape.n_tags} tags",
                        here=(sampled, full),
                        unit="s",
                    )
                )


def _seconds(record: Record | None) -> float | None:
    return None if record is None else record.get("epoch")


def _cell(record: Record | None) -> str:
    if record is None:
        return "–"
    return "does not fit" if "refused" in record else f"{record['epoch']:.3g}"


def _ratio(full: float | None, sampled: float | None) -> str:
    return "–" if not full or not sampled else f"{full / sampled:.2g}"


def drawn_tags(n_images: int, n_tags: int, *, seed: int = 0) -> sp.csr_array:
    """Draw five tags an image, the tag of rank r in proportion to 1/r (Zipf), and each tag once if there is room.

    Returns
    -------
    csr_array of float32, shape (n_images, n_tags)
        Values are 1; an image that drew a tag twice has fewer than five.
    """
    rng = np.random.default_rng(seed)
    n = n_images * TAGS_AN_IMAGE
    tags = np.minimum(np.exp(rng.random(n) * np.log(n_tags + 1)).astype(np.int64), n_tags) - 1
    once = min(n_tags, n // 2)
    tags[rng.choice(n, once, replace=False)] = rng.permutation(n_tags)[:once]
    rows = np.repeat(np.arange(n_images), TAGS_AN_IMAGE)
    Y = sp.csr_array(sp.coo_array((np.ones(n, np.float32), (rows, tags)), shape=(n_images, n_tags)))
    Y.data[:] = 1
    return Y


def drawn_features(n_images: int, width: int, *, seed: int = 0) -> NDArray[np.float32]:
    """Draw features: normal, as many as an encoder gives."""
    return np.random.default_rng(seed).standard_normal((n_images, width), np.float32)
