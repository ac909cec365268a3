"""Encoders that work on the rows of other encoders: how these are named, fitted, run and kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from visterm.core.checks import as_csr
from visterm.core.errors import UserError
from visterm.core.progress import Progress
from visterm.core.types import Matrix
from visterm.data.images import read_image
from visterm.encoders.base import Encoder, Images, Pixels
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import named_encoder


class NestedEncoder(Encoder):
    """An encoder with encoders inside: each image is decoded once, and given to all of them.

    It is decoded for the one that wants it largest; the others get it reduced to the size that they want. A row is then
    that of the encoder alone, but for the rounding of being reduced in two steps where a photo is larger than both. To
    fit, each reads the images that it learns from by itself.

    Attributes
    ----------
    parts_ : list of Encoder
        The fitted encoders.
    """

    parts_: list[Encoder]

    random_state: Any
    n_jobs: int | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn; a number of threads is passed on to the fitted encoders inside."""
        super().set_params(**params)
        for part in getattr(self, "parts_", []) if "n_jobs" in params else []:
            if "n_jobs" in part.get_params(deep=False):
                part.set_params(n_jobs=self.n_jobs)
        return self

    @abstractmethod
    def _listed(self) -> Sequence[Any]:
        """List what the constructor was told of the encoders inside: names, pairs with settings, or encoders."""

    def _make_parts(self) -> list[Encoder]:
        """Make unfitted encoders of what is listed; they get the seed and the threads unless it says otherwise."""
        return [_made(given, {"random_state": self.random_state, "n_jobs": self.n_jobs}) for given in self._listed()]

    def _fit_parts(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        parts = self._make_parts()
        for part in parts:
            part.fit(images, skip_unreadable=skip_unreadable, progress=progress)
        self.parts_ = parts

    def _part_rows(self, batch: list[Pixels]) -> list[Matrix]:
        """Give the rows of each encoder inside."""
        found = []
        for part in self.parts_:
            side = part._max_side
            found.append(part._encode_batch([read_image(pixels, max_side=side) for pixels in batch]))
        return found

    @property
    def _max_side(self) -> int | None:
        sides = [part._max_side for part in self.parts_]
        return max((side for side in sides if side is not None), default=None) if None not in sides else None

    def _learns(self) -> bool:
        return True

    def _fingerprint_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Name the encoders inside by their fingerprints; fitted ones are among what was learned."""
        fitted = hasattr(self, "parts_")
        inside = None if fitted else [part.fingerprint for part in self._make_parts()]
        return {**params, str(self.argument): inside}


def _made(given: Any, shared: dict[str, Any]) -> Encoder:
    if isinstance(given, AnyEncoder):
        made = clone(given)
    elif isinstance(given, str):
        made = named_encoder(given, {}, shared)
    elif (
        isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], dict)
    ):
        made = named_encoder(given[0], given[1], shared)
    else:
        raise UserError(
            f"An encoder inside another is {given!r}; expected a name such as 'visterms', a name with its argument, "
            '"onnx:PATH", a pair such as ("visterms", {"codebook": 2000}), or an encoder.'
        )
    if not isinstance(made, Encoder):
        raise UserError(
            f"{given!r} looks at the names of images, and only encoders of pixels can stand inside another. "
            "Leave it out, or use it alone."
        )
    return made


def stack_rows(parts: list[Matrix]) -> Matrix:
    """Put rows of one kind, dense or sparse, under each other."""
    if sp.issparse(parts[0]):
        return as_csr(sp.vstack(parts, format="csr"))
    return np.concatenate(parts)
