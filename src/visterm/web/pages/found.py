"""What a search found, kept so that its pages and its photos follow one order, though tags change meanwhile."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.queries import quoted
from visterm.core.types import Hit
from visterm.library.catalogue import Catalogue
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.web.pages.form import SearchForm

PAGE = 48  # Photos of a page
MOST = 5000  # Photos that one search can be scrolled through
SEARCHES = 16  # Searches that are kept


class FoundPhotos(NamedTuple):
    """The photos that a search found, in its order."""

    ids: NDArray[np.int64]
    hits: list[Hit]  # Beside the ids; empty of a list without words and photo, whose pages ask for theirs
    notes: list[str]
    n_found: int  # Photos in all; of a search more than `ids`, if these are `MOST`
    n_likely: int | None = None  # Of a search with confidences: those at least `PREDICTED_FROM` likely
    meant: str = ""  # The search with the tags that are spelled like its unknown words, if there are any

    def page(self, catalogue: Catalogue, start: int) -> list[Hit]:
        """Return the photos of a page."""
        return self.hits[start : start + PAGE] or catalogue.hits(self.ids[start : start + PAGE])


class Walk(NamedTuple):
    """Where in a search a photo is."""

    number: int | None  # From 1 on; None of a photo that the search does not find any more
    n: int
    # Addresses of the photos beside it, and of the page of the search that shows it
    before: str | None
    after: str | None
    back: str
    next_id: int | None  # Of the photo after it


def found_by(catalogue: Catalogue, form: SearchForm, *, afresh: bool = False) -> FoundPhotos:
    """Search, or return what the same search found last, unless it is to be done afresh or another run is in use.

    What is wrong with the search becomes a note.
    """
    kept = _SEARCHES.setdefault(catalogue, {})
    key = (catalogue.tagger.fingerprint, replace(form, start=0))
    found = None if afresh else kept.get(key)
    if found is None:
        try:
            found = _find(catalogue, form)
        except UserError as error:
            meant = _meant(catalogue, form.q, re.split(r"[\s,;]+", form.q))
            found = FoundPhotos(np.empty(0, np.int64), [], [str(error)], 0, meant=meant)
        with _KEEPING:
            kept.pop(key, None)
            if len(kept) >= SEARCHES:
                kept.pop(next(iter(kept)))
            kept[key] = found
    return found


def walk(catalogue: Catalogue, form: SearchForm, image_id: int, place: int) -> Walk | None:
    """Return where in a search a photo is; one that it no longer finds counts as before the photo at its place.

    `place` is where it was when the search was done. None if the search finds nothing.
    """
    ids = found_by(catalogue, form).ids
    if len(ids) == 0:
        return None
    here = np.flatnonzero(ids == image_id)
    at = int(here[0]) if len(here) else min(place, len(ids))
    following = at + 1 if len(here) else at

    def address(other: int) -> str | None:
        return form.photo(int(ids[other]), other) if 0 <= other < len(ids) else None

    return Walk(
        at + 1 if len(here) else None, len(ids), address(at - 1), address(following),
        form.address(start=at // PAGE * PAGE) + f"#photo-{image_id}",
        int(ids[following]) if following < len(ids) else None,
    )  # fmt: skip


def _find(catalogue: Catalogue, form: SearchForm) -> FoundPhotos:
    """Search, as far as a search can be scrolled through."""
    among = form.among
    if not form.q and not form.like:
        ids = catalogue.ids(among or Filter(), form.sorted_by)
        return FoundPhotos(ids, [], [], len(ids))
    notes, meant = [], ""
    if form.image_id is not None:
        found = catalogue.like(form.image_id, MOST, among=among, sort=form.sorted_by)
    else:
        found = catalogue.search(form.q, MOST, among=among, sort=form.sorted_by)
        if found.unknown:
            notes.append(f"Not a known tag, so ignored: {', '.join(found.unknown)}.")
            meant = _meant(catalogue, form.q, found.unknown)
        if found.untrained:
            notes.append(f"No tagged photos to learn from, so found by meaning alone: {', '.join(found.untrained)}.")
    confidences = [hit.confidence for hit in found.hits if hit.confidence is not None]
    n_likely = sum(confidence >= PREDICTED_FROM for confidence in confidences) if confidences else None
    ids = np.array([hit.id for hit in found.hits], np.int64)
    return FoundPhotos(ids, found.hits, notes, found.n_found or 0, n_likely, meant)


def _meant(catalogue: Catalogue, words: str, unknown: Iterable[str]) -> str:
    """Return a search with known tags in place of its unknown words; empty if none is spelled like one."""
    meant = words
    for word, tag in catalogue.tagger.vocabulary.nearest(word.strip('-"') for word in unknown).items():
        if tag is not None:
            typed = tag if tag.isalnum() else quoted(tag)
            meant = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", lambda _, typed=typed: typed, meant)  # type: ignore[misc]
    return meant if meant != words else ""


Searches = dict[tuple[str, SearchForm], FoundPhotos]  # By the run and the search
_SEARCHES: weakref.WeakKeyDictionary[Catalogue, Searches] = weakref.WeakKeyDictionary()
_KEEPING = threading.Lock()
