"""What a reader of word vectors offers: the words of a file one after the other, and the vector of any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError


class VectorSource(Protocol):
    """A file of word vectors that is open.

    Attributes
    ----------
    path : Path
    width : int
        Numbers of each vector.
    """

    path: Path
    width: int

    def words(self) -> Iterator[tuple[str, Any]]:
        """Return each word as the file spells it, with what `vectors` finds its vector by while it is the last one."""

    def vector(self, at: Any) -> NDArray[np.float32]:
        """Return the vector, shape (width,), of the word that `words` gave last.

        Raises
        ------
        DataError
            If it is no such vector; the message names file and line, or file and word.
        """

    def close(self) -> None:
        """Let the file go."""


def refuse_non_finite(vector: NDArray[np.float32], place: str) -> NDArray[np.float32]:
    """Return the vector if all its numbers are finite.

    Raises
    ------
    DataError
        If one is infinite or NaN, with the place.
    """
    if not np.isfinite(vector).all():
        raise DataError(f"{place}: the vector has infinite or undefined numbers. Take the line out, or the whole file.")
    return vector
