"""Cut photos into blocks, learn visual words by k-means, find those of each block, and turn them into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count, check_number
from visterm.core.errors import UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Doubles, Floats, Ints
from visterm.encoders.contract import Places
from visterm.kernels.nearest import TILE, add_by_word, nearest_words, prepare_codebook
from visterm.kernels.pixels import (
    N_PATTERNS,
    bag_row,
    block_edges,
    block_histograms,
    colour_codes,
    gray_levels,
    lab_from_rgb,
    lbp_codes,
)

MAX_BLOCK_CELLS = 8  # Maximum number of cells along a block's side, where a pixel is in 64 blocks per scale
OVERLAP_TOLERANCE = 1e-3  # Tolerance for overlaps written as rounded 1 - 1/n
MAX_LEVELS = 6

POINTS_PER_TASK = 8 * TILE  # Fixed, so that the last bits do not depend on the number of threads

COLOUR_SPACES = ("lab", "rgb")  # Spaces in which colours are compared
PIXELS_PER_IMAGE = 100
MAX_PALETTE_STEPS = 20

MAX_COLOURS = 256  # A pixel's colour is stored in a byte
MAX_VALUE = 1e6  # Maximum value of colours and words from files; results of larger values may overflow float32

FindNearest: TypeAlias = "Callable[[Floats], tuple[NDArray[np.int32], Floats]]"
Level: TypeAlias = "tuple[slice, NDArray[np.int32], np.float32]"


class Codes(NamedTuple):
    """The texture and colour codes of an image's pixels, two bytes per pixel, that blocks count."""

    texture: NDArray[np.uint8]  # shape (height, width): LBP codes below 59
    colour: NDArray[np.uint8]  # shape (height, width): indices of codebook colours


def pixel_codes(pixels: NDArray[np.uint8], table: NDArray[np.uint8]) -> Codes:
    """Return the codes of the pixels of an RGB image; `table` is from `colour_table`."""
    return Codes(lbp_codes(gray_levels(pixels)), colour_codes(pixels, table))


def cells_of_overlap(overlap: object) -> int:
    """Return the number of cells along the side of blocks with this overlap: n for 1 - 1/n.

    Raises UserError if no whole n fits.
    """
    if isinstance(overlap, int | float | np.number) and not isinstance(overlap, bool) and 0 <= overlap < 1:
        n = round(1 / (1 - overlap))
        if n <= MAX_BLOCK_CELLS and abs(overlap - (1 - 1 / n)) < OVERLAP_TOLERANCE:
            return n
    expected = f"0, or 1 - 1/n for a whole n up to {MAX_BLOCK_CELLS}, such as 0.5, 0.667, 0.75 or 0.8"
    raise UserError(setting="overlap", value=overlap, expected=expected)


@dataclass(frozen=True)
class BlockCutter:
    """Cuts images into overlapping blocks and describes each block by a point."""

    sides: tuple[float, ...]  # Side of a block at each scale, as a share of the image's long side
    n_colours: int
    root: bool  # Whether points are square roots of histograms
    texture_weight: float  # Factor of the texture part of points
    block_cells: int = 2  # Number of cells along a block's side (see `cells_of_overlap`)

    def count(self, codes: Codes, scale: int) -> int:
        """Return the number of blocks of an image at a scale."""
        stride = self._stride(codes, scale)
        rows, cols = (block_edges(side, stride) for side in codes.texture.shape)
        return max(1, len(rows) - self.block_cells) * max(1, len(cols) - self.block_cells)

    def points(self, codes: Codes, scale: int) -> Floats:
        """Describe the blocks of an image at a scale, row by row, shape (n_blocks, 59 + n_colours)."""
        (height, width), stride = codes.texture.shape, self._stride(codes, scale)
        rows, cols = block_edges(height, stride), block_edges(width, stride)
        points: Floats = block_histograms(codes.texture, codes.colour, self.n_colours, rows, cols, self.block_cells)
        if self.root:
            np.sqrt(points, out=points)
        points[:, :N_PATTERNS] *= np.float32(self.texture_weight)
        return points

    def boxes(self, codes: Codes, scale: int) -> Doubles:
        """Return the boxes of an image's blocks at a scale, in the order of `points`: float64, shape (n_blocks, 4).

        Left, top, right and bottom are shares of the image's width and height.
        """
        (height, width), stride = codes.texture.shape, self._stride(codes, scale)
        tops, bottoms = _ends(block_edges(height, stride) / height, self.block_cells)
        lefts, rights = _ends(block_edges(width, stride) / width, self.block_cells)
        shape = (len(tops), len(lefts))
        sides = (lefts[None, :], tops[:, None], rights[None, :], bottoms[:, None])
        return np.stack([np.broadcast_to(side, shape).ravel() for side in sides], axis=1)

    def _stride(self, codes: Codes, scale: int) -> float:
        """Return the approximate side of a cell in pixels."""
        height, width = codes.texture.shape
        return float(max(height, width) * self.sides[scale] / self.block_cells)


