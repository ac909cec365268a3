"""What a batch of a deep tagger is trained for: costs of drawn tags, of all tags, or of one target an image."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from visterm.models.deep.drawn_rows import drawn_rows
from visterm.models.deep.tag_draws import Draws, Ints, TagDraws
from visterm.models.deep.word_table import WordTable


class Objective(ABC):
    """What a batch is trained for."""

    def start_epoch(self, rng: np.random.Generator) -> None:  # noqa: B027
        """Draw what is drawn once an epoch: nothing, unless an objective says otherwise."""

    @abstractmethod
    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Return the mean cost of the images of a batch: vectors (n, dim), beside rows that it takes from the table."""


class SampledObjective(Objective):
    """A cost of the tags drawn for each image: equation (5) over drawn pairs with `rank`, else (1).

    `alpha` is the weight of the last two sums of (1), `printed` takes them as printed (`related_tags`). Neither has an
    effect with `rank`, or where words do not move.
    """

    def __init__(self, draws: TagDraws, *, rank: bool = False, alpha: float = 0.0, printed: bool = False) -> None:
        self._draws, self._rank, self._alpha, self._printed = draws, rank, alpha, printed

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Draw the epoch's subset, if there is one."""
        self._draws.start_epoch(rng)

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Draw tags for a batch, and return its cost."""
        drawn = self._draws.draw(images, rng)
        n_positives = drawn.positives.shape[1]
        rows = drawn_rows(f, np.hstack([drawn.positives, drawn.negatives]), table)
        has, counts = (torch.from_numpy(flags.astype(np.float32)).to(f.device) for flags in (drawn.has, drawn.counts))
        cost = sampled_rank_cost if self._rank else sampled_cross_entropy
        if self._rank or not table.moving or not (self._alpha or self._printed):
            scores = rows.scores()
            return cost(scores[:, :n_positives], scores[:, n_positives:], has, counts)
        scores, products = rows.scores_and_products(n_positives)
        pairs, apart = (torch.from_numpy(flags).to(f.device) for flags in _pairs(drawn))
        alike, unlike = products[:, :, :n_positives], products[:, :, n_positives:]
        related = related_tags(alike, unlike, pairs, apart, alpha=self._alpha, printed=self._printed)
        return cost(scores[:, :n_positives], scores[:, n_positives:], has, counts) + related


class FullObjective(Objective):
    """A cost of all tags for each image: time and memory grow with the dictionary.

    It is equation (5) over all pairs with `rank`, else the cross-entropy. Denied tags of `Y` count as unknown ones do:
    as not given.
    """

    def __init__(self, Y: sp.csr_array, *, rank: bool = False) -> None:
        self._given = sp.csr_array(Y > 0)
        self._cost = full_rank_cost if rank else full_cross_entropy

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Take all rows, and return the cost of a batch."""
        given = self._given[images]
        owners = np.repeat(np.arange(images.size), np.diff(given.indptr))
        pairs = (torch.from_numpy(array.astype(np.int64)).to(f.device) for array in (owners, given.indices))
        return self._cost(f, table.take_all(), *pairs)


class TargetObjective(Objective):
    """The squared distance from the sum of an image's word vectors, by weights (n_images, n_tags); words don't move."""

    def __init__(self, weights: sp.csr_array) -> None:
        self._weights = weights

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Make the targets of a batch, and return the cost."""
        weights = self._weights[images]
        tags, places = np.unique(weights.indices, return_inverse=True)
        few = sp.csr_array((weights.data, places, weights.indptr), shape=(images.size, tags.size))
        targets = np.asarray(few @ table.rows[tags], np.float32)
        return squared_distance(f, torch.from_numpy(targets).to(f.device))


def _pairs(drawn: Draws) -> tuple[np.ndarray, np.ndarray]:
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


def full_cross_entropy(f: Tensor, V: Tensor, images: Tensor, tags: Tensor) -> Tensor:
    """Return the cross-entropy over all tags, as the mean over images: ``Σ_t log(1 + exp(f · v_t)) - Σ_p f · v_p``.

    That is (1) with all tags of an image as positives and all others as negatives. `f` is (n_images, dim), `V` (n_tags,
    dim); `images` and `tags` are the given tags, as pairs.
    """
    S = f @ V.T
    return (softplus(S).sum() - S[images, tags].sum()) / len(f)


def sampled_rank_cost(s_p: Tensor, s_n: Tensor, has: Tensor, counts: Tensor) -> Tensor:
    """Return ``- β Σ_p Σ_n log σ(f · (v_p - v_n))``, equation (5) over drawn tags; β is one over the number of pairs.

    Parameters are those of `sampled_cross_entropy`.
    """
    pairs = has[:, :, None] * counts[:, None, :]
    n_pairs = pairs.sum((1, 2)).clamp(min=1)
    costs = softplus(s_n[:, None, :] - s_p[:, :, None])
    return ((costs * pairs).sum((1, 2)) / n_pairs).mean()


def full_rank_cost(f: Tensor, V: Tensor, images: Tensor, tags: Tensor) -> Tensor:
    """Return ``- β Σ_p Σ_n log σ(f · (v_p - v_n))``, equation (5) over all pairs of a tag that is given and one not.

    Parameters are those of `full_cross_entropy`.
    """
    S = f @ V.T
    absent = torch.ones_like(S)
    absent[images, tags] = 0
    n_absent = absent.sum(1)
    n_pairs = (S.shape[1] - n_absent) * n_absent
    above = S[images, tags][:, None] - S[images]
    costs = (softplus(-above) * absent[images]).sum(1)
    return (costs / n_pairs[images].clamp(min=1)).sum() / len(f)


def squared_distance(f: Tensor, targets: Tensor) -> Tensor:
    """Return ``½ |f - target|²``, as the mean over images."""
    return 0.5 * (f - targets).square().sum() / len(f)
