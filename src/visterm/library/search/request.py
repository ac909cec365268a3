"""Run a search request: by words, by another photo, or by filters only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.errors import StorageError, UserError
from visterm.library.catalogue import Catalogue
from visterm.library.search.result import Found, Group
from visterm.store.filters import MATCH, Filter

NO_FILTER = Filter()


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What to search for, and how."""

    words: str | None = None  # As typed. None: search by `like` or by filters only
    like: str | None = None  # A photo: its file, or its name in the catalogue
    k: int = 10  # Maximum number of images; 0: all
    # For the cut-offs, see `Catalogue.search`
    cutoff: bool = False
    min_confidence: float | None = None
    expand: Sequence[str] = ()  # Related tags to find as well: "parts" or "siblings", see `Catalogue.expand`
    among: Filter = NO_FILTER  # Which images are searched
    sort: str | None = None  # See `Catalogue.search`, or without words `Catalogue.browse`

    def check(self) -> None:
        """Check the options before a catalogue is opened.

        Raises
        ------
        UserError
            If options are incompatible, or there is nothing to search for.
        """
        by_words = self.words is not None and self.like is None
        if self.words is None and self.like is None and not self.among:
            advice = "Pass `words`, a photo as `like`, or a filter."
            raise UserError("Missing argument `words`.", setting="words", advice=advice)
        if self.sort == MATCH and self.words is None and self.like is None:
            problem = "`sort` chance and a search without words do not go together."
            raise UserError(problem, setting="sort", value=MATCH, advice="Leave one of the two out.")

        word_options = {
            "cutoff": self.cutoff, "min_confidence": self.min_confidence,
            "expand": self.expand, "words": self.words if self.like is not None else None,
        }  # fmt: skip
        for setting, value in word_options.items():
            if value and not by_words:
                conflict = "`like`" if self.like is not None else "a search without words"
                problem = f"`{setting}` and {conflict} do not go together."
                raise UserError(problem, setting=setting, value=value, advice="Leave one of the two out.")


class SearchOutcome(NamedTuple):
    """The result of a search request."""

    found: Found
    related: dict[str, list[Group]]  # Kind of relation -> groups of related tags, in the requested order
    unknown_filters: list[str]  # If nothing was found: tags of the filter that no image has
    has_confidences: bool  # Whether the run has confidences; without them, photos are ranked by the sum of scores


def search_run(path: str | os.PathLike[str], request: SearchRequest) -> SearchOutcome:
    """Open a catalogue and search it, like ``visterm search``.

    Raises the errors of `SearchRequest.check`, `Catalogue.search`, `Catalogue.like` and `Catalogue.expand`;
    StorageError if there is no catalogue at `path`.
    """
    if request.words is None and not Path(path).exists():
        raise StorageError(
            f"There is no catalogue at {path}. Name the catalogue first, then the words: visterm search CATALOGUE WORDS"
        )
    request.check()
    opened = Catalogue.load(path)
    words, among, k, related = request.words, request.among, request.k, {}
    if request.like is not None:
        result = opened.like(request.like, k, among=among, sort=request.sort)
    elif words is None:
        result = opened.browse(among, k, sort=request.sort)
    else:
        limits: dict[str, Any] = {"among": among, "cutoff": request.cutoff, "min_confidence": request.min_confidence}
        for how in dict.fromkeys(request.expand):
            related[how] = opened.expand(words, how, k, **limits)
        result = opened.search(words, k, sort=request.sort, **limits)
    unknown_filters = [] if result.hits else opened.unknown_filters(among)
    return SearchOutcome(result, related, unknown_filters, opened.tagger.calibration is not None)