def _ends(edges: Doubles, block_cells: int) -> tuple[Doubles, Doubles]:
    """Return where blocks begin and end along one side; if a block needs more cells than exist, there is one block."""
    n_cells = min(block_cells, len(edges) - 1)
    return edges[:-n_cells], edges[n_cells:]


def learn_codebook(
    points: Floats,
    n_words: int,
    rng: np.random.Generator,
    *,
    iterations: int = 10,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
    task: str = "codebook",
) -> Floats:
    """Learn at most `n_words` words by k-means on `points`, float32 (n_words, n_features).

    Training starts from distinct points drawn at random; if there are fewer than `n_words`, there are fewer words. A
    word that loses all its points is moved to one of the points furthest from their words. Training stops after
    `iterations` Lloyd steps, or when no point changes its word. Progress shows each step as `task`; `n_jobs` only
    changes the run time.
    """
    first_index: dict[bytes, int] = {}
    for index in rng.permutation(len(points)):
        first_index.setdefault(points[index].tobytes(), index)
        if len(first_index) == n_words:
            break
    codebook = points[list(first_index.values())]

    squares = np.square(points, dtype=np.float64).sum(axis=1)
    previous_words: NDArray[np.int32] | None = None
    with reported(progress, task, iterations):
        for _ in range(iterations):
            words, scores = assign_words(points, prepare_codebook(codebook), n_jobs=n_jobs)
            if previous_words is not None and np.array_equal(words, previous_words):
                break
            previous_words = words
            distances = np.maximum(squares - 2 * scores.astype(np.float64), 0)
            sums = np.zeros(codebook.shape, np.float64)
            counts = np.zeros(len(codebook), np.int64)
            add_by_word(points, words, sums, counts)
            empty_words = np.flatnonzero(counts == 0)  # moved to the points furthest from their words
            furthest = np.argsort(-distances, kind="stable")[: len(empty_words)]
            sums[empty_words], counts[empty_words] = points[furthest], 1
            codebook = (sums / counts[:, None]).astype(np.float32)
            progress.advance()
    return codebook


