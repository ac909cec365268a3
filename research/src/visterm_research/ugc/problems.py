"""What the sampled-tagging comparison runs on: photos, pages or drawn images, and a word vector for each tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.digests import digest_of
from visterm.core.vocabulary import tag_key
from visterm_research.comparison.image_problems import (
    corel_problem,
    delicious_problem,
    dictionary_problem,
    scene_problem,
)
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.sources import COREL, DELICIOUS, Source, folders_of, kind_of
from visterm_research.zero_shot.vectors import DIM, prepared, tag_list_vectors, with_common

SENTENCES, LEARNED = "sentences", "learned"

QUICK_DIM = 12

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
        how = "They are centred, brought to length 1, and have one more number, 1."
        if self.source == SENTENCES:
            return f"Word vectors: {width} numbers, of the sentence-embedding network of the extra 'text'. {how}"
        return (
            f"Word vectors: {width} numbers, learned from the tag lists of the training rows (PPMI and SVD), so that "
            f"no word but the tags has one. {how}"
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
    """

    rows: Problem
    words: Words
    library: Path | None = None

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


def tag_problems(
    source: Source, data: Sequence[Path], before_work: Callable[[], None]
) -> Iterator[tuple[str, Callable[[], TagProblem]]]:
    """Yield the names of the problems, and what makes each: those of the folders, drawn scenes, a drawn dictionary.

    Parameters
    ----------
    before_work : callable
        Called before anything is drawn or encoded that was not before; what it raises ends the work.

    Raises
    ------
    DataError
        If a folder holds neither Corel5k nor Delicious.
    """
    for folder in folders_of(data, (COREL, DELICIOUS)):
        kind = kind_of(folder)
        yield str(kind), partial(_corel if kind == COREL else _delicious, source, folder, before_work)
    yield "scenes", partial(_scenes, source, before_work)
    yield "dictionary", partial(_dictionary, source)


def _corel(source: Source, folder: Path, before_work: Callable[[], None]) -> TagProblem:
    rows = corel_problem(
        folder,
        source.cache,
        encoder=source.encoder,
        seed=source.seed,
        n_jobs=source.n_jobs,
        wordnet=None,
        before_work=before_work,
        progress=source.progress,
    )
    return TagProblem(rows, words_of(rows, source))


def _delicious(source: Source, folder: Path, before_work: Callable[[], None]) -> TagProblem:
    before_work()
    rows = delicious_problem(folder, seed=source.seed)
    return TagProblem(rows, words_of(rows, source))


def _scenes(source: Source, before_work: Callable[[], None]) -> TagProblem:
    n_scenes = 120 if source.quick else 3000
    params = {"colours": 16, "codebook": 150, "sample_blocks": 3000} if source.quick else {}
    rows = scene_problem(
        source.cache,
        n_scenes,
        encoder="visterms" if source.quick else source.encoder,
        params=params,
        seed=source.seed,
        n_jobs=source.n_jobs,
        before_work=before_work,
        progress=source.progress,
    )
    return TagProblem(rows, words_of(rows, source), source.cache / f"scenes-{n_scenes}-{source.seed}")


def _dictionary(source: Source) -> TagProblem:
    n_images, n_tags, n_features = (300, 60, 100) if source.quick else (6000, 2000, 1000)
    rows = dictionary_problem(n_images, n_tags, n_features=n_features, seed=source.seed)
    return TagProblem(rows, words_of(rows, source, readable=False))


def words_of(rows: Problem, source: Source, *, readable: bool = True) -> Words:
    """Return vectors of tags: a sentence model's if the extra is installed and tags are words, else learned ones.

    Quick runs learn them, for the network takes longer to load than they to run.
    """
    known = {tag_key(tag) for tag in rows.tags}
    outside = [word for word in OUTSIDE if tag_key(word) not in known]
    if readable and not source.quick and find_spec("sentence_transformers") is not None:
        return Words(SENTENCES, *together(rows.tags, outside), outside)
    dim = QUICK_DIM if source.quick else DIM
    made = with_common(prepared(tag_list_vectors(rows.tags, rows.train.Y, dim=dim, seed=source.seed)))
    return Words(LEARNED, made, made[:0], [])


def together(first: Sequence[str], second: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the sentence network's vectors of two lists of words, prepared as one."""
    from visterm.encoders.sentences import sentence_vectors  # loads a network

    rows = with_common(prepared(sentence_vectors([*first, *second]).matrix))
    return rows[: len(first)], rows[len(first) :]
