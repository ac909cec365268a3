"""Choose torch's device on this machine."""

from __future__ import annotations

import torch

from visterm.core.errors import UserError


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
