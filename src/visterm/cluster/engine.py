"""Ray's engine: reached at an address, or started here for as long as a job takes."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from visterm.core.errors import MissingExtraError, UserError
from visterm.core.threads import resolve_jobs

LOCAL = "local"  # The address of an engine on this machine alone, which ends with the job
PATIENCE = 5.0  # Seconds that an address may take to answer
OBJECT_STORE = 512 * 2**20  # Bytes of shared memory that an engine started here may take


@contextmanager
def running_engine(address: str, n_jobs: int | None = None) -> Iterator[int]:
    """Reach the engine at an address, or start one here ("local"), and yield how many workers it has.

    "auto" and "HOST:PORT" reach an engine that was started with ``ray start``. It has at most `n_jobs` workers; None:
    one for each processor. In the end it is disconnected; what this process is connected to already is used and left as
    it is. Raises MissingExtraError if Ray is not installed; UserError if there is no engine at the address.
    """
    ray = load_ray()
    connects = not ray.is_initialized()

    def logged(data: dict[str, Any], **_: Any) -> None:
        logging.getLogger(__name__).info("%s", "\n".join(data["lines"]))

    # What Ray itself prints when a worker or a machine is lost goes to the log: standard output is for results.
    # `log_to_driver` does not do that: it is about what workers print.
    ray._private.worker.print_to_stdstream = logged
    if connects:
        _connect(ray, address, n_jobs)
    try:
        n_cpus = int(ray.cluster_resources().get("CPU", 0))
        if n_cpus < 1:
            raise UserError(f"The Ray engine at '{address}' has no free processor. Start its nodes with --num-cpus.")
        yield n_cpus if n_jobs in (None, -1) else min(n_cpus, resolve_jobs(n_jobs))
    finally:
        if connects:
            ray.shutdown()


def load_ray() -> Any:
    """Import Ray, set to be quiet and to send nothing home; raise `MissingExtraError` if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its core writes to our standard error
    try:
        import ray
    except ImportError as error:
        raise missing_ray() from error
    return ray


def missing_ray() -> MissingExtraError:
    """Return the error that says how to install Ray."""
    return MissingExtraError(
        "Jobs on several machines need the package 'ray'. Install it with: pip install 'visterm[ray]'"
    )


def load_ray_data() -> Any:
    """Import Ray Data, set to draw nothing and to log errors only."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`use_\w+` is deprecated", DeprecationWarning)  # which it uses itself
        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    return ray.data


def _connect(ray: Any, address: str, n_jobs: int | None) -> None:
    """Reach the engine at an address, or start one."""
    shared = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        limits = {"num_cpus": resolve_jobs(n_jobs), "object_store_memory": OBJECT_STORE, "include_dashboard": False}
        with _unheard():
            ray.init("local", **limits, **shared)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # where nothing listens, Ray itself would go on trying for many minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        with _unheard():
            ray.init(address, **shared)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"There is no Ray engine at '{address}' ({str(error).splitlines()[0]}). Start one with 'ray start --head' "
            f"and name its HOST:PORT, or give --ray {LOCAL} to use this machine alone."
        ) from error


@contextmanager
def _unheard() -> Iterator[None]:
    """Hide what Ray's core writes to standard error as it starts; errors are raised."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
