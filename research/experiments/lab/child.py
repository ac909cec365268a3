"""A rival in a process of its own, under its own Python: questions and answers are lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

RIVALS = Path(__file__).parents[1] / "rivals"


class RivalError(RuntimeError):
    """The rival said that it cannot do what was asked, or ended."""


class RivalEndedError(RivalError):
    """Its process has ended, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"it ended with {code}; see above")
        self.code = code


class Child:
    """Runs ``rivals/<script>`` and asks it things; the rival times its own training and nothing else.

    Parameters
    ----------
    python : Path or None
        Interpreter of the environment that the rival is installed in.
    script : str
        File in ``benchmarks/rivals``.
    threads : int
        What its OpenMP and BLAS are held to.

    Attributes
    ----------
    version : str
        Of the rival.

    Raises
    ------
    RivalError
        If there is no such interpreter, or the rival cannot be imported there.
    """

    def __init__(self, python: Path | None, script: str, threads: int) -> None:
        if python is None or not python.exists():
            raise RivalError("no environment with it was given" if python is None else f"there is no {python}")
        limits = {f"{pool}_NUM_THREADS": str(threads) for pool in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [python, RIVALS / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **limits, "PYTHONPATH": str(RIVALS.parent)},  # for the harness, and nothing else of ours
        )
        self.version: str = self.ask("version")["version"]

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """Send one question and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise RivalEndedError(self._process.wait()) from error
        line = self._process.stdout.readline()
        if not line:
            raise RivalEndedError(self._process.wait())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RivalError(answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
