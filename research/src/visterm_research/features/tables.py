"""Tables 1 and 2 of the objects-and-parts paper, what the features change, and the orders of both, judged here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from visterm.metrics import Difference, paired_bootstrap
from visterm_research.comparison.claims import RESAMPLES, order_claim, percent, shown_metric
from visterm_research.comparison.feature_sets import CHAIN, ENSEMBLE, OUR_VISTERMS, PAPER_VISTERMS, FeatureSet
from visterm_research.comparison.figures import draw_lines
from visterm_research.comparison.methods import APPROX_KNN, AUC, EXACT_KNN, ONE_VS_REST, RIDGE, WARP_LINEAR, WSABIE
from visterm_research.comparison.problem import CURVE
from visterm_research.comparison.verdicts import NO, UNSURE, YES, by_interval
from visterm_research.features.photo_run import LINEAR_AUC, METHODS, PhotoRun, named, paper_label
from visterm_research.papers import read_paper

paper = read_paper("objects_and_parts")

METRICS = ("p@1", "p@10", "map")
MODELS = ("embedding", "linear")
"""Rows of Table 2."""

Cell = tuple[str, FeatureSet]
"""A method of Table 1 on some features."""

ON_VISTERMS = (
    (WSABIE.label, EXACT_KNN.label, ("p@1",)),
    (WSABIE.label, LINEAR_AUC.label, ("p@1", "p@10")),
    (EXACT_KNN.label, LINEAR_AUC.label, ("p@1",)),
    (LINEAR_AUC.label, ONE_VS_REST.label, ("p@1", "p@10")),
    (ONE_VS_REST.label, APPROX_KNN.label, ("p@1",)),
)
LOSSES = (
    (WSABIE.label, AUC.label),
    (WARP_LINEAR.label, LINEAR_AUC.label),
    (WARP_LINEAR.label, WSABIE.label),
    (LINEAR_AUC.label, AUC.label),
)


def features_part(run: PhotoRun) -> None:
    """Describe what the features are, beside the paper's."""
    rows: list[list[str]] = []
    for features in run.sets:
        problem = run.problems[features.slug]
        rows.append([features.label, features.settings, f"{problem.train.X.shape[1]:,}", f"{problem.nonzeros:,.0f}"])
    rows.extend([f"{name} (paper)", "–", *figures] for name, figures in paper.FEATURES.items())
    header = ("features", "encoder", "numbers per image", "non-zero")
    run.comparison.document.table(f"Features of {run.name}", header, rows)


def results_part(run: PhotoRun) -> None:
    """Table 1: all methods on all features, and the paper's rows."""
    rows = []
    for method in (*METHODS, RIDGE.label):
        for features in run.sets:
            for label, shown in _labels(run, method, features):
                here = run.found(features).get(label)
                if here is not None:
                    rows.append([shown, features.label, run.name, *(percent(here.metrics[one]) for one in METRICS)])
        for features in (PAPER_VISTERMS, ENSEMBLE):
            theirs = paper.TABLE_1.get((paper_label(method, features), features.stands_for))
            if theirs is not None:
                cells = [percent(theirs[one]) if one in theirs else "–" for one in METRICS]
                name = paper_label(method, features)
                rows.append([name, features.stands_for, f"{paper.DATA} (paper)", *cells])
    header = ("method", "features", "data", *map(shown_metric, METRICS))
    run.comparison.document.table(f"Table 1 on {run.name}: the test images", header, rows)
    run.comparison.document.text(
        "Larger embeddings have the settings that were chosen at 100 dimensions. The paper's images have one tag each: "
        f"its p@10 is at most 10 %. {paper.SIZE_REMARK}"
    )


