"""A map of the photos: two coordinates for each, so that photos that look alike to the run lie together."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, DataError, MissingExtraError, StorageError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.core.wording import count_of
from visterm.core.writing import write_whole
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import Filter
from visterm.store.history import CatalogueJob

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

FILE = "photo_map.npz"
COMPONENTS = 50  # Principal components that neighbours are found by, as for the map of the tags
NEIGHBOURS = 15  # Of UMAP (its default), and those whose mean is the place of a photo that came later
FEWEST = 30  # Photos below which two principal components are the map: UMAP has too few neighbours
MOST_FITTED = 20_000  # Photos that UMAP places, drawn evenly; more than these lie by their neighbours among them
CHUNK = 2048  # Photos placed by neighbours between two writes: what a kill loses at most
MOST_NEW = 0.5  # Share of new photos above which all are placed anew


class PhotoMap(NamedTuple):
    """The places of photos."""

    ids: Ids  # Ascending
    places: Floats  # (n_photos, 2), from 0 to 1 in the longer direction


def read_map(stored: StoredCatalogue) -> PhotoMap | None:
    """Return the map of a catalogue's photos, those that are gone left out; None if none was drawn yet."""
    drawn = None if stored.folder is None else _read(stored.folder / FILE)
    if drawn is None:
        return None
    is_here = np.isin(drawn.ids, stored.find(Filter()))
    return PhotoMap(drawn.ids[is_here], drawn.places[is_here])


def not_on_map(stored: StoredCatalogue, drawn: PhotoMap) -> int:
    """Return how many photos came after the map was drawn."""
    return len(np.setdiff1d(stored.find(Filter()), drawn.ids))


def draw_map(
    catalogue: Catalogue, *, anew: bool = False, job_id: int | None = None, progress: Progress = SILENT
) -> PhotoMap | None:
    """Place all photos of a catalogue in a plane, and keep their places in its folder.

    UMAP (McInnes, Healy, Melville 2018) places up to `MOST_FITTED` photos by the directions of their rows, which
    searches for similar photos compare. Others, and those that come later, lie at the mean of their nearest neighbours'
    places, so that a map stays as people know it; with `anew`, or if more than half are new, all are placed again.
    Photos that only wait for their neighbours are written in chunks: after a kill the same call goes on with them.

    Returns None if the job `job_id` was cancelled. Raises MissingExtraError if umap-learn is not installed; DataError
    if no photo has a row; StorageError if the catalogue is in memory.
    """
    stored = catalogue.stored
    if stored.folder is None:
        raise StorageError("A catalogue in memory keeps no map. Save it, and load it again.")
    file = stored.folder / FILE

    with CatalogueJob(stored.jobs, "map", job_id) as job, one_blas_thread():
        catalogue.refresh()
        rows = stored.current_rows()
        ids = np.intersect1d(stored.find(Filter()), rows.frames_apart.ids)
        if not len(ids):
            raise DataError("No photo has a row of the current run, so there is nothing to draw. Index photos first.")
        known = None if anew else _read(file)
        if known is None or len(np.setdiff1d(ids, known.ids)) > MOST_NEW * len(ids):
            fitted = ids[np.unique(np.linspace(0, len(ids) - 1, min(len(ids), MOST_FITTED)).astype(np.int64))]
            with reported(progress, "draw the map", 1):
                known = PhotoMap(fitted, _in_a_plane(_directions(rows.rows(fitted))))
                progress.advance()
            if job.cancelled:
                return None
            _write(file, known)
        drawn = _with_neighbours(rows.rows, known, ids, file, lambda: job.cancelled, progress)
        if drawn is None:
            return None
        job.message = f"{count_of(len(drawn.ids), 'photo')} on the map"
        return drawn


