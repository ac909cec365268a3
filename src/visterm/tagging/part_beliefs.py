"""What is known, and what a model believes, of which tag names a part of which."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.kernels.topk import top_k
from visterm.models.abilities import LabelsParts
from visterm.models.base import Annotator
from visterm.tagging.part_settings import names_with

if TYPE_CHECKING:
    from visterm.tagging.relations import WordRelations
    from visterm.tagging.run import Run

BLOCK = 256  # Wholes whose parts are scored at a time
NEVER = np.float32(-np.inf)

MIN_OTHERS = 2  # Others of a kind that it takes to say what the kind has


class Believed(NamedTuple):
    """A pair of tags, by column, and how much the model believes that the one is part of the other."""

    part: int
    whole: int
    score: float


class PartBeliefs:
    """The part-of relations that are known among tags, and what a model makes of all others.

    The model's scores say which tags belong together, and two trees that have the same parts do so as well as a tree
    and its trunk (``directed=False``: it scores both ways alike). So known relations say what a pair can be:

    - the whole is a whole in some known relation, and the part a part; or a tag has no known relation, and its vector
      was learned from images (``shared=True``);
    - of two tags that can be either, without a direction, the whole is the one that is a whole in the larger share of
      its relations; of equal ones, that which is a whole in more of them, and then the one that comes first;
    - nothing is part of itself, nor of what it is a kind of, nor of its own parts.

    Where kinds are known, the parts of other tags of the same kind count too (`SameKind`): a part that all have, as
    much as a known relation on average. Of drawn objects, half of whose relations were left out, this found more of
    those left out among all pairs that could be. `known`
    are columns of (part, whole); `kinds` of a tag and another that it is a kind of, over any number of steps. A fitted
    model has beliefs if it labels parts (`LabelsParts`) and has learned from relations.
    """

    def __init__(self, model: Annotator, known: Any, n_tags: int, kinds: Any = ()) -> None:
        self.model = model
        self.n_tags = n_tags
        pairs = _as_pairs(known)
        if labels_parts(model):
            pairs = np.concatenate([pairs, model.part_of_])
        self.known: NDArray[Any] = np.unique(pairs, axis=0)
        self._kinds = _as_pairs(kinds)
        self._same_kind = SameKind(self.known, self._kinds, n_tags)
        params = model.get_params(deep=False)
        as_part, as_whole = (np.bincount(self.known[:, column], minlength=n_tags) for column in (0, 1))
        # Vectors that only relations teach are as they were drawn where a tag has none.
        seen = (as_part + as_whole == 0) & params.get("shared", True)
        self._can_be_whole = (as_whole > 0) | seen
        self._can_be_part = (as_part > 0) | (seen & (not params.get("directed", False)))
        self._place = None if params.get("directed", True) else _wholeness(as_part, as_whole)

    @property
    def any(self) -> bool:
        """Whether the model has beliefs."""
        return labels_parts(self.model)

    def parts_of(self, whole: int) -> NDArray[Any]:
        """Return the known parts of a tag."""
        parts: NDArray[Any] = self.known[self.known[:, 1] == whole, 0]
        return parts

    def possible(self) -> NDArray[np.bool_]:
        """Return which tags can be parts of which, known relations among them, (n_tags, n_tags): whole, part."""
        every = np.arange(self.n_tags)
        can_be: NDArray[np.bool_] = np.concatenate(
            [self.scores(every[start : start + BLOCK]) > NEVER for start in range(0, self.n_tags, BLOCK)]
        )
        can_be[self.known[:, 1], self.known[:, 0]] = True
        return can_be

    def scores(self, wholes: NDArray[Any]) -> NDArray[np.float32]:
        """Return how much each tag is believed to be a part of some wholes, (n_wholes, n_tags); -inf: it cannot be."""
        scores = np.array(self.model.relation_scores(wholes), np.float32)
        scores += self._usual_score * self._same_kind.shares(wholes)
        cannot_be = ~(self._can_be_whole[wholes][:, None] & self._can_be_part[None, :])
        for pairs in (self.known[:, ::-1], self._kinds, self._kinds[:, ::-1]):
            cannot_be |= self._among(wholes, pairs)
        if self._place is not None:
            cannot_be |= self._place[None, :] > self._place[wholes][:, None]
        cannot_be &= ~self._among(wholes, self.known)
        cannot_be[np.arange(len(wholes)), wholes] = True
        scores[cannot_be] = NEVER
        return scores

    @cached_property
    def _usual_score(self) -> np.float32:
        """What the model makes of known relations on average, or 0 if that is less."""
        parts, wholes = self.known.T
        rows, row_of = np.unique(wholes, return_inverse=True)
        scores = np.asarray(self.model.relation_scores(rows))[row_of, parts]
        return np.float32(max(0.0, scores.mean())) if scores.size else np.float32(0)

    def unknown(self, k: int) -> list[Believed]:
        """Return the pairs with the highest scores above 0 that are not known, best first; k = 0: all of them.

        Of equal scores the smaller whole comes first, then the smaller part. Raises UserError if the model has no
        beliefs.
        """
        check_believes(self.model)
        found = np.concatenate([np.empty((0, 3)), *self._best(k)])
        order = np.lexsort((found[:, 0], found[:, 1], -found[:, 2]))[: k or None]
        return [Believed(int(part), int(whole), float(score)) for part, whole, score in found[order]]

    def _best(self, k: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.n_tags, BLOCK):
            wholes = np.arange(start, min(start + BLOCK, self.n_tags))
            scores = self.scores(wholes)
            scores[self._among(wholes, self.known)] = NEVER
            ids, values = top_k(scores, min(k or self.n_tags, self.n_tags))
            rows, places = np.nonzero(values > 0)
            yield np.column_stack([ids[rows, places], wholes[rows], values[rows, places]])

    def _among(self, wholes: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of the tags some pairs make parts of some wholes, (n_wholes, n_tags)."""
        row_of = np.full(self.n_tags, -1)
        row_of[wholes] = np.arange(len(wholes))
        parts, rows = pairs[:, 0], row_of[pairs[:, 1]]
        found = np.zeros((len(wholes), self.n_tags), bool)
        found[rows[rows >= 0], parts[rows >= 0]] = True
        return found


