"""Rows of a table of tags, taken many at a time, and what is told of those whose image has no features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from visterm.core.errors import TagFileError
from visterm.core.wording import count_of
from visterm.data.tag_formats.record import TagRecord
from visterm.features.streaming.shards import Shards

ROWS = 2**14
"""Rows of the table taken at a time."""


def batches_of(records: Iterable[TagRecord]) -> Iterator[list[TagRecord]]:
    """Yield the rows of a table in lists, none of them empty."""
    records = iter(records)
    while batch := list(islice(records, ROWS)):
        yield batch


def check_met(shards: Shards, n_found: int, n_missing: int, example: str) -> list[str]:
    """Say which rows of a table are left out, and refuse a table of which all are.

    Parameters
    ----------
    shards : Shards
    n_found, n_missing : int
        Rows whose image has features, and those whose image has none.
    example : str
        The image of one of these.

    Returns
    -------
    list of str
        What is to be told: a line, or nothing.

    Raises
    ------
    TagFileError
        If none is of an image with features.
    """
    if not n_found:
        first = shards.names(0)[0] if len(shards) else "nothing"
        raise TagFileError(
            f"Of {count_of(n_missing, 'row')} of the tags, none is of an image with features: the tags name "
            f"'{example}', the features '{first}'. Streamed features want the very paths."
        )
    if not n_missing:
        return []
    return [
        f"{count_of(n_missing, 'row')} of the tags (such as of '{example}') {'is' if n_missing == 1 else 'are'} of "
        "images without features; left out."
    ]
