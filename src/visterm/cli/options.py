"""Options that several commands share, with the panels of their help texts, and parsers of their values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from visterm.cli.command_line import imported_when_used
from visterm.cli.output import at_a_terminal
from visterm.core.errors import DataError, UserError
from visterm.core.remote import as_path

with imported_when_used():
    from visterm.core import checks, executor, persist, tables
    from visterm.encoders import named
    from visterm.learning import tune
    from visterm.metrics import table

argument = partial(typer.Argument, show_default=False)
input_option = partial(typer.Option, rich_help_panel="Input", show_default=False)
which_option = partial(typer.Option, rich_help_panel="Which tags", show_default=False)
model_option = partial(typer.Option, rich_help_panel="Model", show_default=False)
output_option = partial(typer.Option, rich_help_panel="Output", show_default=False)
scale_option = partial(typer.Option, rich_help_panel="Scale", show_default=False)

Completions = list[tuple[str, str]]  # What a shell completes: (name, description)


def model_names() -> Completions:
    """Return the models with their descriptions."""
    return [(entry.name, entry.summary) for entry in tables.MODELS]


def encoder_names() -> Completions:
    """Return the encoders and the named networks with their descriptions."""
    return [*((entry.name, entry.summary) for entry in tables.ENCODERS), *network_names()]


def network_names() -> Completions:
    """Return the named networks with their purposes; an empty list if the user's table of networks is invalid."""
    try:
        return [(row.name, row.good_for) for row in named.networks().values()]
    except DataError:
        return []


def metric_names() -> Completions:
    """Return the metrics, as they are typed, with their descriptions."""
    return [(entry.example, entry.summary) for entry in table.METRICS]


def in_range(
    option: str, *, above: float | None = None, least: float | None = None, below: float = inf, most: float = inf
) -> Callable[[float | None], float | None]:
    """Return a callback that raises an error for a number out of range (`check_number`), before any work."""

    def check(value: float | None) -> float | None:
        if value is not None:
            checks.check_number(value, option, above=above, least=least, below=below, most=most)
        return value

    return check


precision_option = partial(which_option, callback=in_range("--precision", above=0, below=1))
confidence_option = partial(which_option, callback=in_range("--min-confidence", least=0, most=1))
out_option = partial(output_option, "-o", "--out")

Run = Annotated[Path, argument(help="A run: a folder written by `visterm fit`.")]
ImagesOrFeatures = Annotated[
    Path, argument(help="A folder of photos, or of features written by `visterm encode`.", parser=as_path)
]
ImagesOrNone = Annotated[
    Path | None,
    argument(
        help="A folder of photos, or of features written by `visterm encode`. Leave it out if the tag file names the "
        "images (--encoder ids or precomputed).",
        parser=as_path,
    ),
]
ImagesOrFeatureFolders = Annotated[
    list[Path] | None,
    argument(
        help="A folder of photos, or one or more folders of features written by `visterm encode`. Leave it out if the "
        "tag file names the images (--encoder ids or precomputed).",
        parser=as_path,
    ),
]
CatalogueFolder = Annotated[Path, argument(metavar="CATALOGUE", help="A folder written by `visterm index`.")]

TagFile = Annotated[
    str,
    input_option(
        "--tags",
        help="A table, a folder of .txt files, 'xmp', lightroom:FILE, digikam:FILE, apple-photos:FOLDER, "
        "takeout:FOLDER, or 'auto' to look in the photo folder.",
        show_default=True,
    ),
]
TagRulesFile = Annotated[
    Path | None,
    input_option(
        "--tag-rules",
        help="A TOML file: aliases, tags to leave out, relations, how the tag file is written. `visterm tags` drafts "
        "one.",
        metavar="FILE",
    ),
]

Json = Annotated[bool, output_option("--json", help="Print JSON, one object per line.")]

EncoderName = Annotated[
    str | None,
    model_option(
        help="How photos become features: a name from `visterm encoders`, or NAME:ARGUMENT [default: the first "
        "network there that is on this machine, or visterms].",
        autocompletion=encoder_names,
    ),
]
EncoderSettings = Annotated[
    list[str] | None, model_option(help="A setting of the encoder, NAME=VALUE. Repeat for more.")
]
ModelName = Annotated[
    str | None, model_option(help="A name from `visterm models` [default: auto].", autocompletion=model_names)
]
ModelSettings = Annotated[
    list[str] | None, model_option("--set", help="A setting of the model, NAME=VALUE. Repeat for more.")
]
Words = Annotated[
    Path | None,
    model_option("--words", help="Words, one per line, to use as tags even if no photo has them.", metavar="FILE"),
]

