"""Write share/ from the commands: the man page and completions for bash, zsh and fish; `--check` says if it is stale.

The files for the shells ask visterm itself what may come next, as those of `visterm --install-completion` do.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer._completion_shared import get_completion_script
from typer.main import get_command

import visterm
from visterm.cli import command_line

SHARE = Path(__file__).resolve().parents[1] / "share"
ABOUT = "Learns a photo library's own tags, tags new photos with them, and finds photos by words."
ENVIRONMENT = {
    "VISTERM_STORES": "Object stores that catalogues and runs may name, as s3://bucket, separated by spaces.",
    "VISTERM_IMMICH": "The address of Immich's machine-learning server, for the encoder immich.",
    "VISTERM_NETWORKS": "A table of your own networks, beside those that visterm knows by name.",
}
EXIT_STATUS = {
    "0": "It is done.",
    "2": "Nothing or only a part is done: one line on standard error says what is wrong and what to do.",
    "3": "It is done for all photos but some, which were skipped.",
    "130": "You stopped it.",
}


def files() -> dict[str, str]:
    """Return the text of each file under share/."""
    bash, zsh, fish = (
        get_completion_script(prog_name="visterm", complete_var="_VISTERM_COMPLETE", shell=shell)
        for shell in ("bash", "zsh", "fish")
    )
    answer = next(line.strip() for line in zsh.splitlines() if "eval" in line)  # in a file, it is the function itself
    return {
        "man/man1/visterm.1": "\n".join(man_page()) + "\n",
        "bash-completion/completions/visterm": f"{bash.strip()}\n",
        "zsh/site-functions/_visterm": f"#compdef visterm\n{answer}\n",
        "fish/vendor_completions.d/visterm.fish": f"{fish.strip()}\n",
    }


def man_page() -> Iterator[str]:
    """Yield the lines of the man page."""
    yield f'.TH VISTERM 1 "" "visterm {visterm.__version__}" "User Commands"'
    yield ".SH NAME"
    yield rf"visterm \- {roff(ABOUT[0].lower() + ABOUT[1:-1])}"
    yield from (".SH SYNOPSIS", r"\fBvisterm\fR \fICOMMAND\fR [\fIOPTIONS\fR] ...", ".SH DESCRIPTION", roff(ABOUT))
    yield from (".PP", "The commands are listed here by purpose. Each explains itself with " + r"\fB\-\-help\fR.")
    group: Any = get_command(command_line.app)
    for title, commands in command_line.PANELS_OF_COMMANDS.items():
        yield f".SH {title.upper()}"
        for name in commands:
            yield from command_lines(group.resolve_command(None, [name])[1], name)
    for title, table in {"Environment": ENVIRONMENT, "Exit status": EXIT_STATUS}.items():
        yield f".SH {title.upper()}"
        yield from terms(table.items())


def command_lines(command: Any, name: str) -> Iterator[str]:
    """Yield a command: how it is typed, what it does, its arguments and options, and its examples."""
    ctx = command.make_context(name, [], resilient_parsing=True)
    yield f'.SS "{roff(" ".join(["visterm", name, *command.collect_usage_pieces(ctx)]))}"'
    for number, paragraph in enumerate(command.help.strip().split("\n\n")):
        yield from ([".PP"] if number else [])
        yield roff(" ".join(paragraph.split()))
    for title, records in command.panels(ctx).items():
        yield from (".PP", rf"\fI{roff(title)}\fR")
        yield from terms(records)
    if command.examples:
        yield from (".PP", r"\fIExamples\fR", ".nf")
        for typed, what in command.examples:
            yield from (rf"    \fB{roff(typed)}\fR", f"        {roff(what)}")
        yield ".fi"


def terms(records: Any) -> Iterator[str]:
    """Yield a list of what is typed and what it means."""
    for term, meaning in records:
        yield from (".TP", rf"\fB{roff(term)}\fR", roff(" ".join(meaning.split())))


def roff(text: str) -> str:
    """Return a text as a man page has it: no letter of it is a command."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("`", r"\(ga")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    fresh = {SHARE / name: text for name, text in files().items()}
    stale = [path for path, text in fresh.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(SHARE.parent)) for path in stale)
        sys.exit(f"Stale: {names}. Run: make docs" if stale else 0)
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fresh[path], encoding="utf-8")


if __name__ == "__main__":
    main()
