"""Fit settings of a method, choose by the validation rows, and judge the chosen one by logged test rows."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from visterm.core.errors import DivergedError, TooLargeError
from visterm.core.packing import jsonable, key_of
from visterm.core.progress import SILENT, Progress, Titled
from visterm.models import MODELS
from visterm_research.comparison.looks import Looks
from visterm_research.comparison.methods import Method
from visterm_research.comparison.records import Record, Records
from visterm_research.comparison.search import Settings, at_an_edge, search

FORMAT = 1
"""Of the stored results; raised when what they hold changes, so that older ones are made anew."""

FAILED = "failed"
"""In a record: why a setting could not be fitted."""

MODELS_KEPT = 64
"""Fitted models in memory."""


class OutOfTimeError(Exception):
    """The time that the comparison may take is over; what is finished is kept."""


class Benchmark(Protocol):
    """The rows that methods are fitted, chosen and judged on, and what is measured of them.

    Attributes
    ----------
    measure : str
        Name under which a record has what its settings are chosen by; None there means that training diverged,
        or would not fit in memory.
    criteria : sequence of str
        Ways to choose by it.
    """

    measure: ClassVar[str]
    criteria: ClassVar[Sequence[str]]

    @property
    def name(self) -> str:
        """Name of its folders of results."""

    @property
    def fingerprint(self) -> str:
        """Name that changes whenever a training or validation row does."""

    def about(self, method: Method, settings: Settings) -> Record:
        """Return what stands in a record for people."""

    def shared(self) -> dict[str, Any]:
        """Return what models that accept it are made with, besides their settings."""

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model, and return the fitted one and what is known of the fit: seconds, epochs."""

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure a fitted model on the validation rows."""

    def score(self, measured: Any, criterion: str) -> float:
        """Return how good what was measured is; higher is better."""

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Name a judgement: by its fit and by all that it depends on besides."""

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Measure a chosen model on the test rows: a record, and arrays."""


@dataclass(frozen=True)
class Choice:
    """The setting of a method that does best on the validation rows.

    Attributes
    ----------
    method : Method
    by : str
        The criterion that it is chosen by.
    settings : dict
    record : dict
        Of its fit.
    tried : list of (dict, dict)
        All settings and their records.
    widened : tuple of str
        Values that were tried beyond the box, as the best one lay at its edge: "max_norm to 12".
    """

    method: Method
    by: str
    settings: Settings
    record: Record
    tried: list[tuple[Settings, Record]] = field(repr=False)
    widened: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def shown_tried(self) -> str:
        """How many settings were tried, and how many of them could not be fitted."""
        failed = sum(FAILED in record for _, record in self.tried)
        return f"{len(self.tried)}" + (f" ({failed} diverged or too large)" if failed else "")

    @property
    def at_an_edge(self) -> list[str]:
        """Settings whose chosen value is the least or the largest that was tried."""
        return at_an_edge(self.method.box, [settings for settings, _ in self.tried], self.settings)

    @property
    def shown(self) -> str:
        """The chosen settings of the box, by name; those at an edge say so."""
        edge = self.at_an_edge
        shown = (f"{name}={self.settings[name]}{' (at the edge)' if name in edge else ''}" for name in self.method.box)
        return ", ".join(shown) or "–"


@dataclass(frozen=True)
class Judged:
    """A chosen setting, judged by the test rows.

    Attributes
    ----------
    choice : Choice
    record : dict
        What was measured.
    values : dict of str to ndarray
        Measures example by example, and what else is kept.
    """

    choice: Choice
    record: Record
    values: dict[str, Any] = field(repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """What was measured, by name."""
        metrics: dict[str, float] = self.record["metrics"]
        return metrics


def fit_rows(model: Any, train: Any, valid: Any, progress: Progress) -> tuple[Any, Record]:
    """Fit a model that stops by the validation rows, and return it with its seconds and epochs."""
    began = time.perf_counter()
    model.fit(train.X, train.Y, valid=(valid.X, valid.Y), monitor=progress)
    return model, {"seconds": time.perf_counter() - began, "epoch": getattr(model, "n_epochs_", None)}


class Trials:
    """All fits of one comparison: looked up where they are finished, made where not.

    Parameters
    ----------
    folder : Path
        Where results are kept.
    seed : int
    n_jobs : int, optional
    until : float, optional
        The value of `time.monotonic` after which no fit is begun.
    progress : Progress
    small : mapping, optional
        Settings in place of others, for quick runs, where a model has them.
    looks : Looks, optional
        Where each use of test rows is logged.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        n_jobs: int | None = None,
        until: float | None = None,
        progress: Progress = SILENT,
        small: Mapping[str, Any] | None = None,
        looks: Looks | None = None,
    ) -> None:
        self.seed = seed
        self.n_jobs = n_jobs
        self.progress = progress
        self.small = small or {}
        self._records = Records(folder)
        self._looks = looks
        self._until = until
        self._kept: dict[str, tuple[str, float, Any]] = {}
        self._seconds: dict[str, float] = {}

    @property
    def hours(self) -> float:
        """What all fits that were asked for took together, when they were made."""
        return sum(self._seconds.values()) / 3600

    def choose(self, benchmark: Benchmark, method: Method) -> list[Choice]:
        """Search the settings of a method, fitting those that are not on record, and return the best by each criterion.

        Raises
        ------
        OutOfTimeError
            If a fit would have to begin after the end of the time.
        DivergedError
            If no setting could be fitted.
        """
        criteria = [method.by] if method.by else benchmark.criteria
        tried: list[tuple[Settings, Record]] = []

        def fit(settings: Settings) -> list[float]:
            record = self.validate(benchmark, method, settings, f"{len(tried) + 1}")
            tried.append((settings, record))
            return [_score(benchmark, record, by) for by in criteria]

        widened = search(method.box, method.settings(self.seed), fit, trials=method.trials)
        choices = []
        for by in criteria:
            chosen, record = max(tried, key=lambda one: _score(benchmark, one[1], by))
            choices.append(Choice(method, by, chosen, record, tried, widened=tuple(widened)))
        if choices[0].record[benchmark.measure] is None:
            raise DivergedError(
                f"None of the {len(tried)} settings of {method.label} could be fitted on {benchmark.name}: "
                f"{choices[0].record[FAILED]}"
            )
        return choices

    def validate(self, benchmark: Benchmark, method: Method, settings: Settings, task: str = "") -> Record:
        """Fit a setting and measure it on the validation rows, or look it up; the best model of a method is kept."""
        key = self.key(benchmark, method.model, settings)

        def work() -> Record:
            self.check_time()
            about = benchmark.about(method, settings)
            try:
                model, fit = self._fit(benchmark, method, settings, task)
            except (DivergedError, TooLargeError) as error:
                return {**about, benchmark.measure: None, FAILED: str(error), "seconds": None, "epoch": None}
            record = {**about, **benchmark.validate(model, fit, self)}
            for criterion in benchmark.criteria:
                slot, score = f"{benchmark.name}/{method.label}/{criterion}", _score(benchmark, record, criterion)
                if slot not in self._kept or score > self._kept[slot][1]:
                    self._keep(slot, key, score, model)
            return record

        found = self.record(f"{benchmark.name}/valid", key, work)
        self._seconds[key] = found.get("seconds") or 0.0
        return found

    def judge(self, benchmark: Benchmark, choice: Choice, look: tuple[str, str] | None = None) -> Judged:
        """Judge a chosen setting by the test rows, unless that is on record; the log gets the rows and the method.

        Raises
        ------
        OutOfTimeError
            If it would have to be fitted again after the end of the time.
        """

        def work() -> tuple[Record, dict[str, Any]]:
            judged = benchmark.judge(self.model(benchmark, choice), choice, self)
            if self._looks is not None:
                self._looks.add(*(look or (benchmark.name, f"{choice.method.label}, {choice.by}")))
            return judged

        key = benchmark.test_key(self, choice)
        return Judged(choice, *self.record_values(f"{benchmark.name}/test", key, work))

    def test(self, benchmark: Benchmark, method: Method) -> Judged:
        """Choose by the first criterion and judge; errors are those of both."""
        return self.judge(benchmark, self.choose(benchmark, method)[0])

    def model(self, benchmark: Benchmark, choice: Choice) -> Any:
        """Return the fitted model of a choice: kept from its fit, or fitted again to the same bytes.

        Raises
        ------
        OutOfTimeError
            If it would have to be fitted after the end of the time.
        """
        key = self.key(benchmark, choice.method.model, choice.settings)
        for kept, _, model in self._kept.values():
            if kept == key:
                return model
        self.check_time()
        model, _ = self._fit(benchmark, choice.method, choice.settings, "chosen")
        self._keep(f"{benchmark.name}/{choice.method.label}/{choice.by}", key, np.inf, model)
        return model

    def derive(self, benchmark: Benchmark, choice: Choice, key: str, work: Callable[[Any], Record]) -> Record:
        """Return what some work finds of the fitted model of a choice, or found before."""
        return self.record(f"{benchmark.name}/derived", key, lambda: work(self.model(benchmark, choice)))

    def key(self, benchmark: Benchmark, model: str, settings: Mapping[str, Any]) -> str:
        """Return the name of a fit: of its rows, its model, its settings and the seed."""
        return key_of(FORMAT, benchmark.fingerprint, model, settings, self.seed)

    def make(self, model: str, settings: Mapping[str, Any], *, n_jobs: int | None = None, **shared: Any) -> Any:
        """Return a model with its settings; of the seed, threads and what is shared it gets what it accepts."""
        accepted = inspect.signature(MODELS.load(model)).parameters
        given = {"random_state": self.seed, "n_jobs": n_jobs or self.n_jobs, **shared}
        params = {name: value for name, value in given.items() if name in accepted}
        small = {name: value for name, value in self.small.items() if name in accepted}
        return MODELS.create(model, **{**params, **settings, **small})

    def record(self, group: str, key: str, work: Callable[[], Record]) -> Record:
        """Return a result that is on record, else the result of some work, which is kept."""
        record = self._records.get(group, key)
        if record is None:
            record = jsonable(work())
            self._records.put(group, key, record)
        return record

    def record_values(
        self, group: str, key: str, work: Callable[[], tuple[Record, dict[str, Any]]]
    ) -> tuple[Record, dict[str, Any]]:
        """Return a result with arrays that is on record, else those of some work, which are kept."""
        record, values = self._records.get(group, key), self._records.get_values(group, key)
        if record is None or values is None:
            record, values = work()
            self._records.put_values(group, key, values)
            self._records.put(group, key, record)
        return record, values

    def once(self, group: str, of: Sequence[Any], work: Callable[[], Record], about: Any) -> Record:
        """Return the result of some work, or of when it was done before.

        Parameters
        ----------
        group : str
            Where it is kept.
        of : sequence
            What it depends on besides the seed.
        work : callable
        about : mapping or list
            Kept beside the result, for people.

        Raises
        ------
        OutOfTimeError
            If it would have to begin after the end of the time.
        """

        def in_time() -> Record:
            self.check_time()
            return {"of": about, **work()}

        return self.record(group, key_of(FORMAT, *of, self.seed), in_time)

    def forget(self, name: str) -> None:
        """Let go of the models of a benchmark."""
        self._kept = {slot: kept for slot, kept in self._kept.items() if not slot.startswith(f"{name}/")}

    def check_time(self) -> None:
        """Let work begin only before the end of the time.

        Raises
        ------
        OutOfTimeError
            After it.
        """
        if self._until is not None and time.monotonic() > self._until:
            raise OutOfTimeError

    def _fit(self, benchmark: Benchmark, method: Method, settings: Settings, task: str) -> tuple[Any, Record]:
        model = self.make(method.model, settings, **benchmark.shared())
        return benchmark.fit(model, Titled(self.progress, f"{benchmark.name}, {method.label}, {task}".rstrip(", ")))

    def _keep(self, slot: str, key: str, score: float, model: Any) -> None:
        """Keep a fitted model in place of the one in this slot; the oldest of many slots is let go."""
        self._kept.pop(slot, None)
        self._kept = dict(list(self._kept.items())[1 - MODELS_KEPT :])
        self._kept[slot] = key, score, model


def _score(benchmark: Benchmark, record: Record, criterion: str) -> float:
    measured = record[benchmark.measure]
    return -np.inf if measured is None else benchmark.score(measured, criterion)
