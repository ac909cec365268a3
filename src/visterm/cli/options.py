"""Options that several commands share, and the reading of NAME=VALUE settings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.core.errors import UserError
from visterm.core.remote import as_path

if TYPE_CHECKING:
    from visterm.core.executor import Executor


def check_jobs(value: int | None) -> int | None:
    """Refuse numbers of threads that cannot be, before anything is read."""
    if value is not None and value != -1:
        from visterm.core.checks import check_count

        check_count(value, "--jobs", "or -1 for all cores")
    return value


def check_share(value: float | None) -> float | None:
    """Refuse shares of rows to hold out that leave none to learn from; 0 holds out none."""
    if value is not None:
        from visterm.core.checks import check_number

        check_number(value, "--valid", least=0, below=1)
    return value


def check_share_above_0(value: float) -> float:
    """Refuse shares of rows to choose by that leave none to learn from, or none to choose by."""
    from visterm.core.checks import check_number

    check_number(value, "--valid", above=0, below=1)
    return value


Run = Annotated[Path, typer.Argument(help="A run: the folder that `visterm fit` wrote.", show_default=False)]
Images = Annotated[
    Path,
    typer.Argument(
        help="A folder of images, searched to the bottom; also in an object store (s3://BUCKET/NAME, extra s3).",
        show_default=False,
        parser=as_path,
    ),
]
ImagesOrFeatures = Annotated[
    Path,
    typer.Argument(
        help="A folder of images, searched to the bottom, or FEATURES: what `visterm encode` made of one.",
        show_default=False,
        parser=as_path,
    ),
]
ImagesOrNone = Annotated[
    Path | None,
    typer.Argument(
        help="A folder of images, searched to the bottom, or FEATURES: what `visterm encode` made of one; none where "
        "the tags name the images (--encoder ids or precomputed).",
        show_default=False,
        parser=as_path,
    ),
]
ImagesOrSeveral = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A folder of images, searched to the bottom, or FEATURES: what `visterm encode` made of one, or several "
        "such; none where the tags name the images (--encoder ids or precomputed).",
        show_default=False,
        parser=as_path,
    ),
]
TagFile = Annotated[
    str,
    typer.Option(
        "--tags",
        help="CSV, TSV or JSON lines with a file-name column and a tags column; a folder of `.txt` files; 'xmp': "
        "keywords in .xmp files beside the images and in the images; or 'auto': metadata.jsonl, metadata.csv, a .txt "
        "or .xmp beside each image, a folder a tag, or keywords in the images, as found in IMAGES.",
    ),
]
ImageColumn = Annotated[
    str | None, typer.Option(help="The column of file names [default: file_name or image].", show_default=False)
]
TagsColumn = Annotated[
    str | None, typer.Option(help="The column of tags [default: tags, labels or tag].", show_default=False)
]
Separator = Annotated[
    str | None, typer.Option(help="What separates tags in a cell [default: ; or ,].", show_default=False)
]
EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="How images become features: a name from `visterm encoders`, or name:argument "
        "[default: visterms; of FEATURES: what made them].",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="Where networks of torch run: cpu, cuda (a GPU) or auto [default: the parts' own setting, auto].",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="Threads [default: all cores].", show_default=False, callback=check_jobs),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Work on several machines: HOST:PORT of a Ray engine, 'auto' for the one on this machine, or 'local' to "
        "start one here for this job (extra ray) [default: this process alone].",
        show_default=False,
        metavar="ADDRESS",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else, on standard output.")]
SkippedFile = Annotated[
    Path, typer.Option("--skipped", help="Where images that are skipped are listed, one JSON object a line.")
]


def settings(pairs: list[str], option: str) -> dict[str, Any]:
    """Read NAME=VALUE settings; values are numbers, True, False, None, tuples, or else text.

    Raises
    ------
    UserError
        If a pair has no "=" or a name is given twice.
    """
    read: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UserError(f"{option} {pair!r} is not understood; expected NAME=VALUE, for example {option} dim=100.")
        if name in read:
            raise UserError(f"{option} {name} is given twice.")
        read[name] = value_of(text.strip())
    return read


def value_of(text: str) -> Any:
    """Read one value: a number, True, False, None, a tuple, or else text."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def executor_of(ray: str | None, jobs: int | None) -> Executor:
    """Return what runs the parts of a job: this process, or the machines behind ``--ray``."""
    from visterm.core.executor import LocalExecutor

    if ray is None:
        return LocalExecutor(jobs)
    from visterm.cluster import RayExecutor

    return RayExecutor(ray, jobs)
