"""The command line: parse options, call the library, print results; errors become one line and exit code 2."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from visterm.cli.command_line import Command, in_lines, main

_NAMES = {"options": "Json", "output": "Bars emit say table"}
"""Module -> more names that commands of other packages may use (docs/add_a_model.md)."""

__all__ = ["Command", "in_lines", "main"]


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `visterm --help` starts faster."""
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"visterm.cli.{module}"), name)
    raise AttributeError(f"module 'visterm.cli' has no attribute '{name}'")
