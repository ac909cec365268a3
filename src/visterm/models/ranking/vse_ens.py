"""VSE-ens: a joint embedding trained with negatives that are likely to have high scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from visterm.core.checks import check_number
from visterm.models.base import Limit
from visterm.models.ranking.embedding_ranking import EmbeddingRanker
from visterm.models.ranking.warp import AdaptiveDraws, Objective


@dataclass(kw_only=True, eq=False, repr=False)
class VseEns(EmbeddingRanker):
    """Joint embedding trained by the margin ranking loss with one adaptively drawn negative per pair.

    For each pair (image, true tag y) a rank r is drawn from ``p(r) ∝ exp(-r / (rank_scale · n_tags))``, and a dimension
    f from ``p(f) ∝ |u_f| σ_f``, where u is the image's vector and σ_f the deviation of the tags' values. The other tag
    ȳ is the tag on rank r of the tags sorted by dimension f, counted from the top if u_f is positive, otherwise from
    the end; if the image has this tag, both are drawn again. The step lowers ``|1 - f_y(x) + f_ȳ(x)|₊``, and the tags
    are sorted again every ``n_tags · log(n_tags)`` pairs. So a single draw finds a likely violator, while WARP needs
    more and more draws as the model gets better.

    By default, training chooses its number of epochs like `Wsabie`. The settings of the paper, which fits images known
    only by number (identity rows) and has no limit of norms, are ``step="sgd", schedule="constant", learning_rate=0.01,
    l2=0.01, max_norm=10, init_scale=0.01, bias=0, average=20, patience=10, standardize=False``.

    Parameters
    ----------
    rank_scale : float
        λ as a share of the number of tags. A smaller scale draws harder negatives; the paper tries 0.001 to 1.
    dim, learning_rate, max_norm, row_length, epochs, average, patience, valid_share, step, schedule, l2, init_scale
        As in `EmbeddingRanker`.
    bias, standardize, block, n_jobs, random_state
        As in `EmbeddingRanker`.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang: VSE-ens: Visual-semantic embeddings with efficient negative sampling. AAAI 2018;
    Algorithm 1.
    """

    limits: ClassVar[dict[str, Limit]] = {"rank_scale": partial(check_number, above=0)}

    test_params: ClassVar[Mapping[str, object]] = {
        "dim": 16, "epochs": 15, "block": 64, "rank_scale": 1.0,
    }  # fmt: skip

    rank_scale: float = 0.1
    learning_rate: float = 0.1
    max_norm: float = 2.0
    row_length: float = 1.0
    average: int = 6
    step: str = "adagrad"
    schedule: str = "open"
    bias: float = 0.7

    def _objective(self, n_tags: int) -> Objective:
        # A single draw doesn't estimate a rank: all ranks have the same weight
        return Objective(
            np.ones(n_tags + 1, np.float32), n_tags, negatives=partial(AdaptiveDraws, rank_scale=self.rank_scale)
        )
