"""Probable mistakes in tags: each image is judged by a copy of the model that has learned from other images only."""

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
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.tables import MODELS
from visterm.core.types import CHUNK, Matrix
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import new_map
from visterm.data.tag_tree import TagTree, TreeColumns
from visterm.learning.calibrating import MOST_SCORES, search_scores, unfitted
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm.models.confidence.mistakes import UNUSUAL, find_mistakes
from visterm.models.stopping import learns_from_kernel

if TYPE_CHECKING:
    from visterm.tagging.tagger import Tagger

KINDS = ("missing", "wrong")
N_FOLDS = 5
MIN_LISTED_CHANCE, ALWAYS_LISTED = 0.1, 10  # The likeliest ten of a kind are listed anyway
TELLING = 3.0  # Standard errors by which scores of images with a tag are above those of all, if features tell anything
LIKELY = 0.5  # From this chance on, a missing tag stands for those above it
FEWEST = 50  # Images with tags below which nothing is said of mistakes
IN_MEMORY = 2**27  # Chances that are held in memory; more are kept in a temporary file


class UntoldError(DataError):
    """The features tell nothing of the tags, so that no image stands out."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A tag that an image has and probably should not have, or one that it probably should have."""

    image: str  # Its name
    tag: str
    kind: str  # "missing" or "wrong"
    chance: float | None  # That it is a mistake; None: the tag has two or three images, too few to say
    # The chance in a 95 % interval: wide for tags of few images
    low: float | None
    high: float | None
    image_id: int | None = None  # In a catalogue
    follows: tuple[str, ...] = ()  # Of a missing one: the tags above it that are missing there with it

    @property
    def reason(self) -> str:
        """Why it is listed, where no chance says so; else empty."""
        return "" if self.chance is not None else f"unusual {'for' if self.kind == 'wrong' else 'without'} this tag"

    def as_dict(self) -> dict[str, Any]:
        """Return the mistake as it stands in JSON."""
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
    kind: str | None = None,
    tag: str | None = None,
    tree: TagTree | None = None,
    limit: int = 100,
    seed: int = 0,
    progress: Progress = SILENT,
    stop: Callable[[], bool] = lambda: False,
) -> list[Mistake]:
    """List probable mistakes among the tags of images: missing tags, then wrong ones, each the most probable first.

    Those with a chance below 0.1 are left out, but for the ten most probable ones of each kind. Of tags with two or
    three images nothing tells how often an image that looks unlike the others is a mistake: these come last in their
    kind, without a chance.

    The model is fitted five times, each time without a fifth of the images, which it then judges. See `find_mistakes`
    for how chances become mistakes.

    Parameters
    ----------
    model : Annotator
        A fitted one, of which unfitted copies are made.
    vocabulary : Vocabulary
        The tags of the columns of `Y`.
    names : sequence of str
        Of the images.
    X : matrix, shape (n_images, n_features)
    Y : CSR, shape (n_images, n_tags)
        Above 0 where an image has a tag, below 0 where people said that it does not have it.
    side : SideKnowledge, optional
        What the copies learn besides.
    settled : CSR, shape (n_images, n_tags), optional
        Not 0 where a person has answered already: these pairs are not listed.
    answers : pair of CSR, shape (n_images, n_tags), optional
        What people answered, see `find_mistakes`: chances move by it.
    kind : str, optional
        "wrong" or "missing"; None: both.
    tag : str, optional
        List mistakes of this tag only.
    tree : TagTree, optional
        An image of a tag has those above it, too: these are never missing there, and wrong only where they were given.
    limit : int
        Mistakes of each kind at most.
    seed : int
        Of the folds and samples.
    progress : Progress
        Shows each fit.
    stop : callable
        Called between two fits; if it returns True, the list is empty.

    Raises
    ------
    UserError
        If the kind or the tag is none, or the model learns from a kernel with its training images.
    DataError
        If fewer than 50 images have tags, or the features tell nothing of them (`UntoldError`).
    """
    check_kind(kind)
    columns = None if tag is None else [vocabulary.index(tag)]
    related = None
    if tree is not None:
        places = TreeColumns(tree, vocabulary)
        Y, stated, related = places.completed(Y), Y, places.pairs
        follows = Y - Y.multiply(stated != 0)  # from other tags alone
        settled = follows if settled is None else abs(settled) + abs(follows)
    with cross_chances(model, X, Y, side=side, seed=seed, progress=progress, stop=stop) as (chances, folds):
        if stop():
            return []
        mistakes = find_mistakes(
            chances, Y, folds, settled=settled, answers=answers, tags=columns, related=related, limit=limit, seed=seed
        )
    listed = []
    for name in KINDS if kind is None else (kind,):
        pairs = getattr(mistakes, name)
        for rank, place in enumerate(np.lexsort((-pairs.chance, pairs.unusual))):
            if rank < ALWAYS_LISTED or pairs.chance[place] >= MIN_LISTED_CHANCE:
                chances_of = (float(part[place]) for part in (pairs.chance, pairs.low, pairs.high))
                shown = (None, None, None) if pairs.unusual[place] else tuple(chances_of)
                listed.append(Mistake(names[pairs.images[place]], vocabulary.tags[pairs.tags[place]], name, *shown))
    return listed


def deepest(mistakes: Sequence[Mistake], tree: TagTree) -> list[Mistake]:
    """Leave out missing tags that follow from one under them that is missing there, and name them beside it.

    That is one that is more likely missing than not, or no less likely than they are: of a rose, whoever adds *rose*
    adds *flower*. An unlikely *rose* says nothing of a likely *flower*, and both are listed.
    """
    missing: defaultdict[tuple[str, int | None], dict[str, Mistake]] = defaultdict(dict)  # By image, and by tag
    for one in mistakes:
        if one.kind == "missing":
            missing[one.image, one.image_id][tag_key(one.tag)] = one
    kept = []
    for one in mistakes:
        together = missing[one.image, one.image_id] if one.kind == "missing" else {}
        under, above = (
            [together[key] for key in map(tag_key, tags) if key in together]
            for tags in (tree.below(one.tag), tree.above(one.tag))
        )
        if any((each.chance or 0) >= min(LIKELY, one.chance or 0) for each in under):
            continue
        follows = tuple(each.tag for each in above if (one.chance or 0) >= min(LIKELY, each.chance or 0))
        kept.append(replace(one, follows=follows) if follows else one)
    return kept


def check_kind(kind: str | None) -> None:
    """Refuse a kind of mistake that is none."""
    if kind not in (None, *KINDS):
        raise UserError(f"kind is {kind!r}; expected one of {', '.join(KINDS)}, or None for both.")


def vocabulary_of(tags: Sequence[Sequence[str]], tagger: Tagger) -> Vocabulary:
    """Return the tags in which mistakes are looked for: those of two images or more, with the aliases of a run.

    Raises DataError if there are none.
    """
    vocabulary = Vocabulary.from_lists(tags, min_count=2, aliases=tagger.vocabulary.aliases)
    if len(vocabulary) == 0:
        raise DataError("No tag is on two photos or more, so none can be compared. Tag more photos.")
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
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Open the chance of each tag of each image by a copy of the model that has not learned from the image.

    Yields chances, shape (n_images, n_tags), and the fold of each image, shape (n_images,). Chances that would take
    more than half a GiB lie in a temporary file meanwhile. Raises what `mistakes_among` raises of model and images.
    """
    if learns_from_kernel(model):
        raise UserError(
            f"The model '{MODELS.name_of(model)}' compares photos with those that it learned from, so that a copy "
            "cannot learn from others. Take a run of another model, such as auto."
        )
    Y = sp.csr_array(Y)
    n_images, n_tags = Y.shape
    n_tagged = int((np.diff(sp.csr_array(Y > 0).indptr) > 0).sum())
    if n_tagged < FEWEST:
        raise DataError(
            f"Only {count_of(n_tagged, 'photo')} with tags that other photos have, too: too few to learn from some and "
            f"judge others. Mistakes are found from {FEWEST} such photos on."
        )
    rng = np.random.default_rng(seed)
    folds = rng.permutation(np.arange(n_images) % N_FOLDS)

    with _room((n_images, n_tags)) as scores:
        with reported(progress, "judge photos that were held out", N_FOLDS):
            for fold in range(N_FOLDS):
                if stop():
                    break
                out, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                copy = unfitted(model).fit(X[others], Y[others], side=side)
                for start in range(0, out.size, CHUNK):
                    rows = out[start : start + CHUNK]
                    scores[rows] = search_scores(copy, X[rows])
                progress.advance()
        if not stop():
            _require_telling(scores, Y)
            _make_chances(scores, Y, rng)
        yield scores, folds


def _require_telling(scores: NDArray[np.float32], Y: sp.csr_array) -> None:
    """Raise UntoldError if images with a tag score no better for it than all images do, by more than chance."""
    n_images, n_tags = scores.shape
    sums, squares, of_given = np.zeros((3, n_tags))
    counts = np.zeros(n_tags, np.int64)
    step = max(1, MOST_SCORES // n_tags)
    for start in range(0, n_images, step):
        block, has = scores[start : start + step].astype(np.float64), Y[start : start + step].toarray() > 0
        sums += block.sum(axis=0)
        squares += (block**2).sum(axis=0)
        of_given += np.where(has, block, 0).sum(axis=0)
        counts += has.sum(axis=0)
    mean = sums / n_images
    variance = squares / n_images - mean**2
    told = (variance > 1e-12 * (mean**2 + 1)) & (counts > (UNUSUAL if (counts > UNUSUAL).any() else 0))
    above = (of_given - counts * mean)[told] / np.sqrt(variance[told])
    if above.sum() < TELLING * np.sqrt(max(1, counts[told].sum())):
        raise UntoldError(
            "The features tell nothing of these tags: photos with a tag look no more alike than any others. So nothing "
            "says which tags are wrong or missing. Learn with a network's features: visterm encoders lists them."
        )


def _make_chances(scores: NDArray[np.float32], Y: sp.csr_array, rng: np.random.Generator) -> None:
    """Put chances in the place of scores, by curves that are fitted to those of images that were held out."""
    n_images, n_tags = scores.shape
    most = max(1, MOST_SCORES // n_tags)
    sample = np.arange(n_images) if n_images <= most else np.sort(rng.permutation(n_images)[:most])
    calibration = fit_calibration(np.asarray(scores[sample]), Y[sample], Y)
    if calibration is None:
        raise DataError("The photos all have the same tags, so that none of them stands out. Tag more photos.")
    calibration = calibration._replace(curve=None)  # whose bound would make the surest pairs alike
    step = max(1, MOST_SCORES // n_tags)
    for start in range(0, n_images, step):
        scores[start : start + step] = calibration.confidences(scores[start : start + step])


@contextmanager
def _room(shape: tuple[int, int]) -> Iterator[NDArray[np.float32]]:
    if shape[0] * shape[1] <= IN_MEMORY:
        yield np.zeros(shape, np.float32)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield new_map(Path(folder) / "chances.npy", np.float32, shape)
