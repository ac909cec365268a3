"""Choosing the settings of a model: encode once, judge each by held-out rows, learn from all rows with the best."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visterm.core.checks import check_number
from visterm.core.digests import digest_of, key_of
from visterm.core.errors import DivergedError, UserError
from visterm.core.executor import Executor, LocalExecutor
from visterm.core.persist import check_target
from visterm.core.progress import SILENT, OneTask, Progress, Titled
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.features.training_rows import Photos, TrainingRows, as_corpus, named_corpus, training_rows
from visterm.metrics import check_metrics
from visterm.tagging.parts import make_model
from visterm.tagging.tagger import Tagger
from visterm.tagging.tuning.search_space import Choices, settings_to_try
from visterm.tagging.tuning.trial import Candidate, TrialJob, try_settings
from visterm.tagging.tuning.trial_log import Trial, TrialLog
from visterm.tagging.tuning.validation import Parts, all_rows, fit_on_all, part_rows

FORMAT = 1
"""Of the trials; raised when they would come out otherwise, so that older ones are made anew."""


class Tuned(NamedTuple):
    """The tagger of the best setting, and all trials, the best first; and remarks, one line each.

    Attributes
    ----------
    tagger : Tagger
        Saved.
    trials : list of Trial
    remarks : sequence of str
        What was done otherwise than was asked for.
    """

    tagger: Tagger
    trials: list[Trial]
    remarks: Sequence[str] = ()


def tune(
    images: Photos | None,
    tags: str | os.PathLike[str] | Sequence[Sequence[str]] = "auto",
    *,
    out: str | os.PathLike[str],
    grid: Mapping[str, Choices],
    n_random: int | None = None,
    metric: str = "map",
    valid: float = 0.1,
    encoder: str | None = None,
    model: str = "wsabie",
    encoder_params: Mapping[str, Any] | None = None,
    model_params: Mapping[str, Any] | None = None,
    min_count: int = 1,
    aliases: Mapping[str, str] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    progress: Progress = SILENT,
) -> Tuned:
    """Try settings of a model on validation rows, fit the best on all rows, and write the run.

    Each finished trial is kept in a file beside the run, ``<out>.tune.jsonl``, under all that it depends on (rows,
    encoder, settings, metric, seed): after a kill the same call goes on, and a wider grid fits only what is new.

    Parameters
    ----------
    images, tags
        As `Tagger.fit` takes them.
    out : path-like
        The run to write; the trials are in its facts.
    grid : mapping of str to list of values or Range
        What to try for each setting of the model. Ranges need `n_random`.
    n_random : int, optional
        Draw so many different settings, with `seed`. None tries all combinations.
    metric : str
        What to choose by, from ``visterm metrics``; higher is better, and among equals the first is taken.
    valid : float
        The share of the images to choose by, or of images known by number those of which one tag is held out. Where
        there is a split "valid", its rows are used instead. Models that stop by validation rows stop by the same. In
        the end all rows are learned from; but those of a split "valid" not by a model over kernel values, which have no
        columns for them.
    encoder, model, encoder_params, model_params, min_count, seed, n_jobs
        As `Tagger` takes them; `model_params` holds for all trials.
    aliases : mapping of str to str, optional
        As `Tagger.fit` takes them.
    executor : Executor, optional
        Tries the settings, with its own `n_jobs`; None: this process. With one of several machines a worker tries one
        setting at a time, on one thread. Trials that were finished before are not made again, and a single one is
        done here.
    progress : Progress
        Told of each step; each trial is a task, and on several machines a step of one.

    Returns
    -------
    Tuned
        The saved tagger and the trials.

    Raises
    ------
    UserError
        If a setting or the metric cannot be used: before any long work.
    StorageError
        If something that is not a run lies at `out`.
    DivergedError
        If every setting diverges.
    """
    search = Tuning(
        out=out,
        grid=grid,
        n_random=n_random,
        metric=metric,
        valid=valid,
        encoder=encoder,
        model=model,
        encoder_params=encoder_params,
        model_params=model_params,
        min_count=min_count,
        seed=seed,
        n_jobs=n_jobs,
        executor=executor,
    )
    corpus = named_corpus(search.encoder, tags) if images is None else as_corpus(images, tags)
    return search.run(corpus, aliases=aliases, progress=progress)


class Tuning:
    """A search for settings that is asked for: what cannot be used of it is refused here, before photos are looked at.

    Parameters and errors are those of `tune`.
    """

    def __init__(
        self,
        *,
        out: str | os.PathLike[str],
        grid: Mapping[str, Choices],
        n_random: int | None = None,
        metric: str = "map",
        valid: float = 0.1,
        encoder: str | None = None,
        model: str = "wsabie",
        encoder_params: Mapping[str, Any] | None = None,
        model_params: Mapping[str, Any] | None = None,
        min_count: int = 1,
        seed: int = 0,
        n_jobs: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._executor = executor = LocalExecutor(n_jobs) if executor is None else executor
        check_target(out, "run")
        check_metrics([metric], siblings=False)
        check_number(valid, "valid", above=0, below=1)
        self._fixed = dict(model_params or {})
        _refuse_twice(self._fixed, grid)
        self._tagger = Tagger(
            encoder=encoder,
            model=model,
            encoder_params=encoder_params,
            model_params=self._fixed,
            min_count=min_count,
            seed=seed,
            n_jobs=executor.n_jobs,
        )
        self._tagger.encoder.check_settings()
        self._out, self._model, self._metric, self._valid, self._seed = out, model, metric, valid, seed
        self._remarks: list[str] = []
        self._shared = {"random_state": seed, "n_jobs": executor.n_jobs}
        self._candidates = [
            Candidate(self._make(settings), settings) for settings in settings_to_try(grid, n_random, seed)
        ]
        self._log = TrialLog(trials_file(out))

    @property
    def encoder(self) -> Any:
        """Return the encoder that the photos will be looked at with."""
        return self._tagger.encoder

    def run(
        self,
        corpus: Corpus,
        *,
        aliases: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        progress: Progress = SILENT,
    ) -> Tuned:
        """Try the settings on validation rows, fit the best on all rows, and write the run.

        Parameters
        ----------
        corpus : Corpus
        aliases : mapping of str to str, optional
            As `Tagger.fit` takes them.
        facts : mapping, optional
            To be kept with the run beside its own: what was pruned before, say.
        progress : Progress
        """
        tagger = self._tagger
        tagger.take_encoder_of(corpus)
        rows = training_rows(tagger.encoder, corpus, min_count=tagger.min_count, aliases=aliases, progress=progress)
        parts = part_rows(rows, self._valid, np.random.default_rng(self._seed))
        tried = self._tried(parts, progress)
        trials = [trial for trial, _ in tried]
        best, chosen = tried[0]
        if best.value is None:
            raise DivergedError(f"Each of the {len(trials)} settings diverged, the first so: {best.error}")
        last = Titled(progress, "best, all rows")
        model = self._make(chosen)
        whole = all_rows(rows, model)
        tagger.model = fit_on_all(model, whole, best.epochs, best.history, last)
        tagger.learned(whole)
        tagger.find_confidences(whole, Titled(progress, "confidences"))
        summary = _summary(self._metric, rows, parts, trials)
        tagger.facts |= {**(facts or {}), "tuning": summary, "trials": [trial.as_dict() for trial in trials]}
        tagger.save(self._out)
        return Tuned(tagger, trials, self._remarks)

    def _tried(self, parts: Parts, progress: Progress) -> list[tuple[Trial, Mapping[str, Any]]]:
        """Return all trials with their settings, the best first; those that were finished before are not made again."""
        data = key_of(
            FORMAT, digest_of(list(parts[:5])), self._tagger.encoder.fingerprint, self._model, self._metric, self._seed
        )
        keyed = [(_key(data, candidate.model), candidate) for candidate in self._candidates]
        new = [(key, candidate) for key, candidate in keyed if self._log.get(key) is None]
        if self._executor.remote and len(new) > 1:
            self._try_elsewhere(new, parts, progress)
        else:
            if self._executor.remote:
                left = f"{count_of(len(new), 'setting')} to try"
                self._remarks.append(f"With {left} no Ray engine was asked: it was done here.")
            for number, (key, candidate) in enumerate(keyed, start=1):
                if self._log.get(key) is None:
                    with OneTask(progress, f"{number} of {len(keyed)}: {candidate}") as task:
                        trial = try_settings(candidate.model, candidate.settings, parts, self._metric, task)
                        task.came_out(self._outcome(trial))
                    self._log.put(key, trial)
        tried = [(self._log[key], candidate.settings) for key, candidate in keyed]
        return sorted(tried, key=lambda pair: -math.inf if pair[0].value is None else pair[0].value, reverse=True)

    def _try_elsewhere(self, new: Sequence[tuple[str, Candidate]], parts: Parts, progress: Progress) -> None:
        """Try settings on the workers of the executor; each trial is kept as soon as it ends."""

        def finished(number: int, trial: Trial) -> None:
            key, candidate = new[number]
            self._log.put(key, trial)
            progress.advance(1, f"{candidate}: {self._outcome(trial)}")

        progress.start("settings", len(new))
        try:
            job = TrialJob(parts, self._metric)
            self._executor.run_as_done(job, [candidate for _, candidate in new], finished)
        finally:
            progress.finish()

    def _outcome(self, trial: Trial) -> str:
        return "diverged" if trial.value is None else f"{self._metric} {trial.value:.4f}"

    def _make(self, settings: Mapping[str, Any]) -> Any:
        by_number = self._tagger.encoder.by_number
        made = make_model(self._model, {**self._fixed, **settings}, self._shared, by_number=by_number)
        made.check_settings()
        return made


def trials_file(out: str | os.PathLike[str]) -> Path:
    """Return the file beside a run in which its finished trials are kept."""
    return Path(out).with_name(f"{Path(out).name}.tune.jsonl")


def _key(data: str, model: Any) -> str:
    """Name a trial by all that it depends on."""
    return key_of(data, {k: v for k, v in model.get_params(deep=False).items() if k != "n_jobs"})


def _refuse_twice(fixed: Mapping[str, Any], grid: Mapping[str, Choices]) -> None:
    twice = sorted(set(fixed) & set(grid))
    if twice:
        raise UserError(f"{twice[0]} is both fixed and to be searched over. Leave one of the two out (--set, --grid).")


def _summary(metric: str, rows: TrainingRows, parts: Parts, trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "metric": metric,
        "best value": trials[0].value,
        "best settings": trials[0].settings,
        "settings tried": len(trials),
        "validation rows": parts.X_valid.shape[0],
        "validation by": "split valid"
        if rows.valid is not None
        else "held-out tags"
        if rows.by_number
        else "held-out images",
    }
