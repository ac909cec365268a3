"""Encoders inside others: how these are named, fitted, run and kept; and `Chain`, which puts them side by side."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, as_generator, check_count, stack_rows
from visterm.core.errors import DataError, ImageError, NoneReadableError, UserError
from visterm.core.estimator import check_fitted, clone
from visterm.core.learned import Array, Fitted, Flag, Kind, Listed
from visterm.core.progress import Progress, reported
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, RandomState, Skipped
from visterm.data.images import Decoded, read_image
from visterm.encoders.base import Encoder, Images, Pixels
from visterm.encoders.contract import (
    AnyEncoder,
    AnyImages,
    Encoded,
    HasPlaces,
    Places,
    name_of,
    no_places,
    stacked_places,
)
from visterm.encoders.named import make_encoder, split_specs

DENSE_FROM = 0.5  # Share of values that are not 0 from which on an array is smaller than CSR
MOST_COLUMNS = 2**40


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

    random_state: RandomState
    n_jobs: int | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn; a number of threads is passed on to the fitted encoders inside."""
        super().set_params(**params)
        for part in getattr(self, "parts_", []) if "n_jobs" in params else []:
            part.set_known(n_jobs=self.n_jobs)
        return self

    @abstractmethod
    def _listed(self) -> Sequence[object]:
        """List the encoders inside, as the constructor took them: names, pairs with settings, or encoders."""

    @abstractmethod
    def _join(self, rows: list[Matrix]) -> Matrix:
        """Make the rows of some images from those that the encoders inside gave them, one matrix each."""

    def _make_parts(self) -> list[AnyEncoder]:
        """Make unfitted encoders of what is listed; they get the seed and the threads unless it says otherwise."""
        shared = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        parts: list[AnyEncoder] = []
        for listed in self._listed():
            pair = [listed, {}] if isinstance(listed, str) else listed
            if isinstance(listed, AnyEncoder):
                parts.append(clone(listed))
            elif isinstance(pair, list | tuple) and [type(each) for each in pair] == [str, dict]:
                parts.append(make_encoder(pair[0], pair[1], shared))
            else:
                expected = "a name such as 'visterms' or 'onnx:PATH', a pair of a name and settings, or an encoder"
                problem = f"An encoder inside another is {listed!r}."
                raise UserError(problem, setting=self.argument, value=listed, expected=expected)
            if parts[-1].by_number:
                problem = f"The encoder {listed!r} knows images by number only: its rows say nothing of others."
                raise UserError(problem, setting=self.argument, value=listed, advice="Use it alone.")
        return parts

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
        any_read = False

        with reported(progress, task, len(drawn)):
            for _, rows in self._part_batches([images[i] for i in drawn], skipped, progress):
                any_read = True
                if skipped and not skip:
                    break
                yield rows
        if skipped and not skip:
            raise ImageError(skipped[0].image, skipped[0].reason)
        if not any_read:
            unread = [Skipped(name_of(images[i]), reason) for i, reason in unknown.items()]
            raise NoneReadableError([*skipped, *unread])

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that an encoder inside does not know, by position, with its reason."""
        reasons = {i: reason for part in reversed(self.parts_) for i, reason in part.unknown_images(images).items()}
        return dict(sorted(reasons.items()))

    def _encode_images(self, images: Images, progress: Progress) -> Encoded:
        kept: list[int] = []
        skipped: list[Skipped] = []
        joined: list[Matrix] = []
        for positions, rows in self._part_batches(images, skipped, progress):
            kept += positions
            joined.append(self._join(rows))
        return Encoded(stack_rows(joined), np.array(kept, np.int64), skipped)

    def _encode_batch(self, batch: list[Pixels]) -> Matrix:
        return self._join(self._part_rows(batch, batch))

    def _part_batches(
        self, images: Images, skipped: list[Skipped], progress: Progress
    ) -> Iterator[tuple[list[int], list[Matrix]]]:
        """Yield the positions of some images that could be read, and their rows from each encoder inside."""
        if not self._looks_at_pixels():
            for start in range(0, len(images), self.batch_size):
                some = images[start : start + self.batch_size]
                yield list(range(start, start + len(some))), self._part_rows([], some)
                progress.advance(len(some))
            return
        batch: list[Decoded] = []
        for number, item in enumerate(self._decoded(images), start=1):
            if isinstance(item, Decoded):
                batch.append(item)
            else:
                skipped.append(item)
            progress.advance()

            if batch and (len(batch) == self.batch_size or number == len(images)):
                positions = [decoded.index for decoded in batch]
                yield positions, self._part_rows([decoded.pixels for decoded in batch], [images[i] for i in positions])
                batch = []

    def _part_rows(self, pixels: list[Pixels], images: AnyImages) -> list[Matrix]:
        """Return the rows of images from each encoder inside; `pixels` are theirs, where one looks at them."""
        rows: list[Matrix] = []
        for part in self.parts_:
            if not isinstance(part, Encoder):
                rows.append(part.transform(images))
                continue
            reduced = [read_image(each, max_side=part._max_side) for each in pixels]
            if isinstance(part, NestedEncoder):
                rows.append(part._join(part._part_rows(reduced, images)))
            else:
                rows.append(part._encode_batch(reduced))
        return rows

    def _looks_at_pixels(self) -> bool:
        return any(
            part._looks_at_pixels() if isinstance(part, NestedEncoder) else isinstance(part, Encoder)
            for part in self.parts_
        )

    @property
    def _max_side(self) -> int | None:
        sides = [part._max_side for part in self.parts_ if isinstance(part, Encoder)]
        return max((side for side in sides if side is not None), default=None) if None not in sides else None

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Name the encoders inside by their fingerprints; fitted ones are among what was learned."""
        inside = None if hasattr(self, "parts_") else [part.fingerprint for part in self._make_parts()]
        return {**params, str(self.argument): inside}


