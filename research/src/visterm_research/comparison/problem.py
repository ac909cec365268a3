"""What a comparison is run on: rows to learn from, to choose settings by, and to judge by once at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.digests import digest_of
from visterm.core.types import Matrix


@dataclass(frozen=True)
class Rows:
    """Features of images and what a model is judged by.

    Attributes
    ----------
    X : array or csr_array, shape (n_images, n_features)
    Y : csr_array, shape (n_images, n_tags)
        Above 0: right.
    known : csr_array, shape (n_images, n_tags), optional
        Tags that the model was told of these very images: left out of their rankings.
    """

    X: Matrix
    Y: sp.csr_array
    known: sp.csr_array | None = None


@dataclass(frozen=True)
class Problem:
    """One data set, ready to be learned.

    Attributes
    ----------
    name : str
        Short, as it names folders: "corel5k".
    what : str
        A line on where it comes from and how it was parted.
    tags : list of str
        The columns of every `Y`.
    train, valid, test : Rows
    siblings : csr_array, shape (n_tags, n_tags), optional
        S of WSABIE's section 4: 1 where two tags are the same or share a parent.
    by_number : bool
        Whether images have no features but their number: the rows of `X` are those of an identity matrix, and the
        images of `valid` and `test` are among those of `train`.
    test_names : list of str
        What the test images are called, for examples; empty where they have no names.
    test_images : list of paths
        Where they lie, for pictures; empty where there are none.
    """

    name: str
    what: str
    tags: list[str]
    train: Rows
    valid: Rows
    test: Rows
    siblings: sp.csr_array | None = None
    by_number: bool = False
    test_names: list[str] = field(default_factory=list)
    test_images: list[Any] = field(default_factory=list)

    @cached_property
    def fingerprint(self) -> str:
        """Name what a fit depends on: changes whenever a training or validation row does."""
        return digest_of([self.train.X, self.train.Y, self.valid.X, self.valid.Y, self.valid.known])

    @cached_property
    def test_fingerprint(self) -> str:
        """Name the rows of the final judgement."""
        return digest_of([self.test.X, self.test.Y, self.test.known, self.siblings])

    @property
    def nonzeros(self) -> float:
        """Mean number of features of an image that are not zero (d₀ below; d with a slashed 0 in WSABIE's Table 6)."""
        X: Any = self.train.X
        stored = int(X.nnz) if sp.issparse(X) else int(np.count_nonzero(X))
        return stored / max(1, int(X.shape[0]))
