"""Base class of encoders of pixels: decodes images in batches and skips unreadable images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, stack_rows
from visterm.core.errors import ImageError, NoneReadableError, ShapeError
from visterm.core.progress import Progress, reported
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Matrix, Skipped
from visterm.core.wording import count_of
from visterm.data.images import Decoded, decode_images
from visterm.encoders.contract import AnyEncoder, Encoded

Images: TypeAlias = "Sequence[str | Path | NDArray[np.uint8]]"
Pixels: TypeAlias = "NDArray[np.uint8]"
Batch: TypeAlias = "tuple[list[int], list[Pixels]]"  # Positions of images, and their pixels

T = TypeVar("T")


class Encoder(AnyEncoder):
    """Turns pixels into feature rows. Subclasses implement `_encode_batch`, and `_fit_sample` if they learn.

    Images are paths or upright RGB arrays (height, width, 3) of uint8. ``_encode_batch(self, batch)`` returns a row for
    each of a list of such arrays. Attributes that ``_fit_sample(self, sample, rng, progress)`` learns end in ``_``.
    """

    batch_size: int = 32  # Number of images encoded together; a default for encoders without this setting
    max_fit_images: int = 5000  # Maximum number of images to learn from; ``random_state`` draws them

    @abstractmethod
    def _encode_batch(self, batch: list[Pixels]) -> Matrix:
        """Return float32 rows (array or CSR), one per upright RGB image, shape (len(batch), n_features)."""

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        """Learn from images in random order, decoded on demand; set attributes ending in ``_``."""

    @property
    def _max_side(self) -> int | None:
        """The longest side, in pixels, at which images are read (None: full size)."""
        return getattr(self, "max_side", None)

    @property
    def reading_side(self) -> int | None:
        """The longest side to which a caller may reduce images and still get the same rows as from the files."""
        return self._max_side

    def _describe_all(
        self, images: Iterator[Pixels], describe: Callable[[Pixels], T], n_jobs: int | None, progress: Progress
    ) -> list[T]:
        """Return ``describe(image)`` for each training image, in order, using several threads."""
        described: list[T] = []
        with reported(progress, "read training images"), Team(resolve_jobs(n_jobs)) as team:
            while batch := list(islice(images, self.batch_size)):
                described += team.run(partial(lambda batch, i: describe(batch[i]), batch), len(batch))
                progress.advance(len(batch))
        return described

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        rng = as_generator(getattr(self, "random_state", None))
        positions = rng.permutation(len(images))[: self.max_fit_images]
        self._fit_sample(self._readable([images[i] for i in positions], skip_unreadable), rng, progress)

    def _encode_images(self, images: Images, progress: Progress) -> Encoded:
        positions: list[int] = []
        skipped: list[Skipped] = []
        parts: list[Matrix] = []
        for indices, pixels in self._batches(images, skipped, progress):
            positions += indices
            part = self._encode_pixels(pixels, [images[i] for i in indices])
            part = as_csr(part) if sp.issparse(part) else np.asarray(part, np.float32)
            if part.ndim != 2 or part.shape[0] != len(indices):
                problem = f"{type(self).__name__} returned the shape {part.shape} for {count_of(len(indices), 'image')}"
                raise ShapeError(problem, expected="a row for each: (n_images, n_features)")
            parts.append(part)
        return Encoded(stack_rows(parts), np.array(positions, np.int64), skipped)

    def _encode_pixels(self, pixels: list[Pixels], images: Images) -> Matrix:
        """Return the rows of a batch; `images` are the images as they were passed, for encoders inside this one."""
        return self._encode_batch(pixels)

    def _batches(self, images: Images, skipped: list[Skipped], progress: Progress) -> Iterator[Batch]:
        """Yield the positions and the pixels of readable images, batch by batch; add the others to `skipped`."""
        batch: list[Decoded] = []
        for number, item in enumerate(self._decoded(images), start=1):
            if isinstance(item, Decoded):
                batch.append(item)
            else:
                skipped.append(item)
            progress.advance()

            if batch and (len(batch) == self.batch_size or number == len(images)):
                yield [decoded.index for decoded in batch], [decoded.pixels for decoded in batch]
                batch = []

    def _learns(self) -> bool:
        kind = type(self)
        return kind._fit_sample is not Encoder._fit_sample or kind._fit_images is not Encoder._fit_images

    def _readable(self, images: Images, skip: bool) -> Iterator[Pixels]:
        """Yield the readable images. Raises ImageError if an image is unreadable and not `skip`, or if all are."""
        is_any_read, skipped = False, list[Skipped]()
        for item in self._decoded(images):
            if isinstance(item, Decoded):
                is_any_read = True
                yield item.pixels
            elif not skip:
                raise ImageError(item.image, item.reason)
            else:
                skipped.append(item)
        if not is_any_read:
            raise NoneReadableError(skipped)

    def _decoded(self, images: Images) -> Iterator[Decoded | Skipped]:
        """Decode images in other threads, one batch ahead of the encoded batch."""
        jobs = getattr(self, "n_jobs", None)
        return decode_images(images, max_side=self._max_side, n_jobs=jobs, ahead=self.batch_size)
