"""The small results that travel between the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:  # the command line counts skipped photos without NumPy and SciPy
    import numpy as np
    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

Matrix: TypeAlias = "NDArray[np.float32] | sp.csr_array"
MatrixLike: TypeAlias = "ArrayLike | sp.sparray | sp.spmatrix"
"""What people pass as a matrix: an array, nested lists, or a sparse matrix."""

Arrays: TypeAlias = "dict[str, NDArray[Any]]"  # Named arrays of any type, as a file holds them
RandomState: TypeAlias = "int | np.random.RandomState | np.random.Generator | None"


class Ranking(NamedTuple):
    """Ids with scores, best first; ties are broken by the smaller id."""

    ids: NDArray[np.int64]  # shape (n, k): tag or image indices
    scores: NDArray[np.float32]  # shape (n, k): higher is better; never increases along a row


class PairRanking(NamedTuple):
    """Pairs of tags with scores, one for a part and one for the object that it is a part of, best first.

    Ties are broken by the smaller object tag, then by the smaller part tag.
    """

    parts: NDArray[np.int64]  # shape (n, k): tag indices of the parts
    objects: NDArray[np.int64]  # shape (n, k): tag indices of the objects (wholes)
    scores: NDArray[np.float32]  # shape (n, k): higher is better; never increases along a row


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag given to one image, with the model's score (higher is better)."""

    tag: str
    """The tag, as it is written in the library."""
    score: float
    """What the model ranks by."""
    trained: bool = True
    """False for a word that was added to the dictionary: no training image has it."""
    confidence: float | None = None
    """The chance that people would give it, 0 to 1; None where the run has no calibration."""

    def __repr__(self) -> str:
        """Return the tag with one number, its confidence; `score` has the other."""
        return f"Tag({self.tag!r}, {_number(self)})"

    def as_dict(self) -> dict[str, object]:
        """Return the tag for JSON: ``trained`` only if it is False, a confidence only if there is one."""
        known = {} if self.confidence is None else {"confidence": self.confidence}
        return {"tag": self.tag, "score": self.score} | known | ({} if self.trained else {"trained": False})


@dataclass(frozen=True, slots=True)
class Hit:
    """One image found by a search, with its score (higher is better)."""

    image: str
    """Its name in the catalogue."""
    score: float
    """What the search ranks by."""
    confidence: float | None = None
    """The chance that it is what is searched for; None where the run has no calibration."""
    id: int | None = None
    """Its number in the catalogue."""
    path: str | None = None
    """The file, in full; None for an image that was given as an array."""
    source: str | None = None
    """How a person tagged it with all the words: gave them ("person"), or "accepted" some; None of others."""
    at: float | None = None
    """Of a video: the moment that is meant, in seconds from the beginning."""
    link: str | None = None
    """The photo's page in the program whose library the catalogue is connected to; `path` is then that of a preview."""

    def __repr__(self) -> str:
        """Return the image with one number, its confidence; `score` has the other."""
        known = "" if self.id is None else f", id={self.id}"
        return f"Hit({self.image!r}, {_number(self)}{known})"

    def as_dict(self) -> dict[str, Any]:
        """Return the hit for JSON, without fields that are None."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


def _number(item: Tag | Hit) -> str:
    """Return the confidence, or the score where there is none."""
    return f"score={item.score:.3g}" if item.confidence is None else f"confidence={item.confidence:.2g}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """One image that was left out, as it could not be read or its name is not known, and why."""

    image: str
    reason: str

    def as_dict(self) -> dict[str, object]:
        """Return the entry for ``skipped.jsonl``."""
        return {"image": self.image, "reason": self.reason}


CLOSED, NO_TAGS = "folder that cannot be listed", "tag file that may not be read"
"""How the reasons of what is skipped beside photos begin."""
CHUNK = 512  # Images encoded and annotated at a time: bounds the memory of long work


class Chunk(NamedTuple):
    """Some images: the names of those with a row, their rows, and those that could not be read."""

    names: list[str]
    rows: Matrix
    skipped: list[Skipped]
