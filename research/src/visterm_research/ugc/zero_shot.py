"""Table 2 of the sampled tagging paper, its first half: tags that no training image shows, found by their words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.packing import digest_of
from visterm.encoders import sentence_vectors
from visterm_research.comparison.claims import Claim, order_claim, percent
from visterm_research.comparison.methods import Method
from visterm_research.comparison.search import Settings
from visterm_research.papers import read_paper
from visterm_research.ugc.measures import K, harmonic
from visterm_research.ugc.methods import (
    AVERAGE,
    FAST0TAG,
    FIXED,
    FULL,
    PROPOSED,
    QUICK_NETWORK,
    SAMPLED_FAST0TAG,
    SAMPLED_FIXED,
)
from visterm_research.ugc.problems import LEARNED, QUICK_DIM, SENTENCES
from visterm_research.ugc.tag_run import TagRun
from visterm_research.zero_shot.arms import ZeroShotArm, zero_shot
from visterm_research.zero_shot.held_out import SHARE
from visterm_research.zero_shot.vectors import DIM, prepared, tag_list_vectors, word_sources

Floats = NDArray[np.float64]

paper = read_paper("ugc")

HELD_OUT, ALL_TAGS = "NUS-WIDE 925→81", "NUS-WIDE 925→1006"
"""Halves of the paper's Table 2."""

RANDOM = "random"

METHODS = (AVERAGE, FAST0TAG, FIXED, FULL, SAMPLED_FAST0TAG, SAMPLED_FIXED, PROPOSED)
"""Those of Table 2, and the average word vector, which is to be beaten."""

SHORT = {"hidden": [256], "epochs": 8, "learning_rate": 0.001}
LONG = {"hidden": [1024], "epochs": 15, "learning_rate": 0.0003}
BUDGET = ("epochs", "patience", "batch_size", "hidden", "learning_rate")
AS_THEY_ARE = " as they are"
"""Vectors that are not centred: so the average word vector does better."""

SEEDS, QUICK_SEEDS = (0, 1, 2), (0,)
"""Draws of held-out tags."""

STAYING = f"{PROPOSED}, words outside stay"
"""Without equations 3 and 4."""

PARTS = {HELD_OUT: ("held-out p@5", "held-out r@5"), ALL_TAGS: ("all p@5", "all r@5")}
"""What of `zero_shot_measures` stands beside which columns of the paper."""

ORDERS = (
    (PROPOSED, FAST0TAG, "held-out r@5"),
    (FULL, FAST0TAG, "held-out p@5"),
    (FULL, FAST0TAG, "all p@5"),
    (FULL, FAST0TAG, "all r@5"),
    *((PROPOSED, SAMPLED_FAST0TAG, of) for names in PARTS.values() for of in names),
    (PROPOSED, FULL, "held-out r@5"),
    (SAMPLED_FIXED, FIXED, "held-out r@5"),
    (SAMPLED_FAST0TAG, FAST0TAG, "held-out r@5"),
)
"""Section 4, where the table has it: optimised cross-entropy above Fast0Tag, sampled or not, and sampling lifts recall.
"""

CHANCE = "held-out chance"
WORD_MAP = "word map"
TIMES_CHANCE = 5.0

Vectors = dict[str, NDArray[np.float32]]

Values = dict[str, dict[str, Floats]]
"""By method: each measure image by image (or word by word), the draws one after another."""

Found = dict[tuple[str, str], dict[str, Floats]]
"""The same by method and source of vectors."""