def assign_words(points: Floats, prepared: Floats, *, n_jobs: int | None = None) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest word of each point, and its score, in `n_jobs` threads (see `nearest_words`)."""
    parts = [points[start : start + POINTS_PER_TASK] for start in range(0, len(points), POINTS_PER_TASK)]
    with one_blas_thread(), Team(min(resolve_jobs(n_jobs), len(parts))) as team:
        nearest = team.run(lambda i: nearest_words(parts[i], prepared), len(parts))
    words, scores = zip(*nearest, strict=True)
    return np.concatenate(words)[:, 0], np.concatenate(scores)[:, 0]


def learn_palette(
    images: Sequence[NDArray[np.uint8]],
    n_colours: int,
    space: str,
    rng: np.random.Generator,
    *,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> Floats:
    """Learn at most `n_colours` colours by k-means on pixels, with the same number of pixels from each image.

    Colours are compared and returned in the space "lab" or "rgb", float32 (n_colours, 3); there are fewer rows if the
    pixels have fewer colours. `n_jobs` only changes the run time.
    """
    flat_images = (pixels.reshape(-1, 3) for pixels in images)
    drawn_pixels = np.concatenate([pixels[rng.integers(0, len(pixels), PIXELS_PER_IMAGE)] for pixels in flat_images])
    points: Floats = (lab_from_rgb(drawn_pixels) if space == "lab" else drawn_pixels).astype(np.float32)
    options: dict[str, Any] = {"n_jobs": n_jobs, "progress": progress}
    return learn_codebook(points, n_colours, rng, iterations=MAX_PALETTE_STEPS, task="learn colours", **options)


class WordFinder:
    """Finds the nearest words of blocks among the words of their scale, or of all scales if these share words.

    `codebook`, (n_words, n_features), has the words of all scales, scale by scale. `scale_words` has the number of
    words of each scale, and `spread` the mean squared distance of its blocks to their nearest word; both have a single
    number if all scales of the `cutter` share their words. A block gets `neighbours` words, or all words of a scale
    with fewer. For `softness` see `Visterms`.
    """

    def __init__(
        self, codebook: Floats, scale_words: Ints, spread: Floats, cutter: BlockCutter, neighbours: int, softness: float
    ) -> None:
        self.cutter = cutter
        self.neighbours = min(neighbours, int(scale_words.max()))
        self.softness = softness
        self._first = np.cumsum(scale_words) - scale_words
        self._n_words = scale_words
        self._spread = spread
        self._find_nearest = [
            self._prepare(codebook[first : first + n_words], min(neighbours, int(n_words)))
            for first, n_words in zip(self._first, scale_words, strict=True)
        ]

    def _prepare(self, words: Floats, n_nearest: int) -> FindNearest:
        """Return the function that finds the `n_nearest` nearest of the words of a scale for points, and scores."""
        return partial(nearest_words, prepared=prepare_codebook(words), n_nearest=n_nearest)

    def find(self, images: Sequence[Codes], i: int, *, with_boxes: bool) -> tuple[NDArray[np.int32], Floats, Doubles]:
        """Return the words of all blocks of image i, the words' shares, and the blocks' boxes (`BlockCutter.boxes`).

        Words are int32 (n_blocks, neighbours). Shares, float32, are the parts of a block that count for each word: rows
        sum to 1, and columns beyond the number of a scale's words are 0. Boxes are empty unless `with_boxes`.
        """
        codes = images[i]
        words, shares, boxes = [], [], [np.empty((0, 4))]
        tiny = float(np.finfo(np.float32).tiny)
        for scale in range(len(self.cutter.sides)):
            codebook = 0 if len(self._find_nearest) == 1 else scale
            points = self.cutter.points(codes, scale)
            scale_words = np.zeros((len(points), self.neighbours), np.int32)
            scale_shares = np.zeros(scale_words.shape, np.float32)
            n_nearest = min(self.neighbours, int(self._n_words[codebook]))
            nearest, scores = self._find_nearest[codebook](points)
            scale_words[:, :n_nearest] = nearest + np.int32(self._first[codebook])
            width = max(self.softness * max(float(self._spread[codebook]), tiny), tiny)
            extra_distances = 2 * (scores[:, :1].astype(np.float64) - scores)
            weights = np.exp(-extra_distances / width)
            scale_shares[:, :n_nearest] = weights / weights.sum(axis=1, keepdims=True)
            words.append(scale_words)
            shares.append(scale_shares)
            if with_boxes:
                boxes.append(self.cutter.boxes(codes, scale))
        return np.concatenate(words), np.concatenate(shares), np.concatenate(boxes)


class VistermPyramid(NamedTuple):
    """The layout of rows: level by level, cell by cell (row by row), word by word."""

    n_words: int
    weights: Doubles  # shape (n_levels,): weights of the levels in the inner product; they sum to 1

    def levels(self, words: NDArray[np.int32], boxes: Doubles) -> Iterator[Level]:
        """Yield the words of an image for each level, renumbered by the cell that contains the block's centre.

        A level consists of its columns in the row, its words numbered from the first of these columns, and the factor
        of its bag, which has length 1. `words` has shape (n_blocks, n_nearest); `boxes`, (n_blocks, 4), are left, top,
        right and bottom as shares of the image's width and height. A single level does not need boxes.
        """
        first = 0
        for level, weight in enumerate(self.weights):
            numbered = words
            if level:
                n_side = 2**level
                column, row = np.minimum((boxes[:, :2] + boxes[:, 2:]) * (n_side / 2), n_side - 1).astype(np.int32).T
                numbered = words + ((row * n_side + column) * np.int32(self.n_words))[:, None]
            stop = first + self.n_words * 4**level
            yield slice(first, stop), numbered, np.float32(np.sqrt(weight))
            first = stop

    def row(
        self, words: NDArray[np.int32], shares: Floats, boxes: Doubles, idf: Floats, *, root: bool
    ) -> tuple[Floats, NDArray[np.int32]]:
        """Make the row of an image: the bag of each level (`bag_row`), times the square root of the level's weight.

        `words` and `boxes` are as in `levels`; `shares` has shape (n_blocks, n_nearest), `idf` (n_columns,). Returns
        weights (float32) and increasing columns (int32).
        """
        parts = []
        for level_columns, numbered, factor in self.levels(words, boxes):
            weights, columns = bag_row(numbered, shares, idf[level_columns], root)
            parts.append((weights * factor, columns + np.int32(level_columns.start)))
        return np.concatenate([weights for weights, _ in parts]), np.concatenate([columns for _, columns in parts])


def block_places(codes: Codes, finder: WordFinder, pyramid: VistermPyramid, idf: Floats, *, root: bool) -> Places:
    """Split the row of an image into the parts that its blocks contribute.

    A visterm's weight in the row, after root and normalisation, is divided among the blocks in proportion to their
    shares of the visterm: over all blocks, its weights sum to the weight in the row. In a pyramid, the weight of a
    visterm in a cell is divided among the blocks of that cell. For `idf` (n_columns,) and `root` see `bag_row`.
    """
    words, counts, boxes = finder.find([codes], 0, with_boxes=True)
    blocks = np.repeat(np.arange(len(words)), words.shape[1])
    bags = []
    for columns, numbered, factor in pyramid.levels(words, boxes):
        values, word_ids = bag_row(numbered, counts, idf[columns], root)
        n = columns.stop - columns.start
        weights = np.zeros(n)
        weights[word_ids] = values

        terms = numbered.ravel()
        totals = np.bincount(terms, counts.ravel(), minlength=n)
        weight_per_count = np.divide(weights, totals, out=np.zeros(n), where=totals > 0)
        contributions = sp.coo_array((counts.ravel() * weight_per_count[terms], (blocks, terms)), (len(words), n))
        bags.append(contributions * float(factor))

    rows = sp.csr_array(sp.hstack(bags, format="csr"))
    rows.eliminate_zeros()
    return Places(boxes, rows, np.zeros(len(idf)), "block", "visterm")


def weights_of_levels(levels: int, level_weights: Sequence[float] | None) -> Doubles:
    """Return the weights of the levels, the whole picture first; they sum to 1.

    `level_weights` are scaled to sum to 1. None: 1/2 for the finest level, half as much for each coarser level,
    except that the two coarsest are equal.
    """
    if level_weights is None:
        level_weights = [2.0 ** (max(level, 1) - levels) for level in range(levels)]
    weights: Doubles = np.array(level_weights, np.float64)
    weights /= weights.sum()
    return weights


def check_levels(levels: int, level_weights: Sequence[float] | None) -> None:
    """Raise UserError for an invalid number of levels, or weights that are not one number above 0 per level."""
    check_count(levels, "levels")
    check_number(levels, "levels", least=1, most=MAX_LEVELS)
    if level_weights is not None:
        check_numbers(level_weights, "level_weights", f"None, or {levels} numbers above 0, one per level", n=levels)


def check_numbers(values: object, name: str, expected: str, *, most: float = np.inf, n: int | None = None) -> None:
    """Raise UserError for values that are not `n` finite numbers above 0 and at most `most`; None is at least one."""
    numbers = list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []
    are_valid = [isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 < v <= most for v in numbers]
    if not are_valid or not all(are_valid) or not np.isfinite(numbers).all() or n not in (None, len(numbers)):
        raise UserError(setting=name, value=values, expected=expected)
