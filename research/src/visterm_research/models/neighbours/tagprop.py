"""TagProp: votes of neighbours, with weights by rank or distance that make the training tags most likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError, UnknownNameError
from visterm.core.learned import Array, Csr, Kind, Whole
from visterm.core.registry import unknown
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Matrix
from visterm.models import Ids, weighted_votes
from visterm_research.kernels.neighbour_votes import vote_slopes
from visterm_research.models.neighbours.near_images import DistanceAnnotator, Floats, nearest
from visterm_research.models.neighbours.tag_sigmoids import Costs, Sigmoids, fit_sigmoids

Doubles = NDArray[np.float64]

WEIGHTS = ("distance", "rank")

LEARN_ROWS = 5000  # Use at most this many training images, each left out in turn, to learn weights and sigmoids
N_ROUNDS = 3  # Number of times that weights and sigmoids are learned; more rounds change less than the third digit
MAX_STEPS = 100
START_WEIGHT = 10.0  # Sum of the start weights of distances over the blocks; distances are at most about 1
MIN_PROBABILITY = 1e-5  # ε of the paper (equation 2): the probability of a tag that no neighbour has
PART_IMAGES = 64  # Number of images per part of the work of a thread


class Neighbourhoods(NamedTuple):
    """Neighbours of n images: ids (n, n_slots), and distances (n, n_slots, n_blocks)."""

    ids: Ids
    distances: Floats


@dataclass(kw_only=True, eq=False, repr=False)
class TagProp(DistanceAnnotator):
    """Tag propagation: neighbours vote with learned weights.

    The votes for tag t of image i are ``v_it = Σ_j π_ij [image j has t]`` over its neighbours j, with weights
    ``π_ij`` that sum to 1. By distance, ``π_ij`` is proportional to ``exp(-w · d_ij)``, with one learned weight per
    feature block. By rank, ``π_ij`` is a learned number for the rank of j among the neighbours. The weights maximise
    the likelihood of the tags of training images, each left out of its own neighbours; present and absent tags have the
    same total weight.

    With `sigmoid`, the probability of the tag is ``1 / (1 + exp(-α_t v_it - β_t))``, where α and β of each tag are
    learned alternately with the weights: they raise rare tags, which few neighbours of any image have. Scores are then
    ``α_t v_it + β_t``, which rank like the probabilities and keep the rows sparse; otherwise ``v_it``.

    Parameters
    ----------
    weights : {"distance", "rank"}
        What determines a neighbour's weight. By distance, there is one weight per block (SD and ML of the paper), by
        rank, one per neighbour and block (RK).
    n_neighbors : int
        K. By distance: number of voting neighbours, taken from all blocks in turn, nearest first. By rank: per block.
    sigmoid : bool
        Whether each tag has its own sigmoid (σ of the paper).
    prior : float
        Strength of the attraction of each sigmoid to the one that fits all tags together. Less raises rare tags more,
        so more different tags are assigned, and ranks the tags of an image slightly worse.
    blocks, distances, n_jobs, random_state
        As in `DistanceAnnotator`; weights are learned from up to 5,000 drawn images.

    Attributes
    ----------
    distance_weights_ : ndarray of float64, shape (n_blocks,)
        w, 0 or more, for distances divided by `scales_`.
    rank_weights_ : ndarray of float64, shape (n_blocks · K,)
        π of the neighbours of the first block, nearest first, then of the other blocks; they sum to 1.
    n_neighbors_ : int
        K, at most the number of other training images.
    tag_rows_ : csr_array of float32, shape (n_tags, n_tags + 1)
        With sigmoids: α on the diagonal, β in the last column.
    rows_, given_, scales_
        As in `DistanceAnnotator`.

    References
    ----------
    Guillaumin, Mensink, Verbeek, Schmid: TagProp: discriminative metric learning in nearest neighbor models for image
    auto-annotation. ICCV 2009; section 3.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "distance_weights_": Array("float64", ("n_blocks",), least=0, required=False),
        "rank_weights_": Array("float64", ("n_slots",), least=0, most=1, required=False),
        "n_neighbors_": Whole(least=1, most="n_images"),
        "tag_rows_": Csr("float32", ("n_tags_", "n_tags_ + 1"), required=False),
    }

    test_params: ClassVar[dict[str, Any]] = {"n_neighbors": 40}

    weights: str = "distance"
    n_neighbors: int = 200
    sigmoid: bool = True
    prior: float = 0.01

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        super()._fit(X, Y, rng)
        self.n_neighbors_ = min(self.n_neighbors, max(X.shape[0] - 1, 1))
        self._set(self._start())
        rows = self._sample(rng, LEARN_ROWS)
        positives = sp.csr_array(self.given_[rows])
        positives.sort_indices()
        sigmoids = Sigmoids.flat(Y.shape[1])
        if X.shape[0] > 1 and positives.nnz:
            parts = self._near_parts(self.rows_[rows], lambda _, D: self._neighbours(D), rows)
            neighbourhoods = Neighbourhoods(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
            sigmoids = self._learn(neighbourhoods, positives)
        if self.sigmoid:
            diagonal = sp.diags_array(sigmoids.scale)
            self.tag_rows_ = sp.csr_array(sp.hstack([diagonal, sigmoids.offset[:, None]]), dtype=np.float32)

    def _check_learned(self) -> None:
        super()._check_learned()
        existing = {name for name in ("distance_weights_", "rank_weights_", "tag_rows_") if hasattr(self, name)}
        if existing != {f"{self.weights}_weights_"} | ({"tag_rows_"} if self.sigmoid else set()):
            raise DataError(f"{sorted(existing)} do not match weights={self.weights!r} and sigmoid={self.sigmoid}")
        n_slots = len(self.scales_) * self.n_neighbors_
        if self.weights == "rank" and len(self.rank_weights_) != n_slots:
            raise DataError(
                f"rank_weights_ has {len(self.rank_weights_)} numbers; expected {n_slots}, one per neighbour"
            )

    def _check_settings(self) -> None:
        super()._check_settings()
        check_count(self.n_neighbors, "n_neighbors")
        check_number(self.prior, "prior", above=0)
        if self.weights not in WEIGHTS:
            raise UnknownNameError(unknown("kind of weights", str(self.weights), list(WEIGHTS)))

    def _image_rows(self, X: Matrix) -> Matrix:
        votes = sp.vstack(self._near_parts(X, lambda _, D: self._votes(self._neighbours(D))), format="csr")
        if self.sigmoid:
            votes = sp.hstack([votes, np.ones((X.shape[0], 1), np.float32)], format="csr")
        return sp.csr_array(votes, dtype=np.float32)

    def _neighbours(self, D: Floats) -> Neighbourhoods:
        """Return the neighbours of images, from their distances to training images, shape (n_blocks, n, n_images)."""
        k = self.n_neighbors_
        block_ids = [nearest(of_block, k)[0] for of_block in D]
        ids = np.concatenate(block_ids, axis=1) if self.weights == "rank" else interleaved(block_ids, k)
        positions = np.broadcast_to(ids, (len(D), *ids.shape))
        return Neighbourhoods(ids, np.moveaxis(np.take_along_axis(D, positions, axis=2), 0, 2))

    def _votes(self, neighbourhoods: Neighbourhoods) -> sp.csr_array:
        """Return the weighted votes of the neighbours for each tag."""
        weights = self._neighbour_weights(neighbourhoods.distances).astype(np.float32)
        return weighted_votes(neighbourhoods.ids, weights, self.given_)

    def _start(self) -> Doubles:
        """Return the start parameters: weights of distances, or logarithms of rank weights."""
        n_blocks = len(self.scales_)
        if self.weights == "rank":
            return np.zeros(n_blocks * self.n_neighbors_)
        return np.full(n_blocks, START_WEIGHT / n_blocks)

    def _set(self, parameters: Doubles) -> None:
        """Set the learned weights from the parameters of the optimisation."""
        if self.weights == "rank":
            self.rank_weights_ = _softmax(parameters)
        else:
            self.distance_weights_ = parameters

    def _neighbour_weights(self, distances: Floats) -> Doubles:
        """Return π, shape (n, n_slots)."""
        if self.weights == "rank":
            return np.broadcast_to(self.rank_weights_, distances.shape[:2])
        return _softmax(-(distances @ self.distance_weights_))

    def _learn(self, neighbourhoods: Neighbourhoods, positives: sp.csr_array) -> Sigmoids:
        """Learn the weights and, with `sigmoid`, alternately the sigmoids."""
        costs = Costs.balanced(positives)
        sigmoids = Sigmoids.flat(positives.shape[1])
        parameters = self._start()
        bounds = None if self.weights == "rank" else [(0, None)] * parameters.size
        for round_number in range(N_ROUNDS if self.sigmoid else 1):
            curves = sigmoids if round_number else None

            def loss(parameters: Doubles, curves: Sigmoids | None = curves) -> tuple[float, Doubles]:
                self._set(parameters)
                weights = np.ascontiguousarray(self._neighbour_weights(neighbourhoods.distances))
                value, slopes = self._loss_of_votes(neighbourhoods, positives, costs, curves, weights)
                weight_slopes = weights * (slopes - np.einsum("ik,ik->i", weights, slopes)[:, None])
                by_rank = self.weights == "rank"
                return value, weight_slopes.sum(axis=0) if by_rank else -np.einsum(
                    "ik,ikb->b", weight_slopes, neighbourhoods.distances
                )

            parameters = minimize(
                loss, parameters, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_STEPS}
            ).x
            self._set(parameters)
            if self.sigmoid:
                sigmoids = fit_sigmoids(self._votes(neighbourhoods), positives, costs, self.prior)
        return sigmoids

    def _loss_of_votes(
        self,
        neighbourhoods: Neighbourhoods,
        positives: sp.csr_array,
        costs: Costs,
        curves: Sigmoids | None,
        weights: Doubles,
    ) -> tuple[float, Doubles]:
        """Return the negative log likelihood of the tags, and its slopes by the weights of the neighbours."""
        n, image_tags = positives.shape[0], self.given_
        scale, offset = curves or Sigmoids.flat(positives.shape[1])
        losses, slopes = np.empty(n), np.empty(weights.shape)

        def add_part(number: int) -> None:
            vote_slopes(
                number * PART_IMAGES, min((number + 1) * PART_IMAGES, n), neighbourhoods.ids, weights,
                image_tags.indptr, image_tags.indices, positives.indptr, positives.indices,
                (costs.given, costs.absent), MIN_PROBABILITY, scale, offset,
                curves is not None, losses, slopes,
            )  # fmt: skip

        with Team(resolve_jobs(self.n_jobs)) as team:
            team.run(add_part, -(-n // PART_IMAGES))
        return float(losses.sum()), slopes


def interleaved(id_lists: Sequence[Ids], k: int) -> Ids:
    """Return the nearest of each list, then the second nearest, and so on, until each row has k different ids."""
    if len(id_lists) == 1:
        return id_lists[0][:, :k]
    rows = np.stack(id_lists, axis=2).reshape(len(id_lists[0]), -1)
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    is_duplicate = np.zeros(rows.shape, bool)
    np.put_along_axis(is_duplicate, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    kept_positions = np.argsort(is_duplicate, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, kept_positions, axis=1)


def _softmax(values: NDArray[Any]) -> Doubles:
    values = values.astype(np.float64)
    exponentials: Doubles = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Doubles = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares
