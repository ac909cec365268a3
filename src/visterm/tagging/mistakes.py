"""Probable mistakes in tags: each image is judged by a copy of the model that was trained on other images."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.tables import MODELS
from visterm.core.types import CHUNK, Floats, Ints, Matrix
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import new_map
from visterm.data.tag_tree import TagTree, TreeColumns
from visterm.learning.calibrating import MAX_SCORES, search_scores, unfitted
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.confidence.evidence import fit_tag_lines
from visterm.models.confidence.mistakes import MAX_IMAGES_OF_UNUSUAL_TAG, find_mistakes
from visterm.models.stopping import learns_from_kernel

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

KINDS = ("missing", "wrong")
N_FOLDS = 5
MIN_LISTED_CHANCE, N_ALWAYS_LISTED = 0.1, 10  # The ten likeliest mistakes of a kind are always listed
MIN_STANDARD_ERRORS = 3.0
"""Features are informative if images with a tag have scores this number of standard errors above the mean."""
LIKELY = 0.5  # Minimum chance of a missing tag that is listed instead of its parents
MIN_TAGGED_IMAGES = 50
MAX_CHANCES_IN_MEMORY = 2**27  # More chances are kept in a temporary file


class UninformativeFeaturesError(DataError):
    """The features contain no information about the tags, so no image stands out."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A tag that an image has but probably should not have, or lacks but probably should have."""

    image: str  # Name of the image
    tag: str
    kind: str  # "missing" or "wrong"
    chance: float | None  # Chance that it is a mistake; None: the tag has only two or three images
    # Ends of the 95 % interval of the chance, which is wide for tags with few images
    low: float | None
    high: float | None
    image_id: int | None = None  # Id in a catalogue
    follows: tuple[str, ...] = ()  # For a missing tag: its parents that the image lacks as well

    @property
    def reason(self) -> str:
        """Why a mistake without a chance is listed; else empty."""
        return "" if self.chance is not None else f"unusual {'for' if self.kind == 'wrong' else 'without'} this tag"

    def as_dict(self) -> dict[str, Any]:
        """Return the mistake as JSON data."""
        facts = {key: value for key, value in asdict(self).items() if key not in ("image_id", "follows")}
        facts |= {"reason": self.reason} if self.reason else {}
        facts |= {} if self.image_id is None else {"image_id": self.image_id}
        return facts | ({"follows": list(self.follows)} if self.follows else {})


