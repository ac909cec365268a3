"""Import torch's libraries and choose its device on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

from visterm.core.errors import UserError

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


def torch_device(name: str) -> torch.device:
    """Return a device by name; "auto" is a GPU if available. Raises UserError if torch cannot use the device."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        problem = f"device is {name!r}, and torch {torch.__version__} cannot use this device on this machine: {reason}."
        raise UserError(problem, setting="device", value=name, advice="Use 'auto' or 'cpu'.") from error
    return device
