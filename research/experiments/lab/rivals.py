"""Programs of others as contestants of methods.py, each in a process of its own: LightFM, implicit and PECOS."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Rows

from lab.child import Child
from lab.contestants import DIM, TIMED_SECONDS, Judged, UnsuitedError, judged_by_scores, timed
from lab.cost import Cost
from lab.sides import hand_over


class Kind(NamedTuple):
    """How a rival is called and installed.

    Attributes
    ----------
    script : str
        File in ``benchmarks/rivals``.
    install : str
        The command that installs it.
    start : dict
        Settings that it starts with.
    epochs : int
        How often it goes through the pairs; 0 if it is asked once.
    features, by_number : bool
        What it can learn from.
    """

    script: str
    install: str
    start: dict[str, Any]
    epochs: int = 0
    features: bool = True
    by_number: bool = True


RIVALS = {
    "LightFM": Kind("lightfm_warp.py", "pip install lightfm==1.17", {"no_components": DIM}, epochs=30),
    "implicit": Kind("implicit_bpr.py", "pip install implicit", {"factors": DIM}, epochs=100, features=False),
    "PECOS": Kind("pecos_xlinear.py", "pip install libpecos", {"tree": True, "cost": 1.0}, by_number=False),
}
"""With their defaults, except for the length of embeddings, as long as ours; LightFM's epochs are those of its
documentation's first example, as its own default is one."""


class Rival:
    """A contestant under the Python that it is installed in."""

    def __init__(self, name: str, python: Path | None) -> None:
        self._kind, self._python = RIVALS[name], python
        self.settings = {key: str(value) for key, value in self._kind.start.items()}
        if self._kind.epochs:
            self.settings["epochs"] = str(self._kind.epochs)

    def warm_up(self, rows: Rows) -> None:
        """Do nothing: what they have is compiled."""

    def learn(self, rows: Rows) -> Cost:
        """Hand the rows over, and fit."""
        if not (self._kind.by_number if rows.X is None else self._kind.features):
            raise UnsuitedError("It needs features." if rows.X is None else "It is for images known by number.")
        self._folder = tempfile.TemporaryDirectory()
        self._files = {name: str(Path(self._folder.name, f"{name}.npy")) for name in ("rows", "tags", "scores")}
        self._child = Child(self._python, self._kind.script, 1)
        self._child.ask("load", **self._handed_over(rows), threads=1)
        if not self._kind.epochs:
            return Cost(**self._child.ask("train", **self._kind.start, seed=0)["cost"])
        answers = [self._child.ask("start", settings=self._kind.start, seed=0)]
        answers += [self._child.ask("epoch") for _ in range(self._kind.epochs)]
        costs = [Cost(**answer["cost"]) for answer in answers]
        return sum(costs[1:], costs[0])

    def judge(self, rows: Rows) -> Judged:
        """Score the judged images in its process; embeddings are multiplied here."""
        if not self._kind.epochs:
            seconds = self._saved("scores")
            return judged_by_scores(np.load(self._files["scores"]), seconds)
        seconds = self._saved("rows", "tags")
        U, V = np.load(self._files["rows"]), np.load(self._files["tags"])
        scores, more = timed(lambda: U @ V.T)
        return Judged(scores, seconds + more, lambda tag: np.argsort(-(U @ V[tag])))

    def _saved(self, *what: str) -> float:
        """Return the seconds that it takes to write the files, as `timed` does."""
        seconds, n_calls = 0.0, 0
        while seconds < TIMED_SECONDS:
            seconds += self._child.ask("save", **{name: self._files[name] for name in what})["cost"]["seconds"]
            n_calls += 1
        return seconds / n_calls

    def _handed_over(self, rows: Rows) -> dict[str, str]:
        folder = Path(self._folder.name)
        found = {"pairs": hand_over(folder / "pairs.npz", rows.Y, np.arange(0) if rows.X is not None else rows.judged)}
        for name, matrix in {} if rows.X is None else {"features": rows.X, "judged": rows.judged}.items():
            found[name] = str(folder / f"{name}.npy")
            np.save(found[name], matrix.toarray() if sp.issparse(matrix) else matrix)
        return found
