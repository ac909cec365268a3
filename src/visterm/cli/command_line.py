"""How commands are found, parsed and explained: those of other packages, words that begin with ``-``, help panels."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from typer import Exit, Option, Typer, echo
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from visterm.core.errors import MissingExtraError, VistermError

_LEAST: Final = re.compile(r"; x>=\d+(?=\])|\s*\[x>=\d+\]")  # A least value, which the text says where it isn't plain
GROUP: Final = "visterm.commands"  # Each entry point names a `typer.Typer` that has one command
PANELS: Final = (
    "Arguments", "Input", "Search", "Which photos", "Which tags", "Model", "Measures", "Output", "Scale",
)  # fmt: skip
"""In this order; any other comes after them."""

WIDTH: Final = 100  # Columns of a help text, at most
METAVARS: Final = {
    "set_": "NAME=VALUE", "encoder_set": "NAME=VALUE", "grid": "NAME=VALUES", "model": "NAME", "encoder": "NAME",
    "metric": "NAME", "tags": "SOURCE", "tag_file": "SOURCE", "tag": "TAG", "add": "TAG", "remove": "TAG",
    "from_": "DATE", "to": "DATE", "like": "PHOTO", "folder": "FOLDER", "keep": "RULE",
}  # fmt: skip
"""What stands for the value of some options in help texts; of others it follows from their type."""

Examples: TypeAlias = Sequence[tuple[str, str]]  # Commands, and what each does


def in_lines(examples: Examples) -> str | None:
    """Write examples for the end of a help text, one per line with what it does, in columns if they fit."""
    if not examples:
        return None
    width = max(len(command) for command, _ in examples)
    if width + max(len(what) for _, what in examples) + 6 > WIDTH:
        width = 0
    return "\n".join(["Examples:", *(f"  {command:{width}}  # {what}" for command, what in examples)])


PANELS_OF_COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Learn": {
        "fit": ("fit", "Learn tags from photos that have them."),
        "tune": ("fit", "Try settings of a model, and learn with the best ones."),
        "evaluate": ("evaluate", "Measure how well a run tags photos, or compare runs."),
        "encode": ("annotate", "Compute the features of photos once, to use them again."),
    },
    "Tag photos": {
        "annotate": ("annotate", "Tag photos, and say how likely each tag is right."),
        "explain": ("annotate", "Show which places in a photo a tag comes from."),
        "export": ("export", "Write tags where other programs find them."),
    },
    "Search": {
        "index": ("index", "Put photos into a catalogue, to search them by words."),
        "search": ("search", "Find photos by words, a similar photo, or filters."),
        "tag": ("tag", "Tag photos of a catalogue by hand, or show their tags."),
        "judge": ("tag", "Judge which suggested tags are right."),
        "watch": ("index", "Keep a catalogue up to date while photos come and go."),
        "use": ("fit", "Search a catalogue with another of its runs, or list them."),
        "duplicates": ("cleaning", "Find photos that look the same; nothing is deleted."),
        "map": ("index", "Draw a map of the photos, alike ones close together."),
        "mistakes": ("cleaning", "List tags that are probably wrong or missing."),
        "serve": ("serve", "Serve a catalogue as a web page and an API."),
    },
    "Other programs": {
        "connect": ("connect", "Make a catalogue of a library in Immich or PhotoPrism."),
        "push": ("export", "Share a run on the Hugging Face hub."),
        "sync": ("connect", "Follow a connected library, and write predictions there."),
    },
    "Look inside": {
        "info": ("info", "Show what is in a run, a catalogue or a features folder."),
        "tags": ("tags", "List the tags of a run, suggest aliases, or add words."),
    },
    "Lists": {
        "models": ("info", "List the models."),
        "encoders": ("info", "List the encoders, which turn photos into features."),
        "metrics": ("info", "List the metrics of `visterm evaluate`."),
    },
}
"""The file of each command, and the first paragraph of its docstring: listing the commands imports none of them."""

COMMANDS: Final = {name: entry for panel in PANELS_OF_COMMANDS.values() for name, entry in panel.items()}


RESEARCH: Final = "visterm-research"
PACKAGE_COMMANDS: Final = {
    "demo": "Draw a small photo library, and try everything on it.",
    "reproduce": "Run a paper's comparison again.",
}
"""Commands that the package `RESEARCH` adds, with a line for `visterm --help`: listing the commands imports none."""


class PlainEpilog:
    """Writes the examples at the end of a help text as they are."""

    epilog: str | None
    examples: Examples = ()

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one per line."""
        if text := self.epilog or in_lines(self.examples):
            formatter.write_paragraph()
            formatter.write(f"{text}\n")


