"""The order of the tables and figures of the PAMIR comparison."""

from __future__ import annotations

from collections.abc import Sequence

from visterm_research.pamir.arms import AUTO, PAMIR, SearchArm
from visterm_research.pamir.feature_blocks import BY_BLOCK, PAPER_BY_BLOCK, QUICK_PAPER, QUICK_TRIED
from visterm_research.pamir.five_tags import five_tags_part
from visterm_research.pamir.kernels import kernels_part
from visterm_research.pamir.pictures import pictures_part
from visterm_research.pamir.results import (
    kind_claims,
    kinds_part,
    order_claims,
    result_claims,
    results_part,
)
from visterm_research.pamir.run import SearchRun
from visterm_research.pamir.tables import (
    blocks_part,
    costs_part,
    learning_part,
    settings_part,
    statistics_part,
)
from visterm_research.papers import pamir as paper


def report(
    small: SearchRun,
    large: SearchRun | None,
    extra: SearchRun | None,
    arms: Sequence[SearchArm],
    more: Sequence[SearchArm],
    *,
    whole: bool,
) -> None:
    """Write all tables, and judge the orders that the paper has.

    Parameters
    ----------
    small : SearchRun
        In place of CorelSmall.
    large : SearchRun, optional
        In place of CorelLarge.
    extra : SearchRun, optional
        The first pictures with one more kind of features.
    arms, more : sequences of SearchArm
        The paper's methods and others.
    whole : bool
        Whether no methods were left out on request.
    """
    document = small.comparison.document
    runs = [(small, paper.SMALL)] + ([] if large is None else [(large, paper.LARGE)])
    labels = [arm.label for arm in (*arms, *more)]
    document.section("The pictures and queries")
    for number, (run, theirs) in zip(("I", "II"), runs, strict=False):
        statistics_part(run, number, theirs)
    document.section("What was chosen on validation queries")
    ours, plain = (QUICK_TRIED[:1], QUICK_PAPER) if small.quick else (BY_BLOCK, PAPER_BY_BLOCK)
    if any(arm.label == PAMIR.label for arm in arms):
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
        pictures_part(large, 5, paper.FIGURE_5)
    if extra is not None:
        document.section("With one more kind of features", "Here the SVM has one C for all words, to save time.")
        results_part(extra, "IX", paper.SMALL, paper.TABLE_9, "all", labels)
        _refused(extra, [*arms, *more])
    _five_tags(small, extra, [*arms, *more, *([AUTO] if whole else [])])


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
    result_claims(run, "XII", paper.TABLE_12, "test only")


def _refused(run: SearchRun, arms: Sequence[SearchArm]) -> None:
    """Say which methods are missing because they count visterms, and these features are no counts."""
    if run.choices:
        features = next(iter(run.choices.values())).features
        labels = [arm.label for arm in arms if not run.takes(arm, features)]
        if labels:
            run.comparison.document.text(
                f"Without {', '.join(labels)}: these take features as counts of visterms, 0 or more, and some of "
                f"{features.label} are below 0."
            )


def _five_tags(small: SearchRun, extra: SearchRun | None, arms: Sequence[SearchArm]) -> None:
    chosen = [next(iter(run.choices.values())).features for run in (extra,) if run is not None and run.choices]
    if PAMIR.label in small.choices:
        chosen.append(small.choices[PAMIR.label].features)
    if chosen:
        small.comparison.document.section("Annotation with five tags an image")
    for features in chosen:
        five_tags_part(small, features, list(arms))
