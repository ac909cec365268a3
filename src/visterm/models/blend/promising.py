"""Which candidates of a blend are worth their seconds, and which of those that were fitted are worth weighing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visterm.models.blend.trials import Trial

MOST_SETS = 3
"""On so many sets of columns all candidates are tried; on the others the first alone."""

MOST_WEIGHED = 6
"""Finding weights takes seconds as the square of the models."""


def in_turn(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield the first candidate on all columns and on each block, then the others where that did best.

    One kind of model comes after the other, each on the best columns first. It is known only once the first ones were
    judged which columns those are, so trials are to be judged as they come. Those on columns that are not worth it
    come last, with their reason.

    Parameters
    ----------
    trials : sequence of Trial
        Those of each kind in the order of their columns.
    """
    first = [trial for trial in trials if trial.kind == 0]
    yield from first
    places = {trial.columns: place for place, trial in enumerate(sorted(first, key=_promise, reverse=True))}

    def place(trial: Trial) -> int:
        return places.get(trial.columns, 0)

    others = sorted((trial for trial in trials if trial.kind), key=lambda trial: (trial.kind, place(trial)))
    yield from (trial for trial in others if place(trial) < MOST_SETS)
    for trial in others:
        if place(trial) >= MOST_SETS:
            trial.reason = f"left out: {first[0].name} did better on other columns"
            yield trial


def shortlist(fitted: Sequence[Trial]) -> list[Trial]:
    """Return those to find weights for, in their order: the best on each set of columns, then the best of the rest."""
    ranked = sorted(fitted, key=_promise, reverse=True)
    leaders: list[Trial] = []
    for trial in ranked:
        if all(trial.columns != leader.columns for leader in leaders):
            leaders.append(trial)
    rest = [trial for trial in ranked if trial not in leaders]
    chosen = [*leaders, *rest][:MOST_WEIGHED]
    return [trial for trial in fitted if trial in chosen]


def _promise(trial: Trial) -> float:
    """Return the sum of the two MAPs; nothing of one that was not fitted."""
    return (trial.map or 0.0) + (trial.word_map or 0.0)
