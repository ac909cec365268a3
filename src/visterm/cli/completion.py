"""Shell completion: names of models, encoders and metrics."""

from __future__ import annotations

from visterm.cli.command_line import imported_when_used
from visterm.core.errors import DataError

with imported_when_used():
    from visterm.core import tables
    from visterm.encoders import named
    from visterm.metrics import table

Completions = list[tuple[str, str]]  # (name, description)


def model_names() -> Completions:
    """Return the models with their descriptions."""
    return [(entry.name, entry.summary) for entry in tables.MODELS]


def encoder_names() -> Completions:
    """Return the encoders and the named networks with their descriptions."""
    return [*((entry.name, entry.summary) for entry in tables.ENCODERS), *network_names()]


def network_names() -> Completions:
    """Return the named networks with their purposes; an empty list if the user's table of networks is invalid."""
    try:
        return [(row.name, row.good_for) for row in named.networks().values()]
    except DataError:
        return []


def metric_names() -> Completions:
    """Return the metrics, as they are typed, with their descriptions."""
    return [(entry.example, entry.summary) for entry in table.METRICS]
