"""A network of timm by name, with the weights of a file and without its classes."""

from __future__ import annotations

from math import floor
from typing import Any

import torch

from visterm.core.errors import UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.encoders.hub_cache import cached_file
from visterm.encoders.preparation import Preparation
from visterm.encoders.torch_libraries import torch_library
from visterm.encoders.torch_weights import reading_weights

timm = torch_library("timm")

HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""The names of weights in timm's hub repositories."""


def timm_config(name: str) -> Any:
    """Return what timm knows of a network: ``hf_hub_id``, ``input_size``, ``mean``, ``crop_pct`` and more.

    Raises
    ------
    UnknownNameError
        If timm has no such network, or no such weights of it (what stands after a dot).
    """
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise UnknownNameError(unknown("timm network", name, timm.list_models()))
    known = {each.partition(".")[2] for each in timm.list_pretrained(f"{architecture}.*")}
    if tag and tag not in known:
        raise UnknownNameError(unknown(f"weights of timm's '{architecture}'", tag, sorted(known)))
    return timm.get_pretrained_cfg(name, allow_unregistered=False)


def cached_weights(config: Any) -> str | None:
    """Find the weights of a network of timm in the hub's cache on this machine; None if they are not there."""
    return cached_file(config.hf_hub_id, HUB_FILES) if config.hf_hub_id else None


def timm_preparation(config: Any, size: tuple[int, int] | None) -> Preparation:
    """Return how a network of timm was evaluated, at its own size or another.

    Where timm would pad photos, nothing is added: with ``crop_mode="border"`` they are squeezed, and with a
    ``crop_pct`` above 1 they are shown up to their edges.
    """
    channels, height, width = config.input_size
    if channels != 3:
        raise UserError(f"This network of timm takes images of {channels} channels; expected 3: red, green and blue.")
    height, width = size or (height, width)
    cuts = config.crop_mode in (None, "center")
    return Preparation(
        size=(height, width),
        mean=config.mean,
        std=config.std,
        interpolation=config.interpolation,
        crop=min(1.0, height / floor(height / config.crop_pct)) if cuts else None,
    )


def open_timm(name: str, path: str, size: tuple[int, int] | None) -> torch.nn.Module:
    """Build a network, load all its weights, and take its classes off.

    Parameters
    ----------
    name : str
        As timm lists it.
    path : str
        A ``.safetensors`` file, or one of torch, of which only weights are read.
    size : tuple of int or None
        Height and width, where they are not the network's own.

    Raises
    ------
    StorageError
        If the file is not one of weights, or they are not this network's.
    """
    config = timm_config(name)
    built: dict[str, Any] = {}
    if size is not None and config.fixed_input_size:
        built["img_size"] = size
    with reading_weights(path, f"timm's '{name}'"):
        weights = timm.models.load_state_dict(path, weights_only=True)
        return _without_classes(_loaded(name, weights, _n_classes(config, weights), built))


def _n_classes(config: Any, weights: dict[str, torch.Tensor]) -> list[int]:
    """Return the number of classes that weights were trained for; where they do not say, those to try."""
    heads = [config.classifier] if isinstance(config.classifier, str) else list(config.classifier or ())
    found = [len(weights[f"{head}.weight"]) for head in heads if f"{head}.weight" in weights]
    return found[:1] or [config.num_classes, 0]


def _loaded(name: str, weights: dict[str, torch.Tensor], n_classes: list[int], built: dict[str, Any]) -> Any:
    """Load through timm, which knows the older forms of its weights; every weight must find its place."""
    errors: list[RuntimeError] = []
    for n in n_classes:
        overlay = {"state_dict": weights, "num_classes": n, "label_offset": 0}
        try:
            return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=n, **built)
        except RuntimeError as error:
            errors.append(error)
    raise errors[0]


def _without_classes(model: Any) -> torch.nn.Module:
    model.pretrained_cfg.pop("state_dict", None)  # a second copy of all weights
    model.reset_classifier(0)
    network: torch.nn.Module = model
    return network
