"""Several encoders side by side, their rows scaled so that each has its weight."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, check_count
from visterm.core.errors import DataError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, Fitted, Flag, Kind, Listed
from visterm.core.progress import Progress
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, RandomState
from visterm.data.images import read_image
from visterm.encoders.base import Images, Pixels, stack_rows
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import split_specs
from visterm.encoders.nested import NestedEncoder
from visterm.encoders.places import HasPlaces, Places, no_places, stacked_places

DENSE_FROM = 0.5
"""Share of values that are not 0 from which on an array is smaller than CSR, whose values have an index beside them."""

MOST_COLUMNS = 2**40


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

    test_params: ClassVar[dict[str, Any]] = {
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

    encoders: str | Sequence[Any] | None = None
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
        found: list[Places] = []
        for part in self.parts_:
            if isinstance(part, HasPlaces):
                found.append(part.places(photo))
            else:
                name = ENCODERS.name_of(part)
                found.append(no_places(part.transform([photo]), f"features of '{name}', which have no place"))
        if not any(len(part.boxes) for part in found):
            names = ", ".join(ENCODERS.name_of(part) for part in self.parts_)
            raise UserError(f"The chain's encoders ({names}) do not know which places of a picture numbers come from.")
        return stacked_places(found, self.factors_)

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        weights = self._chosen_weights()
        self._fit_parts(images, skip_unreadable, progress)
        batches = list(self._sample_rows(images, skip_unreadable, progress, "measure rows"))
        rows = [stack_rows(list(part)) for part in zip(*batches, strict=True)]
        means = np.array([_lengths(part).mean() or 1.0 for part in rows])
        self.factors_ = weights / means / np.sqrt(np.square(weights).sum())
        widths = [found.blocks or [part.shape[1]] for found, part in zip(self.parts_, rows, strict=True)]
        self.widths_ = np.concatenate(widths, dtype=np.int64)
        filled = sum(sp.csr_array(part).nnz for part in rows) / sum(int(np.prod(part.shape)) for part in rows)
        self.dense_ = not any(sp.issparse(part) for part in rows) or filled > DENSE_FROM

    def _check_learned(self) -> None:
        """Refuse widths that are not those of the encoders inside."""
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

    def _listed(self) -> Sequence[Any]:
        given = self.encoders
        listed = split_specs(given) if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
        if not listed:
            raise UserError(
                f"The chain's encoders are {given!r}; expected one or more: --encoder chain:visterms+onnx:PATH, "
                'or in Python encoders=["visterms", ("onnx", {"path": PATH})].'
            )
        return listed

    def _chosen_weights(self) -> NDArray[np.float64]:
        """Return the weight of each encoder; refuse others than finite numbers above 0."""
        n = len(self._listed())
        if self.weights is None:
            return np.ones(n)
        right = f"weights is {self.weights!r}; expected None, or {n} finite numbers above 0, one an encoder."
        try:
            weights: NDArray[np.float64] = np.asarray(self.weights, np.float64)
        except (TypeError, ValueError) as error:
            raise UserError(right) from error
        if weights.shape != (n,) or not np.isfinite(weights).all() or (weights <= 0).any():
            raise UserError(right)
        return weights


def _lengths(rows: Matrix) -> NDArray[np.float64]:
    squares = np.square(rows.data if sp.issparse(rows) else rows.ravel(), dtype=np.float64)
    of_row = rows.nonzero()[0] if sp.issparse(rows) else np.repeat(np.arange(len(rows)), rows.shape[1])
    return np.sqrt(np.bincount(of_row, squares, minlength=rows.shape[0]))
