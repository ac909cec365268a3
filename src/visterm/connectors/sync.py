"""Sync with another program's library: read changes, learn from people's tags, write confident predictions. Undo."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from visterm.connectors.contract import RemoteLibrary, connector_class, open_library
from visterm.connectors.keys import check_allowed, read_key
from visterm.connectors.pull import (
    PullResult,
    fetch_previews,
    find_deleted,
    folder_of,
    ingest,
    preview_file,
    read_changes,
)
from visterm.connectors.push import PushResult, has_cutoffs, push, recover, remove_all
from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.wording import count_of
from visterm.library.catalogue import Catalogue
from visterm.library.export.items import branch_path
from visterm.library.learned import outcome_text
from visterm.store.connected import PARENT, ProgramConnection
from visterm.store.database import as_text, now

DEFAULT_PRECISION = 0.9
CONNECT_ADVICE = (
    "Make a catalogue of one with: visterm connect immich URL --key-file FILE -o CATALOGUE (or photoprism in place of "
    "immich)"
)


class PushSettings(NamedTuple):
    """How predictions are written; stored in the catalogue for later rounds."""

    parent: str | None = PARENT  # Parent of all written tags; None: like the user's own tags
    precision: float = DEFAULT_PRECISION  # Expected share of correct tags among those written
    k: int = 0  # Maximum number of predictions per photo; 0: no limit

    def changed(
        self, kind: str, *, parent: str | None = None, precision: float | None = None, k: int | None = None
    ) -> PushSettings:
        """Return changed settings; None keeps a setting, and an empty `parent` removes the parent.

        Raises UserError if the parent is not a valid tag, or the program has no child tags.
        """
        program = connector_class(kind)
        if parent is not None and not program.nested:
            problem = f"{program.title} has no tags under others."
            raise UserError(problem, setting="parent", value=parent, advice="Leave `parent` out.")
        parent = "/".join(branch_path(parent)) if parent else parent
        return PushSettings(
            None if not program.nested or parent == "" else parent or self.parent,
            self.precision if precision is None else precision,
            self.k if k is None else k,
        )


@dataclass(slots=True)
class SyncRound:
    """The result of one round."""

    pulled: PullResult = field(default_factory=PullResult)
    pushed: PushResult = field(default_factory=PushResult)
    learned: str | None = None  # Summary of the training; None: not trained
    remarks: list[str] = field(default_factory=list)  # Notes for people, one line each

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON data."""
        return {**self.pulled.as_dict(), **self.pushed.as_dict(), "learned": self.learned, "remarks": self.remarks}

    def line(self) -> str:
        """Summarise the result in one line."""
        counts = {
            ("photo", "new"): self.pulled.new, ("photo", "changed"): self.pulled.changed,
            ("photo", "deleted"): self.pulled.deleted, ("photo", "skipped"): len(self.pulled.skipped),
            ("photo", "with tags that people changed"): self.pulled.retagged,
            ("tag", "taken off by people"): self.pulled.taken_off, ("tag", "written"): self.pushed.written,
            ("tag", "taken back"): self.pushed.taken, ("tag", "refused"): self.pushed.refused,
            ("tag", "left for the next round"): self.pushed.waiting,
        }  # fmt: skip
        parts = [f"{count_of(count, noun)} {state}" for (noun, state), count in counts.items() if count]
        return ", ".join([*parts, *(["learned again"] if self.learned else [])]) or "nothing new"


def connection_of(catalogue: Catalogue) -> ProgramConnection:
    """Return the connection of a catalogue. Raises StorageError if it has none."""
    connection = catalogue.stored.connected.get()
    if connection is None:
        raise StorageError(f"{catalogue.stored.folder} is not connected to a library. {CONNECT_ADVICE}")
    return connection


def library_of(connection: ProgramConnection, say: Say = silent) -> RemoteLibrary:
    """Open the library of a connection with its key; `say` is called with messages while waiting for the server.

    Raises UserError if the key cannot be read, or this user has not allowed it for the server.
    """
    check_allowed(connection.address, connection.key_file)
    file = None if connection.key_file is None else Path(connection.key_file)
    key = read_key(file, connector_class(connection.kind).key_variable)
    return open_library(connection.kind, connection.address, key, say)


