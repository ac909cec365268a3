"""Annotation with exactly five tags per image, measured word by word like published results on Corel5k."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DivergedError
from visterm.core.packing import digest_of
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.metrics import evaluate
from visterm_research.comparison.claims import percent
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.methods import Method
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import Settings, search
from visterm_research.pamir.methods import naming
from visterm_research.pamir.rows import learned_settings
from visterm_research.pamir.search_run import SearchRun
from visterm_research.papers import read_paper

paper = read_paper("pamir")

METRICS = ("tag_p@5", "tag_r@5", "tag_f1@5", "n_plus@5")


def five_tags_part(run: SearchRun, features: FeatureSet, methods: list[Method]) -> None:
    """Fit every method to all tags of the development pictures, and measure five tags for each test picture.

    Settings, if a method has any, are those with the best F1 over the validation pictures of the first division.
    """
    pictures = run.pictures
    vocabulary = Vocabulary.from_lists(pictures.development.tags)
    tags, test_tags = (vocabulary.encode(part.tags) for part in (pictures.development, pictures.test))
    records = {}
    for method in (method for method in methods if run.takes(method, features)):
        record = run.comparison.while_time(
            f"Five tags an image by {method.label} on {features.label} of {run.name}",
            partial(_test_record, run, features, method, tags, test_tags),
        )
        if record is not None and record["test"] is not None:
            records[method.label] = record
    if not records:
        return
    rows = []
    for label in sorted(records, key=lambda label: -records[label]["test"]["tag_f1@5"]):
        test = records[label]["test"]
        figures = [percent(test[f"tag_{name}@5"]) for name in ("p", "r", "f1")]
        rows.append([label, features.label, *figures, f"{test['n_plus@5']:.0f}", records[label]["settings"]])
    for label, (precision, recall, n_plus) in paper.FIVE_TAGS.items():
        f1 = 2 * precision * recall / (precision + recall)
        figures = [f"{100 * value:.0f} %" for value in (precision, recall, f1)]
        rows.append([label, "as published", *figures, f"{n_plus}", "–"])
    n_words = int(np.count_nonzero(np.bincount(test_tags.indices, minlength=len(vocabulary))))
    header = ("method", "features", "precision", "recall", "F1", "N+", "chosen")
    document = run.comparison.document
    document.table(f"Five tags an image on {run.name}, {features.label}: word by word", header, rows)
    document.text(
        f"Fitted on all {len(pictures.development):,} development pictures with all their {len(vocabulary):,} words; "
        f"exactly five tags a test picture. Precision and recall are means over the {n_words:,} words that are in "
        "training and test captions (a word that is never given has precision 0); N+ is the number of words with "
        "recall above 0, and F1 is computed from the two means. The published figures are for Corel5k at its full "
        "size, with other features."
    )


def _test_record(
    run: SearchRun, features: FeatureSet, method: Method, tags: sp.csr_array, test_tags: sp.csr_array
) -> Record:
    """Choose settings on the validation pictures, fit on all development pictures, and measure on the test pictures."""
    rows = run.rows(features)
    division = run.pictures.divisions[0]
    naming_method = naming(method)
    tried: list[tuple[Settings, float]] = []

    def fit(settings: Settings) -> list[float]:
        parts = (rows.X[division.train], tags[division.train], rows.X[division.valid], tags[division.valid])
        f1 = _f1(_record(run, features, method, settings, "five-tags-valid", parts))
        tried.append((settings, f1))
        return [f1]

    if naming_method.box:
        search(naming_method.box, naming_method.settings(run.comparison.trials.seed), fit, trials=naming_method.trials)
        best_settings, _ = max(tried, key=lambda trial: trial[1])
    else:
        (best_settings,) = naming_method.settings()
    record = _record(run, features, method, best_settings, "five-tags-test", (rows.X, tags, rows.X_test, test_tags))
    settings_text = ", ".join(f"{name}={best_settings[name]}" for name in naming_method.box)
    return {"test": record["metrics"], "settings": settings_text or "–"}


def _record(
    run: SearchRun,
    features: FeatureSet,
    method: Method,
    settings: Settings,
    part: str,
    parts: tuple[Matrix, sp.csr_array, Matrix, sp.csr_array],
) -> Record:
    X, Y, X_judged, Y_judged = parts

    def work() -> Record:
        model = run.comparison.trials.make(method.model, settings)
        try:
            model.fit(X, Y)
        except DivergedError as error:
            return {"metrics": None, "diverged": str(error)}
        scores = evaluate(lambda: model.score_blocks(X_judged), Y_judged, METRICS)
        return {"metrics": scores, "learned": learned_settings(model)}

    key_parts = [digest_of([X, Y, X_judged, Y_judged]), method.model, settings]
    return run.comparison.trials.once(
        f"{run.rows(features).name}/{part}", key_parts, work, {"model": method.model, **settings}
    )


def _f1(record: Record) -> float:
    return -1.0 if record["metrics"] is None else record["metrics"]["tag_f1@5"]
