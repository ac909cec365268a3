"""A pair of towers of open_clip by name, with the weights of a file: for photos, and for words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from visterm.core.errors import StorageError, UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.encoders import Preparation
from visterm_research.encoders.torch_libraries import torch_library
from visterm_research.encoders.torch_network import TorchNetwork
from visterm_research.encoders.torch_weights import cached_file, offline, reading_weights

open_clip = torch_library("open_clip")

HUB_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
"""The names of weights in the hub repositories of open_clip."""
_PREPARING = ("mean", "std", "interpolation", "resize_mode")


class HubFile(NamedTuple):
    """Where weights lie on the hub: the repository, and the names that their file may have."""

    repo: str
    names: tuple[str, ...]


def open_clip_name(name: str) -> str:
    """Check the name of a pair of towers; a slash is read as a dash (``ViT-B/32``).

    Raises UnknownNameError if open_clip has none of that name.
    """
    known = open_clip.list_models()
    cleaned = name.replace("/", "-")
    if cleaned not in known:
        raise UnknownNameError(unknown("open_clip network", name, known))
    return cleaned


def known_weights(name: str) -> list[str]:
    """List the names of the weights that open_clip knows for a pair of towers."""
    tags: list[str] = open_clip.list_pretrained_tags_by_model(name)
    return tags


def weights_config(name: str, trained: str) -> dict[str, Any]:
    """Return what open_clip knows of weights: ``hf_hub``, ``mean``, ``std``, ``interpolation``, ``resize_mode``.

    Raises UnknownNameError if it knows none of that name for these towers; UserError if they are of towers with another
    activation.
    """
    if trained not in known_weights(name):
        raise UnknownNameError(unknown(f"weights of open_clip's '{name}'", trained, known_weights(name)))
    config: dict[str, Any] = open_clip.get_pretrained_cfg(name, trained)
    quick = bool(config.get("quick_gelu"))
    if quick != bool(open_clip.get_model_config(name).get("quick_gelu")):
        other = f"{name}-quickgelu" if quick else name.removesuffix("-quickgelu")
        raise UserError(f"The weights '{trained}' are not of open_clip's '{name}', but of '{other}': name that one.")
    return config


def hub_file(config: dict[str, Any]) -> HubFile | None:
    """Return where weights lie on the hub; None where open_clip names no place there."""
    if not config.get("hf_hub"):
        return None
    repo, _, file = config["hf_hub"].rpartition("/")
    return HubFile(repo, (file,) if file else HUB_FILES)


def cached_weights(config: dict[str, Any]) -> str | None:
    """Return the place of weights in the hub's cache on this machine; None if they are not there."""
    place = hub_file(config)
    return None if place is None else cached_file(place.repo, place.names)


def open_clip_preparation(name: str, trained: str | None, size: Any) -> Preparation:
    """Return how photos were prepared for a tower: as for the weights named, or as for all that are known.

    Raises UserError if the weights known were trained on differently prepared photos, and none is named.
    """
    tags = [trained] if trained else known_weights(name)
    configs = [open_clip.get_pretrained_cfg(name, tag) for tag in tags]
    preparing = {tuple((key, _hashable(config.get(key))) for key in _PREPARING) for config in configs}
    if len(preparing) > 1:
        raise UserError(
            f"Weights of open_clip's '{name}' were trained on differently prepared photos. Say which yours are: "
            f"pretrained= one of {', '.join(tags)}."
        )
    known = {key: value for key, value in (preparing.pop() if preparing else ()) if value is not None}
    config = {**vars(open_clip.transform.PreprocessCfg()), **known}
    crop = 1.0 if config["resize_mode"] == "shortest" else None
    shared = {name: config[name] for name in ("mean", "std", "interpolation")}
    return Preparation(size=(size, size) if isinstance(size, int) else tuple(size), crop=crop, **shared)


class OpenClipNetwork(TorchNetwork):
    """Both towers of a network that open_clip lists as `name`, opened: photos in, or texts.

    `path` has the weights of both; their name, `trained`, says how photos are prepared. Raises StorageError if the file
    does not hold the weights of these towers.
    """

    def __init__(self, name: str, path: str, *, trained: str | None, device: str) -> None:
        self.name = name
        with reading_weights(path, f"open_clip's '{name}'"), _root_logger_as_it_was():
            model = open_clip.create_model(name, pretrained=path, pretrained_text=False, weights_only=True)
        preparation = open_clip_preparation(name, trained, model.visual.image_size)
        what = f"The image tower of open_clip's '{name}'"
        super().__init__(model, preparation, device=device, what=what, tower=model.encode_image)

    def text_rows(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the text tower's row of each text, not normalised: (n, n_features)."""
        if not hasattr(self, "_tokens"):
            self._tokens = _tokenizer(self.name)
        model: Any = self.module
        return self.run(model.encode_text, self._tokens(texts).numpy())


def _tokenizer(name: str) -> Callable[[list[str]], torch.Tensor]:
    """Open the tokenizer of a text tower, from this machine only."""
    try:
        with offline(), _root_logger_as_it_was():
            tokenizer: Callable[[list[str]], torch.Tensor] = open_clip.get_tokenizer(name)
    except (ImportError, OSError, RuntimeError, ValueError, AssertionError, TypeError) as error:
        repo = open_clip.get_model_config(name)["text_cfg"].get("hf_tokenizer_name", "")
        raise StorageError(
            f"open_clip's '{name}' needs the tokenizer {repo}, which cannot be opened, and visterm downloads nothing: "
            f"{' '.join(str(error).split())[:200].rstrip('.')}. "
            f"Get it with: hf download {repo} (and: pip install transformers)."
        ) from error
    return tokenizer


@contextmanager
def _root_logger_as_it_was() -> Iterator[None]:
    """Remove the handler that open_clip adds to the root logger by logging to it."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        yield
    finally:
        for handler in [each for each in root.handlers if each not in before]:
            root.removeHandler(handler)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
