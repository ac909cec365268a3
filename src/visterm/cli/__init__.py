"""The command line: parse, call the app, print. The one place that turns an error into one line and exit code 2."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from typing import Any

_NAMES = {"command_line": "Command in_lines", "options": "Json", "output": "Bars emit say table"}
"""What commands of other packages may use, by module: docs/add_a_model.md."""


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the command line starts without what most commands do not need."""
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"visterm.cli.{module}"), name)
    raise AttributeError(f"module 'visterm.cli' has no attribute '{name}'")


def main() -> None:
    """Run the command line, the entry point of `visterm`; it opens only the object stores that its words name."""
    import typer

    from visterm.cli.command_line import app
    from visterm.core.errors import VistermError
    from visterm.core.remote import only_named_stores

    usage_error: Any = typer.BadParameter.__base__  # click's UsageError, whichever click typer brings
    try:
        with only_named_stores(sys.argv[1:]):
            code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except usage_error as error:
        sys.exit(_usage(error))
    except typer.Abort:
        sys.exit(130)
    except VistermError as error:
        sys.exit(_fail(" ".join(str(error).split())))
    except KeyboardInterrupt:
        print("visterm: stopped; nothing half-written is left behind.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        sys.stderr.close()
        sys.exit(0)
    except MemoryError as error:
        sys.exit(_fail(f"Too little memory{f': {error}' if str(error) else ''}. Work on fewer images at once."))
    except Exception as error:  # of libraries: a disk that refuses is no fault of the program, all else is
        from visterm.core.writing import storage_error

        if refused := storage_error(error):
            sys.exit(_fail(str(refused)))
        if not isinstance(error, OSError):
            raise
        sys.exit(_fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error)))


def _usage(error: Any) -> int:
    """Report in one line what of the command was not understood; a command without any arguments shows its help."""
    command = error.ctx.command_path if error.ctx else "visterm"
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # pydantic's, which typer asks
    if words := _extra_words(error, message):
        return _fail(words)
    message = _number_out_of_range(error) or message
    near = getattr(error, "possibilities", None)
    if near:
        message = f"{error.message.rstrip('.')}. Did you mean {' or '.join(repr(name) for name in sorted(near))}?"
    if message.startswith("Missing argument"):
        return _fail(f"{message.rstrip('.')}. {_usage_of(error.ctx)} See: {command} --help")
    if message.startswith("Usage:") or not message:
        print(error.ctx.get_help())
        return 2
    return _fail(f"{message if message.endswith('?') else message.rstrip('.') + '.'} See: {command} --help")


def _extra_words(error: Any, message: str) -> str | None:
    """Return what to type instead of a search whose words are not in quotes; None for any other error."""
    extra = re.search(r"unexpected extra argument\S* \((.+)\)", message)
    if extra is None or error.ctx is None or error.ctx.info_name != "search":
        return None
    params = error.ctx.params
    words = shlex.quote(f"{params.get('words')} {extra[1]}")
    return f"Put several words in quotes: {error.ctx.command_path} {shlex.quote(str(params.get('catalogue')))} {words}"


def _usage_of(context: Any) -> str:
    """Return the arguments that a command takes, and whether what was typed for its run is none."""
    from visterm.core.persist import folder_kind

    names = " ".join(param.name.upper() for param in context.command.params if param.param_type_name == "argument")
    usage = f"Usage: {context.command_path} {names}."
    run = context.params.get("run")
    if run is not None and run.is_dir() and folder_kind(run) is None:
        return f"{usage} {run} is a folder, but not a run."
    return usage


def _number_out_of_range(error: Any) -> str:
    """Return the message of a number that typer refuses, with the option as typed and its range; empty of others."""
    problems: list[Any] = getattr(error.__cause__, "errors", list)()  # pydantic's
    param = getattr(error, "param", None)
    kinds = ("greater_than_equal", "less_than_equal", "int_parsing", "int_from_float", "float_parsing")
    if param is None or len(problems) != 1 or problems[0]["type"] not in kinds or not param.opts:
        return ""
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    whole = problems[0]["type"].startswith("int") or isinstance(low if low is not None else high, int)
    span = f" from {low} to {high}" if low is not None and high is not None else ""
    if not span and (low is not None or high is not None):
        span = f" of {low} or more" if high is None else f" of {high} or less"
    name = max(param.opts, key=len)
    return f"{name} is {problems[0]['input']}; expected a {'whole ' if whole else ''}number{span}."


def _fail(message: str) -> int:
    from visterm.core.wording import printable

    print(f"visterm: {printable(message)}", file=sys.stderr)
    return 2
