"""Several processes that fit taggers together, for tests: the first is that of the tests, the others run this file."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WAITS = 600.0
"""Seconds after which a process that another waits for is lost."""


def fit_in_processes(folder: Path, cases: dict[str, Any], size: int = 2) -> dict[str, dict[str, Any]]:
    """Fit each case, a dict of model, params and what else `_fit` takes, and give what each process learned.

    Returns
    -------
    dict of str to dict
        By case: ``arrays`` (of each process, by attribute) and ``told`` (history, or the error that ended it).
    """
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-W", "error", __file__, str(folder), str(size)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}.items():
            patch.setenv(name, value)
        running = [subprocess.Popen([*command, str(rank)]) for rank in range(1, size)]
        try:
            main(folder, size, 0)
            assert [process.wait(timeout=WAITS) for process in running] == [0] * (size - 1)
        finally:
            for process in running:
                process.kill()
                process.wait()
    found = {}
    for name in cases:
        arrays = [dict(np.load(folder / f"{name}.{rank}.npz")) for rank in range(size)]
        found[name] = {"arrays": arrays, "told": json.loads((folder / f"{name}.json").read_text())}
    return found


def _fit(folder: Path, together: Any, case: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    from planted import plant_corpus
    from visterm.core.errors import UserError
    from visterm.core.tables import MODELS

    planted = plant_corpus(n_tags=case.get("tags", 12), random_state=3)
    params = dict(case["params"])
    if "words" in case:
        params["word_vectors"] = np.array(case["words"], np.float32)
    model = MODELS.create(case["model"], **params)
    rows = planted.X_train, planted.Y_train
    valid = (planted.X_test, planted.Y_test) if case.get("valid") else None
    killed = case.get("killed_after")
    if killed is not None:
        _fit_until_killed(model, rows, together, killed)
        model = MODELS.create(case["model"], **params)
    try:
        model.fit_together(*rows, together, valid=valid)
    except UserError as error:
        return {}, str(error)
    arrays = {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}
    if (held := model.take_held_out()) is not None:
        arrays |= {f"held_{name}": array for name, array in held._asdict().items()}
    return arrays, model.history_


def _fit_until_killed(model: Any, rows: Any, together: Any, batches: int) -> None:
    """Fit, and let the training die in all processes after so many batches."""
    from visterm.models.deep.word_table import WordTable

    move, left = WordTable.step, iter(range(batches))

    def step(self: Any, rate: float) -> None:
        if next(left, None) is None:
            raise InterruptedError
        move(self, rate)

    WordTable.step = step
    try:
        model.fit_together(*rows, together)
        raise AssertionError("it was to be killed")
    except InterruptedError:
        pass
    finally:
        WordTable.step = move


def main(folder: Path, size: int, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from visterm.models.deep.torch_data_parallel import TorchDataParallel

    meeting = {"init_method": f"file://{folder}/meeting", "timeout": timedelta(seconds=WAITS)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, **meeting)
    try:
        for name, case in json.loads((folder / "cases.json").read_text()).items():
            arrays, told = _fit(folder, TorchDataParallel(), case)
            np.savez(folder / f"{name}.{rank}.npz", **arrays)
            if rank == 0:
                (folder / f"{name}.json").write_text(json.dumps(told))
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
