"""Import torch's libraries and choose its device on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

from visterm.core.errors import UserError

_OPERATORS: Final = ("nms", "qnms")  # Operators that torchvision's Python part expects to be declared
_SCHEMA: Final = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[torch.library.Library] = []


def torch_library(name: str) -> Any:
    """Import a library that needs torchvision's Python part.

    The compiled part of torchvision loads only with the build of torch that it was made for. Package indexes often
    combine a CPU build of torch with a torchvision for GPUs; importing torchvision then fails because operators are not
    declared. They find boxes of objects, and no encoder uses them, so they are declared here without a body and the
    import succeeds. Raises ImportError if the library or torchvision is not installed.
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
    _declared.append(library)  # keeps the declarations alive


def torch_device(name: str) -> torch.device:
    """Return a device by name; "auto" is a GPU if available. Raises UserError if torch cannot use the device here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        problem = f"device is {name!r}, and torch {torch.__version__} cannot use that here: {reason}."
        raise UserError(problem, setting="device", value=name, advice="Use 'auto' or 'cpu'.") from error
    return device
