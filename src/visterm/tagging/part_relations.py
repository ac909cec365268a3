"""Part-of relations of a run: those that are known, those that its model believes in, and labels of two pictures."""

from __future__ import annotations

import os
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.data.images import ImageLike
from visterm.data.part_of import PART_OF_FILE
from visterm.data.relations import write_pairs
from visterm.kernels.topk import top_k
from visterm.learning.part_settings import names_with
from visterm.learning.relations import WordRelations
from visterm.learning.run import Run
from visterm.models.abilities import LabelsParts
from visterm.models.base import Annotator

BLOCK = 256  # Wholes whose parts are scored at a time
NEVER = np.float32(-np.inf)

MIN_OTHERS = 2  # Others of a kind that it takes to say what the kind has


class ScoredRelation(NamedTuple):
    """A part, its whole, and how much the model believes it (higher is better); None of a model without beliefs."""

    part: str
    whole: str
    score: float | None


def believed_relations(tagger: Run, k: int = 20, more: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the pairs that the model believes in and nobody gave it, best first: those with a score above 0.

    A model that is not ``directed`` scores both directions alike: such a pair is listed once, with the direction that
    known relations make likelier, see `PartBeliefs`. At most `k` are returned, or all with 0. `more` are relations that
    are known, too, beside those of the fit. Raises UserError if the model knows nothing of parts.
    """
    tags = tagger.vocabulary.tags
    return [
        ScoredRelation(tags[part], tags[whole], score) for part, whole, score in beliefs_of(tagger, more).unknown(k)
    ]


def known_relations(tagger: Run, k: int = 20, more: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the relations between tags that are known; by what the model makes of them, if it has beliefs, best first.

    Parameters are those of `believed_relations`. Raises UserError if none is known.
    """
    tags, beliefs = tagger.vocabulary.tags, beliefs_of(tagger, more)
    if not len(beliefs.known):
        raise UserError(
            "This run knows no part-of relations.",
            setting="tag_rules", advice="Fit it with the tag rule part_of, or name a file with it here as `tag_rules`.",
        )  # fmt: skip
    parts, wholes = beliefs.known.T
    if not beliefs.any:
        pairs = list(zip(parts, wholes, strict=True))[: k or None]
        return [ScoredRelation(tags[part], tags[whole], None) for part, whole in pairs]
    rows, row_of = np.unique(wholes, return_inverse=True)
    scores = np.asarray(tagger.model.relation_scores(rows))[row_of, parts]
    best = np.lexsort((parts, wholes, -scores))[: k or None]
    return [ScoredRelation(tags[parts[i]], tags[wholes[i]], float(scores[i])) for i in best]


def write_relations(path: str | os.PathLike[str], relations: list[ScoredRelation]) -> None:
    """Write a CSV of part, whole and score, which `visterm.data.part_of.read_part_of` reads."""
    header = (*PART_OF_FILE.columns, "score")
    rows = [(r.part, r.whole, "" if r.score is None else f"{r.score:.6f}") for r in relations]
    write_pairs(path, header, rows)


class LabelledPair(NamedTuple):
    """What the object is, what its part is, and the score of both together (higher is better)."""

    object: str
    part: str
    score: float


def label_pair(
    tagger: Run,
    object_image: ImageLike,
    part_image: ImageLike,
    k: int = 5,
    *,
    object_tag: str | None = None,
    part_tag: str | None = None,
) -> list[LabelledPair]:
    """Label a picture of an object and one of a part of it together; return at most `k` pairs of tags, best first.

    The images are paths, uint8 arrays (height, width, 3), or names for an encoder of names. 0 means all pairs. Where
    the tag of one of the two is known, only the other is looked for. Only pairs are looked at that can be, as
    `PartBeliefs` says: nothing is part of itself or of its kind. Raises UserError if the model knows nothing of parts,
    or both tags are given; UnknownNameError if a tag is not in the vocabulary; ImageError if an image cannot be read.
    """
    check_believes(tagger.model)
    if object_tag is not None and part_tag is not None:
        raise UserError(
            "Both tags are given, so there is nothing to look for.",
            setting="object_tag", value=object_tag, advice="Leave `object_tag` or `part_tag` out.",
        )  # fmt: skip
    tags = tagger.vocabulary
    known = {name: [tags.index(tag)] for name, tag in (("objects", object_tag), ("parts", part_tag)) if tag is not None}
    X = tagger.encoder.transform([object_image, part_image])
    possible = beliefs_of(tagger).possible()
    best = tagger.model.annotate_pairs(X[:1], X[1:], k, **known, possible=possible)
    return [
        LabelledPair(tags.tags[whole], tags.tags[part], float(score))
        for whole, part, score in zip(best.objects[0], best.parts[0], best.scores[0], strict=True)
        if possible[whole, part]
    ]


class PartBeliefs:
    """The part-of relations that are known among tags, and what a model makes of all others.

    The model's scores say which tags belong together, and two trees that have the same parts do so as well as a tree
    and its trunk (``directed=False``: it scores both ways alike). So known relations say what a pair can be:

    - the whole is a whole in some known relation, and the part a part; or a tag has no known relation, and its vector
      was learned from images (``shared=True``);
    - of two tags that can be either, without a direction, the whole is the one that is a whole in the larger share of
      its relations; of equal ones, that which is a whole in more of them, and then the one that comes first;
    - nothing is part of itself, nor of what it is a kind of, nor of its own parts.

    Where kinds are known, the parts of other tags of the same kind count too (`shares_of_kind`): a part that all have,
    as much as a known relation on average. Of drawn objects, half of whose relations were left out, this found more of
    those left out among all pairs that could be. `known` are columns of (part, whole); `kinds` of a tag and another
    that it is a kind of, over any number of steps. A fitted model has beliefs if it labels parts (`LabelsParts`) and
    has learned from relations.
    """

    def __init__(self, model: Annotator, known: ArrayLike, n_tags: int, kinds: ArrayLike = ()) -> None:
        self.model = model
        self.n_tags = n_tags
        pairs = _as_pairs(known)
        if labels_parts(model):
            pairs = np.concatenate([pairs, model.part_of_])
        self.known: NDArray[np.int64] = np.unique(pairs, axis=0)
        self._kinds = _as_pairs(kinds)
        self._parts_of = _lists(self.known[:, 1], self.known[:, 0])
        self._kinds_of = _lists(self._kinds[:, 0], self._kinds[:, 1])
        self._members = _lists(self._kinds[:, 1], self._kinds[:, 0])
        params = model.get_params(deep=False)
        as_part, as_whole = (np.bincount(self.known[:, column], minlength=n_tags) for column in (0, 1))
        # Vectors that only relations teach are as they were drawn where a tag has none.
        seen = (as_part + as_whole == 0) & params.get("shared", True)
        self._can_be_whole = (as_whole > 0) | seen
        self._can_be_part = (as_part > 0) | (seen & (not params.get("directed", False)))
        self._wholeness = None if params.get("directed", True) else _wholeness(as_part, as_whole)

    @property
    def any(self) -> bool:
        """Whether the model has beliefs."""
        return labels_parts(self.model)

    def parts_of(self, whole: int) -> NDArray[np.int64]:
        """Return the known parts of a tag."""
        parts: NDArray[np.int64] = self.known[self.known[:, 1] == whole, 0]
        return parts

    def possible(self) -> NDArray[np.bool_]:
        """Return which tags can be parts of which, known relations among them, (n_tags, n_tags): whole, part."""
        every = np.arange(self.n_tags)
        can_be: NDArray[np.bool_] = np.concatenate(
            [self.scores(every[start : start + BLOCK]) > NEVER for start in range(0, self.n_tags, BLOCK)]
        )
        can_be[self.known[:, 1], self.known[:, 0]] = True
        return can_be

    def scores(self, wholes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return how much each tag is believed to be a part of some wholes, (n_wholes, n_tags); -inf: it cannot be."""
        scores = np.array(self.model.relation_scores(wholes), np.float32)
        scores += self._usual_score * self.shares_of_kind(wholes)
        cannot_be = ~(self._can_be_whole[wholes][:, None] & self._can_be_part[None, :])
        for pairs in (self.known[:, ::-1], self._kinds, self._kinds[:, ::-1]):
            cannot_be |= self._among(wholes, pairs)
        if self._wholeness is not None:
            cannot_be |= self._wholeness[None, :] > self._wholeness[wholes][:, None]
        cannot_be &= ~self._among(wholes, self.known)
        cannot_be[np.arange(len(wholes)), wholes] = True
        scores[cannot_be] = NEVER
        return scores

    def shares_of_kind(self, wholes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the share of the other tags of each whole's kind that have each tag as a part, (n_wholes, n_tags).

        Others count whose parts are known, if there are two at least; of several kinds the largest share counts.
        """
        shares = np.zeros((len(wholes), self.n_tags), np.float32)
        for row, whole in enumerate(wholes.tolist()):
            for kind in self._kinds_of.get(whole, []):
                others = [tag for tag in self._members[kind] if tag != whole and tag in self._parts_of]
                if len(others) >= MIN_OTHERS:
                    parts = [part for tag in others for part in self._parts_of[tag]]
                    counts = np.bincount(parts, minlength=self.n_tags)
                    np.maximum(shares[row], (counts / len(others)).astype(np.float32), out=shares[row])
        return shares

    @cached_property
    def _usual_score(self) -> np.float32:
        """What the model makes of known relations on average, or 0 if that is less."""
        parts, wholes = self.known.T
        rows, row_of = np.unique(wholes, return_inverse=True)
        scores = np.asarray(self.model.relation_scores(rows))[row_of, parts]
        return np.float32(max(0.0, scores.mean())) if scores.size else np.float32(0)

    def unknown(self, k: int) -> list[tuple[int, int, float]]:
        """Return the pairs with the highest scores above 0 that are not known, best first; k = 0: all of them.

        As (column of the part, column of the whole, score). Of equal scores the smaller whole comes first, then the
        smaller part. Raises UserError if the model has no beliefs.
        """
        check_believes(self.model)
        best = [np.empty((0, 3))]
        for start in range(0, self.n_tags, BLOCK):
            wholes = np.arange(start, min(start + BLOCK, self.n_tags))
            scores = self.scores(wholes)
            scores[self._among(wholes, self.known)] = NEVER
            ids, values = top_k(scores, min(k or self.n_tags, self.n_tags))
            rows, ranks = np.nonzero(values > 0)
            best.append(np.column_stack([ids[rows, ranks], wholes[rows], values[rows, ranks]]))
        pairs = np.concatenate(best)
        order = np.lexsort((pairs[:, 0], pairs[:, 1], -pairs[:, 2]))[: k or None]
        return [(int(part), int(whole), float(score)) for part, whole, score in pairs[order]]

    def _among(self, wholes: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        row_of = np.full(self.n_tags, -1)
        row_of[wholes] = np.arange(len(wholes))
        parts, rows = pairs[:, 0], row_of[pairs[:, 1]]
        among = np.zeros((len(wholes), self.n_tags), bool)
        among[rows[rows >= 0], parts[rows >= 0]] = True
        return among


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
        f"part_of: {', '.join(names_with(MODELS, lambda part: hasattr(part, 'relation_scores')))}."
    )


def _as_pairs(pairs: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def _wholeness(as_part: NDArray[np.int64], as_whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each tag when all are sorted from those that are parts to those that are wholes."""
    n_known = as_part + as_whole
    share = np.where(n_known > 0, as_whole / np.maximum(n_known, 1), 0.5)
    position = np.empty(len(share), np.int64)
    position[np.lexsort((-np.arange(len(share)), as_whole, share))] = np.arange(len(share))
    return position


def _lists(keys: NDArray[np.int64], values: NDArray[np.int64]) -> dict[int, list[int]]:
    lists: dict[int, list[int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        lists.setdefault(key, []).append(value)
    return lists