def beliefs_of(tagger: Run, more: WordRelations | None = None) -> PartBeliefs:
    """Return what a tagger knows and believes of its tags, with further known relations if there are some."""
    tags = tagger.vocabulary
    known = np.concatenate([given.pairs(tags) for given in (tagger.relations, more) if given is not None])
    return PartBeliefs(tagger.model, known, len(tags), tagger.relations.kinds(tags))


def labels_parts(model: Annotator) -> bool:
    """Return whether a fitted model knows of parts: it can, and has learned from relations."""
    return isinstance(model, LabelsParts) and len(model.part_of_) > 0


def check_believes(model: Annotator) -> None:
    """Refuse a model that knows nothing of parts, and say what does.

    Raises UserError if it cannot learn from relations, or did not.
    """
    if labels_parts(model):
        return
    name = MODELS.name_of(model)
    if isinstance(model, LabelsParts):
        raise UserError(
            f"The model '{name}' of this run was given no relations to learn from. Fit it with the tag rule part_of."
        )
    raise UserError(
        f"The model '{name}' does not learn which tags are parts of which. Fit one that does, with the tag rule "
        f"part_of: {', '.join(names_with(MODELS, 'relation_scores'))}."
    )


def _as_pairs(pairs: Any) -> NDArray[np.int64]:
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def _wholeness(as_part: NDArray[Any], as_whole: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each tag when all are sorted from those that are parts to those that are wholes."""
    n_known = as_part + as_whole
    share = np.where(n_known > 0, as_whole / np.maximum(n_known, 1), 0.5)
    place = np.empty(len(share), np.int64)
    place[np.lexsort((-np.arange(len(share)), as_whole, share))] = np.arange(len(share))
    return place


class SameKind:
    """Which parts those tags have that are of one kind with another.

    `known` are columns of (part, whole); `kinds` of a tag and another that it is a kind of, over any number of steps.
    """

    def __init__(self, known: NDArray[Any], kinds: NDArray[Any], n_tags: int) -> None:
        self._n_tags = n_tags
        self._parts_of = _lists(known[:, 1], known[:, 0])
        self._kinds_of = _lists(kinds[:, 0], kinds[:, 1])
        self._members = _lists(kinds[:, 1], kinds[:, 0])

    def shares(self, wholes: NDArray[Any]) -> NDArray[np.float32]:
        """Return the share of the other tags of each whole's kind that have each tag as a part, (n_wholes, n_tags).

        Others count whose parts are known, if there are two at least; of several kinds the largest share counts.
        """
        shares = np.zeros((len(wholes), self._n_tags), np.float32)
        for row, whole in enumerate(wholes.tolist()):
            for kind in self._kinds_of.get(whole, []):
                others = [tag for tag in self._members[kind] if tag != whole and tag in self._parts_of]
                if len(others) >= MIN_OTHERS:
                    parts = [part for tag in others for part in self._parts_of[tag]]
                    counts = np.bincount(parts, minlength=self._n_tags)
                    np.maximum(shares[row], (counts / len(others)).astype(np.float32), out=shares[row])
        return shares


def _lists(keys: NDArray[Any], values: NDArray[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        found.setdefault(key, []).append(value)
    return found