class CommandLine(PlainEpilog, TyperGroup):
    """The commands of visterm, then those of installed packages, which are imported only when they run.

    A command of visterm's own comes first.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*COMMANDS, *sorted(set(_installed()) - set(COMMANDS))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command as a name and what it is for, without importing it; None if there is none."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])
        target = _installed().get(cmd_name)
        if target is None:
            return None
        return TyperCommand(cmd_name, help=PACKAGE_COMMANDS.get(cmd_name, f"From {re.split('[.:]', target)[0]}."))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for, then those of packages."""
        names = self.list_commands(ctx)
        others = [name for name in names if name not in COMMANDS]
        width = max(map(len, names))
        for title, panel in {**PANELS_OF_COMMANDS, "Other packages": others}.items():
            if panel:
                with formatter.section(title):
                    formatter.write_dl([(f"{name:{width}}", self.get_command(ctx, name).help) for name in panel])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, imported now, with what stands for the values of its options and arguments.

        Raises MissingExtraError if the package that has the command is not installed.
        """
        name = args[0]
        if name in COMMANDS:
            module: Any = import_module(f"visterm.cli.{COMMANDS[name][0]}")
            kind = WordsCommand if name == "search" else Command
            app = Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            function = name.replace("-", "_")
            app.command(name, cls=kind)(getattr(module, function))
            command: Any = get_command(app)
            command.examples = getattr(module, f"{function.upper()}_EXAMPLES", None) or getattr(module, "EXAMPLES", ())
        elif name in (installed := _installed()):
            target, _, attribute = installed[name].partition(":")
            command = get_command(getattr(import_module(target), attribute))
        elif name in PACKAGE_COMMANDS:
            raise MissingExtraError(
                f"'visterm {name}' needs the package '{RESEARCH}'. Install it with: pip install {RESEARCH}"
            )
        else:
            self.commands = {other: self.get_command(ctx, other) for other in self.list_commands(ctx)}
            return super().resolve_command(ctx, args)  # an error, whose "Did you mean" knows them all

        for param in command.params:  # ``PATH``, ``N``, ``IMAGES``
            if param.metavar is None and not getattr(param, "is_flag", False):
                kinds, described = {"int": "N", "float": "NUMBER", "path": "PATH"}, param.display_type(None).lower()
                usual = METAVARS.get(param.name, next((kinds[kind] for kind in kinds if kind in described), "TEXT"))
                param.metavar = param.name.upper() if param.param_type_name == "argument" else usual

        return name, command, args[1:]


def _installed() -> dict[str, str]:
    """Return the commands of packages as "module:attribute"; `importlib.metadata` takes too long to import for that."""
    commands: dict[str, str] = {}
    for folder in sys.path:
        for file in Path(folder).glob("*-info/entry_points.txt"):
            lines = file.read_text(encoding="utf-8").partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines()
            named = (line.partition("=") for line in lines if "=" in line)
            commands.update((name.strip(), target.strip()) for name, _, target in named if name.strip() not in commands)
    return commands


class Command(PlainEpilog, TyperCommand):
    """A command whose help lists options in panels, as plain text: ``Input:``, ``Model:``, and so on.

    Errors of visterm that it raises name parameters as they are typed: ``--min-count``, ``--set dim``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed, and check it."""
        with _as_typed(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _as_typed(ctx):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the pieces of the usage line: ``[OPTIONS]``, then ``RUN``, ``[WORDS]`` or ``IMAGES...``."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = f"{param.metavar}{'...' if param.nargs != 1 else ''}"
                pieces.append(name if param.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the panels."""
        for title, records in self.panels(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return what the help lists, by panel: each parameter as it is typed, and what it is for."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or param.name == "help":
                continue
            name, text = record[0], _LEAST.sub("", record[1]).replace("  [required]", "").replace("<=x<=", " to ")
            if param.param_type_name == "argument":
                panels["Arguments"].append((param.metavar or name, text))
            else:
                panels.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append((name, text))
        return {title: records for title, records in panels.items() if records}


@contextmanager
def _as_typed(ctx: Any) -> Iterator[None]:
    """Word errors in a command's own options: ``--min-count`` for ``min_count``."""
    try:
        yield
    except VistermError as error:
        error.args = (error.wording(partial(_typed_name, ctx)),)
        raise


def _typed_name(ctx: Any, name: str) -> str:
    """Return what a parameter of Python is called in a command: an option, an argument, or a setting of a part."""
    part, _, setting = name.rpartition(".")
    options = {"model": "--set", "encoder": "--encoder-set"}
    typed = {option: ctx.params.get(param) or () for param, option in (
        ("set_", "--set"), ("encoder_set", "--encoder-set"), ("grid", "--grid"),
    )}  # fmt: skip
    for param in ctx.command.params:
        if not part and param.name.strip("_") == name:
            return str(param.name.upper() if param.param_type_name == "argument" else max(param.opts, key=len))
    for option, pairs in typed.items():
        if option == options.get(part) or any(pair.partition("=")[0].strip() == setting for pair in pairs):
            return f"{option} {setting}"
    return name


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

    `takes_value` says of each option whether a value follows; `others` are options without a value beside these.
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


app = Typer(
    name="visterm",
    cls=CommandLine,
    help="Learn a photo library's own tags, tag new photos with them, and find photos by words.",
    epilog=in_lines(
        (
            ("visterm fit PHOTOS --tags tags.csv -o run", "learn your own tags"),
            ("visterm annotate run NEW", "tag new photos"),
        )
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def visterm(
    version: Annotated[bool, Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Learn a photo library's own tags, tag new photos with them, and find photos by words."""
    if version:
        import visterm

        echo(f"visterm {visterm.__version__}")
        raise Exit()
