"""`visterm connect` and `visterm sync`: make a catalogue of another program's library, and write predictions back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import visterm
from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import Bars, JsonObject, emit, percent, say, say_skipped, show
from visterm.core.errors import ServiceError, StorageError, UserError
from visterm.core.progress import SILENT
from visterm.core.wording import count_of

with imported_when_used():
    from visterm.connectors import connect as connecting
    from visterm.connectors import contract, keys, push
    from visterm.connectors import sync as syncing
    from visterm.core import persist
    from visterm.learning import fit_request

if TYPE_CHECKING:
    from visterm.connectors.push import PushResult, TagChange
    from visterm.connectors.sync import SyncRound
    from visterm.store.connected import ProgramConnection


TAGS_NOT_KEPT_CODE = 4  # Exit code of --check if the server does not keep the tags

EXAMPLES = (
    ("visterm connect immich http://nas:2283 --key-file key --check", "what does this server keep?"),
    ("visterm connect immich http://nas:2283 --key-file key -o catalogue", "learn its tags"),
    ("visterm connect immich http://nas:2283 --words words.txt -o catalogue", "no tags yet"),
    ("visterm connect immich http://nas:2283 --run run -o catalogue", "with a run"),
    ("visterm sync catalogue --dry-run", "next: what to write?"),
)

KeyFile = Annotated[
    Path | None,
    options.input_option(
        "--key-file",
        help="The file with the server's API key; nobody else may read it (chmod 600) [default: the environment "
        "variable IMMICH_API_KEY or PHOTOPRISM_TOKEN].",
        metavar="FILE",
    ),
]
TAGS_LOST_OR_LEFT_CODE = 4  # Of a sync if the server lost tags, and of --undo if some could not be removed


def connect(
    program: Annotated[str, options.argument(help="The program: immich or photoprism.")],
    url: Annotated[str, options.argument(help="The address of its server, such as http://nas:2283.")],
    out: Annotated[Path | None, options.out_option(help="The catalogue to make or update, a folder.")] = None,
    key_file: KeyFile = None,
    check: Annotated[
        bool,
        options.output_option(
            "--check",
            help="Only test whether this server keeps tags: write a test tag to one photo of each external library and "
            "of the uploads, read it back, and remove it.",
        ),
    ] = False,
    run: Annotated[
        Path | None,
        options.model_option("--run", help="Use an existing run instead of learning one from the library's tags."),
    ] = None,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: options.ModelName = None,
    words: options.Words = None,
) -> None:
    """Make a catalogue of a library in Immich or PhotoPrism.

    Fetches a preview of each photo, learns the tags that people gave, and indexes the photos. It only reads (except for
    --check); `visterm sync` writes. If no photo has a tag yet, name words to look for (--words). After a stop, run it
    again. The exit code is 3 if photos were skipped, and 4 if --check finds that the server keeps no tags.
    """
    key = keys.read_key(key_file, contract.connector_class(program).key_variable)
    library = contract.open_library(program, url, key, say)
    if check:
        lines, is_kept = connecting.try_server(library)
        for line in lines:
            show(line)
        raise typer.Exit(0 if is_kept else TAGS_NOT_KEPT_CODE)

    if out is None:
        raise UserError("Missing catalogue folder: pass -o CATALOGUE (or --check to try the server first).")
    request = fit_request.FitRequest(
        encoder=encoder, encoder_params=options.settings(encoder_set, "--encoder-set"), model=model, words=words or (),
    )  # fmt: skip
    say(f"{library.check()} at {library.address}")
    keys.allow(library.address, None if key_file is None else os.path.abspath(key_file))
    tagger = None if run is None else visterm.Tagger.load(run)
    catalogue, pulled = connecting.connect(
        out, library, key_file=key_file, run=tagger, request=request, say=say, progress=Bars()
    )
    say_unusable(pulled.unusable)
    say(f"Indexed {count_of(len(catalogue), 'photo')} of {library.title}. The catalogue is in {out}.")
    if n_young := catalogue.stored.connected.count_not_ready():
        say(syncing.recent_photos_remark(library.title, n_young))
    say(f"Next: visterm sync {out} --dry-run")
    raise typer.Exit(say_skipped(pulled.skipped))


def say_unusable(unusable: dict[str, int]) -> None:
    """Report the tags of the library that are not valid in a catalogue."""
    if unusable:
        examples = ", ".join(repr(tag[:40]) for tag in list(unusable)[:3])
        say(f"Left out {count_of(len(unusable), 'tag')} that are not valid in a catalogue: {examples}")


SYNC_EXAMPLES = (
    ("visterm sync catalogue --dry-run", "show what would be written"),
    ("visterm sync catalogue --precision 0.8", "write it; more tags, of which more are wrong"),
    ("visterm sync catalogue --every 1h", "as a service"),
    ("visterm sync catalogue --undo", "take back all that visterm wrote"),
)


def sync(
    catalogue: Annotated[Path, options.argument(help="A folder written by `visterm connect`.")],
    precision: Annotated[
        float | None,
        options.precision_option(
            help="Write predictions of which this share should be right, over all photos of a tag [default: 0.9]."
        ),
    ] = None,
    k: Annotated[
        int | None, options.which_option("-k", min=0, help="Maximum predictions per photo; 0: no limit [default: 0].")
    ] = None,
    parent: Annotated[
        str | None,
        options.output_option(
            help="In Immich: the tag under which predictions are written; '' writes them as your own tags [default: "
            "visterm].",
            metavar="TAG",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        options.output_option(
            "--dry-run",
            help="Change nothing on the server, and show what would be written. The catalogue still reads and learns, "
            "and may use a new run.",
        ),
    ] = False,
    undo: Annotated[
        bool,
        options.output_option(
            "--undo", help="Take back exactly what this catalogue has written. The next round would write it again."
        ),
    ] = False,
    every: Annotated[
        str | None, options.output_option(help="Run as a service, and do a round this often: 30m, 1h.", metavar="TIME")
    ] = None,
    url: Annotated[
        str | None, options.input_option("--url", help="The server's address, if it has changed.", metavar="URL")
    ] = None,
    key_file: KeyFile = None,
    json: options.Json = False,
) -> None:
    """Follow a connected library, and write predictions into it.

    One round reads new and changed photos, learns again if people changed tags, and writes predictions that are sure
    enough. People's tags are never removed, and tags that people remove are not suggested again. The catalogue keeps
    --precision, -k and --parent for the next rounds. The exit code is 3 if photos were skipped, and 4 if the server
    lost tags, or --undo had to leave some.
    """
    seconds = options.seconds_of(every, "--every")
    if seconds is not None and (dry_run or undo):
        raise UserError("--every runs until you stop it; --dry-run and --undo run once. Leave one out.")

    if persist.folder_kind(catalogue) != "catalogue":
        problem = f"There is no catalogue at {catalogue} that is connected to a library."
        raise StorageError(f"{problem} {syncing.CONNECT_ADVICE}")
    opened = visterm.Catalogue.load(catalogue)
    connection = _reconnect(opened, url, key_file)
    printer = RoundPrinter(connection.title, json=json, dry_run=dry_run)
    if undo:
        pushed = syncing.undo(opened, syncing.library_of(connection, say), dry_run=dry_run, progress=Bars())
        printer.undo(pushed, catalogue)
        raise typer.Exit(TAGS_LOST_OR_LEFT_CODE if pushed.refused or pushed.waiting else 0)

    old_settings = syncing.PushSettings(**connection.settings)
    settings = old_settings.changed(connection.kind, parent=parent, precision=precision, k=k)
    settings_note = ""
    if settings != old_settings:
        settings_note = " (not remembered by a dry run)" if dry_run else ", and in the next rounds, too"
    elif settings != syncing.PushSettings().changed(connection.kind):
        settings_note = ", as remembered from an earlier round"

    predictions_text = connection._replace(settings=settings._asdict()).writes()
    say(f"{connection.title} gets {predictions_text}{settings_note}.")
    if seconds is not None:
        serve_rounds(
            lambda: syncing.sync(opened, syncing.library_of(connection, say), settings, progress=SILENT),
            seconds,
            printer,
        )
        return
    result = syncing.sync(opened, syncing.library_of(connection, say), settings, dry_run=dry_run, progress=Bars())
    printer.round(result, settings.precision)
    lost_code = TAGS_LOST_OR_LEFT_CODE if result.pushed.reasons[push.LOST_REASON] else 0
    raise typer.Exit(say_skipped(result.pulled.skipped) or lost_code)


def _reconnect(catalogue: visterm.Catalogue, url: str | None, key_file: Path | None) -> ProgramConnection:
    """Return the connection with a new address or key file, which is stored after the server has accepted it."""
    connection = syncing.connection_of(catalogue)
    if url is None and key_file is None:
        return connection
    if url is not None:
        connection = connection._replace(address=contract.open_library(connection.kind, url, "").address)
    if key_file is not None:
        if url is None:
            keys.check_allowed(connection.address, connection.key_file)  # the user must have named this server earlier
        connection = connection._replace(key_file=os.path.abspath(key_file))

    file = None if connection.key_file is None else Path(connection.key_file)
    key = keys.read_key(file, contract.connector_class(connection.kind).key_variable)
    contract.open_library(connection.kind, connection.address, key, say).check()
    keys.allow(connection.address, connection.key_file)
    catalogue.stored.connected.put(connection)
    return connection


class RoundPrinter:
    """Prints the results of rounds: for people one line per tag in a dry run; as JSON each change and the counts."""

    def __init__(self, title: str, *, json: bool, dry_run: bool) -> None:
        self._title, self._json, self._dry_run = title, json, dry_run

    def round(self, result: SyncRound, precision: float) -> None:
        """Print the result of a single round."""
        for remark in result.remarks:
            say(remark)
        say_unusable(result.pulled.unusable)
        if result.learned:
            say(f"Learned {result.learned}")
        for reason, n in result.pushed.reasons.most_common(3):
            say(f"Not written or taken back, {count_of(n, 'tag')}: {reason}")
        self.show(result.pushed, result.as_dict())
        if self._dry_run:
            explain_chances(result.pushed.changes, precision)
        else:
            say(f"Done: {result.line()}.")

    def undo(self, pushed: PushResult, catalogue: Path) -> None:
        """Print the tags that were removed again."""
        for reason, n in pushed.reasons.most_common(3):
            say(f"Left {count_of(n, 'tag')} in the library: {reason}. Try --undo again later.")
        self.show(pushed, pushed.as_dict())
        if not self._dry_run:
            is_immich = self._title == "Immich"
            empty_note = " Its empty tags go in Immich's nightly job." if is_immich and pushed.taken else ""
            say(
                f"Took back {count_of(pushed.taken, 'tag')}.{empty_note} The next visterm sync {catalogue} would write "
                "them again: stop the service if there is one. For fewer tags, raise --precision or set -k."
            )

    def show(self, pushed: PushResult, counts: JsonObject, **times: str) -> None:
        """Print the (planned) changes: as JSON each change and the counts, otherwise only the tags of a dry run."""
        if self._json:
            for change in pushed.changes:
                emit(change.as_dict())
            emit({"dry_run": self._dry_run, **times, **counts})
        elif self._dry_run:
            for line in lines_of_tags(pushed.changes):
                show(line)
        if self._dry_run:
            say(pushed.summary(self._title, dry_run=True))


def lines_of_tags(changes: Iterable[TagChange]) -> list[str]:
    """Return one line per tag, the most frequent first: ``+ visterm/cat: 12 photos, 97% to 61%``."""
    confidences_of: dict[tuple[bool, str], list[float]] = {}
    for change in changes:
        confidences_of.setdefault((change.confidence is not None, change.tag), []).append(change.confidence or 0.0)
    lines = []
    for (is_written, tag), confidences in sorted(confidences_of.items(), key=lambda item: (-len(item[1]), item[0])):
        line = f"{'+' if is_written else '-'} {tag}: {count_of(len(confidences), 'photo')}"
        high, low = percent(max(confidences)), percent(min(confidences))
        lines.append(line + (f", {high if high == low else f'{high} to {low}'}" if is_written else ""))
    return lines


def explain_chances(changes: Iterable[TagChange], precision: float) -> None:
    """Explain why some predictions have a lower confidence than the precision, if there are any."""
    lowest = min((change.confidence for change in changes if change.confidence is not None), default=1.0)
    if lowest < precision:
        say(
            f"--precision {precision:g} is the share that should be right of all photos with a tag, as on photos held "
            f"out from learning. So a single photo may be less sure, here down to {percent(lowest)}."
        )


def serve_rounds(work: Callable[[], SyncRound], seconds: float, printer: RoundPrinter) -> None:
    """Call `work` every `seconds` until SIGTERM or Ctrl-C; if the server cannot be reached, try again next time."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    old_handler = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            start, began_at = time.monotonic(), datetime.now().astimezone()
            result: SyncRound | ServiceError | StorageError
            try:
                result = work()
            except (ServiceError, StorageError) as error:
                result = error
            wait = max(0.0, start + seconds - time.monotonic())
            next_start = datetime.now().astimezone() + timedelta(seconds=wait)
            same_day = next_start.date() == began_at.date()
            next_at = f"{next_start:%H:%M %Z}" if same_day else f"{next_start:%Y-%m-%d %H:%M %Z}"
            if isinstance(result, Exception):
                say(f"{began_at:%Y-%m-%d %H:%M %Z} {result} Next try at {next_at}.")
            else:
                remarks = [remark.rstrip(".") for remark in result.remarks]
                say(f"{began_at:%Y-%m-%d %H:%M %Z} {'; '.join([result.line(), *remarks])}; next round at {next_at}")
                times = {"at": began_at.isoformat(timespec="seconds"), "next": next_start.isoformat(timespec="seconds")}
                printer.show(result.pushed, result.as_dict(), **times)
            time.sleep(wait)
    except KeyboardInterrupt:
        say("Stopped; nothing half-written is left behind.")
    finally:
        signal.signal(signal.SIGTERM, old_handler)
