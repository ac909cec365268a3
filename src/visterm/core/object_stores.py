"""Object stores reached by fsspec, and what goes wrong there as errors that say what to do.

A program that a person starts opens only the stores that this person named (`only_named_stores`): a catalogue that
somebody else made, or a list of photos, could name any address, also of hosts that only this machine can reach.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from visterm.core.errors import MissingExtraError, StorageError, UserError, VistermError

NAMED = "VISTERM_STORES"
"""The environment variable that lists the stores that may be opened (``s3://bucket``), also by processes that are
started; where there is none, all may: in Python whoever writes the program names them."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,]+", re.IGNORECASE)


@contextmanager
def only_named_stores(words: Iterable[str]) -> Iterator[None]:
    """Open no stores but those of the addresses in some words, such as a command line, and of the environment."""
    before = os.environ.get(NAMED)
    found = [address for word in (*words, before or "") for address in _ADDRESS.findall(word)]
    os.environ[NAMED] = " ".join(dict.fromkeys(map(_named_as, found)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[NAMED]
        else:
            os.environ[NAMED] = before


def check_named(address: str) -> None:
    """Refuse an address in a store that nobody has named.

    Raises UserError if so, or it is a chain of addresses, in which one store opens another.
    """
    if os.environ.get(NAMED) is None:
        return
    if "::" in address:
        raise UserError(f"{address} is a chain of addresses, which is not opened. Use an address such as s3://bucket.")
    if not is_named(address):
        raise UserError(
            f"{address} lies in a store that was not named when visterm was started, so it is not opened: a catalogue, "
            f"a list or a run may name any. If you trust it, name it: {NAMED}={_named_as(address)} visterm ..."
        )


def is_named(address: str) -> bool:
    """Return whether the store, or the server, of an address was named; in Python, all are."""
    named = os.environ.get(NAMED)
    return named is None or _named_as(address) in named.split()


def _named_as(address: str) -> str:
    """Return what names the store of an address: its scheme and bucket, or host."""
    scheme, _, name = address.partition("://")
    return f"{scheme.lower()}://{name.split('/')[0]}"


@contextmanager
def opened_store(address: str, what: str) -> Iterator[tuple[Any, str]]:
    """Yield the store of an address and the name there; its errors become ours.

    `what`, "read" or "written", is for messages. Raises FileNotFoundError if an object that is read is not there;
    MissingExtraError if the store's package is not installed; UserError if no store has such addresses, or nobody has
    named this one (`check_named`); StorageError if the store cannot be reached, or does not allow it.
    """
    check_named(address)
    try:
        yield _store_of(address)
    except VistermError:
        raise
    except FileNotFoundError as error:
        if what == "read":
            raise
        raise StorageError(f"{address} cannot be written: {error}. Is the bucket there?") from error
    except PermissionError as error:
        raise StorageError(
            f"{address} may not be {what}: {error}. Check the credentials in the environment (for S3: "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
        ) from error
    except Exception as error:  # each library of a store has errors of its own
        raise StorageError(
            f"{address} cannot be {what}: {type(error).__name__}: {error}. Check the address, the network and, in the "
            "environment, endpoint and credentials (for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY)."
        ) from error


def _store_of(address: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, which keeps no listings for others to outdate, and the name there."""
    try:
        from fsspec.core import url_to_fs

        store, name = url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        if address.startswith(("s3://", "s3a://")):
            raise MissingExtraError(
                f"{address} is in an object store, which needs the package 's3fs'. Install it with: "
                "pip install 'visterm[s3]'"
            ) from error
        raise MissingExtraError(f"{address} cannot be reached: {error}. For S3: pip install 'visterm[s3]'") from error
    except ValueError as error:
        raise UserError(
            f"The address {address} is not understood: {error}. Expected a path of this machine, or an address such "
            "as s3://bucket/photos."
        ) from error
    return store, str(name)
