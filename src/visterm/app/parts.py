"""Encoders and models made from what users type: names, arguments and settings; and which of them can do what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from visterm.core.errors import MissingExtraError
from visterm.core.registry import Registry
from visterm.core.tables import MODELS
from visterm.encoders.named import named_encoder

DEFAULT_ENCODER = "visterms"


def make_model(name: str, params: Mapping[str, Any], shared: Mapping[str, Any], *, by_number: bool = False) -> Any:
    """Make a model with its settings; of the shared ones (seed, threads) it gets those that it has.

    Where images are known by number, settings that are not given are the model's `by_number_params`, if it has any.
    """
    model = MODELS.load(name)
    known = signature(model).parameters
    defaults = getattr(model, "by_number_params", {}) if by_number else {}
    return MODELS.create(name, **{**{key: shared[key] for key in shared if key in known}, **defaults, **params})


def make_encoder(spec: str | None, params: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """Make an encoder from what users type, a name or ``name:argument`` (None: "visterms"), with its settings."""
    return named_encoder(spec or DEFAULT_ENCODER, params, shared)


def names_with(table: Registry, ability: str) -> Iterator[str]:
    """Yield the names of the parts that have an attribute, as far as their packages are installed."""
    for name in table.names():
        try:
            part = table.load(name)
        except MissingExtraError:
            continue
        if hasattr(part, ability):
            yield name
