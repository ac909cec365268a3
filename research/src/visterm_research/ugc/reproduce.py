"""`visterm reproduce ugc`: Tables 1 to 3, the two without a number and Figures 2 and 3 of the sampled tagging paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.core.progress import SILENT, Progress
from visterm.tagging.plot import require_plots
from visterm_research.comparison.arms import chosen_arms
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sections import claims_part, introduction, unfinished_part
from visterm_research.comparison.sources import COREL, DELICIOUS, Source, check_folders
from visterm_research.comparison.trials import Trials
from visterm_research.papers import ugc as paper
from visterm_research.ugc.across import across_part
from visterm_research.ugc.arms import UGC_ARMS, quick_arm
from visterm_research.ugc.claims import five_claims, goal_part
from visterm_research.ugc.measures import KINDS
from visterm_research.ugc.pictures import pictures_part
from visterm_research.ugc.problems import TagProblem, tag_problems
from visterm_research.ugc.run import TagRun
from visterm_research.ugc.tables import AVERAGED, data_part, examples_part, five_tags_part, settings_part
from visterm_research.ugc.times import times_part
from visterm_research.ugc.times_costs import costs_part
from visterm_research.ugc.times_draws import draws_part
from visterm_research.ugc.zero_shot import zero_shot_part

VISTERMS = "visterms"


def reproduce_ugc(
    out: Path,
    *,
    data: Sequence[Path] = (),
    models: Sequence[str] = (),
    encoder: str = VISTERMS,
    quick: bool = False,
    minutes: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Run the comparison of the sampled tagging paper and write a report; what is finished there is not done again.

    Parameters
    ----------
    out, quick, minutes, seed, n_jobs, progress
        As in `reproduce_wsabie`.
    data : sequence of Path
        Folders of Corel5k or Delicious, or their parents. Scenes with tags as people write them and a dictionary are
        always drawn besides.
    models : sequence of str
        Run these models only, by their names in the registry; empty for all.
    encoder : str
        For photos and scenes, as ``visterm fit --encoder`` takes it.

    Raises
    ------
    UserError
        If a model is not in the comparison or not registered.
    MissingExtraError
        If matplotlib or torch is missing.
    DataError
        If a folder holds no data that are known.
    StorageError
        If `out` holds other things, or the comparison of another paper.
    """
    arms = chosen_arms(UGC_ARMS, models)
    require_plots()
    check_folders(data, (COREL, DELICIOUS))
    left_out = [arm.label for arm in UGC_ARMS if arm not in arms]
    if quick:
        arms = [quick_arm(arm) for arm in arms]
    begin_folder(out, paper.PAPER)
    trials = Trials(out / "results", seed=seed, n_jobs=n_jobs, until=deadline(minutes), progress=progress)
    comparison = Comparison(out, paper.PAPER, arms, trials, Document(""))
    source = Source(out / "data", encoder=encoder, seed=seed, n_jobs=n_jobs, quick=quick, progress=progress)
    runs = []
    for name, make in tag_problems(source, data, trials.check_time):
        problem: TagProblem | None = comparison.while_time(f"The data {name}", make)
        if problem is not None:
            run = TagRun(problem, comparison, trials)
            run.run(arms)
            runs.append(run)
            report(run)
    by_label = {arm.label: arm for arm in arms}
    photos = [run for run in runs if run.name == COREL] or [run for run in runs if run.problem.library is not None]
    for run in photos:
        comparison.document.section(f"Words that no training image of {run.name} has")
        zero_shot_part(run, by_label, quick=quick)
    across_part(runs, by_label, same_features=encoder != VISTERMS and not quick)
    comparison.document.section("Time and cost")
    times_part(comparison, trials, quick=quick)
    costs_part(comparison, trials, quick=quick)
    for run in photos:
        draws_part(comparison, trials, run.problem.rows, quick=quick)
    settings_part(runs)
    return finish(comparison, runs, quick=quick, left_out=left_out)


def report(run: TagRun) -> None:
    """Write the tables and pictures of one problem, and judge the orders that the paper has."""
    what = run.problem.rows.what
    run.comparison.document.section(f"On {run.name}", f"{what[0].upper()}{what[1:]}.")
    data_part(run)
    goal_part(run)
    for kind in KINDS:
        five_tags_part(run, kind)
    examples_part(run)
    pictures_part(run)
    five_claims(run)


def finish(comparison: Comparison, runs: Sequence[TagRun], *, quick: bool, left_out: Sequence[str]) -> Outcome:
    """Put what it is and the claims before the tables, what is missing behind, and write all."""
    body, document = comparison.document, Document("Sampled tagging, run again")
    comparison.document = document
    introduction(document, paper.PAPER, quick=quick, left_out=left_out)
    document.text(AVERAGED)
    document.text(f"{paper.MISPRINTS} {paper.WITHOUT_DENSECAP}")
    claims_part(comparison)
    document.parts.extend(body.parts)
    document.tables.extend(body.tables)
    unfinished_part(comparison)
    return comparison.write(
        {
            "quick": quick,
            "left_out": list(left_out),
            "problems": {run.name: run.described() for run in runs},
            "tested": {run.name: run.summaries() for run in runs},
            "aims": [aim.as_dict() for run in runs for aim in run.aims],
        }
    )
