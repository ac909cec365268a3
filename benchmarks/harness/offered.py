"""What the product offers: commands, their options, and the settings of its models and encoders."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from typer.main import get_command

from visterm.cli import command_line
from visterm.core.tables import ENCODERS, MODELS

NOT_COUNTED: Final = {"demo", "reproduce", "wordnet"}  # Commands of visterm-research
KEYS_THAT_COUNT: Final[dict[str, tuple[str, ...]]] = {"options": ("visterm.data.tag_rules:TagRules",), "settings": ()}
"""Collections of the keys that a file or an object takes in place of options or settings, or dataclasses of them, each
as "module:name"."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the name of each command of the product, a command of a group as "group command", and the command."""
    group: Any = get_command(command_line.app)
    context = group.make_context("visterm", [], resilient_parsing=True)
    for name in set(group.list_commands(context)) - NOT_COUNTED:
        command = group.resolve_command(context, [name])[1]
        members = getattr(command, "commands", None)
        yield from [(f"{name} {title}", each) for title, each in members.items()] if members else [(name, command)]


def options() -> list[str]:
    """List the options of all commands, and the keys that stand for options."""
    typed = [
        f"{name} {max(option.opts, key=len)}"
        for name, command in commands()
        for option in command.params
        if option.param_type_name == "option"
    ]
    return typed + _keys("options")


def settings() -> list[str]:
    """List the settings of the product's models and encoders, and the keys that stand for settings."""
    registered = [entry for registry in (MODELS, ENCODERS) for entry in registry]
    own = [entry for entry in registered if entry.target.startswith("visterm.")]
    return [f"{entry.name} {name}" for entry in own for name in entry.load()._get_param_names()] + _keys("settings")


def _keys(kind: str) -> list[str]:
    names = []
    for target in KEYS_THAT_COUNT[kind]:
        module, _, name = target.partition(":")
        keys = getattr(import_module(module), name)
        names += [f"{name}: {key}" for key in getattr(keys, "__dataclass_fields__", keys)]
    return names
