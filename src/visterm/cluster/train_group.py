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
from typing import Any

from visterm.cluster.engine import Engine, held_settings, load_ray
from visterm.core import errors
from visterm.core.errors import StorageError, VistermError
from visterm.core.executor import Group, Member, must_see
from visterm.core.jsonlines import json_text
from visterm.core.progress import Progress
from visterm.core.writing import write_whole

MOST_LOSSES = 10  # Times that workers may be lost before a job is given up: by then the fault lies with it
EXCHANGE, ERROR = "told", "error.json"
"""Names of the folder through which workers report to the command, and of the file in it on what ended a worker."""

EVERY = 0.3  # Seconds between looks at the workers' progress
_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # settings may name files by relative paths
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more, for machines that tell before they go
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",  # for processors; then it counts again how many there are
}


class RayMember(Member):
    """One process of a group of Ray's."""

    def broadcast(self, value: Any) -> Any:
        """Return what the process of rank 0 passed; every process has to call this."""
        from ray.train.collective import broadcast_from_rank_zero

        return broadcast_from_rank_zero(value)


def group_of(engine: Engine) -> Group:
    """Return how many processes work together on an engine, and with how many threads each.

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
    """Run a function in several processes at once, and return what the first of them returns.

    `work` is sent to each, and takes a `Member` and a `Progress`; `progress` shows what they report. The folder lies on
    a disk that all machines share.

    Where a process is lost all begin again, on as many processors as there are then: what they have done so far is for
    the function to keep and to find. An error that one of them raises on purpose ends the job, and is raised here.
    Raises StorageError if workers were lost again and again, or do not see the folder.
    """
    load_ray()
    for left in folder.glob(f"{EXCHANGE}.*"):  # by a command that was killed
        shutil.rmtree(left, ignore_errors=True)
    exchange = folder / f"{EXCHANGE}.{uuid.uuid4().hex[:8]}"
    exchange.mkdir(parents=True)
    shown = progress_shown(exchange / "progress.jsonl", progress, "start the workers")
    with held_settings(_SETTINGS, "ray.train"), warnings.catch_warnings(), shown:
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # which Ray uses itself
        from ray import train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        trainer = DataParallelTrainer(
            _one,
            train_loop_config={"work": work, "exchange": str(exchange), "n_threads": group.n_threads},
            scaling_config=train.ScalingConfig(
                num_workers=(1, group.n_workers),
                resources_per_worker={"CPU": group.n_threads},
                placement_strategy="SPREAD",
                elastic_resize_monitor_interval_s=86_400.0,
            ),
            run_config=train.RunConfig(
                name="ray", storage_path=str(exchange), failure_config=train.FailureConfig(max_failures=MOST_LOSSES)
            ),
        )
        try:
            found = trainer.fit().return_value
        except train.TrainingFailedError as error:
            raise StorageError(
                f"The workers were lost {MOST_LOSSES} times: a machine may have too little memory. The same command "
                f"goes on from the last checkpoint. Ray says: {str(error).strip().splitlines()[-1]}"
            ) from error
    raised = _read_error(exchange / ERROR) if (exchange / ERROR).exists() else None
    shutil.rmtree(exchange, ignore_errors=True)
    if raised is not None:
        raise raised
    return found


def _one(config: dict[str, Any]) -> Any:
    """Run the function in one of the processes.

    An error raised on purpose is written down before it ends the process, so that the others, which may wait for it,
    are ended by Ray, and those that begin anew see that there is nothing to be done.
    """
    from ray import train

    exchange, context = Path(config["exchange"]), train.get_context()
    must_see(exchange)
    if (exchange / ERROR).exists():
        return None
    host = str(load_ray().util.get_node_ip_address())
    member = RayMember(config["n_threads"], context.get_world_rank(), context.get_world_size(), host)
    try:
        return config["work"](member, ProgressFile(exchange / "progress.jsonl"))
    except Exception as error:
        # A lost connection is a RuntimeError of torch, an OSError, or a lost actor of Ray's barrier: all begin again.
        lost = (RuntimeError, OSError, load_ray().exceptions.RayActorError)
        if isinstance(error, VistermError) or not isinstance(error, lost):
            facts = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            write_whole(exchange / ERROR, json_text(facts).encode("utf-8"))
        raise


def _read_error(path: Path) -> Exception:
    """Return the error that a worker wrote down, of its own class if it is one of ours."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    kind = getattr(errors, facts["type"], None)
    error: Exception
    if isinstance(kind, type) and issubclass(kind, VistermError) and kind is not errors.ImageError:
        error = kind(facts["message"])
    else:
        error = RuntimeError(f"{facts['type']}: {facts['message']}")
    error.add_note(f"In a worker:\n{facts['traceback']}")
    return error


class ProgressFile:
    """Progress that is written to a file, for another process to show.

    Each call adds a line: a method and its arguments.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, task: str, total: int | None = None) -> None:
        """Write the start of a task."""
        self._write("start", task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Write steps."""
        self._write("advance", steps, note)

    def finish(self) -> None:
        """Write the end of the task."""
        self._write("finish")

    def _write(self, *call: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json_text(call) + "\n")


@contextmanager
def progress_shown(path: Path, progress: Progress, before: str = "") -> Iterator[None]:
    """Show, while the block runs, what `ProgressFile` writes to a file; a task that begins again ends first.

    `before` is the task that is shown until something is written, if there is one.
    """
    if before:
        progress.start(before, None)
    over = threading.Event()
    follower = threading.Thread(target=_follow, args=(path, progress, over, bool(before)), daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(path: Path, progress: Progress, over: threading.Event, under_way: bool) -> None:
    """Pass on each line of a file as it is written, until `over` is set."""
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
                method, *arguments = json.loads(line)
                if under_way and method == "start":
                    progress.finish()
                if method != "finish" or under_way:
                    getattr(progress, method)(*arguments)
                under_way = method != "finish"
        if last:
            if under_way:
                progress.finish()
            return
