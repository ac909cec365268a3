"""The training objectives of deep taggers: costs of the tags drawn for each image of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from visterm.core.types import Ints
from visterm.models.deep.tag_draws import TagDraws
from visterm.models.deep.word_table import WordTable

MAX_DISTINCT_WORDS = 12
"""With up to this many distinct words per word drawn for an image, one product with all distinct words is faster than a
product per image: it takes many more multiplications, but reads far fewer bytes (measured by
research/experiments/sampled.py, with vectors of 300 numbers)."""

MAX_TAGS_PER_DRAW = 8  # With more tags per draw of a batch, few tags are drawn twice, and an array of all is too slow


class SampledObjective:
    """The cost of the tags drawn for each image: equation (1), or another `cost` in place of its first two sums.

    `alpha` is the weight of the last two sums of (1); `printed` uses the formula printed in the paper (`related_tags`).
    Neither has an effect if words do not move.
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
        """Draw the subset of this epoch, if the draws use one."""
        self._draws.start_epoch(rng)

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Draw tags for a batch, and return its cost."""
        drawn = self._draws.draw(images, rng)
        n_positives = drawn.positives.shape[1]
        rows = drawn_rows(f, np.hstack([drawn.positives, drawn.negatives]), table)
        is_positive, is_negative = (
            torch.from_numpy(flags.astype(np.float32)).to(f.device) for flags in (drawn.is_positive, drawn.is_negative)
        )
        if not table.trainable or not (self._alpha or self._printed):
            scores = rows.scores()
            return self._cost(scores[:, :n_positives], scores[:, n_positives:], is_positive, is_negative)

        scores, products = rows.scores_and_products(n_positives)
        differ = drawn.positives[:, :, None] != drawn.positives[:, None, :]
        flags = differ & drawn.is_positive[:, :, None], drawn.is_positive[:, :, None] & drawn.is_negative[:, None, :]
        pp_pairs, pn_pairs = (torch.from_numpy(pairs.astype(np.float32)).to(f.device) for pairs in flags)
        pp_products, pn_products = products[:, :, :n_positives], products[:, :, n_positives:]
        related_cost = related_tags(
            pp_products, pn_products, pp_pairs, pn_pairs, alpha=self._alpha, printed=self._printed
        )
        return self._cost(scores[:, :n_positives], scores[:, n_positives:], is_positive, is_negative) + related_cost


def sampled_cross_entropy(s_p: Tensor, s_n: Tensor, is_positive: Tensor, is_negative: Tensor) -> Tensor:
    """Return ``- Σ_p log σ(f · v_p) - Σ_n log σ(- f · v_n)``, the first two sums of (1), as the mean over images.

    `s_p` (n_images, P) and `s_n` (n_images, N) are the scores ``f · v`` of drawn tags; `is_positive` and `is_negative`,
    of the same shapes, are 1 for draws that count, otherwise 0.
    """
    return ((softplus(-s_p) * is_positive).sum() + (softplus(s_n) * is_negative).sum()) / len(s_p)


def related_tags(
    pp_products: Tensor, pn_products: Tensor, pp_pairs: Tensor, pn_pairs: Tensor, *, alpha: float, printed: bool
) -> Tensor:
    """Return the last two sums of (1), with a negative sign, as the mean over images.

    ``- α (Σ_{p,p'} log σ(v_p · v_p') + Σ_{p,n} log σ(- v_p · v_n))``, or as printed, without the logarithms and without
    α for the second: ``- α Σ σ(v_p · v_p') - Σ σ(- v_p · v_n)``. The products of drawn tags are `pp_products`,
    (n_images, P, P), and `pn_products`, (n_images, P, N). `pp_pairs` is 1 for two different tags (both orders count),
    `pn_pairs` is 1 for the pairs (p, n) that count.
    """
    if printed:
        gain = alpha * (pp_products.sigmoid() * pp_pairs).sum() + ((-pn_products).sigmoid() * pn_pairs).sum()
    else:
        gain = alpha * ((logsigmoid(pp_products) * pp_pairs).sum() + (logsigmoid(-pn_products) * pn_pairs).sum())
    return -gain / len(pp_products)


def drawn_rows(f: Tensor, tags: Ints, table: WordTable) -> RowPerDraw | RowPerWord:
    """Return the rows of the tags drawn for a batch, `tags` (n_images, n_drawn), in the faster of two forms.

    Both have the same scores and gradients, except for rounding. On a GPU each draw has its own row, because GPUs sum
    the gradients of a shared row in a random order, and trainings would not be reproducible.
    """
    n_tags = len(table.rows)
    if f.device.type == "cpu" and n_tags <= MAX_TAGS_PER_DRAW * tags.size:
        drawn = np.zeros(n_tags, np.bool_)
        drawn[tags] = True
        distinct = np.flatnonzero(drawn)
        if len(distinct) <= MAX_DISTINCT_WORDS * tags.shape[1]:
            return RowPerWord(f, table.take(distinct), torch.from_numpy((np.cumsum(drawn) - 1)[tags]))
    return RowPerDraw(f, table.take(tags).view(len(f), -1, f.shape[1]))


class RowPerDraw:
    """Vectors of images, `f` (n_images, dim), and of each image's drawn words, `rows` (n_images, n_drawn, dim)."""

    def __init__(self, f: Tensor, rows: Tensor) -> None:
        self._f, self._rows = f, rows

    def scores(self) -> Tensor:
        """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
        return drawn_scores(self._f, self._rows)

    def scores_and_products(self, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores, and products of an image's first P drawn words with all of them: (n_images, P, n_drawn)."""
        scores, products = DrawnProducts.apply(self._f, self._rows, n_positives)
        return scores, products


class RowPerWord:
    """Vectors of images `f` (n_images, dim), of distinct words `rows` (n_words, dim), and each image's drawn words.

    `positions` are the numbers of the drawn words in `rows`, int64 (n_images, n_drawn).
    """

    def __init__(self, f: Tensor, rows: Tensor, positions: Tensor) -> None:
        self._f, self._rows, self._positions = f, rows, positions

    def scores(self) -> Tensor:
        """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
        return (self._f @ self._rows.T).gather(1, self._positions)

    def scores_and_products(self, n_positives: int) -> tuple[Tensor, Tensor]:
        """Return scores, and products of an image's first P drawn words with all of them: (n_images, P, n_drawn)."""
        positions, n_words = self._positions, len(self._rows)
        positives, positive_index = positions[:, :n_positives].unique(return_inverse=True)
        products = self._rows[positives] @ self._rows.T
        pairs = positive_index[:, :, None] * n_words + positions[:, None, :]
        return self.scores(), products.view(-1).index_select(0, pairs.view(-1)).view(pairs.shape)


class DrawnProducts(torch.autograd.Function):  # type: ignore[misc]
    """Scores of drawn words, and the products of the first P drawn words with all drawn words.

    They are ``rows @ f`` and ``rows[:, :P] @ rows.mT``; torch's own gradient of these products copies the rows a dozen
    times, which takes three times as long as the products.
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
    def backward(ctx: Any, scores_gradient: Tensor, products_gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients with respect to `f` and the rows."""
        f, rows = ctx.saved_tensors
        f_gradient = torch.bmm(scores_gradient[:, None], rows)[:, 0]
        n_images, n_drawn, _ = rows.shape
        pairs_gradient = rows.new_zeros(n_images, n_drawn, n_drawn)  # a word's gradient, in terms of the other words
        pairs_gradient[:, : ctx.n_positives] = products_gradient
        pairs_gradient[:, :, : ctx.n_positives] += products_gradient.mT
        rows_gradient = torch.bmm(pairs_gradient, rows)
        rows_gradient.baddbmm_(scores_gradient[:, :, None], f[:, None])
        return f_gradient, rows_gradient, None


def drawn_scores(f: Tensor, rows: Tensor) -> Tensor:
    """Return the scores of each image's own drawn words, shape (n_images, n_drawn)."""
    return torch.bmm(f[:, None], rows.mT)[:, 0]
