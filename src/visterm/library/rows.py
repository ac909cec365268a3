"""Compute rows and predictions of a run for a catalogue's images, from features or photos, and commit them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from visterm.core.checks import check_k, finite_rows
from visterm.core.errors import ImageError
from visterm.core.progress import Progress, StepProgress, reported
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.contents import file_state, file_states
from visterm.data.image_folders import is_video
from visterm.data.tag_tree import TagTree
from visterm.features.job import CHANGED
from visterm.features.video_rows import NO_FRAME, encode_frames
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.feedback import all_spelled
from visterm.library.files import full_paths
from visterm.library.photos import ListedPhotos
from visterm.library.records import CatalogueVideos, ReadVideo, read_records
from visterm.store.history import CatalogueJob
from visterm.store.images import FRAME, ImageRecord, NewImage, frame_record
from visterm.store.tags import Prediction
from visterm.tagging.annotating import best_of

if TYPE_CHECKING:
    from visterm.store.catalogue import StoredCatalogue
    from visterm.tagging.tagger import Tagger

CHANGED_SINCE_ENCODING = "changed since its features were made"

N_STORED_PREDICTIONS = 10  # Number of predictions stored per image


class Filled(NamedTuple):
    """Number of images that got a row, and how many of them had to be encoded."""

    rows: int
    encoded: int


class RowWriter:
    """Computes rows of a run and commits them with features, tags and predictions, one transaction per chunk.

    The caller must have the writer lock of `stored`. `run_id` is the tagger's run, which need not be the current run.
    """

    def __init__(self, tagger: Tagger, stored: StoredCatalogue, run_id: int) -> None:
        self._tagger, self._stored, self._run_id = tagger, stored, run_id
        self._n_jobs = getattr(tagger.encoder, "n_jobs", None)
        self.features = CatalogueFeatures(stored, tagger.encoder.fingerprint)
        self.undated: list[str] = []  # Photos with an unreadable date, and their text
        self.videos = CatalogueVideos(stored, self._n_jobs)

    def ingest(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        """Encode and commit photos; return the positions of the added photos, and the skipped photos with reasons.

        `changed` maps positions to ids of images in the catalogue whose content has changed; `steps` shows the
        progress. The `positions` are either all photos or all videos.
        """
        are_videos = is_video(photos.items[positions[0]])
        return (self._ingest_videos if are_videos else self._ingest_photos)(photos, positions, changed, steps)

    def _ingest_videos(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        """Encode and commit videos by their frames; parameters and result as in `ingest`."""
        paths = [str(path) for path in full_paths([photos.items[position] for position in positions])]
        names = [photos.names[position] for position in positions]
        tags = [photos.tags[position] or () for position in positions]
        read_videos = self.videos.read(paths, names, tags)
        skipped = [video for video in read_videos if isinstance(video, Skipped)]
        videos = [(i, video) for i, video in zip(positions, read_videos, strict=True) if isinstance(video, ReadVideo)]
        X, frames = encode_frames(self._tagger.encoder, [video.files for _, video in videos])
        rows, accepted_positions, records, moments = [], [], [], []
        for number, (position, video) in enumerate(videos):
            video_rows = [row for row, (video_number, _) in enumerate(frames) if video_number == number]
            state = video.record.n_bytes, video.record.mtime_ns
            if not video_rows or file_state(str(video.record.path)) != state:
                skipped.append(Skipped(str(video.record.path), CHANGED if video_rows else NO_FRAME))
                continue
            accepted_positions.append(position)
            records.append(video.record)
            moments.append([video.moments[frames[row][1]] for row in video_rows])
            rows += video_rows
        self._commit(photos, X[np.array(rows, np.int64)], accepted_positions, records, changed, skipped, moments)
        steps.advance(len(positions))
        return accepted_positions, skipped

    def _ingest_photos(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        items = [photos.items[position] for position in positions]
        paths = full_paths(items)
        states_before = file_states(paths)
        X, encoded_positions, failed = photos.source.encode(items, progress=steps)
        skipped = list(failed)
        encoded_photos = [positions[i] for i in encoded_positions]
        read_photos = read_records(
            [photos.items[position] for position in encoded_photos],
            [photos.names[position] for position in encoded_photos],
            [photos.tags[position] or () for position in encoded_photos],
            n_jobs=self._n_jobs,
            undated=self.undated,
        )
        rows, accepted_positions, records = [], [], []

        for row, (i, record) in enumerate(zip(encoded_positions, read_photos, strict=True)):
            reason = None
            if isinstance(record, Skipped):
                reason = record.reason
            elif photos.sha256_of is not None and record.sha256 != photos.sha256_of(items[i]):
                reason = CHANGED_SINCE_ENCODING
            elif states_before[i] is not None and states_before[i] != (record.n_bytes, record.mtime_ns):
                reason = CHANGED
            if reason is None:
                assert isinstance(record, NewImage)
                rows.append(row)
                accepted_positions.append(positions[i])
                records.append(record)
            else:
                skipped.append(Skipped(str(items[i]), reason))

        if len(rows) < len(encoded_positions):
            X = X[np.array(rows, np.int64)]
        self._commit(photos, X, accepted_positions, records, changed, [_with_full_path(item) for item in skipped])
        return accepted_positions, skipped

    def fill(self, chunk_size: int, job: CatalogueJob, progress: Progress) -> Filled:
        """Add missing rows of the run for present images, from stored features or by encoding them; return counts."""
        unfilled = self._stored.images.without_rows(self._run_id)
        with_features, n_rows = self.features.ids_in_shard_order(unfilled), 0  # for a video, the id of its first frame
        if with_features:
            with reported(progress, "make rows", len(with_features)):
                for chunk in job.chunks(with_features, chunk_size):
                    ids, X = self.features.rows(self._stored.frames.with_frames(chunk))
                    self._commit_rows(ids, X, None)
                    n_rows += len(ids)
                    progress.advance(len(chunk))
        n_encoded = self.encode_missing(unfilled, chunk_size, job, progress)
        return Filled(n_rows + n_encoded, n_encoded)

    def encode_missing(self, image_ids: Sequence[int], chunk_size: int, job: CatalogueJob, progress: Progress) -> int:
        """Encode images that have no features yet, store features and rows, and return the number of these images."""
        without_features = sorted(set(image_ids) - set(self.features.ids_in_shard_order(image_ids)))
        if not without_features:
            return 0
        with reported(progress, "encode photos", len(without_features)):
            chunks = job.chunks(without_features, chunk_size)
            return sum(len(self._encode_stored_images(chunk, StepProgress(progress))) for chunk in chunks)

    def predict(self, chunk_size: int, job: CatalogueJob, progress: Progress) -> None:
        """Predict tags from features for all images without predictions of the run, including gone images."""
        unpredicted = self._stored.database.rows(
            "SELECT id FROM images WHERE file_type != ? AND NOT EXISTS "
            "(SELECT 1 FROM predictions WHERE run_id = ? AND image_id = images.id)",
            (FRAME, self._run_id),
        )
        ids = self.features.ids_in_shard_order([row[0] for row in unpredicted])
        with reported(progress, "predict", len(ids)):
            for chunk in job.chunks(ids, chunk_size):
                row_ids, X = self.features.rows(self._stored.frames.with_frames(chunk))
                self._stored.tags.set_predictions(self._run_id, self._predictions(X, row_ids))
                progress.advance(len(chunk))

    def with_spelled_tags(self, photos: ListedPhotos) -> ListedPhotos:
        """Return photos with their tags in the run's spelling, without duplicates and empty tags.

        A tag that is a name in the photos' tree of tags becomes its path, if the run has a tag with this path. The
        number of tags per photo is not limited. Raises UserError if a photo has an invalid tag.
        """
        vocabulary = self._tagger.vocabulary
        paths = TagTree(photos.tree).paths().items() if self._tagger.tree is not None else ()
        path_of = {tag_key(name): path for path, name in paths if path in vocabulary}
        tags = []
        for given in photos.tags:
            names = None if given is None else [path_of.get(tag_key(tag), tag) for tag in filter(clean_tag, given)]
            tags.append(None if names is None else all_spelled(vocabulary, names, max_tags=math.inf))
        return replace(photos, tags=tags)

    def _commit(
        self,
        photos: ListedPhotos,
        X: Matrix,
        positions: Sequence[int],
        records: Sequence[NewImage],
        changed: Mapping[int, int],
        skipped: Sequence[Skipped],
        moments: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Add images, or replace the content of changed images, in one transaction.

        With `moments`, the records are videos, and `X` has one row per moment.
        """
        stored = self._stored
        inputs = [
            frame_record(video, at) if i else video
            for video, times in zip(records, moments or [(0.0,)] * len(records), strict=True)
            for i, at in enumerate(times)
        ]
        shard = self.features.write([record.name for record in inputs], [record.sha256 for record in inputs], X)
        U = self._tagger.model.image_rows(X) if records else None

        with stored.transaction():
            stored.skipped.add(skipped)
            if records:
                new_records = [r for p, r in zip(positions, records, strict=True) if p not in changed]
                new_ids = iter(stored.images.add(new_records))
                ids = [changed[position] if position in changed else next(new_ids) for position in positions]
                for position, record in zip(positions, records, strict=True):
                    if position in changed:
                        stored.images.update(changed[position], record)
                        if photos.tags[position] is not None:
                            stored.tags.set_from_file(changed[position], record.tags)
                new_tags = [(i, r.tags) for p, i, r in zip(positions, ids, records, strict=True) if p not in changed]
                stored.tags.give_many(new_tags, "file")
                if moments is not None:
                    videos = zip(ids, records, moments, strict=True)
                    ids = [image_id for video in videos for image_id in stored.frames.set(*video)]
                self._store(ids, X, U, shard)
                stored.skipped.remove([record.path for record in records if record.path is not None])

    def _commit_rows(self, ids: Sequence[int], X: Matrix, shard: str | None) -> None:
        if len(ids) == 0:
            return
        U = self._tagger.model.image_rows(X)
        with self._stored.transaction():
            self._store(ids, X, U, shard)

    def _store(self, ids: Sequence[int], X: Matrix, U: Matrix, shard: str | None) -> None:
        self._stored.set_rows(ids, U, run_id=self._run_id)
        self.features.note(ids, shard)
        self._stored.tags.set_predictions(self._run_id, self._predictions(X, ids))

    def _predictions(self, X: Matrix, ids: Sequence[int]) -> dict[int, list[Prediction]]:
        images = self._stored.frames.videos_of(ids)
        return predictions_of(self._tagger, X, images, self._stored.tags.rejected(images))

    def _encode_stored_images(self, image_ids: Sequence[int], steps: StepProgress) -> list[int]:
        """Encode the images whose files are unchanged, commit their rows and features, and return their ids."""
        images = [image for image in self._stored.images.get_many(image_ids) if _is_unchanged(image)]
        files, failed = [], []
        for image in self._stored.images.get_many(self._stored.frames.with_frames([image.id for image in images])):
            try:
                files.append((image, str(self.videos.picture_of(image))))
            except ImageError as error:
                failed.append(Skipped(error.path, error.reason))

        if not files:
            return []
        X, encoded_positions, unreadable = self._tagger.encoder.encode([file for _, file in files], progress=steps)
        is_finite, unchanged_ids = finite_rows(X), {image.id for image in images if _is_unchanged(image)}
        videos = self._stored.frames.videos_of([files[i][0].id for i in encoded_positions])
        rows = [row for row, video in enumerate(videos) if is_finite[row] and video in unchanged_ids]
        encoded = [files[encoded_positions[row]][0] for row in rows]
        X = X if len(rows) == len(encoded_positions) else X[np.array(rows, np.int64)]
        shard = self.features.write([image.name for image in encoded], [image.sha256 for image in encoded], X)
        self._stored.skipped.add(map(_with_full_path, [*failed, *unreadable]))
        self._commit_rows([image.id for image in encoded], X, shard)
        return [image.id for image in encoded]


