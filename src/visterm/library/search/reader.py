"""Read side of a catalogue: search photos by words, by another photo, or by filters only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice, check_k, check_number, row_lengths
from visterm.core.errors import DataError, UserError
from visterm.core.id_sets import Ids
from visterm.core.queries import Query
from visterm.core.remote import real_path
from visterm.core.types import Hit, Matrix, Ranking
from visterm.core.vocabulary import tag_key
from visterm.data.image_folders import is_there
from visterm.kernels.topk import top_k
from visterm.library.feedback import in_spelling_of_run
from visterm.library.search.judgements import manual_tags
from visterm.library.search.photo_names import named_photos, photo_names
from visterm.library.search.ranking import CandidatePhotos, SearchedWords, WordScores, plan_ranking, rank, ranking_at
from visterm.library.search.result import Found, Group, Share, related_tags, shares_of
from visterm.models.confidence.calibration import log_sigmoid
from visterm.store.filters import COLUMNS, PREDICTED_FROM, SORTS, Filter
from visterm.tagging.tagger import Tagger
from visterm.tagging.typed_queries import typed_query

if TYPE_CHECKING:
    from visterm.data.tag_tree import TagTree
    from visterm.store.catalogue import StoredCatalogue
    from visterm.store.current_rows import CurrentRows

ImageLike: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8] | int"

N_SORTED_BEST = 200  # Number of best images that another order sorts, if there are no confidences
MAX_SORTED_IMAGES = 5000  # Maximum number of images that another order sorts, if there are confidences


class CatalogueReader:
    """Photos of a catalogue, listed by a filter and an order, or searched by its run.

    Attributes
    ----------
    stored : StoredCatalogue
    tagger : Tagger
        The run that computed the rows.
    """

    stored: StoredCatalogue
    tagger: Tagger
    _fingerprint: str
    _n_jobs: int | None

    def _use_tagger(self, tagger: Tagger) -> None:
        """Use a run for searches."""
        words = None if tagger.tree is None else tagger.tree.words
        self.tagger, self._fingerprint = tagger, tagger.fingerprint
        self.stored.tags.tree = (words, tagger.vocabulary) if words else None

    @property
    def tree(self) -> TagTree | None:
        """The run's tag tree with new tags of photos that are paths in it; None if the run has no tree."""
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
            Maximum number of images; 0 means all.
        after : int
            Last id of the previous page, without `sort`.
        start : int
            Number of photos on previous pages, with `sort`.
        sort : {"taken", "oldest", "name", "added"}, optional
            Photos without a date come last. None: by id.

        Raises
        ------
        UserError
            If `sort` is invalid; "chance" is only for searches.
        """
        all_ids = self.ids(among or Filter(), sort)
        ids = all_ids[start:] if sort else all_ids[np.searchsorted(all_ids, after, "right") :]
        ids = ids[: check_k(k, len(ids))]
        return Found(self.hits(ids), [], n_found=len(all_ids))

    def ids(self, among: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the photos that pass a filter, ascending, or sorted as by `browse`."""
        if sort is not None:
            check_choice(sort, "sort", COLUMNS)
        return self.stored.find(self._spelled(among), sort)

    def hits(self, ids: Ids) -> list[Hit]:
        """Return photos by id, in the order of the ids, without scores."""
        return self._hits(Ranking(ids[None, :], np.zeros((1, len(ids)), np.float32)))

    def refresh(self) -> bool:
        """Open the current run again if another process or thread has changed it; return whether it was changed."""
        if self.stored.folder is None or self.stored.origin.fingerprint == self._fingerprint:
            return False
        self._use_tagger(Tagger.open(self.stored.run_folder, self._n_jobs))
        return True

    def search(
        self,
        words: str | Sequence[str],
        k: int = 10,
        *,
        combine: str | None = None,
        cutoff: bool = False,
        min_confidence: float | None = None,
        among: Filter | None = None,
        sort: str | None = None,
    ) -> Found:
        """Find photos by words: with the largest Σ weight(word) · score(word), or with the highest confidence.

        Weights are those of `Tagger.query_weights`: by inverse document frequency, and negative for words with ``-``. A
        word that is not a tag uses its vector, if the run was fitted with `word_vectors` that include it.

        Feedback counts immediately, and tags of files count as given. Photos that people tagged with all the words come
        first: those to which all words were given, then those with accepted words, each by score. In all other photos,
        a word that a person gave or accepted counts as certain, and so does a `-word` that a person rejected. Photos
        for which a word was rejected, or that people tagged with a `-word`, are left out. Photos with a tag that no run
        has learned yet come first; if all words are such tags, only those are found. A word that is not a tag may name
        photos: a file, a folder, a camera, a year or a month. Then only these photos are searched.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or a list with one tag per entry.
        k : int
            Maximum number of images; 0 means all.
        combine : {"sum", "product", "confidence"}, optional
            None: "confidence", ties by score, if the run is calibrated and all words are tags; else "sum", as other
            words have no confidence. An index proposes 16 k images (at least 400), which are then ranked by
            confidence; with "confidence" itself, all images are ranked.
            "confidence": by `Calibration.log_confidences`. "sum", as in the PAMIR paper: by ``Σ weight(word) ·
            score``; with ``-``, the images with the word's lowest scores come first, regardless of the other words.
            "product", for models whose scores are probabilities: by ``Σ weight(word) · log P(word | image)``, with
            ``log(1 - P)`` for words with ``-``. An image needs some probability for each word; one word with a high
            probability is not enough.
        cutoff : bool
            Leave out images below the rank with the highest expected F1 (`expected_f1_cutoff`).
        min_confidence : float, optional
            Leave out images with a lower confidence; from 0 to below 1.
        among : Filter, optional
            Search only images that pass: by tags, folder, date, size, type and review.
        sort : {"chance", "taken", "oldest", "name", "added"}, optional
            None: "chance", best first. Other orders only sort images with a confidence of at least `min_confidence`
            (None: 0.5), or without confidences the `N_SORTED_BEST` best images, so that worse matches don't come
            between them.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run or of a photo, or has a vector.
        UserError
            If `combine` is "product" but the model's scores are not probabilities; or if confidences are needed, but
            the run has no calibration or a word has no training images.
        StorageError
            If a word is not a tag, and the run's file of word vectors was deleted or changed.
        """
        if sort is not None:
            check_choice(sort, "sort", SORTS)
        self.refresh()
        if min_confidence is not None:
            check_number(min_confidence, "min_confidence", least=0, below=1)
        check_k(k, 0)
        n_ranked = MAX_SORTED_IMAGES if sort in COLUMNS else k

        query = self.query_weights(words)
        plan = plan_ranking(self.tagger, query, combine, cutoff=cutoff, min_confidence=min_confidence)
        rows = self.stored.current_rows()
        passing = self._passing(among, rows, query.names) if among or query.names else None
        judged = manual_tags(self.stored, self.tagger.vocabulary, query, self.tree)
        photos, judged = CandidatePhotos.of(rows, passing, judged, limited=cutoff or min_confidence is not None)
        scores = WordScores(self.tagger, rows, SearchedWords.of(self.tagger, query))
        ranking, sources, n_likely = rank(plan.method, scores, photos, judged, n_ranked)

        n_found = len(photos) if n_likely is None else n_likely
        confidences = None
        if plan.calibration is not None:
            confidences = scores.confidences(plan.calibration, ranking.ids[0], judged)
        if sort in COLUMNS:
            positions = np.arange(ranking.ids.shape[1])
            if n_likely is None and (confidences is None or np.isnan(confidences).all()):
                positions = positions[:N_SORTED_BEST]
            elif n_likely is None and confidences is not None:
                positions = np.flatnonzero(confidences >= PREDICTED_FROM)
            n_found, positions = len(positions), self._sorted(ranking.ids[0], positions, sort, k)
            ranking, sources = ranking_at(ranking, positions), [sources[position] for position in positions]
            confidences = None if confidences is None else confidences[positions]
        hits = self._hits(ranking, confidences, sources, q=scores.words.q)
        return Found(hits, query.unknown, n_likely, plan.untrained, n_found, list(query.names))

    def query_weights(self, words: str | Sequence[str]) -> Query:
        """Convert typed words to weights, see `Tagger.query_weights`; tags and names of the photos are words, too."""
        if not isinstance(words, Iterable):
            raise UserError(
                setting="words", value=words, expected="a text such as 'snow tree -people', or a list of tags"
            )
        unknown_keys = self.tagger.dictionary.not_tags(words)
        new_tags = self.stored.tags.names_here(unknown_keys) if unknown_keys else {}
        if unknown_keys and (tree := self.tree):
            paths = {key: tree.paths_of(key) for key in unknown_keys}
            present = self.stored.tags.names_here([tag_key(path) for options in paths.values() for path in options])
            for key, options in paths.items():
                paths_here = [path for path in options if tag_key(path) in present]
                new_tags = {name: path for path in paths_here for name in (key, tag_key(path))} | new_tags
        names = photo_names(self.tagger, self.stored.database, words, unknown_keys)
        return typed_query(self.tagger, words, new_tags, names)

    def like(self, image: ImageLike, k: int = 10, *, among: Filter | None = None, sort: str | None = None) -> Found:
        """Find photos that are similar to another photo: by the cosine of their rows in the run's space.

        Parameters
        ----------
        image : path, uint8 array (height, width, 3), or int
            A photo, which is encoded unless the catalogue has it; or the id or name of a photo of the catalogue. A
            photo of the catalogue is not among its own results.
        k : int
            Maximum number of images; 0 means all.
        among : Filter, optional
            Search only images that pass.
        sort : {"chance", "taken", "oldest", "name", "added"}, optional
            None: "chance", most similar first. Other orders sort the `N_SORTED_BEST` most similar images.

        Raises
        ------
        DataError
            If the image is neither in the catalogue nor a file, or cannot be read.
        """
        if sort is not None:
            check_choice(sort, "sort", SORTS)
        self.refresh()
        check_k(k, 0)
        rows = self.stored.current_rows()
        ids = self._passing(among, rows) if among else rows.ids
        image_id = image_id_of(self.stored, image)
        if image_id is None:
            X, _, skipped = self.tagger.encoder.encode([image])
            if skipped:
                raise DataError(f"{skipped[0].image} cannot be read: {skipped[0].reason}.")
            row: Matrix = self.tagger.model.image_rows(X)
        else:
            row = rows.rows([image_id])
        row = row / np.maximum(row_lengths(row)[0], np.finfo(np.float32).tiny)
        cosines = rows.products(row, ids if among else None, unit=True)[:, 0]  # for all photos, without copying rows

        other_positions = np.arange(len(ids)) if image_id is None else np.flatnonzero(ids != image_id)
        n_best = check_k(N_SORTED_BEST if sort in COLUMNS else k, len(other_positions))
        order, scores = top_k(np.ascontiguousarray(cosines[None, other_positions], np.float32), n_best)
        ranking, n_found = Ranking(ids[other_positions[order]], scores), len(ids)
        if sort in COLUMNS:
            n_found = n_best
            ranking = ranking_at(ranking, self._sorted(ranking.ids[0], np.arange(n_best), sort, k))
        return Found(self._hits(ranking, q=row), [], n_found=n_found)

    def expand(
        self,
        words: str | Sequence[str],
        how: str,
        k: int = 10,
        *,
        n_groups: int = 5,
        cutoff: bool = False,
        min_confidence: float | None = None,
        among: Filter | None = None,
    ) -> list[Group]:
        """Find photos for tags that are related to the words of a search (Mesnil et al., Figure 4).

        `how` is "parts" or "siblings", see `related_tags`; words with ``-`` don't count. Returns at most `n_groups`
        (0: all) groups with the best k photos of a search for one related tag, limited as in `search`; empty groups
        are left out. Raises UserError if the run has no such relations, or all words have a ``-``.
        """
        related = related_tags(self.tagger, self.query_weights(words), how)[: n_groups or None]
        search = partial(self.search, k=k, cutoff=cutoff, min_confidence=min_confidence, among=among)
        groups = [Group(item, search([item.tag]).hits) for item in related]
        return [group for group in groups if group.hits]

    def shares(self, words: str | Sequence[str], image_ids: Sequence[int]) -> list[list[Share]]:
        """Split the scores of images into the contributions of the words of a search.

        Returns for each image the contribution of each word, largest share first. Raises UnknownNameError if no word is
        a tag of the run or has a vector; DataError if an image has no row of the current run.
        """
        if not len(image_ids):
            return []
        query, rows = self.query_weights(words), self.stored.current_rows()
        searched = SearchedWords.of(self.tagger, query)
        names = [self.tagger.vocabulary.tags[column] for column in searched.tags]
        names += [] if query.outside is None else query.outside.words
        scores, n_tags = rows.products(searched.rows, image_ids), len(searched.tags)
        confidences = np.full(scores.shape, np.nan)
        if self.tagger.calibration is not None and n_tags:
            products = partial(rows.products, ids=image_ids)
            log_odds = self.tagger.word_odds(scores[:, :n_tags], searched.tags, products)
            confidences[:, :n_tags] = np.exp(log_sigmoid(log_odds))
        return [shares_of(names, searched.weights, *row) for row in zip(scores, confidences, strict=True)]

    def unknown_filters(self, among: Filter) -> list[str]:
        """Return a sentence for each tag of a filter that no image has."""
        unknown = [tag for tag in among.tags if not len(self.stored.find(self._spelled(Filter(tags=(tag,)))))]
        return [f"No photo has the tag '{tag}'." for tag in unknown]

    def _spelled(self, among: Filter) -> Filter:
        """Add all spellings of a filter's tags, and the absolute path of its folder with links resolved."""
        vocabulary, tree = self.tagger.vocabulary, self.tree
        spellings, own_spellings = {}, {}
        for tag in (*among.tags, *among.without, *among.predicted):
            name = in_spelling_of_run(vocabulary, tag)
            children = [] if tree is None else [*tree.paths_of(name), *tree.below(name)]  # children imply it
            spellings[tag] = [spelling for word in (name, *children) for spelling in vocabulary.spellings(word)]
            if tree is not None and tag in among.predicted:
                own_spellings[tag] = vocabulary.spellings(name)
        folder_path = None if among.folder is None else real_path(among.folder)
        return replace(among, spellings=spellings, exact_spellings=own_spellings, folder_path=folder_path)

    def _passing(self, among: Filter | None, rows: CurrentRows, names: Mapping[str, int] | None = None) -> Ids:
        """Return the ascending ids of images with rows that pass a filter and have `names`, or lack those with -1."""
        passing, ids = rows.ids if among is None else self.ids(among), rows.ids
        for name, sign in (names or {}).items():
            combined = np.intersect1d if sign > 0 else np.setdiff1d
            passing = combined(passing, named_photos(self.stored.database, name), assume_unique=True)
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1:  # consecutive ids: faster than a comparison
            return passing[slice(*np.searchsorted(passing, (ids[0], ids[-1] + 1)))]
        return np.intersect1d(passing, ids, assume_unique=True)

    def _sorted(self, ids: Ids, positions: NDArray[np.int64], sort: str, k: int) -> NDArray[np.int64]:
        """Sort the images at the positions `positions`, and return the positions of the first k (0: all)."""
        position_of = dict(zip(ids[positions].tolist(), positions.tolist(), strict=True))
        sorted_ids = self.stored.sorted(ids[positions], sort).tolist()
        return np.array([position_of[image_id] for image_id in sorted_ids][: k or None], np.int64)

    def _hits(
        self,
        ranking: Ranking,
        confidences: NDArray[np.float64] | None = None,
        sources: Sequence[str | None] | None = None,
        q: Matrix | None = None,
    ) -> list[Hit]:
        """Return the hits of a ranking's first query, with names, paths, and for videos the best moments for `q`."""
        scores = ranking.scores[0].tolist()
        no_values = [None] * len(scores)
        p = no_values if confidences is None else [None if np.isnan(value) else value for value in confidences.tolist()]
        locations = self.stored.locations(ranking.ids[0].tolist(), q)
        return [
            Hit(location.name, score, confidence, location.id, location.path, source, location.at, location.link)
            for location, score, confidence, source in zip(locations, scores, p, sources or no_values, strict=True)
        ]


