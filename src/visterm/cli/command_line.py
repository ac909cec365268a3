"""Finding, parsing and documenting commands, and reporting their errors as one line with an exit code."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args

from typer import Abort, BadParameter, Exit, Option, Typer, echo
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import visterm as package
from visterm.core.errors import MissingExtraError, VistermError
from visterm.core.remote import only_named_stores


class _LazyModuleFinder:
    """Import finder that executes a module of visterm only when one of its names is first used."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Return the spec for importing a module of visterm lazily; None for packages and other modules."""
        spec = PathFinder.find_spec(name, path) if name.startswith("visterm.") else None
        if spec is None or spec.loader is None or spec.submodule_search_locations is not None:
            return None
        spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def imported_when_used() -> Iterator[None]:
    """Make imports in the block lazy, so that help texts and other commands start faster.

    The block must import modules, as in ``from visterm.learning import fitting``, and not names in modules.
    """
    sys.meta_path.insert(0, _LazyModuleFinder)
    try:
        yield
    finally:
        sys.meta_path.remove(_LazyModuleFinder)


with imported_when_used():
    from visterm.core import persist, wording, writing

_MINIMUM_TEXT: Final = re.compile(r"; x>=\d+(?=\])|\s*\[x>=\d+\]")  # Typer's note on the minimum, which is removed
GROUP: Final = "visterm.commands"  # Entry-point group; each entry point is a `typer.Typer` with one command
PANELS: Final = (
    "Arguments", "Input", "Search", "Which photos", "Which tags", "Model", "Measures", "Output", "Scale",
)  # fmt: skip
"""Panels of help texts, in their order; other panels come after them."""

WIDTH: Final = 100  # Maximum width of a help text
METAVARS: Final = {
    "set_": "NAME=VALUE", "encoder_set": "NAME=VALUE", "grid": "NAME=VALUES", "model": "NAME", "encoder": "NAME",
    "metric": "NAME", "tags": "SOURCE", "tag_file": "SOURCE", "tag": "TAG", "add": "TAG", "remove": "TAG",
    "from_": "DATE", "to": "DATE", "like": "PHOTO", "folder": "FOLDER", "keep": "RULE",
}  # fmt: skip
"""Parameter -> placeholder of its value in help texts; for other parameters it depends on their type."""

TYPED_AS: Final = {
    "encoder_params": "encoder_set", "metrics": "metric", "model_params": "set_", "n_random": "random",
    "taken_from": "from_", "taken_to": "to",
}  # fmt: skip
"""Parameter of the Python API -> its name in the function of a command, if it differs."""

Examples: TypeAlias = Sequence[tuple[str, str]]  # (command, purpose)
Context: TypeAlias = Any  # click.Context, from the version of click that typer installs
Formatter: TypeAlias = Any  # click.HelpFormatter


def in_lines(examples: Examples) -> str | None:
    """Return examples for the end of a help text, one per line with its purpose, in columns if they fit."""
    if not examples:
        return None
    width = max(len(command) for command, _ in examples)
    if width + max(len(purpose) for _, purpose in examples) + 6 > WIDTH:
        width = 0
    return "\n".join(["Examples:", *(f"  {command:{width}}  # {purpose}" for command, purpose in examples)])


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
        "map": ("index", "Draw a map of the photos, with similar ones close together."),
        "mistakes": ("cleaning", "List tags that are probably missing or wrong."),
        "serve": ("serve", "Serve photos or a catalogue as a web page and an API."),
    },
    "Other programs": {
        "connect": ("connect", "Make a catalogue of a library in Immich or PhotoPrism."),
        "push": ("export", "Share a run on the Hugging Face hub."),
        "sync": ("connect", "Follow a connected library, and write predictions into it."),
    },
    "Inspect and back up": {
        "info": ("info", "Show what is in a run, a catalogue or a features folder."),
        "tags": ("tags", "List the tags of a run, suggest aliases, or add words."),
        "backup": ("backup", "Write a backup of a catalogue into one file."),
        "restore": ("backup", "Make a catalogue from a backup."),
    },
    "Lists": {
        "models": ("info", "List the models."),
        "encoders": ("info", "List the encoders, which turn photos into features."),
        "metrics": ("info", "List the metrics of `visterm evaluate`."),
    },
}
"""Panel -> command -> its module and the first paragraph of its docstring, so that listing commands imports nothing."""

