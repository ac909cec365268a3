"""Encoders that contain other encoders: a base class that creates, fits and runs them; and `Chain`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr, as_generator, check_count, stack_rows
from visterm.core.errors import DataError, ImageError, NoneReadableError, UserError
from visterm.core.estimator import check_fitted, clone
from visterm.core.learned import Array, Fitted, Flag, Kind, Listed
from visterm.core.progress import Progress, reported
from visterm.core.tables import ENCODERS
from visterm.core.types import Doubles, Matrix, Place, RandomState, Skipped
from visterm.data.images import read_image
from visterm.encoders.base import Batch, Encoder, Images, Pixels
from visterm.encoders.blocks import check_numbers
from visterm.encoders.contract import AnyEncoder, AnyImages, HasPlaces, Places, name_of, no_places, stacked_places
from visterm.encoders.named import make_encoder, split_specs

MAX_CSR_DENSITY = 0.5  # Share of non-zero values above which an array is smaller than CSR
MAX_COLUMNS = 2**40


class NestedEncoder(Encoder):
    """An encoder that contains other encoders. Subclasses implement `_inner_encoders`, `_fit_images` and `_join`.

    To encode, each image is decoded once, at the largest size that an inner encoder reads, and reduced to the size of
    each other encoder. A row is the same as from the encoder alone, except for rounding if a photo is reduced in two
    steps. To fit, each encoder reads its training images itself.

    Encoders of names are allowed too, unless they know images by number only. If all inner encoders are of names, no
    image is opened.

    Attributes
    ----------
    parts_ : list of AnyEncoder
        The fitted encoders.
    """

    parts_: list[AnyEncoder]

    random_state: RandomState
    n_jobs: int | None

    def set_params(self, **params: object) -> Self:
        """Set parameters, as in scikit-learn; `n_jobs` is passed on to the fitted inner encoders."""
        super().set_params(**params)
        for part in getattr(self, "parts_", []) if "n_jobs" in params else []:
            part.set_known(n_jobs=self.n_jobs)
        return self

    @abstractmethod
    def _inner_encoders(self) -> Sequence[object]:
        """List the inner encoders as passed to the constructor: names, pairs with settings, or encoders."""

    @abstractmethod
    def _join(self, rows: list[Matrix]) -> Matrix:
        """Make the rows of images from the rows of the inner encoders, one matrix per encoder."""

    def _make_parts(self) -> list[AnyEncoder]:
        """Make unfitted inner encoders, with this encoder's seed and threads unless their settings differ."""
        options = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        parts: list[AnyEncoder] = []
        for item in self._inner_encoders():
            pair = [item, {}] if isinstance(item, str) else item
            if isinstance(item, AnyEncoder):
                parts.append(clone(item))
            elif isinstance(pair, list | tuple) and [type(element) for element in pair] == [str, dict]:
                parts.append(make_encoder(pair[0], pair[1], options))
            else:
                expected = "a name such as 'visterms' or 'onnx:PATH', a pair of a name and settings, or an encoder"
                problem = f"An inner encoder is {item!r}."
                raise UserError(problem, setting=self.argument, value=item, expected=expected)
            if parts[-1].by_number:
                problem = f"The encoder {item!r} knows images by number only: it has no rows for other images."
                raise UserError(problem, setting=self.argument, value=item, advice="Use it without other encoders.")
        return parts

    def check_settings(self) -> None:
        """Refuse invalid settings, including those of the inner encoders."""
        super().check_settings()
        for part in self._make_parts():
            part.check_settings()

    def check_allowed(self) -> None:
        """Run the same check of the fitted inner encoders."""
        for part in getattr(self, "parts_", ()):
            part.check_allowed()

    def _fit_parts(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        parts = self._make_parts()
        for part in parts:
            part.fit(images, skip_unreadable=skip_unreadable, progress=progress)
        self.parts_ = parts

    def _sample_rows(self, images: Images, skip: bool, progress: Progress, task: str) -> Generator[list[Matrix]]:
        """Yield the rows of randomly drawn images from the fitted inner encoders, batch by batch."""
        if not skip:
            self.refuse_unknown(images)
        unknown = self.unknown_images(images)
        drawn = as_generator(self.random_state).permutation(len(images))[: self.max_fit_images]
        known_images = [images[i] for i in drawn if i not in unknown]
        skipped: list[Skipped] = []
        is_any_read = False

        with reported(progress, task, len(known_images)):
            for indices, pixels in self._batches(known_images, skipped, progress):
                is_any_read = True
                if skipped and not skip:
                    break
                yield self._part_rows(pixels, [known_images[i] for i in indices])

        if skipped and not skip:
            raise ImageError(skipped[0].image, skipped[0].reason)
        if not is_any_read:
            unknown_items = [Skipped(name_of(images[i]), reason) for i, reason in unknown.items()]
            raise NoneReadableError([*skipped, *unknown_items])

    def unknown_images(self, images: AnyImages) -> dict[int, str]:
        """Return the images that an inner encoder does not know, by position, with the encoder's reason."""
        reasons = {i: reason for part in reversed(self.parts_) for i, reason in part.unknown_images(images).items()}
        return dict(sorted(reasons.items()))

    def _batches(self, images: Images, skipped: list[Skipped], progress: Progress) -> Iterator[Batch]:
        if any(isinstance(part, Encoder) for part in self.parts_):
            yield from super()._batches(images, skipped, progress)
            return
        for start in range(0, len(images), self.batch_size):
            positions = list(range(start, min(start + self.batch_size, len(images))))
            yield positions, []
            progress.advance(len(positions))

    def _encode_batch(self, batch: list[Pixels]) -> Matrix:
        return self._join(self._part_rows(batch, batch))

    def _encode_pixels(self, pixels: list[Pixels], images: AnyImages) -> Matrix:
        return self._join(self._part_rows(pixels, images))

    def _part_rows(self, pixels: list[Pixels], images: AnyImages) -> list[Matrix]:
        """Return the rows of images from each inner encoder; `pixels` are [] if all are of names."""
        rows: list[Matrix] = []
        for part in self.parts_:
            if not isinstance(part, Encoder):
                rows.append(part.transform(images))
                continue
            reduced = [read_image(image_pixels, max_side=part._max_side) for image_pixels in pixels]
            rows.append(part._encode_pixels(reduced, images))
        return rows

    @property
    def _max_side(self) -> int | None:
        sides = [part._max_side for part in self.parts_ if isinstance(part, Encoder)]
        return max((side for side in sides if side is not None), default=None) if None not in sides else None

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Replace unfitted inner encoders by their fingerprints; fitted ones are learned attributes already."""
        inner = None if hasattr(self, "parts_") else [part.fingerprint for part in self._make_parts()]
        return {**params, str(self.argument): inner}


@dataclass(kw_only=True, eq=False, repr=False)
class Chain(NestedEncoder):
    """Joins the rows of several encoders: ``x = (f_1 x_1, f_2 x_2, ...)``.

    The factors are ``f_i = w_i / (l_i √(Σ w²))``, where ``l_i`` is the mean length of encoder i's rows of training
    images. With equal weights ``w`` all encoders contribute equally to the inner product of two images, and rows have a
    length of about 1.

    An image is decoded once for all encoders; an unreadable image has no row. On the command line: ``--encoder
    chain:visterms+onnx:mobilenet.onnx``. Rows are CSR if an encoder's rows are CSR and that is smaller.

    Parameters
    ----------
    encoders : str or list
        Names, names with an argument (``"onnx:PATH"``), pairs of name and settings
        (``("visterms", {"codebook": 2000})``), or encoders, which are cloned. A text is split at each ``+`` that is
        followed by an encoder's name. `ids` is not allowed.
    weights : list of float, optional
        ``w``, one per encoder, above 0. None: all equal.
    random_state : int, RandomState, Generator or None
        Draws the images whose rows are measured; also used by encoders without their own setting.
    batch_size : int
        Number of images encoded together.
    n_jobs : int, optional
        Number of threads, also for encoders without their own setting; None is all cores.

    Attributes
    ----------
    parts_ : list of AnyEncoder
        The fitted encoders.
    factors_ : ndarray of float64, shape (n_encoders,)
        ``f``, where ``l`` is 1 for an encoder whose rows are all 0.
    widths_ : ndarray of int64, shape (n_blocks,)
        Number of features of each encoder, or of each of its blocks if it has several.
    dense_ : bool
        Whether rows are arrays.
    """

    argument = "encoders"
    max_fit_images = 500

    test_params: ClassVar[dict[str, object]] = {
        "encoders": [
            ["visterms", {"colours": 8, "codebook": 40, "sample_blocks": 2000}],
            ["visterms", {"colours": 6, "codebook": 12, "sample_blocks": 2000}],
        ]
    }

    learned: ClassVar[dict[str, Kind]] = {
        "parts_": Listed(Fitted(base=AnyEncoder), "n_encoders"),
        "factors_": Array("float64", ("n_encoders",), above=0, most=1e30),
        "widths_": Array("int64", ("n_blocks",), least=1, most=MAX_COLUMNS),
        "dense_": Flag(),
    }

    encoders: str | Sequence[object] | None = None
    weights: Sequence[float] | None = None
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    @property
    def width(self) -> int | None:
        """Number of columns of all encoders together."""
        return int(self.widths_.sum())

    @property
    def blocks(self) -> list[int]:
        """Widths of the blocks of all encoders; an encoder without blocks is a single block."""
        return [int(width) for width in self.widths_]

    def places(self, image: Place | Pixels) -> Places:
        """Split the row of one image into contributions of places, for encoders that support it.

        The features of the other encoders are in `elsewhere`, under their names. Raises ImageError if the image cannot
        be read; UserError if no encoder supports places.
        """
        check_fitted(self)
        photo = read_image(image, max_side=self._max_side)
        parts = [
            part.places(photo)
            if isinstance(part, HasPlaces)
            else no_places(part.transform([photo]), f"features of '{ENCODERS.name_of(part)}', which have no place")
            for part in self.parts_
        ]
        if not any(len(part.boxes) for part in parts):
            names = ", ".join(ENCODERS.name_of(part) for part in self.parts_)
            raise UserError(f"The chain's encoders ({names}) cannot assign their features to places of a picture.")
        return stacked_places(parts, self.factors_)

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        weights = np.ones(len(self._inner_encoders())) if self.weights is None else np.array(self.weights, np.float64)
        self._fit_parts(images, skip_unreadable, progress)
        batches = list(self._sample_rows(images, skip_unreadable, progress, "measure rows"))
        rows = [stack_rows(list(part)) for part in zip(*batches, strict=True)]
        means = np.array([_lengths(part).mean() or 1.0 for part in rows])

        self.factors_ = weights / means / np.sqrt(np.square(weights).sum())
        widths = [encoder.blocks or [part.shape[1]] for encoder, part in zip(self.parts_, rows, strict=True)]
        self.widths_ = np.concatenate(widths, dtype=np.int64)
        density = sum(sp.csr_array(part).nnz for part in rows) / sum(int(np.prod(part.shape)) for part in rows)
        self.dense_ = not any(sp.issparse(part) for part in rows) or density > MAX_CSR_DENSITY

    def _check_learned(self) -> None:
        widths = [part.width for part in self.parts_]
        if None not in widths and sum(width or 0 for width in widths) != self.width:
            raise DataError(f"widths_ is {self.widths_.tolist()}; the inner encoders return rows of widths {widths}")

    def _check_params(self) -> None:
        check_count(self.batch_size, "batch_size")
        n = len(self._inner_encoders())
        if self.weights is not None:
            check_numbers(self.weights, "weights", f"None, or {n} finite numbers above 0, one per encoder", n=n)

    def _join(self, rows: list[Matrix]) -> Matrix:
        scaled: list[Any] = [part * np.float32(factor) for part, factor in zip(rows, self.factors_, strict=True)]
        if self.dense_:
            return np.hstack([part.toarray() if sp.issparse(part) else part for part in scaled])
        return as_csr(sp.hstack([sp.csr_array(part) for part in scaled], format="csr"))

    def _inner_encoders(self) -> Sequence[object]:
        encoders = split_specs(self.encoders) if isinstance(self.encoders, str) else self.encoders
        items = list(encoders) if isinstance(encoders, Iterable) else []
        if not items:
            expected = "one or more, such as 'visterms+onnx:PATH' or ['visterms', ('onnx', {'path': PATH})]"
            raise UserError(setting="encoders", value=encoders, expected=expected)
        return items


def _lengths(rows: Matrix) -> Doubles:
    squares = np.square(rows.data if sp.issparse(rows) else rows.ravel(), dtype=np.float64)
    row_ids = rows.nonzero()[0] if sp.issparse(rows) else np.repeat(np.arange(len(rows)), rows.shape[1])
    return np.sqrt(np.bincount(row_ids, squares, minlength=rows.shape[0]))
