"""Encoders and models made from what users type: names, arguments and settings."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from visterm.core.tables import MODELS
from visterm.encoders.named import named_encoder

DEFAULT_ENCODER = "visterms"


def make_model(name: str, params: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """Make a model with its settings; of the shared ones (seed, threads) it gets those that it has."""
    known = signature(MODELS.load(name)).parameters
    return MODELS.create(name, **{**{key: shared[key] for key in shared if key in known}, **params})


def make_encoder(spec: str | None, params: Mapping[str, Any], shared: Mapping[str, Any]) -> Any:
    """Make an encoder from what users type, a name or ``name:argument`` (None: "visterms"), with its settings."""
    return named_encoder(spec or DEFAULT_ENCODER, params, shared)
