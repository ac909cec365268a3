"""`visterm reproduce vse-ens`: Tables 1 to 4 and Figure 1 of the VSE-ens paper, compared with the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.vocabulary import Vocabulary
from visterm.data import hold_one_out, read_mulan, read_table, sibling_sets
from visterm_research.comparison.claims import Claim, least_claim, shown_metric
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.methods import PAPER_STEPS, PRIOR, Method
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.search import Axis, Box
from visterm_research.comparison.sources import DELICIOUS, NUSWIDE, known_folders
from visterm_research.comparison.verdicts import by_ratio
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs
from visterm_research.papers import read_paper

paper = read_paper("vse_ens")

BY_NUMBER = {
    "dim": 100, "epochs": 100, "patience": 30, "row_length": 1.0, "init_scale": 0.01, "max_norm": 10.0,
    "standardize": False,
}  # fmt: skip
"""Settings of the VSE-ens paper: 100 dimensions, start values N(0, 0.01), L2 and no limit of norms."""

PAPER_RANGE = (0.001, 0.003, 0.01, 0.03, 0.1)
"""The values to which the paper tunes learning rates and L2 of all models."""

BY_NUMBER_STEPS: Box = {"learning_rate": Axis(PAPER_RANGE), "l2": Axis(PAPER_RANGE)}
RANKS: Box = {"rank_scale": Axis((0.001, 0.01, 0.1, 1.0))}

NUMBER_TRIALS = 24
"""Number of trials per method: with 16, the fourth digit of MAP decided which of two distant peaks was searched."""

VSE_WARP = Method("WARP", "wsabie", {**PAPER_STEPS, **BY_NUMBER}, BY_NUMBER_STEPS, trials=NUMBER_TRIALS)
VSE_ENS = Method("VSE-ens", "vse_ens", {**PAPER_STEPS, **BY_NUMBER}, {**BY_NUMBER_STEPS, **RANKS}, trials=NUMBER_TRIALS)
OPT_AUC = Method("Opt-AUC", "opt_auc", {**PAPER_STEPS, **BY_NUMBER}, BY_NUMBER_STEPS, trials=NUMBER_TRIALS)

VALID_IMAGES = 5_000
"""Maximum number of images with two remaining tags, of which a second tag is held out to choose settings."""

METRICS = ("p@5", "r@5", "p@10", "r@10", "map", "auc")
PAIRS = ((VSE_ENS.label, VSE_WARP.label), (VSE_WARP.label, OPT_AUC.label))
STEP_PAIRS = ((OPT_AUC.label, VSE_ENS.label), (VSE_ENS.label, VSE_WARP.label))
"""Pairs for Table 3: k operations per step, 2 k, and T k."""

TIME_PAIRS = ((VSE_ENS.label, VSE_WARP.label), (VSE_ENS.label, OPT_AUC.label), (OPT_AUC.label, VSE_WARP.label))
EPOCH_PAIRS = ((VSE_WARP.label, VSE_ENS.label), (VSE_ENS.label, OPT_AUC.label))
REFERENCE = "NUS-WIDE"
"""The one of the paper's three data sets whose figures are in the claims."""

CONVERGED_SHARE = 0.99
"""For the time of training, a model has converged when it has this share of its best validation MAP."""


def number_problems(options: Options) -> Iterator[Problem]:
    """Yield problems of images known only by number: from the folders, then pairs that are drawn by Zipf's law."""
    seed = options.seed
    for kind, folder in known_folders(options.data, (NUSWIDE, DELICIOUS)):
        yield (nuswide_problem if kind == NUSWIDE else delicious_tag_problem)(folder, seed=seed)
    yield zipf_problem(600, 120, seed=seed) if options.quick else zipf_problem(30_000, 5000, seed=seed)


def nuswide_problem(folder: Path, *, seed: int) -> Problem:
    """Read the tags of NUS-WIDE's images: ``labels.tsv`` with the columns row and labels."""
    records = read_table(folder / "labels.tsv", image_column="row", tags_column="labels", separator=",")
    lists = [record.tags for record in records]
    vocabulary = Vocabulary.from_lists(lists)
    Y = vocabulary.encode(lists)
    n_concepts = len(vocabulary)  # In the name, and so in every line: the paper's NUS-WIDE has 5,108 tags
    what = f"NUS-WIDE, the images with at least one of its {n_concepts} concepts"
    return held_tag_problem(f"nuswide-{n_concepts}-concepts", what, Y, vocabulary.tags, seed)


