"""`visterm reproduce features`: Tables 1 and 2 of the objects-and-parts paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from visterm_research.comparison.feature_sets import OUR_VISTERMS, PAPER_VISTERMS, with_extra
from visterm_research.comparison.image_problems import QUICK_PHOTOS, SCENES, corel_problem, scene_problem
from visterm_research.comparison.methods import (
    APPROX_KNN,
    AUC,
    EXACT_KNN,
    ONE_VS_REST,
    RIDGE,
    WARP_LINEAR,
    WSABIE,
    Method,
)
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.sources import COREL, Source, known_folders
from visterm_research.features.photo_run import LINEAR_AUC, PhotoRun
from visterm_research.features.tables import (
    differences_part,
    feature_claims,
    features_part,
    loss_claims,
    losses_part,
    method_claims,
    precision_part,
    results_part,
)
from visterm_research.papers import read_paper

QUICK_SHRINK = 20
"""What WSABIE's large sizes are divided by in quick runs."""

EVERYWHERE = (WSABIE, EXACT_KNN, APPROX_KNN, LINEAR_AUC, ONE_VS_REST, RIDGE)
"""Table 1: run on all features."""

ON_VISTERMS = (AUC, WARP_LINEAR)
"""What Table 2 adds, on visterms."""

PhotoMaker = Callable[[str, Mapping[str, Any]], Problem]
"""Makes a problem of photos from an encoder's name and settings."""


def run(comparison: Comparison) -> dict[str, Any]:
    """Compare features, and methods on them, on Corel5k where a folder has it, and on drawn scenes.

    Each kind of features is made by an encoder that learns from the training photos only; on each, every method tries
    equally many settings. The features: visterms as in the paper and with our defaults, the ensemble of histograms
    with kernel PCA, a chain of the last two, and those of one more encoder where one is named.
    """
    quick, answers = comparison.quick, []
    paper_visterms = PAPER_VISTERMS.quick() if quick else PAPER_VISTERMS
    chosen = "" if quick else " Those, and the ensemble's, were chosen on held-out training photos of Corel5k."
    comparison.preface.text(
        f"Visterms are used twice: as in the paper ({paper_visterms.label}: {paper_visterms.settings}), and with our "
        f"defaults ({OUR_VISTERMS.label}).{chosen} Orders of methods and losses are judged on the paper's visterms."
    )
    added = [method.label for method in ON_VISTERMS]
    for name, make in photo_makers(comparison).items():
        run = PhotoRun(name, comparison, shrink=QUICK_SHRINK if quick else 1)
        for features in with_extra(comparison.options.encoder):
            features = features.quick() if quick else features
            run.encode(features, partial(make, features.encoder, features.params))
        run.test([method for method in comparison.methods if method.label not in added], run.sets)
        on_visterms = [features for features in run.sets if features.slug == PAPER_VISTERMS.slug]
        run.test([method for method in comparison.methods if method.label in added], on_visterms)
        answers += _report(run)
        for problem in run.problems.values():
            comparison.trials.forget(problem.name)
    comparison.preface.section("Does the ensemble with kernel PCA beat visterms here, as in the paper?")
    comparison.preface.items(answers)
    comparison.settings_part()
    return {}


def photo_makers(comparison: Comparison) -> dict[str, PhotoMaker]:
    """Return what makes problems of the same photos with any features, by the name of the photos."""
    source = Source.of(comparison)
    n_scenes = QUICK_PHOTOS if comparison.quick else SCENES
    corel = {kind: partial(corel_problem, source, folder) for kind, folder in _folders(comparison.options)}
    return {**corel, "scenes": partial(scene_problem, source, n_scenes)}


def _folders(options: Options, _methods: Sequence[Method] = ()) -> list[Any]:
    """Return the folders of Corel5k; those without it are refused."""
    return known_folders(options.data, (COREL,))


def _report(run: PhotoRun) -> list[str]:
    """Write the part on some photos, and give what it says of the features, in sentences."""
    if not run.sets:
        return []
    first = run.problems[run.sets[0].slug]
    images = [f"{rows.Y.shape[0]:,}" for rows in (first.train, first.valid, first.test)]
    run.comparison.document.section(
        f"On {run.name}",
        f"{images[0]} training, {images[1]} validation and {images[2]} test photos; {len(first.tags):,} tags.",
    )
    features_part(run)
    results_part(run)
    losses_part(run)
    answers = differences_part(run)
    precision_part(run)
    feature_claims(run)
    method_claims(run)
    loss_claims(run)
    return answers


STUDY = Study(read_paper("objects_and_parts").PAPER, "Features", (*EVERYWHERE, *ON_VISTERMS), run, _folders)
