"""Import libraries that need torchvision, whichever build of torch it was made for; importing this needs torch."""

from __future__ import annotations

from importlib import import_module

import torch

DECLARED = []


def torch_library(name):
    """Import a library after torchvision, whose operators are declared without a body if it is of another build."""
    try:
        import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        DECLARED.append(library)  # keeps the declarations alive
        import_module("torchvision")
    return import_module(name)
