"""The catalogue: photos with their rows, found by words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from visterm.app.features.kind import is_features
from visterm.app.parts import check_combination
from visterm.app.rows import Photos, as_corpus, as_images, source_of_rows
from visterm.app.tagger import CHUNK, Tagger
from visterm.core.checks import check_k
from visterm.core.combining import log_probabilities, part_signs
from visterm.core.errors import DataError, UserError
from visterm.core.jsonlines import read_skipped, write_skipped
from visterm.core.persist import new_folder, open_folder
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.tables import ENCODERS
from visterm.core.types import Hit, Matrix, Ranking, Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.kernels.topk import top_k
from visterm.store.catalogue import Origin, StoredCatalogue
from visterm.store.records import Record, read_records

RUN = "run"
SKIPPED = "skipped.jsonl"
CHANGED = "changed since its features were made"


class Found(NamedTuple):
    """The images that a search found, best first, and the words that are no tag."""

    hits: list[Hit]
    unknown: list[str]


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
        self._stored = StoredCatalogue(Origin(tagger.path, tagger.fingerprint))

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def records(self) -> Sequence[Record]:
        """What is known of each image: name, path, size, content hash, tags given."""
        return self._stored.records

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
        there = {record.path for record in self.records}
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

    def search(self, words: str | Sequence[str], k: int = 10, *, combine: str = "sum") -> Found:
        """Find photos by tags: the images with the largest Σ weight(word) · score(word).

        Weights are those of `Tagger.query_weights`: by inverse document frequency; a word with ``-`` subtracts.

        Parameters
        ----------
        words : str or sequence of str
            As typed (``snow tree -people "polar bear"``), or one tag an entry.
        k : int
            How many images; 0 means all.
        combine : {"sum", "product"}
            "product", of models whose scores are probabilities: the images with the largest
            ``Σ weight(word) · log P(word | image)``, and for a word with ``-`` the log of ``1 - P``. An image has to
            have a little of each word; one word alone cannot bring it up.

        Raises
        ------
        UnknownNameError
            If no word is a tag of the run.
        UserError
            If the model's scores are no probabilities, but their product is asked for.
        """
        check_combination(combine, self.tagger.model)
        query = self.tagger.query_weights(words)
        if combine == "product":
            ids, scores = self._search_product(query.weights, k)
        else:
            ids, scores = self._stored.search(self.tagger.model.query_rows(query.weights), k)
        hits = [Hit(self.records[i].name, float(s)) for i, s in zip(ids[0], scores[0], strict=True)]
        return Found(hits, query.unknown)

    def _search_product(self, weights: sp.csr_array, k: int) -> Ranking:
        """Find the images with the largest product of probabilities, from those of each word alone."""
        rows = sp.eye_array(weights.shape[1], format="csr", dtype=np.float32)[weights.indices]
        ids, found = self._stored.search(self.tagger.model.query_rows(rows), 0)
        P = np.empty((ids.shape[1], len(ids)), np.float32)
        np.put_along_axis(P, ids.T, found.T, axis=0)
        scores = part_signs(weights.data[None, :]) @ log_probabilities(P).T
        return Ranking(*top_k(np.ascontiguousarray(scores), check_k(k, len(P))))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the catalogue as a folder, whole or not there.

        Raises
        ------
        StorageError
            If something that is not a catalogue lies at `path`.
        """
        with new_folder(path, "catalogue") as folder:
            self._stored.write_into(folder)
            (folder / RUN).mkdir()
            self.tagger.write_into(folder / RUN)
            write_skipped(folder / SKIPPED, self.skipped)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Self:
        """Open a catalogue that `save` wrote; its rows stay on disk, memory-mapped.

        Raises
        ------
        StorageError
            If there is no catalogue at `path`, or it was damaged.
        """
        folder = open_folder(path, "catalogue")
        catalogue = cls(Tagger.read_from(folder / RUN, n_jobs=n_jobs))
        catalogue._stored = StoredCatalogue.read_from(folder)
        catalogue._stored.check_origin(catalogue.tagger.fingerprint)
        catalogue.skipped = read_skipped(folder / SKIPPED)
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
        self.skipped.extend(skipped)
        if len(kept) == 0:
            return
        read = read_records([items[i] for i in kept], [names[i] for i in kept], [given[i] for i in kept])
        rows, records = [], []
        for row, (i, record) in enumerate(zip(kept, read, strict=True)):
            if isinstance(record, Skipped):
                self.skipped.append(record)
            elif sha256_of is not None and record.sha256 != sha256_of(items[i]):
                self.skipped.append(Skipped(str(items[i]), CHANGED))
            else:
                rows.append(row)
                records.append(record)
        if not records:
            return
        U: Matrix = self.tagger.model.image_rows(X if len(rows) == len(kept) else X[rows])
        self._stored.add(records, U)


def _refuse_if_all_gone(photos: Sequence[Any]) -> None:
    if photos and not any(map(os.path.exists, photos)):
        raise DataError(
            f"None of the {count_of(len(photos), 'photo')} is where it was when its features were made (such as "
            f"{photos[0]}), and a catalogue keeps the places of its photos. If they have moved, tell the features: "
            "`visterm encode NEW_FOLDER -o FEATURES` takes over the rows of all photos that are the same there."
        )


def _path_of(image: Any) -> str | None:
    """Give the file in full, or None for an array."""
    return None if isinstance(image, np.ndarray) else os.path.realpath(image)
