"""What a batch of a deep tagger is trained for: a cost of the tags drawn for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from visterm.models.deep.tag_draws import DrawnTags, Ints, TagDraws
from visterm.models.deep.word_table import WordTable

MOST_DISTINCT = 12
"""Distinct words, for each word drawn for an image, up to which one product of all of them is quicker than one of each
image's own: many more multiplications, and far fewer bytes (measured by
research/experiments/sampled.py, at 300 numbers a word)."""

MOST_TAGS = 8  # For each draw of a batch: with more, few tags are drawn twice, and going over all does not pay


class SampledObjective:
    """A cost of the tags drawn for each image: equation (1), or another `cost` in place of its first two sums.

    `alpha` is the weight of the last two sums of (1), `printed` takes them as printed (`related_tags`). Neither has an
    effect where words do not move.
    """

    def __init__(
        self,
        draws: TagDraws,
        *,
        alpha: float = 0.0,
        printed: bool = False,
        cost: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self._draws, self._alpha, self._printed = draws, alpha, printed
        self._cost = cost or sampled_cross_entropy

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Draw the epoch's subset, if there is one."""
        self._draws.start_epoch(rng)

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Draw tags for a batch, and return its cost."""
        drawn = self._draws.draw(images, rng)
        n_positives = drawn.positives.shape[1]
        rows = drawn_rows(f, np.hstack([drawn.positives, drawn.negatives]), table)
        has, counts = (torch.from_numpy(flags.astype(np.float32)).to(f.device) for flags in (drawn.has, drawn.counts))
        if not table.moving or not (self._alpha or self._printed):
            scores = rows.scores()
            return self._cost(scores[:, :n_positives], scores[:, n_positives:], has, counts)
        scores, products = rows.scores_and_products(n_positives)
        pairs, apart = (torch.from_numpy(flags).to(f.device) for flags in _pairs(drawn))
        alike, unlike = products[:, :, :n_positives], products[:, :, n_positives:]
        related = related_tags(alike, unlike, pairs, apart, alpha=self._alpha, printed=self._printed)
        return self._cost(scores[:, :n_positives], scores[:, n_positives:], has, counts) + related


def _pairs(drawn: DrawnTags) -> tuple[np.ndarray, np.ndarray]:
    """Return which pairs of draws are of two tags that the image has, and which of one that it has and one not."""
    p, has = drawn.positives, drawn.has
    two = (p[:, :, None] != p[:, None, :]) & has[:, :, None]
    return two.astype(np.float32), (has[:, :, None] & drawn.counts[:, None, :]).astype(np.float32)


def sampled_cross_entropy(s_p: Tensor, s_n: Tensor, has: Tensor, counts: Tensor) -> Tensor:
    """Return ``- Σ_p log σ(f · v_p) - Σ_n log σ(- f · v_n)``, the first two sums of (1), as the mean over images.

    `s_p` (n_images, P) and `s_n` (n_images, N) are scores ``f · v`` of drawn tags; `has` and `counts`, of the same
    shapes, are 1 for draws that count, 0 for others.
    """
    return ((softplus(-s_p) * has).sum() + (softplus(s_n) * counts).sum()) / len(s_p)


def related_tags(alike: Tensor, unlike: Tensor, pairs: Tensor, apart: Tensor, *, alpha: float, printed: bool) -> Tensor:
    """Return the last two sums of (1), negative, as the mean over images.

    ``- α (Σ_{p,p'} log σ(v_p · v_p') + Σ_{p,n} log σ(- v_p · v_n))``, or as printed, with neither the logarithms nor α
    before the second: ``- α Σ σ(v_p · v_p') - Σ σ(- v_p · v_n)``. The products of drawn tags are `alike` (n_images, P,
    P) and `unlike` (n_images, P, N). `pairs` is 1 where two draws are two tags (both orders count), `apart` is 1 for
    pairs that count.
    """
    if printed:
        gained = alpha * (alike.sigmoid() * pairs).sum() + ((-unlike).sigmoid() * apart).sum()
    else:
        gained = alpha * ((logsigmoid(alike) * pairs).sum() + (logsigmoid(-unlike) * apart).sum())
    return -gained / len(alike)


def drawn_rows(f: Tensor, tags: Ints, table: WordTable) -> RowADraw | RowAWord:
    """Take the rows of the tags drawn for a batch (n_images, n_drawn) from the table, in the quicker of two ways.

    Both give the same scores and gradients but for rounding. On a GPU each draw has its own row: adding up the
    gradients of a word there depends on the order, so that no two trainings would be the same.
    """
    n_tags = len(table.rows)
    if f.device.type == "cpu" and n_tags <= MOST_TAGS * tags.size:
        drawn = np.zeros(n_tags, np.bool_)
        drawn[tags] = True
        distinct = np.flatnonzero(drawn)
        if len(distinct) <= MOST_DISTINCT * tags.shape[1]:
            places = (np.cumsum(drawn) - 1)[tags]
            return RowAWord(f, table.take(distinct), torch.from_numpy(places))
    return RowADraw(f, table.take(tags).view(len(f), -1, f.shape[1]))


class RowADraw:
    """Vectors of images `f` (n_images, dim), and of the words drawn for each (n_images, n_drawn, dim)."""

    def __init__(self, f: Tensor, rows: Tensor) -> None:
        self._f, self._rows = f, rows

    def scores(self) -> Tensor:
        """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
        return drawn_scores(self._f, self._rows)

    def scores_and_products(self, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores, and products of the first P drawn words with all of an image: (n_images, P, n_drawn)."""
        scores, products = DrawnProducts.apply(self._f, self._rows, n_positives)
        return scores, products


class RowAWord:
    """Vectors of images `f` (n_images, dim) and of words (n_words, dim), and which of these were drawn for each image.

    `places` are int64 (n_images, n_drawn).
    """

    def __init__(self, f: Tensor, rows: Tensor, places: Tensor) -> None:
        self._f, self._rows, self._places = f, rows, places

    def scores(self) -> Tensor:
        """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
        return (self._f @ self._rows.T).gather(1, self._places)

    def scores_and_products(self, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores, and products of the first P drawn words with all of an image: (n_images, P, n_drawn)."""
        places, n_words = self._places, len(self._rows)
        positives, where = places[:, :n_positives].unique(return_inverse=True)
        products = self._rows[positives] @ self._rows.T
        pairs = where[:, :, None] * n_words + places[:, None, :]
        return self.scores(), products.view(-1).index_select(0, pairs.view(-1)).view(pairs.shape)


class DrawnProducts(torch.autograd.Function):  # type: ignore[misc]
    """Scores of drawn words, and the products of the first P of them with all.

    The same as ``rows @ f`` and ``rows[:, :P] @ rows.mT``; torch's own gradient of these copies the rows a dozen times,
    which takes three times as long as the products.
    """

    @staticmethod
    def forward(ctx: Any, f: Tensor, rows: Tensor, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores (n_images, n_drawn) and products (n_images, P, n_drawn).

        `f` is (n_images, dim), `rows` (n_images, n_drawn, dim), and `n_positives` P.
        """
        ctx.save_for_backward(f, rows)
        ctx.n_positives = n_positives
        return drawn_scores(f, rows), torch.bmm(rows[:, :n_positives], rows.mT)

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_products: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of f and the rows."""
        f, rows = ctx.saved_tensors
        of_f = torch.bmm(of_scores[:, None], rows)[:, 0]
        n_images, n_drawn, _ = rows.shape
        of_pairs = rows.new_zeros(n_images, n_drawn, n_drawn)  # a word's gradient, in terms of the other words
        of_pairs[:, : ctx.n_positives] = of_products
        of_pairs[:, :, : ctx.n_positives] += of_products.mT
        of_rows = torch.bmm(of_pairs, rows)
        of_rows.baddbmm_(of_scores[:, :, None], f[:, None])
        return of_f, of_rows, None


def drawn_scores(f: Tensor, rows: Tensor) -> Tensor:
    """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
    return torch.bmm(f[:, None], rows.mT)[:, 0]
