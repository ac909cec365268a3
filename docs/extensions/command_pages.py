"""Make a page for each command from what its ``--help`` shows: usage, options by panel, examples."""

from collections.abc import Iterator, Sequence
from typing import Any

from typer.main import get_command

from visterm.cli import command_line


def command_pages() -> dict[str, str]:
    """Return the text of each command's page by its name (`commands/fit`), and of the list of them (`commands`)."""
    group: Any = get_command(command_line.app)
    pages = {"commands": "\n".join(list_of_commands()) + "\n"}
    for name in command_line.COMMANDS:
        pages[f"commands/{name}"] = "\n".join(command_page(group.resolve_command(None, [name])[1], name)) + "\n"
    return pages


def list_of_commands() -> Iterator[str]:
    """Yield the lines of the page that lists the commands by what they are for."""
    yield "# Command line\n"
    yield "`visterm COMMAND --help` shows the same as these pages. They are made from the commands themselves.\n"
    for title, commands in command_line.PANELS_OF_COMMANDS.items():
        yield f"## {title}\n"
        yield "| command | what it does |\n| --- | --- |"
        yield from (
            f"| [`visterm {name}`](commands/{name}.md) | {in_cell(what)} |" for name, (_, what) in commands.items()
        )
        yield "\n```{toctree}\n:hidden:\n"
        yield from (f"commands/{name}" for name in commands)
        yield "```\n"
    yield "## From other packages\n"
    yield "[visterm-research](/research/README.md) adds:\n"
    yield from (f"- `visterm {name}`: {summary}" for name, summary in command_line.PACKAGE_COMMANDS.items())


def command_page(command: Any, name: str) -> Iterator[str]:
    """Yield the lines of a command's page."""
    ctx = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(["visterm", name, *command.collect_usage_pieces(ctx)])
    yield f"# visterm {name}\n\n```text\n{usage}\n```\n"
    yield f"{escaped(command.help)}\n"
    if command.examples:
        yield "## Examples\n\n```text"
        yield from in_columns(command.examples)
        yield "```\n"
    for title, records in command.panels(ctx).items():
        yield f"## {title}\n"
        yield f"| {'argument' if title == 'Arguments' else 'option'} | what it does |\n| --- | --- |"
        yield from (f"| {typed(term)} | {in_cell(escaped(meaning))} |" for term, meaning in records)
        yield ""


def typed(term: str) -> str:
    """Return how options are typed as code, each on a line: ``-o, --out PATH``."""
    return "<br>".join(f"`{part.strip()}`" for part in in_cell(term).split(", "))


def in_columns(examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield examples with what each does above it."""
    for command, what in examples:
        yield f"# {what}\n{command}\n"


def escaped(text: str) -> str:
    """Return a help text so that Markdown shows it as it is, apart from its code."""
    parts = text.strip().split("`")
    for at in range(0, len(parts), 2):
        for letter in "\\*_<[$#":
            parts[at] = parts[at].replace(letter, f"\\{letter}")
    return "`".join(parts)


def in_cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")
