"""Relations of tags to learn from and to leave out, and the quadruplets that models are chosen and judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import digest_of
from visterm.core.errors import DataError
from visterm.data.quadruplets import QuadrupletBlock, Quadruplets
from visterm_research.data.quadruplet_splits import LeftOut, leave_out
from visterm_research.parts.images import Labelled

KEPT, LEFT_OUT = "relations learned from", "relations left out"
OWN_KEPT, OWN_LEFT_OUT = "own parts, relations learned from", "own parts, relations left out"
"""Sets of examples; "own parts": both images are of one and the same object, as in LHI."""

DRAWN_SHARE, PHOTO_SHARE = 0.5, 0.25
"""Of the relations, left out."""

Ints = NDArray[np.int64]


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
        return digest_of(matrices)

    @cached_property
    def test_fingerprint(self) -> str:
        """Name what the final judgement depends on."""
        blocks = [array for block in self.tests.values() for array in block]
        return digest_of([self.data.test.X, self.data.test.Y, self.relations.left_out, *blocks])


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
