"""Tables IX to XIII of the PAMIR paper: measures over the test queries by kind of query, and their significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from visterm.metrics import SignedRanks, signed_ranks
from visterm_research.comparison.claims import RESAMPLES, Claim, percent, ranks_claim
from visterm_research.comparison.verdicts import NO, UNSURE, YES, by_interval, by_ranks, p_of_interval
from visterm_research.pamir.methods import PAMIR, SVM
from visterm_research.pamir.search_run import SearchRun
from visterm_research.papers import read_paper

paper = read_paper("pamir")

PAMIR_VERDICTS = {YES: "better", NO: "worse", UNSURE: "neither"}
"""Words for PAMIR compared with another method."""

Floats = NDArray[np.float64]
Columns = Mapping[str, Mapping[str, Floats]]
Shares = Mapping[str, Mapping[str, float]]


def results_part(run: SearchRun, number: str, theirs: str, shares: Shares, kind: str, labels: Sequence[str]) -> None:
    """Tables IX, XII and XIII: AvgP, BEP and P10 over queries of a kind, with Wilcoxon's test of PAMIR against each."""
    columns = run.columns(labels)
    is_kind = run.pictures.kinds[kind]
    rows = []
    for label in columns:
        cells = [_mean_cell(run, columns, label, measure, kind) for measure in paper.MEASURES]
        tests = [_test_cell(run, columns, label, measure, kind) for measure in paper.MEASURES]
        rows.append([label, *cells, *tests, *(_paper_cell(shares[measure], label) for measure in paper.MEASURES)])
    header = (
        "method",
        *paper.MEASURES,
        *(f"PAMIR by {measure}" for measure in paper.MEASURES),
        *(f"{measure} ({theirs}, paper)" for measure in paper.MEASURES),
    )
    caption = f"Table {number} on {run.name}: {_kind_text(kind)} ({int(is_kind.sum()):,})"
    run.comparison.document.table(caption, header, rows)


def kinds_part(run: SearchRun, number: str, shares: Shares, labels: Sequence[str]) -> None:
    """Tables X and XI: AvgP over two kinds of queries."""
    columns = run.columns(labels)
    rows = []
    for label in columns:
        cells = [_mean_cell(run, columns, label, "AvgP", kind) for kind in shares]
        tests = [_test_cell(run, columns, label, "AvgP", kind) for kind in shares]
        rows.append([label, *cells, *tests, *(_paper_cell(shares[kind], label) for kind in shares)])
    names = [f"{kind} ({int(run.pictures.kinds[kind].sum()):,})" for kind in shares]
    header = ("method", *names, *(f"PAMIR on {kind}" for kind in shares), *(f"{kind} (paper)" for kind in shares))
    run.comparison.document.table(f"Table {number} on {run.name}: AvgP by kind of query", header, rows)


def result_claims(run: SearchRun, number: str, shares: Shares, kind: str) -> None:
    """Judge PAMIR against each of the paper's methods by every measure of a table, and SVM against the others."""
    columns = run.columns(paper.METHODS)
    for measure in paper.MEASURES:
        for other in paper.METHODS[:-1]:
            _claim(run, columns, (PAMIR.label, other), measure, shares[measure], f"Table {number}", kind)


def kind_claims(run: SearchRun, number: str, shares: Shares) -> None:
    """Judge PAMIR against each of the paper's methods on kinds of queries, by AvgP."""
    columns = run.columns(paper.METHODS)
    for kind in shares:
        for other in paper.METHODS[:-1]:
            _claim(run, columns, (PAMIR.label, other), "AvgP", shares[kind], f"Table {number}", kind)


def order_claims(run: SearchRun, number: str, shares: Shares) -> None:
    """Judge the order of the other methods by AvgP: SVM above PLSA, PLSA above CMTT and CMRM."""
    columns = run.columns(paper.METHODS)
    for pair in (("SVM", "PLSA"), ("PLSA", "CMTT"), ("PLSA", "CMRM"), ("CMTT", "CMRM")):
        _claim(run, columns, pair, "AvgP", shares["AvgP"], f"Table {number}", "all")


