"""Several models fitted within a time budget and blended: which is best where, nobody has to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_flag, check_number
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.estimator import check_fitted, clone
from visterm.core.learned import Array, Kind, Listed, Number, Record, Text, Whole
from visterm.core.products import dense
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm.core.types import Matrix, MatrixLike
from visterm.models.abilities import FeatureShares, RelearnsTags
from visterm.models.base import Annotator, Blocks
from visterm.models.blend.candidates import (
    EMBEDDING,
    USUAL,
    ColumnSet,
    Member,
    any_from_kernel,
    chosen_settings,
    column_sets,
    member_list,
    make_member,
    own_settings,
)
from visterm.models.blend.kept import explaining, what_to_do
from visterm.models.blend.mixing import (
    best_mix,
    best_shape,
    both_maps,
    image_map,
    mixed,
    rare_tag_boost,
    sample,
    tag_offsets,
    without_idlers,
    word_map,
)
from visterm.models.blend.stacked import Blend, check_stacked, stacked_image_rows, stacked_tag_rows
from visterm.models.blend.trials import KEPT, Budget, MemberTrial, TaggedRows, kept_beside, shortlist, try_candidates
from visterm.models.neighbours.distances import check_blocks
from visterm.models.stopping import MIN_HELD_OUT, HeldOutFit, OnEpoch, hold_out, learns_from_kernel, visible_columns

if TYPE_CHECKING:
    from sklearn.utils import Tags

ALONE = "alone: there are no images to judge by"
# By whether a model has weight, and whether it is kept
REASONS = {(True, True): "in the blend", (False, True): KEPT, (False, False): "adds nothing to the others"}


class BlendWeights(NamedTuple):
    """How trials are blended."""

    used: list[MemberTrial]
    shares: NDArray[np.float64]  # shape (n_used,): λ
    lift: float
    tag_factors: NDArray[np.float64]  # shape (n_tags,): d
    tag_offsets: NDArray[np.float64]  # shape (n_tags,): b
    scores: NDArray[np.float32] | None = None  # shape (n_judged, n_tags): of the judged images; None without any


def blend(trials: Sequence[MemberTrial], judged: TaggedRows, lift: float | None) -> BlendWeights:
    """Find the weights of trials that were judged, and how far rare tags are lifted (None: as is best).

    Without images to judge by, the first trial has all the weight.
    """
    n_tags = judged.Y.shape[1]
    if not judged.X.shape[0]:
        trials[0].reason = ALONE
        return BlendWeights([trials[0]], np.ones(1), 0.0, np.ones(n_tags), np.zeros(n_tags))
    weighed = shortlist([trial for trial in trials if trial.scores is not None])
    scores = [trial.scores for trial in weighed if trial.scores is not None]
    shares = without_idlers(*best_mix(scores, judged.Y, both_maps), scores, judged.Y)
    blended = mixed(shares, scores)
    lift, centre = best_shape(blended, judged.Y) if lift is None else (float(lift), 0.0)
    factors = rare_tag_boost(blended, lift)
    offsets = tag_offsets(blended, factors, centre)
    blended = factors.astype(np.float32) * blended + offsets.astype(np.float32)
    used = np.flatnonzero(shares > 0)
    return BlendWeights([weighed[m] for m in used], shares[used], lift, factors, offsets, blended)


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(Blend):
    """Fits several models, judges them on images that they have not seen, and blends the best.

    The score of tag t is ``d_t Σ_m λ_m (s_m - μ_m) / σ_m + b_t``, where ``s_m`` is the score of model m, and ``μ_m``
    and ``σ_m`` the mean and standard deviation of its scores on held-out images: those of a neighbour model on images
    that it has learned would be far off, because there each image is its own neighbour.

    The weights ``λ``, not below 0 and of sum 1, are those with the highest sum of MAP over images (annotation) and MAP
    over tags (search) on the held-out images. Weights for each of the two did no better on further images, at either.
    Annotation has the factors ``d_t`` besides, which no search for one tag notices: ``d_t = spread_t^-lift``, with the
    spread (standard deviation) of the tag's scores over the held-out images. Scores of rare tags spread little, so that
    a lift above 0 gives more different tags. ``b_t = (1 - d_t) c mean_t`` leaves scores near the tag's mean where they
    were. Lift and c are those with the best MAP over the held-out images, or nearly, and then the best F1 of five tags.
    Weights of a tag's own, shrunk to ``λ``, did no better on further images, and neither did scores of other tags.

    Where features are of several kinds, the blocks of a chain of encoders, a model may read all of them or one block.
    The first candidate is tried on all columns and on each block, the others on the three sets of columns where it did
    best. At most six models are weighed: the best on each set of columns, then the best of the rest. Models without
    weight, or that add next to nothing, are dropped.

    With a budget the seconds of each candidate are estimated from a fit of an eighth of the images. Candidates that
    would take too long are left out, and their reason says what more time would bring: what they add to MAP over the
    held-out images beside the best so far, both fitted on that eighth. A model stays as fitted on the part if no time
    is left to fit it on all images. A clock then decides, so the same seed gives the same bytes only if the budget was
    not the limit.

    Parameters
    ----------
    budget : float, optional
        Seconds for the whole fit; compiling, after an installation, is not counted. It may take longer, as the first
        candidate is always fitted and no fit is cut short. None: no limit.
    blocks : sequence of int or of (int, int), optional
        Widths of the feature blocks, side by side, or pairs of first column and the one after the last. None: one
        block of all features; in a `Tagger`, the blocks that the encoder has. A block of which a tenth of the values
        or more is not 0 is taken as dense, and so are all columns together if there is such a block; beyond 1 GiB
        they are left out.
    candidates : list of (name, settings) or estimators, optional
        What to try, in this order: names from ``visterm models`` with their settings, or unfitted models, which are
        cloned. One with settings of its own for each block is tried on all columns only. None: `knn`, `kernel_ridge`,
        `ridge` and `wsabie`.
    word_vectors : array-like, shape (n_tags, n_features), optional
        Text vectors of the tags, as `TextRidge` takes them, which is then one candidate more.
    tree : array-like of int, shape (n_pairs, 2), or None
        Each tag with each one above it, passed to candidates with that setting (`Wsabie`).
    lift : float, optional
        How far rare tags are lifted, from 0, not at all, to 1, with c = 0. None: chosen from 0 to 0.8, and c from 0 to
        0.5, as said above.
    valid_share : float
        Share of the images held out to judge by, where `fit` is given no validation images; not less than 50 images,
        unless that is more than half of them. With 0, or so few images, or images known only by number, the first
        candidate is fitted alone.
    explainable : bool
        Keep a model that explains scores, and one that has vectors of tags, with weight 0 where no model of the blend
        can: the best of the candidates, or else a ridge regression fitted for that, at first on at most 1,000 images.
        It changes no score.
    n_jobs : int, optional
        Threads, of the candidates too unless their settings say otherwise; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Held-out images, and the random states of candidates whose settings have none.

    Attributes
    ----------
    members_ : list of Annotator
        The models of the blend, fitted; those without weight only explain.
    columns_ : ndarray of int64, shape (n_members, 4)
        What each member reads: the number of the block (0 for all columns), the first column, the one after the last,
        and whether as an array (1) or as CSR (0).
    weights_ : ndarray of float64, shape (n_members,)
        λ.
    means_, scales_ : ndarray of float64, shape (n_members,)
        μ and σ; 0 and 1 where nothing was judged.
    lift_ : float
    tag_factors_ : ndarray of float64, shape (n_tags,)
        d, of mean 1.
    tag_offsets_ : ndarray of float64, shape (n_tags,)
        b.
    report_ : list of dict
        One entry a candidate, in the order of trial: ``model``, ``settings``, ``block`` that it reads (1 for the first;
        None: all columns), ``seconds`` of fit and scores, ``map`` and ``word_map`` (over tags) on the judged images,
        ``weight``, and ``reason``: why it is in or not.
    valid_map_, valid_word_map_ : float or None
        What the blend reached on the images that chose its weights and its lift.
    n_held_out_ : int
        Images held out to judge by; those of them that have a tag are judged, 2,000 at most.
    tag_rows_ : array or CSR of float32, shape (n_tags, width)
        CSR where a member's space is tag space.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "weights_": Array("float64", ("n_members",), least=0),
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
    test_params: ClassVar[Mapping[str, object]] = {
        "candidates": [["knn", {"n_neighbors": 10, "power": 2}], ["ridge", {}]],
        "valid_share": 0.3,
    }

    budget: float | None = None
    blocks: Blocks | None = None
    candidates: Sequence[Member] | None = None
    word_vectors: ArrayLike | None = None
    tree: ArrayLike | None = None
    lift: float | None = None
    valid_share: float = 0.2
    explainable: bool = True

    def explain(self, x: MatrixLike, tag: int) -> FeatureShares:
        """Return what each feature contributes to a tag's score, see `explain_linear`.

        The share of members that compare whole images is in `elsewhere`. If no member with weight scores by features,
        the shares are those of one without, and `elsewhere` is what the blend's score has beyond its score. Raises
        UserError if there is none.
        """
        check_fitted(self)
        x = self._check_features(x)
        able = explaining(self)
        if not able:
            names = ", ".join(MODELS.name_of(member) for member in self.members_)
            raise UserError(
                f"All models of this blend ({names}) compare whole images, so no feature has a share in the score. "
                f"{what_to_do(self)}"
            )
        shown = self.weights_ if self.weights_[able].any() else np.isin(np.arange(len(self.members_)), able)
        factors = self.tag_factors_[tag] * shown / self.scales_
        weights, constant = np.zeros(self.n_features_in_), -float(factors @ self.means_)
        constant += float(self.tag_offsets_[tag])

        for m in able:
            columns = self._columns()[m]
            member_shares = self.members_[m].explain(columns.of(x), tag)
            weights[slice(columns.first, columns.stop) if columns.block else slice(None)] += (
                factors[m] * member_shares.weights
            )
            constant += factors[m] * member_shares.constant
        shares = np.asarray(dense(x), np.float64)[0] * weights
        if np.array_equal(able, np.flatnonzero(self.weights_)):
            return FeatureShares(shares, weights, constant)
        score = float(self.decision_function(x)[0, tag])
        return FeatureShares(shares, weights, constant, score - float(shares.sum()) - constant)

    def _check_learned(self) -> None:
        super()._check_learned()
        widths = []
        for read in self._columns():
            if not (read.first < read.stop <= self.n_features_in_ and read.dense <= 1):
                raise DataError(f"columns_ has {tuple(read)}; expected columns of {self.n_features_in_} features")
            widths.append(read.stop - read.first if read.block or read.dense else self.n_features_in_)
        check_stacked(self.members_, widths, self.tag_rows_, self._ranking()[0])

    def _check_settings(self) -> None:
        check_blocks(self.blocks)
        check_number(self.valid_share, "valid_share", least=0, below=1)
        check_flag(self.explainable, "explainable")
        check_number(self.lift, "lift", least=0, below=1, otherwise="or None to have it chosen")
        check_number(self.budget, "budget", above=0, otherwise="or None for no limit")

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: tuple[Matrix, sp.csr_array] | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.check_settings()
        budget, trials = Budget(self.budget), self._candidates(X, rng)
        learned, judged, held_out = self._split(TaggedRows(X, Y), valid, len(trials), rng)
        self.n_held_out_ = X.shape[0] - learned.X.shape[0] if valid is None else valid[0].shape[0]
        trials = try_candidates(trials, learned, judged, X.shape[0], budget, monitor, rng)
        weights = blend(trials, judged, self.lift)
        kept = kept_beside(weights.used, trials, learned, judged, self.n_jobs, monitor) if self.explainable else []
        self.weights_ = np.pad(weights.shares, (0, len(kept)))
        used = [*weights.used, *kept]
        self._fit_again(used, TaggedRows(X, Y), budget, monitor)
        self._keep(used, weights, judged, held_out)
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

    def _image_rows(self, X: Matrix) -> Matrix:
        members, read = self._ranking()
        return stacked_image_rows(members, [columns.of(X) for columns in read])

    def _ranking(self) -> tuple[list[Annotator], list[ColumnSet]]:
        """Return the members that have weight, and what they read."""
        used = np.flatnonzero(self.weights_ > 0)
        columns = self._columns()
        return [self.members_[m] for m in used], [columns[m] for m in used]

    def _columns(self) -> list[ColumnSet]:
        return [ColumnSet(*row) for row in self.columns_.tolist()]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = any_from_kernel(self.candidates, "candidates", "auto")
        return tags

    def _candidates(self, X: Matrix, rng: np.random.Generator) -> list[MemberTrial]:
        by_number = getattr(self, "by_number_", False)
        blocks, word_vectors, tree = (self.known(name) for name in self.takes)
        candidates = []

        for columns in column_sets(X, None if by_number else blocks):
            given: Sequence[Member] = EMBEDDING if by_number else USUAL
            if self.candidates is not None:
                given = member_list(self.candidates, "candidates")
            elif word_vectors is not None and columns.block == 0 and not by_number:
                if np.shape(word_vectors)[1] != X.shape[1]:
                    raise ShapeError(
                        f"`word_vectors` has {np.shape(word_vectors)[1]} numbers a tag.",
                        setting="word_vectors",
                        value=np.shape(word_vectors),
                        expected=f"{X.shape[1]}, as images have features: vectors of the text tower of their network",
                        advice="Leave them out, or choose another `model`, such as sampled_tagger.",
                    )
                given = (*given, ("text_ridge", {}))
            for position, member in enumerate(given):
                model = make_member(member, "auto", self.n_jobs, rng)
                given_blocks = getattr(model, "blocks", None)
                if columns.block == 0 and given_blocks is None:
                    model.set_known(blocks=blocks)
                elif columns.block and (
                    given_blocks is not None or not isinstance(getattr(model, "distances", ""), str)
                ):
                    continue  # it has settings of its own for each block, so that it needs all
                candidates.append(MemberTrial(MODELS.name_of(model), model, own_settings(model), position, columns))
                if word_vectors is not None and isinstance(model, RelearnsTags):
                    model.set_params(word_vectors=word_vectors)
                if tree is not None:
                    model.set_known(tree=tree)
        return candidates

    def _split(
        self, rows: TaggedRows, valid: tuple[Matrix, sp.csr_array] | None, n_models: int, rng: np.random.Generator
    ) -> tuple[TaggedRows, TaggedRows, NDArray[np.int64]]:
        """Return the rows to learn from, those to judge by (none if too few, or none has a tag) and their places."""
        n, nobody = rows.X.shape[0], np.empty(0, np.int64)
        alone = rows, TaggedRows(rows.X[:0], rows.Y[:0]), nobody
        if getattr(self, "by_number_", False) or (valid is None and self.share_to_hold_out == 0):
            return alone
        if valid is None:
            kept, held_out = hold_out(n, max(self.share_to_hold_out, min(MIN_HELD_OUT / n, 0.5)), rng)
            learned = TaggedRows(visible_columns(self, rows.X[kept], kept), rows.Y[kept])
            judged = TaggedRows(visible_columns(self, rows.X[held_out], kept), rows.Y[held_out])
        else:
            learned, judged, held_out = rows, TaggedRows(*valid), nobody
        tagged = np.flatnonzero(np.bincount(judged.Y.tocoo().coords[0][judged.Y.data > 0], minlength=judged.X.shape[0]))
        if tagged.size == 0:
            return alone
        some = tagged[sample(tagged.size, n_models, rows.Y.shape[1], rng)]
        return learned, TaggedRows(judged.X[some], judged.Y[some]), held_out[some] if held_out.size else nobody

    def _fit_again(self, used: list[MemberTrial], rows: TaggedRows, budget: Budget, monitor: Progress) -> None:
        """Fit the models that have not seen all images on all of them, the weightiest first, as far as there is time.

        Settings that a model chose stay: with others its scores would spread differently from those that the lift and
        the weights were found for.
        """
        n_all = rows.X.shape[0]
        may_stay = budget.limited and not learns_from_kernel(self)  # kernel values are read with all images from now on
        for m in np.argsort(-self.weights_, kind="stable"):
            trial = used[m]
            if trial.n_rows == n_all:
                continue
            if may_stay and trial.seconds_again(n_all) > budget.left():
                reason = trial.reason or REASONS[self.weights_[m] > 0, True]
                trial.reason = f"{reason}, as fitted on {trial.n_rows:,} of {n_all:,} images: no time was left"
                continue
            trial.model = clone(trial.model).set_params(**chosen_settings(trial.model))
            trial.model.fit(trial.columns.of(rows.X), rows.Y, monitor=Titled(monitor, trial.title))

    def _keep(
        self, used: list[MemberTrial], weights: BlendWeights, judged: TaggedRows, held_out: NDArray[np.int64]
    ) -> None:
        """Stack the models that are used, and keep what their blend reached on the judged images."""
        self.lift_, self.tag_factors_, self.tag_offsets_ = weights.lift, weights.tag_factors, weights.tag_offsets
        self.valid_map_: float | None = None
        self.valid_word_map_: float | None = None
        self._held_out = None
        if weights.scores is not None:
            self.valid_map_ = image_map(weights.scores, judged.Y)
            self.valid_word_map_ = word_map(weights.scores, judged.Y)
            everyone = sp.eye_array(weights.scores.shape[1], format="csr", dtype=np.float32)
            self._held_out = HeldOutFit(held_out, weights.scores, everyone) if held_out.size else None
        self.members_ = [trial.model for trial in used]
        self.columns_ = np.array([trial.columns for trial in used], np.int64)
        self.means_ = np.array([trial.mean for trial in used])
        self.scales_ = np.array([trial.scale for trial in used])
        shares = self.weights_ / self.scales_
        constants = self.tag_offsets_ / self.tag_factors_ - shares @ self.means_
        V: Any = stacked_tag_rows(self._ranking()[0], shares[self.weights_ > 0], constants)
        factors = self.tag_factors_.astype(np.float32)
        self.tag_rows_ = sp.csr_array(sp.diags_array(factors) @ V) if sp.issparse(V) else V * factors[:, None]
