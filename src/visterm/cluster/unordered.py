"""Parts of a job by Ray Tune: one a worker on one thread, each result as soon as it is there, a lost part repeated."""

from __future__ import annotations

import logging
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from visterm.cluster.engine import load_ray
from visterm.core.errors import DataError, ShapeError, StorageError, TooLargeError, UserError
from visterm.core.executor import Job
from visterm.core.progress import SILENT
from visterm.core.threads import Team

P = TypeVar("P")
R = TypeVar("R")

MOST_LOSSES = 3  # Workers or machines that one part may lose before it is given up
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # settings may name files by relative paths
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interruption ends the command, as without Ray
}


def as_done(job: Job[P, R], parts: Sequence[P], n_workers: int, finished: Callable[[int, R], None]) -> None:
    """Do the parts of a job on `n_workers` workers of the engine that is connected, and report each as it ends.

    A part whose worker is lost is done again elsewhere, with the same result. Each is reported once: `finished` is
    called here with the number of the part and its result, in the order in which they end. The job is handed to the
    engine once; the workers of a machine share it.

    Raises StorageError if a part lost its worker again and again, and what a part raised; the others are then stopped.
    """
    pickler = load_ray().cloudpickle
    with _quiet_tune(), tempfile.TemporaryDirectory() as folder:
        from ray import tune

        ends = _ends(len(parts), finished, pickler)
        trainable = tune.with_parameters(_one_part, parts=list(parts), job=job)
        results = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(len(parts))))},
            tune_config=tune.TuneConfig(max_concurrent_trials=n_workers, reuse_actors=True),
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
        reasons = [str(error).strip().splitlines()[-1].strip() for error in results.errors if str(error).strip()]
        why = reasons[0] if reasons else "Ray does not say why"
        raise StorageError(
            f"{job.name_of(parts[lost[0]])} failed {MOST_LOSSES + 1} times, with its worker ({why}): its machine may "
            "have too little memory. Finished parts are kept; the same command goes on, also without --ray."
        )


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Keep Ray Tune quiet while it works: by environment variables that it reads, and by the level of its log."""
    before = {name: os.environ[name] for name in QUIET if name in os.environ}
    log = logging.getLogger("ray.tune")
    level = log.level
    os.environ |= QUIET
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
        for name in QUIET:
            del os.environ[name]
        os.environ |= before


def _one_part(config: Mapping[str, int], parts: Sequence[Any], job: Job[Any, Any]) -> dict[str, Any]:
    """Do one part on a worker; an error is a result too, as Tune would only try it again."""
    try:
        result = job.begin(Team(1), SILENT)(parts[config["number"]])
    except Exception as error:
        return {"error": [type(error).__name__, str(error), traceback.format_exc()]}
    return {"pickled": load_ray().cloudpickle.dumps(result).hex()}


def _ends(n_parts: int, finished: Callable[[int, Any], None], pickler: Any) -> Any:
    """Make what Tune calls with results and asks whether to stop; made here, as its bases are known only with Ray."""
    from ray.tune import Callback, Stopper

    class Ends(Callback, Stopper):  # type: ignore[misc]  # Ray is Any to the checker
        def __init__(self) -> None:
            self.waited_for = set(range(n_parts))
            self.error: Exception | None = None

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            number = trial.config["number"]
            if "error" in result:
                kind, message, trace = result["error"]
                ours = {kind.__name__: kind for kind in (UserError, DataError, ShapeError, TooLargeError)}
                self.error = self.error or (ours[kind](message) if kind in ours else RuntimeError(trace))
            elif number in self.waited_for:
                self.waited_for.remove(number)
                finished(number, pickler.loads(bytes.fromhex(result["pickled"])))

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return self.error is not None

    return Ends()