def sync(
    catalogue: Catalogue,
    library: RemoteLibrary,
    settings: PushSettings,
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> SyncRound:
    """Do one round; a `dry_run` only lists the changes that it would make in the other program.

    A `dry_run` still reads and learns, so that it lists the predictions of the newest run. A killed process loses
    nothing: the next round continues. Raises ServiceError if the server is unreachable.
    """
    stored = catalogue.stored
    connection_of(catalogue)

    with stored.writing():  # only one round at a time may write tags
        recover(stored.connected, library)
        result = SyncRound(pull(catalogue, library, progress))
        _learn(catalogue, result, progress)
        if not dry_run:
            stored.connected.update(settings=settings._asdict())
        if not has_cutoffs(catalogue):
            result.remarks.append(
                "No predictions are written: the run knows no confidences yet. Tag at least 20 photos, or review some."
            )
        result.pushed = push(catalogue, library, **settings._asdict(), dry_run=dry_run, progress=progress)
        if has_cutoffs(catalogue) and not result.pushed.wanted and not result.pushed.young:
            result.remarks.append(
                f"No prediction is sure enough to be written: of each tag, {settings.precision:.0%} are to be right. "
                f"A lower precision writes more. visterm info {stored.folder} says how many tags it may give a photo."
            )
        if result.pushed.young:
            result.remarks.append(recent_photos_remark(library.title, result.pushed.young))
        if result.pushed.unwritable_photos:
            result.remarks.append(
                f"{library.title} keeps no tags on {count_of(result.pushed.unwritable_photos, 'photo')} (their files "
                f"can't be written): left alone, and {count_of(result.pushed.left_alone, 'tag')} with them. One photo "
                "is tried again each day."
            )
        if not dry_run:
            stored.connected.update(synced=now())
            stored.history.note("sync", **{name: n for name, n in result.as_dict().items() if isinstance(n, int) and n})
    return result


def recent_photos_remark(title: str, n: int) -> str:
    """Return the remark on `n` photos that were added in the last five minutes."""
    return f"{count_of(n, 'photo')} came in the last five minutes: {title} would lose tags, so they wait."


def undo(
    catalogue: Catalogue, library: RemoteLibrary, *, dry_run: bool = False, progress: Progress = SILENT
) -> PushResult:
    """Remove the tags that visterm wrote, by its log, until none is left or the server refuses to remove the others.

    Remaining tags are counted as refused or waiting, with reasons.
    """
    connection_of(catalogue)
    with catalogue.stored.writing():
        recover(catalogue.stored.connected, library)
        pushed = remove_all(catalogue, library, dry_run=dry_run, progress=progress)
        if not dry_run:
            catalogue.stored.history.note("undo sync", **pushed.as_dict())
    return pushed


def pull(catalogue: Catalogue, library: RemoteLibrary, progress: Progress = SILENT) -> PullResult:
    """Update the catalogue from the library. Tags count as new for learning only after the first round."""
    stored, learn = catalogue.stored, connection_of(catalogue).synced is not None
    catalogue.refresh()
    folder = folder_of(catalogue)
    previews = stored.database.rows(
        "SELECT images.id, p.id, path FROM remote_photos AS p JOIN images ON images.id = image_id "
        "WHERE images.state = 'here' ORDER BY images.id"
    )
    files = ((str(preview_file(folder, photo_id)), path, image_id) for image_id, photo_id, path in previews)
    stored.database.write_many(  # if the catalogue's folder was moved
        "UPDATE images SET path = CAST(? AS TEXT), folder = CAST(? AS TEXT) WHERE id = ?",
        [(as_text(file), as_text(os.path.dirname(file)), image_id) for file, path, image_id in files if file != path],
    )

    read_changes(stored.connected, library, progress)
    deleted = find_deleted(catalogue, library, progress)
    skipped = fetch_previews(stored.connected, library, folder, progress)
    pulled = ingest(catalogue, progress, learn=learn)
    pulled.deleted, pulled.skipped = deleted, [*skipped, *pulled.skipped]
    return pulled


def _learn(catalogue: Catalogue, result: SyncRound, progress: Progress) -> None:
    """Train once if people changed tags, unless a killed process did: then the current run isn't `learn_from`."""
    connected, run = catalogue.stored.connected, catalogue.stored.origin.fingerprint
    learn_from = connection_of(catalogue).learn_from
    if learn_from is None:
        return
    if learn_from == run:
        try:
            learned = catalogue.learn(cautious=True, by_itself=True, progress=progress)
        except (DataError, UserError) as error:
            result.remarks.append(f"Nothing was learned: {error}")
            return
        assert catalogue.stored.folder is not None
        result.learned = outcome_text(learned, catalogue.stored.folder)
    connected.update(learn_from=None)
