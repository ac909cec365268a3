"""Type aliases and small result classes that all layers use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:  # the command line counts skipped photos without NumPy and SciPy
    import os

    import numpy as np
    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

Place: TypeAlias = "str | os.PathLike[str]"
Matrix: TypeAlias = "NDArray[np.float32] | sp.csr_array"
MatrixLike: TypeAlias = "ArrayLike | sp.sparray | sp.spmatrix"
"""A matrix as callers may pass it: an array, nested lists, or a sparse matrix."""

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float32]"
Doubles: TypeAlias = "NDArray[np.float64]"
Arrays: TypeAlias = "dict[str, NDArray[Any]]"  # Named arrays of any type, as a file holds them
RandomState: TypeAlias = "int | np.random.RandomState | np.random.Generator | None"


class _Ranking(NamedTuple):
    ids: NDArray[np.int64]  # shape (n, k): tag or image indices
    scores: NDArray[np.float32]  # shape (n, k): higher is better; never increases along a row


class Ranking(_Ranking):
    """Ids with scores, best first; ties are broken by the smaller id.

    ``ids, scores = model.annotate(X)``. A model that was fitted on lists of tags also returns their names: `tags`.
    """

    _names: Sequence[str] | None = None

    @property
    def tags(self) -> NDArray[np.object_]:
        """The names of the ids, shape (n, k). Raises AttributeError if the model learned from a matrix."""
        import numpy as np

        if self._names is None:
            raise AttributeError(
                "This ranking has no names: the model was fitted on a matrix of tags. Fit it on lists of tags, or look "
                "the `ids` up in the columns of your matrix."
            )
        return np.asarray(self._names, np.object_)[self.ids]

    def named(self, names: Sequence[str] | None) -> Ranking:
        """Return this ranking with the name of each id."""
        ranking = Ranking(*self)
        ranking._names = names
        return ranking


class PairRanking(NamedTuple):
    """Pairs of tags (a part, and the object that it is a part of) with scores, best first.

    Ties are broken by the smaller object tag, then by the smaller part tag.
    """

    parts: NDArray[np.int64]  # shape (n, k): tag indices of the parts
    objects: NDArray[np.int64]  # shape (n, k): tag indices of the objects (wholes)
    scores: NDArray[np.float32]  # shape (n, k): higher is better; never increases along a row


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag predicted for an image, with the model's score (higher is better)."""

    tag: str
    """The tag, as it is spelled in the library."""
    score: float
    """The model's score, by which tags are ranked."""
    trained: bool = True
    """False for a word that was added to the vocabulary and that no training image has."""
    confidence: float | None = None
    """Probability that people would give the image this tag, 0 to 1; None if the run has no calibration."""

    def __repr__(self) -> str:
        """Return the tag with its confidence, or else its score."""
        return f"Tag({self.tag!r}, {_number(self)})"

    def as_dict(self) -> dict[str, object]:
        """Return the tag as a dict for JSON: ``trained`` only if it is False, ``confidence`` only if it is known."""
        confidence = {} if self.confidence is None else {"confidence": self.confidence}
        return {"tag": self.tag, "score": self.score} | confidence | ({} if self.trained else {"trained": False})


@dataclass(frozen=True, slots=True)
class Hit:
    """One image found by a search, with its score (higher is better)."""

    image: str
    """Its name in the catalogue."""
    score: float
    """The score, by which hits are ranked."""
    confidence: float | None = None
    """Probability that the image matches the search; None if the run has no calibration."""
    id: int | None = None
    """Its number in the catalogue."""
    path: str | None = None
    """Absolute path of the file; None for an image that was passed as an array."""
    source: str | None = None
    """How a person tagged it with all searched words: "person" (by hand) or "accepted" (suggestions); else None."""
    at: float | None = None
    """Time of the best frame of a video, in seconds; None for a photo."""
    link: str | None = None
    """Page of the photo in the connected program, such as Immich; `path` is then the path of a preview."""

    def __repr__(self) -> str:
        """Return the image with its confidence, or else its score."""
        id_text = "" if self.id is None else f", id={self.id}"
        return f"Hit({self.image!r}, {_number(self)}{id_text})"

    def as_dict(self) -> dict[str, object]:
        """Return the hit for JSON, without fields that are None."""
        values = zip(self.__slots__, _values_of(self), strict=True)
        return {name: value for name, value in values if value is not None}


_values_of = attrgetter(*Hit.__slots__)


def _number(item: Tag | Hit) -> str:
    """Return the confidence as text, or the score if the confidence is None."""
    return f"score={item.score:.3g}" if item.confidence is None else f"confidence={item.confidence:.2g}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """An image that was skipped, and the reason: it cannot be read, or its name is unknown."""

    image: str
    reason: str


CLOSED, NO_TAGS = "folder that cannot be listed", "tag file that may not be read"
"""Beginnings of the reasons for skipped folders and tag files; all other reasons are about photos."""
CHUNK = 512  # Images encoded and annotated at a time, which limits the memory


class Chunk(NamedTuple):
    """A batch of images: names of the images with a row, their rows, and the unreadable images."""

    names: list[str]
    rows: Matrix
    skipped: list[Skipped]
