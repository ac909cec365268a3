"""A run: the learned parts, with methods to score images, to save the run and to open it."""

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
from visterm.core.persist import REPAIR_ADVICE, check_replaceable, folder_kind, new_folder
from visterm.core.tables import ENCODERS
from visterm.core.types import Doubles, Floats, Ints, Matrix, Skipped
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

Scores: TypeAlias = "Floats | Doubles"

MAX_LOG_ODDS = 2**22  # Maximum number of log odds of descendant tags in memory


def _part(name: str) -> Any:
    """Return a read-only property for a part of `parts`, which may be read from disk when it is first used."""
    return property(attrgetter(f"parts.{name}"))


class Run:
    """The result of a fit (`Learned`), with methods to score images; a `Tagger` is a run that can also learn.

    Attributes
    ----------
    parts : Learned
        The parts of the run; each is an attribute of the run as well.
    path : str
        The absolute path that the run was loaded from; empty if it was not loaded.
    """

    parts: Learned
    path: str
    any_encoder = False  # Whether the encoder is the default, which features on disk may replace with their own

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
    idf: Floats = _part("idf")
    tree: TreeColumns | None = _part("tree")
    fingerprint: str = _part("fingerprint")
    tag_rows: Callable[[NDArray[np.int32]], Matrix] = _part("tag_rows")

    @classmethod
    def of_parts(cls, parts: Learned) -> Self:
        """Make a run from learned parts."""
        run = cls.__new__(cls)
        run.parts, run.path = parts, ""
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], n_jobs: int | None = None, *, whole: bool = False) -> Self:
        """Open a run on disk, to use it with `n_jobs` threads (None: all cores).

        `whole` reads all parts at once. Otherwise parts that searches by words don't need are read when they are first
        used, and you can't move the run. Raises StorageError if there is no run at `path`, or it is damaged.
        """
        return cls.of_parts(RunFiles(path, n_jobs, whole=whole))

    def score_blocks(self, X: Matrix) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks like `Annotator.score_blocks`; with a tree, scores are at least those of a tag's descendants."""
        for rows, block in self.model.score_blocks(X):
            yield rows, block if self.tree is None else self.tree.raised(block)

    def scores_and_confidences(self, X: Matrix) -> tuple[Floats, Doubles | None]:
        """Return scores and confidences of all tags, each (n_images, n_tags), at least those of their descendants."""
        scores = np.vstack([block.copy() for _, block in self.model.score_blocks(X)])
        return scores if self.tree is None else self.tree.raised(scores), self.confidences(scores)

    def best_tags(self, X: Matrix, k: int) -> tuple[Ints, Floats, Doubles | None]:
        """Return the k best tags of images, and their scores and confidences, each of shape (n_images, k)."""
        blocks: list[tuple[Ints, Floats, Doubles | None]] = []
        for _, block in self.model.score_blocks(X):
            ids, scores = top_k(block if self.tree is None else self.tree.raised(block), k)
            confidences = self.confidences(block)
            best = None if confidences is None else np.take_along_axis(confidences, ids, axis=1)
            blocks.append((ids, scores, best))
        ids, scores, parts = zip(*blocks, strict=True)
        confidences = None if parts[0] is None else np.concatenate(parts)
        return np.concatenate(ids), np.concatenate(scores), confidences

    def confidences(self, scores: Scores) -> Doubles | None:
        """Convert scores of all tags, (..., n_tags), to confidences; return None without a calibration.

        With a tree, a tag's confidence is at least that of its descendants.
        """
        if self.calibration is None:
            return None
        confidences = self.calibration.confidences(scores)
        return confidences if self.tree is None else self.tree.raised(confidences)

    def word_odds(self, scores: Scores, tags: NDArray[np.int32], products: Callable[[Matrix], Floats]) -> Doubles:
        """Return the log odds of `tags` from their scores, both (n_images, n_tags); with a tree as in `confidences`.

        `products` multiplies the images' rows with rows of further tags, (n, width), and returns (n_images, n).
        """
        assert self.calibration is not None
        log_odds, tree = self.calibration.log_odds(scores, tags), self.tree
        if tree is None:
            return log_odds
        step = max(1, MAX_LOG_ODDS // max(1, len(log_odds)))
        for column, tag in enumerate(tags):
            descendants = tree.below[[tag]].indices
            for chunk in np.split(descendants, range(step, descendants.size, step)) if descendants.size > 1 else ():
                best = self.calibration.log_odds(products(self.tag_rows(chunk)), chunk).max(axis=1)
                np.maximum(log_odds[:, column], best, out=log_odds[:, column])
        return log_odds

    def models_tried(self) -> list[dict[str, object]]:
        """Return the models that `auto` tried, one entry per model; an empty list if the model is not `auto`."""
        report: list[dict[str, Any]] = getattr(self.model, "report_", [])
        if not report:
            return []
        return name_blocks(report, [ENCODERS.name_of(part) for part in getattr(self.encoder, "parts_", ())])

    def known_tags(self, X: Matrix) -> sp.csr_array | None:
        """Return the training tags of images known by number, shape (n_images, n_tags); None for other runs."""
        return None if self.given is None else sp.csr_array(X @ self.given)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, example: object = None) -> None:
        """Save the run as a folder of JSON and safetensors files, completely or not at all.

        Before the folder gets its name, the run is opened again and tags an image.

        Parameters
        ----------
        path : path-like
        overwrite : bool
            Whether to replace an existing run.
        example : path, uint8 array or name, optional
            The image to tag. None, or an image that cannot be read: artificial features are used.

        Raises StorageError if there is a run at `path` and `overwrite` is False, if `path` is something else, or if the
        run cannot be opened again. An existing run at `path` is then unchanged.
        """
        self._refuse_unfitted()
        check_replaceable(path, "run", overwrite=True)
        if not overwrite and folder_kind(path) == "run":
            raise StorageError(f"{path} is a run already.", advice="Choose another name, or replace it: `overwrite`.")
        check = partial(check_opens, type(self), example=example)
        with new_folder(path, "run", check=check, fingerprint=self.fingerprint) as folder:
            write_run(self.parts, folder)

    def _refuse_unfitted(self) -> None:
        if len(self.vocabulary) == 0 and not hasattr(self.model, "n_tags_"):
            raise UserError("This tagger has learned nothing yet. Call fit first, or open a run with Tagger.load.")


def name_blocks(report: list[dict[str, Any]], encoders: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `auto` tried, with the name of each block's encoder if there is one block per encoder."""
    if len(encoders) != max((entry["block"] or 0 for entry in report), default=0):
        return report
    return [{**entry, "encoder": encoders[entry["block"] - 1]} if entry.get("block") else entry for entry in report]


def check_opens(run_class: type[Run], folder: Path, example: object = None) -> None:
    """Open a run as the class `run_class`, and tag an image, or artificial features without a readable image.

    Raises StorageError if either fails: such a run is useless, and must not replace another run.
    """
    try:
        run = run_class.open(folder, whole=True)
        X: Matrix = sp.csr_array((np.ones(1, np.float32), [0], [0, 1]), shape=(1, run.model.n_features_in_))
        if example is not None and len((encoded := run.encoder.encode([example])).kept):
            X = encoded.rows
        run.model.annotate(X, 1)
        run.best_tags(X, 1)  # with the tree and the confidences
    except Exception as error:
        reason = str(error).replace(f"{folder}{os.sep}", "").removesuffix(REPAIR_ADVICE).strip(" .")
        raise StorageError(
            f"The run cannot be opened again ({reason or type(error).__name__}), so it is not used, and an existing "
            "run is unchanged. Try another model, and please report this bug of visterm."
        ) from error
