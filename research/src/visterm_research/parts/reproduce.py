"""`visterm reproduce parts`: Tables 3 to 6 and Figure 4 of the objects-and-parts paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress
from visterm.data.wordnet import WordNet
from visterm.tagging.plot import require_plots
from visterm_research.comparison.feature_sets import OUR_VISTERMS, FeatureSet
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sources import COREL, folders_of
from visterm_research.comparison.trials import Trials
from visterm_research.papers import objects_and_parts as paper
from visterm_research.parts.arms import MORE_ARMS, PAPER_ARMS, PartArm
from visterm_research.parts.data import DRAWN_SHARE
from visterm_research.parts.images import drawn_images
from visterm_research.parts.photos import photo_runs
from visterm_research.parts.plan import (
    LEARNED_SCENES,
    QUICK_LEARNED,
    QUICK_SCENES,
    QUICK_VISTERMS,
    SCENES,
    Plan,
)
from visterm_research.parts.relations import PASCAL_LISTS, pascal_folder
from visterm_research.parts.report import finish
from visterm_research.parts.run import PartsRun
from visterm_research.parts.shares import shares_part


def reproduce_parts(
    out: Path,
    *,
    data: Sequence[Path] = (),
    models: Sequence[str] = (),
    encoder: str | None = None,
    wordnet: Path | None = None,
    quick: bool = False,
    minutes: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Label objects and their parts as the paper does; what is finished is not done again.

    On drawn objects and parts, with half of their relations left out of training, and on Corel5k's tags with WordNet's
    and PASCAL-Part's relations where it is given. Relations, features and settings are chosen on validation rows.

    Parameters
    ----------
    out, quick, minutes, seed, n_jobs, progress
        As in `reproduce_pamir`.
    data : sequence of Path
        A folder of Corel5k, or its parent, and one of PASCAL-Part's ontology, which may also lie beside Corel5k as
        ``pascal_part``. None: drawn images alone.
    models : sequence of str
        ``objects_and_parts`` or ``svm``, to run one of them only.
    encoder : str, optional
        One more kind of features for drawn images beside visterms, and those of Corel5k.
    wordnet : Path, optional
        WordNet's database files; None: at their usual places. For Corel5k only.

    Raises
    ------
    UserError
        If a model is not in the comparison, or there are several folders of Corel5k.
    DataError
        If a folder holds no Corel5k, WordNet is missing, or an encoder does not encode all images.
    """
    arms = _chosen(models)
    require_plots()
    corel = _corel(data)
    nouns = None if corel is None else WordNet(wordnet)
    begin_folder(out, paper.PARTS_PAPER)
    trials = Trials(out / "results", seed=seed, n_jobs=n_jobs, until=deadline(minutes), progress=progress)
    comparison = Comparison(out, paper.PARTS_PAPER, [], trials, Document(""))
    running = [arm.quick() for arm in arms] if quick else arms
    plan = Plan(comparison, trials, running, seed, n_jobs, quick, progress, trials.check_time)
    runs = []
    for features in _features(encoder, quick):
        run = _drawn(plan, features)
        runs += [] if run is None else [run]
    if corel is not None and nouns is not None:
        features = _features(encoder, quick)[-1]
        runs += photo_runs(plan, corel, features, nouns, pascal_folder(data, corel))
    left_out = [arm.label for arm in (*PAPER_ARMS, *MORE_ARMS) if arm not in arms]
    return finish(comparison, runs, quick=quick, left_out=left_out)


def _drawn(plan: Plan, features: FeatureSet) -> PartsRun | None:
    n_scenes, learned = (QUICK_SCENES, QUICK_LEARNED) if plan.quick else (SCENES, LEARNED_SCENES)
    made = plan.comparison.while_time(
        f"Drawn objects and parts, {features.label}",
        partial(drawn_images, plan.cache, n_scenes, features, learned=learned, **plan.shared),
    )
    if made is None:
        return None
    data, pairs = made
    problem = plan.related(data, pairs, DRAWN_SHARE)
    what = f"The relations as they are drawn, a share of {DRAWN_SHARE:g} of them left out of training."
    run = plan.run(replace(problem, what=what))
    shares_part(run, lambda share: plan.related(data, pairs, share))
    return run


def _features(encoder: str | None, quick: bool) -> list[FeatureSet]:
    visterms = QUICK_VISTERMS if quick else OUR_VISTERMS
    if encoder is None:
        return [visterms]
    name = encoder.partition(":")[0]
    return [visterms, FeatureSet(name, name.replace("_", "-"), encoder)]


def _corel(data: Sequence[Path]) -> Path | None:
    others = [folder for folder in data if not (folder / PASCAL_LISTS).is_file()]
    folders = folders_of(others, (COREL,))
    if len(folders) > 1:
        raise UserError(f"--data has {len(folders)} folders of Corel5k ({', '.join(map(str, folders))}). Give one.")
    if data and not folders:
        raise UserError("--data has PASCAL-Part's ontology alone, which has no images. Give a folder of Corel5k, too.")
    return folders[0] if folders else None


def _chosen(models: Sequence[str]) -> list[PartArm]:
    """Return the methods of the models that a person asked for; all where none is named.

    Raises
    ------
    UserError
        If a name is in no row of the comparison.
    """
    every = (*PAPER_ARMS, *MORE_ARMS)
    known = {arm.model for arm in every}
    for model in models:
        if model not in known:
            raise UserError(f"The comparison has no model '{model}'; expected some of: {', '.join(sorted(known))}.")
    return [arm for arm in every if not models or arm.model in models]
