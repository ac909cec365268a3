"""`visterm watch`: keep a catalogue up to date with its folders while photos come, change and move."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from visterm.cli import options
from visterm.cli.output import say, show
from visterm.cli.progress import Bars
from visterm.core.wording import count_of

EXAMPLES = (
    ("visterm watch catalogue", "the folders that were indexed into it"),
    ("visterm watch catalogue /mnt/nas/photos --poll 5m", "look every five minutes"),
)


def watch(
    catalogue: Annotated[Path, typer.Argument(help="A folder written by `visterm index`.", show_default=False)],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of photos [default: those that were indexed].", show_default=False),
    ] = None,
    tags: Annotated[
        str | None,
        options.input_option(
            help="Where people's tags are read: 'xmp', 'auto', a tag file or a folder of .txt files [default: as the "
            "catalogue was indexed, if that was xmp or auto]."
        ),
    ] = None,
    poll: Annotated[
        str | None,
        options.input_option(
            metavar="TIME",
            help="Look at the folders every so often, such as 30s or 5m. Folders on a network are looked at every 30 s "
            "anyway, as their changes are not reported.",
        ),
    ] = None,
) -> None:
    """Keep a catalogue up to date while photos come and go.

    It looks for what happened since the last time, and then waits for changes. A folder that disappears is waited for.
    Ctrl-C or SIGTERM ends it; a kill loses nothing.
    """
    from visterm.connectors.folder_changes import Stop
    from visterm.connectors.watch import Watching, folders_to_watch, tags_as_indexed
    from visterm.library.catalogue import Catalogue

    seconds = options.seconds_of(poll, "--poll")
    opened = Catalogue.load(catalogue)
    chosen = folders_to_watch(opened.stored, folders or ())
    source = tags or tags_as_indexed(opened.stored)
    stop = Stop()

    def end(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    read = f", with tags from {source}" if source else ""
    say(f"Watching {', '.join(chosen)}{read}. Ctrl-C ends it.")
    watching = Watching(opened, chosen, tags=source, poll=seconds, stop=stop, say=say, progress=Bars(lines=False))
    for folder, done in watching.rounds():
        for remark in done.remarks if folder else ():
            say(remark)
        words, n_skipped = done.in_words(kept=False), len(done.skipped)
        if words == "nothing new" and not n_skipped and not folder:
            continue
        skipped = f", {n_skipped:,} skipped, listed in {catalogue / 'skipped.jsonl'}" if n_skipped else ""
        where = f"{folder}: " if folder else ""
        show(f"{where}{words}{skipped}; {count_of(len(opened), 'photo')} in the catalogue")
    say("Stopped.")