def delicious_tag_problem(folder: Path, *, seed: int) -> Problem:
    """Read the tags of Delicious's pages, without the words of the pages."""
    parts = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    Y = sp.csr_array(sp.vstack([part.Y for part in parts], format="csr"))
    tags = [tag.removeprefix("TAG_") for tag in parts[0].tags]
    return held_tag_problem("delicious-tags", "Delicious (Mulan): web pages by number", Y, tags, seed)


def zipf_problem(n_images: int, n_tags: int, *, seed: int) -> Problem:
    """Draw the tags of images."""
    dictionary = draw_dictionary(n_tags, random_state=seed)
    Y = draw_pairs(n_images, dictionary, random_state=seed + 1)
    what = f"drawn from the seed {seed}: tags of Zipf's law in families"
    siblings = sibling_sets(dictionary.is_a(), Vocabulary(dictionary.names()))
    return held_tag_problem("zipf", what, Y, dictionary.names(), seed, siblings)


def held_tag_problem(
    name: str, what: str, Y: sp.csr_array, tags: list[str], seed: int, siblings: sp.csr_array | None = None
) -> Problem:
    """Hold out one tag of each image that has two or more, and a second tag of some images for validation.

    This is the protocol of the VSE-ens paper. Models for the final results don't learn the validation tags either, so
    that all models have the same rows, but rankings leave these tags out, like all known tags.
    """
    rng = np.random.default_rng(seed)
    test = hold_one_out(Y, rng)
    valid = hold_one_out(test.rest, rng, at_most=VALID_IMAGES)
    X = sp.eye_array(Y.shape[0], dtype=np.float32, format="csr")
    return Problem(
        name,
        f"{what}; one tag held out of each of the {test.images.size:,} images with two or more, and a second one of "
        f"{valid.images.size:,} for validation",
        tags,
        Rows(X, valid.rest),
        Rows(sp.csr_array(X[valid.images]), valid.held, valid.known),
        Rows(sp.csr_array(X[test.images]), test.held, test.known),
        siblings=siblings,
        by_number=True,
    )


def run(comparison: Comparison) -> dict[str, Any]:
    """Run the comparison on images that are known only by their number.

    One tag of each image with two or more is held out, and tags that a model learned from are left out of
    rankings. Pairs of a large dictionary are always drawn besides NUS-WIDE and Delicious.
    """
    for problem in number_problems(comparison.options):
        comparison.begin(problem)
        data_part(comparison, problem)
        results_part(comparison, problem)
        complexity_part(comparison, problem)
        time_part(comparison, problem)
        draws_part(comparison, problem)
        comparison.trials.forget(problem.name)
    comparison.settings_part()
    return {}


def check(options: Options, _methods: Sequence[Method]) -> None:
    """Raise an error for a folder without NUS-WIDE and Delicious."""
    known_folders(options.data, (NUSWIDE, DELICIOUS))


STUDY = Study(
    paper.PAPER, "VSE-ens", (VSE_ENS, VSE_WARP, OPT_AUC, PRIOR), run, check
)  # fmt: skip
"""Tables 2 to 4 and Figure 1 of the VSE-ens paper."""


def data_part(comparison: Comparison, problem: Problem) -> None:
    """Table 1: sizes of the data."""
    counts = {
        "images": problem.train.Y.shape[0],
        "tags": len(problem.tags),
        "training pairs": int((problem.train.Y > 0).sum()),
        "test pairs": int((problem.test.Y > 0).sum()),
    }
    rows = [[name, f"{counts[name]:,}", *(f"{value:,}" for value in values)] for name, values in paper.TABLE_1.items()]
    header = ["", problem.name, *(f"{name} (paper)" for name in paper.DATA)]
    comparison.document.table(f"Table 1 on {problem.name}: the data", header, rows)