def mistakes_among(
    model: Annotator,
    vocabulary: Vocabulary,
    names: Sequence[str],
    X: Matrix,
    Y: Any,
    *,
    side: SideKnowledge | None = None,
    settled: Any = None,
    answers: Any = None,
    tree: TagTree | None = None,
    limit: int = 100,
    progress: Progress = SILENT,
    stop: Callable[[], bool] = lambda: False,
) -> list[Mistake]:
    """List probable mistakes in the tags of images: missing tags, then wrong tags, most probable first.

    Mistakes with a chance below 0.1 are left out, except the ten most probable of each kind. Chances are unknown for
    tags with two or three images: these mistakes are listed last in their kind.

    The model is fitted five times, each time without a fifth of the images, which it then judges. See `find_mistakes`
    for how mistakes are chosen from the chances.

    Parameters
    ----------
    model : Annotator
        A fitted model; its unfitted copies are trained.
    vocabulary : Vocabulary
        The tags of the columns of `Y`.
    names : sequence of str
        Names of the images.
    X : matrix, shape (n_images, n_features)
    Y : CSR, shape (n_images, n_tags)
        Above 0 where an image has a tag, below 0 where people rejected the tag.
    side : SideKnowledge, optional
        Relations and other input for training the copies.
    settled : CSR, shape (n_images, n_tags), optional
        Not 0 where a person has judged the tag already: these pairs are not listed.
    answers : pair of CSR, shape (n_images, n_tags), optional
        People's answers, which change the chances, see `find_mistakes`.
    tree : TagTree, optional
        An image with a tag also has its parents: they are never missing, and only wrong if they were given.
    limit : int
        Maximum number of mistakes of each kind.
    progress : Progress
        Shows each fit.
    stop : callable
        Called between two fits; if it returns True, the list is empty.

    Raises
    ------
    UserError
        If the model learns from a kernel with its training images.
    DataError
        If fewer than 50 images have tags, or the features are not informative (`UninformativeFeaturesError`).
    """
    related = None
    if tree is not None:
        tree_columns = TreeColumns(tree, vocabulary)
        Y, given_entries, related = tree_columns.completed(Y), Y, tree_columns.pairs
        implied = Y - Y.multiply(given_entries != 0)
        settled = implied if settled is None else abs(settled) + abs(implied)
    with cross_chances(model, X, Y, side=side, progress=progress, stop=stop) as (chances, folds):
        if stop():
            return []
        mistakes = find_mistakes(chances, Y, folds, settled=settled, answers=answers, related=related, limit=limit)

    results = []
    for name in KINDS:
        pairs = getattr(mistakes, name)
        for rank, i in enumerate(np.lexsort((-pairs.probability, pairs.unusual))):
            if rank < N_ALWAYS_LISTED or pairs.probability[i] >= MIN_LISTED_CHANCE:
                chance_values = (float(values[i]) for values in (pairs.probability, pairs.low, pairs.high))
                interval = (None, None, None) if pairs.unusual[i] else tuple(chance_values)
                results.append(Mistake(names[pairs.images[i]], vocabulary.tags[pairs.tags[i]], name, *interval))
    return results


def deepest(mistakes: Sequence[Mistake], tree: TagTree) -> list[Mistake]:
    """Leave out missing parents of missing tags, and add them to `Mistake.follows` of these tags.

    A parent is left out if its child is probably missing, or at least as likely missing as the parent: adding *rose*
    also adds *flower*. An unlikely *rose* does not replace a likely *flower*, and both are listed.
    """
    missing: defaultdict[tuple[str, int | None], dict[str, Mistake]] = defaultdict(dict)  # Image -> tag -> mistake
    for mistake in mistakes:
        if mistake.kind == "missing":
            missing[mistake.image, mistake.image_id][tag_key(mistake.tag)] = mistake
    remaining = []
    for mistake in mistakes:
        in_same_image = missing[mistake.image, mistake.image_id] if mistake.kind == "missing" else {}
        children, parents = (
            [in_same_image[key] for key in map(tag_key, tags) if key in in_same_image]
            for tags in (tree.below(mistake.tag), tree.above(mistake.tag))
        )
        if any((other.chance or 0) >= min(LIKELY, mistake.chance or 0) for other in children):
            continue
        follows = tuple(other.tag for other in parents if (mistake.chance or 0) >= min(LIKELY, other.chance or 0))
        remaining.append(replace(mistake, follows=follows) if follows else mistake)
    return remaining


def vocabulary_of(tags: Sequence[Sequence[str]], tagger: Tagger) -> Vocabulary:
    """Return the tags that are checked for mistakes: those of at least two images, with the aliases of a run.

    Raises DataError if there are no such tags.
    """
    vocabulary = Vocabulary.from_lists(tags, min_count=2, aliases=tagger.vocabulary.aliases)
    if len(vocabulary) == 0:
        raise DataError("No tag is on at least two photos, so photos cannot be compared. Tag more photos.")
    return vocabulary


