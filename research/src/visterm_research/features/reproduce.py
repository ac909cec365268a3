"""`visterm reproduce features`: Tables 1 and 2 of the objects-and-parts paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from visterm.core.progress import SILENT, Progress
from visterm.tagging.plot import require_plots
from visterm_research.comparison.arms import FEATURE_ARMS, LOSS_ARMS, Arm, chosen_arms
from visterm_research.comparison.feature_sets import OUR_VISTERMS, PAPER_VISTERMS, FeatureSet, with_extra
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sections import finish, introduction
from visterm_research.comparison.sources import COREL, PhotoMaker, Source, check_folders, photo_makers
from visterm_research.comparison.trials import Trials
from visterm_research.features.claims import feature_claims, loss_claims, method_claims
from visterm_research.features.photo_run import PhotoRun
from visterm_research.features.tables import (
    differences_part,
    features_part,
    losses_part,
    precision_part,
    results_part,
)
from visterm_research.papers import objects_and_parts as paper

QUICK_SHRINK = 20
"""What WSABIE's large sizes are divided by in quick runs."""


def reproduce_features(
    out: Path,
    *,
    data: Sequence[Path] = (),
    models: Sequence[str] = (),
    encoder: str | None = None,
    quick: bool = False,
    minutes: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Compare features, and methods on them, as the objects-and-parts paper does; what is finished is not done again.

    Each kind of features is made by an encoder that learns from the training photos only; on each, every method tries
    equally many settings. The features: visterms as in the paper and with our defaults, the ensemble of histograms
    with kernel PCA, and a chain of the last two.

    Parameters
    ----------
    out, models, quick, minutes, seed, n_jobs, progress
        As in `reproduce_wsabie`. No features are encoded after the end of the time either.
    data : sequence of Path
        Folders of Corel5k, or their parents. Scenes are always drawn besides.
    encoder : str, optional
        One more kind of features beside the paper's, as ``visterm fit --encoder`` takes it.

    Raises
    ------
    UserError
        If a model is not registered, or matplotlib is missing.
    DataError
        If a folder holds no data that are known, or `encoder` has no rows for some photos.
    """
    arms = (*FEATURE_ARMS, *LOSS_ARMS)
    chosen = chosen_arms(arms, models)
    require_plots()
    check_folders(data, (COREL,))
    left_out = [arm.label for arm in arms if arm not in chosen]
    everywhere = _prepared([arm for arm in FEATURE_ARMS if arm in chosen], quick)
    on_visterms = _prepared([arm for arm in LOSS_ARMS if arm in chosen], quick)
    sets = [features.quick() if quick else features for features in with_extra(encoder)]
    begin_folder(out, paper.PAPER)
    trials = Trials(out / "results", seed=seed, n_jobs=n_jobs, until=deadline(minutes), progress=progress)
    document = Document("The comparison of features, run again")
    comparison = Comparison(out, paper.PAPER, [*everywhere, *on_visterms], trials, Document(""))
    introduction(document, paper.PAPER, quick=quick, left_out=left_out)
    document.text(
        f"Visterms are used twice: as in the paper ({PAPER_VISTERMS.label}: {PAPER_VISTERMS.settings}), and with our "
        f"defaults ({OUR_VISTERMS.label}). Those, and the ensemble's, were chosen on held-out training photos of "
        "Corel5k. Orders of methods and losses are judged on the paper's visterms."
    )
    source = Source(out / "data", seed=seed, n_jobs=n_jobs, quick=quick, progress=progress)
    answers = []
    for name, make in photo_makers(source, data, trials.check_time).items():
        run = PhotoRun(name, comparison, shrink=QUICK_SHRINK if quick else 1)
        _test_all(run, sets, make, everywhere, on_visterms)
        answers += _report(run)
        run.forget(trials)
    document.section("Does the ensemble with kernel PCA beat visterms here, as in the paper?")
    document.items(answers)
    return finish(comparison, document, quick=quick, left_out=left_out)


def _test_all(
    run: PhotoRun, sets: Sequence[FeatureSet], make: PhotoMaker, everywhere: Sequence[Arm], on_visterms: Sequence[Arm]
) -> None:
    for features in sets:
        run.encode(features, partial(make, features.encoder, features.params))
    run.test(everywhere, run.sets)
    run.test(on_visterms, [features for features in run.sets if features.slug == PAPER_VISTERMS.slug])


def _report(run: PhotoRun) -> list[str]:
    """Write the part on some photos, and give what it says of the features, in sentences."""
    if not run.sets:
        return []
    first = run.problems[run.sets[0].slug]
    images = [f"{rows.Y.shape[0]:,}" for rows in (first.train, first.valid, first.test)]
    run.comparison.document.section(
        f"On {run.name}",
        f"{images[0]} photos to learn from, {images[1]} to choose settings by, {images[2]} for the test; "
        f"{len(first.tags):,} tags.",
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


def _prepared(arms: Sequence[Arm], quick: bool) -> list[Arm]:
    return [arm.quick() for arm in arms] if quick else list(arms)
