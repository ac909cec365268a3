"""Table 2 of the sampled tagging paper, its first half: tags that no training image shows, found by their words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.app.reproduce import paper_ugc as paper
from visterm.app.reproduce.arms import Arm
from visterm.app.reproduce.claims import RESAMPLES, Claim, percent
from visterm.app.reproduce.paper_ugc import (
    ALL_TAGS,
    AVERAGE,
    FAST0TAG,
    FIXED,
    FULL,
    HELD_OUT,
    PROPOSED,
    SAMPLED_FAST0TAG,
    SAMPLED_FIXED,
)
from visterm.app.reproduce.problem import digest_of
from visterm.app.reproduce.ugc_measures import K, harmonic
from visterm.app.reproduce.ugc_problems import LEARNED, QUICK_DIM
from visterm.app.reproduce.ugc_run import TagRun, chosen_settings
from visterm.app.reproduce.zero_shot import ZeroShotArm, zero_shot
from visterm.app.reproduce.zero_shot_split import SHARE
from visterm.app.reproduce.zero_shot_vectors import prepared, word_sources
from visterm.metrics import paired_bootstrap

Floats = NDArray[np.float64]

RANDOM = "random"

METHODS = (AVERAGE, FAST0TAG, FIXED, FULL, SAMPLED_FAST0TAG, SAMPLED_FIXED, PROPOSED)
"""Those of Table 2, and the average word vector, which is to be beaten."""

SEEDS, QUICK_SEEDS = (0, 1, 2), (0,)
"""Draws of held-out tags."""

STAYING = f"{PROPOSED}, words outside stay"
"""Without equations 3 and 4."""

PARTS = {HELD_OUT: ("held-out p@5", "held-out r@5"), ALL_TAGS: ("all p@5", "all r@5")}
"""What of `zero_shot_measures` stands beside which columns of the paper."""

CHANCE = "held-out chance"
WORD_MAP = "word map"
TIMES_CHANCE = 5.0

Vectors = dict[str, NDArray[np.float32]]

Values = dict[str, dict[str, Floats]]
"""By method: each measure image by image (or word by word), the draws one after another."""

Found = dict[tuple[str, str], dict[str, Floats]]
"""The same by method and source of vectors."""


def zero_shot_part(run: TagRun, arms: dict[str, Arm], *, quick: bool) -> None:
    """Hold out a fifth of the tags from training, find them on the test images, and write the table and its claims.

    Settings of a method are those chosen for five tags an image.

    Parameters
    ----------
    run : TagRun
    arms : dict of str to Arm
        By label, those that are run.
    """
    seeds = QUICK_SEEDS if quick else SEEDS
    sources = _sources(run, quick=quick)
    found: Found = {}
    for label in [label for label in METHODS if label in arms]:
        for source in sources if label == PROPOSED else [one for one in sources if one != RANDOM]:
            of_arms: Values | None = run.comparison.while_time(
                f"Table 2, {label} with {source} vectors on {run.name}",
                partial(_tested, run, arms[label], sources, source, seeds),
            )
            found |= {(name, source): values for name, values in (of_arms or {}).items()}
    if found:
        _table(run, found, len(seeds))
        _claims(run, found)


def _sources(run: TagRun, *, quick: bool) -> Vectors:
    """Give the vectors; quick runs do without the sentence network, which takes long to load."""
    rows = run.problem.rows
    if not quick:
        return word_sources(rows.tags, rows.train.Y, seed=run.trials.seed)
    drawn = np.random.default_rng(run.trials.seed).standard_normal((len(rows.tags), QUICK_DIM))
    return {LEARNED: run.problem.words.tags, RANDOM: prepared(drawn.astype(np.float32))}


def _tested(run: TagRun, arm: Arm, sources: Vectors, source: str, seeds: tuple[int, ...]) -> Values:
    """Give the measures of a method, all draws one after another; of the proposed one also with words that stay."""
    settings = chosen_settings(run, arm)
    ways = [ZeroShotArm(arm.label, arm.model, source, settings)]
    ways += [replace(ways[0], label=STAYING, moved=False)] if arm.label == PROPOSED and source != RANDOM else []
    rows = run.problem.rows
    of = [rows.fingerprint, rows.test_fingerprint, arm.model, settings, source, digest_of([sources[source]]), len(ways)]
    parts = [
        run.trials.once(f"{run.name}/zero-shot", [*of, seed], partial(_work, run, sources, ways, seed))
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
    found = zero_shot(run.problem.rows, sources, ways, seeds=(seed,), n_jobs=run.trials.n_jobs)
    return {one.arm.label: {name: values.tolist() for name, values in one.values.items()} for one in found}


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
    header += ["chance of P", "MAP of words", *(f"{part}: P / R / F1" for part in PARTS)]
    run.comparison.document.table(f"Table 2 on {run.name}: tags that no training image has", header, rows)
    run.comparison.document.text(
        f"A share of {SHARE:g} of the tags is kept from training ({n_draws} draws), and all tags keep their word "
        f"vectors; {K} tags a test image that has a held-out one. Held-out: ranked among held-out tags alone; all: "
        "among all tags, all of the image's right. 'Learned' vectors are of all training tag lists, as text; 'random' "
        f"ones are the control that must fail. '{STAYING}' leaves out equations 3 and 4. Settings are those that were "
        "chosen for five tags an image."
    )


def _claims(run: TagRun, found: Found) -> None:
    claims = run.comparison.claims
    for source in dict.fromkeys(source for _, source in found):
        proposed = found.get((PROPOSED, source))
        if proposed is None or source == RANDOM:
            continue
        name = f"{PROPOSED} ({source} vectors)"
        chance = TIMES_CHANCE * proposed[CHANCE]
        relation = f"at least {TIMES_CHANCE:g} times as good as"
        values = proposed["held-out p@5"], chance
        claims.append(_claim(run, (name, "chance"), "held-out p@5", values, relation=relation))
        for other, measures in (
            (AVERAGE, ("held-out p@5", "all p@5")),
            (FAST0TAG, ("held-out r@5",)),
            (STAYING, ("held-out p@5", WORD_MAP)),
        ):
            if (other, source) in found:
                for measure in measures:
                    values = proposed[measure], found[other, source][measure]
                    theirs = _theirs(PROPOSED, other, measure)
                    claims.append(_claim(run, (name, other), measure, values, theirs=theirs))
        if (PROPOSED, RANDOM) in found:
            values = proposed["held-out p@5"], found[PROPOSED, RANDOM]["held-out p@5"]
            claims.append(_claim(run, (name, f"{PROPOSED} ({RANDOM} vectors)"), "held-out p@5", values))


def _theirs(first: str, second: str, measure: str) -> tuple[str, str]:
    if measure != "held-out r@5":
        return "", ""
    table = paper.TABLE_2[HELD_OUT]
    return f"{100 * table[first].recall:g} %", f"{100 * table[second].recall:g} %"


def _claim(
    run: TagRun,
    names: tuple[str, str],
    of: str,
    values: tuple[Floats, Floats],
    *,
    relation: str = "better than",
    theirs: tuple[str, str] = ("", ""),
) -> Claim:
    difference = paired_bootstrap(*values, n_resamples=RESAMPLES)
    verdict = "yes" if difference.low > 0 else "no" if difference.high < 0 else "too close to call"
    where = "Table 2" if theirs[0] else "section 2.1" if names[1] == STAYING else "aimed at"
    here = [percent(float(np.nanmean(array))) for array in values]
    if relation != "better than":
        here[1] = f"{TIMES_CHANCE:g} times chance is {here[1]}"
    detail = f"95 % interval of the difference {percent(difference.low)} to {percent(difference.high)}"
    return Claim(*names, of, where, run.name, theirs, (here[0], here[1]), verdict, detail, relation)