def zero_shot_part(run: TagRun, methods: dict[str, Method]) -> None:
    """Hold out a fifth of the tags from training, find them on the test images, and write the table and its claims.

    Parameters
    ----------
    run : TagRun
    methods : dict of str to Method
        By label, those that are run.
    """
    quick = run.comparison.quick
    seeds = QUICK_SEEDS if quick else SEEDS
    sources = _sources(run)
    found: Found = {}
    for label in [label for label in METHODS if label in methods]:
        centred = [source for source in sources if not source.endswith(AS_THEY_ARE)]
        for source in centred if label == PROPOSED else [one for one in centred if one != RANDOM]:
            of_arms: Values | None = run.comparison.while_time(
                f"Table 2, {label} with {source} vectors on {run.name}",
                partial(_tested, run, methods[label], settings_of(methods[label], quick=quick), sources, source, seeds),
            )
            found |= {(name, source): values for name, values in (of_arms or {}).items()}
    if found:
        _table(run, found, len(seeds))
        _claims(run, found)


def _sources(run: TagRun) -> Vectors:
    """Return the vectors, centred and not; quick runs do without the sentence network, which takes long to load."""
    rows, seed, quick = run.problem.rows, run.comparison.trials.seed, run.comparison.quick
    learned = tag_list_vectors(rows.tags, rows.train.Y, dim=QUICK_DIM if quick else DIM, seed=seed)
    if quick:
        drawn = np.random.default_rng(seed).standard_normal(learned.shape).astype(np.float32)
        found = {LEARNED: prepared(learned), RANDOM: prepared(drawn)}
    else:
        found = word_sources(rows.tags, rows.train.Y, seed=seed)
    found[LEARNED + AS_THEY_ARE] = learned
    if SENTENCES in found:
        found[SENTENCES + AS_THEY_ARE] = sentence_vectors(rows.tags).matrix
    return found


def settings_of(method: Method, *, quick: bool) -> Settings:
    """Return the settings of a method: what tells it from others with the same model, and how long it learns."""
    own = {name: value for name, value in method.fixed.items() if name not in BUDGET}
    if quick:
        return {**own, **QUICK_NETWORK}
    power = {"power": 0.25} if "power" in method.box else {}
    return {**own, **power, **(LONG if method.label == AVERAGE else SHORT)}


def _tested(
    run: TagRun, method: Method, settings: Settings, sources: Vectors, source: str, seeds: tuple[int, ...]
) -> Values:
    """Return the measures of a method, all draws one after another; of the proposed one also with words that stay."""
    given = source + AS_THEY_ARE if method.label == AVERAGE else source
    ways = [ZeroShotArm(method.label, method.model, given, settings)]
    ways += [replace(ways[0], label=STAYING, moved=False)] if method.label == PROPOSED and source != RANDOM else []
    rows = run.problem.rows
    of = [
        rows.fingerprint,
        rows.test_fingerprint,
        method.model,
        settings,
        given,
        digest_of([sources[given]]),
        len(ways),
    ]
    trials = run.comparison.trials
    parts = [
        trials.once(f"{run.name}/zero-shot", [*of, seed], partial(_work, run, sources, ways, seed), [*of, seed])[
            "result"
        ]
        for seed in seeds
    ]
    return {
        way.label: {
            name: np.concatenate([np.array(part[way.label][name], np.float64) for part in parts])
            for name in parts[0][way.label]
        }
        for way in ways
    }


def _work(run: TagRun, sources: Vectors, ways: list[ZeroShotArm], seed: int) -> dict[str, Any]:
    found = zero_shot(run.problem.rows, sources, ways, seeds=(seed,), n_jobs=run.comparison.trials.n_jobs)
    return {"result": {one.arm.label: {name: values.tolist() for name, values in one.values.items()} for one in found}}


