"""Object stores reached by fsspec, and what goes wrong there as errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from visterm.core.errors import MissingExtraError, StorageError, UserError, VistermError


@contextmanager
def asked(address: str, what: str) -> Iterator[tuple[Any, str]]:
    """Give the store of an address and the name there, to be asked for something.

    Parameters
    ----------
    address : str
    what : {"read", "written"}
        What is done with it.

    Raises
    ------
    FileNotFoundError
        If an object that is read is not there.
    MissingExtraError
        If the store's package is not installed.
    UserError
        If no store has such addresses.
    StorageError
        If the store cannot be reached, or does not allow it.
    """
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
    """Give fsspec's file system of an address, which keeps no listings for others to outdate, and the name there."""
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
