"""A weighted sum of models, scaled by their scores of training images, with weights chosen on validation images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number
from visterm.core.errors import UserError
from visterm.core.estimator import clone
from visterm.core.learned import Array, Kind, Number
from visterm.core.progress import Progress
from visterm.core.types import Doubles, Ints, Matrix
from visterm.models.base import Annotator
from visterm.models.blend.candidates import Member, any_from_kernel, make_member, member_list
from visterm.models.blend.mixing import best_mix, sample
from visterm.models.blend.stacked import Blend, stacked_tag_rows
from visterm.models.stopping import Judged, Watch, hold_out, visible_columns

if TYPE_CHECKING:
    from sklearn.utils import Tags

DEFAULT_MEMBERS = (("wsabie", {"dim": 100}), ("wsabie", {"dim": 200}))


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(Blend):
    """Scores a tag by the weighted sum of other models' scores: ``Σ_m λ_m (s_m - μ_m) / σ_m``.

    ``s_m`` is the score of member m, ``μ_m`` and ``σ_m`` the mean and the standard deviation of its scores of all tags
    on training images. They are set in `fit`, and are the same for all images and tags, so the ensemble compares images
    for a tag as its members do; the weights ``λ`` are non-negative with sum 1.

    The sum is a single inner product. An image's row is the concatenation of its members' rows and a 1; a tag's row is
    the concatenation of the members' tag rows times ``λ_m / σ_m``, and ``-Σ λ_m μ_m / σ_m``, which doesn't change
    rankings, and makes 0 an average score.

    The weights have the highest MAP over validation images, which no member has learned. Without validation images, a
    share of the images is held out, members are fitted on the others to choose the weights, and then again on all
    images. Members also use the validation images for early stopping.

    Parameters
    ----------
    members : list of (name, settings) or estimators, optional
        The models to combine: names from ``visterm models`` with their settings, or unfitted models, which are cloned.
        None: WSABIE with the dimensions 100 and 200, from the paper's Table 7.
    weights : list of float, optional
        λ, one number per member, non-negative; scaled to a sum of 1. None: chosen.
    valid_share : float
        Share of the images that is held out to choose the weights. With 0, or if less than 50 images would be held out,
        all members have the same weight.
    n_jobs : int, optional
        Number of threads, also of members without this setting; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Draws the held-out images, the images for the scales, and the random states of members without this setting.

    Attributes
    ----------
    members_ : list of Annotator
        The fitted models.
    weights_ : ndarray of float64, shape (n_members,)
        λ.
    means_, scales_ : ndarray of float64, shape (n_members,)
        μ and σ; σ is 1 for a member whose scores are all the same.
    valid_map_ : float or None
        MAP of the weights on the images that chose them.
    tag_rows_ : array or CSR of float32, shape (n_tags, width)
        CSR if the space of a member is tag space.

    References
    ----------
    Weston, Bengio, Usunier 2010, section 6.4 ("Ensemble models"), Table 7.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "weights_": Array("float64", ("n_members",), least=0, most=1),
        "valid_map_": Number(least=0, most=1, or_none=True),
    }

    test_params: ClassVar[Mapping[str, object]] = {
        "members": [["wsabie", {"dim": 16, "epochs": 10, "learning_rate": 0.01, "block": 128}], ["ridge", {}]],
        "valid_share": 0.3,
    }

    members: Sequence[Member] | None = None
    weights: Sequence[float] | None = None
    valid_share: float = 0.1

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        member_entries = member_list(DEFAULT_MEMBERS if self.members is None else self.members, "members")
        members = [make_member(member, "the ensemble", self.n_jobs, rng) for member in member_entries]
        weights = self._given_weights(len(members))
        self.valid_map_ = None
        if weights is None and valid is None and len(members) > 1:
            trained, held_out = hold_out(X.shape[0], self.share_to_hold_out, rng)
            if (Y[held_out].data > 0).any():
                judged = visible_columns(self, X[held_out], trained), Y[held_out]
                training = visible_columns(self, X[trained], trained), Y[trained]
                means, scales = self._fit_members(members, *training, judged, watch.monitor, rng)
                weights, self.valid_map_ = self._choose(members, means, scales, judged, rng)
                members = [clone(member) for member in members]

        self.means_, self.scales_ = self._fit_members(members, X, Y, valid, watch.monitor, rng)
        if weights is None and valid is not None and len(members) > 1 and (valid[1].data > 0).any():
            weights, self.valid_map_ = self._choose(members, self.means_, self.scales_, valid, rng)
        self.members_ = members
        self.weights_ = np.full(len(members), 1 / len(members)) if weights is None else weights
        factors = self.weights_ / self.scales_
        self.tag_rows_ = stacked_tag_rows(members, factors, -(factors @ self.means_))

    def _check_settings(self) -> None:
        check_number(self.valid_share, "valid_share", least=0, below=1)

    def _stacked(self) -> Ints:
        return np.arange(len(self.members_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = any_from_kernel(self.members, "members", "the ensemble")
        return tags

    def _given_weights(self, n: int) -> Doubles | None:
        """Return the setting `weights`, scaled to a sum of 1, for n members; None if it is None."""
        if self.weights is None:
            return None
        weights: Doubles = np.asarray(self.weights, np.float64)
        if weights.shape != (n,) or not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
            raise UserError(
                setting="weights",
                value=self.weights,
                expected=f"{n} numbers, one a member, none below 0 and one above; or None to have them chosen",
            )
        return np.asarray(weights / weights.sum())

    def _fit_members(
        self,
        members: list[Annotator],
        X: Matrix,
        Y: sp.csr_array,
        valid: Judged,
        monitor: Progress,
        rng: np.random.Generator,
    ) -> tuple[Doubles, Doubles]:
        """Fit each member; return the means and standard deviations of its scores on a sample of training images."""
        sample_rows = X[sample(X.shape[0], len(members), Y.shape[1], rng)]
        means, scales = np.zeros(len(members)), np.ones(len(members))
        for m, member in enumerate(members):
            member.fit(X, Y, valid=valid, monitor=monitor)
            scores = member.decision_function(sample_rows)
            means[m] = scores.mean(dtype=np.float64)
            scales[m] = scores.std(dtype=np.float64) or 1.0
        return means, scales

    def _choose(
        self, members: list[Annotator], means: Doubles, scales: Doubles, judged: Any, rng: np.random.Generator
    ) -> tuple[Doubles, float]:
        X, Y = judged
        tagged = np.flatnonzero(np.bincount(Y.tocoo().coords[0][Y.data > 0], minlength=Y.shape[0]))
        rows = tagged[sample(tagged.size, len(members), Y.shape[1], rng)]
        scaled = [
            ((member.decision_function(X[rows]) - np.float32(mean)) / np.float32(scale)).astype(np.float32)
            for member, mean, scale in zip(members, means, scales, strict=True)
        ]
        return best_mix(scaled, Y[rows])
