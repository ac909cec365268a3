"""Ray Train's workers: a function that several processes run together, begun again where one of them is lost."""

from __future__ import annotations

import json
import shutil
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from visterm.cluster.engine import Engine, held_settings, load_ray
from visterm.core import errors
from visterm.core.errors import StorageError, VistermError
from visterm.core.executor import Group, Member, must_see
from visterm.core.jsonlines import json_text
from visterm.core.progress import Progress
from visterm.core.writing import write_whole

MOST_LOSSES = 10
"""Times that workers may be lost before a job is given up: by then the fault lies with it."""

TOLD, ERROR = "told", "error.json"
"""Names of the folder in which workers and command tell each other things, and of what ended a worker in it."""

_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # settings may name files by relative paths
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more, for machines that tell before they go
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",  # for processors; then it counts again how many there are
}


class RayMember(NamedTuple):
    """One process of a group: `Member`."""

    rank: int
    size: int
    n_threads: int

    @property
    def host(self) -> str:
        """Address at which the other processes reach this machine."""
        return str(load_ray().util.get_node_ip_address())

    def broadcast(self, value: Any) -> Any:
        """Return what the process of rank 0 passed; every process has to call this."""
        from ray.train.collective import broadcast_from_rank_zero

        return broadcast_from_rank_zero(value)


def group_of(engine: Engine) -> Group:
    """Say how many processes work together on an engine, and with how many threads each.

    A machine's processors share the weights of one process, as threads; where there is one machine only, each processor
    has a process: without Ray its processors would be threads.
    """
    if engine.n_nodes == 1:
        return Group(engine.n_workers, 1)
    alive = [node["Resources"].get("CPU", 0) for node in load_ray().nodes() if node["Alive"]]
    n_threads = int(min(n_cpus for n_cpus in alive if n_cpus >= 1))
    machines = sum(n_cpus >= n_threads for n_cpus in alive)
    return Group(min(machines, engine.n_workers), n_threads)


def run_group(work: Callable[[Member, Progress], Any], group: Group, folder: Path, progress: Progress) -> Any:
    """Run a function in several processes at once, and give what the first of them returns.

    Where one is lost all begin again, on as many processors as there are then: what they have done so far is for the
    function to keep and to find. An error that one of them raises on purpose ends the job, and is raised here.

    Parameters
    ----------
    work : callable
        Sent to each; takes a `Member` and a `Progress`.
    group : Group
    folder : Path
        On a disk that all machines share.
    progress : Progress
        Told what the first process tells.

    Raises
    ------
    VistermError
        As `work` raised it.
    StorageError
        If workers were lost again and again, or do not see the folder.
    """
    load_ray()
    for left in folder.glob(f"{TOLD}.*"):  # by a command that was killed
        shutil.rmtree(left, ignore_errors=True)
    told = folder / f"{TOLD}.{uuid.uuid4().hex[:8]}"
    told.mkdir(parents=True)
    with _settings_of_train(), retold(told / "progress.jsonl", progress, "start the workers"):
        from ray import train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        trainer = DataParallelTrainer(
            _one,
            train_loop_config={"work": work, "told": str(told), "n_threads": group.n_threads},
            scaling_config=train.ScalingConfig(
                num_workers=(1, group.n_workers),
                resources_per_worker={"CPU": group.n_threads},
                placement_strategy="SPREAD",
                elastic_resize_monitor_interval_s=86_400.0,
            ),
            run_config=train.RunConfig(
                name="ray", storage_path=str(told), failure_config=train.FailureConfig(max_failures=MOST_LOSSES)
            ),
        )
        try:
            found = trainer.fit().return_value
        except train.TrainingFailedError as error:
            raise StorageError(
                f"The workers were lost {MOST_LOSSES} times: a machine may have too little memory. The same command "
                f"goes on from the last checkpoint. Ray says: {str(error).strip().splitlines()[-1]}"
            ) from error
    raised = _read_error(told / ERROR) if (told / ERROR).exists() else None
    shutil.rmtree(told, ignore_errors=True)
    if raised is not None:
        raise raised
    return found


def _one(config: dict[str, Any]) -> Any:
    """Be one of the processes.

    An error raised on purpose is written down before it ends the process, so that the others, which may wait for it,
    are ended by Ray, and those that begin anew see that there is nothing to be done.
    """
    from ray import train

    told, context = Path(config["told"]), train.get_context()
    must_see(told)
    if (told / ERROR).exists():
        return None
    member = RayMember(context.get_world_rank(), context.get_world_size(), config["n_threads"])
    try:
        return config["work"](member, ToldProgress(told / "progress.jsonl"))
    except Exception as error:
        # A lost connection is a RuntimeError of torch, or an OSError: all begin again.
        if isinstance(error, VistermError) or not isinstance(error, RuntimeError | OSError):
            _write_error(told / ERROR, error)
        raise


def _write_error(path: Path, error: Exception) -> None:
    told = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
    write_whole(path, json_text(told).encode("utf-8"))


def _read_error(path: Path) -> Exception:
    told = json.loads(path.read_text(encoding="utf-8"))
    kind = getattr(errors, told["type"], None)
    error: Exception
    if isinstance(kind, type) and issubclass(kind, VistermError) and kind is not errors.ImageError:
        error = kind(told["message"])
    else:
        error = RuntimeError(f"{told['type']}: {told['message']}")
    error.add_note(f"In a worker:\n{told['traceback']}")
    return error


@contextmanager
def _settings_of_train() -> Iterator[None]:
    """Hold Ray Train's settings while a group works, and let its own warnings pass."""
    with held_settings(_SETTINGS, "ray.train"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # which Ray uses itself
        yield


EVERY = 0.3
"""Seconds between looks at the file."""


class ToldProgress:
    """Writes down what it is told.

    Parameters
    ----------
    path : Path
        Lines are added to it, one for each thing told.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, task: str, total: int | None = None) -> None:
        """Note the beginning of a task."""
        self._write("start", task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Note steps."""
        self._write("advance", steps, note)

    def finish(self) -> None:
        """Note the end of the task."""
        self._write("finish")

    def _write(self, *told: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json_text(told) + "\n")


@contextmanager
def retold(path: Path, progress: Progress, before: str = "") -> Iterator[None]:
    """Tell a progress, while the block runs, all that is written to a file; a task that begins again ends first.

    `before` is the task that is under way until something is written, if there is one.
    """
    if before:
        progress.start(before, None)
    over = threading.Event()
    retelling = threading.Thread(target=_retell, args=(path, progress, over, bool(before)), daemon=True)
    retelling.start()
    try:
        yield
    finally:
        over.set()
        retelling.join()


def _retell(path: Path, progress: Progress, over: threading.Event, under_way: bool) -> None:
    place, rest = 0, b""
    while True:
        last = over.wait(EVERY)  # what was written before the end is read after it
        if path.exists():
            with path.open("rb") as file:
                file.seek(place)
                read = file.read()
            place += len(read)
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                what, *told = json.loads(line)
                if under_way and what == "start":
                    progress.finish()
                if what != "finish" or under_way:
                    getattr(progress, what)(*told)
                under_way = what != "finish"
        if last:
            if under_way:
                progress.finish()
            return