@contextmanager
def cross_chances(
    model: Annotator,
    X: Matrix,
    Y: Any,
    *,
    side: SideKnowledge | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Floats, Ints]]:
    """Yield the chances of all tags of all images, by copies of the model that were not trained on these images.

    Yields chances, shape (n_images, n_tags), and the fold of each image, shape (n_images,). More than half a GiB of
    chances are in a temporary file until the end. Raises the errors of `mistakes_among` about the model and images.
    """
    if learns_from_kernel(model):
        raise UserError(
            f"The model '{MODELS.name_of(model)}' compares photos with its training photos, so a copy cannot be "
            "trained on other photos. Use a run with another model, such as auto."
        )
    Y = sp.csr_array(Y)
    n_images, n_tags = Y.shape
    n_tagged = int((np.diff(sp.csr_array(Y > 0).indptr) > 0).sum())
    if n_tagged < MIN_TAGGED_IMAGES:
        raise DataError(
            f"Only {count_of(n_tagged, 'photo')} with tags that other photos have, too: too few to train on some and "
            f"judge the others. At least {MIN_TAGGED_IMAGES} such photos are needed."
        )
    rng = np.random.default_rng(seed)
    folds = rng.permutation(np.arange(n_images) % N_FOLDS)

    with _new_array((n_images, n_tags)) as scores:
        with reported(progress, "judge photos that were held out", N_FOLDS):
            for fold in range(N_FOLDS):
                if stop():
                    break
                judged_rows, training_rows = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                copy = unfitted(model).fit(X[training_rows], Y[training_rows], side=side)
                for start in range(0, judged_rows.size, CHUNK):
                    rows = judged_rows[start : start + CHUNK]
                    scores[rows] = search_scores(copy, X[rows])
                progress.advance()
        if not stop():
            _check_informative(scores, Y)
            _convert_to_chances(scores, Y, rng)
        yield scores, folds


def _check_informative(scores: Floats, Y: sp.csr_array) -> None:
    """Raise UninformativeFeaturesError if images with a tag don't have clearly higher scores than other images."""
    n_images, n_tags = scores.shape
    sums, squares, sums_with_tag = np.zeros((3, n_tags))
    counts = np.zeros(n_tags, np.int64)
    step = max(1, MAX_SCORES // n_tags)
    for start in range(0, n_images, step):
        block, has_tag = scores[start : start + step].astype(np.float64), Y[start : start + step].toarray() > 0
        sums += block.sum(axis=0)
        squares += (block**2).sum(axis=0)
        sums_with_tag += np.where(has_tag, block, 0).sum(axis=0)
        counts += has_tag.sum(axis=0)

    mean = sums / n_images
    variance = squares / n_images - mean**2
    is_usual = counts > MAX_IMAGES_OF_UNUSUAL_TAG
    is_usable = (variance > 1e-12 * (mean**2 + 1)) & (is_usual if is_usual.any() else counts > 0)
    excess = (sums_with_tag - counts * mean)[is_usable] / np.sqrt(variance[is_usable])
    if excess.sum() < MIN_STANDARD_ERRORS * np.sqrt(max(1, counts[is_usable].sum())):
        raise UninformativeFeaturesError(
            "The features contain no information about these tags: photos with the same tag are not more similar than "
            "other photos, so wrong or missing tags cannot be found. Fit with features of a network: visterm encoders "
            "lists networks."
        )


def _convert_to_chances(scores: Floats, Y: sp.csr_array, rng: np.random.Generator) -> None:
    """Replace scores by chances, with lines that are fitted to the scores."""
    n_images, n_tags = scores.shape
    step = max(1, MAX_SCORES // n_tags)
    sample = np.arange(n_images) if n_images <= step else np.sort(rng.permutation(n_images)[:step])
    calibration = fit_tag_lines(np.asarray(scores[sample]), Y[sample], Y, rng)
    if calibration is None:
        raise DataError("All photos have the same tags, so no photo stands out. Tag more photos.")
    for start in range(0, n_images, step):
        scores[start : start + step] = calibration.confidences(scores[start : start + step])


@contextmanager
def _new_array(shape: tuple[int, int]) -> Iterator[Floats]:
    if shape[0] * shape[1] <= MAX_CHANCES_IN_MEMORY:
        yield np.zeros(shape, np.float32)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield new_map(Path(folder) / "chances.npy", np.float32, shape)