def _table(run: TagRun, found: Found, n_draws: int) -> None:
    rows = []
    for (label, source), values in found.items():
        cells = [label, source]
        for precision, recall in PARTS.values():
            p, r = float(np.nanmean(values[precision])), float(np.nanmean(values[recall]))
            cells += [percent(p), percent(r), percent(harmonic(p, r))]
        cells += [percent(float(np.nanmean(values[name]))) for name in (CHANCE, WORD_MAP)]
        theirs = [paper.TABLE_2[part].get(label) for part in PARTS]
        rows.append([*cells, *(" / ".join(f"{100 * value:g}" for value in five) if five else "–" for five in theirs)])
    among = ("held-out", "all")
    header = ["method", "word vectors", *(f"{part}: {figure}" for part in among for figure in ("P", "R", "F1"))]
    header += ["chance of P", "MAP of words", *(f"{part}: P / R / F1 (paper)" for part in PARTS)]
    run.comparison.document.table(f"Table 2 on {run.name}: tags that no training image has", header, rows)
    run.comparison.document.text(
        f"A share of {SHARE:g} of the tags is held out from training ({n_draws} draws), but every tag keeps its word "
        f"vector; each test image that has a held-out tag gets {K} tags. Held-out: ranked among held-out tags alone; "
        "all: among all tags, all of the image's right. 'Learned' vectors come from all training tag lists, as text; "
        f"'random' ones are a control that should fail. '{STAYING}' leaves out equations 3 and 4. Settings are the "
        "same for all data, chosen before on validation rows of Corel5k: networks learn for few epochs, because with "
        f"more they give words without training images low scores ({AVERAGE} is better with more epochs and with "
        "vectors that are not centred)."
    )


def _claims(run: TagRun, found: Found) -> None:
    """Judge the orders of the paper, and what the paper has no figures for and is aimed at."""
    for source in dict.fromkeys(source for _, source in found):
        proposed = found.get((PROPOSED, source))
        if proposed is None or source == RANDOM:
            continue
        name = f"{PROPOSED} (vectors: {source})"
        rivals = {other: found[other, source] for other in (AVERAGE, STAYING) if (other, source) in found}
        for first, second, of in ORDERS:
            if (first, source) in found and (second, source) in found:
                names = f"{first} (vectors: {source})", second
                pair = found[first, source], found[second, source]
                run.comparison.claims.append(_claim(run, names, of, *pair, theirs=_theirs(first, second, of)))
        if STAYING in rivals:
            run.comparison.claims += [
                _claim(run, (name, STAYING), of, proposed, rivals[STAYING]) for of in ("held-out p@5", WORD_MAP)
            ]
        chance = {"held-out p@5": TIMES_CHANCE * proposed[CHANCE]}
        run.aims.append(_claim(run, (name, f"{TIMES_CHANCE:g} times chance"), "held-out p@5", proposed, chance))
        if AVERAGE in rivals:
            run.aims += [
                _claim(run, (name, AVERAGE), of, proposed, rivals[AVERAGE]) for of in ("held-out p@5", "all p@5")
            ]
        if (PROPOSED, RANDOM) in found:
            control = f"{PROPOSED} (vectors: {RANDOM})"
            run.aims.append(_claim(run, (name, control), "held-out p@5", proposed, found[PROPOSED, RANDOM]))
    if run.aims:
        run.comparison.document.text("Our own goals, for which the paper has no figures:")
        run.comparison.document.items(
            [
                f"{aim.first} {aim.relation} {aim.second} by {aim.of}: {aim.verdict} ({aim.here[0]} against "
                f"{aim.here[1]}; {aim.detail})"
                for aim in run.aims
            ]
        )


def _claim(
    run: TagRun,
    names: tuple[str, str],
    of: str,
    first: dict[str, Floats],
    second: dict[str, Floats],
    *,
    theirs: tuple[str, str] = ("", ""),
) -> Claim:
    """Judge an order by the resampled images (or words)."""
    where = "Table 2" if any(theirs) else "section 2.1" if names[1] == STAYING else "aimed at"
    return order_claim(*names, of, (first[of], second[of]), where=where, problem=run.name, paper=theirs)


def _theirs(first: str, second: str, of: str) -> tuple[str, str]:
    """Return the paper's figures of two methods."""
    part = next(part for part, names in PARTS.items() if of in names)
    place = PARTS[part].index(of)
    figures = [f"{100 * paper.TABLE_2[part][label][place]:g} %" for label in (first, second)]
    return figures[0], figures[1]
