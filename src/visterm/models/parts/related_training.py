"""Train on objects and parts: epochs over pairs of an image and a tag, each with a related tag."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Doubles, Floats, Ints, Matrix
from visterm.kernels.pairs import add_contexts, draw_contexts, move_contexts
from visterm.kernels.rows import dense_rows
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
from visterm.models.ranking.warp import Objective, PairTraining


class RowLayout(NamedTuple):
    """The start columns of a tag's vectors in its row: as a label of images (0), as a whole, and as a part."""

    dim: int  # Length of each vector
    # Start columns; equal if tags have the same vector for both
    whole: int
    part: int

    @property
    def width(self) -> int:
        """Length of a row."""
        return max(self.whole, self.part) + self.dim


class RelatedImages(EmbeddedImages):
    """Embedded images plus each example's context, so that a tag's score is a single product with its row.

    `tag_rows` are (n_tags, layout.width), `alpha` is the weight of the score of two tags, `rate_factor` the learning
    rate of the image map divided by that of tags; `contexts` are the contexts of the next block, as arguments of
    `add_contexts`. Other parameters are those of `EmbeddedImages`.
    """

    def __init__(
        self,
        X: Matrix,
        image_map: Floats,
        tag_rows: Floats,
        steps: StepSettings,
        *,
        layout: RowLayout,
        alpha: float,
        rate_factor: float,
        **settings: Any,
    ) -> None:
        super().__init__(X, image_map, steps, **settings)
        self.U = np.zeros((steps.block, layout.width), np.float32)
        self.rows = dense_rows(self.U)
        self.steps = np.zeros((steps.block, layout.width), np.float32)
        self._V, self.layout, self.alpha, self._rate_factor = tag_rows, layout, alpha, rate_factor
        self.contexts: tuple[Ints, Ints, Ints] = (self._numbers, self._numbers, self._numbers)

    def set_rate(self, rate: float, growth: float = 1.0) -> None:
        """Set the learning rate of tags in the next epochs; that of images is multiplied by `rate_factor`."""
        super().set_rate(rate * self._rate_factor, growth)

    def embed(self, part: slice) -> None:
        """Map the images of a part and add their contexts."""
        super().embed(part)
        contexts, tag_start, context_start = (array[part] for array in self.contexts)
        U = self.U[: self._n][part]
        add_contexts(contexts, tag_start, context_start, self.layout.dim, self.alpha, self._V, U)


class RelatedTraining(PairTraining):
    """Training on quadruplets (object image, object, part image, part); each step needs only one of the images.

    A constraint changes one of the two labels of a quadruplet, so the score of the other image is the same on both
    sides and cancels: constraint (6) keeps the object's image, its label, and the part's label as context; constraint
    (7) keeps the part's image, its label, and the object's label as context. So an epoch visits each pair of image and
    tag once, with a context drawn among all related tags, whether parts or wholes; tags without relations have no
    context. Labels that outrank the true label are drawn among all tags that the image does not have.

    `pairs`, (n, 2), are (part, whole); for `negative_weight` see `ObjectsAndParts`. Unlike in `PairTraining`,
    ``steps.max_norm`` limits each vector of a tag row by itself.
    """

    def __init__(
        self,
        side: RelatedImages,
        positives: sp.csr_array,
        tag_rows: Floats,
        objective: Objective,
        steps: StepSettings,
        *,
        pairs: Ints,
        negative_weight: float,
        **options: Any,
    ) -> None:
        super().__init__(side, positives, tag_rows, objective, steps._replace(max_norm=math.inf), **options)
        self._related, self._max_norm, self._undo_share = side, steps.max_norm, 1.0 - negative_weight
        layout = side.layout
        parts, wholes = pairs[:, 0], pairs[:, 1]
        tags = np.concatenate([parts, wholes])
        order = np.argsort(tags, kind="stable")
        self._partners = np.concatenate([wholes, parts])[order]
        tag_start = np.repeat(np.array([layout.part, layout.whole], np.int64), len(pairs))
        self._tag_start, self._context_start = tag_start[order], np.roll(tag_start, len(pairs))[order]
        n_partners = np.bincount(tags, minlength=len(tag_rows))
        self._first_partner = np.concatenate([[0], np.cumsum(n_partners)]).astype(np.int64)
        self._context_seed = self._seed + 1  # a separate stream: other draws are the same as without relations

    def _run_block(self, examples: Ints) -> Doubles:
        n, tags = examples.size, self._tags[examples]
        contexts, entries = np.empty(n, np.int64), np.zeros(n, np.int64)
        draw_contexts(
            examples, tags, self._first_partner, self._partners, self._context_seed, self._epoch, contexts, entries
        )
        tag_start = self._tag_start[entries] if self._tag_start.size else entries
        context_start = self._context_start[entries] if self._context_start.size else entries
        self._related.contexts = contexts, tag_start, context_start
        sums = super()._run_block(examples)
        rate = self._related.alpha * self._rule.rate
        move_contexts(
            contexts, tag_start, context_start, tags, self._violators[:n], self._gains[:n], self._side.steps[:n],
            self._related.layout.dim, rate / self._side.rate, rate, self._undo_share, self._max_norm * self.growth,
            self._V,
        )  # fmt: skip
        return sums
