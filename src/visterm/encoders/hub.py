"""Fetching a network by name: from the Hugging Face hub into its cache on this machine, whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visterm.core.errors import EncoderMismatchError, MissingExtraError, StorageError, UserError, VistermError
from visterm.core.jsonlines import json_text
from visterm.core.persist import file_hash
from visterm.core.progress import Say, silent
from visterm.core.writing import check_space, storage_error, sync, write_whole
from visterm.encoders.networks import (
    Network,
    NetworkFile,
    expected_hash,
    lock_file,
    locked,
    place_of,
    read_lock,
    required,
    revision_of,
)


def fetch_network(network: Network, *, text: bool = True, say: Say = silent) -> list[str]:
    """Fetch the files of a network that are not on this machine, and return where all of them are.

    What was killed goes on where it stopped. A file is put in its place when it is whole and its SHA-256 is that of the
    table, or of the first download; where neither is known, it is recorded now, with the commit of the repository.
    Proxies, mirrors, the place of the cache and the user's token are as huggingface_hub finds them (``HTTPS_PROXY``,
    ``HF_ENDPOINT``, ``HF_HOME``, ``HF_TOKEN``); it also draws the progress on a terminal. With `text`, the text tower
    comes, too. `say` takes lines for people.

    Raises MissingExtraError if huggingface_hub is not installed; UserError if the row names no repository;
    EncoderMismatchError if the hub has another file than before; StorageError if it cannot be reached or refuses, and
    DiskError if the disk does.
    """
    if network.repository is None:
        raise UserError(
            f"The files of '{network.name}' are on this machine: its row names no repository to fetch from."
        )
    try:
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        raise MissingExtraError(
            "Fetching networks needs the package 'huggingface_hub'. Install it with: pip install 'visterm[onnx]'"
        ) from error
    say(f"{network.name}: {network.size(text=text)} from {network.repository}. Licence: {network.licence}")
    places = []
    for file in network.files(text=text):
        if place_of(network, file) is None:
            with _refusals(network, file):
                try:
                    _fetch(network, file)
                except EntryNotFoundError:
                    if file is not network.prepared_by:
                        raise
                    say(f"The repository has no {file.file}: photos are prepared as the table says.")
                    continue
        elif expected_hash(network, file) is None:
            _record(network, file, Path(required(network, file)).parts[-1 - len(Path(file.file).parts)])
        place = required(network, file)
        say(f"{file.file} is in {place}")
        places.append(place)
    return places


def _fetch(network: Network, file: NetworkFile) -> None:
    """Fetch one file into the hub's cache."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers

    repository = network.repository or ""
    headers = build_hf_headers(library_name="visterm")
    url = hf_hub_url(repository, file.file, revision=revision_of(network))
    found = get_hf_file_metadata(url, headers=headers)
    if found.etag is None or found.commit_hash is None:
        raise StorageError(
            f"{url} is not answered as a hub does: no ETag, or no commit. Check HF_ENDPOINT and proxies."
        )
    stated = found.etag if re.fullmatch("[0-9a-f]{64}", found.etag) else None
    expected = expected_hash(network, file)
    if stated is not None:
        _check(network, file, expected, stated)
    folder = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "blobs"
    folder.mkdir(parents=True, exist_ok=True)
    blob = folder / found.etag
    lock = Path(constants.HF_HUB_CACHE) / ".locks" / folder.parent.name / f"{found.etag}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        shared = blob if blob.exists() else None  # another program may have fetched it, and use it
        part = shared or blob.with_name(f"{blob.name}.incomplete")
        if shared is None:
            with part.open("ab") as stream:
                if found.size is not None:
                    if stream.tell() > found.size:
                        stream.truncate(0)
                    check_space(folder, found.size - stream.tell())
                http_get(
                    url,
                    stream,
                    resume_size=stream.tell(),
                    headers=headers,
                    expected_size=found.size,
                    displayed_filename=file.file,
                )
        sha256 = file_hash(part)
        try:
            _check(network, file, expected or stated, sha256, shared)
        except EncoderMismatchError:
            if shared is None:
                part.unlink()
            raise
        sync(part)
        os.replace(part, blob)
    _record(network, file, found.commit_hash, sha256)
    hf_hub_download(repository, file.file, revision=found.commit_hash)  # which finds the file, and links to it