def results_part(comparison: Comparison, problem: Problem) -> None:
    """Table 2: ranking the held-out tags."""
    tested = comparison.tested[problem.name]
    rows: list[list[str]] = []
    for label in dict.fromkeys([*paper.TABLE_2, *tested]):
        if label in tested:
            rows.append([label, problem.name, *(f"{tested[label].metrics[name]:.4f}" for name in METRICS)])
        for data, theirs in paper.TABLE_2.get(label, {}).items():
            rows.append([label, f"{data} (paper)", *(f"{theirs[name]:.4f}" for name in METRICS)])
    if VSE_ENS.label in tested and VSE_WARP.label in tested:
        ours, warp = tested[VSE_ENS.label].metrics, tested[VSE_WARP.label].metrics
        gains = [f"{100 * (ours[name] / warp[name] - 1):+.2f} %" if warp[name] else "–" for name in METRICS]
        rows.append(["VSE-ens over WARP", problem.name, *gains])
    for data in paper.DATA:
        ours, warp = (paper.TABLE_2[label][data] for label in PAIRS[0])
        rows.append(
            ["VSE-ens over WARP", f"{data} (paper)", *(f"{100 * (ours[m] / warp[m] - 1):+.2f} %" for m in METRICS)]
        )
    header = ("method", "data", *map(shown_metric, METRICS))
    comparison.document.table(f"Table 2 on {problem.name}: the held-out tags", header, rows)
    for first, second in PAIRS:
        for metric in ("r@5", "r@10", "map", "auc"):
            theirs = paper.TABLE_2[first][REFERENCE][metric], paper.TABLE_2[second][REFERENCE][metric]
            comparison.judge_order(problem, first, second, metric, where=f"Table 2, {REFERENCE}", paper=theirs)


def complexity_part(comparison: Comparison, problem: Problem) -> None:
    """Table 3: the paper's complexity of a step, and the measured draws and microseconds per pair."""
    tested = comparison.tested[problem.name]
    n_pairs = int((problem.train.Y > 0).sum())
    rows, step_microseconds = [], {}
    for label in dict.fromkeys([*paper.TABLE_3, *tested]):
        curve = [] if label not in tested else _points_with_draws(tested[label].choice.record["curve"])
        if not curve:
            if label in paper.TABLE_3:
                rows.append([label, paper.TABLE_3[label], "–", "–", "–", "–"])
            continue
        draws = sum(point["draws"] for point in curve) / len(curve)
        steps = sum(point["violated"] for point in curve) / len(curve)
        step_microseconds[label] = 1e6 * curve[-1]["seconds"] / (len(curve) * n_pairs)
        rows.append(
            [
                label,
                paper.TABLE_3.get(label, "–"),
                f"{draws:.2f}",
                f"{steps:.1%}",
                f"{draws / steps:.2f}" if steps else "–",
                f"{step_microseconds[label]:.2f}",
            ]
        )
    header = (
        "method",
        "complexity (paper)",
        "draws a pair",
        "pairs that make a step",
        "draws a step",
        "microseconds a pair",
    )
    comparison.document.table(f"Table 3 on {problem.name}: the cost of a step", header, rows)
    comparison.document.text(
        "Means over the epochs of the chosen setting. k is the size of the embedding, T the mean number of draws."
    )
    cost_claims(comparison, problem, STEP_PAIRS, step_microseconds, "time of a step", "µs", paper.TABLE_3, "Table 3")


def time_part(comparison: Comparison, problem: Problem) -> None:
    """Table 4: the time of training until a model has converged."""
    rows, times, epochs = [], {}, {}
    tested = comparison.tested[problem.name]
    for label in dict.fromkeys([*paper.TABLE_4, *tested]):
        point = converged(tested[label].choice.record["curve"]) if label in tested else None
        if point is not None:
            times[label], epochs[label] = point["seconds"], float(point["epoch"])
            record = tested[label].choice.record
            rows.append([label, problem.name, f"{point['seconds']:.2f} s", str(point["epoch"]), f"{record['map']:.4f}"])
        for data, hours in paper.TABLE_4.get(label, {}).items():
            rows.append([label, f"{data} (paper)", f"{hours:g} h", "–", "–"])
    header = ("method", "data", "time of training", "epochs", "best validation MAP")
    comparison.document.table(f"Table 4 on {problem.name}: training until converged", header, rows)
    comparison.document.text(
        f"Time to {CONVERGED_SHARE:.0%} of a method's own best validation MAP, with its chosen setting; measuring is "
        "not counted."
    )
    paper_times, where = (
        {label: f"{row[REFERENCE]:g} h" for label, row in paper.TABLE_4.items()},
        f"Table 4, {REFERENCE}",
    )
    cost_claims(comparison, problem, TIME_PAIRS, times, "time of training", "s", paper_times, where)
    paper_epochs, where = (
        {label: f"about {count}" for label, count in paper.ITERATIONS.items()},
        "Comparison in Training Time",
    )
    cost_claims(comparison, problem, EPOCH_PAIRS, epochs, "epochs of training", "epochs", paper_epochs, where)


