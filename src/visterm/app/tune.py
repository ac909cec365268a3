"""Choosing the settings of a model: encode once, judge each by held-out rows, learn from all rows with the best."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visterm.app.parts import make_model
from visterm.app.reproduce.problem import digest_of
from visterm.app.reproduce.record import jsonable, key_of
from visterm.app.rows import Photos, TrainingRows, as_corpus, named_corpus, training_rows
from visterm.app.search_space import Choices, settings_to_try
from visterm.app.tagger import Tagger
from visterm.app.trial_log import Trial, TrialLog
from visterm.app.validation import Parts, all_rows, fit_judged, fit_on_all, part_rows
from visterm.core.checks import check_number
from visterm.core.errors import DivergedError, UserError
from visterm.core.persist import check_target
from visterm.core.progress import SILENT, OneTask, Progress, Titled
from visterm.data.corpus import Corpus
from visterm.metrics import check_metrics

FORMAT = 1
"""Of the trials; raised when they would come out otherwise, so that older ones are made anew."""


class Tuned(NamedTuple):
    """The tagger of the best setting, and all trials, the best first."""

    tagger: Tagger
    trials: list[Trial]


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
    progress : Progress
        Told of each step; each trial is a task.

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
    ) -> None:
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
            n_jobs=n_jobs,
        )
        self._tagger.encoder.check_settings()
        self._out, self._model, self._metric, self._valid, self._seed = out, model, metric, valid, seed
        self._shared = {"random_state": seed, "n_jobs": n_jobs}
        self._candidates = [(settings, self._make(settings)) for settings in settings_to_try(grid, n_random, seed)]
        self._log = TrialLog(trials_file(out))

    @property
    def encoder(self) -> Any:
        """Give the encoder that the photos will be looked at with."""
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
        return Tuned(tagger, trials)

    def _tried(self, parts: Parts, progress: Progress) -> list[tuple[Trial, Mapping[str, Any]]]:
        """Give all trials with their settings, the best first; those that were finished before are not made again."""
        data = key_of(
            FORMAT, digest_of(list(parts[:5])), self._tagger.encoder.fingerprint, self._model, self._metric, self._seed
        )
        tried: list[tuple[Trial, Mapping[str, Any]]] = []
        for number, (settings, candidate) in enumerate(self._candidates, start=1):
            key = key_of(data, {k: v for k, v in candidate.get_params(deep=False).items() if k != "n_jobs"})
            trial = self._log.get(key)
            if trial is None:
                shown = ", ".join(f"{name}={value}" for name, value in settings.items())
                with OneTask(progress, f"{number} of {len(self._candidates)}: {shown}") as task:
                    trial = _try(candidate, settings, parts, self._metric, task)
                    task.came_out("diverged" if trial.value is None else f"{self._metric} {trial.value:.4f}")
                self._log.put(key, trial)
            tried.append((trial, settings))
        return sorted(tried, key=lambda pair: -math.inf if pair[0].value is None else pair[0].value, reverse=True)

    def _make(self, settings: Mapping[str, Any]) -> Any:
        by_number = self._tagger.encoder.by_number
        made = make_model(self._model, {**self._fixed, **settings}, self._shared, by_number=by_number)
        made.check_settings()
        return made


def trials_file(out: str | os.PathLike[str]) -> Path:
    """Give the file beside a run in which its finished trials are kept."""
    return Path(out).with_name(f"{Path(out).name}.tune.jsonl")


def _try(model: Any, settings: Mapping[str, Any], parts: Parts, metric: str, progress: Progress) -> Trial:
    began = time.perf_counter()
    shown = jsonable(dict(settings))
    try:
        judged = fit_judged(model, parts, metric, progress)
    except DivergedError as error:
        return Trial(shown, None, None, time.perf_counter() - began, error=str(error))
    return Trial(shown, judged.value, judged.epochs, judged.seconds, history=jsonable(judged.history))


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
