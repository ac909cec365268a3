"""How commands are found, parsed and explained: those of other packages, words that begin with ``-``, help panels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple, TypeAlias

from typer import Typer, echo
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from visterm.core.errors import MissingExtraError
from visterm.core.object_stores import only_named_stores

GROUP: Final = "visterm.commands"
"""Each entry point names a `typer.Typer` that has one command."""


PANELS: Final = (
    "Arguments", "Input", "Search", "Which images", "Which tags", "Model", "Cleaning", "Relations", "Measures",
    "Output", "Scale",
)  # fmt: skip
"""In this order; any other comes after them."""

WIDTH: Final = 100
"""Columns of a help text, at most."""

COMMON: Final = {
    "images", "out", "catalogue", "tags", "encoder", "encoder_set", "model", "set_", "budget", "min_count", "jobs",
    "ray", "json", "verbose", "grid", "random", "metric",
}  # fmt: skip
"""Parameters of a `LongCommand` that its ``--help`` lists; ``--help-all`` lists all."""


Examples: TypeAlias = Sequence[tuple[str, str]]
"""Commands, and what each does."""


def in_lines(examples: Examples) -> str | None:
    """Write examples for the end of a help text, one per line with what it does, in columns if they fit."""
    if not examples:
        return None
    width = max(len(command) for command, _ in examples)
    if width + max(len(what) for _, what in examples) + 6 > WIDTH:
        width = 0
    return "\n".join(["Examples:", *(f"  {command:{width}}  # {what}" for command, what in examples)])


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
        "Run a paper's comparison again: settings chosen on validation rows, test rows evaluated once.",
    ),
}


class PlainEpilog:
    """Writes the examples at the end of a help text as they are."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one per line."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"{self.epilog}\n")


class CommandLine(PlainEpilog, TyperGroup):
    """The commands of visterm, then those of installed packages, which are imported only when they run.

    A command of visterm's own comes first. While one runs, only object stores that its words name are opened.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the stores, then parse."""
        ctx.with_resource(only_named_stores(args))
        return super().parse_args(ctx, args)

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
        own = dict(self.commands)
        self.commands = own | {other: self.get_command(ctx, other) for other in self.list_commands(ctx)}
        try:
            return super().resolve_command(ctx, args)  # an error, whose "Did you mean" knows them all
        finally:
            self.commands = own


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


class Command(PlainEpilog, TyperCommand):
    """A command whose help lists options in panels, as plain text: ``Input:``, ``Model:``, and so on."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the panels."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS}
        for param in self.listed(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                plain = "Arguments" if param.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(param, "rich_help_panel", None) or plain, []).append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def listed(self, ctx: Any) -> list[Any]:
        """Return the parameters that the help lists: all but ``--help``."""
        return [param for param in self.get_params(ctx) if param.name != "help"]


class LongCommand(Command):
    """A command with many options: ``--help`` lists the common ones, ``--help-all`` all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the whole help for ``--help-all``, else parse."""
        if "--help-all" in args:
            ctx.meta[f"{__name__}.all"] = True
            echo(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def listed(self, ctx: Any) -> list[Any]:
        """Return the common parameters, or all for ``--help-all``."""
        params = super().listed(ctx)
        return params if ctx.meta.get(f"{__name__}.all") else [param for param in params if param.name in COMMON]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels, and how to see the rest."""
        super().format_options(ctx, formatter)
        if not ctx.meta.get(f"{__name__}.all"):
            formatter.write_paragraph()
            formatter.write("--help-all lists all options.\n")


class WordsCommand(Command):
    """A command that takes ``-word`` for an argument; ``--name`` and ``-x`` are options, and unknown ones errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the words behind all options before these are read."""
        takes_value = {
            name: not getattr(param, "is_flag", False)
            for param in self.params
            if param.param_type_name == "option"
            for name in (*param.opts, *param.secondary_opts)
        }
        return super().parse_args(ctx, words_last(args, takes_value, set(self.get_help_option_names(ctx))))


def words_last(args: Sequence[str], takes_value: Mapping[str, bool], others: Collection[str] = ()) -> list[str]:
    """Put what begins with ``-`` and is a word behind a ``--``.

    Parameters
    ----------
    args : sequence of str
        As typed.
    takes_value : mapping of str to bool
        The options, and whether a value follows.
    others : collection of str
        Options without a value beside these.
    """
    options: list[str] = []
    words: list[str] = []
    waiting = list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            return [*options, "--", *words, *waiting]
        number = arg[2:].isdigit() and takes_value.get(arg[:2], False)  # -k5
        known = arg in takes_value or arg in others or number
        if len(arg) > 2 and arg[0] == "-" and arg[1] != "-" and not known:
            words.append(arg)
            continue
        options.append(arg)
        if takes_value.get(arg, False):
            if not waiting:
                return options  # the error is then that the value is missing
            options.append(waiting.pop(0))
    return [*options, "--", *words] if words else options