def image_id_of(stored: StoredCatalogue, image: ImageLike) -> int | None:
    """Return the id of an image with a row, given by id, file or name; None if it is not in the catalogue.

    Raises DataError if it is neither in the catalogue nor a file, or if several images have the name.
    """
    ids = stored.current_rows().ids
    if isinstance(image, int | np.integer):
        if int(image) not in ids:
            problem = f"The catalogue has no image {image} to search by."
            raise DataError(problem, setting="image", value=int(image), advice="Searches return the ids of images.")
        return int(image)

    if not isinstance(image, str | os.PathLike):
        return None
    record = stored.images.by_path(real_path(image))
    if record is not None:
        return record.id if record.id in ids else None
    name = os.fspath(image)
    if is_there(name):
        return None
    matches = stored.ids_of_name(name)
    if len(matches) > 1:
        raise DataError(f"{len(matches)} images of the catalogue are called {name}. Pass a longer path, or the id.")
    if not matches:
        raise DataError(f"There is no file {name}, and no image of the catalogue has this name.")
    return matches[0] if matches[0] in ids else None


def ids_of(stored: StoredCatalogue, images: Iterable[str]) -> list[int]:
    """Return the ids of images of the catalogue, given by files or names, without duplicates.

    Raises DataError if an image is not in the catalogue.
    """
    ids: dict[int, None] = {}
    for image in images:
        image_id = image_id_of(stored, image)
        if image_id is None:
            folder = stored.folder
            raise DataError(f"{image} is not in {folder}. Index it first: visterm index {folder} FOLDER")
        ids[image_id] = None
    return list(ids)
