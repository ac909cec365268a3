"""Where networks run: telling the parts that have one which device is asked for, and saying so where none has."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from visterm.core.errors import UserError
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.named import DEFAULT_ENCODER
from visterm.tagging.parts import DEFAULT_MODEL

SETTING = "device"


def with_device(
    device: str,
    *,
    model: str | None,
    encoder: str | None,
    model_params: Mapping[str, Any],
    encoder_params: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Add a device to the settings of the model and of the encoder, as far as they have one.

    Parameters
    ----------
    device : str
        As torch names it: "cpu", "cuda", "cuda:1"; or "auto".
    model, encoder : str or None
        What users type; None is the default.
    model_params, encoder_params : mapping
        Their settings so far.

    Returns
    -------
    tuple of two dict
        The settings of both, with the device.

    Raises
    ------
    UserError
        If neither has such a setting, it is given already, or there is no such device here.
    """
    model, encoder = model or DEFAULT_MODEL, (encoder or DEFAULT_ENCODER).partition(":")[0]
    told = {
        "--set": _has_device(MODELS.load(model)),
        "--encoder-set": _has_device(ENCODERS.load(encoder)),
    }
    if not any(told.values()):
        raise UserError(
            f"Neither the model '{model}' nor the encoder '{encoder}' runs a network of torch, so there is no device "
            "to choose. Leave --device out."
        )
    found = []
    for option, params in (("--set", model_params), ("--encoder-set", encoder_params)):
        if told[option] and SETTING in params:
            raise UserError(f"The device is given twice: by --device and by {option} device. Leave one out.")
        found.append({**params, SETTING: device} if told[option] else dict(params))
    check_device(device)
    return found[0], found[1]


def move_encoder(encoder: Any, device: str) -> None:
    """Let the networks of a fitted encoder, or of those inside it, run on another device from now on.

    Raises
    ------
    UserError
        If it has none, or there is no such device here.
    """
    parts = [part for part in (encoder, *getattr(encoder, "parts_", ())) if SETTING in part.get_params(deep=False)]
    if not parts:
        raise UserError(
            f"The encoder '{ENCODERS.name_of(encoder)}' of this run has no network of torch, and models that are "
            "trained score without one, so there is no device to choose. Leave --device out."
        )
    check_device(device)
    for part in parts:
        part.set_params(**{SETTING: device})


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use here, before anything is read.

    Raises
    ------
    UserError
        If so.
    """
    if device not in ("auto", "cpu"):  # which need not load torch
        from visterm.encoders.torch_network import torch_device

        torch_device(device)


def _has_device(part: type) -> bool:
    return SETTING in signature(part).parameters
