"""Commands of other packages, found by the entry-point group `visterm.commands` and imported only when they run."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from typer import Typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from visterm.core.errors import MissingExtraError

GROUP: Final = "visterm.commands"
"""Each entry point names a `typer.Typer` that has one command."""


class PackageCommand(NamedTuple):
    """A command that a package of this project adds.

    Attributes
    ----------
    package : str
        What to install.
    summary : str
        One line for `visterm --help`, so that listing the commands imports no package.
    """

    package: str
    summary: str


PACKAGE_COMMANDS: Final = {
    "reproduce": PackageCommand(
        "visterm-research",
        "Run a paper's comparison again: settings chosen on validation rows, test rows touched once.",
    ),
}


class CommandGroup(TyperGroup):
    """The commands of visterm, then those of installed packages; a command of visterm's own comes first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        own = super().list_commands(ctx)
        return [*own, *sorted(set(_installed()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; one of another package as a name and a line of help, without importing the package."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (installed := _installed()):
            return own
        known = PACKAGE_COMMANDS.get(cmd_name)
        summary = known.summary if known else f"From {installed[cmd_name].module.partition('.')[0]}."
        return TyperCommand(cmd_name, help=summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, imported now if another package has it.

        Raises
        ------
        MissingExtraError
            If the package that has the command is not installed.
        """
        name = args[0]
        if super().get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        point = _installed().get(name)
        if point is not None:
            app: Typer = point.load()
            return name, get_command(app), args[1:]
        if name in PACKAGE_COMMANDS:
            package = PACKAGE_COMMANDS[name].package
            raise MissingExtraError(
                f"'visterm {name}' needs the package '{package}'. Install it with: pip install {package}"
            )
        for other in self.list_commands(ctx):  # so that "Did you mean" knows them all
            self.commands.setdefault(other, self.get_command(ctx, other))
        return super().resolve_command(ctx, args)


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
