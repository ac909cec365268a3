"""Figure 2 of the sampled tagging paper: how good the tagger is after each epoch, for several P and several N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from visterm_research.comparison.claims import Claim, percent
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Trials
from visterm_research.comparison.verdicts import by_ratio
from visterm_research.ugc.measures import BY_IMAGE, BY_TAG, K, five_metrics, five_of
from visterm_research.ugc.methods import FULL_SETTINGS, SAMPLED_SETTINGS

TAGGER, FULL = "sampled_tagger", "cross_entropy_tagger"
EVERY_TAG = "all tags"
POSITIVES = (1, 2, 5, 10, 20)
NEGATIVES = (1, 2, 5, 10, 50, 100)
SETTINGS: dict[str, Any] = {
    "hidden": [512], "epochs": 30, "batch_size": 128, "learning_rate": 0.001, "valid_share": 0.0, "device": "cpu",
}  # fmt: skip
QUICK_SETTINGS = {**SETTINGS, "hidden": [16], "epochs": 3, "learning_rate": 0.005}
P, N = 5, 10
"""The paper's choice, kept where the other is changed."""

HUNDREDTH = 0.01
"""F1 of single trainings that is no further apart than this is equal."""

PAPER = (
    "the paper's lines show near-parity with all tags from P = 5 on, little effect of N up to 100, and a single draw "
    "always worse"
)


def draws_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 2: train with several P, then several N, and with all tags; judge validation rows after each epoch.

    Test rows are not used.

    Parameters
    ----------
    problem : Problem
        Training rows are learned from, validation rows judged.
    comparison : Comparison
        As in `times_part`.
    """
    positives, negatives = (POSITIVES[:2], NEGATIVES[:2]) if comparison.quick else (POSITIVES, NEGATIVES)
    panels = {
        f"N = {N}": [(f"P = {p}", TAGGER, {**SAMPLED_SETTINGS, "positives": p, "negatives": N}) for p in positives],
        f"P = {P}": [(f"N = {n}", TAGGER, {**SAMPLED_SETTINGS, "positives": P, "negatives": n}) for n in negatives],
    }
    settings = QUICK_SETTINGS if comparison.quick else SETTINGS
    found: dict[str, dict[str, Record]] = {}
    for title, lines in panels.items():
        found[title] = {}
        for label, model, change in [*lines, (EVERY_TAG, FULL, FULL_SETTINGS)]:
            record = comparison.while_time(
                f"Figure 2 on {problem.name}: {title}, {label}",
                partial(curve, comparison.trials, problem, model, {**settings, **change}),
            )
            if record is not None:
                found[title][label] = record
    _write(comparison, problem, {title: records for title, records in found.items() if records}, settings)
    draws_claims(comparison, problem, found)


def draws_claims(comparison: Comparison, problem: Problem, found: Mapping[str, Mapping[str, Record]]) -> None:
    """Judge whether a single draw is worse than the paper's number of draws, by what each has at the end of training.

    Parameters
    ----------
    comparison : Comparison
    problem : Problem
    found : mapping of str to mapping of str to dict
        Curves by what is kept and what is changed.
    """
    for kept, chosen, single in ((f"N = {N}", f"P = {P}", "P = 1"), (f"P = {P}", f"N = {N}", "N = 1")):
        if chosen in found.get(kept, {}) and single in found.get(kept, {}):
            above, below = (found[kept][label]["f1"][-1] for label in (chosen, single))
            comparison.claims.append(
                Claim(
                    f"Sampled tagger with {chosen}",
                    single,
                    f"F1@{K} over validation images after {len(found[kept][chosen]['f1'])} epochs ({kept})",
                    "Figure 2",
                    problem.name,
                    ("", ""),
                    (percent(above), percent(below)),
                    by_ratio(below, above, HUNDREDTH),
                )
            )


def curve(trials: Trials, problem: Problem, model: str, settings: Mapping[str, Any]) -> Record:
    """Train on the training rows, and judge the validation rows after each epoch; or look it up.

    Returns
    -------
    dict
        ``loss``, ``map``, ``f1`` (over images) and ``tag_f1``: lists, an entry an epoch.
    """

    def work() -> Record:
        made = trials.make(model, settings)
        judge = Judge(made, problem.valid)
        made.fit(problem.train.X, problem.train.Y, on_epoch=judge)
        return {**judge.found, "loss": [entry["loss"] for entry in made.history_]}

    of = [problem.fingerprint, model, dict(settings)]
    return trials.once(f"{problem.name}/epochs", of, work, {"model": model, **settings})


class Judge:
    """Judges a model after each epoch of its fit, by weights as they are then.

    Parameters
    ----------
    model : Annotator
        The one that is fitted.
    rows : Rows
    """

    def __init__(self, model: Any, rows: Rows) -> None:
        self._model, self._rows = model, rows
        self.found: dict[str, list[float]] = {"map": [], "f1": [], "tag_f1": []}

    def __call__(self, record: dict[str, Any]) -> None:
        """Judge after an epoch."""
        metrics = five_metrics(self._model, self._rows.X, self._rows.Y)
        self.found["map"].append(metrics["map"])
        self.found["f1"].append(five_of(metrics, BY_IMAGE).f1)
        self.found["tag_f1"].append(five_of(metrics, BY_TAG).f1)


def _write(
    comparison: Comparison, problem: Problem, found: Mapping[str, Mapping[str, Record]], settings: Mapping[str, Any]
) -> None:
    if not found:
        return
    drawn: list[tuple[str, dict[str, Line]]] = [
        (title, {label: _line(record["f1"]) for label, record in records.items()}) for title, records in found.items()
    ]
    path = f"figures/draws-{problem.name}.png"
    draw_lines(comparison.out / path, drawn, x="epoch", y=f"F1@{K} over validation images (%)")
    comparison.document.picture(path, f"Figure 2 on {problem.name}: {PAPER}.")
    rows = [
        [title, label, *_ends(record)]
        for title, records in found.items()
        for label, record in records.items()
    ]  # fmt: skip
    header = (
        "kept", "changed", "MAP, last", f"F1@{K}, last", f"F1@{K}, best", "its epoch", f"F1@{K} by tag, last",
        "loss, first", "loss, last",
    )  # fmt: skip
    comparison.document.table(f"Figure 2 on {problem.name}: validation images, in percent", header, rows)
    comparison.document.text(
        f"P alone is changed with N = {N}, and N alone with P = {P}; the other settings are the same: "
        f"{_shown(settings)}. Losses of different P and N are sums of different numbers of terms."
    )


def _ends(record: Record) -> list[str]:
    f1: Sequence[float] = record["f1"]
    best = max(range(len(f1)), key=f1.__getitem__)
    shares = (record["map"][-1], f1[-1], f1[best])
    return [
        *(f"{100 * share:.2f}" for share in shares), str(best + 1), f"{100 * record['tag_f1'][-1]:.2f}",
        f"{record['loss'][0]:.3g}", f"{record['loss'][-1]:.3g}",
    ]  # fmt: skip


def _line(values: Sequence[float]) -> Line:
    return list(range(1, len(values) + 1)), [100 * value for value in values]


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name not in ("valid_share", "device"))
