"""Relations of tags to learn and to leave out, and the quadruplets for choosing and measuring models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_generator, check_number
from visterm.core.errors import DataError
from visterm.core.packing import digest_of, key_of
from visterm.core.progress import Progress
from visterm.core.types import RandomState
from visterm.models import QuadrupletBlock, Quadruplets, check_relations
from visterm_research.comparison.methods import Method
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import Settings
from visterm_research.comparison.trials import FORMAT, Choice, Trials, fit_rows
from visterm_research.parts.images import Labelled
from visterm_research.parts.methods import ANNOTATION, IMAGES, OFFSET, WORDS
from visterm_research.parts.ranks import (
    KNOWN,
    LABELLING,
    Floats,
    Ints,
    all_scores,
    known_ranks,
    pair_terms,
    ranks_of,
    task_ranks,
)

SHOWN_WHOLES, SHOWN_PARTS = 3, 2
"""Number of labels of Figure 4, and of additional parts in Table 6."""

N_NEAREST = 4
N_LIKELIEST_PARTS, SHOWN_IMAGES = 3, 6

KEPT, LEFT_OUT = "relations learned from", "relations left out"
OWN_KEPT, OWN_LEFT_OUT = "own parts, relations learned from", "own parts, relations left out"
"""Sets of examples; "own parts": both images show the same object, as in LHI."""

DRAWN_SHARE, PHOTO_SHARE = 0.5, 0.25
"""Shares of the relations that are left out."""


class LeftOut(NamedTuple):
    """Relations (part, whole) to learn, and relations left out to be found by the model; int64 (n, 2), sorted."""

    kept: NDArray[np.int64]
    left_out: NDArray[np.int64]

    @property
    def unreachable(self) -> NDArray[np.int64]:
        """The left-out relations with a tag that is not in a kept relation, which a model cannot find."""
        return self.left_out[~np.isin(self.left_out, self.kept).all(axis=1)]


@dataclass(frozen=True)
class PartsProblem:
    """Images, relations, and the quadruplets for choosing and measuring models.

    Attributes
    ----------
    data : Labelled
    relations : LeftOut
    valid : QuadrupletBlock
        Quadruplets of validation rows and learned relations.
    tests : dict of str to QuadrupletBlock
        Sets of examples of test rows; sets without examples are missing.
    counts : dict of str to int
        Number of all quadruplets, by split and set.
    what : str
        The source of the relations.
    """

    data: Labelled
    relations: LeftOut
    valid: QuadrupletBlock
    tests: dict[str, QuadrupletBlock] = field(repr=False)
    counts: dict[str, int]
    what: str = ""

    measure: ClassVar[str] = "mean_rank"
    criteria: ClassVar[Sequence[str]] = (WORDS, IMAGES, ANNOTATION)

    @property
    def name(self) -> str:
        """A short name for folders."""
        return self.data.name

    @property
    def training_quadruplets(self) -> int:
        """The number of training quadruplets."""
        return self.counts[f"training, {KEPT}"]

    @property
    def every(self) -> Ints:
        """All relations (part, whole), learned and left out, sorted."""
        return np.unique(np.concatenate([self.relations.kept, self.relations.left_out]), axis=0)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that a fit and the choice of settings depend on."""
        data = self.data
        matrices = [data.train.X, data.train.Y, data.valid.X, data.valid.Y, self.relations.kept, *self.valid]
        matrices += [data.siblings] if len(data.siblings) else []
        return digest_of(matrices)

    @cached_property
    def test_fingerprint(self) -> str:
        """Hash of everything that the final measurement depends on."""
        blocks = [array for block in self.tests.values() for array in block]
        return digest_of([self.data.test.X, self.data.test.Y, self.relations.left_out, *blocks])

    @cached_property
    def shown_wholes(self) -> list[int]:
        """Labels of Figure 4: the wholes with two parts or more that have the most test images."""
        wholes, n_parts = np.unique(self.every[:, 1], return_counts=True)
        wholes = wholes[n_parts > 1]
        n_images = np.asarray(sp.csr_array(self.data.test.Y > 0).astype(np.int64).sum(axis=0)).ravel()
        return [int(tag) for tag in _first(wholes, -n_images[wholes], SHOWN_WHOLES)]

    @cached_property
    def shown(self) -> list[int]:
        """Labels of Table 6: those of Figure 4, and the parts with the most wholes."""
        parts, n_wholes = np.unique(self.every[:, 0], return_counts=True)
        return [*self.shown_wholes, *map(int, _first(parts, -n_wholes, SHOWN_PARTS))]

    def about(self, method: Method, settings: Settings) -> Record:
        """Return the part of a record that is for people."""
        return {"model": method.model, "settings": settings}

    def shared(self) -> dict[str, Any]:
        """Return the relations to learn, and the pairs of tags of the same kind."""
        return {"part_of": self.relations.kept, "siblings": self.data.siblings}

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model, with early stopping on the validation rows."""
        return fit_rows(model, self.data.train, self.data.valid, progress)

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure the mean rank of the right answers of the validation quadruplets, by each criterion."""
        S, examples = all_scores(model, self.data.valid.X), self.valid
        sides = [(examples.object_images, examples.objects), (examples.part_images, examples.parts)]
        mean_ranks = {ANNOTATION: float(np.concatenate([ranks_of(S[rows], tags) for rows, tags in sides]).mean())}
        if hasattr(model, "pair_scores"):
            for by in (WORDS, IMAGES):
                F = pair_terms(model, S.shape[1], by == WORDS)
                mean_ranks[by] = float(np.mean(task_ranks(S, F, examples, trials.n_jobs)[LABELLING]))
        return {"mean_rank": mean_ranks, **fit}

    def score(self, measured: Any, criterion: str) -> float:
        """Return the negative mean rank, so that higher is better."""
        return -float(measured.get(criterion, np.inf))

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Return a key of a measurement: its fit, the test rows, the criterion and the shown labels."""
        key = trials.key(self, choice.method.model, choice.settings)
        return key_of(FORMAT, key, self.test_fingerprint, choice.by, self.shown)

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Rank the right answers of the test rows, by set of examples and task, and list results for shown labels."""
        S = all_scores(model, self.data.test.X)
        F = pair_terms(model, S.shape[1], choice.by == WORDS)
        offset = model.pair_scores(words=False, offset=OFFSET) if choice.by == IMAGES else F
        ranks = {}
        for name, examples in self.tests.items():
            for task, task_values in task_ranks(S, F, examples, trials.n_jobs).items():
                ranks[f"{name}|{task}"] = task_values.astype(np.float64)
            ranks[f"{name}|{KNOWN}"] = known_ranks(S, offset, examples, self.every).astype(np.float64)
        shown = self._shown_lists(model, S) if choice.by == WORDS else {"nearest": {}, "images": {}, "parts": {}}
        return {"arm": choice.method.label, "settings": choice.settings, **shown}, ranks

    def _shown_lists(self, model: Any, S: Floats) -> Record:
        """Return the nearest labels and the most likely parts of shown labels, by f_L, and their best test rows."""
        tags, record = self.data.tags, Record(nearest={}, images={}, parts={})
        related_tags, possible_parts = np.unique(self.every), np.unique(self.every[:, 0])
        for tag in self.shown:
            scores = model.relation_scores([tag])[0]
            other_tags, other_parts = related_tags[related_tags != tag], possible_parts[possible_parts != tag]
            parts = _first(other_parts, -scores[other_parts], N_LIKELIEST_PARTS)
            record["nearest"][tags[tag]] = [tags[label] for label in _first(other_tags, -scores[other_tags], N_NEAREST)]
            record["parts"][tags[tag]] = [tags[label] for label in parts]
            for label in (tag, *parts):
                record["images"][tags[label]] = np.argsort(-S[:, label], kind="stable")[:SHOWN_IMAGES].tolist()
        return record


