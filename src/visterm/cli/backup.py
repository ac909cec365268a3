"""`visterm backup` and `restore`: one file with all that people did in a catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, emit, say
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.library import backup as backups

EXAMPLES = (
    ("visterm backup catalogue photos.zip", "while the service runs"),
    ("visterm restore photos.zip catalogue", "on the same or another machine"),
)
RESTORE_EXAMPLES = (("visterm restore photos.zip catalogue", "compute its rows again from the photos"),)


def backup(
    catalogue: options.CatalogueFolder,
    file: Annotated[Path, options.argument(help="The file to write, a .zip.")],
    overwrite: Annotated[bool, options.output_option("--overwrite", help="Replace an existing file.")] = False,
    json: options.Json = False,
) -> None:
    """Write a backup of a catalogue into one file.

    It has tags, judgements, runs and history, but no photos, and not what can be computed from them. The catalogue may
    be in use.
    """
    written = backups.back_up(catalogue, file, overwrite=options.may_replace(file, overwrite))
    if json:
        emit({"file": str(file), "images": written.images, "runs": written.runs, "bytes": written.bytes})
    size = f"{written.bytes / 1e6:.1f} MB. Every file was checked."
    say(f"Wrote {file}: {count_of(written.images, 'photo')}, {count_of(written.runs, 'run')}, {size}")


def restore(
    file: Annotated[Path, options.argument(help="A file that `visterm backup` wrote.")],
    catalogue: Annotated[Path, options.argument(help="The catalogue to make, a new folder.")],
    json: options.Json = False,
) -> None:
    """Make a catalogue from a backup.

    Its rows are computed again from the photos. After a kill, run the same command again. If photos have moved, run
    `visterm index` on their folder afterwards.
    """
    restored = backups.restore(file, catalogue, progress=Bars())
    if json:
        emit({"catalogue": str(catalogue), **restored._asdict()})
    say(f"Restored {catalogue}: {count_of(restored.images, 'photo')}, {count_of(restored.rows, 'row')} computed.")
    if restored.missing:
        say(
            f"Changed, or no longer where they were: {count_of(restored.missing, 'photo')}. If they moved unchanged: "
            f"visterm index {catalogue} FOLDER"
        )
