"""The order of the tables and figures of the PAMIR comparison, and its part of results.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm_research.comparison.methods import Method
from visterm_research.pamir.five_tags import five_tags_part
from visterm_research.pamir.kernels import kernels_part
from visterm_research.pamir.methods import AUTO, BY_BLOCK, PAMIR, PAPER_BY_BLOCK, QUICK_PAPER, QUICK_TRIED
from visterm_research.pamir.pictures import pictures_part
from visterm_research.pamir.results import (
    gain_claim,
    kind_claims,
    kinds_part,
    order_claims,
    result_claims,
    results_part,
)
from visterm_research.pamir.rows import BY_QUERY
from visterm_research.pamir.search_run import SearchRun
from visterm_research.pamir.tables import blocks_part, costs_part, learning_part, settings_part, statistics_part
from visterm_research.papers import read_paper

paper = read_paper("pamir")


def report(
    small: SearchRun,
    large: SearchRun | None,
    extra: SearchRun | None,
    methods: Sequence[Method],
    more: Sequence[Method],
    *,
    whole: bool,
) -> None:
    """Write all tables, and judge the orders that the paper has.

    Parameters
    ----------
    small : SearchRun
        Replaces CorelSmall.
    large : SearchRun, optional
        Replaces CorelLarge.
    extra : SearchRun, optional
        The pictures of `small` with one more kind of features.
    methods, more : sequences of Method
        The paper's methods and other methods.
    whole : bool
        Whether the comparison runs all methods.
    """
    document = small.comparison.document
    runs = [(small, paper.SMALL)] + ([] if large is None else [(large, paper.LARGE)])
    labels = [method.label for method in (*methods, *more)]
    document.section("The pictures and queries")
    for number, (run, theirs) in zip(("I", "II"), runs, strict=False):
        statistics_part(run, number, theirs)
    document.section("What was chosen on validation queries")
    ours, plain = (QUICK_TRIED[:1], QUICK_PAPER) if small.comparison.quick else (BY_BLOCK, PAPER_BY_BLOCK)
    if any(method.label == PAMIR.label for method in methods):
        blocks_part(small, ours, plain)
        kernels_part(small)
        learning_part(runs)
    settings_part([*runs, *([] if extra is None else [(extra, paper.SMALL)])])
    document.section("What it costs")
    for run, theirs in runs:
        costs_part(run, theirs)
    document.section(f"Over the test queries of {small.name}")
    _results(small, labels)
    pictures_part(small, 4, paper.FIGURE_4)
    if large is not None:
        document.section(f"Over the test queries of {large.name}, in place of {paper.LARGE}")
        results_part(large, "XIII", paper.LARGE, paper.TABLE_13, "all", labels)
        result_claims(large, "XIII", paper.TABLE_13, "all")
        order_claims(large, "XIII", paper.TABLE_13)
        pictures_part(large, 5, paper.FIGURE_5)
    if extra is not None:
        document.section("With one more kind of features", "Here the SVM has one C for all words, to save time.")
        results_part(extra, "IX", paper.SMALL, paper.TABLE_9, "all", labels)
        _refused(extra, [*methods, *more])
    _five_tags(small, extra, [*methods, *more, *([AUTO] if whole else [])])


def _results(run: SearchRun, labels: Sequence[str]) -> None:
    results_part(run, "IX", paper.SMALL, paper.TABLE_9, "all", labels)
    run.comparison.document.text(
        "Bold: better than all other methods of the paper, by Wilcoxon's signed rank test at 95 %. The columns "
        '"PAMIR by" say whether PAMIR is better than the method of the row, and the p-value.'
    )
    kinds_part(run, "X", paper.TABLE_10, labels)
    kinds_part(run, "XI", paper.TABLE_11, labels)
    results_part(run, "XII", paper.SMALL, paper.TABLE_12, "test only", labels)
    result_claims(run, "IX", paper.TABLE_9, "all")
    order_claims(run, "IX", paper.TABLE_9)
    kind_claims(run, "X", paper.TABLE_10)
    kind_claims(run, "XI", paper.TABLE_11)
    gain_claim(run, "X", paper.TABLE_10, "difficult", "easy")
    gain_claim(run, "XI", paper.TABLE_11, "several words", "one word")
    result_claims(run, "XII", paper.TABLE_12, "test only")


def _refused(run: SearchRun, methods: Sequence[Method]) -> None:
    """Write which methods are missing because they need counts of visterms, and these features are not counts."""
    if run.choices:
        features = next(iter(run.choices.values())).features
        labels = [method.label for method in methods if not run.takes(method, features)]
        if labels:
            run.comparison.document.text(
                f"Without {', '.join(labels)}: these need counts of visterms, 0 or more, and some features of "
                f"{features.label} are negative."
            )


def _five_tags(small: SearchRun, extra: SearchRun | None, methods: Sequence[Method]) -> None:
    chosen = [next(iter(run.choices.values())).features for run in (extra,) if run is not None and run.choices]
    if PAMIR.label in small.choices:
        chosen.append(small.choices[PAMIR.label].features)
    if chosen:
        small.comparison.document.section("Annotation with five tags an image")
    for features in chosen:
        five_tags_part(small, features, list(methods))


def summary(run: SearchRun, label: str) -> dict[str, Any]:
    """Return the chosen settings and the results of a method, for results.json."""
    choice = run.choices[label]
    summary: dict[str, Any] = {
        "model": choice.method.model,
        "features": {"encoder": choice.features.encoder, "settings": dict(choice.features.params)},
        "settings": choice.settings,
        "validation": {name: value for name, value in choice.record.items() if name != BY_QUERY},
        "tried_features": {slug: record["avgp"] for slug, record in choice.by_features.items()},
        "widened": list(choice.widened),
        "at_an_edge": choice.at_an_edge,
        "tried_settings": [{"settings": settings, "avgp": record["avgp"]} for settings, record in choice.tried],
    }
    result = run.found.get(label)
    if result is not None:
        summary["divisions"] = len(result.judged)
        summary["test"] = {
            kind: {
                name: float(np.nanmean(values[is_kind])) if is_kind.any() else None
                for name, values in result.values.items()
            }
            for kind, is_kind in run.pictures.kinds.items()
        }
        summary["test_by_division"] = [
            {name: float(np.nanmean(values)) for name, values in judged.values.items() if name != "top"}
            for judged in result.judged
        ]
    return summary


def described(run: SearchRun) -> dict[str, Any]:
    """Return the numbers of pictures, words and queries, for results.json."""
    pictures = run.pictures
    return {
        "development_pictures": len(pictures.development),
        "test_pictures": len(pictures.test),
        "training_pictures": int(pictures.divisions[0].train.size),
        "divisions": len(pictures.divisions),
        "words": len(pictures.words),
        "test_queries": {kind: int(chosen.sum()) for kind, chosen in pictures.kinds.items()},
    }
