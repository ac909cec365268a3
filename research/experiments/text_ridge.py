"""`text_ridge` beside zero-shot alone and ridge alone, for tags of 0, 1, 2, 5, 10 and 50 photos.

A stand-in for the two towers of a network: a half of the tags of Corel5k, drawn by a seed, teaches a ridge map from
MobileNet's rows to the mean sentence vector of a photo's tags, on photos that are then put aside. Mapped rows are the
images' vectors, sentence vectors the words'. The other half's tags are learned from photos drawn so that each tag has
at least as many as a count says (rarest tag first); tags with just about that many are judged on the test photos. The
same on drawn scenes. All draws together: 95 % of bootstrap samples of the same photos (annotating) or tags (searching).
Then whether wanted precision holds for tags of 0 and 5 photos in a library whose other tags have all theirs.

    python text_ridge.py SHARED --cache CACHE --json figures/text_ridge.json \\
        --plot ../../docs/text_ridge.png

`--on valid` judges on photos of the training split instead: there settings were chosen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded
from harness.runs import machine, options, parse, say, write
from numpy.typing import NDArray

from visterm.core.vocabulary import Vocabulary
from visterm.encoders.word_rows import sentence_vectors
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import held_out_scores
from visterm.metrics import paired_bootstrap
from visterm.metrics.ranking import average_precisions
from visterm.metrics.significance import share_of_right
from visterm.models.confidence.calibration import cutoff_for_precision
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm.models.linear.normal_equations import fit_ridge, mean_square_norm
from visterm.models.linear.ridge import Ridge, choose_penalty
from visterm.models.linear.text_ridge import TextRidge
from visterm_research.comparison.image_problems import read_corel, scene_problem
from visterm_research.comparison.sources import Source
from visterm_research.zero_shot.vectors import prepared

Floats = NDArray[np.float32]

COUNTS = {0: (0, 0), 1: (1, 1), 2: (2, 2), 5: (4, 6), 10: (8, 13), 50: (40, 70)}
"""By the least photos of a tag: the fewest and the most of those that are judged."""

ARMS = ("zero-shot", "ridge", "text_ridge")
UNTAGGED = 200  # Photos without a tag that the count 0 is fitted on
WANTED = (0.5, 0.7, 0.9)
FEW = (0, 5)  # Photos that a tag has left where precision is measured
MOST_TAKEN = 60  # Tags with more photos keep theirs: without them too little would be left
RELEARNED = 5000


class Towers(NamedTuple):
    """Images' vectors, to learn from and to judge by, with the tags that the stand-in has not seen."""

    X: Floats
    Y: NDArray[np.bool_]
    X_judged: Floats
    Y_judged: NDArray[np.bool_]
    text: Floats


