"""The trials of a search for settings: which settings to try, how to measure them, and a log of finished trials."""

from __future__ import annotations

import itertools
import json
import math
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
from visterm.core.writing import write_whole, writing
from visterm.learning.validation import Parts, fit_judged
from visterm.models.base import Annotator

MAX_REDRAWS = 100  # After this many consecutive draws without a new setting, stop: all settings are likely drawn
Choices: TypeAlias = "Sequence[Any] | Range"


class Range(NamedTuple):
    """Numbers from `low` to `high` (included), integers if both ends are; with `log`, uniform in the logarithm."""

    low: float
    high: float
    log: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number: an integer, or a float with 4 significant digits."""
        are_integers = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = (self.low - 0.5, self.high + 0.5) if are_integers else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        if are_integers:
            return min(max(round(value), int(self.low)), int(self.high))
        return min(max(float(f"{value:.4g}"), self.low), self.high)


def settings_to_try(space: Mapping[str, Choices], n_random: int | None, seed: int) -> list[dict[str, Any]]:
    """Return all combinations of values, or draw `n_random` different combinations (fewer if there are not enough).

    Raises UserError if there are no choices, or a `Range` without `n_random`.
    """
    for name, choices in space.items():
        if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) == 0:
            raise UserError(
                f"The choices of {name} are {choices!r}",
                setting="grid", value=choices, expected="a list of values or a Range",
            )  # fmt: skip
        if isinstance(choices, Range) and n_random is None:
            raise UserError(
                f"{name} is the range {choices.low:g}:{choices.high:g}, whose values cannot all be tried.",
                setting="grid", value=choices,
                advice="Pass the number of settings to draw (`n_random`), or a list of values.",
            )  # fmt: skip
    if not space:
        raise UserError("There are no settings to try.", setting="grid", value=space, advice="Pass values to try.")
    if n_random is None:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if n_random < 1:
        raise UserError(setting="n_random", value=n_random, expected="a whole number of 1 or more")
    rng = np.random.default_rng(seed)
    drawn_settings: list[dict[str, Any]] = []
    n_repeated = 0

    while len(drawn_settings) < n_random and n_repeated < MAX_REDRAWS:
        settings = {
            name: choices.draw(rng) if isinstance(choices, Range) else choices[int(rng.integers(len(choices)))]
            for name, choices in space.items()
        }
        n_repeated = n_repeated + 1 if settings in drawn_settings else 0
        if not n_repeated:
            drawn_settings.append(settings)
    return drawn_settings


@dataclass(frozen=True)
class Trial:
    """A finished trial of settings."""

    settings: dict[str, Any]  # The settings that were searched, by parameter
    value: float | None  # Value of the metric on the validation rows; None if training diverged
    epochs: int | None  # Number of epochs of the best weights; None for models without epochs
    seconds: float
    error: str | None = None  # Why there is no value
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)  # The model's record after each epoch

    def as_dict(self) -> dict[str, object]:
        """Return the trial in its JSON form, without its history."""
        return {name: value for name, value in asdict(self).items() if name != "history"}


class TrialLog(dict[str, Trial]):
    """A file of finished trials, one JSON object per line, with a key for everything that a trial depends on.

    Trials of other searches stay in the file. Raises CorruptFileError if a line is invalid.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        if path.exists():
            self._read()

    def put(self, key: str, trial: Trial) -> None:
        """Add a finished trial, and write it to the disk before returning."""
        self[key] = trial
        lines = (json.dumps({"key": key, **asdict(trial)}, ensure_ascii=False) + "\n" for key, trial in self.items())
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, "".join(lines).encode())

    def _read(self) -> None:
        try:
            content = read_regular(self.path, GB)
        except OSError as error:
            raise CorruptFileError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                entry = json.loads(line)
                key = entry.pop("key")
                self[key] = Trial(**entry)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise CorruptFileError(
                    f"{self.path}, line {number}, is not a trial of visterm tune ({error}). Remove it to start over."
                ) from error


def try_settings(
    model: Annotator, settings: Mapping[str, object], parts: Parts, metric: str, progress: Progress
) -> Trial:
    """Fit a model, which already has the settings, on the training rows, and measure it on the validation rows.

    `settings` are the searched settings, which are saved with the trial. If training diverges, the trial has no value.
    """
    start = time.perf_counter()
    json_settings = jsonable(dict(settings))
    try:
        result = fit_judged(model, parts, metric, progress)
    except DivergedError as error:
        return Trial(json_settings, None, None, time.perf_counter() - start, error=str(error))
    return Trial(json_settings, result.value, result.epochs, result.seconds, history=jsonable(result.history))


class Candidate(NamedTuple):
    """An unfitted model, and its settings that are searched."""

    model: Annotator
    settings: Mapping[str, object]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


class TrialJob(NamedTuple):
    """A `Job` for the trials of a search on other processes. Its parts are `Candidate`s."""

    data: Parts
    metric: str

    def begin(self, team: Team, progress: Progress) -> Callable[[Candidate], Trial]:
        """Return a function that fits and measures a candidate, without showing progress."""

        def run_trial(candidate: Candidate) -> Trial:
            model = candidate.model.set_known(n_jobs=team.size)
            return try_settings(model, candidate.settings, self.data, self.metric, SILENT)

        return run_trial

    def name_of(self, part: Candidate) -> str:
        """Return a description of a trial by its settings."""
        return f"The trial of {part}"

    def size_of(self, part: Candidate) -> int:
        """Return 1: each trial is one step."""
        return 1