COMMANDS: Final = {name: entry for panel in PANELS_OF_COMMANDS.values() for name, entry in panel.items()}


RESEARCH: Final = "visterm-research"
PACKAGE_COMMANDS: Final = {
    "demo": "Draw a small photo library, and try everything on it.",
    "reproduce": "Run a paper's comparison again.",
    "wordnet": "Find in WordNet which tags are parts or kinds of others.",
}
"""Command of the package `RESEARCH` -> its line in `visterm --help`, so that listing commands imports nothing."""


class PlainCommand:
    """Mixin that writes the examples at the end of a help text as they are, and converts plain values itself."""

    epilog: str | None
    examples: Examples = ()

    def format_epilog(self, ctx: Context, formatter: Formatter) -> None:
        """Write the examples, one per line."""
        if text := self.epilog or in_lines(self.examples):
            formatter.write_paragraph()
            formatter.write(f"{text}\n")

    def get_params(self, ctx: Context) -> list[Any]:
        """Return the parameters, also ``--help``, with `_PlainValues`."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            typers_own = getattr(param, "get_runtime_param", None)  # since Typer 0.29
            if typers_own is not None and not isinstance(typers_own, partial):
                param.get_runtime_param = partial(_PlainValues, typers_own)
        return params


class CommandLine(PlainCommand, TyperGroup):
    """The commands of visterm and of installed packages, which are imported only when they run.

    For commands with the same name, visterm's own is used.
    """

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands, in the order of the help text."""
        return [*COMMANDS, *sorted(set(_installed()) - set(COMMANDS))]

    def get_command(self, ctx: Context, cmd_name: str) -> Any:
        """Return a command with only its name and help line, without importing it; None if it is unknown."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])
        target = _installed().get(cmd_name)
        if target is None:
            return None
        return TyperCommand(cmd_name, help=PACKAGE_COMMANDS.get(cmd_name, f"From {re.split('[.:]', target)[0]}."))

    def format_commands(self, ctx: Context, formatter: Formatter) -> None:
        """Write the commands of each panel, then the commands of other packages."""
        names = self.list_commands(ctx)
        others = [name for name in names if name not in COMMANDS]
        width = max(map(len, names))
        for title, panel in {**PANELS_OF_COMMANDS, "Other packages": others}.items():
            if panel:
                with formatter.section(title):
                    formatter.write_dl([(f"{name:{width}}", self.get_command(ctx, name).help) for name in panel])

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        """Import the command to run, and set the placeholders of its parameters.

        Raises MissingExtraError if the package of the command is not installed.
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
            return super().resolve_command(ctx, args)  # raises an error whose "Did you mean" uses `self.commands`

        for param in command.params:  # ``PATH``, ``N``, ``IMAGES``
            if param.metavar is None and not getattr(param, "is_flag", False):
                metavars, type_text = {"int": "N", "float": "NUMBER", "path": "PATH"}, param.display_type(None).lower()
                default = METAVARS.get(param.name, next((metavars[t] for t in metavars if t in type_text), "TEXT"))
                param.metavar = param.name.upper() if param.param_type_name == "argument" else default

        return name, command, args[1:]


class _PlainValues:
    """Conversion of texts, paths and defaults; for other values Typer's own, with pydantic, whose import is slow."""

    def __init__(self, typers_own: Callable[[], Any]) -> None:
        self.typers_own = typers_own

    def coerce(self, value: Any, param: Any, ctx: Context) -> Any:
        """Convert the value of a parameter, as Typer does."""
        is_list, described = param.multiple or param.nargs == -1, param.type_descriptor
        if value is None:
            return () if is_list else None
        kind = get_args(described.annotation)[0] if is_list else described.annotation
        values = value if is_list else [value]
        if isinstance(kind, type) and described.parameter_info.parser is None:
            if all(isinstance(each, kind) for each in values):
                return list(value) if is_list else value
            if kind is Path and all(os.access(each, os.R_OK) or not os.path.exists(each) for each in values):
                return [Path(each) for each in value] if is_list else Path(value)
        return self.typers_own().coerce(value, param=param, ctx=ctx)


