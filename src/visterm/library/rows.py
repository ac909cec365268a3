"""Rows of a run for a catalogue's images, and their best tags: made of features or photos, committed together."""

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

OTHER_CONTENT = "changed since its features were made"

N_KEPT = 10


class Filled(NamedTuple):
    """How many images were given a row, and how many of them were encoded for it."""

    rows: int
    encoded: int


class RowWriter:
    """Makes rows of a run and commits them: one transaction a chunk, with features, tags and predictions.

    `stored` is held for writing. `run_id` is that of the tagger's run in the catalogue; it need not be the current one.
    """

    def __init__(self, tagger: Tagger, stored: StoredCatalogue, run_id: int) -> None:
        self._tagger, self._stored, self._run_id = tagger, stored, run_id
        self._n_jobs = getattr(tagger.encoder, "n_jobs", None)
        self.features = CatalogueFeatures(stored, tagger.encoder.fingerprint)
        self.undated: list[str] = []  # Photos whose date cannot be read, with what they say
        self.videos = CatalogueVideos(stored, self._n_jobs)

    def take_in(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        """Encode and commit some of the photos; return the positions of those taken in, and the others with reasons.

        `changed` has the ids of the images that are there already and have another content now; `steps` shows each
        image. They are all photos, or all videos, of which a few at a time are taken in.
        """
        videos = is_video(photos.items[positions[0]])
        return (self._take_videos if videos else self._take_photos)(photos, positions, changed, steps)

    def _take_videos(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        """Take in some videos as `take_in` takes photos; a video is encoded as its frames."""
        paths = [str(path) for path in full_paths([photos.items[position] for position in positions])]
        names = [photos.names[position] for position in positions]
        tags = [photos.tags[position] or () for position in positions]
        read = self.videos.read(paths, names, tags)
        skipped = [video for video in read if isinstance(video, Skipped)]
        films = [(at, video) for at, video in zip(positions, read, strict=True) if isinstance(video, ReadVideo)]
        X, frames = encode_frames(self._tagger.encoder, [video.files for _, video in films])
        rows, accepted, records, moments = [], [], [], []
        for number, (position, video) in enumerate(films):
            of_video = [row for row, (video_number, _) in enumerate(frames) if video_number == number]
            state = video.record.n_bytes, video.record.mtime_ns
            if not of_video or file_state(str(video.record.path)) != state:
                skipped.append(Skipped(str(video.record.path), CHANGED if of_video else NO_FRAME))
                continue
            accepted.append(position)
            records.append(video.record)
            moments.append([video.moments[frames[row][1]] for row in of_video])
            rows += of_video
        self._commit(photos, X[np.array(rows, np.int64)], accepted, records, changed, skipped, moments)
        steps.advance(len(positions))
        return accepted, skipped

    def _take_photos(
        self, photos: ListedPhotos, positions: Sequence[int], changed: Mapping[int, int], steps: StepProgress
    ) -> tuple[list[int], list[Skipped]]:
        items = [photos.items[position] for position in positions]
        paths = full_paths(items)
        before = file_states(paths)
        X, kept, failed = photos.source.encode(items, progress=steps)
        skipped = list(failed)
        encoded = [positions[i] for i in kept]
        read = read_records(
            [photos.items[position] for position in encoded],
            [photos.names[position] for position in encoded],
            [photos.tags[position] or () for position in encoded],
            n_jobs=self._n_jobs,
            undated=self.undated,
        )
        rows, accepted, records = [], [], []

        for row, (i, record) in enumerate(zip(kept, read, strict=True)):
            reason = None
            if isinstance(record, Skipped):
                reason = record.reason
            elif photos.sha256_of is not None and record.sha256 != photos.sha256_of(items[i]):
                reason = OTHER_CONTENT
            elif before[i] is not None and before[i] != (record.n_bytes, record.mtime_ns):
                reason = CHANGED
            if reason is None:
                assert isinstance(record, NewImage)
                rows.append(row)
                accepted.append(positions[i])
                records.append(record)
            else:
                skipped.append(Skipped(str(items[i]), reason))

        if len(rows) < len(kept):
            X = X[np.array(rows, np.int64)]
        self._commit(photos, X, accepted, records, changed, [_in_full(item) for item in skipped])
        return accepted, skipped

    def fill(self, chunk_size: int, job: CatalogueJob, progress: Progress) -> Filled:
        """Return a row of the run to each image that is here and has none: from its features, else by encoding it."""
        stored = self._stored
        missing = stored.images.without_rows(self._run_id)
        if not missing:
            return Filled(0, 0)
        ready = self.features.in_order(missing)  # videos by their first frames: the others go with them
        others = sorted(set(missing) - set(ready))
        n_rows = n_encoded = 0
        with reported(progress, "make rows", len(missing)):
            for chunk in job.chunks(ready, chunk_size):
                ids, X = self.features.rows(stored.frames.with_frames(chunk))
                self._commit_rows(ids, X, None)
                n_rows += len(ids)
                progress.advance(len(chunk))
                job.advance(n_rows, len(missing))
            for chunk in job.chunks(others, chunk_size):
                n_encoded += len(self._encode_again(chunk, StepProgress(progress)))
                job.advance(n_rows + n_encoded, len(missing))
        return Filled(n_rows + n_encoded, n_encoded)

    def encode_missing(self, image_ids: Sequence[int], chunk_size: int, job: CatalogueJob, progress: Progress) -> None:
        """Encode the images that have no features yet, and keep these: what learning needs before it begins."""
        others = sorted(set(image_ids) - set(self.features.in_order(image_ids)))
        if not others:
            return
        with reported(progress, "encode photos", len(others)):
            for chunk in job.chunks(others, chunk_size):
                self._encode_again(chunk, StepProgress(progress))

    def predict(self, chunk_size: int, job: CatalogueJob, progress: Progress) -> None:
        """Predict the tags of all images without predictions of the run, here or gone, from their features."""
        missing = self._stored.database.rows(  # gone ones may come back
            "SELECT id FROM images WHERE file_type != ? AND NOT EXISTS "
            "(SELECT 1 FROM predictions WHERE run_id = ? AND image_id = images.id)",
            (FRAME, self._run_id),
        )
        ids = self.features.in_order([row[0] for row in missing])
        with reported(progress, "predict", len(ids)):
            for chunk in job.chunks(ids, chunk_size):
                rows_of, X = self.features.rows(self._stored.frames.with_frames(chunk))
                self._stored.tags.set_predictions(self._run_id, self._predictions(X, rows_of))
                progress.advance(len(chunk))

    def spelled(self, photos: ListedPhotos) -> ListedPhotos:
        """Return photos with their tags as the run spells them, each once; empty ones are left out.

        Tags that came with those above them are called as the run's tree calls the ones of that place. However many
        keywords a file has, it stops no others. Raises UserError if a photo has a tag that no catalogue takes.
        """
        vocabulary = self._tagger.vocabulary
        paths = TagTree(photos.tree).paths().items() if self._tagger.tree is not None else ()
        called = {tag_key(name): path for path, name in paths if path in vocabulary}
        tags = []
        for given in photos.tags:
            texts = None if given is None else [called.get(tag_key(tag), tag) for tag in filter(clean_tag, given)]
            tags.append(None if texts is None else all_spelled(vocabulary, texts, most=math.inf))
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
        """Take images in, or put their new content in place of the old, in one transaction.

        With the `moments` of videos there is a row for each of them.
        """
        stored = self._stored
        of_rows = [
            frame_record(video, at) if i else video
            for video, of_video in zip(records, moments or [(0.0,)] * len(records), strict=True)
            for i, at in enumerate(of_video)
        ]
        shard = self.features.write([record.name for record in of_rows], [record.sha256 for record in of_rows], X)
        U = self._tagger.model.image_rows(X) if records else None

        with stored.transaction():
            stored.skipped.add(skipped)
            if records:
                new = [record for position, record in zip(positions, records, strict=True) if position not in changed]
                fresh = iter(stored.images.add(new))
                ids = [changed[position] if position in changed else next(fresh) for position in positions]
                for position, record in zip(positions, records, strict=True):
                    if position in changed:
                        stored.images.update(changed[position], record)
                        if photos.tags[position] is not None:
                            stored.tags.set_from_file(changed[position], record.tags)
                is_new = [(i, r.tags) for p, i, r in zip(positions, ids, records, strict=True) if p not in changed]
                stored.tags.give_many(is_new, "file")
                if moments is not None:
                    videos = zip(ids, records, moments, strict=True)
                    ids = [image_id for video in videos for image_id in stored.frames.set(*video)]
                self._keep(ids, X, U, shard)
                stored.skipped.remove([record.path for record in records if record.path is not None])

    def _commit_rows(self, ids: Sequence[int], X: Matrix, shard: str | None) -> None:
        if len(ids) == 0:
            return
        U = self._tagger.model.image_rows(X)
        with self._stored.transaction():
            self._keep(ids, X, U, shard)

    def _keep(self, ids: Sequence[int], X: Matrix, U: Matrix, shard: str | None) -> None:
        self._stored.set_rows(ids, U, run_id=self._run_id)
        self.features.note(ids, shard)
        self._stored.tags.set_predictions(self._run_id, self._predictions(X, ids))

    def _predictions(self, X: Matrix, ids: Sequence[int]) -> dict[int, list[Prediction]]:
        images = self._stored.frames.videos_of(ids)
        return predictions_of(self._tagger, X, images, self._stored.tags.rejected(images))

    def _encode_again(self, image_ids: Sequence[int], steps: StepProgress) -> list[int]:
        """Encode images that are as the catalogue knows them, and commit their rows and features; give these images."""
        images = [image for image in self._stored.images.get_many(image_ids) if _is_as_known(image)]
        files, failed = [], []
        for image in self._stored.images.get_many(self._stored.frames.with_frames([image.id for image in images])):
            try:
                files.append((image, str(self.videos.picture_of(image))))
            except ImageError as error:
                failed.append(Skipped(error.path, error.reason))
        if not files:
            return []
        X, kept, more = self._tagger.encoder.encode([file for _, file in files], progress=steps)
        good, known = finite_rows(X), {image.id for image in images if _is_as_known(image)}
        videos = self._stored.frames.videos_of([files[i][0].id for i in kept])
        rows = [row for row, video in enumerate(videos) if good[row] and video in known]
        encoded = [files[kept[row]][0] for row in rows]
        X = X if len(rows) == len(kept) else X[np.array(rows, np.int64)]
        shard = self.features.write([image.name for image in encoded], [image.sha256 for image in encoded], X)
        self._stored.skipped.add(map(_in_full, [*failed, *more]))
        self._commit_rows([image.id for image in encoded], X, shard)
        return [image.id for image in encoded]


def _is_as_known(image: ImageRecord) -> bool:
    return image.path is not None and file_state(image.path) == (image.n_bytes, image.mtime_ns)


def _in_full(item: Skipped) -> Skipped:
    """Name a file in full, so that it is the same one wherever the next command is given."""
    return Skipped(os.path.realpath(item.image), item.reason) if os.path.lexists(item.image) else item


def predictions_of(
    tagger: Tagger, X: Matrix, image_ids: Sequence[int], rejected: Mapping[int, Sequence[str]], k: int = N_KEPT
) -> dict[int, list[Prediction]]:
    """Return the k best tags (0: all) of images, by id, best first; none that a person rejected there.

    `X`, array or CSR, has shape (n_rows, n_features); `image_ids` are those of its rows. Of a video, whose frames have
    a row each, a tag has the best score of its frames. `rejected` has the tags that do not come back, by id.
    """
    if len(image_ids) == 0:
        return {}
    tags, tree = tagger.vocabulary.tags, tagger.tree
    if tree is not None:  # of what a person rejected, nothing under it comes back either
        rejected = {image_id: tree.words.with_children(those) for image_id, those in rejected.items()}
    most = max((len(rejected.get(image_id, ())) for image_id in image_ids), default=0)
    if tree is None:
        columns, scores = tagger.model.annotate(X, k + most if k else 0)
        sure = None if tagger.calibration is None else tagger.calibration.confidences(scores, columns)
    else:
        columns, scores, sure = tagger.best_tags(X, min(k + most, len(tags)) if k else len(tags))
    best: dict[int, list[Prediction]] = {}
    for row, image_id in enumerate(image_ids):
        left_out = set(map(tag_key, rejected.get(image_id, ())))
        of_row = [
            Prediction(tags[tag], float(scores[row, i]), None if sure is None else float(sure[row, i]))
            for i, tag in enumerate(np.asarray(columns[row]).tolist())
            if not left_out or tag_key(tags[tag]) not in left_out
        ][: k or None]
        best[image_id] = best_of(best[image_id], of_row)[: k or None] if image_id in best else of_row
    return best


def annotate_images(
    tagger: Tagger, stored: StoredCatalogue, image_ids: Sequence[int], k: int
) -> dict[int, list[Prediction]]:
    """Tag images of a catalogue, by their features where it has them, else by their files; see `Catalogue.annotate`."""
    check_k(k, 0)
    rejected = stored.tags.rejected(image_ids)
    ids, X = CatalogueFeatures(stored, tagger.encoder.fingerprint).rows(stored.frames.with_frames(image_ids))
    best = predictions_of(tagger, X, stored.frames.videos_of(ids), rejected, k)
    others = [
        (image.id, image.path)
        for image in stored.images.get_many(image_ids)
        if image.id not in best and image.path is not None and not is_video(image.path)
    ]
    if others:
        rows, kept, _ = tagger.encoder.encode([path for _, path in others])
        best |= predictions_of(tagger, rows, [others[i][0] for i in kept], rejected, k)
    return {image_id: best[image_id] for image_id in image_ids if image_id in best}
