"""Relations of tags to learn from and to leave out, and the quadruplets that models are chosen and judged by."""

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
"""Labels of Figure 4, and parts that Table 6 has besides."""

NEAREST = 4
LIKELIEST_PARTS, SHOWN_IMAGES = 3, 6

KEPT, LEFT_OUT = "relations learned from", "relations left out"
OWN_KEPT, OWN_LEFT_OUT = "own parts, relations learned from", "own parts, relations left out"
"""Sets of examples; "own parts": both images are of one and the same object, as in LHI."""

DRAWN_SHARE, PHOTO_SHARE = 0.5, 0.25
"""Of the relations, left out."""


class LeftOut(NamedTuple):
    """Relations (part, whole) to learn from, and those left out to be found again; int64, shape (n, 2), sorted."""

    kept: NDArray[np.int64]
    left_out: NDArray[np.int64]

    @property
    def unreachable(self) -> NDArray[np.int64]:
        """The left-out relations of which a tag occurs in no kept one: nothing is learned that could find them."""
        return self.left_out[~np.isin(self.left_out, self.kept).all(axis=1)]


@dataclass(frozen=True)
class PartsProblem:
    """Images, relations, and the quadruplets that models are chosen and judged by.

    Attributes
    ----------
    data : Labelled
    relations : LeftOut
    valid : QuadrupletBlock
        Of validation rows and learned relations.
    tests : dict of str to QuadrupletBlock
        Sets of examples of test rows; a set that no two images show is missing.
    counts : dict of str to int
        Quadruplets that there are, by split and set.
    what : str
        Where the relations come from.
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
        """Short, as it names folders."""
        return self.data.name

    @property
    def training_quadruplets(self) -> int:
        """How many there are to learn from."""
        return self.counts[f"training, {KEPT}"]

    @property
    def every(self) -> Ints:
        """All relations (part, whole), sorted: learned and left out."""
        return np.unique(np.concatenate([self.relations.kept, self.relations.left_out]), axis=0)

    @cached_property
    def fingerprint(self) -> str:
        """Name what a fit and its choice depend on."""
        data = self.data
        matrices = [data.train.X, data.train.Y, data.valid.X, data.valid.Y, self.relations.kept, *self.valid]
        matrices += [data.siblings] if len(data.siblings) else []
        return digest_of(matrices)

    @cached_property
    def test_fingerprint(self) -> str:
        """Name what the final judgement depends on."""
        blocks = [array for block in self.tests.values() for array in block]
        return digest_of([self.data.test.X, self.data.test.Y, self.relations.left_out, *blocks])

    @cached_property
    def shown_wholes(self) -> list[int]:
        """Labels of Figure 4: of the wholes with two parts or more, those of the most test images."""
        wholes, n_parts = np.unique(self.every[:, 1], return_counts=True)
        wholes = wholes[n_parts > 1]
        n_images = np.asarray(sp.csr_array(self.data.test.Y > 0).astype(np.int64).sum(axis=0)).ravel()
        return [int(tag) for tag in _first(wholes, -n_images[wholes], SHOWN_WHOLES)]

    @cached_property
    def shown(self) -> list[int]:
        """Labels of Table 6: those of Figure 4, and the parts of the most wholes."""
        parts, n_wholes = np.unique(self.every[:, 0], return_counts=True)
        return [*self.shown_wholes, *map(int, _first(parts, -n_wholes, SHOWN_PARTS))]

    def about(self, method: Method, settings: Settings) -> Record:
        """Return what stands in a record for people."""
        return {"model": method.model, "settings": settings}

    def shared(self) -> dict[str, Any]:
        """Return the relations to learn from, and the tags of the same kind."""
        return {"part_of": self.relations.kept, "siblings": self.data.siblings}

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model, which is stopped by the validation rows."""
        return fit_rows(model, self.data.train, self.data.valid, progress)

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure the mean rank of the right answers of the validation quadruplets, by each criterion."""
        S, examples = all_scores(model, self.data.valid.X), self.valid
        alone = [(examples.object_images, examples.objects), (examples.part_images, examples.parts)]
        found = {ANNOTATION: float(np.concatenate([ranks_of(S[rows], tags) for rows, tags in alone]).mean())}
        if hasattr(model, "pair_scores"):
            for by in (WORDS, IMAGES):
                F = pair_terms(model, S.shape[1], by == WORDS)
                found[by] = float(np.mean(task_ranks(S, F, examples, trials.n_jobs)[LABELLING]))
        return {"mean_rank": found, **fit}

    def score(self, measured: Any, criterion: str) -> float:
        """Return the mean rank, below 0 as less is better."""
        return -float(measured.get(criterion, np.inf))

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Name a judgement by its fit, the test rows, what it is scored by and the labels that are shown."""
        key = trials.key(self, choice.method.model, choice.settings)
        return key_of(FORMAT, key, self.test_fingerprint, choice.by, self.shown)

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Rank the right answers of the test rows, by set of examples and task, with what is shown of some labels."""
        S = all_scores(model, self.data.test.X)
        F = pair_terms(model, S.shape[1], choice.by == WORDS)
        offset = model.pair_scores(words=False, offset=OFFSET) if choice.by == IMAGES else F
        ranks = {}
        for name, examples in self.tests.items():
            for task, found in task_ranks(S, F, examples, trials.n_jobs).items():
                ranks[f"{name}|{task}"] = found.astype(np.float64)
            ranks[f"{name}|{KNOWN}"] = known_ranks(S, offset, examples, self.every).astype(np.float64)
        shown = self._shown_lists(model, S) if choice.by == WORDS else {"nearest": {}, "images": {}, "parts": {}}
        return {"arm": choice.method.label, "settings": choice.settings, **shown}, ranks

    def _shown_lists(self, model: Any, S: Floats) -> Record:
        """Return the nearest labels and the likeliest parts of the labels shown, by f_L, and their best test rows."""
        tags, found = self.data.tags, Record(nearest={}, images={}, parts={})
        of_relations, possible = np.unique(self.every), np.unique(self.every[:, 0])
        for tag in self.shown:
            scores = model.relation_scores([tag])[0]
            near, likely = of_relations[of_relations != tag], possible[possible != tag]
            parts = _first(likely, -scores[likely], LIKELIEST_PARTS)
            found["nearest"][tags[tag]] = [tags[one] for one in _first(near, -scores[near], NEAREST)]
            found["parts"][tags[tag]] = [tags[one] for one in parts]
            for one in (tag, *parts):
                found["images"][tags[one]] = np.argsort(-S[:, one], kind="stable")[:SHOWN_IMAGES].tolist()
        return found


def _first(tags: Ints, order: NDArray[Any], n: int) -> Ints:
    """Return the tags of the smallest numbers; equal ones: the first."""
    chosen: Ints = tags[np.argsort(order, kind="stable")[:n]]
    return chosen


def related(
    data: Labelled, pairs: Ints, *, share: float, n_valid: int, n_test: int, seed: int, judged: Ints | None = None
) -> PartsProblem:
    """Leave relations out, and draw quadruplets to choose and to judge by.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n, 2)
        Relations (part, whole).
    share : float
        Of them, left out of training.
    n_valid, n_test : int
        Quadruplets to draw, of each set.
    judged : ndarray of int64, shape (m, 2), optional
        Relations of the validation quadruplets; None: those that are learned.

    Raises
    ------
    DataError
        If no two validation images show a relation.
    """
    relations = leave_out(pairs, share, seed)
    chosen = relations.kept if judged is None else judged
    counts = {f"training, {KEPT}": Quadruplets(data.train.Y, relations.kept).count}
    stream = Quadruplets(data.valid.Y, chosen, random_state=seed)
    counts[f"validation, {KEPT}"] = stream.count
    tests: dict[str, QuadrupletBlock] = {}
    for name, some in ((KEPT, relations.kept), (LEFT_OUT, relations.left_out)):
        found = _stream(data.test.Y, some, seed)
        counts[f"test, {name}"] = 0 if found is None else found.count
        if found is not None:
            tests[name] = found.draw(n_test)
    if data.true_pairs is not None:
        for name, some in ((OWN_KEPT, relations.kept), (OWN_LEFT_OUT, relations.left_out)):
            block = _of_relations(data.true_pairs, some)
            counts[name] = block.objects.size
            if block.objects.size:
                tests[name] = block
    return PartsProblem(data, relations, stream.draw(n_valid), tests, counts)


def leave_out(relations: Any, share: float, random_state: RandomState = 0) -> LeftOut:
    """Leave a share of the relations out of training, to see whether they are found again (section 6.5).

    Wherever possible the part of a relation that is left out is still a part in some kept relation, and its whole a
    whole; where that is not enough to reach the share, they occur in some kept relation on either side; and where that
    is not enough either, relations are left out that cannot be found again (`LeftOut.unreachable`). Relations are tried
    in a random order, each once for each of these three, so a share near the largest possible may be missed.

    Parameters
    ----------
    relations : array-like of int, shape (n_relations, 2)
        Tags (part, whole).
    share : float
        Of the relations to leave out, 0 up to, not including, 1; rounded to whole relations.
    random_state : int, RandomState, Generator or None
        Of the choice.

    Raises
    ------
    UserError
        If the share is out of range.
    """
    check_number(share, "share", least=0, below=1)
    pairs = check_relations(relations, int(np.max(relations, initial=0)) + 1)
    n_wanted = round(share * len(pairs))
    order = as_generator(random_state).permutation(len(pairs))
    out = np.zeros(len(pairs), np.bool_)
    tags, columns = np.unique(pairs, return_inverse=True)
    columns = columns.reshape(-1, 2)
    in_role = [np.bincount(columns[:, side], minlength=tags.size) for side in (0, 1)]
    for strictness in (2, 1, 0):
        for i in order:
            if out.sum() == n_wanted:
                break
            part, whole = columns[i]
            times = (in_role[0][part], in_role[1][whole])
            anywhere = (in_role[0][part] + in_role[1][part], in_role[0][whole] + in_role[1][whole])
            spare = min(times) > 1 if strictness == 2 else min(anywhere) > 1 if strictness else True
            if not out[i] and spare:
                out[i] = True
                in_role[0][part] -= 1
                in_role[1][whole] -= 1
    return LeftOut(pairs[~out], pairs[out])


def _stream(Y: Any, relations: Ints, seed: int) -> Quadruplets | None:
    """Return the quadruplets of some relations, if any two images show one."""
    try:
        return Quadruplets(Y, relations, random_state=seed)
    except DataError:
        return None


def _of_relations(block: QuadrupletBlock, relations: Ints) -> QuadrupletBlock:
    wanted = {(int(part), int(whole)) for part, whole in relations}
    kept = [
        number
        for number, (part, whole) in enumerate(zip(block.parts, block.objects, strict=True))
        if (int(part), int(whole)) in wanted
    ]
    return QuadrupletBlock(*(array[kept] for array in block))