def gain_claim(run: SearchRun, number: str, shares: Shares, more: str, less: str) -> None:
    """Judge whether PAMIR gains more over the SVM on one kind of queries than on another (section V-C), by AvgP.

    A gain is the ratio of the two means; queries of either kind are resampled.
    """
    columns = run.columns(paper.METHODS)
    pair = (PAMIR.label, SVM.label)
    kind_flags = [run.pictures.kinds[kind] for kind in (more, less)]
    if not all(label in columns for label in pair) or any(chosen.sum() < 2 for chosen in kind_flags):
        return
    values = [(columns[pair[0]]["AvgP"][chosen], columns[pair[1]]["AvgP"][chosen]) for chosen in kind_flags]
    rng = np.random.default_rng(0)
    resampled = [_resampled_gains(*pair_values, rng) for pair_values in values]
    low, high = np.quantile(resampled[0] - resampled[1], [0.025, 0.975])
    our_gains = [f"{np.nanmean(first) / np.nanmean(second) - 1:+.1%}" for first, second in values]
    paper_gains = [f"{shares[kind][pair[0]] / shares[kind][pair[1]] - 1:+.1%}" for kind in (more, less)]
    run.comparison.claims.append(
        Claim(
            f"PAMIR's gain over SVM on {_kind_text(more)}", f"that on {_kind_text(less)}", "AvgP", f"Table {number}",
            run.name, (paper_gains[0], paper_gains[1]), (our_gains[0], our_gains[1]),
            by_interval(float(low), float(high)),
            f"95 % interval of the difference {low:+.1%} to {high:+.1%}", "greater than",
            p_of_interval(float(low), float(high)),
        )
    )  # fmt: skip


def _resampled_gains(first: Floats, second: Floats, rng: np.random.Generator) -> Floats:
    rows = rng.integers(first.size, size=(RESAMPLES, first.size))
    return np.asarray(np.nanmean(first[rows], axis=1) / np.nanmean(second[rows], axis=1) - 1)


def compared(run: SearchRun, columns: Columns, pair: tuple[str, str], measure: str, kind: str) -> SignedRanks:
    """Compare two methods by Wilcoxon's signed rank test over queries, whose values are means over divisions."""
    if (pair, measure, kind) not in run.tests:
        first, second = (columns[label][measure][run.pictures.kinds[kind]] for label in pair)
        run.tests[pair, measure, kind] = signed_ranks(first, second)
    return run.tests[pair, measure, kind]


def _claim(
    run: SearchRun,
    columns: Columns,
    pair: tuple[str, str],
    measure: str,
    shares: Mapping[str, float],
    where: str,
    kind: str,
) -> None:
    first, second = pair
    is_kind = run.pictures.kinds[kind]
    if first not in columns or second not in columns or not is_kind.any() or shares[first] <= shares[second]:
        return
    measure_text = measure if kind == "all" else f"{measure} over {_kind_text(kind)}"
    values = columns[first][measure][is_kind], columns[second][measure][is_kind]
    figures = shares[first], shares[second]
    run.comparison.claims.append(
        ranks_claim(first, second, measure_text, values, where=where, problem=run.name, paper=figures)
    )


def _mean_cell(run: SearchRun, columns: Columns, label: str, measure: str, kind: str) -> str:
    """Return a mean as text, bold if the method is better than all other methods of the paper, as in its tables."""
    is_kind = run.pictures.kinds[kind]
    if not is_kind.any():
        return "–"
    mean = percent(float(np.nanmean(columns[label][measure][is_kind])))
    others = [other for other in paper.METHODS if other in columns and other != label]
    if label not in paper.METHODS or not others:
        return mean
    best = all(by_ranks(compared(run, columns, (label, other), measure, kind)) == YES for other in others)
    return f"**{mean}**" if best else mean


def _test_cell(run: SearchRun, columns: Columns, label: str, measure: str, kind: str) -> str:
    """Return the text whether PAMIR is significantly better or worse than a method, with the p-value."""
    if PAMIR.label not in columns or label == PAMIR.label or not run.pictures.kinds[kind].any():
        return "–"
    test = compared(run, columns, (PAMIR.label, label), measure, kind)
    return f"{PAMIR_VERDICTS[by_ranks(test)]} (p = {test.p_value:.1g})"


def _paper_cell(shares: Mapping[str, float], label: str) -> str:
    return percent(shares[label]) if label in shares else "–"


def _kind_text(kind: str) -> str:
    return {
        "all": "all test queries",
        "easy": "easy queries",
        "difficult": "difficult queries",
        "one word": "queries of one word",
        "several words": "queries of several words",
        "test only": "queries that no development picture answers",
    }[kind]