def losses_part(run: PhotoRun) -> None:
    """Table 2: AUC against WARP, on visterms as in the paper."""
    if PAPER_VISTERMS.slug not in run.problems:
        return
    found = run.found(PAPER_VISTERMS)
    rows = []
    for name, pair in zip(MODELS, ((AUC, WSABIE), (LINEAR_AUC, WARP_LINEAR)), strict=True):
        here = [percent(found[arm.label].metrics["p@1"]) if arm.label in found else "–" for arm in pair]
        theirs = [percent(paper.TABLE_2[name][arm.label]) for arm in pair]
        shown = f"{name} [d={WSABIE.fixed['dim']}]" if name == "embedding" else name
        rows += [[shown, run.name, *here], [shown, f"{paper.DATA} (paper)", *theirs]]
    header = ("model", "data", "AUC, p@1", "WARP, p@1")
    run.comparison.document.table(f"Table 2 on {run.name}: losses, on {PAPER_VISTERMS.label}", header, rows)


def differences_part(run: PhotoRun) -> list[str]:
    """Show what the ensemble brings each method over visterms, and a chain over its better part, by MAP.

    Returns
    -------
    list of str
        The same in sentences: for how many methods which features are above which.
    """
    rows, signs = [], []
    for method in (*METHODS, RIDGE.label):
        cells = [method]
        for features in run.sets:
            one = run.tested(method, features)
            cells.append("–" if one is None else percent(one.metrics["map"]))
        better = max((OUR_VISTERMS, ENSEMBLE), key=lambda part: _map(run, method, part))
        pairs = ((ENSEMBLE, PAPER_VISTERMS), (ENSEMBLE, OUR_VISTERMS), (CHAIN, better))
        differences = [_difference(run, method, first, second) for first, second in pairs]
        rows.append([*cells, *map(_shown, differences)])
        signs.append(differences)
    header = (
        "method",
        *(features.label for features in run.sets),
        f"{ENSEMBLE.label} less {PAPER_VISTERMS.label}",
        f"{ENSEMBLE.label} less {OUR_VISTERMS.label}",
        "both together less the better of them",
    )
    run.comparison.document.table(f"MAP by features on {run.name}", header, rows)
    run.comparison.document.text(
        f"In brackets: 95 % intervals from {RESAMPLES:,} resamples of the test images. WSABIE has the size that the "
        "paper's Table 1 has for such features."
    )
    firsts = (
        f"{ENSEMBLE.label} above {PAPER_VISTERMS.label}",
        f"{ENSEMBLE.label} above {OUR_VISTERMS.label}",
        "both together above the better of them",
    )
    sentences = [
        _counted(run.name, first, column) for first, column in zip(firsts, zip(*signs, strict=True), strict=True)
    ]
    return [sentence for sentence in sentences if sentence]


def precision_part(run: PhotoRun) -> None:
    """Precision at each k of WSABIE and of exact neighbours, by features."""
    panels = []
    for method in (WSABIE.label, EXACT_KNN.label):
        lines = {}
        for features in run.sets:
            tested = run.tested(method, features)
            if tested is not None:
                lines[features.label] = list(CURVE), [100 * tested.metrics[f"p@{k}"] for k in CURVE]
        if lines:
            panels.append((method, lines))
    if not panels:
        return
    name = f"figures/features-{run.name}.png"
    draw_lines(run.comparison.out / name, panels, x="k (tags an image)", y="precision at k (%)")
    run.comparison.document.picture(name, f"Precision at k by features on {run.name}, test images.")


def feature_claims(run: PhotoRun) -> None:
    """Judge the ensemble with kernel PCA against visterms, the paper's and ours."""
    for visterms in (PAPER_VISTERMS, OUR_VISTERMS):
        for method, metrics in ((WSABIE.label, ("p@1", "p@10")), (EXACT_KNN.label, ("p@1",))):
            for metric in metrics:
                _table_1(run, (method, ENSEMBLE), (method, visterms), metric)
        for method in METHODS:
            first, second = (named(run.label(method, one), one) for one in (ENSEMBLE, visterms))
            _claim(run, first, second, "map", paper.WHATEVER_THE_METHOD, ("", ""))


