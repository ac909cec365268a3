"""How commands are found, parsed and explained: those of other packages, words that begin with ``-``, help panels."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
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


COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "fit": ("fit", "Learn a library's tags from photos that have them, and write a run."),
    "tune": ("tune", "Try settings of a model on held-out photos, and fit the best on all."),
    "encode": (
        "encode",
        "Encode a folder of photos once, into a features folder that other commands take instead of photos.",
    ),
    "annotate": ("annotate", "Tag photos: print the best tags of each, with their scores and confidences."),
    "pair": ("relations", "Tag a picture of an object together with a picture of its part."),
    "explain": ("explain", "Show how much each feature and each place of a photo adds to a tag's score."),
    "evaluate": (
        "evaluate",
        "Measure a run on photos with known tags that it has not learned from, or compare several runs.",
    ),
    "index": ("index", "Put photos into a catalogue, so that you can search them by words."),
    "search": ("search", "Find photos by words or by another photo, best first, among those that pass all filters."),
    "union": ("index", "Join several catalogues, so that `visterm search` finds photos of all of them."),
    "serve": ("serve", "Serve a catalogue: a page to search, tag and review, and an API for programs (/api/v1/docs)."),
    "duplicates": (
        "duplicates",
        "Group pictures that look the same, the one to keep first. visterm never deletes a picture.",
    ),
    "export": ("export", "Write people's tags and confident predictions where other programs find them."),
    "neighbours": ("tags", "Show the tags that are most similar to a tag, by the cosine of their vectors."),
    "tags": ("tags", "List the tags of a run with their numbers of photos and aliases, suggest aliases, or add words."),
    "relations": (
        "relations",
        "Show which tags a run predicts to be parts of which, without the known relations, best first.",
    ),
    "info": ("info", "Show what is in a run, a catalogue or a features folder."),
    "models": ("lists", "List the models."),
    "encoders": ("lists", "List the encoders, which turn photos into features."),
    "metrics": ("lists", "List the metrics of `visterm evaluate`."),
    "demo": ("lists", "Draw a small photo library, learn its tags, tag and search new pictures, and write a report."),
}
"""The file of each command, and the first paragraph of its docstring: listing the commands imports none of them."""


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
        return [*COMMANDS, *sorted(set(_installed()) - set(COMMANDS))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command as a name and what it is for, without importing it; None if there is none."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])
        installed = _installed()
        if cmd_name not in installed:
            return None
        known = PACKAGE_COMMANDS.get(cmd_name)
        summary = known.summary if known else f"From {installed[cmd_name].partition(':')[0].partition('.')[0]}."
        return TyperCommand(cmd_name, help=summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, imported now if another package has it.

        Raises
        ------
        MissingExtraError
            If the package that has the command is not installed.
        """
        name = args[0]
        if name in COMMANDS:
            return name, own_command(name), args[1:]
        if name in (installed := _installed()):
            module, _, attribute = installed[name].partition(":")
            app: Typer = getattr(import_module(module), attribute)
            return name, get_command(app), args[1:]
        if name in PACKAGE_COMMANDS:
            package = PACKAGE_COMMANDS[name].package
            raise MissingExtraError(
                f"'visterm {name}' needs the package '{package}'. Install it with: pip install {package}"
            )
        self.commands = {other: self.get_command(ctx, other) for other in self.list_commands(ctx)}
        return super().resolve_command(ctx, args)  # an error, whose "Did you mean" knows them all


def own_command(name: str) -> Any:
    """Import a command of visterm's own."""
    module = import_module(f"visterm.cli.{COMMANDS[name][0]}")
    examples: Any = getattr(module, f"{name.upper()}_EXAMPLES", None) or getattr(module, "EXAMPLES", ())
    kind = {"fit": LongCommand, "tune": LongCommand, "search": WordsCommand}.get(name, Command)
    app = Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name, epilog=in_lines(examples), cls=kind)(getattr(module, name))
    return get_command(app)


def _installed() -> dict[str, str]:
    """Return the commands of installed packages, each as "module:attribute".

    `importlib.metadata` reads the same files, but takes as long to import as half of typer.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for file in Path(folder).glob("*-info/entry_points.txt"):
            lines = file.read_text(encoding="utf-8").partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines()
            named = (line.partition("=") for line in lines if "=" in line)
            found.update((name.strip(), target.strip()) for name, _, target in named if name.strip() not in found)
    return found


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
