"""Fetch a network by name from the Hugging Face hub into the cache of the hub's client, in complete files only."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from visterm.core.errors import CorruptFileError, EncoderMismatchError, StorageError, UserError, VistermError
from visterm.core.files import MB
from visterm.core.persist import file_hash
from visterm.core.progress import Say, silent
from visterm.core.wording import json_text
from visterm.core.writing import check_space, storage_error, sync, temporary_beside, write_whole
from visterm.encoders import named

HUB_ORIGIN: Final = "is the hash on the hub"  # Ends the sentence "The expected hash ..."
MAX_UNSTATED_BYTES: Final = 64 * MB  # Maximum size of a file whose size the hub does not state; files in git are small
_ETAG: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # SHA-1 of git, SHA-256 of large files
_VALID_NAME: Final = re.compile(r"(?!\.{1,2}(/|$))[^/\\:\0]+(/(?!\.{1,2}(/|$))[^/\\:\0]+)*")
"""Valid names of files in a repository: no "..", and no absolute path on any system."""


def fetch_network(network: named.Network, *, say: Say = silent) -> list[str]:
    """Fetch the missing files of a network and return the paths of all its files.

    An interrupted download resumes. A file is stored if it is complete and its SHA-256 is that of the table or of the
    first download; if neither is known, the hash is recorded now, with the commit of the repository. huggingface_hub
    finds proxies, mirrors, the cache folder and the user's token (``HTTPS_PROXY``, ``HF_ENDPOINT``, ``HF_HOME``,
    ``HF_TOKEN``); it also draws the progress on a terminal. `say` is called with messages for the user.

    Raises MissingExtraError if huggingface_hub is not installed; UserError if the row names no repository;
    EncoderMismatchError if the file has changed on the hub; StorageError if the hub cannot be reached or refuses;
    DiskError if the disk is full or fails.
    """
    if network.package is not None:
        path = named.required(network, network.image)
        say(f"{network.name} is in {path}, made from the weights of {network.package}. Licence: {network.licence}")
        return [path]
    if network.repository is None:
        raise UserError(f"The files of '{network.name}' are on this machine: its row has no repository.")
    client = _client()
    say(f"{network.name}: {network.size()} from {network.repository}. Licence: {network.licence}")
    paths = []

    for file in network.files():
        expected = named.expected_hash(network, file)
        if named.local_path(network, file) is None:
            origin = "in the table" if file.sha256 else f"in {named.lock_file()}"
            revision = named.revision_of(network)
            page = f"https://huggingface.co/{network.repository}"
            no_revision = (
                f"the repository no longer has the revision {revision}. It was changed: see {page}. If you trust the "
                f"new revision, remove the repository from {named.lock_file()}, and fetch again."
            )
            action = f"{file.file} of {network.repository} could not be fetched"
            with hub_errors(action, page, retry_note=": it resumes where it stopped", no_revision=no_revision):
                try:
                    fetched = fetch_file(network.repository, file.file, revision, expected=expected, origin=origin)
                    _record(network, file, fetched.commit, fetched.sha256)
                except client.errors.EntryNotFoundError:
                    if file is not network.prepared_by:
                        raise
                    say(f"The repository has no {file.file}: photos are prepared as the table says.")
                    continue
        elif expected is None:
            _record(network, file, Path(named.required(network, file)).parts[-1 - len(Path(file.file).parts)])
        path = named.required(network, file)
        trust_note = f". Its SHA-256 was unknown: this file is trusted from now on, see {named.lock_file()}"
        say(f"{file.file} is in {path}{'' if expected else trust_note}")
        paths.append(path)
    return paths


def _client() -> Any:
    """Return the hub's client with its modules imported. Raises MissingExtraError if it is not installed."""
    client = named.hub_client()
    from huggingface_hub import errors, file_download, utils  # noqa: F401  # makes them attributes of the client

    return client


class FetchedFile(NamedTuple):
    """A file of a repository, in the cache of the hub's client."""

    path: Path
    commit: str
    sha256: str


