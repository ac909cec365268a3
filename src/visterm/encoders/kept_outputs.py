"""What a network gave for the first photos it was shown, kept so that learning and encoding share one pass."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

MOST = 2000
"""Photos whose outputs are kept: more than are learned from, and a few megabytes."""


class KeptOutputs:
    """The outputs of the first photos, found by the content of the pictures that were shown.

    To fit a chain, to measure its parts and then to encode the photos would show each to the network three times. A
    picture is hashed in about a hundredth of the time that a small network (MobileNetV2) takes. Only for networks that
    give a picture the same bytes in any company.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, NDArray[np.float32]] = {}

    def find(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32] | None:
        """Return what was kept for the pictures of a photo, shape (n_views, height, width, 3); None if nothing was."""
        return self._rows.get(_key(pictures))

    def keep(self, pictures: NDArray[np.uint8], row: NDArray[np.float32]) -> None:
        """Keep the output for the pictures of a photo, while there is room; threads may call."""
        if len(self._rows) < MOST:
            self._rows[_key(pictures)] = row


def _key(pictures: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(pictures)).digest() + bytes(str(pictures.shape), "ascii")