def _first(tags: Ints, order: NDArray[Any], n: int) -> Ints:
    """Return the n tags with the smallest numbers in `order`, ties by the order of the tags."""
    first_tags: Ints = tags[np.argsort(order, kind="stable")[:n]]
    return first_tags


def related(
    data: Labelled, pairs: Ints, *, share: float, n_valid: int, n_test: int, seed: int, judged: Ints | None = None
) -> PartsProblem:
    """Leave relations out, and draw quadruplets for choosing and measuring models.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n, 2)
        Relations (part, whole).
    share : float
        Share of the relations to leave out of training.
    n_valid, n_test : int
        Number of quadruplets to draw for each set.
    judged : ndarray of int64, shape (m, 2), optional
        Relations of the validation quadruplets; None: the learned relations.

    Raises
    ------
    DataError
        If no two validation images show a relation.
    """
    relations = leave_out(pairs, share, seed)
    valid_relations = relations.kept if judged is None else judged
    counts = {f"training, {KEPT}": Quadruplets(data.train.Y, relations.kept).count}
    stream = Quadruplets(data.valid.Y, valid_relations, random_state=seed)
    counts[f"validation, {KEPT}"] = stream.count
    tests: dict[str, QuadrupletBlock] = {}
    for name, set_relations in ((KEPT, relations.kept), (LEFT_OUT, relations.left_out)):
        quadruplets = _stream(data.test.Y, set_relations, seed)
        counts[f"test, {name}"] = 0 if quadruplets is None else quadruplets.count
        if quadruplets is not None:
            tests[name] = quadruplets.draw(n_test)
    if data.true_pairs is not None:
        for name, set_relations in ((OWN_KEPT, relations.kept), (OWN_LEFT_OUT, relations.left_out)):
            block = _of_relations(data.true_pairs, set_relations)
            counts[name] = block.objects.size
            if block.objects.size:
                tests[name] = block
    return PartsProblem(data, relations, stream.draw(n_valid), tests, counts)


