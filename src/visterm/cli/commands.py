"""The list of commands: one file each, named as the command is; other packages add theirs by entry point."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from visterm.cli import (
    annotate,
    demo,
    duplicates,
    encode,
    evaluate,
    explain,
    export,
    fit,
    index,
    info,
    lists,
    neighbours,
    pair,
    relations,
    search,
    serve,
    tags,
    tune,
    union,
)
from visterm.cli.package_commands import CommandGroup
from visterm.cli.words import WordsCommand
from visterm.core.object_stores import only_named_stores


class CommandLine(CommandGroup):
    """The commands; while one runs, only object stores that its words name are opened."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the stores, then parse."""
        ctx.with_resource(only_named_stores(args))
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="visterm",
    cls=CommandLine,
    help="Learn a photo library's own tags, tag new photos with them, and find photos by words.",
    epilog="Start with: visterm demo   ·   then: visterm fit PHOTOS --tags tags.csv -o my_run",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command("fit", epilog=fit.EXAMPLES)(fit.fit)
app.command("tune", epilog=tune.EXAMPLES)(tune.tune)
app.command("encode", epilog=encode.EXAMPLES)(encode.encode)
app.command("annotate", epilog=annotate.EXAMPLES)(annotate.annotate)
app.command("pair", epilog=pair.EXAMPLES)(pair.pair)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("evaluate", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("index", epilog=index.EXAMPLES)(index.index)
app.command("search", epilog=search.EXAMPLES, cls=WordsCommand)(search.search)
app.command("union", epilog=union.EXAMPLES)(union.union)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("duplicates", epilog=duplicates.EXAMPLES)(duplicates.duplicates)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.command("neighbours", epilog=neighbours.EXAMPLES)(neighbours.neighbours)
app.command("tags", epilog=tags.EXAMPLES)(tags.tags)
app.command("relations", epilog=relations.EXAMPLES)(relations.relations)
app.command("info", epilog=info.EXAMPLES)(info.info)
app.command("models")(lists.models)
app.command("encoders")(lists.encoders)
app.command("metrics")(lists.metrics)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
