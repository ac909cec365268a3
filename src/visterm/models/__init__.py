"""Models that score tags for images: a base class, a folder for each family, and the classes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visterm.core.registry import lazy_names
from visterm.core.tables import MODELS

if TYPE_CHECKING:  # `as`: type checkers take these names as public
    from visterm.core.types import Floats
    from visterm.models.abilities import PlacesWords
    from visterm.models.base import BLOCK_BYTES, MAX_FEATURE, Annotator, Limit, SideKnowledge
    from visterm.models.baselines import Prior as Prior
    from visterm.models.blend.auto import Auto as Auto
    from visterm.models.blend.ensemble import Ensemble as Ensemble
    from visterm.models.deep.sampled_tagger import SampledTagger as SampledTagger
    from visterm.models.epochs import EpochSums, Weights
    from visterm.models.linear.als import Als as Als
    from visterm.models.linear.base import LinearAnnotator, check_weight_size, with_ones
    from visterm.models.linear.ease import Ease as Ease
    from visterm.models.linear.kernel_ridge import KernelRidge as KernelRidge
    from visterm.models.linear.logistic import Logistic as Logistic
    from visterm.models.linear.normal_equations import (
        DIRECT_SIZE,
        LinearFit,
        centred_kernel,
        conjugate_gradients,
        fit_ridge,
        mean_square_norm,
        with_intercept,
    )
    from visterm.models.linear.ridge import ALPHAS, PenaltyChoice, choose_penalty
    from visterm.models.linear.ridge import Ridge as Ridge
    from visterm.models.linear.text_ridge import TextRidge as TextRidge
    from visterm.models.mlp import Mlp as Mlp
    from visterm.models.neighbours.distances import check_blocks, read_blocks, row_squares, squared_distances
    from visterm.models.neighbours.knn import TAGS_OF_IMAGES, Cosines, Ids, VotingAnnotator, unit_rows, weighted_votes
    from visterm.models.neighbours.knn import Knn as Knn
    from visterm.models.pamir.pamir import JudgedImages, TripletTraining
    from visterm.models.pamir.pamir import Pamir as Pamir
    from visterm.models.parts.objects_and_parts import ObjectsAndParts as ObjectsAndParts
    from visterm.models.parts.objects_and_parts import ranks_of_pairs
    from visterm.models.parts.relations import QuadrupletBlock, Quadruplets, check_relations
    from visterm.models.ranking.vse_ens import VseEns as VseEns
    from visterm.models.ranking.wsabie import Wsabie as Wsabie
    from visterm.models.stopping import Judged, OnEpoch, Watch, hold_out

_NAMES = {
    "abilities": "PlacesWords",
    "base": "Annotator BLOCK_BYTES Limit MAX_FEATURE SideKnowledge",
    "epochs": "EpochSums Floats Weights",
    "linear.base": "LinearAnnotator check_weight_size with_ones",
    "linear.normal_equations": "DIRECT_SIZE LinearFit centred_kernel conjugate_gradients fit_ridge mean_square_norm "
    "with_intercept",
    "linear.ridge": "ALPHAS PenaltyChoice choose_penalty",
    "neighbours.distances": "check_blocks read_blocks row_squares squared_distances",
    "neighbours.knn": "Cosines Ids TAGS_OF_IMAGES VotingAnnotator unit_rows weighted_votes",
    "pamir.pamir": "JudgedImages TripletTraining",
    "parts.objects_and_parts": "ranks_of_pairs",
    "parts.relations": "QuadrupletBlock Quadruplets check_relations",
    "stopping": "Judged OnEpoch Watch hold_out",
}
"""Names for plug-ins, by module: docs/add_a_model.md."""

__doc__ = f"""Models that score tags for images.

`visterm.fit` takes them by name or as objects: ``model="ridge"``, ``model=Ridge(alpha=3)``. They also learn from a
matrix of your own. Your own model is a subclass of `Annotator` with `_fit` and `_image_rows`. `visterm.fit` takes a
classifier of scikit-learn as it is.

{MODELS.class_list()}

Examples
--------
>>> model = visterm.models.Ridge().fit(X, [["sea"], ["sea", "sky"]])  # doctest: +SKIP
>>> model.annotate(X_new, k=1).tags  # doctest: +SKIP
"""

__getattr__, __dir__ = lazy_names("visterm.models", _NAMES, MODELS.classes)