def leave_out(relations: Any, share: float, random_state: RandomState = 0) -> LeftOut:
    """Leave a share of the relations out of training, to see whether a model finds them (section 6.5).

    If possible, the part of a left-out relation is still a part in a kept relation, and its whole a whole. If the share
    is not reached in this way, both tags only need to be in a kept relation, on either side; and if this is not enough,
    relations are left out that cannot be found (`LeftOut.unreachable`). Relations are tried in a random order, once for
    each of these three rules, so a share near the largest possible may not be reached.

    Parameters
    ----------
    relations : array-like of int, shape (n_relations, 2)
        Tags (part, whole).
    share : float
        Share of the relations to leave out, from 0 to below 1, rounded to a number of relations.
    random_state : int, RandomState, Generator or None
        Random state of the choice.

    Raises
    ------
    UserError
        If the share is out of range.
    """
    check_number(share, "share", least=0, below=1)
    pairs = check_relations(relations, int(np.max(relations, initial=0)) + 1)
    n_left_out = round(share * len(pairs))
    order = as_generator(random_state).permutation(len(pairs))
    is_left_out = np.zeros(len(pairs), np.bool_)
    tags, columns = np.unique(pairs, return_inverse=True)
    columns = columns.reshape(-1, 2)
    role_counts = [np.bincount(columns[:, side], minlength=tags.size) for side in (0, 1)]
    for strictness in (2, 1, 0):
        for i in order:
            if is_left_out.sum() == n_left_out:
                break
            part, whole = columns[i]
            same_role_counts = (role_counts[0][part], role_counts[1][whole])
            any_role_counts = (
                role_counts[0][part] + role_counts[1][part],
                role_counts[0][whole] + role_counts[1][whole],
            )
            can_leave_out = (
                min(same_role_counts) > 1 if strictness == 2 else min(any_role_counts) > 1 if strictness else True
            )
            if not is_left_out[i] and can_leave_out:
                is_left_out[i] = True
                role_counts[0][part] -= 1
                role_counts[1][whole] -= 1
    return LeftOut(pairs[~is_left_out], pairs[is_left_out])


def _stream(Y: Any, relations: Ints, seed: int) -> Quadruplets | None:
    """Return the quadruplets of relations, or None if no images show a relation."""
    try:
        return Quadruplets(Y, relations, random_state=seed)
    except DataError:
        return None


def _of_relations(block: QuadrupletBlock, relations: Ints) -> QuadrupletBlock:
    relation_set = {(int(part), int(whole)) for part, whole in relations}
    indices = [
        number
        for number, (part, whole) in enumerate(zip(block.parts, block.objects, strict=True))
        if (int(part), int(whole)) in relation_set
    ]
    return QuadrupletBlock(*(array[indices] for array in block))
