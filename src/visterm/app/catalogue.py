"""The catalogue: photos with their rows, found by words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.app.expansion import Group, expand
from visterm.app.features.kind import is_features
from visterm.app.parts import check_combination
from visterm.app.rows import Photos, as_corpus, as_images, source_of_rows
from visterm.app.tagger import CHUNK, Tagger
from visterm.app.typed_queries import query_row
from visterm.core.checks import check_k, check_number
from visterm.core.combining import CONFIDENCE, log_probabilities, part_signs
from visterm.core.errors import DataError, UserError
from visterm.core.jsonlines import write_skipped
from visterm.core.persist import new_folder, open_folder
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.tables import ENCODERS
from visterm.core.types import Hit, Matrix, Ranking, Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.kernels.topk import top_k
from visterm.metrics.cutoff import expected_f1_cutoff
from visterm.models.calibration import Calibration
from visterm.store.catalogue import RUNS, Origin, StoredCatalogue
from visterm.store.images import ImageRecord
from visterm.store.records import read_records

SKIPPED = "skipped.jsonl"
CHANGED = "changed since its features were made"


class Found(NamedTuple):
    """The images that a search found, best first, and the words that are no tag.

    Attributes
    ----------
    hits : list of Hit
    unknown : list of str
    n_likely : int or None
        Images of the catalogue above the cut-off, shown or not; None where none was asked for.
    untrained : sequence of str
        Words that count without a training image, by their vectors; with such the hits have no confidence.
    """

    hits: list[Hit]
    unknown: list[str]
    n_likely: int | None = None
    untrained: Sequence[str] = ()


class Catalogue:
    """Photos to search, with the tagger that made their rows.

    Parameters
    ----------
    tagger : Tagger
        A fitted one; the catalogue keeps a copy of its run, so that it can be searched on its own.

    Attributes
    ----------
    tagger : Tagger
    skipped : list of Skipped
        Images that could not be read, or that the encoder does not know.

    Examples
    --------
    >>> catalogue = Catalogue(tagger)  # doctest: +SKIP
    >>> catalogue.add("photos").search("snow tree", k=3).hits  # doctest: +SKIP
    [Hit(image='photos/7.jpg', score=0.93), ...]
    """

    def __init__(self, tagger: Tagger) -> None:
        self.tagger = tagger
        self.skipped: list[Skipped] = []
        self._stored = StoredCatalogue(Origin(tagger.path, tagger.fingerprint, tagger.encoder.fingerprint))

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def stored(self) -> StoredCatalogue:
        """The tables and rows themselves: images, tags, runs, jobs."""
        return self._stored

    @property
    def records(self) -> Sequence[ImageRecord]:
        """What is known of each image that is there: name, path, size, content hash."""
        return self._stored.images.all()

    def add(
        self,
        images: Photos,
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
        *,
        progress: Progress = SILENT,
    ) -> Self:
        """Encode photos and take them in; files that are in the catalogue already are left as they are.

        Parameters
        ----------
        images : path, Corpus, or sequence of paths or uint8 arrays
            A folder, or the images themselves; or a features folder in place of its images. The photos must still be
            where they were, as the catalogue keeps their places; any that has changed or is gone is skipped.
        tags : path or sequence of lists of str, optional
            The tags that people gave, to keep beside the images.
        progress : Progress
            Told of each image.

        Raises
        ------
        EncoderMismatchError
            If features are given that another encoder made than the tagger's.
        UserError
            If the tagger knows images by number: there are no photos to keep.
        DataError
            If the encoder reads names, and knows none of the images; or features are given, and none of the photos
            is where it was.
        """
        if self.tagger.encoder.by_number:
            raise UserError(
                "A catalogue keeps photos, and this run knows its images by number only "
                f"(--encoder {ENCODERS.name_of(self.tagger.encoder)}). Rank tags for them with `visterm annotate RUN "
                "NAME --new-only`, or fit with an encoder that looks at pixels."
            )
        source, sha256_of = self.tagger.encoder, None
        if tags is not None or isinstance(images, Corpus) or is_features(images):
            corpus = as_corpus(images, tags)
            source = source_of_rows(source, corpus)
            sha256_of = corpus.encoded.sha256_of if corpus.encoded else None
            names, items = as_images(corpus if tags is not None or corpus is images else corpus.images)
            given = corpus.tags
            if corpus.encoded:
                _refuse_if_all_gone(items)
        else:
            names, items = as_images(images)
            given = [[] for _ in items]
        if source is self.tagger.encoder:
            source.refuse_unknown(items, only_if_all=True)
        there = self._stored.images.files()
        fresh = [i for i, item in enumerate(items) if _path_of(item) is None or _path_of(item) not in there]
        items, names, given = [items[i] for i in fresh], [names[i] for i in fresh], [given[i] for i in fresh]
        progress.start("index", len(items))
        try:
            for start in range(0, len(items), CHUNK):
                chunk = slice(start, start + CHUNK)
                self._add_chunk(source, items[chunk], names[chunk], given[chunk], sha256_of, Steps(progress))
        finally:
            progress.finish()
        return self

    def search(
        self,
        words: str | Sequence[str],
        k: int = 10,
        *,
        combine: str | None = None,
        cutoff: bool = False,
        min_confidence: float | None = None,
    ) -> Found:
        """Find photos by words: those with the largest Σ weight(word) · score(word), or most likely to be meant.

        Weights are those of `Tagger.query_weights`: by inverse document frequency; a word with ``-`` subtracts. A word
        that is no tag counts by its vector, where the run was fitted with `word_vectors` that have one.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or one tag an entry.
        k : int
            How many images; 0 means all.
        combine : {"sum", "product", "confidence"}, optional
            None: "confidence" where a word has a ``-`` or a cut-off is asked for and the run has a calibration, else
            "sum", as the PAMIR paper ranks. "confidence": by `Calibration.log_confidences`, where a word with ``-``
            counts by how likely it is there; in a sum the images with the least of it come first, whatever else they
            show. With a word that is no tag, None is always "sum": nothing is known of how likely such a word is.
            "product", of models whose scores are probabilities: the images with the largest
            ``Σ weight(word) · log P(word | image)``, and for a word with ``-`` the log of ``1 - P``. An image has to
            have a little of each word; one word alone cannot bring it up.
        cutoff : bool
            Leave out the images below the rank at which F1 is expected to be largest (`expected_f1_cutoff`).
        min_confidence : float, optional
            Leave out the images that are less likely to be meant; from 0 to below 1.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run, or has a place among them.
        UserError
            If the model's scores are no probabilities, but their product is asked for; or the run has no calibration,
            or a word no training images, but confidences are needed.
        StorageError
            If a word is no tag, and the file of the run's word vectors is gone or has changed.
        """
        if min_confidence is not None:
            check_number(min_confidence, "min_confidence", least=0, below=1)
        limited = cutoff or min_confidence is not None
        calibration = self._calibration(combine, limited)
        query = self.tagger.query_weights(words)
        if query.outside is not None:
            _refuse_confidences(query.outside.words, combine, limited)
            found = self._stored.search(query_row(self.tagger.model, query), k)
            names = self._stored.images.names(found.ids[0])
            hits = [Hit(name, float(s)) for name, s in zip(names, found.scores[0], strict=True)]
            return Found(hits, query.unknown, untrained=query.outside.words)
        if combine is None:
            uncertain = limited or bool((query.weights.data < 0).any())
            combine = CONFIDENCE if uncertain and calibration is not None else "sum"
        n_likely = None
        if combine == CONFIDENCE and calibration is not None:
            logs = self._log_confidences(calibration, query.weights)
            found, n_likely = _likeliest(self._stored.searchable(), logs, k, cutoff, min_confidence)
        else:
            model_rows = self.tagger.model.query_rows
            found = (
                self._search_product(query.weights, k)
                if combine == "product"
                else self._stored.search(model_rows(query.weights), k)
            )
        ids, scores = found.ids[0], found.scores[0]
        chances: list[float | None] = [None] * len(ids)
        if calibration is not None:
            chances = np.exp(self._log_confidences(calibration, query.weights, ids)).tolist()
        names = self._stored.images.names(ids)
        hits = [Hit(name, float(s), p) for name, s, p in zip(names, scores, chances, strict=True)]
        return Found(hits, query.unknown, n_likely if limited else None)

    def expand(
        self, words: str | Sequence[str], how: str, k: int = 10, *, n_groups: int = 5, **limits: Any
    ) -> list[Group]:
        """Find photos of the parts of what a search is for, or of its siblings, tag by tag; see `expansion.expand`."""
        return expand(self, words, how, k, n_groups=n_groups, **limits)

    def _log_confidences(
        self, calibration: Calibration, weights: sp.csr_array, ids: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Give the logs of the confidences of images (None: of all) for one query."""
        rows = _one_by_one(weights)
        scores = self._stored.products(self.tagger.model.query_rows(rows), ids)
        return calibration.log_confidences(scores, weights.indices, weights.data)

    def _calibration(self, combine: str | None, limited: bool) -> Calibration | None:
        """Give the calibration of the run, and refuse a search that needs one where there is none."""
        if combine is not None:
            check_combination(combine, self.tagger.model)
        if limited and combine not in (None, CONFIDENCE):
            raise UserError(
                f"A cut-off is for images ranked by confidence, and combine is {combine!r}. Leave one of the two out."
            )
        if self.tagger.calibration is None and (limited or combine == CONFIDENCE):
            raise UserError(
                "This catalogue's run has no calibration, so nothing is known of how likely an image is what the "
                "search is for. Fit the run anew (visterm fit, of 100 or more images with tags, without "
                "--no-calibration), and index again."
            )
        return self.tagger.calibration

    def _search_product(self, weights: sp.csr_array, k: int) -> Ranking:
        """Find the images with the largest product of probabilities, from those of each word alone."""
        rows = _one_by_one(weights)
        ids = self._stored.searchable()
        P = np.empty((len(ids), rows.shape[0]), np.float32)
        for word, found in enumerate(zip(*self._stored.search(self.tagger.model.query_rows(rows), 0), strict=True)):
            P[np.searchsorted(ids, found[0]), word] = found[1]
        scores = part_signs(weights.data[None, :]) @ log_probabilities(P).T
        best = Ranking(*top_k(np.ascontiguousarray(scores), check_k(k, len(P))))
        return Ranking(ids[best.ids], best.scores)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the catalogue as a folder, whole or not there; where it was loaded from, only its run: rows are there.

        Raises
        ------
        StorageError
            If something that is not a catalogue lies at `path`.
        """
        if self._stored.folder is not None and os.path.realpath(path) == os.path.realpath(self._stored.folder):
            self.tagger.save(self._stored.run_folder)
            write_skipped(self._stored.folder / SKIPPED, self.skipped)
            return
        with new_folder(path, "catalogue", changing=True) as folder:
            self._stored.write_into(folder)
            self.tagger.save(folder / RUNS / self.tagger.fingerprint)
            write_skipped(folder / SKIPPED, self.skipped)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Self:
        """Open a catalogue that `save` wrote; its rows stay on disk, memory-mapped, and `add` writes there.

        Raises
        ------
        StorageError
            If there is no catalogue at `path`, or it was damaged.
        """
        stored = StoredCatalogue.open(path)
        stored_run = open_folder(stored.run_folder, "run")
        catalogue = cls.__new__(cls)
        catalogue.tagger = Tagger.read_from(stored_run, n_jobs=n_jobs)
        catalogue._stored = stored
        stored.check_origin(catalogue.tagger.fingerprint)
        catalogue.skipped = stored.skipped.all()
        return catalogue

    def _add_chunk(
        self,
        source: Any,
        items: Sequence[Any],
        names: Sequence[str],
        given: Sequence[list[str]],
        sha256_of: Callable[[Any], str] | None,
        steps: Steps,
    ) -> None:
        X, kept, skipped = source.encode(items, progress=steps)
        self._skip(skipped)
        if len(kept) == 0:
            return
        read = read_records([items[i] for i in kept], [names[i] for i in kept], [given[i] for i in kept])
        rows, records = [], []
        for row, (i, record) in enumerate(zip(kept, read, strict=True)):
            if isinstance(record, Skipped):
                self._skip([record])
            elif sha256_of is not None and record.sha256 != sha256_of(items[i]):
                self._skip([Skipped(str(items[i]), CHANGED)])
            else:
                rows.append(row)
                records.append(record)
        if not records:
            return
        U: Matrix = self.tagger.model.image_rows(X if len(rows) == len(kept) else X[rows])
        self._stored.add(records, U)

    def _skip(self, skipped: Sequence[Skipped]) -> None:
        self.skipped.extend(skipped)
        self._stored.skipped.add(skipped)


def _likeliest(
    ids: NDArray[np.int64], logs: NDArray[np.float64], k: int, cutoff: bool, min_confidence: float | None
) -> tuple[Ranking, int]:
    """Rank images by the logs of their confidences, and say how many of all are above the cut-off."""
    places, scores = top_k(np.ascontiguousarray(logs[None, :], np.float32), len(logs))
    P = np.exp(logs[places[0]])
    n_likely = expected_f1_cutoff(P) if cutoff else len(P)
    if min_confidence is not None:
        n_likely = min(n_likely, int(np.count_nonzero(min_confidence <= P)))
    shown = min(check_k(k, len(P)), n_likely)
    return Ranking(ids[places[:, :shown]], scores[:, :shown]), n_likely


def _refuse_confidences(untrained: Sequence[str], combine: str | None, limited: bool) -> None:
    """Refuse a search by what is not known of words without training images."""
    if limited or combine not in (None, "sum"):
        listed = ", ".join(f"'{word}'" for word in untrained)
        asked = f"combine={combine!r}" if combine not in (None, "sum") else "a cut-off"
        raise UserError(
            f"No training image has {listed}, so nothing is known of how likely an image is to show it, and {asked} "
            "cannot be used. Leave it out: images are then ranked by the sum of scores; or leave the word out."
        )


def _refuse_if_all_gone(photos: Sequence[Any]) -> None:
    if photos and not any(map(os.path.exists, photos)):
        raise DataError(
            f"None of the {count_of(len(photos), 'photo')} is where it was when its features were made (such as "
            f"{photos[0]}), and a catalogue keeps the places of its photos. If they have moved, tell the features: "
            "`visterm encode NEW_FOLDER -o FEATURES` takes over the rows of all photos that are the same there."
        )


def _one_by_one(weights: sp.csr_array) -> sp.csr_array:
    """Give each word of a query as a query of its own, weighing 1."""
    n = weights.nnz
    return sp.csr_array((np.ones(n, np.float32), weights.indices, np.arange(n + 1)), shape=(n, weights.shape[1]))


def _path_of(image: Any) -> str | None:
    """Give the file in full, or None for an array."""
    return None if isinstance(image, np.ndarray) else os.path.realpath(image)