def unit(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def stand_in(data: dict[str, Any], seed: int, on: str) -> Towers:
    """Draw the tags that teach the towers, and map the photos that they were not taught on."""
    rng = np.random.default_rng(seed)
    X, Y = data["X"], data["Y"]
    tags, photos = rng.permutation(Y.shape[1]), rng.permutation(len(X))
    seen, new = np.sort(tags[: Y.shape[1] // 2]), np.sort(tags[Y.shape[1] // 2 :])
    taught, rest = photos[: int(0.4 * len(X))], photos[int(0.4 * len(X)) :]
    tagged = taught[Y[taught][:, seen].any(axis=1)]
    given, words = Y[tagged][:, seen].astype(np.float32), data["text"]
    alpha = choose_penalty(X[tagged], sp.csr_array(given), mean_square_norm(X[tagged]), rng).alpha
    towers = fit_ridge(X[tagged], unit(given @ words[seen]), alpha * mean_square_norm(X[tagged]))

    def mapped(rows: Floats) -> Floats:
        return np.asarray(unit(rows @ towers.weights + towers.intercept), np.float32)

    if on == "valid":
        judged, rest = rest[: len(rest) // 4], rest[len(rest) // 4 :]
        return Towers(mapped(X[rest]), Y[rest][:, new], mapped(X[judged]), Y[judged][:, new], words[new])
    return Towers(mapped(X[rest]), Y[rest][:, new], mapped(data["X_test"]), data["Y_test"][:, new], words[new])


def drawn(Y: NDArray[np.bool_], least: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw photos so that each tag has at least so many, or all it has: the rarest tag first."""
    chosen = np.zeros(len(Y), np.bool_)
    for tag in np.argsort(Y.sum(axis=0), kind="stable"):
        missing = max(least - int(Y[chosen, tag].sum()), 0)
        chosen[rng.permutation(np.flatnonzero(Y[:, tag] & ~chosen))[:missing]] = True
    return np.flatnonzero(chosen)


def scores_of(towers: Towers, photos: NDArray[np.int64], Y: sp.csr_array) -> dict[str, Floats]:
    """Return the scores of the judged photos by each arm."""
    found = {"zero-shot": towers.X_judged @ towers.text.T}
    if Y.nnz:
        found["ridge"] = Ridge().fit(towers.X[photos], Y).decision_function(towers.X_judged)
    model = TextRidge(word_vectors=towers.text).fit(towers.X[photos], Y)
    return found | {"text_ridge": model.decision_function(towers.X_judged)}


def curves(data: dict[str, Any], seeds: range, on: str) -> dict[str, Any]:
    """Return both measures of each arm at each count, and how far text_ridge is above the others."""
    values: dict[tuple[int, str, str], list[NDArray[np.float64]]] = {}
    for seed in seeds:
        towers, rng = stand_in(data, seed, on), np.random.default_rng([seed, 1])
        for count, (fewest, most) in COUNTS.items():
            photos = drawn(towers.Y, count, rng) if count else rng.permutation(len(towers.X))[:UNTAGGED]
            Y = sp.csr_array(towers.Y[photos].astype(np.float32) * bool(count))
            n_photos = np.asarray(Y.sum(axis=0)).ravel()
            judged = np.flatnonzero((n_photos >= fewest) & (n_photos <= most) & towers.Y_judged.any(axis=0))
            right = sp.csr_array(towers.Y_judged[:, judged].astype(np.float32))
            for arm, scores in scores_of(towers, photos, Y).items():
                some = np.ascontiguousarray(scores[:, judged])
                values.setdefault((count, arm, "annotating"), []).append(average_precisions(some, right))
                by_tag = average_precisions(np.ascontiguousarray(some.T), sp.csr_array(right.T))
                values.setdefault((count, arm, "searching"), []).append(by_tag)
    return {str(count): dict(compared(values, count)) for count in COUNTS}


def compared(values: dict[tuple[int, str, str], list[Any]], count: int) -> Iterator[tuple[str, Any]]:
    """Yield for each measure the mean of the arms, and the interval of text_ridge less each of the others."""
    for measure in ("annotating", "searching"):
        sides = {arm: np.concatenate(values[count, arm, measure]) for arm in ARMS if (count, arm, measure) in values}
        found: dict[str, Any] = {arm: float(np.nanmean(side)) for arm, side in sides.items()}
        found["n"] = int((~np.isnan(sides["text_ridge"])).sum())
        for arm in list(sides)[:-1]:
            gap = paired_bootstrap(sides["text_ridge"], sides[arm], n_resamples=2000)
            found[f"less {arm}"] = [gap.low, gap.high]
        shown = {name: np.round(value, 3).tolist() for name, value in found.items()}
        say(f"  {count:2d} photos, {measure}: {shown}")
        yield measure, found


def precision(data: dict[str, Any], seeds: range, on: str) -> dict[str, Any]:
    """Return what share of the tags given at a wanted precision is right, for tags left with 0 and with 5 photos."""
    counts: dict[tuple[str, float], list[Any]] = {}
    for seed in seeds:
        towers, rng = stand_in(data, seed, on), np.random.default_rng([seed, 2])
        given = towers.Y.sum(axis=0)
        rare = rng.permutation(np.flatnonzero((given > max(FEW)) & (given <= MOST_TAKEN) & towers.Y_judged.any(axis=0)))
        groups = dict(zip(FEW, np.array_split(rare, len(FEW) + 2), strict=False))
        kept = np.ones(len(towers.Y), np.bool_)
        for n_left, tags in groups.items():
            for tag in tags:
                has = np.flatnonzero(towers.Y[:, tag])
                kept[rng.permutation(has)[n_left:]] = False
        X, Y = towers.X[kept], sp.csr_array(towers.Y[kept].astype(np.float32))
        model = TextRidge(word_vectors=towers.text).fit(X, Y)
        rows = TrainingRows(Vocabulary([f"t{tag}" for tag in range(Y.shape[1])]), X, Y, None, [])
        held_out = held_out_scores(model, rows, seed=seed)
        calibration = None if held_out is None else fit_calibration(*held_out, seed=seed)
        assert calibration is not None
        assert calibration.held_out is not None
        chances = calibration.confidences(model.decision_function(towers.X_judged))
        n_photos = np.asarray(Y.sum(axis=0)).ravel()
        others = np.setdiff1d(np.arange(Y.shape[1]), np.concatenate(list(groups.values())))
        tags_of = {"0 photos": groups[0], "1 to 5 photos": groups[5][n_photos[groups[5]] > 0], "other tags": others}
        for wanted in WANTED:
            above = chances >= cutoff_for_precision(calibration.held_out, wanted)
            for name, tags in tags_of.items():
                right = (above & towers.Y_judged)[:, tags].sum(axis=1)
                counts.setdefault((name, wanted), []).append((right, above[:, tags].sum(axis=1)))
    result: dict[str, Any] = {}
    for (name, wanted), parts in counts.items():
        n_right, n_given = (np.concatenate(side) for side in zip(*parts, strict=True))
        share = share_of_right(n_right, n_given)
        interval = None if share is None else [share.low, share.high]
        result.setdefault(name, {})[str(wanted)] = {
            "given": int(n_given.sum()), "right": int(n_right.sum()), "interval": interval
        }  # fmt: skip
        say(f"  {name}, wanted {wanted}: {int(n_right.sum())} of {int(n_given.sum())} right, {interval}")
    return result


def seconds(data: dict[str, Any], runs: int) -> dict[str, float]:
    """Return the median seconds of a fit on 5,000 photos, with λ and s chosen, and of 20 more (`partial_fit`)."""
    towers = stand_in(data, 0, "valid")
    places = np.arange(RELEARNED) % len(towers.X)
    X, Y = towers.X[places], sp.csr_array(towers.Y[places].astype(np.float32))
    taken: dict[str, list[float]] = {"fit": [], "20 more": []}
    for _ in range(runs):
        started = time.perf_counter()
        model = TextRidge(word_vectors=towers.text).fit(X, Y)
        fitted = time.perf_counter()
        model.partial_fit(X[:20], Y[:20])
        taken["20 more"].append(time.perf_counter() - fitted)
        taken["fit"].append(fitted - started)
    return {name: float(np.median(values)) for name, values in taken.items()}


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw the curves of both measures, a row for each data set."""
    from visterm_research.comparison.figures import figure_class

    sets = {name: one["curves"] for name, one in found.items()}
    figure = figure_class()(figsize=(8, 3 * len(sets)), layout="constrained")
    panels = figure.subplots(len(sets), 2, squeeze=False)
    places = list(range(len(COUNTS)))
    for row, (name, by_count) in zip(panels, sets.items(), strict=True):
        for panel, measure in zip(row, ("annotating", "searching"), strict=True):
            for arm, style in zip(ARMS, (":", "--", "-"), strict=True):
                heights = [by_count[str(count)][measure].get(arm, np.nan) for count in COUNTS]
                panel.plot(places, heights, style, marker="o", markersize=3, label=arm)
            panel.set_xticks(places, [str(count) for count in COUNTS])
            panel.set_title(f"{name}, {measure}", fontsize=10)
            panel.set_xlabel("photos of a tag")
            panel.set_ylabel("MAP")
            panel.set_ylim(bottom=0)
    panels[0][0].legend(fontsize=9)
    figure.savefig(path, dpi=110, metadata={"Software": "visterm"})


def data_sets(folder: Path, cache: Path, n_scenes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield Corel5k, and drawn scenes, with rows of MobileNet and prepared sentence vectors of the tags."""
    network, output = f"onnx:{folder / 'models' / 'mobilenet_v2.onnx'}", {"output": "features"}
    corel = folder / "data" / "corel5k"
    X, Y, X_test, Y_test = encoded(corel, network, output, cache / "network")
    tags = Vocabulary.from_lists(read_corel(corel).select("train").tags).tags
    yield "Corel5k", _data(X, Y, X_test, Y_test, prepared(sentence_vectors(tags).matrix))
    scenes = scene_problem(Source(cache, n_jobs=1), n_scenes, network, output)
    X, Y = (
        np.concatenate([_array(getattr(part, side)) for part in (scenes.train, scenes.valid)]) for side in ("X", "Y")
    )
    text = prepared(sentence_vectors(scenes.tags).matrix)
    yield "drawn scenes", _data(X, Y, scenes.test.X, scenes.test.Y, text)


def quick_data() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield tags with directions of their own, and photos and text vectors near them: shows that the program works."""
    rng = np.random.default_rng(0)
    Y, own = rng.random((1200, 40)) < 0.06, rng.standard_normal((40, 24))
    X = Y @ own + rng.standard_normal((1200, 24))
    yield "planted", _data(X[:900], Y[:900], X[900:], Y[900:], own + rng.standard_normal(own.shape))


def _data(X: Any, Y: Any, X_test: Any, Y_test: Any, text: Any) -> dict[str, Any]:
    return {
        "X": unit(_array(X)).astype(np.float32), "Y": _array(Y) > 0, "X_test": unit(_array(X_test)).astype(np.float32),
        "Y_test": _array(Y_test) > 0, "text": unit(text).astype(np.float32),
    }  # fmt: skip


def _array(matrix: Any) -> NDArray[Any]:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="has data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--cache", type=Path, default=Path("text_ridge_cache"), help="encoded features and scenes")
    parser.add_argument("--scenes", type=int, default=3000)
    parser.add_argument("--on", choices=["test", "valid"], default="test")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="where the curves are drawn")
    chosen = parse(parser)
    if chosen.folder is None and not chosen.quick:
        parser.error("FOLDER is not given (or --quick).")
    result: dict[str, Any] = {
        "machine": machine(),
        "measured on": f"{chosen.on} rows",
        "draws": chosen.runs,
        "data": {},
    }
    sets = quick_data() if chosen.quick else data_sets(chosen.folder, chosen.cache, chosen.scenes)
    for name, data in sets:
        say(name)
        result["data"][name] = {
            "curves": curves(data, range(chosen.runs), chosen.on),
            "precision": precision(data, range(chosen.runs), chosen.on),
            "seconds": seconds(data, chosen.runs),
        }
        say(f"  {result['data'][name]['seconds']}")
    if chosen.plot is not None:
        plot(result["data"], chosen.plot)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
