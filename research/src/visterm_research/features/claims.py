"""The orders of the objects-and-parts paper's Tables 1 and 2, judged here: features first, then methods and losses."""

from __future__ import annotations

from visterm_research.comparison.arms import APPROX_KNN, AUC, EXACT_KNN, LINEAR_AUC, ONE_VS_REST, WARP_LINEAR, WSABIE
from visterm_research.comparison.claims import metric_claim
from visterm_research.comparison.feature_sets import ENSEMBLE, OUR_VISTERMS, PAPER_VISTERMS, FeatureSet
from visterm_research.features.photo_run import PhotoRun, named
from visterm_research.papers import objects_and_parts as paper

METHODS = tuple(arm.label for arm in (WSABIE, EXACT_KNN, APPROX_KNN, LINEAR_AUC, ONE_VS_REST))
"""Of Table 1."""

Cell = tuple[str, FeatureSet]
"""A method of Table 1 on some features."""

ON_VISTERMS = (
    (WSABIE.label, EXACT_KNN.label, ("p@1",)),
    (WSABIE.label, LINEAR_AUC.label, ("p@1", "p@10")),
    (EXACT_KNN.label, LINEAR_AUC.label, ("p@1",)),
    (LINEAR_AUC.label, ONE_VS_REST.label, ("p@1", "p@10")),
    (ONE_VS_REST.label, APPROX_KNN.label, ("p@1",)),
)
LOSSES = ((WSABIE.label, AUC.label), (WARP_LINEAR.label, LINEAR_AUC.label), (WARP_LINEAR.label, WSABIE.label))


def feature_claims(run: PhotoRun) -> None:
    """Judge the ensemble with kernel PCA against visterms, the paper's and ours."""
    for visterms in (PAPER_VISTERMS, OUR_VISTERMS):
        for method, metrics in ((WSABIE.label, ("p@1", "p@10")), (EXACT_KNN.label, ("p@1",))):
            for metric in metrics:
                _table_1(run, (method, ENSEMBLE), (method, visterms), metric)
        for method in METHODS:
            first, second = (named(run.label(method, one), one) for one in (ENSEMBLE, visterms))
            _claim(run, first, second, "map", (paper.WHATEVER_THE_METHOD, None, None))


def method_claims(run: PhotoRun) -> None:
    """Judge the methods of Table 1 against each other, on the paper's visterms and on the ensemble."""
    for first, second, metrics in ON_VISTERMS:
        for metric in metrics:
            _table_1(run, (first, PAPER_VISTERMS), (second, PAPER_VISTERMS), metric)
    _table_1(run, (WSABIE.label, ENSEMBLE), (EXACT_KNN.label, ENSEMBLE), "p@1")
    _table_1(run, (EXACT_KNN.label, ENSEMBLE), (WSABIE.label, PAPER_VISTERMS), "p@1")


def loss_claims(run: PhotoRun) -> None:
    """Judge WARP against AUC in Table 2, and the linear model against the embedding."""
    theirs = {label: value for figures in paper.TABLE_2.values() for label, value in figures.items()}
    for first, second in LOSSES:
        names = named(first, PAPER_VISTERMS), named(second, PAPER_VISTERMS)
        _claim(run, *names, "p@1", (f"Table 2, {paper.DATA}", theirs[first], theirs[second]))


def paper_label(method: str, features: FeatureSet) -> str:
    """Return a method's name in Table 1, where WSABIE's has its size."""
    return f"{method} [d={paper.SIZES[features.stands_for]}]" if method == WSABIE.label else method


def _table_1(run: PhotoRun, first: Cell, second: Cell, metric: str) -> None:
    above, below = (
        paper.TABLE_1[paper_label(method, features), features.stands_for][metric]
        for method, features in (first, second)
    )
    names = [named(run.label(method, features), features) for method, features in (first, second)]
    _claim(run, names[0], names[1], metric, (f"Table 1, {paper.DATA}", above, below))


def _claim(run: PhotoRun, first: str, second: str, metric: str, theirs: tuple[str, float | None, float | None]) -> None:
    values = run.values()
    if first in values and second in values:
        claim = metric_claim(first, second, metric, paper=theirs, problem=run.name, values=values)
        run.comparison.claims.append(claim)
