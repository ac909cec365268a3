"""`visterm reproduce vse-ens`: Tables 1 to 4 and Figure 1 of the VSE-ens paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.core.progress import SILENT, Progress
from visterm.tagging.plot import require_plots
from visterm_research.comparison.arms import VSE_ENS_ARMS, Arm, chosen_arms
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sections import finish, introduction
from visterm_research.comparison.sources import DELICIOUS, NUSWIDE, Source, check_folders, number_problems
from visterm_research.comparison.trials import Trials
from visterm_research.papers import vse_ens as paper
from visterm_research.vse_ens.draws import complexity_part, draws_part
from visterm_research.vse_ens.tables import data_part, results_part, time_part


def reproduce_vse_ens(
    out: Path,
    *,
    data: Sequence[Path] = (),
    models: Sequence[str] = (),
    arms: Sequence[Arm] = VSE_ENS_ARMS,
    quick: bool = False,
    minutes: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Run the comparison of the VSE-ens paper and write a report; what is finished in the folder is not done again.

    Images are known only by their number. One tag of each image with two or more is held out, and the tags that a
    model was told of an image are left out of its ranking.

    Parameters
    ----------
    out, models, arms, quick, minutes, seed, n_jobs, progress
        As in `reproduce_wsabie`.
    data : sequence of Path
        Folders of NUS-WIDE or Delicious, or their parents. Pairs of a large dictionary are always drawn besides.

    Raises
    ------
    UserError
        If a model is not registered, or matplotlib is missing.
    DataError
        If a folder holds no data that are known.
    """
    chosen = chosen_arms(arms, models)
    require_plots()
    check_folders(data, (NUSWIDE, DELICIOUS))
    if quick:
        chosen = [arm.quick() for arm in chosen]
    begin_folder(out, paper.PAPER)
    trials = Trials(out / "results", seed=seed, n_jobs=n_jobs, until=deadline(minutes), progress=progress)
    left_out = [arm.label for arm in arms if arm.label not in {one.label for one in chosen}]
    document = Document("The VSE-ens comparison, run again")
    comparison = Comparison(out, paper.PAPER, chosen, trials, Document(""))
    introduction(document, paper.PAPER, quick=quick, left_out=left_out)
    source = Source(out / "data", seed=seed, n_jobs=n_jobs, quick=quick, progress=progress)
    for problem in number_problems(source, data):
        comparison.begin(problem)
        data_part(comparison, problem)
        results_part(comparison, problem)
        complexity_part(comparison, problem)
        time_part(comparison, problem)
        draws_part(comparison, problem)
        trials.forget(problem)
    return finish(comparison, document, quick=quick, left_out=left_out)