@dataclass(kw_only=True, eq=False, repr=False)
class Chain(NestedEncoder):
    """Joins the rows of several encoders: ``x = (f_1 x_1, f_2 x_2, ...)``.

    The factors are ``f_i = w_i / (l_i √(Σ w²))``: ``l_i`` is the mean length of the rows that encoder i gives training
    images, so that with equal weights ``w`` the parts of the inner product of two images weigh alike, and rows are
    about 1 long.

    An image is decoded once for all encoders, and one that cannot be read has no row in any. On the command line:
    ``--encoder chain:visterms+onnx:mobilenet.onnx``. Rows are CSR if those of an encoder are, and if that is smaller.

    Parameters
    ----------
    encoders : str or list
        Names, names with an argument (``"onnx:PATH"``), pairs of name and settings
        (``("visterms", {"codebook": 2000})``), or encoders, which are cloned. A text is split at each ``+`` that the
        name of an encoder follows. Not `ids`.
    weights : list of float, optional
        ``w``, one an encoder, above 0. None: all alike.
    random_state : int, RandomState, Generator or None
        Draws the training images whose rows are measured; and for all encoders whose settings have none.
    batch_size : int
        Images encoded at a time.
    n_jobs : int, optional
        Threads, of the encoders too unless their settings say otherwise; None is all cores.

    Attributes
    ----------
    parts_ : list of AnyEncoder
        The fitted encoders.
    factors_ : ndarray of float64, shape (n_encoders,)
        ``f``; with ``l`` taken as 1 for an encoder whose rows are all 0.
    widths_ : ndarray of int64, shape (n_blocks,)
        Features of each encoder, or of each block of one that has several.
    dense_ : bool
        Whether rows are arrays.
    """

    argument = "encoders"
    fit_images = 500

    test_params: ClassVar[dict[str, object]] = {
        "encoders": [
            ["visterms", {"colours": 8, "codebook": 40, "sample_blocks": 2000}],
            ["visterms", {"colours": 6, "codebook": 12, "sample_blocks": 2000}],
        ]
    }

    learned: ClassVar[dict[str, Kind]] = {
        "parts_": Listed(Fitted(base=AnyEncoder), "n_encoders"),
        "factors_": Array("float64", ("n_encoders",), above=0, most=1e30),
        "widths_": Array("int64", ("n_blocks",), least=1, most=MOST_COLUMNS),
        "dense_": Flag(),
    }

    encoders: str | Sequence[object] | None = None
    weights: Sequence[float] | None = None
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    @property
    def width(self) -> int | None:
        """The columns of all encoders."""
        return int(self.widths_.sum())

    @property
    def blocks(self) -> list[int]:
        """Widths of what the encoders give: of each its own blocks, or all as one."""
        return [int(width) for width in self.widths_]

    def places(self, image: str | os.PathLike[str] | Pixels) -> Places:
        """Return the row of one image by the places that each encoder knows.

        What an encoder gives that knows none is in `elsewhere`, under its name. Raises ImageError if the image cannot
        be read; UserError if no encoder knows places.
        """
        check_fitted(self)
        photo = read_image(image, max_side=self._max_side)
        parts: list[Places] = []
        for part in self.parts_:
            if isinstance(part, HasPlaces):
                parts.append(part.places(photo))
            else:
                name = ENCODERS.name_of(part)
                parts.append(no_places(part.transform([photo]), f"features of '{name}', which have no place"))

        if not any(len(part.boxes) for part in parts):
            names = ", ".join(ENCODERS.name_of(part) for part in self.parts_)
            raise UserError(f"The chain's encoders ({names}) do not know which places of a picture numbers come from.")
        return stacked_places(parts, self.factors_)

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        weights = self._chosen_weights()
        self._fit_parts(images, skip_unreadable, progress)
        batches = list(self._sample_rows(images, skip_unreadable, progress, "measure rows"))
        rows = [stack_rows(list(part)) for part in zip(*batches, strict=True)]
        means = np.array([_lengths(part).mean() or 1.0 for part in rows])

        self.factors_ = weights / means / np.sqrt(np.square(weights).sum())
        widths = [encoder.blocks or [part.shape[1]] for encoder, part in zip(self.parts_, rows, strict=True)]
        self.widths_ = np.concatenate(widths, dtype=np.int64)
        filled = sum(sp.csr_array(part).nnz for part in rows) / sum(int(np.prod(part.shape)) for part in rows)
        self.dense_ = not any(sp.issparse(part) for part in rows) or filled > DENSE_FROM

    def _check_learned(self) -> None:
        widths = [part.width for part in self.parts_]
        if None not in widths and sum(width or 0 for width in widths) != self.width:
            raise DataError(f"widths_ is {self.widths_.tolist()}; the encoders inside give rows of {widths}")

    def _check_params(self) -> None:
        check_count(self.batch_size, "batch_size")
        self._chosen_weights()

    def _join(self, rows: list[Matrix]) -> Matrix:
        scaled: list[Any] = [part * np.float32(factor) for part, factor in zip(rows, self.factors_, strict=True)]
        if self.dense_:
            return np.hstack([part.toarray() if sp.issparse(part) else part for part in scaled])
        return as_csr(sp.hstack([sp.csr_array(part) for part in scaled], format="csr"))

    def _listed(self) -> Sequence[object]:
        encoders = split_specs(self.encoders) if isinstance(self.encoders, str) else self.encoders
        listed = list(encoders) if isinstance(encoders, Iterable) else []
        if not listed:
            expected = "one or more, such as 'visterms+onnx:PATH' or ['visterms', ('onnx', {'path': PATH})]"
            raise UserError(setting="encoders", value=encoders, expected=expected)
        return listed

    def _chosen_weights(self) -> NDArray[np.float64]:
        """Return the weight of each encoder; refuse others than finite numbers above 0."""
        n = len(self._listed())
        if self.weights is None:
            return np.ones(n)
        expected = f"None, or {n} finite numbers above 0, one an encoder"
        wrong = UserError(setting="weights", value=self.weights, expected=expected)

        try:
            weights: NDArray[np.float64] = np.asarray(self.weights, np.float64)
        except (TypeError, ValueError) as error:
            raise wrong from error
        if weights.shape != (n,) or not np.isfinite(weights).all() or (weights <= 0).any():
            raise wrong
        return weights


def _lengths(rows: Matrix) -> NDArray[np.float64]:
    squares = np.square(rows.data if sp.issparse(rows) else rows.ravel(), dtype=np.float64)
    of_row = rows.nonzero()[0] if sp.issparse(rows) else np.repeat(np.arange(len(rows)), rows.shape[1])
    return np.sqrt(np.bincount(of_row, squares, minlength=rows.shape[0]))
