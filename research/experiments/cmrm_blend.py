"""CMRM blended with a visual model in searches by several words, on Corel5k's photos as visterms; as JSON.

CMRM's scores are probabilities, most of them next to 0, the others' are not. Three blends, each with PAMIR and with
ridge: of the scores as they are, brought to mean 0 and variance 1, as `ensemble` does; of log P(tag | photo), as
products of probabilities need, with CMRM's smoothing chosen for the blend; and of log odds by a calibration of each.

Models learn from one part of the training photos; smoothing, weights and calibrations are chosen on a second, by the
average precision of queries of two or three tags; a third is judged, once. Test photos are not used. Differences have
paired 95 % bootstrap intervals over the queries.

    python cmrm_blend.py SHARED --cache CACHE --json figures/cmrm_blend.json
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded
from harness.runs import machine, options, say, write
from numpy.typing import NDArray

from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.data.tag_queries import queries_of_tags
from visterm.metrics.retrieval import rank_queries
from visterm.metrics.significance import paired_bootstrap
from visterm.models.confidence.calibration import log_sigmoid
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm.models.linear.ridge import Ridge
from visterm.models.pamir.pamir import Pamir
from visterm_research.data.drawn_tags import draw_visterms
from visterm_research.models.generative.cmrm import Cmrm

Floats = NDArray[Any]
Chosen = tuple[float, ...]

PARTS = (2500, 900, 900)  # Photos to learn from, to choose by, and to judge
QUERIES = 800  # The most that choose
ALPHAS, BETAS = (0.02, 0.1, 0.3, 0.5, 0.8), (0.1, 0.3, 0.6, 0.9, 0.98)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # Of CMRM
LEAST = 1e-12  # Of a probability, before its log


class Searches(NamedTuple):
    """Weighed queries of two or three tags, and the photos that they should find."""

    words: sp.csr_array
    relevant: sp.csr_array

    def precision(self, scores: Floats) -> Floats:
        """Return the average precision of each query, words summed."""
        found: Floats = rank_queries(
            np.ascontiguousarray(scores, np.float32), self.words, self.relevant
        ).average_precision()
        return found


def searches(Y: sp.csr_array, idf: Floats, most: int | None) -> Searches:
    """Make queries of the photos' tags, of those that two photos or more have."""
    common = np.asarray((Y > 0).sum(axis=0)).ravel() >= 2
    made = queries_of_tags(sp.csr_array(Y @ sp.diags_array(common.astype(np.float32))), max_words=3)
    several = np.flatnonzero(np.diff(made.words.indptr) > 1)
    if most is not None:
        several = np.sort(np.random.default_rng(0).permutation(several)[:most])
    return Searches(weigh_words(sp.csr_array(made.words[several]), idf), sp.csr_array(made.relevant[several]))


class Shares(NamedTuple):
    """CMRM's P(tag | photo) before smoothing by the tags' frequency."""

    own: Floats
    frequency: Floats

    def smoothed(self, alpha: float) -> Floats:
        """Return P(tag | photo) with this share of the frequency."""
        return (1 - alpha) * self.own + alpha * self.frequency


def shares_of(model: Cmrm, X: Any) -> Shares:
    """Take the smoothing of a fitted model's scores back."""
    frequency = model.background_ / model.alpha_
    return Shares((model.decision_function(X) - model.background_) / (1 - model.alpha_), frequency)


def standardised(scores: Floats, by: Floats | None = None) -> Floats:
    """Return scores less the mean of others, and over their deviation."""
    by = scores if by is None else by
    return (scores - by.mean(dtype=np.float64)) / by.std(dtype=np.float64)


class Sides(NamedTuple):
    """What a model says of the photos to choose by and of those to judge."""

    choose: Floats
    judge: Floats


def scaled(sides: Sides) -> Sides:
    """Bring both to the mean and deviation of the first."""
    return Sides(standardised(sides.choose), standardised(sides.judge, sides.choose))


def best(candidates: dict[Chosen, Sides], by: Searches) -> tuple[Chosen, Sides]:
    """Return the candidate whose first side ranks best."""
    reached = {name: float(np.nanmean(by.precision(sides.choose))) for name, sides in candidates.items()}
    name = max(reached, key=lambda each: reached[each])
    return name, candidates[name]


def mixes(cmrm: Sides, visual: Sides, more: Chosen = ()) -> dict[Chosen, Sides]:
    """Mix two models by each share."""
    return {
        (*more, share): Sides(*(share * a + (1 - share) * b for a, b in zip(cmrm, visual, strict=True)))
        for share in SHARES
    }


