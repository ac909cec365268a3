"""The six data sets of methods.py, with what some models need besides features and tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from defaults import JUDGED
from harness.data_sets import Rows, chosen_by, corel5k
from numpy.typing import NDArray
from train_by_number import nuswide

from visterm.core.tables import MODELS
from visterm.data.tag_queries import hold_one_out
from visterm_research.comparison.image_problems import delicious_problem, dictionary_problem, scene_problem
from visterm_research.comparison.sources import Source
from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs
from visterm_research.scenes import PART_OF
from visterm_research.zero_shot.vectors import prepared, tag_list_vectors

SCENES, SCENE_WORDS = 1_500, 2_000
PAGES = 4_000  # Of Delicious' 12,920 to learn from: with all, `auto` alone takes ten minutes
NUMBERS = 5_000  # Of NUS-WIDE's 209,347 images
DRAWN_IMAGES, DRAWN_TAGS, DRAWN_FEATURES = 4_000, 2_000, 2_000

FIXED_WORDS = ("fast0tag", "average_word_vector", "correlated_word_vectors")
"""Models whose tags stay where their word vectors are: random ones would say nothing."""


@dataclass(frozen=True)
class MethodSet:
    """Rows to learn from and to judge by, and the relations (part, whole) of tags where they are known."""

    name: str
    about: str
    rows: Rows
    part_of: NDArray[np.int64] | None = None

    def settings(self, model: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what a model gets besides its defaults, and how to say so."""
        given: dict[str, Any] = {}
        said: dict[str, str] = {}
        known = MODELS.create(model).get_params()
        if model in FIXED_WORDS:
            names = [str(tag) for tag in range(self.rows.Y.shape[1])]
            given["word_vectors"] = prepared(tag_list_vectors(names, self.rows.Y))
            said["word_vectors"] = "learned from the tag lists"
        if "part_of" in known and self.part_of is not None:
            given["part_of"], said["part_of"] = self.part_of, f"{len(self.part_of)} relations"
        shared = {"n_jobs": 1, "random_state": 0}
        return given | {name: value for name, value in shared.items() if name in known}, said


def method_sets(shared: Path | None, cache: Path, seed: int, only: Sequence[str] = ()) -> Iterator[MethodSet]:
    """Yield the six sets, or those whose name has a part of `only`; without the folder of data two small drawn ones."""
    if shared is None:
        yield of_problem("drawn", dictionary_problem(300, 40, n_features=200, seed=seed))
        yield of_pairs("drawn, by number", draw_pairs(300, draw_dictionary(60), random_state=seed))
        return
    for kind in ("network", "visterms"):
        if chosen_by(name := f"Corel5k, {kind}", only):
            yield of_rows(name, *corel5k(shared, cache, kind))
    if chosen_by(name := "Drawn scenes, visterms", only):
        yield scenes(name, cache, seed)
    if chosen_by(name := "Delicious, words", only):
        yield of_problem(name, delicious_problem(shared / "data" / "delicious", seed=seed), PAGES)
    if chosen_by(name := "Drawn tags, visterms", only):
        yield of_problem(name, dictionary_problem(DRAWN_IMAGES, DRAWN_TAGS, n_features=DRAWN_FEATURES, seed=seed))
    if chosen_by(name := "NUS-WIDE, by number", only):
        Y = nuswide(shared / "data" / "nuswide")
        some = np.sort(np.random.default_rng(0).permutation(Y.shape[0])[:NUMBERS])
        yield of_pairs(name, sp.csr_array(Y[some]), f" of {Y.shape[0]:,}")


def scenes(name: str, cache: Path, seed: int) -> MethodSet:
    """Draw scenes and encode them, or read them from the cache; tags are as people write them, parts are known."""
    problem = scene_problem(Source(cache, seed, n_jobs=1), SCENES, "visterms", {"codebook": SCENE_WORDS})
    column = {tag: number for number, tag in enumerate(problem.tags)}
    pairs = [(column[part], column[whole]) for part, whole in PART_OF if part in column and whole in column]
    made = of_problem(name, problem)
    return MethodSet(name, made.about, made.rows, np.array(pairs, np.int64))


def of_problem(name: str, problem: Any, at_most: int | None = None) -> MethodSet:
    """Learn from the rows for training and for validation, or from some of them; judge by those for the test."""
    X, Y = (sp.vstack([getattr(rows, part) for rows in (problem.train, problem.valid)], format="csr") for part in "XY")
    total = Y.shape[0]
    if at_most is not None and at_most < total:
        some = np.sort(np.random.default_rng(0).permutation(total)[:at_most])
        X, Y = X[some], Y[some]
    of = f" of {total:,}" if Y.shape[0] < total else ""
    return of_rows(name, sp.csr_array(X), Y, sp.csr_array(problem.test.X), problem.test.Y, of)


def of_rows(name: str, X: Any, Y: Any, X_test: Any, Y_test: Any, of: str = "") -> MethodSet:
    """Make a set of rows with features."""
    Y, right = sp.csr_array(Y), sp.csr_array(Y_test)
    about = f"{Y.shape[0]:,}{of} images × {X.shape[1]:,} features, {Y.shape[1]:,} tags, {Y.nnz:,} pairs; "
    return MethodSet(name, f"{about}{right.shape[0]:,} images judged", Rows(X, Y, X_test, right))


def of_pairs(name: str, Y: sp.csr_array, of: str = "") -> MethodSet:
    """Make a set of images known by number: one tag of some of them is held out."""
    held = hold_one_out(Y, np.random.default_rng(0), at_most=JUDGED)
    about = f"{Y.shape[0]:,}{of} images × {Y.shape[1]:,} tags, {held.rest.nnz:,} pairs; "
    rows = Rows(None, held.rest, held.images, held.held, held.known)
    return MethodSet(name, f"{about}one more tag of {held.images.size:,} images judged", rows)
