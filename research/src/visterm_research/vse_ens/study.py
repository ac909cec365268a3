"""`visterm reproduce vse-ens`: Tables 1 to 4 and Figure 1 of the VSE-ens paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.vocabulary import Vocabulary
from visterm.data import hold_one_out, read_table, sibling_sets
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
from visterm_research.data.mulan import read_mulan
from visterm_research.papers import read_paper

paper = read_paper("vse_ens")

BY_NUMBER = {
    "dim": 100, "epochs": 100, "patience": 30, "row_length": 1.0, "init_scale": 0.01, "max_norm": 10.0,
    "standardize": False,
}  # fmt: skip
"""The VSE-ens paper's: 100 dimensions, start values N(0, 0.01), L2 and no limit of norms."""

PAPER_RANGE = (0.001, 0.003, 0.01, 0.03, 0.1)
"""In which the paper tunes learning rates and L2 of all models."""

BY_NUMBER_STEPS: Box = {"learning_rate": Axis(PAPER_RANGE), "l2": Axis(PAPER_RANGE)}
RANKS: Box = {"rank_scale": Axis((0.001, 0.01, 0.1, 1.0))}

NUMBER_TRIALS = 24
"""Settings that each method tries: with 16, the fourth digit of MAP decided which of two far peaks was searched."""

VSE_WARP = Method("WARP", "wsabie", {**PAPER_STEPS, **BY_NUMBER}, BY_NUMBER_STEPS, trials=NUMBER_TRIALS)
VSE_ENS = Method("VSE-ens", "vse_ens", BY_NUMBER, {**BY_NUMBER_STEPS, **RANKS}, trials=NUMBER_TRIALS)
OPT_AUC = Method("Opt-AUC", "opt_auc", {**PAPER_STEPS, **BY_NUMBER}, BY_NUMBER_STEPS, trials=NUMBER_TRIALS)

VALID_IMAGES = 5_000
"""Images, of those with two tags left, of which a second tag is held out to choose settings by."""

METRICS = ("p@5", "r@5", "p@10", "r@10", "map", "auc")
PAIRS = ((VSE_ENS.label, VSE_WARP.label), (VSE_WARP.label, OPT_AUC.label))
STEP_PAIRS = ((OPT_AUC.label, VSE_ENS.label), (VSE_ENS.label, VSE_WARP.label))
"""Table 3: k operations a step, 2 k, and T k."""

TIME_PAIRS = ((VSE_ENS.label, VSE_WARP.label), (VSE_ENS.label, OPT_AUC.label), (OPT_AUC.label, VSE_WARP.label))
EPOCH_PAIRS = ((VSE_WARP.label, VSE_ENS.label), (VSE_ENS.label, OPT_AUC.label))
REFERENCE = "NUS-WIDE"
"""Of the paper's three data sets the one whose figures stand in the claims."""

NEAR = 0.99
"""A model has converged, for the time of training, once it has this share of its own best validation MAP."""


def number_problems(options: Options) -> Iterator[Problem]:
    """Yield the problems of images known only by number: those of the folders, then pairs drawn by Zipf's law."""
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
    """Read the tags of Delicious's pages, and leave the words of the pages alone."""
    parts = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    Y = sp.csr_array(sp.vstack([part.Y for part in parts], format="csr"))
    tags = [tag.removeprefix("TAG_") for tag in parts[0].tags]
    return held_tag_problem("delicious-tags", "Delicious (Mulan): web pages by number", Y, tags, seed)


def zipf_problem(n_images: int, n_tags: int, *, seed: int) -> Problem:
    """Draw which images have which tags."""
    dictionary = draw_dictionary(n_tags, random_state=seed)
    Y = draw_pairs(n_images, dictionary, random_state=seed + 1)
    what = f"drawn from the seed {seed}: tags of Zipf's law in families"
    siblings = sibling_sets(dictionary.is_a(), Vocabulary(dictionary.names()))
    return held_tag_problem("zipf", what, Y, dictionary.names(), seed, siblings)