def _installed() -> dict[str, str]:
    """Return command -> "module:attribute" for installed packages; `importlib.metadata` would be slow to import."""
    commands: dict[str, str] = {}
    for folder in sys.path:
        for file in Path(folder).glob("*-info/entry_points.txt"):
            lines = file.read_text(encoding="utf-8").partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines()
            entries = (line.partition("=") for line in lines if "=" in line)
            commands.update((name.strip(), value.strip()) for name, _, value in entries if name.strip() not in commands)
    return commands


class Command(PlainCommand, TyperCommand):
    """A command whose help text lists options in panels, as plain text: ``Input:``, ``Model:``, and so on.

    Messages of its errors name parameters as they are typed: ``--min-count``, ``--set dim``.
    """

    def invoke(self, ctx: Context) -> Any:
        """Run the command; in messages of its errors, ``min_count`` becomes ``--min-count``."""
        try:
            return super().invoke(ctx)
        except VistermError as error:
            error.args = (error.wording(partial(_typed_name, ctx)),)
            raise

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return the pieces of the usage line: ``[OPTIONS]``, then arguments such as ``[WORDS]`` or ``IMAGES...``."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = f"{param.metavar}{'...' if param.nargs != 1 else ''}"
                pieces.append(name if param.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        """Write the arguments, then the options of each panel."""
        for title, records in self.panels(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def panels(self, ctx: Context) -> dict[str, list[tuple[str, str]]]:
        """Return panel -> its parameters, each as it is typed and with its help text."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or param.name == "help":
                continue
            name, text = record[0], _MINIMUM_TEXT.sub("", record[1])
            text = text.replace("  [required]", "").replace("<=x<=", " to ")
            if param.param_type_name == "argument":
                panels["Arguments"].append((param.metavar or name, text))
            else:
                panels.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append((name, text))
        return {title: records for title, records in panels.items() if records}


def _typed_name(ctx: Context, name: str) -> str:
    """Return how users type a parameter of the Python API: ``--min-count``, ``IMAGES``, ``--set dim``."""
    part, _, setting = name.rpartition(".")
    params = {param.name: param for param in ctx.command.params}
    for param in (params.get(candidate) for candidate in (name, f"{name}_", TYPED_AS.get(name))):
        if param is not None:
            return str(param.name.upper() if param.param_type_name == "argument" else max(param.opts, key=len))

    for param_name, param_part in (("set_", "model"), ("encoder_set", "encoder"), ("grid", "")):
        typed_names = {pair.partition("=")[0].strip() for pair in ctx.params.get(param_name) or ()}
        if param_name in params and (part == param_part != "" or setting in typed_names):
            return f"{max(params[param_name].opts, key=len)} {setting}"
    return name


def wording_for(ctx: Context, name: str) -> Callable[[VistermError], str]:
    """Return a function that words errors for people who typed their settings as options of the command `name`."""
    _, command, _ = ctx.parent.command.resolve_command(ctx.parent, [name])
    typed = partial(_typed_name, command.make_context(name, [], parent=ctx.parent, resilient_parsing=True))
    return lambda error: error.wording(typed)


class WordsCommand(Command):
    """A command that accepts ``-word`` as an argument; ``--name`` and ``-x`` are options, or errors if unknown."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Move the words after all options, then parse the options."""
        takes_value = {
            name: not getattr(param, "is_flag", False)
            for param in self.params
            if param.param_type_name == "option"
            for name in (*param.opts, *param.secondary_opts)
        }
        return super().parse_args(ctx, words_last(args, takes_value, set(self.get_help_option_names(ctx))))


def words_last(args: Sequence[str], takes_value: Mapping[str, bool], others: Collection[str] = ()) -> list[str]:
    """Return arguments with each ``-word`` moved to the end, after ``--``.

    `takes_value` maps an option to whether a value follows it; `others` are more options without a value.
    """
    options: list[str] = []
    words: list[str] = []
    remaining = list(args)
    while remaining:
        arg = remaining.pop(0)
        if arg == "--":
            return [*options, "--", *words, *remaining]
        has_number = arg[2:].isdigit() and takes_value.get(arg[:2], False)  # -k5
        is_option = arg in takes_value or arg in others or has_number
        is_letter = len(arg) == 2 and arg.isascii()  # -x, unlike -海
        if len(arg) > 1 and arg[0] == "-" and arg[1] != "-" and not (is_option or is_letter):
            words.append(arg)
            continue
        options.append(arg)
        if takes_value.get(arg, False):
            if not remaining:
                return options  # the parser then reports the missing value
            options.append(remaining.pop(0))
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
        echo(f"visterm {package.__version__}")
        raise Exit()


def main() -> None:
    """Run the command line, the entry point of `visterm`; only object stores on the command line may be opened."""
    usage_error: Any = BadParameter.__base__  # click.UsageError, from the version of click that typer installs
    atexit.register(gc.freeze)  # otherwise Python examines all objects at its end, for a quarter of a command's time
    try:
        try:
            with only_named_stores(sys.argv[1:]):
                code = app(standalone_mode=False)
        except BaseException as error:
            for each in filter(None, (error, error.__context__)):
                traceback.clear_frames(each.__traceback__)  # ends unfinished iterators, and so their progress bars
            raise
        sys.exit(code if isinstance(code, int) else 0)
    except usage_error as error:
        sys.exit(_fail_to_parse(error))
    except Abort:
        sys.exit(130)
    except VistermError as error:
        sys.exit(_fail(" ".join(str(error).split())))
    except KeyboardInterrupt:
        print("visterm: stopped; nothing half-written is left behind.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output (head, less) has ended
        sys.stderr.close()
        sys.exit(0)
    except MemoryError as error:
        sys.exit(_fail(f"Too little memory{f': {error}' if str(error) else ''}. Work on fewer images at once."))
    except Exception as error:  # errors of the disk are reported in one line; other errors are bugs
        if refusal := writing.storage_error(error):
            sys.exit(_fail(str(refusal)))
        if not isinstance(error, OSError):
            raise
        sys.exit(_fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error)))


def _fail_to_parse(error: Any) -> int:
    """Report a usage error in one line, or show the help if there are no arguments; return the exit code."""
    command, name = ("visterm", "") if error.ctx is None else (error.ctx.command_path, error.ctx.info_name)
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # a prefix from pydantic
    if name == "search" and (extra := re.search(r"unexpected extra argument\S* \((.+)\)", message)):
        typed = error.ctx.params
        words = shlex.quote(f"{typed.get('words')} {extra[1]}")
        return _fail(f"Put several words in quotes: {command} {shlex.quote(str(typed.get('catalogue')))} {words}")

    message = _number_out_of_range(error) or message
    if possibilities := getattr(error, "possibilities", None):
        message = f"{error.message.rstrip('.')}. Did you mean {' or '.join(map(repr, sorted(possibilities)))}?"
    if message.startswith("Missing argument"):
        names = " ".join(
            param.name.upper() for param in error.ctx.command.params if param.param_type_name == "argument"
        )
        run, note = error.ctx.params.get("run"), ""
        if run is not None and run.is_dir() and persist.folder_kind(run) is None:
            note = f" {run} is a folder, but not a run."
        return _fail(f"{message.rstrip('.')}. Usage: {command} {names}.{note} See: {command} --help")
    if message.startswith("Usage:") or not message:
        print(error.ctx.get_help())
        return 2
    return _fail(f"{message if message.endswith('?') else message.rstrip('.') + '.'} See: {command} --help")


def _number_out_of_range(error: Any) -> str:
    """Return the message for a number that typer refuses, with the option and its range; "" for other errors."""
    problems: list[Any] = getattr(error.__cause__, "errors", list)()  # from pydantic
    param = getattr(error, "param", None)
    kinds = ("greater_than_equal", "less_than_equal", "int_parsing", "int_from_float", "float_parsing")
    if param is None or len(problems) != 1 or problems[0]["type"] not in kinds or not param.opts:
        return ""

    low, high = getattr(param, "min", None), getattr(param, "max", None)
    is_whole = problems[0]["type"].startswith("int") or isinstance(low if low is not None else high, int)
    range_text = f" from {low} to {high}" if low is not None and high is not None else ""
    if not range_text and (low is not None or high is not None):
        range_text = f" of {low} or more" if high is None else f" of {high} or less"
    name = max(param.opts, key=len)
    return f"{name} is {problems[0]['input']}; expected a {'whole ' if is_whole else ''}number{range_text}."


def _fail(message: str) -> int:
    """Print an error as one line, and return the exit code."""
    print(f"visterm: {wording.printable(message)}", file=sys.stderr)
    return 2
