"""The contract of every encoder: images in, exactly one feature row an image out, under a fingerprint."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from visterm.core.checks import as_csr, as_generator
from visterm.core.errors import DataError, ImageError
from visterm.core.persist import json_params
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.data.images import Decoded, decode_images

Images: TypeAlias = "Sequence[str | Path | NDArray[np.uint8]]"
Pixels: TypeAlias = "NDArray[np.uint8]"


class Encoded(NamedTuple):
    """Feature rows with the images that they belong to.

    Attributes
    ----------
    rows : array or CSR of float32, shape (n_readable, n_features)
    kept : ndarray of int64, shape (n_readable,)
        The position of each row's image among those given.
    skipped : list of Skipped
        The images that could not be read.
    """

    rows: Matrix
    kept: NDArray[np.int64]
    skipped: list[Skipped]


class Encoder(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Turns images into feature rows. A new encoder writes `_encode_batch`, and `_fit_sample` if it learns.

    Images are paths or upright RGB arrays (height, width, 3) of uint8. Attributes that `_fit_sample` learns end in
    ``_`` and are saved with the run. Parameters that do not change the output are named in `speed_params`.
    """

    speed_params: tuple[str, ...] = ("n_jobs", "batch_size")
    """Constructor parameters that leave the output as it is: not part of the fingerprint."""

    argument: str | None = None
    """The constructor parameter that is filled by what stands after a colon in ``--encoder name:argument``."""

    test_params: ClassVar[dict[str, Any]] = {}
    """Constructor parameters of a small, quick instance: what the contract suite runs on."""

    location_attributes: tuple[str, ...] = ()
    """Learned attributes that say where something lies and not what it is: saved, but not part of the fingerprint."""

    fit_images: int = 5000
    """At most so many images, drawn by ``random_state``, are read to learn from."""

    # -- what callers use ---------------------------------------------------------------------------------------------

    def fit(self, images: Images, y: Any = None, *, skip_unreadable: bool = False, progress: Progress = SILENT) -> Self:
        """Learn from a sample of images; for encoders that learn nothing, only checks.

        Parameters
        ----------
        images : sequence of paths or of uint8 arrays (height, width, 3)
        y : ignored
        skip_unreadable : bool
            Leave out images that cannot be read (`encode` lists them) instead of raising `ImageError`.
        progress : Progress
            Told of each image and step.
        """
        if len(images) == 0:
            raise DataError(f"{type(self).__name__} was given no images to learn from; at least 1 is needed.")
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        rng = as_generator(getattr(self, "random_state", None))
        chosen = rng.permutation(len(images))[: self.fit_images]
        self._fit_sample(self._readable([images[i] for i in chosen], skip_unreadable), rng, progress)
        self.fitted_ = True
        return self

    def transform(self, images: Images) -> Matrix:
        """Encode images: exactly one row each, in order.

        Raises
        ------
        ImageError
            If one cannot be read; `encode` skips and lists such images instead.
        """
        rows, _, skipped = self.encode(images)
        if skipped:
            raise ImageError(skipped[0].image, skipped[0].reason)
        return rows

    def encode(self, images: Images, *, progress: Progress = SILENT) -> Encoded:
        """Encode the images that can be read, and list the others.

        Parameters
        ----------
        images : sequence of paths or of uint8 arrays (height, width, 3)
        progress : Progress
            Told of each image.

        Returns
        -------
        Encoded
            Rows, the positions of their images, and the images skipped with reasons.
        """
        if not hasattr(self, "fitted_") and self._learns():
            check_is_fitted(self)
        kept: list[int] = []
        skipped: list[Skipped] = []
        parts: list[Matrix] = []
        progress.start("encode", len(images))
        try:
            for batch in self._batches(images, skipped, progress):
                parts.append(self._encode_batch([decoded.pixels for decoded in batch]))
                kept.extend(decoded.index for decoded in batch)
        finally:
            progress.finish()
        return Encoded(_stack(parts), np.array(kept, np.int64), skipped)

    @property
    def fingerprint(self) -> str:
        """Name the output: changes whenever a parameter, a learned array or a network that shapes the rows does."""
        digest = hashlib.sha256()
        params = {k: v for k, v in json_params(self).items() if k not in self.speed_params}
        digest.update(json.dumps([type(self).__name__, self._fingerprint_params(params)], sort_keys=True).encode())
        for key, value in sorted(vars(self).items()):
            if key.endswith("_") and not key.startswith("_") and key not in self.location_attributes:
                digest.update(key.encode())
                array = value.toarray() if sp.issparse(value) else np.asarray(value)
                digest.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else str(value).encode())
        return digest.hexdigest()[:16]

    # -- what a new encoder writes ------------------------------------------------------------------------------------

    @abstractmethod
    def _encode_batch(self, batch: list[Pixels]) -> Matrix:
        """Give one float32 row (array or CSR) for each upright RGB image, shape (len(batch), n_features)."""

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        """Learn from images in random order, decoded as they are asked for; set attributes ending in ``_``."""

    def _fingerprint_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Replace what does not name its content (a path) by what does (a hash)."""
        return params

    @property
    def _max_side(self) -> int | None:
        """The longest side, in pixels, to which an image may be reduced on reading (None: full size)."""
        return None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _learns(self) -> bool:
        return type(self)._fit_sample is not Encoder._fit_sample

    def _readable(self, images: Images, skip: bool) -> Iterator[Pixels]:
        found = False
        for item in decode_images(images, max_side=self._max_side, n_jobs=getattr(self, "n_jobs", None)):
            if isinstance(item, Decoded):
                found = True
                yield item.pixels
            elif not skip:
                raise ImageError(item.image, item.reason)
        if not found:
            raise DataError(f"None of the {len(images)} images to learn from could be read.")

    def _batches(self, images: Images, skipped: list[Skipped], progress: Progress) -> Iterable[list[Decoded]]:
        size = getattr(self, "batch_size", None) or 32
        batch: list[Decoded] = []
        for item in decode_images(images, max_side=self._max_side, n_jobs=getattr(self, "n_jobs", None)):
            if isinstance(item, Decoded):
                batch.append(item)
            else:
                skipped.append(item)
            progress.advance()
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch


def _stack(parts: list[Matrix]) -> Matrix:
    if not parts:
        return np.empty((0, 0), np.float32)
    if sp.issparse(parts[0]):
        return as_csr(sp.vstack(parts, format="csr"))
    return np.concatenate(parts).astype(np.float32, copy=False)
