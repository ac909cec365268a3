"""Nearest rows of a codebook, by matrix products in tiles of fixed shape, and the sums for k-means steps.

The ``c`` nearest to ``x`` has the largest ``x·c - |c|²/2``: a product of the points with the codebook, which gets
``-|c|²/2`` as an additional coordinate. The last bits of a BLAS product depend on the number of rows and the position
of a row, so only the same points in the same order give the same bytes: callers split their points in a fixed way (by
image, or by a fixed number of rows), never by the number of threads.
"""

from __future__ import annotations

import numpy as np

from visterm.kernels.compiled import kernel

TILE = 256  # Points per product: enough for the full speed of BLAS
TILE_WORDS = 1024  # Codebook rows per product: the 256 × 1024 scores stay in the L2 cache
LANES = 64
"""Word w is in lane ``w % LANES``: NumPy computes the maxima of all lanes together, in vector registers."""

PADDING_SCORE = np.float32(-1e30)  # Score of the columns that pad the codebook to full lanes


def prepare_codebook(codebook):
    """Prepare a codebook, float32 (n_words, n_features), for `nearest_words`.

    Return float32, (n_features + 1, n_words rounded up to a multiple of 64): the transposed words over a row of
    ``-|c|²/2``.
    """
    n_words, n_features = codebook.shape
    prepared = np.zeros((n_features + 1, -(-n_words // LANES) * LANES), np.float32)
    prepared[:-1, :n_words] = codebook.T
    prepared[-1, :n_words] = np.square(codebook, dtype=np.float64).sum(axis=1) / -2
    prepared[-1, n_words:] = PADDING_SCORE
    return prepared


def nearest_words(points, prepared, n_nearest=1):
    """Find the `n_nearest` nearest codebook rows of each point, finite float32 (n, n_features).

    `prepared` is from `prepare_codebook`. Returns words, int32 (n, n_nearest), nearest first, ties by the smaller
    index; and float32 scores ``x·c - |c|²/2``, which are (``|x|²`` - squared distance) / 2.
    """
    words = np.zeros((len(points), n_nearest), np.int32)
    scores = np.full((len(points), n_nearest), -np.inf, np.float32)
    tile = np.ones((min(TILE, len(points)), prepared.shape[0]), np.float32)
    scratch = np.empty(len(tile) * min(TILE_WORDS, prepared.shape[1]), np.float32)
    for start in range(0, len(points), TILE):
        part = points[start : start + TILE]
        tile[: len(part), :-1] = part
        for first in range(0, prepared.shape[1], TILE_WORDS):
            columns = prepared[:, first : first + TILE_WORDS]
            product = scratch[: len(part) * columns.shape[1]].reshape(len(part), -1)
            np.matmul(tile[: len(part)], columns, out=product)
            if n_nearest == 1:
                best = product.argmax(axis=1)
                best_scores = product[np.arange(len(part)), best]
                improved = np.flatnonzero(best_scores > scores[start : start + TILE, 0])
                words[start + improved, 0] = first + best[improved]
                scores[start + improved, 0] = best_scores[improved]
                continue
            lanes = product.reshape(len(part), -1, LANES).max(axis=1)
            _keep_best(product, lanes, first, words[start : start + TILE], scores[start : start + TILE])
    return words, scores


@kernel
def add_by_word(points, words, sums, counts):
    """Add each point, in order, to the float64 `sums` and int64 `counts` of its word; skip words out of range."""
    for i in range(points.shape[0]):
        word = words[i]
        if 0 <= word < counts.shape[0]:
            counts[word] += 1
            for j in range(points.shape[1]):
                sums[word, j] += points[i, j]


@kernel
def _keep_best(product, lanes, first, words, scores):
    """Merge a tile of scores, `product`, for words from `first` up into the best `words` and `scores` so far.

    Column j is in lane ``j % 64``; only lanes whose maximum reaches the worst kept score are searched.
    """
    words_per_lane = product.shape[1] // LANES
    last = words.shape[1] - 1
    for i in range(words.shape[0]):
        for lane in range(LANES):
            if lanes[i, lane] >= scores[i, last]:
                for i_word in range(words_per_lane):
                    column = i_word * LANES + lane
                    if product[i, column] >= scores[i, last]:
                        keep_word(product[i, column], first + column, i, words, scores)


@kernel
def keep_word(score, word, i, words, scores):
    """Insert a word into the best words of point i if its score is high enough; ties keep the smaller word first.

    The point's row is indexed, never sliced: creating views would cost more than the rest.
    """
    rank = scores.shape[1] - 1
    if score < scores[i, rank] or (score == scores[i, rank] and word > words[i, rank]):
        return
    while rank > 0:
        higher_score = scores[i, rank - 1]
        if score < higher_score or (score == higher_score and word > words[i, rank - 1]):
            break
        scores[i, rank] = higher_score
        words[i, rank] = words[i, rank - 1]
        rank -= 1
    scores[i, rank] = score
    words[i, rank] = word