def cost_claims(
    comparison: Comparison,
    problem: Problem,
    pairs: Sequence[tuple[str, str]],
    costs: Mapping[str, float],
    cost_text: str,
    unit: str,
    paper_costs: Mapping[str, str],
    where: str,
) -> None:
    """Judge whether the first method of each pair costs less than the second, if both were measured."""
    for first, second in pairs:
        if first in costs and second in costs:
            comparison.claims.append(
                least_claim(
                    first,
                    second,
                    cost_text,
                    where=where,
                    paper=(paper_costs[first], paper_costs[second]),
                    problem=problem.name,
                    here=(costs[first], costs[second]),
                    unit=unit,
                )
            )


def draws_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 1: draws until a violator is found, and the quality of the models, by epoch."""
    curves = {
        label: _points_with_draws(tested.choice.record["curve"])
        for label, tested in comparison.tested[problem.name].items()
    }
    curves = {label: curve for label, curve in curves.items() if curve}
    if not curves:
        return
    draws: dict[str, Line] = {
        label: ([p["epoch"] for p in curve], [p["draws"] for p in curve]) for label, curve in curves.items()
    }
    name = f"figures/draws-{problem.name}.png"
    draw_lines(comparison.out / name, [(problem.name, draws)], x="epoch", y="draws a pair (mean)")
    theirs = ", ".join(f"{count:,} on {data}" for data, (count, _) in paper.FIGURE_1.items())
    comparison.document.picture(
        name, f"Figure 1 on {problem.name}: negatives drawn for a pair. The paper's WARP levels off at about {theirs}."
    )
    gains: dict[str, Line] = {
        label: (
            [p["seconds"] for p in curve if p["map"] is not None],
            [p["map"] for p in curve if p["map"] is not None],
        )
        for label, curve in curves.items()
    }
    name = f"figures/training-{problem.name}.png"
    draw_lines(
        comparison.out / name,
        [(problem.name, gains)],
        x="seconds of training",
        y="MAP over the validation images",
        log_x=True,
    )
    comparison.document.picture(
        name, f"Validation MAP by seconds of training on {problem.name}, with the chosen settings."
    )
    if VSE_WARP.label in curves:
        comparison.claims.append(_more_draws(problem, curves[VSE_WARP.label]))


def converged(curve: list[Record]) -> Record | None:
    """Return the first point of a training with `CONVERGED_SHARE` of its best MAP; None if MAP was not measured."""
    points = [point for point in curve if point["map"] is not None]
    if not points:
        return None
    best = max(point["map"] for point in points)
    return next(point for point in points if point["map"] >= CONVERGED_SHARE * best)


def _more_draws(problem: Problem, curve: list[Record]) -> Claim:
    first_draws, last_draws = curve[0]["draws"], curve[-1]["draws"]
    return Claim(
        f"WARP's draws after {len(curve)} epochs",
        "after the first one",
        "number (the search takes longer as training goes on)",
        "Figure 1, NUS-WIDE",
        problem.name,
        (f"about {paper.FIGURE_1['NUS-WIDE'][0]:,}", "few"),
        (f"{last_draws:.2f}", f"{first_draws:.2f}"),
        by_ratio(first_draws, last_draws),
        relation="higher than",
    )


def _points_with_draws(curve: list[Record]) -> list[Record]:
    return [point for point in curve if point["draws"] is not None]
