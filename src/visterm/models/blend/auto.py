"""Fit several models within a time budget, and blend the best ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_choice, check_flag, check_number
from visterm.core.errors import ShapeError, UserError
from visterm.core.estimator import clone
from visterm.core.learned import Array, Kind, Listed, Number, Record, Text, Whole
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm.core.types import Matrix, MatrixLike
from visterm.models.abilities import FinishesFits, RelearnsTags
from visterm.models.base import Annotator, Blocks
from visterm.models.blend import mixing
from visterm.models.blend.candidates import (
    PRIOR_WEIGHTS,
    Member,
    any_from_kernel,
    column_sets,
    default_candidates,
    make_member,
    member_list,
    own_settings,
)
from visterm.models.blend.row_forms import ROW_FORMS, choose_form, feature_weights
from visterm.models.blend.splits import Split, TaggedRows, judged_tags, split_images
from visterm.models.blend.stacked import Blend, stacked_tag_rows
from visterm.models.blend.trials import KEPT_REASON, Budget, MemberTrial, shortlist, spares, try_candidates
from visterm.models.neighbours.distances import check_blocks
from visterm.models.stopping import HeldOutFit, Judged, Watch, learns_from_kernel

if TYPE_CHECKING:
    from sklearn.utils import Tags

ALONE_REASON = "alone: there are no images to judge by"
# Keys: whether a model has weight, and whether it is kept
REASONS = {(True, True): "in the blend", (False, True): KEPT_REASON, (False, False): "adds nothing to the others"}

Shares: TypeAlias = "dict[tuple[int, int], float]"  # (position among the candidates, block) -> weight


class BlendWeights(NamedTuple):
    """The weights of a blend of trials."""

    used: list[MemberTrial]
    shares: NDArray[np.float64]  # shape (n_used,): λ
    lift: float
    tag_factors: NDArray[np.float64]  # shape (n_tags,): d
    tag_offsets: NDArray[np.float64]  # shape (n_tags,): b
    scores: NDArray[np.float32] | None = None  # shape (n_judged, n_tags): scores of the judged images; None without any
    centre: float = 0.0  # c


def blend(
    trials: Sequence[MemberTrial],
    Y: sp.csr_array,
    lift: float | None,
    *,
    in_folds: bool,
    given: tuple[Shares, float] | None = None,
    by_number: bool = False,
) -> BlendWeights:
    """Find the weights of measured trials for the tags `Y` of the judged images; without any, the first has all weight.

    `lift` is the boost of rare tags; None: the best one. Few images, which are judged in folds, also draw the weights
    to equal ones, or to a model that is surely better than all others. For images known `by_number`, they are those of
    `sure_mix`. `given` are weights and a centre (of the offsets of tags) to take instead, with a `lift`.
    """
    n_tags = Y.shape[1]
    if not Y.shape[0]:
        trials[0].reason = ALONE_REASON
        return BlendWeights([trials[0]], np.ones(1), 0.0, np.ones(n_tags), np.zeros(n_tags))
    weighed = [trial for trial in trials if trial.scores is not None]
    if given is None:
        weighed = shortlist(weighed)
    scores = [trial.scores for trial in weighed if trial.scores is not None]
    given_shares, centre = given or ({}, 0.0)
    shares = np.array([given_shares.get((trial.position, trial.columns.block), 0.0) for trial in weighed])
    if shares.any():
        shares /= shares.sum()
    else:
        shares, value = mixing.sure_mix(scores, Y) if by_number else mixing.best_mix(scores, Y, mixing.both_maps)
        if in_folds:
            priors = [PRIOR_WEIGHTS.get(trial.name, 1.0) for trial in weighed]
            if (best := mixing.sure_best(scores, Y)) is not None:
                priors = np.eye(len(priors))[best].tolist()
            shares = mixing.shrunk(shares, [trial.promise for trial in weighed], priors, Y.shape[0])
        elif not by_number:
            shares = mixing.without_idlers(shares, value, scores, Y)

    blended = mixing.mixed(shares, scores)
    lift, centre = mixing.best_shape(blended, Y) if lift is None else (float(lift), centre)
    factors = mixing.rare_tag_boost(blended, lift)
    offsets = mixing.tag_offsets(blended, factors, centre)
    blended = factors.astype(np.float32) * blended + offsets.astype(np.float32)
    used = np.flatnonzero(shares > 0)
    return BlendWeights([weighed[m] for m in used], shares[used], lift, factors, offsets, blended, centre)


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(Blend):
    """Fits several models, measures them on held-out images, and blends the best.

    The score of tag t is ``d_t Σ_m λ_m (s_m - μ_m) / σ_m + b_t``, where ``s_m`` is the score of model m, and ``μ_m``
    and ``σ_m`` are the mean and standard deviation of its scores on held-out images: on training images, those of a
    neighbour model would be far off, because each image is its own neighbour.

    The weights ``λ``, non-negative with sum 1, have the highest sum of MAP over images (annotation) and MAP over tags
    (search) on the held-out images. Separate weights for annotation and search were not better on further images.
    Of few images, each is held out in one of five folds, weights are drawn to equal ones (without `knn`, which needs
    many images) or to a model that is surely better, and lifts must gain more than two standard errors. Of images known
    only by number, one tag each is held out, only MAP over images counts, a blend must surely gain, and there is no
    lift.
    For annotation there are also the factors ``d_t``, which don't change a search for a single tag: ``d_t =
    spread_t^-lift``, with the spread (standard deviation) of the tag's scores over the held-out images. Scores of rare
    tags have a small spread, so a lift above 0 returns more different tags. ``b_t = (1 - d_t) c mean_t`` keeps scores
    near the tag's mean unchanged. Lift and c have nearly the best MAP over the held-out images and, among those, the
    best F1 of five tags. Separate weights per tag, shrunk to ``λ``, were not better, nor were scores of other tags.

    If features have several blocks, from a chain of encoders, a model may read all of them or one block. The first
    candidate is tried on all columns and on each block, the others on the three sets of columns where it was best. At
    most six models are weighted: the best on each set of columns, then the best of the rest. Models without weight, or
    with a tiny gain, are dropped.

    With 2,000 images or more, `mlp` and `logistic` are first tried on an eighth of them, and left out if they add less
    than about a standard error there to the models before them.

    With a budget, the time of each candidate is estimated from a fit on an eighth of the images, and candidates that
    would take too long are left out. If no time remains to fit a model on all images, its first fit is used. As a clock
    then decides, the same seed gives the same bytes only if the budget was not the limit.

    Parameters
    ----------
    budget : float, optional
        Seconds for the whole fit, without compiling after an installation. The fit may take longer, as the first
        candidate is always fitted and no fit is interrupted. None: no limit.
    blocks : sequence of int or of (int, int), optional
        Widths of adjacent feature blocks, or (start, stop) columns. None: one block of all features; in a `Tagger`, the
        blocks of the encoder. A block with at least a tenth of values other than 0 is dense, and so are all columns
        together if a block is dense; above 1 GiB, they are left out.
    candidates : list of (name, settings) or estimators, optional
        Models to try, in this order: names from ``visterm models`` with their settings, or unfitted models, which are
        cloned. A model with separate settings per block is only tried on all columns. None: `knn`, `kernel_ridge`,
        `ridge`, `logistic`, `mlp` and `wsabie`; without the last two for few images; for images known only by number
        `ease`, `wsabie` and, if the package implicit is installed, `als`, which must surely add to the others.
    word_vectors : array-like, shape (n_tags, n_features), optional
        Text vectors of the tags for `TextRidge`, which is then another candidate.
    tree : array-like of int, shape (n_pairs, 2), or None
        Pairs of a tag and one of its ancestors, for candidates with this setting (`Wsabie`).
    row_form : str, optional
        "plain" for feature rows as they are, "unit" for rows of length 1, "tfidf" for counts times the log of how rare
        a feature is, with length 1. None: the best one for sparse rows of different lengths in one block, by ridge
        regression; all others stay as they are.
    lift : float, optional
        Boost of rare tags, from 0 (none) to 1, with c = 0. None: chosen from 0 to 0.8, and c from 0 to 0.5, as
        described above.
    valid_share : float
        Share of the images to hold out if `fit` has no validation images; if that is less than 120 images, all of them
        are held out, in five folds (with a budget, 50 images or half of them, once). With 0, or less than 20 images,
        only the first candidate is fitted.
    explainable : bool
        Whether to keep, with weight 0, a model that explains scores and a model with tag vectors if no model of the
        blend can: the best such candidate, or a ridge regression that is first fitted on at most 1,000 images. It does
        not change scores.
    n_jobs : int, optional
        Number of threads, also of candidates without this setting; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Held-out images, and the random states of candidates whose settings have none.

    Attributes
    ----------
    members_ : list of Annotator
        The models of the blend, fitted; those without weight only explain.
    columns_ : ndarray of int64, shape (n_members, 4)
        What each member reads: the number of the block (0 for all columns), the first column, the stop column, and
        whether as an array (1) or as CSR (0).
    weights_ : ndarray of float64, shape (n_members,)
        λ.
    means_, scales_ : ndarray of float64, shape (n_members,)
        μ and σ; 0 and 1 without judged images.
    feature_weights_ : ndarray of float32, shape (n_features,)
        Weights of features for rows of length 1; missing if rows stay as they are.
    lift_ : float
    tag_factors_ : ndarray of float64, shape (n_tags,)
        d, of mean 1.
    tag_offsets_ : ndarray of float64, shape (n_tags,)
        b.
    report_ : list of dict
        One entry per candidate, in the order of the trials: ``model``, ``settings``, ``block`` (1 for the first block;
        None: all columns), ``seconds`` of fit and scores, ``map`` and ``word_map`` (over tags) on the judged images,
        ``weight``, and ``reason``: why it is in the blend or not.
    valid_map_, valid_word_map_ : float or None
        MAP of the blend on the images that chose its weights and its lift.
    n_held_out_ : int
        Number of judged images: up to 2,000 held-out images with a tag.
    tag_rows_ : array or CSR of float32, shape (n_tags, width)
        CSR if the space of a member is tag space.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "weights_": Array("float64", ("n_members",), least=0),
        "feature_weights_": Array("float32", ("n_features_in_",), least=0, required=False),
        "columns_": Array("int64", ("n_members", 4), least=0),
        "lift_": Number(least=0, below=1),
        "tag_factors_": Array("float64", ("n_tags_",), least=0),
        "tag_offsets_": Array("float64", ("n_tags_",)),
        "report_": Listed(Record({"model": Text(), "weight": Number(least=0), "reason": Text()})),
        "valid_map_": Number(least=0, most=1, or_none=True),
        "valid_word_map_": Number(least=0, most=1, or_none=True),
        "n_held_out_": Whole(),
    }

    start_params: ClassVar[tuple[str, ...]] = ("word_vectors", "tree")
    takes: ClassVar[tuple[str, ...]] = ("blocks", "word_vectors", "tree")
    uses_pair_weights: ClassVar[bool] = True
    holds_out_tags: ClassVar[bool] = True
    test_params: ClassVar[Mapping[str, object]] = {
        "candidates": [["knn", {"n_neighbors": 10, "power": 2}], ["ridge", {}]],
        "valid_share": 0.3,
    }

    budget: float | None = None
    blocks: Blocks | None = None
    candidates: Sequence[Member] | None = None
    word_vectors: ArrayLike | None = None
    tree: ArrayLike | None = None
    row_form: str | None = None
    lift: float | None = None
    valid_share: float = 0.2
    explainable: bool = True

    def _check_settings(self) -> None:
        check_blocks(self.blocks)
        check_number(self.valid_share, "valid_share", least=0, below=1)
        if self.row_form is not None:
            check_choice(self.row_form, "row_form", ROW_FORMS)
        check_flag(self.explainable, "explainable")
        check_number(self.lift, "lift", least=0, below=1, otherwise="or None to have it chosen")
        check_number(self.budget, "budget", above=0, otherwise="or None for no limit")

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        budget = Budget(self.budget)
        if (weights := self._feature_weights(X, Y, int(rng.integers(2**31)))) is not None:
            self.feature_weights_ = weights
        X, valid = self._formed(X), valid if valid is None else (self._formed(valid[0]), valid[1])
        rows = TaggedRows(X, Y, self._side.pair_weights)
        splits = split_images(self, rows, valid, rng, once=budget.limited)
        self.n_held_out_ = sum(split.judged.X.shape[0] for split in splits)
        trials = try_candidates(self._candidates(X, len(splits), rng), splits, X.shape[0], budget, watch.monitor, rng)
        by_number, given = splits[0].known is not None, vars(self).get("_given_weights")
        lift = 0.0 if by_number and self.lift is None else self.lift
        mix = blend(trials, judged_tags(splits), lift, in_folds=len(splits) > 1, given=given, by_number=by_number)
        self._centre = mix.centre
        kept = spares(mix.used, trials, splits, self.n_jobs, watch.monitor) if self.explainable else []
        self.weights_ = np.pad(mix.shares, (0, len(kept)))
        used = [*mix.used, *kept]
        for trial in trials:  # free the memory of what is no longer needed
            trial.scores, trial.model = None, trial.model if trial in used else clone(trial.model)
        self._fit_again(used, rows, splits, budget, watch.monitor)
        self._keep(used, mix, splits)
        weight_of = {id(trial): float(weight) for trial, weight in zip(used, self.weights_, strict=True)}
        self.report_ = [
            {
                "model": trial.name,
                "settings": trial.settings,
                "block": trial.columns.block or None,
                "seconds": trial.seconds,
                "map": trial.map,
                "word_map": trial.word_map,
                "weight": weight_of.get(id(trial), 0.0),
                "reason": trial.reason or REASONS[weight_of.get(id(trial), -1.0) > 0, id(trial) in weight_of],
            }
            for trial in trials
        ]

    def keep_members(self, fitted: Auto, members: Sequence[Annotator]) -> None:
        """Take unfitted copies of the models that rank in another blend, with its weights and lift, for the next `fit`.

        Copies for held-out scores need them: other weights would give their scores another spread.
        """
        used = np.flatnonzero(fitted.weights_ > 0)
        blocks = fitted.columns_[used, 0].tolist()
        self.candidates, self.budget, self.explainable = list(members), None, False
        shares = {
            (position, block): float(fitted.weights_[m])
            for position, (m, block) in enumerate(zip(used, blocks, strict=True))
        }
        self.lift, self._given_weights = fitted.lift_, (shares, vars(fitted).get("_centre", 0.0))

    def _feature_weights(self, X: Matrix, Y: sp.csr_array, seed: int) -> NDArray[np.float32] | None:
        """Return the weights for the setting `row_form`, or for the best form of rows."""
        if self.row_form is not None:
            return feature_weights(X, self.row_form)
        if getattr(self, "by_number_", False) or learns_from_kernel(self) or self.known("blocks") is not None:
            return None
        return feature_weights(X, choose_form(X, Y, seed))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = any_from_kernel(self.candidates, "candidates", "auto")
        return tags

    def _candidates(self, X: Matrix, n_splits: int, rng: np.random.Generator) -> list[MemberTrial]:
        by_number = getattr(self, "by_number_", False)
        blocks, word_vectors, tree = (self.known(name) for name in self.takes)
        candidates = []

        for columns in column_sets(X, None if by_number else blocks):
            given: Sequence[Member] = default_candidates(by_number=by_number, in_folds=n_splits > 1)
            if self.candidates is not None:
                given = member_list(self.candidates, "candidates")
            elif word_vectors is not None and columns.block == 0 and not by_number:
                if np.shape(word_vectors)[1] != X.shape[1]:
                    raise ShapeError(
                        f"`word_vectors` has {np.shape(word_vectors)[1]} numbers per tag.",
                        setting="word_vectors",
                        value=np.shape(word_vectors),
                        expected=f"{X.shape[1]}, as many as the features: vectors of the text tower of their network",
                        advice="Leave them out, or choose another `model`, such as sampled_tagger.",
                    )
                given = (*given, ("text_ridge", {}))
            for position, member in enumerate(given):
                model = make_member(member, "auto", self.n_jobs, rng)
                self._check_uses_weights(model)
                given_blocks = getattr(model, "blocks", None)
                if columns.block == 0 and given_blocks is None:
                    model.set_known(blocks=blocks)
                elif columns.block and (
                    given_blocks is not None or not isinstance(getattr(model, "distances", ""), str)
                ):
                    continue  # it has separate settings per block, so it needs all blocks
                candidates.append(MemberTrial(MODELS.name_of(model), model, own_settings(model), position, columns))
                if word_vectors is not None and isinstance(model, RelearnsTags):
                    model.set_params(word_vectors=word_vectors)
                if tree is not None:
                    model.set_known(tree=tree)
        return candidates

    def _check_uses_weights(self, model: Annotator) -> None:
        """Raise UserError if there are weights of pairs, and a candidate doesn't use them."""
        if self._side.pair_weights is not None and not model.uses_pair_weights:
            raise UserError(
                f"The candidate '{MODELS.name_of(model)}' of auto doesn't use weights.",
                setting="weight", advice="Leave them out, or choose other `candidates`: ease, wsabie, als or knn.",
            )  # fmt: skip

    def _fit_again(
        self, used: list[MemberTrial], rows: TaggedRows, splits: Sequence[Split], budget: Budget, monitor: Progress
    ) -> None:
        """Fit the models on all images that were fitted on a part.

        With a budget, those with the largest weights come first, as long as time remains; without one the smallest, as
        each fit needs memory beside the models before it.

        After a single split, a model that stopped by the judged images continues, and the settings that another model
        chose are kept: other settings would change the spread of its scores, for which the lift and the weights were
        found.
        """
        n_all = rows.X.shape[0]
        may_stay = budget.limited and not learns_from_kernel(self)  # kernel values are read with all images from now on
        turns = -self.weights_ if budget.limited else [trial.n_bytes for trial in used]
        for m in np.argsort(turns, kind="stable"):
            trial = used[m]
            if trial.n_rows == n_all:
                continue
            if may_stay and trial.seconds_again(n_all) > budget.left():
                reason = trial.reason or REASONS[self.weights_[m] > 0, True]
                trial.reason = f"{reason}, as fitted on {trial.n_rows:,} of {n_all:,} images: no time was left"
                continue
            shown = Titled(monitor, trial.title)
            if len(splits) == 1 and isinstance(trial.model, FinishesFits) and trial.n_rows == splits[0].n_learned:
                trial.model.finish(trial.columns.of(rows.X), rows.Y, monitor=shown)
                continue
            trial.model = clone(trial.model).set_params(**(trial.chosen if len(splits) == 1 else {}))
            trial.model.fit(trial.columns.of(rows.X), rows.Y, side=rows.side, monitor=shown)

    def _keep(self, used: list[MemberTrial], weights: BlendWeights, splits: Sequence[Split]) -> None:
        """Stack the models of the blend, and store the blend's MAP on the judged images."""
        self.lift_, self.tag_factors_, self.tag_offsets_ = weights.lift, weights.tag_factors, weights.tag_offsets
        self.valid_map_: float | None = None
        self.valid_word_map_: float | None = None
        if weights.scores is not None:
            Y, held_out = judged_tags(splits), np.concatenate([split.images for split in splits])
            self.valid_map_, self.valid_word_map_ = (f(weights.scores, Y) for f in (mixing.image_map, mixing.word_map))
            identity = sp.eye_array(weights.scores.shape[1], format="csr", dtype=np.float32)
            may_calibrate = held_out.size and splits[0].known is None
            self._held_out = HeldOutFit(held_out, weights.scores, identity) if may_calibrate else None

        self.members_ = [trial.model for trial in used]
        self.columns_ = np.array([trial.columns for trial in used], np.int64)
        self.means_ = np.array([trial.mean for trial in used])
        self.scales_ = np.array([trial.scale for trial in used])
        shares = self.weights_ / self.scales_
        constants = self.tag_offsets_ / self.tag_factors_ - shares @ self.means_
        V: Any = stacked_tag_rows(self._ranking()[0], shares[self.weights_ > 0], constants)
        factors = self.tag_factors_.astype(np.float32)
        self.tag_rows_ = sp.csr_array(sp.diags_array(factors) @ V) if sp.issparse(V) else V
        if not sp.issparse(V):
            V *= factors[:, None]

    def add_tags(self, X: MatrixLike | None, Y_new: MatrixLike) -> Self:
        """Add tags, see `Blend.add_tags`; new tags are not lifted."""
        super().add_tags(X, Y_new)
        n_new = self.n_tags_ - self.tag_factors_.size
        self.tag_factors_ = np.append(self.tag_factors_, np.ones(n_new))
        self.tag_offsets_ = np.append(self.tag_offsets_, np.zeros(n_new))
        return self
