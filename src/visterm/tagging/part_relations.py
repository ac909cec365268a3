"""Part-of relations of a run, known or predicted by its model, and joint labels of an object and its part."""

from __future__ import annotations

import os
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.data.images import ImageLike
from visterm.data.relations import PART_OF_FILE, part_pairs, write_pairs
from visterm.kernels.topk import top_k
from visterm.learning.part_settings import names_with
from visterm.learning.relations import WordRelations
from visterm.learning.run import Run
from visterm.models.abilities import LabelsParts
from visterm.models.base import Annotator

BLOCK_SIZE = 256  # Number of wholes whose parts are scored together
IMPOSSIBLE_SCORE = np.float32(-np.inf)

MIN_OTHER_TAGS = 2  # Minimum number of other tags of a kind, with known parts, to predict parts from them


class ScoredRelation(NamedTuple):
    """A part, its whole, and the model's score (higher is more likely); None if the model doesn't score relations."""

    part: str
    whole: str
    score: float | None


def believed_relations(run: Run, k: int = 20, more_relations: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the unknown relations that the model predicts, with scores above 0, best first.

    A model that is not ``directed`` has the same score for both directions: the pair is listed once, in the direction
    that is more likely by the known relations, see `PartBeliefs`. Returns at most `k` relations, or all if `k` is 0.
    `more_relations` are further known relations. Raises UserError if the model did not learn parts.
    """
    tags = run.vocabulary.tags
    predicted = beliefs_of(run, more_relations).predicted(k)
    return [ScoredRelation(tags[part], tags[whole], score) for part, whole, score in predicted]


def known_relations(run: Run, k: int = 20, more_relations: WordRelations | None = None) -> list[ScoredRelation]:
    """Return the known relations between tags, sorted by the model's scores if it has scores, best first.

    Parameters are those of `believed_relations`. Raises UserError if no relation is known.
    """
    tags, beliefs = run.vocabulary.tags, beliefs_of(run, more_relations)
    if not len(beliefs.known):
        raise UserError(
            "This run knows no part-of relations.",
            setting="tag_rules", advice="Fit it with the tag rule part_of, or pass a file with it as `tag_rules`.",
        )  # fmt: skip

    parts, wholes = beliefs.known.T
    if not beliefs.has_scores:
        return [ScoredRelation(tags[part], tags[whole], None) for part, whole in beliefs.known[: k or None]]
    scores = beliefs.known_scores
    order = np.lexsort((parts, wholes, -scores))[: k or None]
    return [ScoredRelation(tags[parts[i]], tags[wholes[i]], float(scores[i])) for i in order]


def write_relations(path: str | os.PathLike[str], relations: list[ScoredRelation]) -> None:
    """Write a CSV of part, whole and score, which `visterm.data.relations.read_related` reads."""
    header = (*PART_OF_FILE.columns, "score")
    write_pairs(path, header, [(r.part, r.whole, "" if r.score is None else f"{r.score:.6f}") for r in relations])


class LabelledPair(NamedTuple):
    """The tag of the object, the tag of its part, and their joint score (higher is better)."""

    object: str
    part: str
    score: float


def label_pair(
    run: Run,
    object_image: ImageLike,
    part_image: ImageLike,
    k: int = 5,
    *,
    object_tag: str | None = None,
    part_tag: str | None = None,
) -> list[LabelledPair]:
    """Label a picture of an object and a picture of its part together; return at most `k` pairs of tags, best first.

    The images are paths, uint8 arrays (height, width, 3), or names for an encoder of names. `k` = 0 means all pairs. If
    you pass one of the two tags, only the other is ranked. Impossible pairs are left out, see
    `PartBeliefs`: nothing is part of itself or of its kind. Raises UserError if the model did not learn parts, or both
    tags are given; UnknownNameError if a tag is not in the vocabulary; ImageError if an image cannot be read.
    """
    check_learned_parts(run.model)
    if object_tag is not None and part_tag is not None:
        raise UserError(
            "Both tags are given, so there is no tag to find.",
            setting="object_tag", value=object_tag, advice="Leave `object_tag` or `part_tag` out.",
        )  # fmt: skip

    vocabulary = run.vocabulary
    given = {
        name: [vocabulary.index(tag)] for name, tag in (("objects", object_tag), ("parts", part_tag)) if tag is not None
    }
    X = run.encoder.transform([object_image, part_image])
    possible = beliefs_of(run).possible_pairs()
    best = run.model.annotate_pairs(X[:1], X[1:], k, **given, possible=possible)
    return [
        LabelledPair(vocabulary.tags[whole], vocabulary.tags[part], float(score))
        for whole, part, score in zip(best.objects[0], best.parts[0], best.scores[0], strict=True)
        if possible[whole, part]
    ]


class PartBeliefs:
    """The known part-of relations between tags, and the model's scores of all other pairs.

    The model's scores only tell which tags belong together: a tree and its trunk do, but so do two trees with the same
    parts (with ``directed=False`` both directions have the same score). So known relations restrict the pairs:

    - the whole must be a whole in a known relation, and the part must be a part in one; a tag without known relations
      can be either if its vector was learned from images (``shared=True``);
    - without a direction, if both tags can be the whole, it is the tag that is a whole in the larger share of its
      relations; if they are equal, the tag that is a whole more often, then the tag that comes first;
    - nothing is part of itself, of its kind, or of its own parts.

    If kinds are known, the parts of other tags of the same kind count, too (`shares_of_kind`): a part that all of them
    have counts like an average known relation. On drawn objects, with half of the relations held out, this ranked the
    held-out relations better. `known` are columns of (part, whole); `kinds` are columns of (tag, kind), with direct
    and indirect kinds. A fitted model has scores if it labels parts (`LabelsParts`) and has learned from relations.
    """

    def __init__(self, model: Annotator, known: ArrayLike, n_tags: int, kinds: ArrayLike = ()) -> None:
        self.model = model
        self.n_tags = n_tags
        pairs = np.asarray(known, np.int64).reshape(-1, 2)
        if labels_parts(model):
            pairs = np.concatenate([pairs, model.part_of_])
        self.known: NDArray[np.int64] = np.unique(pairs, axis=0)
        self._kinds = np.asarray(kinds, np.int64).reshape(-1, 2)
        self._parts_of = _values_by_key(self.known[:, 1], self.known[:, 0])
        self._kinds_of = _values_by_key(self._kinds[:, 0], self._kinds[:, 1])
        self._members = _values_by_key(self._kinds[:, 1], self._kinds[:, 0])
        params = model.get_params(deep=False)
        n_as_part, n_as_whole = (np.bincount(self.known[:, column], minlength=n_tags) for column in (0, 1))
        # Without shared vectors, the vector of a tag without relations is still random.
        may_be_either = (n_as_part + n_as_whole == 0) & params.get("shared", True)
        self._can_be_whole = (n_as_whole > 0) | may_be_either
        self._can_be_part = (n_as_part > 0) | (may_be_either & (not params.get("directed", False)))
        self._wholeness = None if params.get("directed", True) else _wholeness(n_as_part, n_as_whole)

    @property
    def has_scores(self) -> bool:
        """Whether the model scores relations."""
        return labels_parts(self.model)

    def parts_of(self, whole: int) -> NDArray[np.int64]:
        """Return the known parts of a tag."""
        parts: NDArray[np.int64] = self.known[self.known[:, 1] == whole, 0]
        return parts

    def possible_pairs(self) -> NDArray[np.bool_]:
        """Return whether each tag can be a part of each whole, shape (n_tags, n_tags): [whole, part]."""
        all_tags = np.arange(self.n_tags)
        is_possible: NDArray[np.bool_] = np.concatenate(
            [
                self.scores(all_tags[start : start + BLOCK_SIZE]) > IMPOSSIBLE_SCORE
                for start in range(0, self.n_tags, BLOCK_SIZE)
            ]
        )
        is_possible[self.known[:, 1], self.known[:, 0]] = True
        return is_possible

    def scores(self, wholes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the score of each tag as a part of each of the `wholes`, (n_wholes, n_tags); -inf: impossible."""
        scores = np.array(self.model.relation_scores(wholes), np.float32)
        if self.known.size:
            scores += max(np.float32(0), self.known_scores.mean()) * self.shares_of_kind(wholes)
        is_impossible = ~(self._can_be_whole[wholes][:, None] & self._can_be_part[None, :])
        for pairs in (self.known[:, ::-1], self._kinds, self._kinds[:, ::-1]):
            is_impossible |= self._pair_mask(wholes, pairs)
        if self._wholeness is not None:
            is_impossible |= self._wholeness[None, :] > self._wholeness[wholes][:, None]
        is_impossible &= ~self._pair_mask(wholes, self.known)
        is_impossible[np.arange(len(wholes)), wholes] = True
        scores[is_impossible] = IMPOSSIBLE_SCORE
        return scores

    def shares_of_kind(self, wholes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the share of the other tags of a whole's kind that have each tag as a part, shape (n_wholes, n_tags).

        Only tags with known parts count, and a kind needs at least two of them; a whole with several kinds gets its
        largest share.
        """
        shares = np.zeros((len(wholes), self.n_tags), np.float32)
        for row, whole in enumerate(wholes.tolist()):
            for kind in self._kinds_of.get(whole, []):
                siblings = [tag for tag in self._members[kind] if tag != whole and tag in self._parts_of]
                if len(siblings) >= MIN_OTHER_TAGS:
                    parts = [part for tag in siblings for part in self._parts_of[tag]]
                    counts = np.bincount(parts, minlength=self.n_tags)
                    np.maximum(shares[row], (counts / len(siblings)).astype(np.float32), out=shares[row])
        return shares

    @cached_property
    def known_scores(self) -> NDArray[np.float32]:
        """The model's scores of the known relations, shape (n_known,)."""
        rows, row_of = np.unique(self.known[:, 1], return_inverse=True)
        return np.asarray(self.model.relation_scores(rows), np.float32)[row_of, self.known[:, 0]]

    def predicted(self, k: int) -> list[tuple[int, int, float]]:
        """Return the `k` unknown pairs with the highest scores above 0, best first; k = 0: all such pairs.

        A pair is (column of the part, column of the whole, score). Ties are sorted by whole, then by part. Raises
        UserError if the model doesn't score relations.
        """
        check_learned_parts(self.model)
        best_pairs = [np.empty((0, 3))]
        for start in range(0, self.n_tags, BLOCK_SIZE):
            wholes = np.arange(start, min(start + BLOCK_SIZE, self.n_tags))
            scores = self.scores(wholes)
            scores[self._pair_mask(wholes, self.known)] = IMPOSSIBLE_SCORE
            ids, values = top_k(scores, min(k or self.n_tags, self.n_tags))
            rows, ranks = np.nonzero(values > 0)
            best_pairs.append(np.column_stack([ids[rows, ranks], wholes[rows], values[rows, ranks]]))
        pairs = np.concatenate(best_pairs)
        order = np.lexsort((pairs[:, 0], pairs[:, 1], -pairs[:, 2]))[: k or None]
        return [(int(part), int(whole), float(score)) for part, whole, score in pairs[order]]

    def _pair_mask(self, wholes: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        row_of = np.full(self.n_tags, -1)
        row_of[wholes] = np.arange(len(wholes))
        parts, rows = pairs[:, 0], row_of[pairs[:, 1]]
        is_pair = np.zeros((len(wholes), self.n_tags), bool)
        is_pair[rows[rows >= 0], parts[rows >= 0]] = True
        return is_pair


def beliefs_of(run: Run, more_relations: WordRelations | None = None) -> PartBeliefs:
    """Return the known relations of a run, including `more_relations`, with the model's scores of all other pairs."""
    tags = run.vocabulary
    sources = [run.relations] if more_relations is None else [run.relations, more_relations]
    pairs = np.concatenate([part_pairs(relations.part_of, tags) for relations in sources])
    return PartBeliefs(run.model, pairs, len(tags), run.relations.ancestor_columns(tags))


def labels_parts(model: Annotator) -> bool:
    """Return whether a fitted model can learn parts and has learned from relations."""
    return isinstance(model, LabelsParts) and len(model.part_of_) > 0


def check_learned_parts(model: Annotator) -> None:
    """Raise UserError, with the models that can learn parts, if a model cannot learn from relations, or had none."""
    if labels_parts(model):
        return
    name = MODELS.name_of(model)
    if isinstance(model, LabelsParts):
        raise UserError(f"This run's model '{name}' had no relations to learn from. Fit it with the tag rule part_of.")
    raise UserError(
        f"The model '{name}' does not learn which tags are parts of which. Fit one of these models with the tag rule "
        f"part_of: {', '.join(names_with(MODELS, lambda part: hasattr(part, 'relation_scores')))}."
    )


def _wholeness(n_as_part: NDArray[np.int64], n_as_whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each tag in an order from tags that are mostly parts to tags that are mostly wholes."""
    n_known = n_as_part + n_as_whole
    share = np.where(n_known > 0, n_as_whole / np.maximum(n_known, 1), 0.5)
    position = np.empty(len(share), np.int64)
    position[np.lexsort((-np.arange(len(share)), n_as_whole, share))] = np.arange(len(share))
    return position


def _values_by_key(keys: NDArray[np.int64], values: NDArray[np.int64]) -> dict[int, list[int]]:
    lists: dict[int, list[int]] = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        lists.setdefault(key, []).append(value)
    return lists