def _is_unchanged(image: ImageRecord) -> bool:
    return image.path is not None and file_state(image.path) == (image.n_bytes, image.mtime_ns)


def _with_full_path(item: Skipped) -> Skipped:
    """Make the path of a skipped file absolute, so that it does not depend on the working directory."""
    return Skipped(os.path.realpath(item.image), item.reason) if os.path.lexists(item.image) else item


def predictions_of(
    tagger: Tagger,
    X: Matrix,
    image_ids: Sequence[int],
    rejected: Mapping[int, Sequence[str]],
    k: int = N_STORED_PREDICTIONS,
) -> dict[int, list[Prediction]]:
    """Return the k best tags (0: all tags) of each image id, best first, without tags that a person rejected.

    `X`, array or CSR, has shape (n_rows, n_features), and `image_ids` are the ids of its rows. If a video has several
    rows, each tag gets the best score of them. `rejected` maps image ids to their rejected tags.
    """
    if len(image_ids) == 0:
        return {}
    tags, tree = tagger.vocabulary.tags, tagger.tree
    if tree is not None:  # also leave out children of rejected tags
        rejected = {image_id: tree.words.with_children(names) for image_id, names in rejected.items()}
    max_rejected = max((len(rejected.get(image_id, ())) for image_id in image_ids), default=0)
    if tree is None:
        columns, scores = tagger.model.annotate(X, k + max_rejected if k else 0)
        confidences = None if tagger.calibration is None else tagger.calibration.confidences(scores, columns)
    else:
        columns, scores, confidences = tagger.best_tags(X, min(k + max_rejected, len(tags)) if k else len(tags))

    results: dict[int, list[Prediction]] = {}
    for row, image_id in enumerate(image_ids):
        left_out = set(map(tag_key, rejected.get(image_id, ())))
        predictions = [
            Prediction(tags[tag], float(scores[row, i]), None if confidences is None else float(confidences[row, i]))
            for i, tag in enumerate(np.asarray(columns[row]).tolist())
            if not left_out or tag_key(tags[tag]) not in left_out
        ][: k or None]
        results[image_id] = best_of(results[image_id], predictions)[: k or None] if image_id in results else predictions
    return results


def annotate_images(
    tagger: Tagger, stored: StoredCatalogue, image_ids: Sequence[int], k: int, progress: Progress
) -> dict[int, list[Prediction]]:
    """Tag images of a catalogue, from stored features or else from their files; see `Catalogue.annotate`."""
    check_k(k, 0)
    rejected = stored.tags.rejected(image_ids)
    ids, X = CatalogueFeatures(stored, tagger.encoder.fingerprint).rows(stored.frames.with_frames(image_ids))
    predictions = predictions_of(tagger, X, stored.frames.videos_of(ids), rejected, k)
    others = [
        (image.id, image.path)
        for image in stored.images.get_many(image_ids)
        if image.id not in predictions and image.path is not None and not is_video(image.path)
    ]
    if others:
        rows, positions, _ = tagger.encoder.encode([path for _, path in others], progress=progress)
        predictions |= predictions_of(tagger, rows, [others[i][0] for i in positions], rejected, k)
    return {image_id: predictions[image_id] for image_id in image_ids if image_id in predictions}
