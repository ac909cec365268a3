"""A map of the photos: two coordinates per photo; photos with similar rows are close together."""

from __future__ import annotations

import io
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from visterm.core.errors import CorruptFileError, DataError, MissingExtraError, StorageError
from visterm.core.id_sets import Ids
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import one_blas_thread
from visterm.core.types import Floats, Matrix
from visterm.core.wording import count_of
from visterm.core.writing import write_whole
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.store.history import CatalogueJob

MAP_FILE = "photo_map.npz"
N_COMPONENTS = 50  # Number of principal components for finding neighbours, as in the map of tags
N_NEIGHBOURS = 15  # For UMAP (its default), and for placing later photos at the mean of their neighbours
MIN_PHOTOS_FOR_UMAP = 30  # With fewer photos, two principal components are the map: too few neighbours for UMAP
MAX_UMAP_PHOTOS = 20_000  # Fit UMAP to at most this many evenly chosen photos; place others by their neighbours
PHOTOS_PER_WRITE = 2048  # Number of photos placed by neighbours before the map is saved
MAP_FIELDS = 5  # The map shows a photo and a tag of each of these by as many fields
MAX_CLUSTERS = 16  # Fields that it names
MAX_NEW_SHARE = 0.5  # Place all photos again if more than this share is new


class PhotoMap(NamedTuple):
    """Positions of photos on a map."""

    ids: Ids  # Ascending
    places: Floats  # (n_photos, 2), from 0 to 1 in the longer direction


def read_map(stored: StoredCatalogue) -> PhotoMap | None:
    """Return the map of a catalogue's present photos; None if no map was drawn yet."""
    photo_map = None if stored.folder is None else _read(stored.folder / MAP_FILE)
    if photo_map is None:
        return None
    is_here = np.isin(photo_map.ids, stored.find(Filter()))
    return PhotoMap(photo_map.ids[is_here], photo_map.places[is_here])


def n_not_on_map(stored: StoredCatalogue, photo_map: PhotoMap) -> int:
    """Return the number of photos that are not on the map yet."""
    return len(np.setdiff1d(stored.find(Filter()), photo_map.ids))


class MapCluster(NamedTuple):
    """The photos in one of the `MAP_FIELDS` by `MAP_FIELDS` fields of the map."""

    image_id: int  # The photo nearest to their middle
    tag: str  # The tag that sets them most apart from other photos; empty if none does


def map_clusters(stored: StoredCatalogue, photo_map: PhotoMap) -> list[MapCluster]:
    """Return the fields of the map with most photos, largest first, each with another tag: they show what is where.

    Tags are those that photos have, or that are predicted for them with a confidence of at least `PREDICTED_FROM`.
    """
    n = len(photo_map.ids)
    cells = np.minimum((photo_map.places * MAP_FIELDS).astype(np.int64), MAP_FIELDS - 1) @ [MAP_FIELDS, 1]
    sizes = np.bincount(cells, minlength=MAP_FIELDS**2)
    cell_of = dict(zip(photo_map.ids.tolist(), cells.tolist(), strict=True))
    statement = (
        "SELECT image_id, tags.name FROM predictions JOIN tags ON tags.id = tag_id WHERE run_id = ? AND confidence >= ?"
    )
    pairs = set(stored.database.rows(statement, (stored.runs.current().id, PREDICTED_FROM)))
    pairs |= {(image_id, tag) for image_id, tags in stored.tags.held().items() for tag in tags}
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)  # Tag -> number of its photos by field
    for image_id, tag in sorted(pairs):
        if image_id in cell_of:
            counts[tag][cell_of[image_id]] += 1

    shares = {tag: sum(by_cell.values()) / n for tag, by_cell in counts.items()}
    clusters, used_tags = [], {""}
    for cell in np.argsort(-sizes, kind="stable")[: min(MAX_CLUSTERS, np.count_nonzero(sizes))].tolist():
        lifts = {tag: by_cell[cell] / sizes[cell] - shares[tag] for tag, by_cell in counts.items()}
        tag = max((tag for tag in lifts if tag not in used_tags and lifts[tag] > 0), key=lifts.__getitem__, default="")
        used_tags.add(tag)
        ids, places = photo_map.ids[cells == cell], photo_map.places[cells == cell]
        nearest = np.square(places - places.mean(axis=0)).sum(axis=1).argmin()
        clusters.append(MapCluster(int(ids[nearest]), tag))
    return clusters


def draw_map(
    catalogue: Catalogue, *, anew: bool = False, job_id: int | None = None, progress: Progress = SILENT
) -> PhotoMap | None:
    """Draw a map of all photos of a catalogue, and store it in the catalogue's folder.

    UMAP (McInnes, Healy, Melville 2018) places up to `MAX_UMAP_PHOTOS` photos by the directions of their rows, which
    searches for similar photos also use. All other and later photos are placed at the mean of their nearest
    neighbours, so that the map stays familiar; with `anew`, or if more than half of the photos are new, all photos are
    placed again. Photos placed by neighbours are saved in chunks: if the process is killed, call `draw_map` again.

    Returns None if the job `job_id` was cancelled. Raises MissingExtraError if umap-learn is not installed; DataError
    if no photo has a row; StorageError if the catalogue is in memory.
    """
    stored = catalogue.stored
    if stored.folder is None:
        raise StorageError("A catalogue in memory has no map. Save it, and load it again.")
    file = stored.folder / MAP_FILE

    with CatalogueJob(stored.jobs, "map", job_id) as job, one_blas_thread():
        catalogue.refresh()
        rows = stored.current_rows()
        ids = np.intersect1d(stored.find(Filter()), rows.frames_apart.ids)
        if not len(ids):
            raise DataError("No photo has a row of the current run, so there is nothing to draw. Index photos first.")
        base_map = None if anew else _read(file)
        if base_map is None or len(np.setdiff1d(ids, base_map.ids)) > MAX_NEW_SHARE * len(ids):
            fitted_ids = ids[np.unique(np.linspace(0, len(ids) - 1, min(len(ids), MAX_UMAP_PHOTOS)).astype(np.int64))]
            with reported(progress, "draw the map", 1):
                base_map = PhotoMap(fitted_ids, _plane_positions(_directions(rows.rows(fitted_ids))))
                progress.advance()
            if job.cancelled:
                return None
            _write(file, base_map)
        photo_map = _place_by_neighbours(rows.rows, base_map, ids, file, lambda: job.cancelled, progress)
        if photo_map is None:
            return None
        job.message = f"{count_of(len(photo_map.ids), 'photo')} on the map"
        return photo_map


