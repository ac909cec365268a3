"""A run: what was learned, how it scores images, and how it is written and opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import HOW_TO_MEND, check_replaceable, folder_kind, new_folder
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_tree import TreeColumns
from visterm.encoders.contract import AnyEncoder
from visterm.kernels.topk import top_k
from visterm.learning.learned import Learned, RunFiles, write_run
from visterm.learning.word_places import WordPlaces
from visterm.models.base import Annotator
from visterm.models.confidence.calibration import Calibration

if TYPE_CHECKING:
    from visterm.data.text_files import Reference
    from visterm.learning.learned import LearnedImages
    from visterm.learning.relations import WordRelations

Scores: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

MOST_ODDS = 2**22  # Log odds of tags under others that are held at a time


def _part(name: str) -> Any:
    """Return a read-only property: a part of what was learned, which may be read from disk only now."""
    return property(attrgetter(f"parts.{name}"))


class Run:
    """What was learned (`Learned`), and how it scores images; a `Tagger` is one that can learn.

    Attributes
    ----------
    parts : Learned
        The parts of the run; each is an attribute of the run as well.
    path : str
        The run that it was loaded from, in full; empty if it was not.
    """

    parts: Learned
    path: str
    any_encoder = False  # Whether the encoder is the default, which features on disk may replace by their own

    encoder: AnyEncoder = _part("encoder")
    model: Annotator = _part("model")
    vocabulary: Vocabulary = _part("vocabulary")
    facts: Mapping[str, Any] = _part("facts")
    skipped: Sequence[Skipped] = _part("skipped")
    learned_images: LearnedImages = _part("learned_images")
    relations: WordRelations = _part("relations")
    words: WordPlaces = _part("words")
    given: sp.csr_array | None = _part("given")
    reference: Reference | None = _part("reference")
    calibration: Calibration | None = _part("calibration")
    dictionary: Vocabulary = _part("dictionary")
    idf: NDArray[np.float32] = _part("idf")
    tree: TreeColumns | None = _part("tree")
    fingerprint: str = _part("fingerprint")
    tag_rows: Callable[[NDArray[np.int32]], Matrix] = _part("tag_rows")

    @classmethod
    def of_parts(cls, parts: Learned, path: str = "") -> Self:
        """Make a run of what was learned."""
        run = cls.__new__(cls)
        run.parts, run.path = parts, path
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], n_jobs: int | None = None, *, whole: bool = False) -> Self:
        """Open a run on disk, to use it with `n_jobs` threads (None: all cores).

        Unless it is read as a whole, what no search by words needs is read when it is first used, and the run has to
        stay where it is. Raises StorageError if there is no run at `path`, or it was damaged.
        """
        return cls.of_parts(RunFiles(path, n_jobs, whole=whole))

    def score_blocks(self, X: Matrix) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield rows and their scores of all tags, as `Annotator.score_blocks`; none is below those under it."""
        for rows, block in self.model.score_blocks(X):
            yield rows, block if self.tree is None else self.tree.raised(block)

    def scored(self, X: Matrix) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
        """Return scores and confidences of all tags, each (n_images, n_tags), no tag's below those under it."""
        scores = np.vstack([block.copy() for _, block in self.model.score_blocks(X)])
        return scores if self.tree is None else self.tree.raised(scores), self.confidences(scores)

    def best_tags(self, X: Matrix, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64] | None]:
        """Return the k best tags of images, their scores and confidences, each (n_images, k), as in `scored`."""
        blocks: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64] | None]] = []
        for _, block in self.model.score_blocks(X):
            ids, scores = top_k(block if self.tree is None else self.tree.raised(block), k)
            sure = self.confidences(block)
            blocks.append((ids, scores, sure if sure is None else np.take_along_axis(sure, ids, axis=1)))
        ids, scores, chances = zip(*blocks, strict=True)
        sure = None if chances[0] is None else np.concatenate(chances)
        return np.concatenate(ids), np.concatenate(scores), sure

    def confidences(self, scores: Scores) -> NDArray[np.float64] | None:
        """Return the confidences that scores of all tags stand for, (..., n_tags); None without a calibration.

        With a tree, no tag is less likely than one under it.
        """
        if self.calibration is None:
            return None
        confidences = self.calibration.confidences(scores)
        return confidences if self.tree is None else self.tree.raised(confidences)

    def word_odds(
        self, scores: Scores, tags: NDArray[np.int32], products: Callable[[Matrix], NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        """Return the log odds of some tags by their scores, both (n_images, n_tags); with a tree as in `confidences`.

        `products` multiplies the images' rows with those of further tags, (n, width); it returns (n_images, n).
        """
        assert self.calibration is not None
        odds, tree = self.calibration.odds(scores, tags), self.tree
        if tree is None:
            return odds
        step = max(1, MOST_ODDS // max(1, len(odds)))
        for column, tag in enumerate(tags):
            under = tree.below[[tag]].indices
            for some in np.split(under, range(step, under.size, step)) if under.size > 1 else ():
                best = self.calibration.odds(products(self.tag_rows(some)), some).max(axis=1)
                np.maximum(odds[:, column], best, out=odds[:, column])
        return odds

    def models_tried(self) -> list[dict[str, Any]]:
        """Return what the model `auto` tried, one entry a model; no entry for another model."""
        report: list[dict[str, Any]] = getattr(self.model, "report_", [])
        if not report:
            return []
        return name_blocks(report, [ENCODERS.name_of(part) for part in getattr(self.encoder, "parts_", ())])

    def known_tags(self, X: Matrix) -> sp.csr_array | None:
        """Return the tags learned of images known by number, shape (n_images, n_tags), else None."""
        return None if self.given is None else sp.csr_array(X @ self.given)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, example: object = None) -> None:
        """Write a run: a folder of JSON and safetensors, whole or not there.

        It is opened again, and an image annotated with it, before it has its name.

        Parameters
        ----------
        path : path-like
        overwrite : bool
            Replace a run that lies there, whole.
        example : path, uint8 array or name, optional
            The image to annotate. None, or one that can't be read: a row of features that is made up.

        Raises StorageError if there is a run at `path` already and `overwrite` is False, or anything else; or if the
        run cannot be opened again. What lies at `path` then stays as it was.
        """
        self._refuse_unfitted()
        check_replaceable(path, "run", overwrite=True)
        if not overwrite and folder_kind(path) == "run":
            raise StorageError(f"{path} is a run already. Choose another name, or replace it: overwrite=True.")
        check = partial(check_opens, type(self), example=example)
        with new_folder(path, "run", check=check, fingerprint=self.fingerprint) as folder:
            write_run(self.parts, folder)

    def _refuse_unfitted(self) -> None:
        if len(self.vocabulary) == 0:
            raise UserError("This tagger has learned nothing yet. Call fit first, or open a run with Tagger.load.")


def name_blocks(report: list[dict[str, Any]], encoders: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `auto` tried, with the name of the encoder that a block is of, where each encoder has one block."""
    if len(encoders) != max((entry["block"] or 0 for entry in report), default=0):
        return report
    return [{**entry, "encoder": encoders[entry["block"] - 1]} if entry.get("block") else entry for entry in report]


def check_opens(kind: type[Run], folder: Path, example: object = None) -> None:
    """Open a run as a tagger of a class, and tag an image; without one, or if it can't be read, a row that is made up.

    Raises StorageError if either fails: such a run is of no use, and may not take the place of another.
    """
    try:
        run = kind.open(folder, whole=True)
        X: Matrix = sp.csr_array((np.ones(1, np.float32), [0], [0, 1]), shape=(1, run.model.n_features_in_))
        if example is not None and len((encoded := run.encoder.encode([example])).kept):
            X = encoded.rows
        run.model.annotate(X, 1)
        run.best_tags(X, 1)  # by the tree, with confidences
    except Exception as error:
        reason = str(error).replace(f"{folder}{os.sep}", "").removesuffix(HOW_TO_MEND).strip(" .")
        raise StorageError(
            f"The run cannot be opened again ({reason or type(error).__name__}), so it is not used, and what was there "
            "before stays. Try another model, and please report this: it is a fault of visterm."
        ) from error
