"""The photos that a search or a filter found: as hits with names and places, in some order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_k
from visterm.core.errors import UserError
from visterm.core.remote import real_path
from visterm.core.types import Hit, Ranking
from visterm.core.wording import count_of, one_of
from visterm.data.file_kinds import IMAGES
from visterm.data.frames import Framed, first_of, pictures
from visterm.library.feedback import as_known
from visterm.store.filters import Filter
from visterm.store.images import file_type_of
from visterm.store.sorting import COLUMNS

if TYPE_CHECKING:
    from visterm.data.tag_tree import TagTree
    from visterm.store.catalogue import StoredCatalogue
    from visterm.store.current_rows import CurrentRows
    from visterm.tagging.tagger import Tagger

Ids = NDArray[np.int64]


class _Found(NamedTuple):
    hits: list[Hit]  # With the id of each image in the catalogue
    unknown: list[str]
    n_likely: int | None = None  # Images of the catalogue above the cut-off, shown or not; None without a cut-off
    untrained: Sequence[str] = ()
    """Words that count without a training image, by their vectors; with such the hits have no confidence."""
    n_found: int | None = None  # Images that were listed or ranked in all, shown or not


class Found(Framed, _Found):
    """The images that a search found, best first, and the words that are no tag.

    As a DataFrame (`to_pandas`, `to_polars`) it has a row for each hit, with what is known of any of them as columns.
    """

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each hit."""
        return [hit.as_dict() for hit in self.hits]

    def __repr__(self) -> str:
        unknown = f", unknown={self.unknown}" if self.unknown else ""
        return f"Found({count_of(len(self.hits), 'photo')}: {first_of(self.hits)}{unknown})"

    def _repr_html_(self) -> str:
        """Show the photos in a notebook."""
        sure = ((hit, "" if hit.confidence is None else f"{hit.confidence:.0%}") for hit in self.hits)
        return pictures(((hit.path, hit.image, line) for hit, line in sure), len(self.hits))


