"""timm and open_clip, imported beside whatever build of torchvision is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

_OPERATORS: Final = ("nms", "qnms")
"""What torchvision's Python part expects its compiled part to have declared."""
_SCHEMA: Final = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[torch.library.Library] = []


def torch_library(name: str) -> Any:
    """Import a library that wants torchvision's Python part.

    The compiled part of torchvision loads only beside the build of torch that it was made for; a CPU build of torch
    beside a torchvision for GPUs, as package indexes give them, is a common pair that does not fit, and importing
    torchvision then fails for operators that nobody declared. They find boxes of objects; no encoder runs them. So
    they are declared here, without a body, and the import goes through.

    Raises
    ------
    ImportError
        If the library or torchvision is not installed.
    """
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        _declare_operators()
        import_module("torchvision")
    return import_module(name)


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        library.define(operator + _SCHEMA)
    _declared.append(library)  # its declarations end with it