def _with_neighbours(
    rows_of: Callable[[Ids], Matrix],
    known: PhotoMap,
    ids: Ids,
    file: Path,
    stop: Callable[[], bool],
    progress: Progress,
) -> PhotoMap | None:
    """Place the photos that are not on a map by their neighbours on it, chunk by chunk; None if it was stopped."""
    from sklearn import neighbors, preprocessing

    new = np.setdiff1d(ids, known.ids)
    stays = np.isin(known.ids, ids)
    known = PhotoMap(known.ids[stays], known.places[stays])
    if len(new):
        anchors = known
        near = neighbors.NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(anchors.ids)), algorithm="brute")
        near.fit(preprocessing.normalize(rows_of(anchors.ids)))
        with reported(progress, "place new photos", len(new)):
            for start in range(0, len(new), CHUNK):
                if stop():
                    return None
                chunk = new[start : start + CHUNK]
                nearest = near.kneighbors(preprocessing.normalize(rows_of(chunk)), return_distance=False)
                # Apart from each other by less than a dot's width, so that photos of the same neighbours are seen
                spread = np.random.default_rng(0).normal(0, 0.002, (len(chunk), 2))
                places = np.clip(anchors.places[nearest].mean(axis=1) + spread, 0, 1).astype(np.float32)
                order = np.argsort(every := np.concatenate([known.ids, chunk]))
                known = PhotoMap(every[order], np.concatenate([known.places, places])[order])
                _write(file, known)
                progress.advance(len(chunk))
    elif not stays.all():
        _write(file, known)
    return known


def _in_a_plane(X: Floats) -> Floats:
    """Return places from 0 to 1 in the longer direction, in the middle of the other one, shape (n, 2)."""
    if len(X) >= FEWEST:
        try:
            from umap import UMAP
        except ImportError as error:
            raise MissingExtraError(
                "The map of photos needs umap-learn. Install it with: pip install 'visterm[map]'"
            ) from error
        X = UMAP(n_neighbors=min(NEIGHBOURS, len(X) - 1), min_dist=0.1, random_state=0, n_jobs=1).fit_transform(X)
    flat = np.zeros((len(X), 2), np.float64)
    flat[:, : min(2, X.shape[1])] = X[:, :2]
    flat -= flat.min(axis=0)
    size = flat.max()
    if size == 0:
        return np.full(flat.shape, 0.5, np.float32)
    flat /= size
    return np.asarray(flat + (1 - flat.max(axis=0)) / 2, np.float32)


def _directions(rows: Matrix) -> Floats:
    """Return rows without their lengths, in at most `COMPONENTS` principal components."""
    from sklearn import decomposition, preprocessing

    unit = preprocessing.normalize(rows)
    n = min(COMPONENTS, *unit.shape)
    if not isinstance(unit, np.ndarray):
        n = min(n, unit.shape[1] - 1)
        return np.asarray(decomposition.TruncatedSVD(max(n, 1), random_state=0).fit_transform(unit), np.float32)
    if np.ptp(unit, axis=0).max() == 0:
        return np.zeros((len(unit), 2), np.float32)
    return np.asarray(decomposition.PCA(n, random_state=0).fit_transform(unit), np.float32)


def _write(file: Path, drawn: PhotoMap) -> None:
    content = io.BytesIO()
    np.savez(content, ids=drawn.ids, places=drawn.places)
    write_whole(file, content.getvalue())


def _read(file: Path) -> PhotoMap | None:
    """Return the map in a file; None if there is no file. Raises CorruptFileError if it is damaged."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            ids, places = arrays["ids"], arrays["places"]
        if ids.dtype != np.int64 or places.dtype != np.float32 or places.shape != (len(ids), 2):
            raise ValueError("it has other arrays than a map")
        if not np.isfinite(places).all() or (np.diff(ids) <= 0).any():
            raise ValueError("its places are not finite, or its ids are not in order")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, OSError) as error:
        raise CorruptFileError(
            f"{file} is damaged: {error}. Remove it, and draw the map again (visterm map {file.parent})."
        ) from None
    return PhotoMap(ids, places)
