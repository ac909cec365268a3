"""`visterm reproduce wsabie`: Tables 1 to 8, Figures 1 and 2 of the WSABIE paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from visterm.core.errors import UserError
from visterm.encoders import DEFAULT_ENCODER
from visterm_research.comparison.image_problems import (
    QUICK_SCENES,
    SCENES,
    corel_problem,
    delicious_problem,
    dictionary_problem,
    scene_problem,
)
from visterm_research.comparison.methods import (
    APPROX_KNN,
    AUC,
    EXACT_KNN,
    ONE_VS_REST,
    OWPC,
    PAMIR_IA,
    PRIOR,
    RIDGE,
    WARP_LINEAR,
    WSABIE,
    Method,
)
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison, Options, Study
from visterm_research.comparison.sources import COREL, DELICIOUS, Source, known_folders
from visterm_research.papers import read_paper
from visterm_research.wsabie.figures import annotations_part, neighbours_part, precision_part, training_part
from visterm_research.wsabie.neighbours import leaves_part
from visterm_research.wsabie.tables import (
    ENSEMBLE,
    cost_part,
    data_part,
    ensembles_part,
    loss_part,
    pairs_part,
    results_part,
    sizes_part,
    steps_part,
)

DICTIONARY, QUICK_DICTIONARY = (20_000, 5000, 5000), (600, 120, 200)
"""Images, tags and features of the drawn dictionary."""


def image_problems(comparison: Comparison) -> Iterator[Problem]:
    """Yield the problems: those of the folders (or drawn scenes), then a large drawn dictionary."""
    options = comparison.options
    # Data are made even after the end of the time: the report then lists each method that there was no time for.
    source = replace(Source.of(comparison), before_work=lambda: None)
    encoder = options.encoder or DEFAULT_ENCODER
    found = known_folders(options.data, (COREL, DELICIOUS))
    for kind, folder in found:
        if kind == COREL:
            yield corel_problem(source, folder, encoder, wordnet=options.wordnet)
        else:
            yield delicious_problem(folder, seed=options.seed)
    if not found:
        yield scene_problem(source, QUICK_SCENES if options.quick else SCENES, encoder)
    n_images, n_tags, n_features = QUICK_DICTIONARY if options.quick else DICTIONARY
    yield dictionary_problem(n_images, n_tags, n_features=n_features, seed=options.seed)


def run(comparison: Comparison) -> dict[str, Any]:
    """Run the comparison on Corel5k and Delicious, or on drawn scenes, and on a large drawn dictionary."""
    models = {method.model for method in comparison.methods}
    comparison.methods = [method for method in comparison.methods if method.model != ENSEMBLE.model]
    for problem in image_problems(comparison):
        comparison.begin(problem)
        data_part(comparison, problem)
        results_part(comparison, problem)
        pairs_part(comparison, problem)
        precision_part(comparison, problem)
        if WSABIE.model in models:
            neighbours_part(comparison, problem)
            sizes_part(comparison, problem)
            steps_part(comparison, problem)
        loss_part(comparison, problem)
        training_part(comparison, problem)
        cost_part(comparison, problem)
        leaves_part(comparison, problem)
        if ENSEMBLE.model in models:
            ensembles_part(comparison, problem)
        annotations_part(comparison, problem)
        comparison.trials.forget(problem.name)
    comparison.settings_part()
    return {}


def check(options: Options, methods: Sequence[Method]) -> None:
    """Refuse ensembles without what they combine, and folders that hold neither Corel5k nor Delicious."""
    models = {method.model for method in methods}
    if ENSEMBLE.model in models and WSABIE.model not in models:
        raise UserError(f"The {ENSEMBLE.label} combine WSABIE of several sizes. Name {WSABIE.model} too (--model).")
    known_folders(options.data, (COREL, DELICIOUS))


STUDY = Study(
    read_paper("wsabie").PAPER,
    "WSABIE",
    (WSABIE, AUC, OWPC, WARP_LINEAR, PAMIR_IA, ONE_VS_REST, APPROX_KNN, EXACT_KNN, RIDGE, PRIOR, ENSEMBLE),
    run,
    check,
)
"""As many settings of each method that has settings."""
