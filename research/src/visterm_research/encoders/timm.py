"""Pooled features of any network of timm, by name, with weights from a file on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import floor
from typing import Any

import torch

from visterm.core.errors import UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.core.types import RandomState
from visterm.encoders import Preparation, as_size
from visterm_research.encoders.torch_libraries import torch_library
from visterm_research.encoders.torch_network import TorchEncoder, TorchNetwork
from visterm_research.encoders.torch_weights import cached_file, reading_weights

timm = torch_library("timm")

HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # The names of weights in timm's hub repositories


@dataclass(kw_only=True, eq=False, repr=False)
class Timm(TorchEncoder):
    """Feature rows from a network of timm, as it pools them before its classes.

    Pictures are prepared (size, colours, filter, crop) as timm says for the network. Rows are made as by `Onnx`.
    Nothing is downloaded: without `weights`, the file is taken from the hub's cache on this machine if it is there,
    and else the error says what to get.

    Parameters
    ----------
    network : str
        As timm lists it: ``"resnet18"``, or with the name of its weights, ``"resnet18.a1_in1k"``.
    weights : path-like, optional
        The file of the network's weights, ``.safetensors`` or of torch. Of torch's only weights are read: a file that
        holds anything else is refused, not run.
    views : {"three", "whole", "centre", "trained"}
        What of a photo is shown, as by `Onnx`; "trained" is what timm shows when it evaluates the network.
    root, centre, normalise : bool
        As of `Onnx`.
    size : int or tuple of int, optional
        Side of the pictures, or height and width. None: what timm says. Larger pictures take longer.
    device : str
        "auto": a GPU if there is one; "cpu", "cuda", "cuda:1", "mps". It does not change rows beyond rounding.
    batch_size : int
        Photos held in memory at a time, and on a GPU shown at once.
    random_state, n_jobs
        As of `Onnx`. The same bytes for any number of threads.

    Attributes
    ----------
    centre_, rooted_, network_sha256_, network_path_
        As of `Onnx`; the file is that of the weights.
    """

    argument = "network"
    file_parameter = "weights"
    speed_params = ("n_jobs", "batch_size", "device")

    network: str | None = None
    weights: str | os.PathLike[str] | None = None
    views: str = "three"
    root: bool = True
    centre: bool = True
    normalise: bool = True
    size: int | tuple[int, int] | None = None
    device: str = "auto"
    random_state: RandomState = 0
    batch_size: int = 32
    n_jobs: int | None = None

    def _configured_path(self) -> str | None:
        if self.weights is not None:
            return os.fspath(self.weights)
        return None if self.network is None else cached_weights(timm_config(self.network))

    def _path_error(self) -> UserError:
        repo = timm_config(self._network_name()).hf_hub_id
        get = f"hf download {repo} {HUB_FILES[0]}" if repo else "timm names none for it, so give your own"
        return UserError(
            f"The timm network '{self.network}' needs its weights, and visterm downloads nothing: {get}. On this "
            "machine visterm then finds them; for a file from elsewhere pass --encoder-set weights=PATH."
        )

    def _network_name(self) -> str:
        if self.network is None:
            raise UserError("The timm encoder needs the name of a network: --encoder timm:resnet18, or network=...")
        return self.network

    def _open_file(self, path: str) -> TorchNetwork:
        name = self._network_name()
        size = None if self.size is None else as_size(self.size)
        preparation = timm_preparation(timm_config(name), size)
        what = f"The output of timm's '{name}'"
        return TorchNetwork(open_timm(name, path, size), preparation, device=self.device, what=what)


def timm_config(name: str) -> Any:
    """Return what timm knows of a network: ``hf_hub_id``, ``input_size``, ``mean``, ``crop_pct`` and more.

    Raises UnknownNameError if timm has no such network, or no such weights of it (what stands after a dot).
    """
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise UnknownNameError(unknown("timm network", name, timm.list_models()))
    known = {each.partition(".")[2] for each in timm.list_pretrained(f"{architecture}.*")}
    if tag and tag not in known:
        raise UnknownNameError(unknown(f"weights of timm's '{architecture}'", tag, sorted(known)))
    return timm.get_pretrained_cfg(name, allow_unregistered=False)


def cached_weights(config: Any) -> str | None:
    """Return the place of a network's weights in the hub's cache on this machine; None if they are not there."""
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
    """Build the network that timm lists as `name`, load all its weights, and take its classes off.

    `path` is a ``.safetensors`` file, or one of torch, of which only weights are read; `size`, height and width, is
    None for the network's own. Raises StorageError if the file is not one of weights, or they are not this network's.
    """
    config = timm_config(name)
    built: dict[str, Any] = {"img_size": size} if size is not None and config.fixed_input_size else {}
    with reading_weights(path, f"timm's '{name}'"):
        weights = timm.models.load_state_dict(path, weights_only=True)
        model = _loaded(name, weights, config, built)
        model.pretrained_cfg.pop("state_dict", None)  # a second copy of all weights
        model.reset_classifier(0)
    return model


def _loaded(name: str, weights: dict[str, torch.Tensor], config: Any, built: dict[str, Any]) -> Any:
    """Load through timm, which knows the older forms of its weights; every weight must find its place."""
    heads = [config.classifier] if isinstance(config.classifier, str) else list(config.classifier or ())
    n_classes = [len(weights[f"{head}.weight"]) for head in heads if f"{head}.weight" in weights][:1]
    errors: list[RuntimeError] = []
    for n in n_classes or [config.num_classes, 0]:
        overlay = {"state_dict": weights, "num_classes": n, "label_offset": 0}
        try:
            return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=n, **built)
        except RuntimeError as error:
            errors.append(error)
    raise errors[0]
