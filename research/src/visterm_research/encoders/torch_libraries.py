"""Import libraries that need torchvision, whichever build of torch it was made for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

_BOX_OPERATORS: Final = ("nms", "qnms")  # Operators that torchvision's Python part expects to be declared
_BOX_SCHEMA: Final = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared_libraries: list[torch.library.Library] = []


def torch_library(name: str) -> Any:
    """Import a library that needs torchvision's Python part.

    The compiled part of torchvision loads only with the build of torch that it was made for. Package indexes often
    combine a CPU build of torch with a torchvision for GPUs; importing torchvision then fails because operators are not
    declared. These operators find boxes of objects, and no encoder uses them; declaring them without a body makes the
    import succeed. Raises ImportError if the library or torchvision is not installed.
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
    for operator in _BOX_OPERATORS:
        library.define(operator + _BOX_SCHEMA)
    _declared_libraries.append(library)  # keeps the declarations alive
