"""Histograms of colours and textons in spatial pyramids at several scales: the objects-and-parts paper's ensemble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, Kind
from visterm.core.progress import Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import RandomState
from visterm.data import resized
from visterm.encoders import (
    COLOUR_SPACES,
    MAX_COLOURS,
    MAX_VALUE,
    Encoder,
    Pixels,
    check_levels,
    check_numbers,
    learn_palette,
    weights_of_levels,
)
from visterm.kernels import colour_codes, colour_table, gray_levels
from visterm_research.encoders.textons import FilterBank, TextonFinder, learn_textons
from visterm_research.kernels.pyramids import pyramid_histograms

MOST_TEXTONS = 65_536
MOST_SCALES = 32
MAX_CSR_COLUMNS = 2**24
SMALL_SIDE = 256
MAX_FILTER_BYTES = 2**29  # What filtering a photo of `SMALL_SIDE` pixels a side may take


@dataclass(kw_only=True, eq=False, repr=False)
class Histograms(Encoder):
    """Spatial-pyramid and multi-scale histograms of colours and textons, side by side.

    The objects-and-parts paper [1]_ (section 6.1) concatenates "various spatial and multiscale color and texton
    histograms", without saying which; here they are these. A photo is looked at in a few sizes (`scales`). In each,
    every pixel has a colour, the nearest of a palette that k-means learned, and a texton [2]_, the nearest of the
    patterns that k-means found among the responses of a bank of filters (learned anew for each scale). Both are counted
    in the whole picture, in its quarters, in its sixteenths, ... [3]_.

    Each such histogram is a block of shares that sum to its weight, and all weights sum to 1. So the intersection
    ``Σ min(x, y)`` of two rows is at most 1, which is reached by equal rows: the kernel for ``kernel_pca:histograms``,
    which is how the paper goes on.

    The defaults were chosen by MAP over images of ridge and knn on those 1,024 numbers, on training photos of Corel5k
    that nothing had learned from. The weights of levels and kinds mattered less than colours, scales and textons.

    Parameters
    ----------
    colours : int
        Colours in the palette, at most 256; 0 leaves the colour histograms out.
    colour_space : {"lab", "rgb"}
        Where colours are compared: CIELAB, near to what eyes see, or RGB.
    textons : int
        Textons of each scale, at most 65,536; 0 leaves the texton histograms out. Fewer are learned from pictures
        without that many patterns.
    orientations : int
        Directions of the edge and bar filters.
    sigmas : sequence of float
        Widths of the filters in pixels. Each adds 2 · `orientations` + 2 filters, and time.
    scales : sequence of float
        Sizes in which a photo is looked at, 1 being as it was read (see `max_side`), 0.5 half as long and wide.
    levels : int
        Levels of the pyramid, from the whole picture (1) on; the last has 2^(levels - 1) cells a side. Each
        multiplies the number of features by nearly 4.
    level_weights : sequence of float, optional
        What the levels weigh, the whole picture first. None: 1/2 for the finest, half as much for each coarser one,
        the coarsest as the one after it, as in [3]_.
    texton_weight : float
        What the texton histograms weigh beside the colour histograms.
    max_side : int
        Images are reduced on reading to this long side, in pixels.
    sample_pixels : int
        Pixels of each scale from which textons are learned.
    random_state : int, RandomState, Generator or None
        Draws the training images, their pixels, and the first words of k-means.
    batch_size, n_jobs
        As in `Visterms`.

    Attributes
    ----------
    colours_ : ndarray of float32, shape (n_colours, 3)
        In `colour_space`.
    textons_ : ndarray of float32, shape (n_textons, n_filters)
        Those of the first scale, then those of the second, ...
    scale_textons_ : ndarray of int64, shape (n_scales,)
        How many textons each scale has.
    spread_ : ndarray of float32, shape (n_scales, n_filters)
        Standard deviations of the filters' responses.

    References
    ----------
    .. [1] G. Mesnil, A. Bordes, J. Weston, G. Chechik, Y. Bengio, "Learning semantic representations of objects and
       their parts", Machine Learning 94, 2014.
    .. [2] T. Leung, J. Malik, "Recognizing surfaces using three-dimensional textons", ICCV 1999.
    .. [3] S. Lazebnik, C. Schmid, J. Ponce, "Beyond bags of features: spatial pyramid matching for recognizing natural
       scene categories", CVPR 2006, after K. Grauman, T. Darrell, "The pyramid match kernel", JMLR 8, 2007.
    """

    max_fit_images = 500

    test_params: ClassVar[dict[str, Any]] = {
        "colours": 6,
        "textons": 8,
        "orientations": 2,
        "sigmas": (1.0,),
        "scales": (1.0, 0.5),
        "levels": 2,
        "sample_pixels": 600,
    }

    learned: ClassVar[dict[str, Kind]] = {
        "colours_": Array("float32", ("n_colours", 3), least=-MAX_VALUE, most=MAX_VALUE, empty=True),
        "textons_": Array("float32", ("n_textons", "n_filters"), least=-MAX_VALUE, most=MAX_VALUE, empty=True),
        "scale_textons_": Array("int64", ("n_texton_scales",), least=1, most=MOST_TEXTONS, empty=True),
        "spread_": Array("float32", ("n_texton_scales", "n_filters"), above=1e-12, empty=True),
    }

    colours: int = 256
    colour_space: str = "lab"
    textons: int = 256
    orientations: int = 6
    sigmas: Sequence[float] = (1.0,)
    scales: Sequence[float] = (1.0, 0.5)
    levels: int = 3
    level_weights: Sequence[float] | None = None
    texton_weight: float = 1.0
    max_side: int = 256
    sample_pixels: int = 100_000
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    @property
    def width(self) -> int | None:
        """All levels of colours and textons at each scale."""
        return sum(self.blocks)

    @property
    def blocks(self) -> list[int]:
        """Widths of the colours and of the textons of each scale, all levels together."""
        cells = sum(4**level for level in range(self.levels))
        textons = self.scale_textons_ if self.textons else [0] * len(self.scales)
        return [cells * int(n) for of_scale in textons for n in (len(self.colours_), of_scale) if n]

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        self._check_params()
        images = list(islice(sample, self.max_fit_images))
        shared: dict[str, Any] = {"n_jobs": self.n_jobs, "progress": progress}
        self.colours_ = np.empty((0, 3), np.float32)
        if self.colours:
            self.colours_ = learn_palette(images, self.colours, self.colour_space, rng, **shared)
        bank = self._bank()
        learned, spread = [np.empty((0, bank.n_filters), np.float32)], []
        for scale in self.scales if self.textons else ():
            pictures = [gray_levels(_scaled(pixels, scale)) for pixels in images]
            task = f"learn textons of scale {scale:g}"
            found = learn_textons(pictures, bank, self.textons, self.sample_pixels, rng, task=task, **shared)
            learned.append(found.patterns)
            spread.append(found.spread)
        self.textons_ = np.concatenate(learned)
        self.scale_textons_ = np.array([len(patterns) for patterns in learned[1:]], np.int64)
        self.spread_ = np.array(spread, np.float32).reshape(-1, bank.n_filters)

    def _encode_batch(self, batch: list[Pixels]) -> NDArray[np.float32]:
        table = colour_table(self.colours_, self.colour_space == "lab")
        finders = self._finders()
        with one_blas_thread(), Team(min(resolve_jobs(self.n_jobs), len(batch))) as team:
            return np.stack(team.run(lambda i: self._row(batch[i], table, finders), len(batch)))

    def _row(self, pixels: Pixels, table: NDArray[np.uint8], finders: list[TextonFinder]) -> NDArray[np.float32]:
        """Return the row of one image: for each scale the levels of colours, then those of textons."""
        blocks: list[NDArray[np.float32]] = []
        levels = weights_of_levels(self.levels, self.level_weights)
        textons = self.texton_weight / (1 + self.texton_weight) if self.colours else 1.0
        for s, scale in enumerate(self.scales):
            picture = _scaled(pixels, scale)
            counted = []
            if self.colours:
                codes = colour_codes(picture, table).astype(np.uint16)
                counted.append((codes, len(self.colours_), 1 - textons if self.textons else 1.0))
            if self.textons:
                counted.append((finders[s].find(gray_levels(picture)), int(self.scale_textons_[s]), textons))
            for codes, n_codes, weight in counted:
                found = pyramid_histograms(codes, n_codes, self.levels)
                blocks += [
                    block * np.float32(weight * level / len(self.scales))
                    for block, level in zip(found, levels, strict=True)
                ]
        return np.concatenate(blocks)

    def _bank(self) -> FilterBank:
        return FilterBank(self.orientations, tuple(float(sigma) for sigma in self.sigmas))

    def _finders(self) -> list[TextonFinder]:
        """Return what finds the textons of each scale."""
        return self._cached(
            lambda bank, textons, spreads, counts: [
                TextonFinder(bank, spread, textons[end - n : end])
                for spread, end, n in zip(spreads, np.cumsum(counts), counts, strict=True)
            ],
            self._bank(), self.textons_, self.spread_, self.scale_textons_,
        )  # fmt: skip

    def _check_learned(self) -> None:
        """Refuse colours and textons that are not those of the settings."""
        if len(self.colours_) > MAX_COLOURS:
            raise DataError(f"colours_ has {len(self.colours_)} colours; expected at most {MAX_COLOURS}")
        n_scales, n_filters = (len(self.scales) if self.textons else 0), self._bank().n_filters
        found, counts = self.textons_.shape, self.scale_textons_
        fitting = found == (counts.sum(), n_filters) and len(counts) == n_scales
        if not fitting or bool(len(self.colours_)) != bool(self.colours):
            raise DataError(
                f"There are {len(self.colours_)} colours and textons of the shape {found}, {counts.tolist()} a scale; "
                f"settings: colours={self.colours}, textons={self.textons}, {n_filters} filters, {n_scales} scales"
            )
        if sum(self.blocks) > MAX_CSR_COLUMNS:
            raise DataError(f"Rows would have {sum(self.blocks):,} columns; expected at most {MAX_CSR_COLUMNS:,}")

    def _check_params(self) -> None:
        """Refuse parameters that no histograms can be made with."""
        for name, most in (("colours", MAX_COLOURS), ("textons", MOST_TEXTONS)):
            if getattr(self, name) != 0:
                check_count(getattr(self, name), name, "or 0")
            check_number(getattr(self, name), name, least=0, most=most)
        if not self.colours and not self.textons:
            raise UserError("colours and textons are both 0, so nothing is counted. Set one of them above 0.")
        for name in ("orientations", "max_side", "sample_pixels", "batch_size"):
            check_count(getattr(self, name), name)
        check_number(self.texton_weight, "texton_weight", above=0, most=MAX_VALUE)
        check_numbers(self.sigmas, "sigmas", "widths in pixels above 0, such as (1, 2)")
        check_numbers(self.scales, "scales", "sizes above 0 and at most 1, such as (1, 0.5)", most=1)
        check_levels(self.levels, self.level_weights)
        if len(self.scales) > MOST_SCALES or self._bank().bytes_for(SMALL_SIDE) > MAX_FILTER_BYTES:
            raise UserError(
                f"{len(self.scales)} scales and {self._bank().n_filters} filters, the widest of {max(self.sigmas):g} "
                f"pixels, are too many for a small photo. Choose fewer or smaller ones, {MOST_SCALES} scales at most."
            )
        if self.colour_space not in COLOUR_SPACES:
            raise UserError(f"colour_space is {self.colour_space!r}; expected one of {', '.join(COLOUR_SPACES)}.")


def _scaled(pixels: Pixels, scale: float) -> Pixels:
    """Shrink a photo to `scale` times its sides."""
    height, width, _ = pixels.shape
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return pixels if size == (width, height) else np.array(resized(Image.fromarray(pixels), size))
