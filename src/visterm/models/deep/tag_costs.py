"""The costs of a batch of images and tags, as torch computes them: each is one line of the paper, to be made small."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus


def sampled_cross_entropy(s_p: Tensor, s_n: Tensor, has: Tensor, counts: Tensor) -> Tensor:
    """Return ``- Σ_p log σ(f · v_p) - Σ_n log σ(- f · v_n)``, the first two sums of (1), as the mean over images.

    Parameters
    ----------
    s_p, s_n : Tensor, shape (n_images, P) and (n_images, N)
        Scores ``f · v`` of drawn tags.
    has, counts : Tensor of float, shape (n_images, P) and (n_images, N)
        1 for draws that count, 0 for others.
    """
    return ((softplus(-s_p) * has).sum() + (softplus(s_n) * counts).sum()) / len(s_p)


def related_tags(alike: Tensor, unlike: Tensor, pairs: Tensor, apart: Tensor, *, alpha: float, printed: bool) -> Tensor:
    """Return the last two sums of (1), negative, as the mean over images.

    ``- α (Σ_{p,p'} log σ(v_p · v_p') + Σ_{p,n} log σ(- v_p · v_n))``, or as printed, with neither the logarithms
    nor α before the second: ``- α Σ σ(v_p · v_p') - Σ σ(- v_p · v_n)``.

    Parameters
    ----------
    alike, unlike : Tensor, shape (n_images, P, P) and (n_images, P, N)
        Products ``v_p · v_p'`` and ``v_p · v_n`` of drawn tags.
    pairs : Tensor of float, shape (n_images, P, P)
        1 where two draws are two tags; both orders count.
    apart : Tensor of float, shape (n_images, P, N)
        1 for pairs that count.
    alpha : float
    printed : bool
    """
    if printed:
        gained = alpha * (alike.sigmoid() * pairs).sum() + ((-unlike).sigmoid() * apart).sum()
    else:
        gained = alpha * ((logsigmoid(alike) * pairs).sum() + (logsigmoid(-unlike) * apart).sum())
    return -gained / len(alike)


def full_cross_entropy(f: Tensor, V: Tensor, images: Tensor, tags: Tensor) -> Tensor:
    """Return the cross-entropy over all tags, as the mean over images: ``Σ_t log(1 + exp(f · v_t)) - Σ_p f · v_p``.

    That is (1) with all tags of an image as positives and all others as negatives.

    Parameters
    ----------
    f : Tensor, shape (n_images, dim)
    V : Tensor, shape (n_tags, dim)
    images, tags : Tensor of int64, shape (n_given,)
        The given tags, as pairs.
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
