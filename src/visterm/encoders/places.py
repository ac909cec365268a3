"""Where in a picture a feature row comes from: rows that are the sum of what the places of the picture gave to them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Matrix


class Places(NamedTuple):
    """A feature row taken apart: ``Σ rows + elsewhere``.

    Attributes
    ----------
    boxes : ndarray of float64, shape (n_places, 4)
        Left, top, right and bottom, as shares of the picture's width and height. Places may overlap.
    rows : array or CSR of float64, shape (n_places, n_features)
        What each place gave to the row.
    elsewhere : ndarray of float64, shape (n_features,)
        What comes from no place.
    place, feature : str
        What a place and a feature are called: "block" and "visterm".
    source : str
        What `elsewhere` is; empty where it is nothing.
    """

    boxes: NDArray[np.float64]
    rows: Matrix
    elsewhere: NDArray[np.float64]
    place: str
    feature: str
    source: str = ""


@runtime_checkable
class HasPlaces(Protocol):
    """An encoder that knows which places of a picture its row comes from."""

    def places(self, image: Any) -> Places:
        """Take the row of one image (a path, or an upright RGB array) apart.

        Raises
        ------
        ImageError
            If it cannot be read.
        UserError
            If with these settings the row is no sum over places.
        """
