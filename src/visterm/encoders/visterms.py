"""Bags of visterms: overlapping blocks of a photo as words of texture and colour, weighted as in text retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_count, check_number
from visterm.core.errors import DataError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.learned import Array, Kind
from visterm.core.progress import Progress, reported
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Place, RandomState
from visterm.data.images import read_image
from visterm.encoders import blocks
from visterm.encoders.base import Encoder, Pixels
from visterm.encoders.contract import Places
from visterm.kernels.nearest import prepare_codebook
from visterm.kernels.pixels import N_PATTERNS, colour_table

COLOUR_IMAGES = 500  # Maximum number of images whose pixels the colours are learned from
MAX_CODEBOOK_STEPS = 10
MIN_BLOCKS_PER_WORD = 10  # Minimum number of sampled blocks per word of the codebook
OVERLAP = 0.5  # Overlap of blocks in the papers
MAX_SCALES = 32
LATER_PARAMS = {"overlap": OVERLAP, "levels": 1, "level_weights": None, "shared_words": False}
"""Settings added in later versions, with the values that reproduce the earlier behaviour."""


@dataclass(kw_only=True, eq=False, repr=False)
class Visterms(Encoder):
    """Bags of visual words, as in section IV-B of the PAMIR paper [1]_ and 6.2 of the WSABIE paper [2]_.

    A photo is cut into square blocks at a few scales; each block overlaps the next by half. A block is described by two
    histograms of its pixels: of the uniform LBP(8,2) codes of brightness (texture, 59 bins) and of the nearest codebook
    colours. k-means on the training blocks gives each scale its visual words, the visterms; a block counts for its few
    nearest words. An image's row has ``√tf · idf`` for each visterm, divided by the row's length, with ``idf =
    -log(share of training images that have the visterm)``.

    With more than one of `levels`, visterms are counted in the whole picture, in its quarters, in its sixteenths, ...
    [3]_. A visterm in a cell is a separate term with its own idf. Each level is a bag of length 1, so the inner product
    of two rows is the weighted sum of the inner products of their levels.

    The defaults differ from the papers. They were chosen on 500 held-out training photos of Corel5k, by MAP over images
    of ridge regression: separate words for each scale, CIELAB for colours, texture weighted three times as much,
    several words per block, and square roots of histograms and of tf. For the papers' settings use ``shared_words=True,
    colour_space="rgb", texture_weight=1, neighbours=1, root=False, root_terms=False``.

    Parameters
    ----------
    block : float
        Side of a block as a share of the image's long side.
    scales : sequence of float
        Block sizes, as multiples of `block`. Small blocks capture texture and cost time; large ones capture how things
        are arranged.
    overlap : float
        Share of a block's side that the next block also covers: 0, 1/2, 2/3, 3/4, ..., so that all pixels except those
        at the border are in the same number of blocks. A larger overlap means more blocks and takes more time.
    colours : int
        Colours in the colour codebook, at most 256.
    colour_space : {"lab", "rgb"}
        Space in which colours are compared: CIELAB, close to human vision, or RGB as in the paper.
    codebook : int
        Total number of visterms, divided evenly among the scales. Fewer are learned from small collections: at most one
        per 10 sampled blocks.
    shared_words : bool
        Learn one codebook from the blocks of all scales, all equally likely to be drawn, as in the papers: similar
        blocks of different scales are then the same visterm. False: each scale has its own words.
    root : bool
        Take square roots of the histograms, so that k-means compares them by Hellinger's distance.
    texture_weight : float
        Weight of the texture histogram, relative to the colour histogram, in the distance between blocks.
    neighbours : int
        Number of nearest words that a block counts for. 1 is hard assignment and gives the sparsest rows.
    softness : float
        How evenly a block counts for its nearest words: a word at squared distance d² gets a share proportional to
        ``exp(-(d² - d₁²) / (softness · mean d₁²))``, where d₁ is the distance of the nearest word.
    root_terms : bool
        Weight a word by the square root of its frequency, so that a large plain sky does not dominate.
    levels : int
        Number of pyramid levels. 1 is the whole picture only; the last level has 2^(levels - 1) cells per side. A block
        belongs to the cell that contains its centre. Each level multiplies the number of features by nearly 4 and makes
        rows longer. Whether that improves the ranking depends on the model: try it on your own photos.
    level_weights : sequence of float, optional
        Weights of the levels in the inner product of two rows, the whole picture first. None: 1/2 for the finest level
        and half as much for each coarser one, except that the two coarsest are equal, as in [3]_.
    max_side : int
        Images are read at this long side, in pixels, if they are larger.
    sample_blocks : int
        Number of blocks, over all scales, that the codebook is learned from.
    random_state : int, RandomState, Generator or None
        Draws the training images, pixels and blocks, and the initial words of k-means.
    batch_size : int
        Number of images encoded together.
    n_jobs : int, optional
        Number of threads; None is all cores. The output is the same for any number.

    Attributes
    ----------
    colours_ : ndarray of float32, shape (n_colours, 3)
        The palette, in `colour_space`.
    codebook_ : ndarray of float32, shape (n_words, 59 + n_colours)
        The words of the first scale, then those of the second, ...
    scale_words_ : ndarray of int64, shape (n_scales,)
        Number of words of each scale; a single number if scales share their words.
    spread_ : ndarray of float32, shape (n_scales,)
        Mean squared distance of the sampled blocks to their words; a single number if scales share their words.
    idf_ : ndarray of float32, shape (n_features,)
        One value per word, or per word and cell; 0 for words that no training image has.

    References
    ----------
    .. [1] D. Grangier, S. Bengio, "A discriminative kernel-based model to rank images from text queries", IEEE PAMI
       30(8), 2008.
    .. [2] J. Weston, S. Bengio, N. Usunier, "Large scale image annotation: learning to rank with joint word-image
       embeddings", Machine Learning 81(1), 2010.
    .. [3] S. Lazebnik, C. Schmid, J. Ponce, "Beyond bags of features: spatial pyramid matching for recognizing natural
       scene categories", CVPR 2006; [1]_, section VI, plans something similar.
    """

    test_params: ClassVar[dict[str, object]] = {"colours": 8, "codebook": 40, "sample_blocks": 2000}

    learned: ClassVar[dict[str, Kind]] = {
        "colours_": Array("float32", ("n_colours", 3), least=-blocks.MAX_VALUE, most=blocks.MAX_VALUE),
        "codebook_": Array(
            "float32", ("n_words", f"n_colours + {N_PATTERNS}"), least=-blocks.MAX_VALUE, most=blocks.MAX_VALUE
        ),
        "scale_words_": Array("int64", ("n_codebooks",), least=1, most="n_words"),
        "spread_": Array("float32", ("n_codebooks",), least=0),
        "idf_": Array("float32", ("n_features",), least=0, most=blocks.MAX_VALUE),
    }

    block: float = 1 / 6
    scales: Sequence[float] = (0.5, 1.0, 2.0)
    overlap: float = OVERLAP
    colours: int = 50
    colour_space: str = "lab"
    codebook: int = 10_000
    shared_words: bool = False
    root: bool = True
    texture_weight: float = 3.0
    neighbours: int = 4
    softness: float = 0.25
    root_terms: bool = True
    levels: int = 1
    level_weights: Sequence[float] | None = None
    max_side: int = 256
    sample_blocks: int = 200_000
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    @property
    def width(self) -> int | None:
        """One column per word, or per word and cell."""
        return len(self.idf_)

    def places(self, image: Place | Pixels) -> Places:
        """Split the row of one image into the parts that its blocks contribute.

        Raises ImageError if the image cannot be read.
        """
        check_fitted(self)
        codes = blocks.pixel_codes(read_image(image, max_side=self._max_side), self._table())
        with one_blas_thread():
            return blocks.block_places(codes, *self._finder_and_pyramid(), self.idf_, root=self.root_terms)

    def _fit_sample(self, sample: Iterator[Pixels], rng: np.random.Generator, progress: Progress) -> None:
        self._check_params()
        colour_sample = list(islice(sample, COLOUR_IMAGES))
        options: dict[str, Any] = {"n_jobs": self.n_jobs, "progress": progress}
        self.colours_ = blocks.learn_palette(colour_sample, self.colours, self.colour_space, rng, **options)
        # keep the codes of all images: their blocks are needed for the words and for the idf
        code_of = partial(blocks.pixel_codes, table=self._table())
        codes = self._describe_all(chain(colour_sample, sample), code_of, **options)
        self._learn_words(codes, rng, progress)
        self.idf_ = self._learn_idf(codes, progress)

    def _encode_batch(self, batch: list[Pixels]) -> sp.csr_array:
        table, (finder, pyramid), n_images = self._table(), self._finder_and_pyramid(), len(batch)
        with one_blas_thread(), Team(min(resolve_jobs(self.n_jobs), n_images)) as team:
            codes = team.run(lambda i: blocks.pixel_codes(batch[i], table), n_images)
            words = team.run(partial(finder.find, codes, with_boxes=self.levels > 1), n_images)
            rows = team.run(lambda i: pyramid.row(*words[i], self.idf_, root=self.root_terms), n_images)
        return sp.csr_array(
            (
                np.concatenate([weights for weights, _ in rows]),
                np.concatenate([columns for _, columns in rows]),
                np.cumsum([0, *(len(weights) for weights, _ in rows)]),
            ),
            shape=(n_images, len(self.idf_)),
        )

    def _fingerprint_params(self, params: dict[str, object]) -> dict[str, object]:
        """Leave out later settings with their original value, so that rows stored by earlier versions stay valid."""
        return {key: value for key, value in params.items() if key not in LATER_PARAMS or value != LATER_PARAMS[key]}

    def _learn_words(self, codes: list[blocks.Codes], rng: np.random.Generator, progress: Progress) -> None:
        """Learn the words of each scale, or of all scales together, and the mean distance of blocks to their words."""
        scales = range(len(self.scales))
        groups = [list(scales)] if self.shared_words else [[scale] for scale in scales]
        n_groups = len(groups)
        codebooks: list[NDArray[np.float32]] = []
        spreads: list[float] = []

        for group, group_scales in enumerate(groups):
            points = self._draw_blocks(codes, group_scales, max(1, self.sample_blocks // n_groups), rng)
            max_words = self.codebook * (group + 1) // n_groups - self.codebook * group // n_groups
            n_words = max(1, min(max_words, len(points) // MIN_BLOCKS_PER_WORD))
            options: dict[str, Any] = {"n_jobs": self.n_jobs, "progress": progress}
            task = "learn visterms" if self.shared_words else f"learn visterms of scale {group + 1} of {n_groups}"
            words = blocks.learn_codebook(points, n_words, rng, iterations=MAX_CODEBOOK_STEPS, task=task, **options)
            _, scores = blocks.assign_words(points, prepare_codebook(words), n_jobs=self.n_jobs)
            squares = np.square(points).sum(axis=1) - 2 * scores
            codebooks.append(words)
            spreads.append(float(np.maximum(squares, 0).mean(dtype=np.float64)))

        self.codebook_ = np.concatenate(codebooks)
        self.scale_words_ = np.array([len(words) for words in codebooks], np.int64)
        self.spread_ = np.array(spreads, np.float32)

    def _draw_blocks(
        self, codes: list[blocks.Codes], scales: list[int], max_blocks: int, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw at most `max_blocks` blocks of the given scales, all equally likely, from all images."""
        cutter = self._cutter()
        ends = np.cumsum([sum(cutter.count(image, scale) for scale in scales) for image in codes])
        block_numbers = np.sort(rng.permutation(ends[-1])[:max_blocks])
        cuts = np.searchsorted(block_numbers, ends)
        starts = np.concatenate([[0], cuts[:-1]])
        image_positions = np.flatnonzero(cuts > starts)

        def image_points(j: int) -> NDArray[np.float32]:
            i = image_positions[j]
            ids = block_numbers[starts[i] : cuts[i]] - ends[i]
            return np.asarray(np.concatenate([cutter.points(codes[i], scale) for scale in scales])[ids])

        with Team(resolve_jobs(self.n_jobs)) as team:
            return np.concatenate(team.run(image_points, len(image_positions)))

    def _learn_idf(self, codes: list[blocks.Codes], progress: Progress) -> NDArray[np.float32]:
        """Return ``-log(share of images that have the word, or the word in the cell)``; 0 if no image has it."""
        finder, pyramid = self._finder_and_pyramid()
        n_columns = len(self.codebook_) * (4**self.levels - 1) // 3  # in 1 + 4 + 16 ... cells
        unit_idf, n_images_with = np.ones(n_columns, np.float32), np.zeros(n_columns, np.int64)

        def columns(batch: list[blocks.Codes], i: int) -> NDArray[np.int32]:
            return pyramid.row(*finder.find(batch, i, with_boxes=self.levels > 1), unit_idf, root=False)[1]

        n_jobs = min(resolve_jobs(self.n_jobs), len(codes))
        with reported(progress, "count visterms", len(codes)), one_blas_thread(), Team(n_jobs) as team:
            for start in range(0, len(codes), self.batch_size):
                batch = codes[start : start + self.batch_size]
                for words in team.run(partial(columns, batch), len(batch)):
                    n_images_with[words] += 1
                progress.advance(len(batch))
        idf = np.zeros(len(unit_idf), np.float32)
        idf[n_images_with > 0] = -np.log(n_images_with[n_images_with > 0] / len(codes))
        return idf

    def _cutter(self) -> blocks.BlockCutter:
        sides, cells = tuple(self.block * float(scale) for scale in self.scales), blocks.cells_of_overlap(self.overlap)
        return blocks.BlockCutter(sides, len(self.colours_), self.root, self.texture_weight, cells)

    def _table(self) -> NDArray[np.uint8]:
        return self._cached(colour_table, self.colours_, self.colour_space == "lab")

    def _finder_and_pyramid(self) -> tuple[blocks.WordFinder, blocks.VistermPyramid]:
        """Return the word finder for blocks, which is created once, and the layout of rows."""
        pyramid = blocks.VistermPyramid(len(self.codebook_), blocks.weights_of_levels(self.levels, self.level_weights))
        return self._finder(self.codebook_, self.scale_words_, self.spread_, self._cutter()), pyramid

    def _finder(self, *parts: Any) -> blocks.WordFinder:
        """Return the word finder for a codebook, the words of its scales, their spread, and a cutter."""
        return self._cached(blocks.WordFinder, *parts, self.neighbours, self.softness)

    def _check_learned(self) -> None:
        if len(self.colours_) > blocks.MAX_COLOURS:
            raise DataError(f"colours_ has {len(self.colours_)} colours; expected at most {blocks.MAX_COLOURS}")
        n_codebooks = 1 if self.shared_words else len(self.scales)
        if len(self.scale_words_) != n_codebooks or self.scale_words_.sum() != len(self.codebook_):
            expected = f"the words of {n_codebooks} codebooks, {len(self.codebook_)} in total"
            raise DataError(f"scale_words_ is {self.scale_words_.tolist()}; expected {expected}")
        n_columns = len(self.codebook_) * (4**self.levels - 1) // 3  # in 1 + 4 + 16 ... cells
        if len(self.idf_) != n_columns:
            raise DataError(f"idf_ has {len(self.idf_)} numbers; expected {n_columns}, one per column")

    def _check_params(self) -> None:
        for name in ("colours", "codebook", "neighbours", "max_side", "sample_blocks", "batch_size"):
            check_count(getattr(self, name), name)
        check_number(self.colours, "colours", least=1, most=blocks.MAX_COLOURS)
        for name in ("block", "texture_weight", "softness"):
            check_number(getattr(self, name), name, above=0, most=blocks.MAX_VALUE)
        expected = f"1 to {MAX_SCALES} numbers above 0, such as (0.5, 1, 2)"
        blocks.check_numbers(self.scales, "scales", expected)
        if len(self.scales) > MAX_SCALES:
            raise UserError(setting="scales", value=self.scales, expected=expected)

        if self.block * max(self.scales) > 1:
            raise UserError(
                f"The largest block would be {self.block * max(self.scales):g} of the long side.", setting="block",
                value=self.block, expected="blocks of at most 1, times each of `scales`",
            )  # fmt: skip
        blocks.cells_of_overlap(self.overlap)
        blocks.check_levels(self.levels, self.level_weights)
        check_choice(self.colour_space, "colour_space", blocks.COLOUR_SPACES)