class Listing:
    """Photos of a catalogue, listed by a filter and an order, with names and places.

    Attributes
    ----------
    stored : StoredCatalogue
    """

    stored: StoredCatalogue
    _tagger: Tagger

    @property
    def tagger(self) -> Tagger:
        """The run that made the rows."""
        return self._tagger

    @tagger.setter
    def tagger(self, tagger: Tagger) -> None:
        self._tagger = tagger
        self.stored.tags.know_tree(None if tagger.tree is None else tagger.tree.words, tagger.vocabulary)

    @property
    def tree(self) -> TagTree | None:
        """The tree of the run's tags, with new tags of photos that are paths in it; None where they have no tree."""
        tree = self.tagger.tree
        return None if tree is None else tree.words.with_paths(self.stored.tags.paths())

    def browse(
        self, among: Filter | None = None, k: int = 10, *, after: int = -1, start: int = 0, sort: str | None = None
    ) -> Found:
        """List photos that pass a filter, by id or sorted, without scores.

        Parameters
        ----------
        among : Filter, optional
            None: all.
        k : int
            How many images; 0 means all.
        after : int
            The last id of the page before, without `sort`.
        start : int
            Photos of the pages before, with `sort`.
        sort : {"taken", "oldest", "name", "added"}, optional
            Photos without a date come last. None: by id.

        Raises
        ------
        UserError
            If there is no such order; "chance" is one of searches only.
        """
        every = self.ids(among or Filter(), sort)
        ids = every[start:] if sort else every[np.searchsorted(every, after, "right") :]
        ids = ids[: check_k(k, len(ids))]
        return Found(self.hits(ids), [], n_found=len(every))

    def ids(self, among: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the photos that pass a filter, ascending, or sorted as by `browse`."""
        if sort is not None and sort not in COLUMNS:
            raise UserError(f"sort is {sort!r}; a list without a search takes {one_of(list(COLUMNS))}.")
        return self.stored.find(self._spelled(among), sort)

    def hits(self, ids: Ids) -> list[Hit]:
        """Return photos by id, in the order of the ids, without scores."""
        return self._hits(Ranking(ids[None, :], np.zeros((1, len(ids)), np.float32)))

    def _sorted(self, found: Ranking, kept: NDArray[Any], sort: str, k: int) -> NDArray[Any]:
        """Return the places of the first k of some images of a ranking, by places, once they are sorted."""
        ids = found.ids[0, kept]
        place_of = dict(zip(ids.tolist(), kept.tolist(), strict=True))
        return np.array([place_of[i] for i in self.stored.sorted(ids, sort).tolist()][: k or None], np.int64)

    def _hits(
        self,
        found: Ranking,
        chances: NDArray[np.float64] | None = None,
        sources: Sequence[str | None] | None = None,
        q: Any = None,
    ) -> list[Hit]:
        """Return the images of the first query of a ranking, with names, places, and the best moments for `q`."""
        scores = found.scores[0].tolist()
        likely = [None] * len(scores) if chances is None else [None if np.isnan(p) else p for p in chances.tolist()]
        places = self.stored.where(found.ids[0].tolist(), q)
        return [
            Hit(one.name, score, chance, source=source, **{name: getattr(one, name) for name in one._fields[1:]})
            for one, score, chance, source in zip(places, scores, likely, sources or [None] * len(scores), strict=True)
        ]

    def _passing(self, among: Filter, rows: CurrentRows) -> Ids:
        """Return the images with a row that pass a filter."""
        found, there = self.ids(among), rows.ids
        if len(there) and there[-1] - there[0] == len(there) - 1:  # one after the other: quicker than a comparison
            return found[slice(*np.searchsorted(found, (there[0], there[-1] + 1)))]
        return np.intersect1d(found, there, assume_unique=True)

    def unknown_filters(self, among: Filter) -> list[str]:
        """Return a sentence for each part of a filter that no image passes, and for what is left out that none has."""
        said = [
            f"No photo has the tag '{tag}' ({option})."
            for option, tags in (("tag", among.tags), ("without", among.without))
            for tag in tags
            if not self._any_passes(Filter(tags=(tag,)))
        ]
        if among.folder is not None and not self._any_passes(Filter(folder=among.folder)):
            said.append(f"There is no folder '{among.folder}' in the catalogue (--folder).")
        if among.file_type is not None and not self._any_passes(Filter(file_type=among.file_type)):
            there = [
                kind
                for kind in sorted({file_type_of(f"x{ending}") for ending in IMAGES})
                if self._any_passes(Filter(file_type=kind))
            ]
            said.append(
                f"No photo has the type '{among.file_type}' (type)."
                + (f" There are: {', '.join(there)}." if there else "")
            )
        return said

    def _any_passes(self, among: Filter) -> bool:
        return len(self.stored.find(self._spelled(among))) > 0

    def _spelled(self, among: Filter) -> Filter:
        """Return a filter with all that its tags may be called, and the folder also in full, links followed."""
        tags = (*among.tags, *among.without, *among.predicted)
        return replace(
            among,
            spellings={tag: self._meant_by(tag) for tag in tags},
            named={} if self.tree is None else {tag: self._named(tag) for tag in among.predicted},
            folder_path=None if among.folder is None else real_path(among.folder),
        )

    def _meant_by(self, tag: str) -> list[str]:
        """Return the spellings of a tag and of those under it: an image of a child has its parents."""
        vocabulary, tree = self.tagger.vocabulary, self.tree
        known = as_known(vocabulary, tag)
        others = [] if tree is None else [*tree.paths_of(known), *tree.below(known)]
        return [spelling for each in (known, *others) for spelling in vocabulary.spellings(each)]

    def _named(self, tag: str) -> list[str]:
        vocabulary = self.tagger.vocabulary
        return vocabulary.spellings(as_known(vocabulary, tag))


def chosen_of(found: Ranking, places: NDArray[Any]) -> Ranking:
    """Return images of a ranking in another order, by places."""
    return Ranking(found.ids[:, places], found.scores[:, places])
