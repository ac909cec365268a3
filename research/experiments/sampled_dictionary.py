"""Why drawn tags cost the sampled tagger so much on the drawn dictionary of 2,000 tags: validation rows alone.

The comparison of "Sampled image tagging and retrieval methods on user generated content" found it 6 points of F1 below
the full cross-entropy there. Parts, each a list of fits whose F1 with five tags and MAP are of the validation rows:

* small: on a dictionary of 250 tags, where a fit takes a second, what the start of scores, the length that gradients
  are cut to, and the sums over pairs of tags (alpha) do to both taggers;
* low: the same on the dictionary: how many negatives, with scores
  that start at 0 and low (`start_low`), and the length that gradients are cut to;
* start: from the comparison's first settings, the network and the vectors that tags start with, for both taggers;
* rates: on the dictionary, with random vectors of 300 numbers and low starts, the rate of the tags' vectors, that of
  the network, and the power of the draws;
* one: one setting at a time, from a network without hidden layers, random vectors and scores that start low;
* joint: points of a box drawn at random, all settings of both taggers together, the same number for each;
* data: the same taggers on dictionaries of fewer tags, more photos, no stray tags;
* others: the other methods of the comparison;
* photos: what was found, on Corel5k and on scenes (needs --photos);
* pairs: two rates of the tags' vectors, all else as the sampled tagger has it but for a small network, on four data
  sets (needs --photos).

A fit that is in the JSON already is not made again, so that the program goes on after a kill.

    python sampled_dictionary.py --photos SHARED --cache CACHE --json figures/sampled_dictionary.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness.runs import machine, say, write

from visterm.core.tables import MODELS
from visterm_research.comparison.image_problems import (
    EXPONENT,
    corel_problem,
    delicious_problem,
    dictionary_problem,
    scene_problem,
)
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.search import Axis, Box, draw_points, unordered
from visterm_research.comparison.sources import Source
from visterm_research.data.drawn_tags import draw_visterms
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, five_metrics, five_of
from visterm_research.ugc.methods import FULL_SETTINGS, SAMPLED_SETTINGS
from visterm_research.ugc.problems import DICTIONARY
from visterm_research.zero_shot.vectors import prepared, tag_list_vectors, with_common, word_sources

SAMPLED, FULL = "sampled_tagger", "cross_entropy_tagger"
LEARNED, RANDOM, SENTENCES = "learned", "random", "sentences"
BUDGET = {"epochs": 30, "patience": 8, "batch_size": 128, "learning_rate": 0.001}
FIRST = {**BUDGET, "hidden": [512], "vectors": LEARNED}
"""What the comparison had at first."""

LINEAR = {**BUDGET, "hidden": [], "vectors": RANDOM, "epochs": 15}
LOW = {"start_low": True}
NEGATIVES = (100, 10, 30, 300)
CUTS = (1.0, 1e9)
DRAWN = {"power": 0.25}
ALONE = {"alpha": 0.0}
"""Without the sums over pairs of tags, which grow with P times N."""

SMALL = {"dim": 100, "patience": 15}
SMALL_DRAWS, SMALL_CUTS = ((50, 0.0), (10, 0.0), (50, 0.01)), (10.0, 1.0, 1e9)
SCENES = 3_000
TRIALS = 12
SHARED_BOX: Box = {
    "hidden": unordered([], [512]),
    "learning_rate": Axis((0.0001, 0.0003, 0.001, 0.003)),
    "tag_learning_rate": Axis((0.03, 0.1, 0.3, 1.0)),
    "batch_size": Axis((64, 128, 512)),
    "dim": Axis((100, 300, 1000)),
}
FULL_BOX: Box = {**SHARED_BOX, "start_low": unordered(False, True)}
SAMPLED_BOX: Box = {
    **SHARED_BOX,
    "positives": Axis((1, 5, 10)),
    "negatives": Axis((10, 30, 100, 300)),
    "power": Axis((0.0, 0.25, 0.5, 1.0)),
    "alpha": unordered(0.0, 0.001, 0.01),
    "start_low": unordered(False, True),
}


class Fit(NamedTuple):
    """One fit: on which data, of which model, with which settings; `vectors` is which vectors tags start with."""

    part: str
    data: str
    model: str
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """Name the fit, whatever part it is of."""
        return json.dumps([self.data, self.model, self.settings], sort_keys=True)


def fits() -> Iterator[Fit]:
    """Yield all fits, the telling ones first."""
    both = ((SAMPLED, DRAWN), (FULL, {}))
    for change in ({}, LOW):
        for cut in SMALL_CUTS:
            settings = {**LINEAR, **SMALL, "max_gradient": cut, **change}
            yield Fit("small", "250 tags", FULL, settings)
            for negatives, alpha in SMALL_DRAWS:
                drawn = {**settings, **DRAWN, "negatives": negatives, "alpha": alpha}
                yield Fit("small", "250 tags", SAMPLED, drawn)
    for negatives in NEGATIVES:
        for change in (LOW, {}):
            yield Fit("low", "dictionary", SAMPLED, {**LINEAR, **DRAWN, **ALONE, "negatives": negatives, **change})
    for change in (LOW, {}):
        yield Fit("low", "dictionary", FULL, {**LINEAR, **change})
    for change in ({"hidden": [], **LOW}, {"hidden": []}, {"vectors": RANDOM}, LOW, {}):
        for model, own in both:
            more = {"negatives": 100, **ALONE} if own and "start_low" in change else {}
            yield Fit("start", "dictionary", model, {**FIRST, **own, **change, **more})
    for change in (LOW, {}):
        for cut in CUTS:
            cut_off = {**LINEAR, "max_gradient": cut, **change}
            yield Fit("low", "dictionary", SAMPLED, {**cut_off, **DRAWN, **ALONE, "negatives": 100})
            yield Fit("low", "dictionary", FULL, cut_off)
    base = {**LINEAR, **DRAWN, **ALONE, **LOW, "negatives": 100}
    for change in RATES:
        yield Fit("rates", "dictionary", SAMPLED, {**base, "epochs": 30, "dim": 300, **change})
    for rate in (0.1, 0.03):
        settings = {**LINEAR, **LOW, "epochs": 30, "dim": 300, "dropout": 0.35, "tag_learning_rate": rate}
        yield Fit("rates", "dictionary", FULL, settings)
    for name, values in ONE.items():
        for value in values:
            yield Fit("one", "dictionary", SAMPLED, {**base, name: value})
    for value in ONE["learning_rate"]:
        yield Fit("one", "dictionary", FULL, {**LINEAR, **LOW, "learning_rate": value})
    for name in DATA:
        for model, own in both:
            yield Fit("data", name, model, {**LINEAR, **own})
            yield Fit("data", name, model, {**LINEAR, **own, **LOW, **({"negatives": 100, **ALONE} if own else {})})
        yield Fit("data", name, "ridge", {"alpha": 0.1})
    for model, settings in OTHERS:
        yield Fit("others", "dictionary", model, settings)
    fixed = {"epochs": 30, "patience": 8, "vectors": RANDOM}
    for points in zip(draw_points(SAMPLED_BOX, TRIALS), draw_points(FULL_BOX, TRIALS), strict=True):
        for model, point in zip((SAMPLED, FULL), points, strict=True):
            yield Fit("joint", "dictionary", model, {**fixed, **point})
    for name, vectors in PAIRED:
        for rate in (0.1, 0.03):
            yield Fit(
                "pairs", name, SAMPLED, {**BUDGET, "hidden": [512], "vectors": vectors, "tag_learning_rate": rate}
            )
    for name in ("corel5k", "scenes"):
        for vectors in (SENTENCES, RANDOM):
            for hidden in ([512], []):
                settings = {**BUDGET, "hidden": hidden, "vectors": vectors}
                for change in (LOW, {}):
                    for negatives in (100, 10):
                        yield Fit(
                            "photos", name, SAMPLED, {**settings, **DRAWN, **ALONE, "negatives": negatives, **change}
                        )
                    yield Fit("photos", name, FULL, {**settings, **change})


SLOW_TAGS = {"tag_learning_rate": 0.03}
RATES: tuple[dict[str, Any], ...] = (
    {"vectors": LEARNED, "dim": None},
    {},
    SLOW_TAGS,
    {**SLOW_TAGS, "learning_rate": 0.0003},
    {**SLOW_TAGS, "learning_rate": 0.0003, "power": 1.0},
    {"tag_learning_rate": 0.01, "learning_rate": 0.0003},
)
"""From the defaults on."""

PAIRED = (
    ("delicious", RANDOM),
    ("dictionary", RANDOM),
    ("corel5k", RANDOM),
    ("corel5k", SENTENCES),
    ("scenes", RANDOM),
    ("scenes", SENTENCES),
)
ONE: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.0001, 0.0003, 0.003),
    "tag_learning_rate": (0.03, 0.3, 1.0),
    "power": (0.0, 1.0),
    "positives": (1, 10),
    "dim": (100, 1000),
    "alpha": (0.001, 0.01),
    "batch_size": (32, 512),
    "epochs": (10, 60),
    "l2": (0.001,),
}
DATA: dict[str, dict[str, Any]] = {
    "300 tags": {"n_tags": 300},
    "18,000 photos": {"n_images": 18_000},
    "no stray tags": {"noise": 0.0},
}
LITTLE = {"250 tags": {"n_images": 1_750, "n_tags": 250, "n_features": 300}}
OTHERS = (("least_squares", {}), ("ridge", {"alpha": 0.1}), ("tagprop", {"n_neighbors": 200}), ("fasttag", {}))


class Data:
    """The problems and their vectors, made when first asked for; `photos` is the folder with data and models."""

    def __init__(self, photos: Path | None, cache: Path | None) -> None:
        self._photos, self._cache = photos, cache
        self._known: tuple[str, Problem, dict[str, Any]] | None = None

    def get(self, name: str) -> tuple[Problem, dict[str, Any]] | None:
        """Return a problem and its vectors by source; None for photos that are not there."""
        if self._known is None or self._known[0] != name:
            problem = self._problem(name)
            if problem is None:
                return None
            words: dict[str, Any] = {RANDOM: None}
            if name in ("corel5k", "scenes"):
                words[SENTENCES] = with_common(word_sources(problem.tags, problem.train.Y)[SENTENCES])
            elif name == "dictionary":
                words[LEARNED] = with_common(prepared(tag_list_vectors(problem.tags, problem.train.Y)))
            self._known = name, problem, words
        return self._known[1:]

    def _problem(self, name: str) -> Problem | None:
        n_images, n_tags, n_features = DICTIONARY
        if name == "dictionary":
            return dictionary_problem(n_images, n_tags, n_features=n_features, seed=0)
        if name in DATA or name in LITTLE:
            changed = {**DATA, **LITTLE}[name]
            return _drawn(name, **{"n_images": n_images, "n_tags": n_tags, "n_features": n_features, **changed})
        if self._photos is None or self._cache is None:
            return None
        if name == "delicious":
            return delicious_problem(self._photos / "data" / "delicious", seed=0)
        source = Source(self._cache, n_jobs=1)
        encoder = f"onnx:{self._photos / 'models' / 'mobilenet_v2.onnx'}"
        if name == "scenes":
            return scene_problem(source, SCENES, encoder)
        return corel_problem(source, self._photos / "data" / "corel5k", encoder)


def _drawn(name: str, **changed: Any) -> Problem:
    """Draw a dictionary of another shape; its last fifth is not drawn on, as in the comparison."""
    n_images, n_tags = changed.pop("n_images"), changed.pop("n_tags")
    drawn = draw_visterms(n_images, n_tags, exponent=EXPONENT, random_state=0, **changed)
    ends = [0, round(0.7 * n_images), round(0.8 * n_images)]
    train, valid = (Rows(drawn.X[a:b], drawn.Y[a:b]) for a, b in pairwise(ends))
    return Problem(name, name, drawn.dictionary.names(), train, valid, valid)


def measured(fit: Fit, problem: Problem, words: dict[str, Any]) -> dict[str, Any]:
    """Fit on the training rows and measure the validation rows, which also stop the training."""
    settings = dict(fit.settings)
    began = time.process_time()
    if fit.model in (SAMPLED, FULL):
        settings = (SAMPLED_SETTINGS if fit.model == SAMPLED else FULL_SETTINGS) | settings
        settings |= {"word_vectors": words[settings.pop("vectors")], "device": "cpu", "n_jobs": 1}
    model = MODELS.create(fit.model, **settings)
    train, valid = problem.train, problem.valid
    model.fit(train.X, train.Y, valid=(valid.X, valid.Y))
    metrics = five_metrics(model, valid.X, valid.Y)
    return {
        "part": fit.part,
        "data": fit.data,
        "model": fit.model,
        "settings": fit.settings,
        "f1 by tag": five_of(metrics, BY_TAG).f1,
        "f1 by image": five_of(metrics, BY_IMAGE).f1,
        "map": metrics["map"],
        "epoch": getattr(model, "n_epochs_", None),
        "maps": [entry["map"] for entry in getattr(model, "history_", [])],
        "processor seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", required=True, help="where figures are written and read")
    parser.add_argument("--photos", type=Path, metavar="FOLDER", help="with data/corel5k and models")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where features of photos are kept")
    parser.add_argument("--only", nargs="*", metavar="PART", help="parts to run")
    parser.add_argument("--quick", action="store_true", help="two epochs of the first fits: shows that it works")
    chosen = parser.parse_args()
    result = json.loads(chosen.json.read_text()) if chosen.json.is_file() else {"machine": machine(), "fits": {}}
    data = Data(chosen.photos, chosen.cache)
    for fit in fits():
        if fit.key in result["fits"] or (chosen.only and fit.part not in chosen.only):
            continue
        if chosen.quick:
            fit = fit._replace(settings={**fit.settings, "epochs": 2})
        made = data.get(fit.data)
        if made is None:
            continue
        found = result["fits"][fit.key] = measured(fit, *made)
        shown = ", ".join(f"{name}={value}" for name, value in fit.settings.items())
        say(f"{fit.part}, {fit.data}, {fit.model} ({shown}): F1 {found['f1 by tag']:.4f} by tag,",
            f"{found['f1 by image']:.4f} by image, MAP {found['map']:.4f}, epoch {found['epoch']}")  # fmt: skip
        write(result, chosen.json)
        if chosen.quick and np.sum([one["data"] == fit.data for one in result["fits"].values()]) >= 2:
            return


if __name__ == "__main__":
    main()
