"""Encoders made of what users type or list: ``name``, ``name:argument``, and several joined by ``+``."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS

if TYPE_CHECKING:  # which loads scikit-learn
    from visterm.encoders.contract import AnyEncoder

DEFAULT_ENCODER = "visterms"

JOIN = "+"  # Stands between the encoders of a chain


def make_encoder(spec: str | None, params: Mapping[str, Any], shared: Mapping[str, Any]) -> AnyEncoder:
    """Make an encoder from ``name`` or ``name:argument``; None is the default encoder.

    The text after the colon fills the parameter that its class names `argument`. `params` are its settings; `shared`
    ones (seed, threads) it gets if it has them and `params` have not. Raises UnknownNameError if there is no such
    encoder, or it has no such parameter; UserError if it takes no argument.
    """
    name, colon, argument = (spec or DEFAULT_ENCODER).partition(":")
    cls = ENCODERS.load(name)
    known = signature(cls).parameters
    filled = {key: shared[key] for key in shared if key in known}
    if colon:
        if cls.argument is None:
            raise UserError(f"The encoder '{name}' takes no argument after a colon, but got '{argument}'.")
        filled[cls.argument] = argument
    encoder: AnyEncoder = ENCODERS.create(name, **{**filled, **params})
    return encoder


def split_specs(text: str) -> list[str]:
    """Split ``visterms+onnx:PATH`` into its encoders; a ``+`` inside a path stays, unless an encoder's name follows."""
    specs: list[str] = []
    for piece in text.split(JOIN):
        starts = piece.partition(":")[0] in ENCODERS.names()
        if starts or not specs or ":" not in specs[-1]:
            specs.append(piece)
        else:
            specs[-1] += JOIN + piece
    return specs