def fetch_file(
    repository: str, name: str, revision: str, *, expected: str | None = None, origin: str = HUB_ORIGIN
) -> FetchedFile:
    """Fetch a file of a repository into the cache of the hub's client.

    ETag and commit become part of a path only if they are hex digits: the client's download accepts any values, so a
    hostile hub or proxy could write anywhere. `expected` is the SHA-256 that the file must have, and `origin` says
    where it is recorded.

    Raises StorageError if the server's answer is invalid, or the name points outside the cache; EncoderMismatchError if
    the file is not the expected one, CorruptFileError if it differs from the hub's hash; and errors of the client.
    """
    client = _client()
    if invalid_names := [text for text in (name, revision) if not _VALID_NAME.fullmatch(text)]:
        raise StorageError(f"{invalid_names[0]!r} is not a name in {repository}; expected no .., \\ and colons.")
    headers = client.utils.build_hf_headers(library_name="visterm")
    url = client.hf_hub_url(repository, name, revision=revision)
    metadata = client.get_hf_file_metadata(url, headers=headers)
    etag, commit = metadata.etag or "", metadata.commit_hash or ""
    is_other = named.COMMIT_HASH.fullmatch(revision) and commit != revision
    if is_other or not (_ETAG.fullmatch(etag) and named.COMMIT_HASH.fullmatch(commit)):
        raise StorageError(
            f"{url} does not answer like a hub: its ETag is {etag[:100]!r} and its commit {commit[:100]!r}; "
            f"expected 40 or 64 hex digits, and {revision if is_other else '40'}. Check HF_ENDPOINT and HTTPS_PROXY."
        )

    file = f"{name} of {repository}"
    if len(etag) == 64:
        _check_hash(file, etag, expected, origin)
        expected, origin = (expected, origin) if expected else (etag, HUB_ORIGIN)

    cache, folder = Path(client.constants.HF_HUB_CACHE), f"models--{repository.replace('/', '--')}"
    blob, lock = cache / folder / "blobs" / etag, cache / ".locks" / folder / f"{etag}.lock"
    path = cache / folder / "snapshots" / commit / name
    for target in (blob, lock, path):
        target.parent.mkdir(parents=True, exist_ok=True)
    with client.utils.WeakFileLock(lock):
        existing = blob if blob.exists() else None  # another program may have fetched it and use it
        part = existing or blob.with_name(f"{etag}.incomplete")
        if existing is None:
            max_bytes = MAX_UNSTATED_BYTES if metadata.size is None else metadata.size
            with _BoundedFile(part.open("ab", buffering=0), file, max_bytes) as stream:
                if stream.tell() > max_bytes:
                    stream.truncate(0)
                if metadata.size is not None:
                    check_space(blob.parent, max_bytes - stream.tell())
                options: dict[str, Any] = {"expected_size": metadata.size, "displayed_filename": name}
                pinned_url = client.hf_hub_url(repository, name, revision=commit)
                client.file_download.http_get(pinned_url, stream, resume_size=stream.tell(), headers=headers, **options)
        sha256 = file_hash(part)
        try:
            _check_hash(file, sha256, expected, origin, existing)
        except StorageError:
            if existing is None:
                part.unlink()
            raise
        sync(part)
        os.replace(part, blob)
        _link(blob, path)
    return FetchedFile(path, commit, sha256)


class _BoundedFile(BufferedWriter):
    """A file that accepts only the number of bytes that the server announced: a body may be endless or compressed."""

    def __init__(self, raw: FileIO, label: str, max_bytes: int) -> None:
        super().__init__(raw)
        self._label, self._limit = label, max_bytes

    def write(self, content: Any) -> int:
        """Write bytes. Raises CorruptFileError, and empties the file, if there are too many."""
        if self.tell() + len(content) > self._limit:
            self.truncate(0)
            raise CorruptFileError(f"{self._label} has more than the expected {self._limit:,} bytes. It was not kept.")
        return super().write(content)


