"""Indexing: update a catalogue from a folder, chunk by chunk, so that committed chunks survive a killed process."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import NoneReadableError
from visterm.core.persist import write_skipped
from visterm.core.progress import SILENT, Progress, StepProgress, reported
from visterm.core.remote import is_remote
from visterm.core.types import CLOSED, NO_TAGS, Skipped
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.data.contents import file_state
from visterm.data.image_folders import NotRead, count_not_read, is_there, is_video
from visterm.features.video_rows import VIDEO_BATCH
from visterm.library.files import ComparedFiles, compare, is_inside
from visterm.library.photos import LEADS_OUT, ListedPhotos, remember_words, with_folder_names
from visterm.library.rows import RowWriter
from visterm.library.runs import index_rows_if_due
from visterm.store.catalogue import SKIPPED, StoredCatalogue
from visterm.store.database import as_text
from visterm.store.history import CatalogueJob, StoredProgress
from visterm.tagging.tagger import Tagger


@dataclass(frozen=True, slots=True)
class Indexed:
    """Result of indexing; each image is counted once."""

    new: int = 0  # Added images
    changed: int = 0  # Images with new content, encoded again; they keep id, tags and feedback
    moved: int = 0  # Images with a new path, or that were gone before; not encoded again
    gone: int = 0  # Images no longer in the folder; searches skip them, but their data is kept
    kept: int = 0  # Unchanged images
    skipped: list[Skipped] = field(default_factory=list)  # Unreadable images; if in the catalogue, they stay
    encoded: int = 0  # Number of images that were decoded and encoded
    rows: int = 0  # Older images that got a missing row of the run, from stored features if possible
    cancelled: bool = False  # Whether the job was cancelled; all counts are committed
    remarks: list[str] = field(default_factory=list)  # Notes for people about unread parts of the folder
    not_read: NotRead | None = None  # Other files in the folder; None: not counted

    def warn_of_skipped(self) -> None:
        """Warn if some images were skipped. Raises NoneReadableError if all of them were skipped."""
        if not self.skipped:
            return
        if not (self.new or self.changed or self.moved or self.kept):
            raise NoneReadableError(self.skipped)
        n_skipped, first = count_of(len(self.skipped), "photo"), self.skipped[0]
        warnings.warn(f"Skipped {n_skipped}, such as {first.image}: {first.reason}. See `skipped`.", stacklevel=3)

    def as_dict(self) -> dict[str, object]:
        """Return the counts as JSON data, including the number of skipped files."""
        counts = {name: value for name, value in asdict(self).items() if name not in ("remarks", "not_read")}
        return counts | {"skipped": len(self.skipped)}

    def summary(self, *, kept: bool = True) -> str:
        """Return the counts for people: ``3 new, 1 moved``; with `kept`, also the number of unchanged images."""
        counts = {"new": self.new, "changed": self.changed, "moved": self.moved, "gone": self.gone}
        counts |= {"unchanged": self.kept} if kept else {}
        return ", ".join(f"{count:,} {label}" for label, count in counts.items() if count) or "nothing new"


class Indexing:
    """Updates a catalogue from a folder; `tagger` is the current run, which computes the rows."""

    def __init__(self, tagger: Tagger, stored: StoredCatalogue) -> None:
        self._tagger, self._stored = tagger, stored
        self._n_jobs = getattr(tagger.encoder, "n_jobs", None)
        self._writer = RowWriter(tagger, stored, stored.runs.current().id)

    def run(
        self,
        photos: ListedPhotos,
        *,
        chunk_size: int,
        job_id: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        progress: Progress = SILENT,
    ) -> Indexed:
        """Index photos; see `Catalogue.index`. Stops between two chunks when `stop` returns True."""
        photos = self._writer.with_spelled_tags(photos)  # before anything is written
        with CatalogueJob(self._stored.jobs, "index", job_id, stop) as job, self._stored.writing():
            progress = StoredProgress(self._stored.jobs, job.id, progress)
            photos, is_named = with_folder_names(self._stored, photos)
            remember_words(self._stored, photos)
            may_be_gone, root = photos.may_be_gone, photos.root
            if may_be_gone is None and root is not None:
                may_be_gone = partial(is_inside, root=root)
            compared = compare(self._stored, photos.paths(), photos.names, may_be_gone=may_be_gone, n_jobs=self._n_jobs)
            self._update_unencoded(photos, compared, is_named)
            self._writer.features.sweep()
            self._writer.videos.sweep()
            self._update_skipped(photos)

            positions_to_encode = sorted([*compared.new, *compared.changed])
            with reported(progress, "index photos", len(positions_to_encode)):
                steps = StepProgress(progress)
                added, skipped = self._encode_all(photos, compared, positions_to_encode, chunk_size, job, steps)
            n_changed = sum(position in compared.changed for position in added)
            filled = self._writer.fill(chunk_size, job, progress)
            remarks = [*photos.remarks]
            if undated := self._writer.undated:
                undated_text = f"{count_of(len(undated), 'photo')} whose date cannot be read, such as {min(undated)}"
                remarks.append(f"Without a date: {undated_text}.")
            not_read = photos.not_read
            if not_read is None and root is not None and not is_remote(root):
                not_read = count_not_read([root], videos=True)
            result = Indexed(
                new=len(added) - n_changed, changed=n_changed, moved=len(compared.moved), gone=len(compared.gone),
                kept=len(photos.items) - len(compared.moved) - len(positions_to_encode),
                skipped=[*photos.left_out, *skipped], rows=filled.rows, cancelled=job.cancelled, remarks=remarks,
                encoded=filled.encoded + (len(added) if photos.sha256_of is None else 0), not_read=not_read,
            )  # fmt: skip
            if not job.cancelled:
                self._stored.compact()
                index_rows_if_due(self._tagger, self._stored)

            counts = {name: value for name, value in result.as_dict().items() if value}
            self._stored.history.note(
                "index",
                folder=root or "",
                **({"tags": photos.tags_from} if photos.tags_from else {}),
                **counts,
                **({"not read": not_read.text} if not_read and not_read.text else {}),
            )
            job.message = ", ".join(f"{value:,} {name}" for name, value in counts.items() if name != "cancelled")

        if self._stored.folder is not None:
            write_skipped(self._stored.folder / SKIPPED, self._stored.skipped.all())
        return result

    def _update_unencoded(self, photos: ListedPhotos, compared: ComparedFiles, is_named: NDArray[np.bool_]) -> None:
        """Store moved and gone images in one transaction; then update tags and names of present images."""
        stored = self._stored
        if compared.moved or compared.gone:
            paths = photos.paths()
            with stored.transaction():
                stored.mark([*compared.gone, *compared.moved.values()], "gone")  # first free all paths
                for position, image_id in compared.moved.items():
                    path = str(paths[position])
                    state = file_state(path)
                    stored.images.move(image_id, path, photos.names[position], state[1] if state else 0)

        skipped = [item.image for item in stored.skipped.all()]
        stored.skipped.remove(image for image in skipped if not (os.path.lexists(image) or is_there(image)))
        present = chain(compared.kept.items(), compared.moved.items())
        listed_tags = ((image_id, photos.tags[position]) for position, image_id in present)
        listed_by_file = {image_id: tags for image_id, tags in listed_tags if tags is not None}
        previous_tags: defaultdict[int, dict[str, set[str]]] = defaultdict(lambda: {"file": set(), "person": set()})
        statement = "SELECT image_id, tags.name, source FROM given JOIN tags ON tags.id = tag_id"
        for image_id, tag, source in stored.database.rows(statement) if listed_by_file else ():
            previous_tags[image_id][source].add(tag_key(tag))
        with stored.database.transaction():
            for image_id, tags in listed_by_file.items():
                if set(map(tag_key, tags)) - previous_tags[image_id]["person"] != previous_tags[image_id]["file"]:
                    stored.tags.set_from_file(image_id, tags)

        renamed = (i for i in compared.renamed if is_named[i] and i in compared.kept)
        stored.database.write_many(  # for example if a parent folder was indexed
            "UPDATE images SET name = CAST(? AS TEXT) WHERE id = ?",
            [(as_text(photos.names[i]), compared.kept[i]) for i in renamed],
        )

    def _update_skipped(self, photos: ListedPhotos) -> None:
        """Update the list of skipped links and folders; unreadable photos are listed elsewhere."""
        skipped, root = self._stored.skipped, photos.root
        previous = skipped.all()
        links = {item.image for item in previous if item.reason.startswith(LEADS_OUT)}
        unreadable = [item.image for item in previous if item.reason.startswith((CLOSED, NO_TAGS))]
        skipped.remove(links.intersection(str(item) for item in photos.items if not isinstance(item, np.ndarray)))
        skipped.remove(path for path in unreadable if root is not None and is_inside(os.path.realpath(path), root))
        skipped.add(photos.left_out)

    def _encode_all(
        self,
        photos: ListedPhotos,
        compared: ComparedFiles,
        positions: Sequence[int],
        chunk_size: int,
        job: CatalogueJob,
        steps: StepProgress,
    ) -> tuple[list[int], list[Skipped]]:
        """Encode and commit photos in chunks, and slower videos in small chunks; return the results of `ingest`."""
        video_positions = [position for position in positions if is_video(photos.items[position])]
        photo_positions = sorted(set(positions) - set(video_positions)) if video_positions else positions
        video_chunks = job.chunks(video_positions, min(chunk_size, VIDEO_BATCH))
        added: list[int] = []
        skipped: list[Skipped] = []
        for chunk in chain(job.chunks(photo_positions, chunk_size), video_chunks):
            added_in_chunk, skipped_in_chunk = self._writer.ingest(photos, chunk, compared.changed, steps)
            added += added_in_chunk
            skipped += skipped_in_chunk
        return added, skipped
