"""The list of commands; each has its function in another file, which is imported when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from visterm.cli.command_line import WIDTH, CommandLine, in_lines

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
