"""Learning from a catalogue: from the tags that people gave and accepted, and from those that they rejected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from visterm.core.progress import SILENT, Progress

if TYPE_CHECKING:
    from visterm.app.tagger import Tagger
    from visterm.store.catalogue import StoredCatalogue


@dataclass(frozen=True, slots=True)
class Learned:
    """A run that was learned from a catalogue, and what it changed.

    Attributes
    ----------
    run : str
        Fingerprint of the new run, which is the current one now; of the old one, where nothing was to be learned.
    full : bool
        Whether all was learned anew; else only the rows of tags have moved, and those of images are the old ones.
    images, tags : int
        Learned from, and known.
    held_out : int
        Images that were not learned from: always the same ones, chosen by their content.
    before, after : float or None
        Mean average precision (MAP) of the old and the new run on those held out that neither of them learned from;
        None where there are none.
    compared : int
        How many these are.
    told : list of str
        What else is to be said, a sentence each.
    """

    run: str
    full: bool
    images: int
    tags: int
    held_out: int
    before: float | None
    after: float | None
    compared: int
    told: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Give it as it stands in JSON."""
        return asdict(self)


def learn(
    tagger: Tagger,
    stored: StoredCatalogue,
    *,
    full: bool = False,
    min_count: int = 1,
    job_id: int | None = None,
    progress: Progress = SILENT,
) -> Learned:
    """Learn a run from a catalogue; see `Catalogue.learn`."""
    raise NotImplementedError