def _place_by_neighbours(
    rows_of: Callable[[Ids], Matrix],
    photo_map: PhotoMap,
    ids: Ids,
    file: Path,
    stop: Callable[[], bool],
    progress: Progress,
) -> PhotoMap | None:
    """Add missing photos to a map at the mean of their neighbours, chunk by chunk; return None if stopped."""
    from sklearn import neighbors, preprocessing

    new_ids = np.setdiff1d(ids, photo_map.ids)
    is_present = np.isin(photo_map.ids, ids)
    photo_map = PhotoMap(photo_map.ids[is_present], photo_map.places[is_present])
    if len(new_ids):
        anchors = photo_map
        neighbour_search = neighbors.NearestNeighbors(
            n_neighbors=min(N_NEIGHBOURS, len(anchors.ids)), algorithm="brute"
        )
        neighbour_search.fit(preprocessing.normalize(rows_of(anchors.ids)))
        with reported(progress, "place new photos", len(new_ids)):
            for start in range(0, len(new_ids), PHOTOS_PER_WRITE):
                if stop():
                    return None
                chunk = new_ids[start : start + PHOTOS_PER_WRITE]
                nearest = neighbour_search.kneighbors(preprocessing.normalize(rows_of(chunk)), return_distance=False)
                # Less than the width of a dot: separates photos with the same neighbours
                spread = np.random.default_rng(0).normal(0, 0.002, (len(chunk), 2))
                places = np.clip(anchors.places[nearest].mean(axis=1) + spread, 0, 1).astype(np.float32)
                order = np.argsort(all_ids := np.concatenate([photo_map.ids, chunk]))
                photo_map = PhotoMap(all_ids[order], np.concatenate([photo_map.places, places])[order])
                _write(file, photo_map)
                progress.advance(len(chunk))
    elif not is_present.all():
        _write(file, photo_map)
    return photo_map


def _plane_positions(X: Floats) -> Floats:
    """Project rows to a plane, shape (n, 2): from 0 to 1 in the longer direction, and centred in the other."""
    if len(X) >= MIN_PHOTOS_FOR_UMAP:
        try:
            from umap import UMAP
        except ImportError as error:
            raise MissingExtraError(
                "The map of photos needs umap-learn. Install it with: pip install 'visterm[map]'"
            ) from error
        X = UMAP(n_neighbors=min(N_NEIGHBOURS, len(X) - 1), min_dist=0.1, random_state=0, n_jobs=1).fit_transform(X)
    plane = np.zeros((len(X), 2), np.float64)
    plane[:, : min(2, X.shape[1])] = X[:, :2]
    plane -= plane.min(axis=0)
    size = plane.max()
    if size == 0:
        return np.full(plane.shape, 0.5, np.float32)
    plane /= size
    return np.asarray(plane + (1 - plane.max(axis=0)) / 2, np.float32)


def _directions(rows: Matrix) -> Floats:
    """Normalise rows to length 1, and reduce them to at most `N_COMPONENTS` principal components."""
    from sklearn import decomposition, preprocessing

    unit = preprocessing.normalize(rows)
    n = min(N_COMPONENTS, *unit.shape)
    if not isinstance(unit, np.ndarray):
        n = min(n, unit.shape[1] - 1)
        return np.asarray(decomposition.TruncatedSVD(max(n, 1), random_state=0).fit_transform(unit), np.float32)
    if np.ptp(unit, axis=0).max() == 0:
        return np.zeros((len(unit), 2), np.float32)
    return np.asarray(decomposition.PCA(n, random_state=0).fit_transform(unit), np.float32)


def _write(file: Path, photo_map: PhotoMap) -> None:
    content = io.BytesIO()
    np.savez(content, ids=photo_map.ids, places=photo_map.places)
    write_whole(file, content.getvalue())


def _read(file: Path) -> PhotoMap | None:
    """Return the map in a file; None if there is no file. Raises CorruptFileError if it is damaged."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            ids, places = arrays["ids"], arrays["places"]
        if ids.dtype != np.int64 or places.dtype != np.float32 or places.shape != (len(ids), 2):
            raise ValueError("its arrays are not those of a map")
        if not np.isfinite(places).all() or (np.diff(ids) <= 0).any():
            raise ValueError("its positions are not finite, or its ids are not in order")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, OSError) as error:
        raise CorruptFileError(
            f"{file} is damaged: {error}. Remove it, and draw the map again (visterm map {file.parent})."
        ) from None
    return PhotoMap(ids, places)
