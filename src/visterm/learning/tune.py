"""Choose the settings of a model: encode once, measure settings on held-out rows, then fit the best on all rows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from visterm.core.checks import check_number
from visterm.core.errors import DivergedError, UserError
from visterm.core.executor import LOCAL, Executor
from visterm.core.packing import digest_of, key_of
from visterm.core.progress import SILENT, OneTask, Progress, Say, Titled, reported, silent
from visterm.core.wording import count_of
from visterm.encoders.contract import AnyEncoder
from visterm.features.training_rows import training_rows
from visterm.learning.calibrating import with_confidences
from visterm.learning.fit_input import Cleaning, clean_images, read_images
from visterm.learning.fit_request import FitRequest
from visterm.learning.fitting import learned_of
from visterm.learning.part_settings import make_model, unfitted_parts
from visterm.learning.relations import check_sources
from visterm.learning.run import Run
from visterm.learning.trials import Candidate, Choices, Trial, TrialJob, TrialLog, settings_to_try, try_settings
from visterm.learning.validation import Parts, all_rows, fit_on_all, part_rows
from visterm.metrics import check_metrics
from visterm.models.base import Annotator

FORMAT = 1  # Version of the trials; raise it when results change, to repeat older trials
DEFAULT_MODEL = "wsabie"
VALID_SHARE = 0.1
_UNSUPPORTED_OPTIONS = ("queries", "split", "idf", "word_vectors", "calibrate", "relations", "memory", "work")


class Tuned(NamedTuple):
    """The saved run with the best settings, and all trials, best first."""

    run: Run
    trials: list[Trial]


def tune(
    request: FitRequest,
    *,
    grid: Mapping[str, Choices],
    n_random: int | None = None,
    metric: str = "map",
    executor: Executor = LOCAL,
    say: Say = silent,
    progress: Progress = SILENT,
) -> Tuned:
    """Try settings of a model on validation rows, fit the best on all rows, and save the run.

    Each finished trial is saved in a file next to the run, ``<out>.tune.jsonl``, with a key of everything that it
    depends on (rows, encoder, settings, metric, seed): after an interruption the same call resumes, and a larger grid
    only fits new settings. Raises UserError before any long work if a setting or the metric is invalid; StorageError if
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
    metric : str
        The metric to choose by, from ``visterm metrics``; higher is better, and the first of equal settings is chosen.
    executor : Executor
        Where to try settings. On several machines, a worker tries one setting at a time, with one thread; a single
        setting is tried in this process.
    say : callable
        Called with lines for people.
    progress : Progress
        Shows each trial as a task, and on several machines as a step.
    """
    search = _Search(request, grid, n_random, metric, executor)
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
        "metric": metric,
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
        self, request: FitRequest, grid: Mapping[str, Choices], n_random: int | None, metric: str, executor: Executor
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
        check_metrics([metric], siblings=False, tree=False)
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
        self.out, self._model, self._metric, self._seed = out, request.model, metric, request.seed
        self._executor = executor
        self._options = {"random_state": request.seed, "n_jobs": n_jobs}
        self._candidates = [
            Candidate(self.make(settings), settings) for settings in settings_to_try(grid, n_random, request.seed)
        ]
        self._log = TrialLog(trials_file(out))

    def run(
        self, parts: Parts, encoder: AnyEncoder, say: Say, progress: Progress
    ) -> list[tuple[Trial, Mapping[str, object]]]:
        """Return all trials with their settings, best first; finished trials are not repeated."""
        data = key_of(FORMAT, digest_of(list(parts[:5])), encoder.fingerprint, self._model, self._metric, self._seed)
        side = {} if parts.side is None else vars(parts.side)
        side_fields = {name: part for name, part in side.items() if part is not None}
        keyed_candidates = []
        for candidate in self._candidates:
            params = candidate.model.get_params(deep=False)
            params.pop("n_jobs", None)  # results don't depend on it
            keyed_candidates.append((key_of(data, params | side_fields), candidate))

        new_trials = [(key, candidate) for key, candidate in keyed_candidates if key not in self._log]
        if self._executor.remote and len(new_trials) > 1:
            self._try_remotely(new_trials, parts, progress)
        else:
            if self._executor.remote:
                say(f"Other machines ignored: {count_of(len(new_trials), 'setting')} to try, on this machine.")
            for number, (key, candidate) in enumerate(keyed_candidates, start=1):
                if key not in self._log:
                    with OneTask(progress, f"{number} of {len(keyed_candidates)}: {candidate}") as task:
                        trial = try_settings(candidate.model, candidate.settings, parts, self._metric, task)
                        task.finish_with(self._outcome(trial))
                    self._log.put(key, trial)
        results = [(self._log[key], candidate.settings) for key, candidate in keyed_candidates]
        return sorted(results, key=lambda pair: -math.inf if pair[0].value is None else pair[0].value, reverse=True)

    def _try_remotely(self, new_trials: Sequence[tuple[str, Candidate]], parts: Parts, progress: Progress) -> None:
        """Try settings on the workers of the executor; each trial is saved as soon as it ends."""

        def save_trial(number: int, trial: Trial) -> None:
            key, candidate = new_trials[number]
            self._log.put(key, trial)
            progress.advance(1, f"{candidate}: {self._outcome(trial)}")

        with reported(progress, "settings", len(new_trials)):
            job = TrialJob(parts, self._metric)
            self._executor.run_as_done(job, [candidate for _, candidate in new_trials], save_trial)

    def _outcome(self, trial: Trial) -> str:
        return "diverged" if trial.value is None else f"{self._metric} {trial.value:.4f}"

    def make(self, settings: Mapping[str, object]) -> Annotator:
        model = make_model(self._model, {**self._fixed, **settings}, self._options)
        model.check_settings()
        return model


def trials_file(out: str | os.PathLike[str]) -> Path:
    """Return the path of the finished trials, next to the run."""
    return Path(out).with_name(f"{Path(out).name}.tune.jsonl")
