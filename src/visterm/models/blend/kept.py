"""Which models of a blend explain its scores and compare its tags, and those that are kept for that alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.packing import learned_parts
from visterm.core.progress import Progress
from visterm.core.tables import MODELS
from visterm.models.abilities import Explains
from visterm.models.base import Annotator
from visterm.models.blend.candidates import Columns
from visterm.models.blend.members import make_member, own_settings
from visterm.models.blend.trials import Rows, Trial, attempt
from visterm.models.explaining import LinearScores
from visterm.models.linear.base import LinearAnnotator

KEPT = "ranks nothing: kept to explain scores and compare tags"
SPARE = "no candidate: kept to explain scores and compare tags"

NEARLY = 0.8  # Share of the best sum of MAPs from which on a model that is stored smaller is kept in its place
SPARE_ROWS = 1_000
"""Images of the first fit of a model that is no candidate: it is soon over, whatever the budget. Where there is time,
it is fitted on all images after that."""


def tag_vectors(model: Annotator) -> NDArray[np.float32] | None:
    """Return the vectors in which tags can be compared, (n_tags, width); of a blend those of its members, weighted.

    A linear model in tag space has the weights of its features. None if there are none, as each tag has an axis of its
    own and is near no other. Members without weight count only where no other has vectors.
    """
    if hasattr(model, "members_"):
        found: list[Any] = [(factor, tag_vectors(member)) for factor, member in _with_vectors(model)]
        return np.hstack([np.float32(factor) * vectors for factor, vectors in found]) if found else None
    return _own_vectors(model)


def vectors_from(model: Annotator) -> list[str]:
    """Return the names of the models that the `tag_vectors` are of, each once; of a blend, those of its members."""
    if hasattr(model, "members_"):
        return list(dict.fromkeys(name for _, member in _with_vectors(model) for name in vectors_from(member)))
    return [] if _own_vectors(model) is None else [MODELS.name_of(model)]


def has_vectors(model: Annotator) -> bool:
    """Return whether a fitted model has vectors of tags, of more than a number each."""
    V = tag_vectors(model)
    return V is not None and V.shape[1] > 1


def explains(model: Annotator) -> bool:
    """Return whether a fitted model can take its scores apart by features, itself or by one of its members."""
    members = getattr(model, "members_", None)
    if members is None or not isinstance(model, Explains):
        return isinstance(model, Explains)
    return (all if isinstance(model, LinearScores) else any)(explains(member) for member in members)


def explaining(blend: Any) -> list[int]:
    """Return the places of the members of a blend that explain: those with weight or, if none has any, the others."""
    able = [place for place, member in enumerate(blend.members_) if explains(member)]
    return [place for place in able if blend.weights_[place]] or able


def explained_by(model: Annotator) -> list[str]:
    """Return the names of the models that explain a fitted model's scores, each once: of a blend, members."""
    if not hasattr(model, "members_"):
        return [MODELS.name_of(model)] if explains(model) else []
    blend: Any = model
    members = [blend.members_[place] for place in explaining(blend)]
    return list(dict.fromkeys(name for member in members for name in explained_by(member)))


def what_to_do(model: Annotator) -> str:
    """Return what to do about a fitted model that cannot explain scores, or cannot compare tags: a sentence or two.

    A run of `auto` lacks such a model if its setting `explainable` is False, if the model was too large, or if a
    version of visterm fitted it that kept none.
    """
    if not hasattr(model, "report_"):
        return "Fit a model that can: --model wsabie."
    if not model.get_params(deep=False)["explainable"]:
        return "Fit it again without --set explainable=False."
    for entry in model.report_:
        if "left out" in entry["reason"] and issubclass(MODELS.load(entry["model"]), Explains):
            return f"{entry['model']}: {entry['reason'].rstrip('.')}. Fit a model that can: --model wsabie."
    return "Fit it again: auto now keeps a model that explains scores and compares tags in every run."


def kept_beside(
    used: list[Trial],
    fitted: list[Trial],
    trials: list[Trial],
    learned: Rows,
    judged: Rows,
    n_jobs: int | None,
    monitor: Progress,
) -> list[Trial]:
    """Return the trials to keep beside those that rank, so that one explains and one has vectors of tags.

    Of those fitted that can, it is the smallest that ranks nearly as well as the best. Where none can, the cheapest
    model that does both is fitted on some of the images and joins the `trials`: `ridge` with a fixed penalty, as
    choosing one takes longer than the fit. If it can't be fitted, as its weights are too many, its reason says so, and
    nothing is kept.
    """
    ranked = sorted(fitted, key=lambda trial: trial.promise, reverse=True)
    kept: list[Trial] = []
    for able in (explains, has_vectors):
        if any(able(trial.model) for trial in [*used, *kept]):
            continue
        found = [trial for trial in ranked if able(trial.model)]
        found = [trial for trial in found if trial.promise >= NEARLY * found[0].promise]
        found = sorted(found, key=lambda trial: _bytes_of(trial.model))[:1]
        if not found and not trials[-1].reason.startswith(SPARE):
            trials.append(_fitted_spare(trials[0].columns, learned, judged, n_jobs, monitor))
            found = [trial for trial in trials[-1:] if trial.n_rows]
        kept += found
    return kept


def _bytes_of(model: Annotator) -> int:
    """Return the bytes of what a model has learned: what a run with it takes more."""
    return sum(part.nbytes for _, part in learned_parts(model, ""))


def _fitted_spare(columns: Columns, learned: Rows, judged: Rows, n_jobs: int | None, monitor: Progress) -> Trial:
    model = make_member(("ridge", {"alpha": 1.0}), "auto", n_jobs, np.random.default_rng(0))
    trial = Trial(MODELS.name_of(model), model, own_settings(model), -1, columns)
    n = learned.X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, SPARE_ROWS)).astype(np.int64))
    attempt(trial, Rows(learned.X[rows], learned.Y[rows]), judged, monitor)
    trial.reason = f"{SPARE}, but {trial.reason}" if trial.reason else SPARE
    return trial


def _own_vectors(model: Any) -> NDArray[np.float32] | None:
    V = model.weights_.T if isinstance(model, LinearAnnotator) and hasattr(model, "weights_") else None
    V = getattr(model, "tag_rows_", V)
    return None if sp.issparse(V) else V  # as CSR they are in tag space


def _with_vectors(blend: Any) -> list[tuple[float, Annotator]]:
    """Return the factor of each member that has vectors, and the member; without weight only if no other has any."""
    for weights in (blend.weights_, (blend.weights_ == 0).astype(np.float64)):
        members = zip(weights / blend.scales_, blend.members_, strict=True)
        if found := [(factor, member) for factor, member in members if factor and vectors_from(member)]:
            return found
    return []