def measured(X: Any, Y: sp.csr_array, parts: tuple[int, int, int], threads: int) -> dict[str, Any]:
    """Learn, choose and judge; return what each arm reaches, and each blend less the better of its two."""
    order = np.random.default_rng(0).permutation(Y.shape[0])
    learned, chosen, judged = (np.sort(rows) for rows in np.split(order[: sum(parts)], np.cumsum(parts)[:2]))
    given = sp.csr_array(Y[learned])
    idf = inverse_frequencies(np.asarray((given > 0).sum(axis=0)).ravel(), learned.size)
    choosing, judging = searches(sp.csr_array(Y[chosen]), idf, QUERIES), searches(sp.csr_array(Y[judged]), idf, None)

    def sides(model: Any) -> Sides:
        model.fit(X[learned], given)
        return Sides(*(np.asarray(model.decision_function(X[rows]), np.float64) for rows in (chosen, judged)))

    by_itself = Cmrm()
    arms: dict[str, tuple[Chosen, Sides]] = {"cmrm, sum": ((), sides(by_itself))}
    say(f"  cmrm chose alpha {by_itself.alpha_}, beta {by_itself.beta_} by its own rule")
    logs = Sides(*(np.log(np.maximum(part, LEAST)) for part in arms["cmrm, sum"][1]))
    arms["cmrm, product"] = ((by_itself.alpha_, by_itself.beta_), logs)
    smoothed: dict[Chosen, Sides] = {}
    for beta in BETAS:
        model = Cmrm(alpha=0.5, beta=beta).fit(X[learned], given)
        both = [shares_of(model, X[rows]) for rows in (chosen, judged)]
        for alpha in ALPHAS:
            smoothed[alpha, beta] = Sides(*(np.log(np.maximum(part.smoothed(alpha), LEAST)) for part in both))
    arms["cmrm, product, smoothed for search"] = best(smoothed, choosing)
    for name, model in {"pamir": Pamir(n_jobs=threads), "ridge": Ridge()}.items():
        arms[name] = ((), sides(model))
    odds = {name: _odds(arms[name][1], Y[chosen], given) for name in ("cmrm, sum", "pamir", "ridge")}
    for name in ("pamir", "ridge"):
        arms[f"{name}, confidences"] = ((), Sides(*map(log_sigmoid, odds[name])))
    for name in ("pamir", "ridge"):
        visual = scaled(arms[name][1])
        arms[f"cmrm + {name}, as they are"] = best(mixes(scaled(arms["cmrm, sum"][1]), visual), choosing)
        grid = [mixes(scaled(smoothed[pair]), visual, pair) for pair in product(ALPHAS, BETAS)]
        arms[f"cmrm + {name}, logs"] = best({key: found for part in grid for key, found in part.items()}, choosing)
        mixed = {key: Sides(*map(log_sigmoid, found)) for key, found in mixes(odds["cmrm, sum"], odds[name]).items()}
        arms[f"cmrm + {name}, confidences"] = best(mixed, choosing)
    precision = {name: judging.precision(found.judge) for name, (_, found) in arms.items()}
    result: dict[str, Any] = {"photos": parts, "queries": judging.words.shape[0], "arms": {}}
    for name, values in precision.items():
        entry: dict[str, Any] = {"AvgP": float(np.nanmean(values)), "chosen": list(arms[name][0])}
        if " + " in name:
            visual = name.removeprefix("cmrm + ").partition(",")[0]
            for other in (visual, f"{visual}, confidences", "cmrm, product, smoothed for search"):
                gap = paired_bootstrap(values, precision[other], n_resamples=2000)
                entry[f"less {other}"] = [gap.mean, gap.low, gap.high]
        result["arms"][name] = entry
        say(f"  {name:36} {entry}")
    return result


def _odds(sides: Sides, Y: sp.csr_array, others: sp.csr_array) -> Sides:
    """Return log odds by the calibration that the first side's photos give."""
    counts = np.asarray((others > 0).sum(axis=0)).ravel()
    calibration = fit_calibration(np.ascontiguousarray(sides.choose, np.float32), Y, others, counts)
    assert calibration is not None
    return Sides(*(np.asarray(calibration.log_odds(np.ascontiguousarray(part, np.float32))) for part in sides))


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, nargs="?", default=Path("../shared"))
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--parts", type=int, nargs=3, default=PARTS, help="photos to learn from, choose by and judge")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    if arguments.quick:
        found = draw_visterms(500, 40, n_features=200, random_state=0)
        result["drawn"] = measured(sp.csr_array(found.X), sp.csr_array(found.Y), (300, 100, 100), arguments.threads)
    else:
        X, Y, _, _ = encoded(arguments.shared / "data" / "corel5k", "visterms", {}, arguments.cache / "visterms")
        result["Corel5k"] = measured(sp.csr_array(X), sp.csr_array(Y), tuple(arguments.parts), arguments.threads)
    write(result, arguments.json)


if __name__ == "__main__":
    main()
