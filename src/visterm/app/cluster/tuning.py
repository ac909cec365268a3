"""Trials of `visterm tune` by Ray Tune: one a worker on one thread, the rows given out once, a lost trial repeated."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from visterm.app.cluster.engine import engine, held_settings, load_ray
from visterm.app.trial_log import Trial
from visterm.app.trying import try_settings
from visterm.app.validation import Parts
from visterm.core.errors import DataError, ShapeError, StorageError, TooLargeError, UserError
from visterm.core.progress import SILENT

MOST_LOSSES = 3
"""Workers or machines that one trial may lose before it is given up."""

_QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # settings may name files by relative paths
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interruption ends the command, as without Ray
}


class Task(NamedTuple):
    """One setting to be tried.

    Attributes
    ----------
    model : Annotator
        With the settings, not fitted.
    settings : mapping
        What is searched over.
    """

    model: Any
    settings: Mapping[str, Any]


def try_by_ray(
    address: str,
    n_jobs: int | None,
    tasks: Sequence[Task],
    parts: Parts,
    metric: str,
    finished: Callable[[int, Trial], None],
) -> None:
    """Try settings on the workers of an engine, and tell of each trial as it ends.

    A trial depends on its task and the rows alone, so that one whose worker is lost is done again elsewhere and comes
    out the same. Each is told once.

    Parameters
    ----------
    address, n_jobs
        As `engine` takes them.
    tasks : sequence of Task
    parts : Parts
        Rows to learn from and to judge by; they are given to the engine once, and a machine's workers share them.
    metric : str
        What to judge by.
    finished : callable
        Called here, with the number of the task and its trial, in the order in which they end.

    Raises
    ------
    StorageError
        If a trial lost its worker again and again.
    Exception
        What a trial raised, but for one that diverged; the others are stopped.
    """
    load_ray()
    with engine(address, n_jobs) as reached, held_settings(_QUIET, "ray.tune"), tempfile.TemporaryDirectory() as folder:
        from ray import tune

        ends = _ends(len(tasks), finished)
        trainable = tune.with_parameters(_tried, tasks=list(tasks), parts=parts, metric=metric)
        results = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(len(tasks))))},
            tune_config=tune.TuneConfig(max_concurrent_trials=reached.n_workers, reuse_actors=True),
            run_config=tune.RunConfig(
                storage_path=folder,
                failure_config=tune.FailureConfig(max_failures=MOST_LOSSES),
                callbacks=[ends],
                stop=ends,
                verbose=0,
            ),
        ).fit()
    if ends.error is not None:
        raise ends.error
    if lost := sorted(ends.waited_for):
        shown = ", ".join(f"{name}={value}" for name, value in tasks[lost[0]].settings.items())
        raise StorageError(
            f"The trial of {shown} failed {MOST_LOSSES + 1} times, with its worker ({_why(results)}): its machine may "
            "have too little memory. Trials that ended are kept; the same command goes on, also without --ray."
        )


def _why(results: Any) -> str:
    """Give the last line of the first error that Tune tells of."""
    told = [str(error).strip().splitlines()[-1] for error in results.errors if str(error).strip()]
    return told[0].strip() if told else "Ray does not say why"


def _tried(config: Mapping[str, int], tasks: Sequence[Task], parts: Parts, metric: str) -> dict[str, Any]:
    """Do one trial on a worker; an error is a result too, as Tune would only try it again."""
    model, settings = tasks[config["number"]]
    if "n_jobs" in model.get_params(deep=False):
        model.set_params(n_jobs=1)
    try:
        trial = try_settings(model, settings, parts, metric, SILENT)
    except Exception as error:
        return {"error": [type(error).__name__, str(error), traceback.format_exc()]}
    return {"trial": json.dumps(asdict(trial))}


def _raised(name: str, told: str, trace: str) -> Exception:
    """Give the error that a worker told of: one of ours as it was, another with the lines that led to it."""
    kind = {kind.__name__: kind for kind in (UserError, DataError, ShapeError, TooLargeError)}.get(name)
    return RuntimeError(trace) if kind is None else kind(told)


def _ends(n_tasks: int, finished: Callable[[int, Trial], None]) -> Any:
    """Make what Tune calls with results and asks whether to stop; made here, as its bases are known only with Ray."""
    from ray.tune import Callback, Stopper

    class Ends(Callback, Stopper):  # type: ignore[misc]  # Ray is Any to the checker
        def __init__(self) -> None:
            self.waited_for = set(range(n_tasks))
            self.error: Exception | None = None

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            number = trial.config["number"]
            if "error" in result:
                self.error = self.error or _raised(*result["error"])
            elif number in self.waited_for:
                self.waited_for.remove(number)
                finished(number, Trial(**json.loads(result["trial"])))

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return self.error is not None

    return Ends()
