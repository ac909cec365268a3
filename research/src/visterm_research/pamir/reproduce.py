"""`visterm reproduce pamir`: Tables I to XIII and Figures 4 and 5 of the PAMIR paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress
from visterm.tagging.plot import require_plots
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sources import COREL, folders_of
from visterm_research.comparison.trials import Trials
from visterm_research.pamir.arms import MORE_ARMS, PAMIR, PAPER_ARMS, QUICK, SVM, SVM_ON_DENSE, SearchArm
from visterm_research.pamir.feature_blocks import BY_BLOCK, QUICK_TRIED, TRIED
from visterm_research.pamir.images import Pictures, corel_pictures, drawn_pictures
from visterm_research.pamir.pictures import shown_queries
from visterm_research.pamir.report import report
from visterm_research.pamir.rows import Encoded
from visterm_research.pamir.run import SearchRun
from visterm_research.pamir.sections import finish
from visterm_research.papers import pamir as paper

DIVISIONS, QUICK_DIVISIONS = 5, 2
DRAWN, QUICK_DRAWN = 4000, 80
"""Pictures of the library that stands for CorelLarge."""

MAX_WORDS = 3
MAX_SUBSETS, QUICK_SUBSETS = 2**16, 2**8
"""Sets of words of drawn pictures, of which each has many."""

FIGURE_4 = ("petals", "buildings, cars")
LIKE_4, LIKE_5 = ((1, 4), (2, 3)), ((3, 13), (2, 4))
"""Words and relevant pictures of the paper's queries."""


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes
    ----------
    arms, more : list of SearchArm
        The paper's methods, and others.
    seed : int
    n_jobs : int or None
    quick : bool
    progress : Progress
    """

    arms: list[SearchArm]
    more: list[SearchArm]
    seed: int
    n_jobs: int | None
    quick: bool
    progress: Progress


def reproduce_pamir(
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
    """Search by several words with PAMIR and the models that the paper compares; what is finished is not done again.

    Features and settings of each method are chosen by AvgP over the validation queries of one division of the
    development pictures; the test pictures are ranked once for each of five divisions, and figures are means.

    Parameters
    ----------
    out, models, quick, minutes, seed, n_jobs, progress
        As in `reproduce_wsabie`. No pictures are drawn or encoded after the end of the time either.
    data : sequence of Path
        A folder of Corel5k, or its parent: then a drawn library is in place of CorelLarge. None: the library is in
        place of CorelSmall.
    encoder : str, optional
        One more kind of features, as ``visterm fit --encoder`` takes it: Table IX on it, and annotation with five tags.

    Raises
    ------
    UserError
        If a model is not in the comparison, or there are several folders.
    DataError
        If a folder holds no Corel5k, or an encoder does not encode all pictures.
    """
    plan = Plan(_chosen(PAPER_ARMS, models), _chosen(MORE_ARMS, models), seed, n_jobs, quick, progress)
    left_out = [arm.label for arm in (*PAPER_ARMS, *MORE_ARMS) if arm not in (*plan.arms, *plan.more)]
    require_plots()
    folder = _folder(data)
    begin_folder(out, paper.PAPER)
    trials = Trials(
        out / "results",
        seed=seed,
        n_jobs=n_jobs,
        until=deadline(minutes),
        progress=progress,
        small=QUICK if quick else None,
    )
    comparison = Comparison(out, paper.PAPER, [], trials, Document(""))
    tools = _tools(comparison, plan)
    small, extra, large = None, None, None
    if folder is not None:
        pictures = corel_pictures(folder, n_divisions=QUICK_DIVISIONS if quick else DIVISIONS, seed=seed)
        small = _first(pictures, tools, plan, FIGURE_4, LIKE_4)
    library = comparison.while_time("The drawn library", lambda: _library(out / "data", plan, trials))
    if library is not None:
        large = _first(library, tools, plan, (), LIKE_4) if small is None else _second(library, tools, plan, small)
    if small is None:
        small, large = large, None
    if small is not None:
        _add_more(small, plan)
        extra = None if encoder is None else _with_encoder(small, encoder, plan)
        report(small, large, extra, [_for(arm, small.pictures) for arm in plan.arms], plan.more, whole=not left_out)
    runs = [run for run in (small, large, extra) if run is not None]
    return finish(comparison, runs, quick=quick, left_out=left_out)


@dataclass(frozen=True)
class Tools:
    """What fits and keeps: shared by all pictures."""

    comparison: Comparison
    encoded: Encoded


def _tools(comparison: Comparison, plan: Plan) -> Tools:
    out, check = comparison.out, comparison.trials.check_time
    encoded = Encoded(
        out / "data", seed=plan.seed, n_jobs=plan.n_jobs, before_work=check, progress=plan.progress, quick=plan.quick
    )
    return Tools(comparison, encoded)


def _begun(
    pictures: Pictures, tools: Tools, plan: Plan, texts: Sequence[str], like: Sequence[tuple[int, int]]
) -> SearchRun:
    shown = shown_queries(pictures, texts, like)
    return SearchRun(pictures, tools.comparison, tools.encoded, tools.comparison.trials, plan.quick, shown)


def _first(
    pictures: Pictures, tools: Tools, plan: Plan, texts: Sequence[str], like: Sequence[tuple[int, int]]
) -> SearchRun:
    """Choose features and settings of the paper's methods on these pictures, and judge them."""
    run = _begun(pictures, tools, plan, texts, like)
    for arm in plan.arms:
        run.choose(_for(arm, pictures), QUICK_TRIED if plan.quick else TRIED)
    for arm in plan.arms:
        run.judge(arm.label)
    return run


