"""`visterm reproduce wsabie`: Tables 1 to 8 and Figures 1 and 2 of the WSABIE paper, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress
from visterm.tagging.plot import require_plots
from visterm_research.comparison.arms import ENSEMBLE_ARM, WSABIE, WSABIE_ARMS, Arm, chosen_arms
from visterm_research.comparison.markdown import Document
from visterm_research.comparison.place import begin_folder
from visterm_research.comparison.run import Comparison, Outcome, deadline
from visterm_research.comparison.sections import finish, introduction
from visterm_research.comparison.sources import COREL, DELICIOUS, Source, check_folders, image_problems
from visterm_research.comparison.trials import Trials
from visterm_research.papers import wsabie as paper
from visterm_research.wsabie.curves import precision_part, training_part
from visterm_research.wsabie.ensembles import ensembles_part
from visterm_research.wsabie.examples import annotations_part, neighbours_part
from visterm_research.wsabie.leaves import leaves_part
from visterm_research.wsabie.tables import cost_part, data_part, loss_part, results_part, sizes_part


def reproduce_wsabie(
    out: Path,
    *,
    data: Sequence[Path] = (),
    models: Sequence[str] = (),
    arms: Sequence[Arm] = (*WSABIE_ARMS, ENSEMBLE_ARM),
    encoder: str = "visterms",
    wordnet: Path | None = None,
    quick: bool = False,
    minutes: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Run the comparison of the WSABIE paper and write a report; what is finished in the folder is not done again.

    Parameters
    ----------
    out : Path
        The folder: afterwards it holds ``report.md``, ``results.json``, ``figures/``, and ``results/`` and ``data/``
        from which a second run goes on.
    data : sequence of Path
        Folders of Corel5k or Delicious, or their parents; without one, scenes are drawn. A large dictionary is always
        drawn besides.
    models : sequence of str
        Run these models only, by their names in the registry; empty for all.
    arms : sequence of Arm
        The methods.
    encoder : str
        For photos, as ``visterm fit --encoder`` takes it.
    wordnet : Path, optional
        WordNet's database files, for the siblings of real tags; without them sibling precision is not measured there.
    quick : bool
        Tiny drawn sets, few epochs, at most two settings a method: says that everything runs, and nothing else.
    minutes : float, optional
        No fit is begun after so many minutes; the report then says what is missing.
    seed : int
        Of drawn data, splits and models.
    n_jobs : int, optional
        Threads; None is all cores.
    progress : Progress

    Raises
    ------
    UserError
        If a model is not registered, ensembles are wanted without WSABIE, or matplotlib is missing.
    DataError
        If a folder holds no data that are known.
    StorageError
        If `out` holds other things, or the comparison of another paper.
    """
    chosen = chosen_arms(arms, models)
    if any(arm.model == ENSEMBLE_ARM.model for arm in chosen) and all(arm.model != WSABIE.model for arm in chosen):
        raise UserError(f"The {ENSEMBLE_ARM.label} combine WSABIE of several sizes. Name {WSABIE.model} too (--model).")
    require_plots()
    check_folders(data, (COREL, DELICIOUS))
    if quick:
        chosen = [arm.quick() for arm in chosen]
    begin_folder(out, paper.PAPER)
    trials = Trials(out / "results", seed=seed, n_jobs=n_jobs, until=deadline(minutes), progress=progress)
    methods = [arm for arm in chosen if arm.model != ENSEMBLE_ARM.model]
    left_out = [arm.label for arm in arms if arm.model not in {one.model for one in chosen}]
    document = Document("The WSABIE comparison, run again")
    comparison = Comparison(out, paper.PAPER, methods, trials, Document(""))
    introduction(document, paper.PAPER, quick=quick, left_out=left_out)
    source = Source(
        out / "data", encoder=encoder, wordnet=wordnet, seed=seed, n_jobs=n_jobs, quick=quick, progress=progress
    )
    for problem in image_problems(source, data):
        comparison.begin(problem)
        data_part(comparison, problem)
        results_part(comparison, problem)
        precision_part(comparison, problem)
        if any(arm.model == WSABIE.model for arm in methods):
            neighbours_part(comparison, problem)
            sizes_part(comparison, problem, quick=quick)
        loss_part(comparison, problem)
        training_part(comparison, problem)
        cost_part(comparison, problem)
        leaves_part(comparison, problem)
        if any(arm.model == ENSEMBLE_ARM.model for arm in chosen):
            ensembles_part(comparison, problem, quick=quick)
        annotations_part(comparison, problem)
        trials.forget(problem)
    return finish(comparison, document, quick=quick, left_out=left_out)