def _check(network: Network, file: NetworkFile, expected: str | None, sha256: str, shared: Path | None = None) -> None:
    """Refuse a file of another hash than expected; `shared` is where it is in the cache, if it was there before."""
    if expected in (None, sha256):
        return
    known = (
        "in the table"
        if file.sha256 == expected
        else "is what the hub says"
        if expected_hash(network, file) is None
        else f"in {lock_file()}"
    )
    left = (
        f"It was left in {shared}, as other programs may use it. If it is damaged, remove it, and fetch again."
        if shared
        else "It was not kept."
    )
    trust = "" if known == "is what the hub says" else " If you trust the new one, change that line, and fetch again."
    raise EncoderMismatchError(
        f"{file.file} of {network.repository} is not the file that is known: its SHA-256 is {sha256}, but "
        f"{expected} {known}. {left}{trust}"
    )


def _record(network: Network, file: NetworkFile, commit: str, sha256: str | None = None) -> None:
    """Record the hash of a file and its commit in the user's lock file."""
    before = locked(network)
    sums: dict[str, Any] = before.get("sha256", {})
    sums = {**sums, file.file: sha256 or file_hash(required(network, file))}
    entry = {"revision": before.get("revision", commit), "sha256": sums}
    lock_file().parent.mkdir(parents=True, exist_ok=True)
    write_whole(lock_file(), json_text({**read_lock(), network.repository: entry}, indent=1, sort_keys=True).encode())


@contextmanager
def _refusals(network: Network, file: NetworkFile) -> Iterator[None]:
    """Turn what the hub, the way to it or the disk refuses into errors of ours."""
    from huggingface_hub import errors

    page = f"https://huggingface.co/{network.repository}"
    what = f"{file.file} of {network.repository} could not be fetched"
    with hub_errors(what, page, again=": it goes on where it stopped"):
        try:
            yield
        except errors.RevisionNotFoundError as error:
            raise StorageError(
                f"{what}: the repository has no revision {revision_of(network)} any more. It was changed: look at "
                f"{page}. If you trust the new one, remove the repository from {lock_file()}, and fetch again."
            ) from error
        except errors.EntryNotFoundError as error:
            raise StorageError(
                f"{what}: the repository has no such file. Look at {page}, and add a row of your own."
            ) from error


@contextmanager
def hub_errors(what: str, page: str, *, again: str = "") -> Iterator[None]:
    """Turn errors of the hub's client into errors of ours: `what` could not be done, of the repository at `page`.

    `again` ends the advice to run the command once more.
    """
    from huggingface_hub import errors

    try:
        yield
    except VistermError:
        raise
    except errors.GatedRepoError as error:
        raise StorageError(
            f"{what}: who fetches it must accept its licence first, at {page}, and then log in: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise StorageError(f"{what}: the repository has no such revision. Look at {page}.") from error
    except errors.RepositoryNotFoundError as error:
        raise StorageError(f"{what}: there is no such repository, or it is private. Log in: hf auth login") from error
    except errors.EntryNotFoundError as error:
        raise StorageError(f"{what}: the repository has no such file. Look at {page}.") from error
    except errors.OfflineModeIsEnabled as error:
        raise StorageError(
            f"{what}: the hub's client is in offline mode. Unset HF_HUB_OFFLINE, and run the "
            "command again; or fetch it on another machine, and copy its folder HF_HOME here."
        ) from error
    except Exception as error:  # of httpx, httpx2 or requests, by the version of the hub's client
        ours = storage_error(error)
        if ours is not None:
            raise ours from error
        reason = re.sub(r"\[Errno -?\d+\] ", "", (str(error).strip() or type(error).__name__).splitlines()[0])
        unreached = {"ConnectError", "ConnectTimeout", "ConnectionError"} & {k.__name__ for k in type(error).__mro__}
        advice = (
            "This machine has no network connection, or the proxy (HTTPS_PROXY) or the mirror (HF_ENDPOINT) is wrong. "
            "Run the command again when that is mended"
            if unreached
            else "Check proxies (HTTPS_PROXY) and the mirror (HF_ENDPOINT), and run the command again"
        )
        raise StorageError(f"{what}: {reason.rstrip('.')}. {advice}{again}.") from error
