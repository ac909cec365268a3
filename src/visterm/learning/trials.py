"""The settings to try, each fitted on one part of the rows and judged by the other, and the log of finished ones."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from visterm.core.errors import CorruptFileError, DivergedError, UserError
from visterm.core.files import GB, read_regular
from visterm.core.packing import jsonable
from visterm.core.progress import SILENT, Progress
from visterm.core.threads import Team
from visterm.core.writing import writing
from visterm.learning.validation import Parts, fit_judged
from visterm.models.base import Annotator

MAX_REDRAWS = 100  # Draws in a row that bring no new setting, after which all are taken to have been drawn
Choices: TypeAlias = "Sequence[Any] | Range"


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole ones where both ends are whole; by their logarithm or not."""

    low: float
    high: float
    log: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one number, a float of few digits where it is not whole."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        if whole:
            return min(max(round(value), int(self.low)), int(self.high))
        return min(max(float(f"{value:.4g}"), self.low), self.high)


def settings_to_try(space: Mapping[str, Choices], n_random: int | None, seed: int) -> list[dict[str, Any]]:
    """Return all combinations, or `n_random` different ones drawn at random, fewer where there are no more.

    Raises UserError if there is nothing to choose from, or a range without a number of draws.
    """
    for name, choices in space.items():
        if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) == 0:
            raise UserError(
                f"The choices of {name} are {choices!r}",
                setting="grid", value=choices, expected="a list of values or a Range",
            )  # fmt: skip
        if isinstance(choices, Range) and n_random is None:
            raise UserError(
                f"{name} is the range {choices.low:g}:{choices.high:g}, which has no end of values.",
                setting="grid", value=choices,
                advice="Say how many settings to draw (`n_random`), or pass a list of values.",
            )  # fmt: skip
    if not space:
        raise UserError("There is nothing to choose from.", setting="grid", value=space, advice="Pass values to try.")
    if n_random is None:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if n_random < 1:
        raise UserError(setting="n_random", value=n_random, expected="a whole number of 1 or more")
    rng = np.random.default_rng(seed)
    drawn: list[dict[str, Any]] = []
    repeated = 0

    while len(drawn) < n_random and repeated < MAX_REDRAWS:
        setting = {
            name: choices.draw(rng) if isinstance(choices, Range) else choices[int(rng.integers(len(choices)))]
            for name, choices in space.items()
        }
        repeated = repeated + 1 if setting in drawn else 0
        if not repeated:
            drawn.append(setting)
    return drawn


@dataclass(frozen=True)
class Trial:
    """One setting that was tried."""

    settings: dict[str, Any]  # What was searched over, by parameter
    value: float | None  # Of the metric, on the validation rows; None where training diverged
    epochs: int | None  # Epochs of the best weights; None for models that learn in one go
    seconds: float
    error: str | None = None  # Why there is no value
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)  # What the model was after each epoch

    def as_dict(self) -> dict[str, object]:
        """Return the trial as it stands in JSON, without its history."""
        return {name: value for name, value in asdict(self).items() if name != "history"}


class TrialLog(dict[str, Trial]):
    """A file of finished trials, one JSON object a line, found by what they depend on.

    What other searches left in the file stays. A line that a kill cut off is dropped. Raises CorruptFileError if
    another line is not one that was written here.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        if path.exists():
            self._read()

    def put(self, key: str, trial: Trial) -> None:
        """Keep a finished trial, on disk when this returns."""
        line = json.dumps({"key": key, **asdict(trial)}, ensure_ascii=False) + "\n"
        size = self.path.stat().st_size if self.path.exists() else 0
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                if size:  # takes out the half line that a full disk left
                    os.truncate(self.path, size)
                else:
                    self.path.unlink(missing_ok=True)
                raise
        self[key] = trial

    def _read(self) -> None:
        try:
            content = read_regular(self.path, GB)
        except OSError as error:
            raise CorruptFileError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                key = entry.pop("key")
                self[key] = Trial(**entry)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise CorruptFileError(
                    f"{self.path}, line {number}, is no trial of visterm tune ({error}). Remove the file to begin anew."
                ) from error
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))


def try_settings(
    model: Annotator, settings: Mapping[str, object], parts: Parts, metric: str, progress: Progress
) -> Trial:
    """Fit a model that has the settings on the parts' rows, and judge it by the metric.

    `settings` are those that were searched over, to be kept with the trial. One that diverges gives a trial without a
    value.
    """
    began = time.perf_counter()
    shown = jsonable(dict(settings))
    try:
        judged = fit_judged(model, parts, metric, progress)
    except DivergedError as error:
        return Trial(shown, None, None, time.perf_counter() - began, error=str(error))
    return Trial(shown, judged.value, judged.epochs, judged.seconds, history=jsonable(judged.history))


class Candidate(NamedTuple):
    """A model that is not fitted, and the settings of it that are searched over."""

    model: Annotator
    settings: Mapping[str, object]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


class TrialJob(NamedTuple):
    """The trials of a search on other processes: `Job`. A part is a `Candidate`; its model learns with one thread."""

    parts: Parts
    metric: str

    def begin(self, team: Team, progress: Progress) -> Callable[[Candidate], Trial]:
        """Return what tries one setting; its own progress is not shown."""

        def fitted(candidate: Candidate) -> Trial:
            model = candidate.model.set_known(n_jobs=team.size)
            return try_settings(model, candidate.settings, self.parts, self.metric, SILENT)

        return fitted

    def name_of(self, part: Candidate) -> str:
        """Name a trial by its settings."""
        return f"The trial of {part}"

    def size_of(self, part: Candidate) -> int:
        """Count a trial as one step."""
        return 1