def _second(pictures: Pictures, tools: Tools, plan: Plan, small: SearchRun) -> SearchRun:
    """Choose settings only, and judge: features are those of the first pictures, as in the paper (V-B)."""
    run = _begun(pictures, tools, plan, (), LIKE_5)
    for arm in plan.arms:
        if arm.label in small.choices:
            run.choose(_for(arm, pictures), [small.choices[arm.label].features])
            run.judge(arm.label)
    return run


def _add_more(run: SearchRun, plan: Plan) -> None:
    """Choose settings of methods beyond the paper on the features that PAMIR chose, and judge them."""
    chosen = run.choices.get(PAMIR.label)
    for arm in plan.more:
        run.choose(arm, [BY_BLOCK[0] if chosen is None else chosen.features])
        run.judge(arm.label)


def _with_encoder(small: SearchRun, encoder: str, plan: Plan) -> SearchRun:
    """Choose settings of all methods on features of one more kind, and judge them."""
    name = encoder.partition(":")[0]
    features = FeatureSet(f"{name} (not in the paper)", "extra", encoder)
    run = SearchRun(
        small.pictures, small.comparison, small.encoded, small.trials, plan.quick, small.shown,
        title=f"{small.pictures.name} with {name}",
    )  # fmt: skip
    if run.comparison.while_time(f"The features {name} of {run.pictures.name}", lambda: run.rows(features)) is None:
        return run
    for arm in (*plan.arms, *plan.more):
        if run.takes(arm, features):
            chosen = SVM_ON_DENSE if arm == SVM else _for(arm, run.pictures)
            run.choose(chosen, [features])
            run.judge(arm.label)
    return run


def _for(arm: SearchArm, pictures: Pictures) -> SearchArm:
    """Have PAMIR make its training queries as those of the pictures are made."""
    if arm.label != PAMIR.label:
        return arm
    return replace(arm, fixed={"max_words": pictures.max_words, "max_subsets": pictures.max_subsets})


def _library(cache: Path, plan: Plan, trials: Trials) -> Pictures:
    return drawn_pictures(
        cache,
        QUICK_DRAWN if plan.quick else DRAWN,
        seed=plan.seed,
        n_jobs=plan.n_jobs,
        max_words=MAX_WORDS,
        max_subsets=QUICK_SUBSETS if plan.quick else MAX_SUBSETS,
        before_work=trials.check_time,
        progress=plan.progress,
    )


def _folder(data: Sequence[Path]) -> Path | None:
    folders = folders_of(data, (COREL,))
    if len(folders) > 1:
        raise UserError(f"--data has {len(folders)} folders of Corel5k ({', '.join(map(str, folders))}). Give one.")
    return folders[0] if folders else None


def _chosen(arms: Sequence[SearchArm], models: Sequence[str]) -> list[SearchArm]:
    """Return the methods that a person asked for by the models' names; all where none is named.

    Raises
    ------
    UserError
        If a name is in no row of the comparison.
    """
    known = {arm.model for arm in (*PAPER_ARMS, *MORE_ARMS)}
    for model in models:
        if model not in known:
            raise UserError(f"The comparison has no model '{model}'; expected some of: {', '.join(sorted(known))}.")
    return [arm for arm in arms if not models or arm.model in models]