def method_claims(run: PhotoRun) -> None:
    """Judge the methods of Table 1 against each other, on the paper's visterms and on the ensemble."""
    for first, second, metrics in ON_VISTERMS:
        for metric in metrics:
            _table_1(run, (first, PAPER_VISTERMS), (second, PAPER_VISTERMS), metric)
    _table_1(run, (WSABIE.label, ENSEMBLE), (EXACT_KNN.label, ENSEMBLE), "p@1")
    _table_1(run, (EXACT_KNN.label, ENSEMBLE), (WSABIE.label, PAPER_VISTERMS), "p@1")
    large = paper.TABLE_1[paper_label(WSABIE.label, PAPER_VISTERMS), PAPER_VISTERMS.stands_for]["p@1"]
    theirs = percent(large), percent(paper.TABLE_2["embedding"][WSABIE.label])
    names = [named(label, PAPER_VISTERMS) for label in (run.label(WSABIE.label, PAPER_VISTERMS), WSABIE.label)]
    _claim(run, names[0], names[1], "p@1", "section 6.1: smaller embeddings are slightly worse", theirs)


def loss_claims(run: PhotoRun) -> None:
    """Judge WARP against AUC in Table 2, and the linear model against the embedding."""
    theirs = {label: value for figures in paper.TABLE_2.values() for label, value in figures.items()}
    for first, second in LOSSES:
        names = named(first, PAPER_VISTERMS), named(second, PAPER_VISTERMS)
        _claim(run, *names, "p@1", f"Table 2, {paper.DATA}", (percent(theirs[first]), percent(theirs[second])))


def _labels(run: PhotoRun, method: str, features: FeatureSet) -> list[tuple[str, str]]:
    """Return the names under which a method was tested, and those that the table has for them."""
    if method != WSABIE.label:
        return [(method, method)]
    large = run.label(method, features)
    return [(method, f"{method} [d={WSABIE.fixed['dim']}]"), (large, large)]


def _map(run: PhotoRun, method: str, features: FeatureSet) -> float:
    tested = run.tested(method, features)
    return 0.0 if tested is None else tested.metrics["map"]


def _difference(run: PhotoRun, method: str, first: FeatureSet, second: FeatureSet) -> Difference | None:
    one, other = run.tested(method, first), run.tested(method, second)
    if one is None or other is None:
        return None
    return paired_bootstrap(one.values["map"], other.values["map"], n_resamples=RESAMPLES)


def _shown(difference: Difference | None) -> str:
    if difference is None:
        return "–"
    return f"{100 * difference.mean:+.2f} % ({100 * difference.low:+.2f} to {100 * difference.high:+.2f})"


def _counted(photos: str, what: str, differences: Sequence[Difference | None]) -> str:
    known = [one for one in differences if one is not None]
    if not known:
        return ""
    counts = Counter(by_interval(one.low, one.high) for one in known)
    return (
        f"On {photos}, by MAP: {what} for {counts[YES]} of {len(known)} methods, below for {counts[NO]}, too close to "
        f"call for {counts[UNSURE]}."
    )


def _table_1(run: PhotoRun, first: Cell, second: Cell, metric: str) -> None:
    above, below = (
        paper.TABLE_1[paper_label(method, features), features.stands_for][metric]
        for method, features in (first, second)
    )
    names = [named(run.label(method, features), features) for method, features in (first, second)]
    _claim(run, names[0], names[1], metric, f"Table 1, {paper.DATA}", (percent(above), percent(below)))


def _claim(run: PhotoRun, first: str, second: str, metric: str, where: str, theirs: tuple[str, str]) -> None:
    values = run.values()
    if first in values and second in values:
        pair = values[first][metric], values[second][metric]
        run.comparison.claims.append(
            order_claim(first, second, shown_metric(metric), pair, where=where, problem=run.name, paper=theirs)
        )