Ray = Annotated[
    str | None,
    scale_option(
        help="Use several machines: HOST:PORT of a Ray cluster, 'auto' for one that runs here, or 'local' to start one "
        "(extra ray).",
        metavar="ADDRESS",
    ),
]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)", re.IGNORECASE)
_SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def may_replace(out: Path | None, overwrite: bool | None = None, kind: str = "file") -> bool:
    """Return whether an existing output may be replaced, by ``--overwrite`` or by an answer on the terminal.

    `overwrite` is None for commands without this option.

    `kind` is "file", or the kind of a folder that visterm wrote. Raises UserError if the output must not be replaced;
    StorageError if a folder has another kind, or files that visterm did not write.
    """
    if out is None:
        return bool(overwrite)
    if kind == "file":
        if out.is_dir():
            raise UserError(f"{out} is a folder; expected the name of a file.")
        exists = out.exists()
    else:
        persist.check_replaceable(out, kind, overwrite=True)
        exists = persist.folder_kind(out) == kind

    if overwrite or not exists:
        return bool(overwrite)
    problem = f"{out} exists already." if kind == "file" else f"{out} is a {kind} already."
    if not at_a_terminal():
        advice = "remove it" if overwrite is None else "replace it: --overwrite"
        raise UserError(f"{problem} Choose another name, or {advice}.")
    if not typer.confirm(f"{problem} Replace it?", err=True):
        raise UserError(f"{out} stays as it is. Choose another name.")
    return True


def settings(pairs: list[str] | None, option: str) -> dict[str, object]:
    """Parse NAME=VALUE settings; values are numbers, True, False, None, tuples, or otherwise text.

    Raises UserError if a pair has no "=" or a name is given twice.
    """
    texts = _texts_by_name(pairs or [], option, f"NAME=VALUE, for example {option} dim=100")
    return {name: value_of(text) for name, text in texts.items()}


def _texts_by_name(pairs: list[str], option: str, form: str) -> dict[str, str]:
    """Split NAME=TEXT pairs. Raises UserError if one has no "=" or a name is given twice."""
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name.isidentifier():
            raise UserError(f"{option} {pair!r} is not understood; expected {form}.")
        if name in texts:
            raise UserError(f"{option} {name} is given twice.")
        texts[name] = text
    return texts


def value_of(text: str) -> Any:
    """Parse a value: a number, True, False, None, a tuple, or otherwise text."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def choices(pairs: list[str]) -> dict[str, tune.Choices]:
    """Parse the values to try for each setting: ``dim=50,100``, ``learning_rate=0.0001:0.1:log``, ``dim=20:200``.

    Raises UserError if a pair is invalid, or a name is given twice.
    """
    space: dict[str, tune.Choices] = {}
    form = "NAME=VALUE,VALUE or NAME=LOW:HIGH or NAME=LOW:HIGH:log, for example --grid dim=50,100"
    for name, text in _texts_by_name(pairs, "--grid", form).items():
        parts = text.split(":")
        if len(parts) > 1:
            low, high = (value_of(part) for part in parts[:2])
            are_numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
            if not are_numbers or len(parts) > 3 or parts[2:] not in ([], ["log"]) or not low < high:
                raise UserError(
                    f"--grid {name}={text} is not a range; expected LOW:HIGH or LOW:HIGH:log, with LOW below HIGH."
                )
            if parts[2:] and low <= 0:
                raise UserError(f"--grid {name}={text} is drawn by its logarithm; expected ends above 0.")
            space[name] = tune.Range(low, high, log=bool(parts[2:]))
            continue
        values = [value_of(part.strip()) for part in text.split(",")]
        if "" in values:
            raise UserError(f"--grid {name}={text} has an empty value; expected values with one comma between.")
        space[name] = list(dict.fromkeys(values))

    return space


def seconds_of(text: str | None, option: str) -> float | None:
    """Return a duration (90, 90s, 2m, 1.5h) in seconds; None for None.

    Raises UserError if the text is invalid or the duration is 0.
    """
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS_PER_UNIT[match[2].lower()] if match else 0.0
    if not seconds:
        raise UserError(f"{option} {text} is not understood; expected seconds, minutes or hours above 0: 90s, 2m, 1h.")
    return seconds


def executor_of(ray: str | None) -> executor.Executor:
    """Return the executor for jobs: this process, or with an address from ``--ray`` a Ray cluster."""
    if ray is None:
        return executor.Executor(None)
    from visterm.cluster import RayExecutor

    return RayExecutor(ray, None)
