"""Choose the settings of a model: encode once, measure settings on held-out rows, then fit the best on all rows."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from visterm.core.checks import check_count, check_number
from visterm.core.errors import CorruptFileError, DivergedError, UserError
from visterm.core.executor import LOCAL, Executor
from visterm.core.files import GB, read_regular
from visterm.core.packing import digest_of, jsonable, key_of
from visterm.core.progress import SILENT, Progress, Say, Titled, reported, silent
from visterm.core.threads import Team
from visterm.core.wording import count_of
from visterm.core.writing import write_whole, writing
from visterm.encoders.contract import AnyEncoder
from visterm.features.training_rows import training_rows
from visterm.learning.calibrating import with_confidences
from visterm.learning.fit_input import Cleaning, clean_images, read_images
from visterm.learning.fit_request import FitRequest
from visterm.learning.fitting import learned_of
from visterm.learning.part_settings import make_model, unfitted_parts
from visterm.learning.relations import check_sources
from visterm.learning.run import Run
from visterm.learning.validation import METRIC, Parts, all_rows, fit_judged, fit_on_all, part_rows
from visterm.models.base import Annotator

FORMAT = 1  # Version of the trials; raise it when results change, to repeat older trials
DEFAULT_MODEL = "wsabie"
VALID_SHARE = 0.1
_UNSUPPORTED_OPTIONS = ("queries", "split", "idf", "word_vectors", "calibrate", "relations", "memory", "work")
MAX_REDRAWS = 100  # After this many consecutive draws without a new setting, stop: all settings are likely drawn
Choices: TypeAlias = "Sequence[Any] | Range"


class Tuned(NamedTuple):
    """The saved run with the best settings, and all trials, best first."""

    run: Run
    trials: list[Trial]


def tune(
    request: FitRequest,
    *,
    grid: Mapping[str, Choices],
    n_random: int | None = None,
    executor: Executor = LOCAL,
    say: Say = silent,
    progress: Progress = SILENT,
) -> Tuned:
    """Try settings of a model on validation rows, fit the best on all rows, and save the run.

    Each finished trial is saved in a file next to the run, ``<out>.tune.jsonl``, with a key of everything that it
    depends on (rows, encoder, settings, seed): after an interruption the same call resumes, and a larger grid
    only fits new settings. Raises UserError before any long work if a setting is invalid; StorageError if
    the path `out` exists and is not a run; DivergedError if every setting diverges.

    Parameters
    ----------
    request : FitRequest
        The images and options of the fit. `out` is the run to write; the trials are in its facts. The default model is
        "wsabie", and `model_params` are used in all trials. `valid` (default 0.1) is the share of the images that are
        held out or, for images known by number, of the images with a held-out tag. The rows of a split "valid" are used
        instead, if there are any. Early stopping uses the same rows. At the end, the model learns from all rows, except
        that a model with kernel values doesn't learn from a split "valid", for which there are no columns. Finished
        trials are not repeated.
    grid : mapping of str to list of values or Range
        The values to try for each setting of the model. Ranges need `n_random`.
    n_random : int, optional
        Draw this many different settings, with the seed. None: try all combinations.
    executor : Executor
        Where to try settings. On several machines, a worker tries one setting at a time, with one thread; a single
        setting is tried in this process.
    say : callable
        Called with lines for people.
    progress : Progress
        Shows each trial as a step.
    """
    search = _Search(request, grid, n_random, executor)
    start = search.start
    cleaning = Cleaning.read(request)
    if request.rules.part_of or request.rules.isa:
        check_sources(request.rules)
        say("Tuning leaves out the relations of the tag rules. Fit with the best settings and the same rules for them.")

    corpus, _ = read_images(start.encoder, request)
    images = clean_images(start, request, cleaning, corpus, say, any_encoder=search.any_encoder, with_relations=False)
    encoder, relations = images.encoder, images.relations
    rows = training_rows(
        encoder, images.corpus, min_count=request.min_count, aliases=images.cleaning.aliases, progress=progress
    )
    rows = rows._replace(side=relations.side_knowledge(rows.vocabulary, start.model.takes))
    parts = part_rows(rows, search.valid, np.random.default_rng(request.seed))
    results = search.run(parts, encoder, say, progress)
    trials = [trial for trial, _ in results]
    best, best_settings = results[0]
    if best.value is None:
        raise DivergedError(f"Each of the {len(trials)} settings diverged. The first error: {best.error}")
    model = search.make(best_settings)
    rows_of_all = all_rows(rows, model)
    model = fit_on_all(model, rows_of_all, best.epochs, best.history, Titled(progress, "best, all rows"))
    learned = learned_of(start.changed(encoder=encoder, model=model, relations=relations), rows_of_all)
    learned = with_confidences(learned, rows_of_all, Titled(progress, "confidences"))
    judged_by = "held-out tags" if rows.by_number else "held-out images"
    summary = {
        "metric": METRIC,
        "best value": best.value,
        "best settings": best.settings,
        "settings tried": len(trials),
        "validation rows": parts.X_valid.shape[0],
        "validation by": judged_by if rows.valid is None else "split valid",
    }
    tuning = {**images.facts, "tuning": summary, "trials": [trial.as_dict() for trial in trials]}
    run = Run.of_parts(learned.changed(facts={**learned.facts, **tuning}))
    run.save(search.out, overwrite=request.overwrite)

    for line in cleaning.summary(run.vocabulary.aliases):
        say(line)
    return Tuned(run, trials)


class _Search:
    """A search: checks the request and the settings to try before any photo is read, and runs the trials."""

    def __init__(
        self, request: FitRequest, grid: Mapping[str, Choices], n_random: int | None, executor: Executor
    ) -> None:
        out = request.out
        if out is None:
            raise UserError(
                "Missing output folder: tuning writes a run, and keeps its trials next to it.",
                setting="out", advice="Pass `out`, the run to write.",
            )  # fmt: skip

        request = replace(request, model=request.model or DEFAULT_MODEL)
        for name in _UNSUPPORTED_OPTIONS:
            if (value := getattr(request, name)) != getattr(FitRequest(), name):
                raise UserError(
                    f"`{name}` is not for tuning.",
                    setting=name, value=value, advice="Leave it out, and fit with the best settings afterwards.",
                )  # fmt: skip

        request.check()
        self.valid = VALID_SHARE if request.valid is None else request.valid
        check_number(self.valid, "valid", above=0, below=1)
        encoder_params, self._fixed = request.part_settings()
        if duplicates := sorted(set(self._fixed) & set(grid)):
            raise UserError(
                f"`model.{duplicates[0]}` is both fixed and in the grid.",
                setting=f"model.{duplicates[0]}", value=self._fixed[duplicates[0]],
                advice="Leave one of the two out.",
            )  # fmt: skip

        n_jobs = executor.n_jobs if request.n_jobs is None else request.n_jobs
        self.start, self.any_encoder = unfitted_parts(
            request.encoder, request.model, encoder_params, self._fixed, seed=request.seed, n_jobs=n_jobs
        )
        self.start.encoder.check_settings()
        self.out, self._model, self._seed = out, request.model, request.seed
        self._executor = executor
        self._options = {"random_state": request.seed, "n_jobs": n_jobs}
        self._candidates = [
            Candidate(self.make(settings), settings) for settings in settings_to_try(grid, n_random, request.seed)
        ]
        self._n_jobs: int | None = getattr(self._candidates[0].model, "n_jobs", n_jobs)
        self._log = TrialLog(trials_file(out))

    def run(
        self, parts: Parts, encoder: AnyEncoder, say: Say, progress: Progress
    ) -> list[tuple[Trial, Mapping[str, object]]]:
        """Return all trials with their settings, best first; finished trials are not repeated."""
        data = key_of(FORMAT, digest_of(list(parts[:5])), encoder.fingerprint, self._model, METRIC, self._seed)
        side = {} if parts.side is None else vars(parts.side)
        side_fields = {name: part for name, part in side.items() if part is not None}
        keyed_candidates = []
        for candidate in self._candidates:
            params = candidate.model.get_params(deep=False)
            params.pop("n_jobs", None)  # results don't depend on it
            keyed_candidates.append((key_of(data, params | side_fields), candidate))

        new_trials = list({key: candidate for key, candidate in keyed_candidates if key not in self._log}.items())
        is_shared = self._executor.remote and len(new_trials) > 1
        if self._executor.remote and not is_shared:
            say(f"Other machines ignored: {count_of(len(new_trials), 'setting')} to try, on this machine.")

        def save_trial(number: int, trial: Trial) -> None:
            key, candidate = new_trials[number]
            self._log.put(key, trial)
            outcome = "diverged" if trial.value is None else f"{METRIC} {trial.value:.4f}"
            progress.advance(1)
            say(f"{number + 1} of {len(new_trials)}: {candidate}: {outcome}")

        executor = self._executor if is_shared else Executor(self._n_jobs)
        with reported(progress, "settings", len(new_trials)):
            executor.run_as_done(TrialJob(parts), [candidate for _, candidate in new_trials], save_trial)
        results = [(self._log[key], candidate.settings) for key, candidate in keyed_candidates]
        return sorted(results, key=lambda pair: -math.inf if pair[0].value is None else pair[0].value, reverse=True)

    def make(self, settings: Mapping[str, object]) -> Annotator:
        model = make_model(self._model, {**self._fixed, **settings}, self._options)
        model.check_settings()
        return model


def trials_file(out: str | os.PathLike[str]) -> Path:
    """Return the path of the finished trials, next to the run."""
    return Path(out).with_name(f"{Path(out).name}.tune.jsonl")


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
    check_count(n_random, "n_random")
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
    value: float | None  # MAP on the validation rows; None if training diverged
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


def try_settings(model: Annotator, settings: Mapping[str, object], parts: Parts, progress: Progress) -> Trial:
    """Fit a model, which already has the settings, on the training rows, and measure it on the validation rows.

    `settings` are the searched settings, which are saved with the trial. If training diverges, the trial has no value.
    """
    start = time.perf_counter()
    json_settings = jsonable(dict(settings))
    try:
        result = fit_judged(model, parts, progress)
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

    def begin(self, team: Team, progress: Progress) -> Callable[[Candidate], Trial]:
        """Return a function that fits and measures a candidate, without showing progress."""
        return lambda candidate: try_settings(
            candidate.model.set_known(n_jobs=team.size), candidate.settings, self.data, SILENT
        )

    def name_of(self, part: Candidate) -> str:
        """Return a description of a trial by its settings."""
        return f"The trial of {part}"

    def size_of(self, part: Candidate) -> int:
        """Return 1: each trial is one step."""
        return 1