def held_tag_problem(
    name: str, what: str, Y: sp.csr_array, tags: list[str], seed: int, siblings: sp.csr_array | None = None
) -> Problem:
    """Hold out one tag of each image that has two or more, and of some a second one for validation.

    The protocol of the VSE-ens paper. What is held out for validation is not learned from for the final judgement
    either, so that all models see the same rows, but it is left out of the rankings there, as all known tags are.
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
    """Refuse folders that hold neither NUS-WIDE nor Delicious."""
    known_folders(options.data, (NUSWIDE, DELICIOUS))


STUDY = Study(
    paper.PAPER, "The VSE-ens comparison, run again", (VSE_ENS, VSE_WARP, OPT_AUC, PRIOR), run, check
)  # fmt: skip
"""Tables 2 to 4 and Figure 1 of the VSE-ens paper."""


def data_part(comparison: Comparison, problem: Problem) -> None:
    """Table 1: how large the data are."""
    here = {
        "images": problem.train.Y.shape[0],
        "tags": len(problem.tags),
        "training pairs": int((problem.train.Y > 0).sum()),
        "test pairs": int((problem.test.Y > 0).sum()),
    }
    rows = [[name, f"{here[name]:,}", *(f"{value:,}" for value in values)] for name, values in paper.TABLE_1.items()]
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
    """Table 3: the paper's complexity of a step, and the draws and microseconds of a pair as measured."""
    tested = comparison.tested[problem.name]
    n_pairs = int((problem.train.Y > 0).sum())
    rows, taken = [], {}
    for label in dict.fromkeys([*paper.TABLE_3, *tested]):
        curve = [] if label not in tested else _drawn(tested[label].choice.record["curve"])
        if not curve:
            if label in paper.TABLE_3:
                rows.append([label, paper.TABLE_3[label], "–", "–", "–", "–"])
            continue
        draws = sum(point["draws"] for point in curve) / len(curve)
        steps = sum(point["violated"] for point in curve) / len(curve)
        taken[label] = 1e6 * curve[-1]["seconds"] / (len(curve) * n_pairs)
        rows.append(
            [
                label,
                paper.TABLE_3.get(label, "–"),
                f"{draws:.2f}",
                f"{steps:.1%}",
                f"{draws / steps:.2f}" if steps else "–",
                f"{taken[label]:.2f}",
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
    comparison.document.table(f"Table 3 on {problem.name}: what a step takes", header, rows)
    comparison.document.text(
        "Means over the epochs of the chosen setting. k is the size of the embedding, T the mean number of draws."
    )
    cost_claims(comparison, problem, STEP_PAIRS, taken, "time of a step", "µs", paper.TABLE_3, "Table 3")


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
        f"Time to {NEAR:.0%} of a method's own best validation MAP, with its chosen setting; measuring is not counted."
    )
    written, where = {label: f"{row[REFERENCE]:g} h" for label, row in paper.TABLE_4.items()}, f"Table 4, {REFERENCE}"
    cost_claims(comparison, problem, TIME_PAIRS, times, "time of training", "s", written, where)
    theirs, where = (
        {label: f"about {count}" for label, count in paper.ITERATIONS.items()},
        "Comparison in Training Time",
    )
    cost_claims(comparison, problem, EPOCH_PAIRS, epochs, "epochs of training", "epochs", theirs, where)


def cost_claims(
    comparison: Comparison,
    problem: Problem,
    pairs: Sequence[tuple[str, str]],
    here: Mapping[str, float],
    of: str,
    unit: str,
    theirs: Mapping[str, str],
    where: str,
) -> None:
    """Judge by what the first method of each pair takes less than the second, where both were measured."""
    for first, second in pairs:
        if first in here and second in here:
            comparison.claims.append(
                least_claim(
                    first,
                    second,
                    of,
                    where=where,
                    paper=(theirs[first], theirs[second]),
                    problem=problem.name,
                    here=(here[first], here[second]),
                    unit=unit,
                )
            )


def draws_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 1: draws until a violator is found, epoch by epoch; and how good the models are meanwhile."""
    curves = {label: _drawn(tested.choice.record["curve"]) for label, tested in comparison.tested[problem.name].items()}
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
    comparison.document.picture(name, f"After how much training, on {problem.name} (chosen settings).")
    if VSE_WARP.label in curves:
        comparison.claims.append(_more_draws(problem, curves[VSE_WARP.label]))


def converged(curve: list[Record]) -> Record | None:
    """Return the first point of a training that has `NEAR` of its best validation MAP; None where none was measured."""
    measured = [point for point in curve if point["map"] is not None]
    if not measured:
        return None
    best = max(point["map"] for point in measured)
    return next(point for point in measured if point["map"] >= NEAR * best)


def _more_draws(problem: Problem, curve: list[Record]) -> Claim:
    first, last = curve[0]["draws"], curve[-1]["draws"]
    return Claim(
        f"WARP's draws after {len(curve)} epochs",
        "after the first one",
        "number (the search takes longer as training goes on)",
        "Figure 1, NUS-WIDE",
        problem.name,
        (f"about {paper.FIGURE_1['NUS-WIDE'][0]:,}", "few"),
        (f"{last:.2f}", f"{first:.2f}"),
        by_ratio(first, last),
        relation="higher than",
    )


def _drawn(curve: list[Record]) -> list[Record]:
    return [point for point in curve if point["draws"] is not None]
