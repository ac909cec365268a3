"""Table 2 of the sampled tagging paper, its second half: learned from one collection, tested on another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.vocabulary import Vocabulary, tag_key
from visterm_research.comparison.claims import percent
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.papers import read_paper
from visterm_research.scenes import read_drawn_library
from visterm_research.ugc.measures import K, harmonic
from visterm_research.ugc.methods import FAST0TAG, FIXED, FULL, PROPOSED, SAMPLED_FAST0TAG, SAMPLED_FIXED
from visterm_research.ugc.problems import SENTENCES, TagProblem, together
from visterm_research.ugc.tag_run import TagRun, chosen_settings
from visterm_research.zero_shot.across_corpora import across_corpora

paper = read_paper("ugc")

METHODS = (FAST0TAG, FIXED, FULL, SAMPLED_FAST0TAG, SAMPLED_FIXED, PROPOSED)

NEAR = 0.8
"""Cosine from which on tags are joined: of vectors whose common number makes it (1 + c) / 2."""

TRUTH = "true tags"
OF_PEOPLE = "the tags that people wrote, as many as there are"
PHOTOS = ("corel5k", "scenes")


@dataclass(frozen=True)
class Journey:
    """From where to where.

    Attributes
    ----------
    run : TagRun
        Of the collection that is learned from.
    target : Problem
    vectors : dict of str to ndarray, optional
        Of the tags of both, "source" and "target"; None where they are not of one kind.
    """

    run: TagRun
    target: Problem
    vectors: dict[str, NDArray[np.float32]] | None

    @property
    def name(self) -> str:
        """Write it as the paper does."""
        return f"{self.run.name}→{self.target.name}"


def across_part(runs: Sequence[TagRun], methods: dict[str, Method], *, same_features: bool) -> None:
    """Learn on one collection and test on another, with the settings chosen for five tags an image on the first.

    Drawn scenes are learned from with people's tags and tested against the true ones. Photos and scenes are crossed
    where their features come from the same network.

    Parameters
    ----------
    runs : sequence of TagRun
    methods : dict of str to Method
        By label, those that are run.
    same_features : bool
        Whether photos of two collections are encoded alike: by a network, and not by a codebook of their own.
    """
    journeys = journeys_of(runs, same_features=same_features)
    if not journeys:
        return
    rows: list[list[str]] = []
    for journey in journeys:
        ours = [row for label in METHODS if label in methods for row in _rows(journey, methods[label])]
        rows += [*_of_people(journey), *ours] if ours else []
    if not rows:
        return
    document = journeys[0].run.comparison.document
    document.section(
        "Across collections",
        f"Learned from the training images of one collection, {K} tags for each test image of another, all of its own "
        "tags right; tags are joined by name, or by name and else to the nearest word vector, or every tag of the "
        "second gets a row from its vector. Features of each collection are centred by its own training images. The "
        "scenes' true tags are those that people would have written without "
        "leaving out, mistaking, misspelling or translating any.",
    )
    if not same_features:
        document.text(
            "Photos and scenes are not crossed: bags of visterms have the codebook of their own images. Name a network "
            "(--encoder onnx:FILE) to cross them."
        )
    theirs = ("IA→ESP", "VG→ESP", "YFCC→ESP")
    rows += [
        [f"{part} (paper)", label, "–", "–", *(f"{100 * value:g} %" for value in five)]
        for part in theirs
        for label, five in paper.TABLE_2[part].items()
    ]
    header = ("from→to", "method", "tags joined by", "joined", "P", "R", "F1")
    document.table(f"Table 2: across collections, {K} tags an image, image by image", header, rows)


def _rows(journey: Journey, method: Method) -> list[list[str]]:
    run = journey.run
    settings = chosen_settings(run, method)
    of = [run.problem.fingerprint, journey.target.test_fingerprint, method.model, settings, NEAR]
    found: dict[str, dict[str, float]] | None = run.comparison.while_time(
        f"Table 2, {method.label} on {journey.name}",
        lambda: run.comparison.trials.once(f"{run.name}/across", of, partial(_work, journey, method, settings), of)[
            "result"
        ],
    )
    return [
        [
            journey.name,
            method.label,
            way,
            f"{measures['tags']:.0f} of {len(journey.target.tags):,}",
            *(percent(measures[name]) for name in (f"p@{K}", f"r@{K}", "f1")),
        ]
        for way, measures in (found or {}).items()
    ]


def _of_people(journey: Journey) -> list[list[str]]:
    """Judge what people themselves wrote by the true tags: each image has as many as they gave."""
    problem = journey.run.problem
    if journey.target.name != TRUTH or problem.library is None:
        return []
    pictures = {picture.file_name: picture for picture in read_drawn_library(problem.library).pictures}
    shown = [pictures[name] for name in problem.rows.test_names if pictures[name].tags]
    right = [len({*map(tag_key, picture.given)} & {*map(tag_key, picture.tags)}) for picture in shown]
    precision = float(np.mean([n / max(1, len(picture.given)) for n, picture in zip(right, shown, strict=True)]))
    recall = float(np.mean([n / len(picture.tags) for n, picture in zip(right, shown, strict=True)]))
    figures = [percent(value) for value in (precision, recall, harmonic(precision, recall))]
    return [[journey.name, OF_PEOPLE, "name", "–", *figures]]


def _work(journey: Journey, method: Method, settings: dict[str, Any]) -> dict[str, Any]:
    trials = journey.run.comparison.trials
    found = across_corpora(
        journey.run.problem.rows,
        journey.target,
        method.model,
        settings,
        journey.vectors,
        least_cosine=NEAR,
        seed=trials.seed,
        n_jobs=trials.n_jobs,
    )
    return {"result": found}


def journeys_of(runs: Sequence[TagRun], *, same_features: bool) -> list[Journey]:
    """List from where to where: among photos and scenes, and from scenes to their true tags."""
    found = []
    photos = [run for run in runs if run.name in PHOTOS]
    for run in photos:
        if run.problem.library is not None and run.problem.rows.test_names:
            target = true_problem(run.problem, run.problem.library)
            found.append(Journey(run, target, _vectors(run.problem, target)))
        for other in photos if same_features else ():
            if other is not run:
                target = other.problem.rows
                found.append(Journey(run, target, _vectors(run.problem, target)))
    return found


def true_problem(problem: TagProblem, library: Path) -> Problem:
    """Return the drawn test images with their true tags; nothing but the test rows is of use."""
    pictures = {picture.file_name: picture for picture in read_drawn_library(library).pictures}
    vocabulary = Vocabulary.from_lists([picture.tags for picture in pictures.values()])
    true = vocabulary.encode([pictures[name].tags for name in problem.rows.test_names])
    test = Rows(problem.rows.test.X, true)
    return replace(problem.rows, name=TRUTH, tags=vocabulary.tags, train=test, valid=test, test=test, siblings=None)


def _vectors(source: TagProblem, target: Problem) -> dict[str, NDArray[np.float32]] | None:
    """Return vectors of both collections' tags, where any word has one."""
    if source.words.source != SENTENCES:
        return None
    ours, theirs = together(source.rows.tags, target.tags)
    return {"source": ours, "target": theirs}
