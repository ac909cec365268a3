"""Where in a picture a feature row comes from: rows that are the sum of what the places of the picture gave to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix


class Places(NamedTuple):
    """A feature row taken apart: ``Σ rows + elsewhere``."""

    boxes: NDArray[np.float64]
    """shape (n_places, 4): left, top, right and bottom, as shares of the picture's width and
    height. Places may overlap."""
    rows: Matrix  # array or CSR of float64, shape (n_places, n_features). What each place gave to the row.
    elsewhere: NDArray[np.float64]  # shape (n_features,): what comes from no place
    # What a place and a feature are called: "block" and "visterm"
    place: str
    feature: str
    source: str = ""  # What `elsewhere` is; empty where it is nothing


def no_places(row: Matrix, source: str) -> Places:
    """Return the row of one image, (1, n_features), as what comes from no place; `source` says what it is."""
    values: Any = row
    values = values.toarray() if sp.issparse(row) else values
    rows = sp.csr_array((0, values.shape[1]), dtype=np.float64)
    return Places(np.empty((0, 4)), rows, np.asarray(values[0], np.float64), "place", "feature", source)


def stacked_places(parts: Sequence[Places], factors: NDArray[np.float64]) -> Places:
    """Return places that several encoders have of one picture as those of their joined rows, each times its factor."""
    scaled = [factor * part.rows for part, factor in zip(parts, factors, strict=True)]
    sources = dict.fromkeys(part.source for part in parts if part.source)
    return Places(
        np.concatenate([part.boxes for part in parts]),
        sp.csr_array(sp.block_diag([sp.csr_array(rows) for rows in scaled], format="csr")),
        np.concatenate([factor * part.elsewhere for part, factor in zip(parts, factors, strict=True)]),
        _common([part.place for part in parts if len(part.boxes)], "place"),
        _common([part.feature for part in parts if len(part.boxes)], "feature"),
        ", ".join(sources),
    )


def _common(names: list[str], otherwise: str) -> str:
    return names[0] if len(set(names)) == 1 else otherwise


@runtime_checkable
class HasPlaces(Protocol):
    """An encoder that knows which places of a picture its row comes from."""

    def places(self, image: Any) -> Places:
        """Return the row of one image (a path, or an upright RGB array) by places.

        Raises ImageError if it cannot be read; UserError if with these settings the row is no sum over places.
        """
