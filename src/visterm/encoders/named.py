"""Encoders made of what users type or list: ``name``, ``name:argument``, and several joined by ``+``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS
from visterm.encoders.networks import networks, networks_here

if TYPE_CHECKING:  # which loads scikit-learn
    from visterm.encoders.contract import AnyEncoder

DEFAULT_ENCODER = "visterms"

JOIN = "+"  # Stands between the encoders of a chain


def default_encoder() -> str:
    """Return the name of the encoder that is used where none is chosen: the best network of the table that is here.

    Where none is, or onnxruntime is not installed, that is visterms.
    """
    if find_spec("onnxruntime") is None:
        return DEFAULT_ENCODER
    return next((row.name for row in networks_here()), DEFAULT_ENCODER)


def default_line() -> str:
    """Return which encoder is used where none is chosen, for people, and what fetching a network would bring."""
    name = default_encoder()
    if name != DEFAULT_ENCODER:
        return f"Encoder: {name}, the first network of `visterm encoders` that is on this machine (--encoder: another)."
    best = next(iter(networks().values()))
    extra = "" if find_spec("onnxruntime") else "pip install 'visterm[onnx]', then "
    return (
        f"Encoder: {name}. A network's features are stronger, and none is here. Fetch one: {extra}visterm encoders get "
        f"{best.name} ({best.size()}, licence: {best.licence})"
    )


def registered_name(spec: str | None) -> str:
    """Return the name of the class of an encoder as `make_encoder` takes it: "onnx" for a network by name."""
    name = (spec or default_encoder()).partition(":")[0]
    return name if name in ENCODERS.names() or name not in networks() else "onnx"


def make_encoder(spec: str | None, params: Mapping[str, Any], shared: Mapping[str, Any]) -> AnyEncoder:
    """Make an encoder from ``name``, ``name:argument`` or the name of a network; None is `default_encoder`.

    The text after the colon fills the parameter that its class names `argument`. `params` are its settings; `shared`
    ones (seed, threads) it gets if it has them and `params` have not. Raises UnknownNameError if there is no such
    encoder, or it has no such parameter; UserError if it takes no argument.
    """
    name, colon, argument = (spec or default_encoder()).partition(":")
    if name not in ENCODERS.names():  # else the table is not read: it may be broken
        if name not in (table := networks()):
            raise ENCODERS.unknown(name, encoder_names())
        if colon:
            raise UserError(f"The network '{name}' takes no argument after a colon, but got '{argument}'.")
        name, params = "onnx", {**table[name].encoder, **params, "network": name}
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
        name = piece.partition(":")[0]
        if not specs or ":" not in specs[-1] or name in ENCODERS.names() or name in networks():
            specs.append(piece)
        else:
            specs[-1] += JOIN + piece
    return specs


def encoder_names() -> list[str]:
    """Return what ``--encoder`` takes: the names of encoders, then those of networks."""
    return [*ENCODERS.names(), *networks()]
