"""The list of commands, and the smallest of them; each other has a file, other packages add theirs by entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import (
    annotate,
    duplicates,
    encode,
    evaluate,
    explain,
    export,
    fit,
    index,
    info,
    options,
    relations,
    search,
    serve,
    tags,
    tune,
)
from visterm.cli.command_line import WIDTH, Command, CommandLine, LongCommand, WordsCommand, in_lines
from visterm.cli.output import emit, say, table
from visterm.cli.progress import Bars
from visterm.core.registry import Registry

app = typer.Typer(
    name="visterm",
    cls=CommandLine,
    help="Learn a photo library's own tags, tag new photos with them, and find photos by words.",
    epilog=in_lines(
        (
            ("visterm demo", "see it work on drawn pictures"),
            ("visterm fit PHOTOS --tags tags.csv -o run", "learn your own tags"),
        )
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def visterm(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Learn a photo library's own tags, tag new photos with them, and find photos by words."""
    if version:
        import visterm

        typer.echo(f"visterm {visterm.__version__}")
        raise typer.Exit()


def models(json: options.Json = False) -> None:
    """List the models."""
    from visterm.core.tables import MODELS

    _list(MODELS, json)


def encoders(json: options.Json = False) -> None:
    """List the encoders, which turn photos into features."""
    from visterm.core.tables import ENCODERS

    _list(ENCODERS, json)


def metrics(json: options.Json = False) -> None:
    """List the metrics of `visterm evaluate`."""
    from visterm.metrics.table import METRICS

    rows = [[entry.example, entry.summary] for entry in METRICS]
    if json:
        for name, summary in rows:
            emit({"name": name, "summary": summary})
    else:
        table(rows, ["metric", "what it is"])


def _list(registry: Registry, json: bool) -> None:
    entries = list(registry)
    if json:
        for entry in entries:
            emit({"name": entry.name, "summary": entry.summary, "paper": entry.paper, "extra": entry.extra})
        return
    rows = [[e.name, e.summary, e.paper or "-", f"visterm[{e.extra}]" if e.extra else "-"] for e in entries]
    table(rows, [registry.kind, "what it is", "described in", "needs"])


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("demo"),
    scenes: Annotated[int, typer.Option(min=100, help="Scenes to draw.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same library.")] = 0,
    jobs: options.Jobs = None,
) -> None:
    """Draw a small photo library, learn its tags, tag and search new pictures, and write a report."""
    from visterm.demo.run import run_demo

    result = run_demo(out, n_scenes=scenes, seed=seed, n_jobs=jobs, progress=Bars())
    table(result.rows, result.header)
    say(f"The report with pictures is {result.report}")


for _command, _examples in (
    (fit.fit, fit.EXAMPLES),
    (tune.tune, tune.EXAMPLES),
    (encode.encode, encode.EXAMPLES),
    (annotate.annotate, annotate.EXAMPLES),
    (relations.pair, relations.PAIR_EXAMPLES),
    (explain.explain, explain.EXAMPLES),
    (evaluate.evaluate, evaluate.EXAMPLES),
    (index.index, index.EXAMPLES),
    (search.search, search.EXAMPLES),
    (index.union, index.UNION_EXAMPLES),
    (serve.serve, serve.EXAMPLES),
    (duplicates.duplicates, duplicates.EXAMPLES),
    (export.export, export.EXAMPLES),
    (tags.neighbours, (("visterm neighbours run dolphin -k 5", "five tags similar to dolphin"),)),
    (tags.tags, tags.EXAMPLES),
    (relations.relations, relations.EXAMPLES),
    (info.info, info.EXAMPLES),
    (models, ()),
    (encoders, ()),
    (metrics, ()),
    (demo, (("visterm demo -o demo", "then open demo/report.html"),)),
):
    _class: type[Command] = {fit.fit: LongCommand, tune.tune: LongCommand, search.search: WordsCommand}.get(
        _command, Command
    )
    app.command(_command.__name__, epilog=in_lines(_examples), cls=_class)(_command)
