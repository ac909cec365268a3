"""Tags of the most similar training images: exact neighbours by cosine, votes weighted by similarity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.kernels.topk import top_k
from visterm.models.neighbours.voting import BLOCK_BYTES, Cosines, Ids, VotingAnnotator


class Knn(VotingAnnotator):
    """Lets the `n_neighbors` most similar training images vote for their tags.

    Votes, scores and the choice of the settings are those of `VotingAnnotator`; the neighbours are exact.

    Parameters
    ----------
    n_neighbors : int, optional
        More is smoother and slower. None: chosen by leaving training images out.
    power : float, optional
        How much more the nearest weigh; 0 gives all neighbours the same vote. None: chosen.
    random_state : int, RandomState, Generator or None
        Which images choose the settings, where there are more than 1,000.

    Attributes
    ----------
    n_neighbors_, power_, rows_, given_
        As in `VotingAnnotator`.

    References
    ----------
    The exact neighbours that Weston, Bengio, Usunier 2010 (section 6.4) compare their approximate ones with.
    """

    test_params: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, *, n_neighbors: int | None = None, power: float | None = None, random_state: RandomState = 0
    ) -> None:
        self.n_neighbors = n_neighbors
        self.power = power
        self.random_state = random_state

    def _neighbors(self, X: Matrix, k: int) -> Iterator[tuple[Ids, Cosines]]:
        n = self.rows_.shape[0]
        k = min(k, n)
        step = max(1, BLOCK_BYTES // (4 * n))
        for start in range(0, X.shape[0], step):
            with one_blas_thread():
                cosines: Any = X[start : start + step] @ self.rows_.T
            yield top_k(np.ascontiguousarray(cosines.toarray() if sp.issparse(cosines) else cosines, np.float32), k)
