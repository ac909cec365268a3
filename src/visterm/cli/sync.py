"""`visterm sync`: read another program's library again, and write predictions there; once, or as a service."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visterm.cli import options
from visterm.cli.connect import KeyFile, say_unusable
from visterm.cli.output import emit, list_skipped, say, show
from visterm.cli.progress import Bars, duration
from visterm.core.errors import ServiceError, StorageError, UserError
from visterm.core.progress import SILENT
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.connectors.push import Pushed
    from visterm.connectors.sync import Round
    from visterm.library.catalogue import Catalogue
    from visterm.store.connected import Connection

EXAMPLES = (
    ("visterm sync catalogue --dry-run", "show what would be written"),
    ("visterm sync catalogue", "write it"),
    ("visterm sync catalogue --undo", "take back all that visterm wrote"),
    ("visterm sync catalogue --every 1h", "as a service"),
)


def sync(
    catalogue: Annotated[Path, options.argument(help="A folder written by `visterm connect`.")],
    precision: Annotated[
        float | None,
        options.which_option(
            help="Write predictions of which this share is expected to be right [default: 0.9].",
            callback=options.in_range("--precision", above=0, below=1),
        ),
    ] = None,
    parent: Annotated[
        str | None,
        options.output_option(help="The tag under which predictions are written [default: visterm].", metavar="TAG"),
    ] = None,
    as_own: Annotated[
        bool, options.output_option("--as-own", help="Write predictions as your own tags, not under a parent tag.")
    ] = False,
    dry_run: Annotated[
        bool, options.output_option("--dry-run", help="Read and learn, and show what would be written there.")
    ] = False,
    undo: Annotated[
        bool, options.output_option("--undo", help="Take back exactly what this catalogue has written there.")
    ] = False,
    every: Annotated[
        str | None, options.output_option(help="Go on as a service, one round each time: 30m, 1h.", metavar="TIME")
    ] = None,
    url: Annotated[
        str | None, options.input_option("--url", help="The server's address, where it has changed.", metavar="URL")
    ] = None,
    key_file: KeyFile = None,
    jobs: options.Jobs = None,
    skipped: options.SkippedFile = None,
    json: options.Json = False,
) -> None:
    """Follow such a library, and write predictions there.

    Fetches new photos, learns where people changed tags, and writes confident predictions under a tag of visterm's own.
    People's tags are never taken away, and what people take off is not suggested again. --parent, --as-own and
    --precision are remembered. The exit code is 3 if photos were skipped.
    """
    seconds = options.seconds_of(every, "--every")
    if seconds is not None and (dry_run or undo):
        raise UserError("--every goes on for ever; --dry-run and --undo are done once. Leave one out.")
    from visterm.connectors.sync import MAKE_ONE, Settings
    from visterm.connectors.sync import sync as one_round
    from visterm.connectors.sync import undo as take_back
    from visterm.core.persist import folder_kind
    from visterm.library.catalogue import Catalogue

    if folder_kind(catalogue) != "catalogue":
        raise StorageError(f"There is no catalogue at {catalogue} that is connected to a library. {MAKE_ONE}")
    opened = Catalogue.load(catalogue, n_jobs=jobs)
    connection = _named(opened, url, key_file)
    settings = Settings.of(connection).changed(
        connection.kind, parent=parent, as_own=as_own, precision=precision
    )  # fmt: skip
    if undo:
        found = take_back(opened, _library(connection), dry_run=dry_run, progress=Bars())
        _show_undone(found, json=json, dry_run=dry_run)
        return
    if seconds is not None:
        _serve(lambda: one_round(opened, _library(connection), settings, progress=SILENT), seconds, json=json)
        return
    done = one_round(opened, _library(connection), settings, dry_run=dry_run, progress=Bars())
    _show_round(done, json=json, dry_run=dry_run)
    raise typer.Exit(list_skipped(done.pulled.skipped, skipped))


def _named(catalogue: Catalogue, url: str | None, key_file: Path | None) -> Connection:
    """Return the connection, with the address and the key file that the command names; these are kept."""
    from visterm.connectors.contract import open_library
    from visterm.connectors.keys import allow
    from visterm.connectors.sync import connection_of

    connection = connection_of(catalogue)
    if url is None and key_file is None:
        return connection
    if url is not None:
        connection = connection._replace(address=open_library(connection.kind, url, "").address)
    if key_file is not None:
        connection = connection._replace(key_file=os.path.abspath(key_file))
    if url is not None:
        allow(connection.address, connection.key_file)
    catalogue.stored.connected.put(connection)
    return connection


def _library(connection: Connection) -> Any:
    from visterm.connectors.sync import library_of

    return library_of(connection)


def _show_round(done: Round, *, json: bool, dry_run: bool) -> None:
    for remark in done.remarks:
        say(remark)
    say_unusable(done.pulled.unusable)
    if done.learned:
        say(f"Learned {done.learned}")
    for reason, n in done.pushed.reasons.most_common(3):
        say(f"Refused {count_of(n, 'tag')}: {reason}")
    _show_changes(done.pushed, json=json, dry_run=dry_run)
    if not dry_run:
        say(f"Done: {done.line()}.")
    if json:
        emit({**done.as_dict(), "totals": _totals(done.pushed)} if dry_run else done.as_dict())


def _show_undone(found: Pushed, *, json: bool, dry_run: bool) -> None:
    _show_changes(found, json=json, dry_run=dry_run)
    for reason, n in found.reasons.most_common(3):
        say(f"Kept {count_of(n, 'tag')} there: {reason}")
    if not dry_run:
        say(f"Took back {count_of(found.taken, 'tag')}.")
    if json:
        emit({"totals": _totals(found)} if dry_run else found.as_dict())


def _show_changes(pushed: Pushed, *, json: bool, dry_run: bool) -> None:
    """List what a dry run would do."""
    if not dry_run:
        return
    for change in pushed.changes:
        if json:
            emit(change.as_dict())
        elif change.confidence is None:
            show(f"{change.name}: - {change.tag}")
        else:
            show(f"{change.name}: + {change.tag} ({change.confidence:.0%})")
    counts = _totals(pushed)
    say(f"Would write {count_of(counts['add'], 'tag')}, and take back {counts['take']:,}; nothing was written.")


def _totals(pushed: Pushed) -> dict[str, int]:
    n_taken = sum(change.confidence is None for change in pushed.changes)
    return {"add": len(pushed.changes) - n_taken, "take": n_taken}


def _serve(work: Callable[[], Round], seconds: float, *, json: bool) -> None:
    """Do a round each time until SIGTERM or Ctrl-C; a server that is away for a while is no end."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            began = time.monotonic()
            at = time.strftime("%Y-%m-%d %H:%M")
            try:
                done = work()
            except (ServiceError, StorageError) as error:
                say(f"{at} {error} Next try in {duration(seconds)}.")
            else:
                say(f"{at} {'; '.join([done.line(), *done.remarks])}")
                if json:
                    emit({"at": at, **done.as_dict()})
            time.sleep(max(0.0, began + seconds - time.monotonic()))
    except KeyboardInterrupt:
        say("Stopped; nothing half-written is left behind.")
    finally:
        signal.signal(signal.SIGTERM, before)
