"""Encoders that work on the rows of other encoders: how these are named, fitted, run and kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Self

import numpy as np

from visterm.core.checks import as_generator
from visterm.core.errors import ImageError, NoneReadableError, UserError
from visterm.core.estimator import clone
from visterm.core.progress import Progress, reported
from visterm.core.types import Matrix, Skipped
from visterm.data.images import read_image
from visterm.encoders.base import Encoder, Images, Pixels, stack_rows
from visterm.encoders.contract import AnyEncoder, Encoded, name_of
from visterm.encoders.named import make_encoder


class NestedEncoder(Encoder):
    """An encoder with encoders inside. A new one writes `_listed`, `_fit_images` and `_join`.

    To encode, each image is decoded once, for the one that reads it largest; the others get it reduced to their
    size. A row is then that of the encoder alone, but for the rounding of being reduced in two steps where a photo
    is larger than both. To fit, each encoder reads the images that it learns from by itself.

    Encoders of names may be inside too, unless all that they know of an image is its number; where there are no others,
    no image is opened.

    Attributes
    ----------
    parts_ : list of AnyEncoder
        The fitted encoders.
    """

    parts_: list[AnyEncoder]

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
        """List the encoders inside, as the constructor took them: names, pairs with settings, or encoders."""

    @abstractmethod
    def _join(self, rows: list[Matrix]) -> Matrix:
        """Make the rows of some images from those that the encoders inside gave them, one matrix each."""

    def _make_parts(self) -> list[AnyEncoder]:
        """Make unfitted encoders of what is listed; they get the seed and the threads unless it says otherwise."""
        return [_made(given, {"random_state": self.random_state, "n_jobs": self.n_jobs}) for given in self._listed()]

    def check_settings(self) -> None:
        """Refuse settings that cannot be used, of the encoders inside too."""
        super().check_settings()
        for part in self._make_parts():
            part.check_settings()

    def check_allowed(self) -> None:
        """Refuse what the fitted encoders inside refuse."""
        for part in getattr(self, "parts_", ()):
            part.check_allowed()

    def _fit_parts(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        parts = self._make_parts()
        for part in parts:
            part.fit(images, skip_unreadable=skip_unreadable, progress=progress)
        self.parts_ = parts

    def _sample_rows(
        self, images: Images, skip: bool, progress: Progress, task: str
    ) -> Generator[list[Matrix], None, None]:
        """Yield the rows that the fitted encoders inside give images drawn at random, batch by batch."""
        drawn = as_generator(self.random_state).permutation(len(images))[: self.fit_images]
        unknown = self.unknown_images(images)
        if unknown and not skip:
            self.refuse_unknown(images)
        drawn = np.array([i for i in drawn if i not in unknown], np.int64)
        skipped: list[Skipped] = []
        found = False
        with reported(progress, task, len(drawn)):
            for _, rows in self._part_batches([images[i] for i in drawn], skipped, progress):
                found = True
                if skipped and not skip:
                    break
                yield rows
        if skipped and not skip:
            raise ImageError(skipped[0].image, skipped[0].reason)
        if not found:
            unread = [Skipped(name_of(images[i]), reason) for i, reason in unknown.items()]
            raise NoneReadableError([*skipped, *unread])

    def unknown_images(self, images: Sequence[Any]) -> dict[int, str]:
        """Return the images that an encoder inside does not know, by position, with its reason."""
        found = {i: reason for part in reversed(self.parts_) for i, reason in part.unknown_images(images).items()}
        return dict(sorted(found.items()))

    def _encode_images(self, images: Images, progress: Progress) -> Encoded:
        kept: list[int] = []
        skipped: list[Skipped] = []
        rows: list[Matrix] = []
        for places, parts in self._part_batches(images, skipped, progress):
            kept += places
            rows.append(self._join(parts))
        joined = stack_rows(rows) if rows else np.empty((0, 0), np.float32)
        return Encoded(joined, np.array(kept, np.int64), skipped)

    def _encode_batch(self, batch: list[Pixels]) -> Matrix:
        return self._join(self._part_rows(batch, batch))

    def _part_batches(
        self, images: Images, skipped: list[Skipped], progress: Progress
    ) -> Iterator[tuple[list[int], list[Matrix]]]:
        """Yield the places of some images that could be read, and their rows from each encoder inside."""
        if self._looks_at_pixels():
            for batch in self._batches(images, skipped, progress):
                places = [decoded.index for decoded in batch]
                pixels = [decoded.pixels for decoded in batch]
                yield places, self._part_rows(pixels, [images[i] for i in places])
            return
        step = self._images_a_batch()
        for start in range(0, len(images), step):
            some = images[start : start + step]
            yield list(range(start, start + len(some))), self._part_rows([], some)
            progress.advance(len(some))

    def _part_rows(self, pixels: list[Pixels], images: Sequence[Any]) -> list[Matrix]:
        """Return the rows of images from each encoder inside; `pixels` are theirs, where one looks at them."""
        found: list[Matrix] = []
        for part in self.parts_:
            if not isinstance(part, Encoder):
                found.append(part.transform(images))
                continue
            side = part._max_side
            reduced = [read_image(each, max_side=side) for each in pixels]
            if isinstance(part, NestedEncoder):
                found.append(part._join(part._part_rows(reduced, images)))
            else:
                found.append(part._encode_batch(reduced))
        return found

    def _looks_at_pixels(self) -> bool:
        return any(
            part._looks_at_pixels() if isinstance(part, NestedEncoder) else isinstance(part, Encoder)
            for part in self.parts_
        )

    @property
    def _max_side(self) -> int | None:
        sides = [part._max_side for part in self.parts_ if isinstance(part, Encoder)]
        return max((side for side in sides if side is not None), default=None) if None not in sides else None

    def _fingerprint_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Name the encoders inside by their fingerprints; fitted ones are among what was learned."""
        fitted = hasattr(self, "parts_")
        inside = None if fitted else [part.fingerprint for part in self._make_parts()]
        return {**params, str(self.argument): inside}


def _made(given: Any, shared: dict[str, Any]) -> AnyEncoder:
    """Return the unfitted encoder that an entry of the list names."""
    made: AnyEncoder
    if isinstance(given, AnyEncoder):
        made = clone(given)
    elif isinstance(given, str):
        made = make_encoder(given, {}, shared)
    elif (
        isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], dict)
    ):
        made = make_encoder(given[0], given[1], shared)
    else:
        raise UserError(
            f"An encoder inside another is {given!r}; expected a name such as 'visterms', a name with its argument, "
            '"onnx:PATH", a pair such as ("visterms", {"codebook": 2000}), or an encoder.'
        )
    if made.by_number:
        raise UserError(
            f"The encoder {given!r} knows images by number only, so that its rows say nothing about other images. "
            "Use it alone."
        )
    return made