def _link(blob: Path, path: Path) -> None:
    """Put a file of the cache at `path`: as a link or, if links are not available, as a copy."""
    if path.exists() and path.samefile(blob):
        return
    part = temporary_beside(path)
    try:
        part.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # Windows allows links only to administrators
        shutil.copyfile(blob, part)
    os.replace(part, path)


def _check_hash(file: str, sha256: str, expected: str | None, origin: str, existing: Path | None = None) -> None:
    """Raise an error for a file with an unexpected hash; `existing` is its path in the cache, if it already existed.

    The error is CorruptFileError if the hash differs from the hub's, else EncoderMismatchError.
    """
    if expected in (None, sha256):
        return
    note = "It was not kept."
    if existing:
        note = f"It stays in {existing}, because other programs may use it. If damaged, remove it and fetch again."
    message = f"{file} is not the known file: its SHA-256 is {sha256}, but {expected} {origin}. {note}"
    if origin == HUB_ORIGIN:
        raise CorruptFileError(message)
    raise EncoderMismatchError(f"{message} If you trust the new file, change that line, and fetch again.")


def _record(network: named.Network, file: named.NetworkFile, commit: str, sha256: str | None = None) -> None:
    previous = named.locked(network)
    sums = {**previous.get("sha256", {}), file.file: sha256 or file_hash(named.required(network, file))}
    entry = {"revision": previous.get("revision", commit), "sha256": sums}
    named.lock_file().parent.mkdir(parents=True, exist_ok=True)
    entries = named.read_lock() | {network.repository: entry}
    write_whole(named.lock_file(), json_text(entries, indent=1, sort_keys=True).encode())


@contextmanager
def hub_errors(action: str, page: str, *, retry_note: str = "", no_revision: str = "") -> Iterator[None]:
    """Turn errors of the hub's client into visterm errors: `action` says what failed, `page` links the repository.

    `retry_note` is appended to the advice to repeat the command; `no_revision` is the advice for a missing revision.
    """
    errors = _client().errors
    refusals = {  # GatedRepoError is a subclass of RepositoryNotFoundError
        errors.GatedRepoError: (f"accept its licence first, at {page}, and then log in: hf auth login"),
        errors.RevisionNotFoundError: no_revision or f"the repository has no such revision. See {page}.",
        errors.RepositoryNotFoundError: "there is no such repository, or it is private. Log in: hf auth login",
        errors.EntryNotFoundError: f"the repository has no such file. See {page}.",
        errors.OfflineModeIsEnabled: (
            "the hub's client is in offline mode. Unset HF_HUB_OFFLINE, and run the command again; or fetch it on "
            "another machine, and copy its folder HF_HOME to this machine."
        ),
    }
    try:
        yield
    except VistermError:
        raise
    except Exception as error:  # also of httpx, httpx2 or requests, depending on the client's version
        if refusal := next((text for kind, text in refusals.items() if isinstance(error, kind)), None):
            raise StorageError(f"{action}: {refusal}") from error
        disk_error = storage_error(error)
        if disk_error is not None:
            raise disk_error from error
        reason = re.sub(r"\[Errno -?\d+\] ", "", (str(error).strip() or type(error).__name__).splitlines()[0])
        advice = (
            "This machine has no network connection, or the proxy (HTTPS_PROXY) or the mirror (HF_ENDPOINT) is wrong. "
            "Correct this, and run the command again"
            if is_unreached(error)
            else "Check proxies (HTTPS_PROXY) and the mirror (HF_ENDPOINT), and run the command again"
        )
        raise StorageError(f"{action}: {reason.rstrip('.')}. {advice}{retry_note}.") from error


def is_unreached(error: BaseException) -> bool:
    """Return whether the hub's client could not connect to the hub, or is in offline mode."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return not kinds.isdisjoint({"ConnectError", "ConnectTimeout", "ConnectionError"})
