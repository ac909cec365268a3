"""The catalogue: photos with their rows, tags and feedback, for searches and training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from visterm.core.errors import EncoderMismatchError, StorageError, UserError
from visterm.core.persist import new_folder, write_skipped
from visterm.core.progress import SILENT, Progress
from visterm.core.types import CHUNK, Skipped
from visterm.core.wording import count_of
from visterm.library import runs
from visterm.library.feedback import ImageView, TagCount, all_spelled, count_tags, known_image, spelled, undo_verdicts
from visterm.library.photos import ListedPhotos, check_has_photos, check_not_connected, photos_of
from visterm.library.search.reader import CatalogueReader
from visterm.store import RUNS
from visterm.store.catalogue import SKIPPED, Origin, StoredCatalogue
from visterm.store.filters import Filter
from visterm.store.images import ImageRecord
from visterm.store.lance_rows import FILES, lance_uri
from visterm.store.tags import Prediction
from visterm.tagging.tagger import Tagger

if TYPE_CHECKING:
    from visterm.features.training_rows import Photos
    from visterm.library.index import Indexed
    from visterm.library.learned import LearningOutcome
    from visterm.library.rows import Filled
    from visterm.tagging.mistakes import Mistake


class Catalogue(CatalogueReader):
    """Photos to search, with the tagger that computed their rows, and people's feedback on their tags.

    In memory, or in a folder (`create`, `load`), where each method saves its changes to disk before it returns.

    Parameters
    ----------
    tagger : Tagger
        A fitted tagger; the catalogue has its own copy of the run.

    Attributes
    ----------
    tagger : Tagger
        The current run.
    stored : StoredCatalogue
        The tables and rows: images, tags, runs, jobs.
    skipped : list of Skipped
        Images that could not be read, or that the encoder does not know.

    Examples
    --------
    >>> catalogue = Catalogue(tagger)  # doctest: +SKIP
    >>> catalogue.add("photos").search("snow tree", k=3).hits  # doctest: +SKIP
    [Hit('photos/7.jpg', confidence=0.93, id=6), ...]
    """

    def __init__(self, tagger: Tagger) -> None:
        _check_tagger(tagger)
        self._n_jobs = None
        origin = Origin(tagger.path, tagger.fingerprint, tagger.encoder.fingerprint)
        self.stored = StoredCatalogue(origin)
        self._use_tagger(tagger)

    @classmethod
    def create(cls, path: str | os.PathLike[str], tagger: Tagger, *, store: str = FILES) -> Self:
        """Create an empty catalogue in a folder that does not exist or is empty.

        Raises StorageError if the folder is not empty; UserError if `store` is invalid.

        Parameters
        ----------
        path : path-like
        tagger : Tagger
        store : str
            Where rows are stored: "files", "lance" (LanceDB's tables in the catalogue's folder, extra `lance`) or
            "lance:URI" (elsewhere, such as ``lance:s3://bucket/folder``). Lance tables only accept dense rows.
        """
        uri = lance_uri(store)
        if Path(path).is_dir() and any(Path(path).iterdir()):
            raise StorageError(f"{path} is not empty. Choose another name for the catalogue.")
        cls(tagger).save(path)
        catalogue = cls.load(path)
        if uri is not None:
            catalogue.stored.keep_in_lance(uri)
        return catalogue

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, run: Tagger | str | None = None) -> Self:
        """Open a catalogue; its rows stay on disk, memory-mapped.

        Several processes may search a catalogue and give feedback, but only one at a time may index or learn; others
        get an error that names that process. Pass `run` to repair a catalogue whose current run is damaged: `run` is
        opened instead; then pass it to `use`. Raises StorageError if there is no catalogue at `path`, or it is
        damaged; EncoderMismatchError if the rows were computed by another run.
        """
        catalogue = cls.__new__(cls)
        catalogue._n_jobs = n_jobs
        catalogue.stored = stored = StoredCatalogue.open(path)
        origin = stored.origin
        if run is not None:
            catalogue._use_tagger(catalogue._own_run(run) if isinstance(run, str) else run)
            catalogue._fingerprint = origin.fingerprint
            return catalogue

        with runs.go_back_advice(stored):
            catalogue._use_tagger(Tagger.open(stored.run_folder, n_jobs))

        if catalogue._fingerprint != origin.fingerprint:
            raise EncoderMismatchError(
                f"This catalogue was made by {origin.run or 'an unsaved run'} ({origin.fingerprint}), not by this run "
                f"({catalogue._fingerprint}): their rows cannot be compared. Index the images again with this run."
            )
        return catalogue

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, run: Tagger | str | None = None) -> Self:
        """Open a catalogue, the same as `load`."""
        return cls.load(path, n_jobs=n_jobs, run=run)

    def __len__(self) -> int:
        """Return the number of searchable images."""
        return len(self.stored)

    def __repr__(self) -> str:
        location = "in memory" if self.stored.folder is None else f"in {self.stored.folder}"
        return f"Catalogue of {count_of(len(self), 'photo')} {location}, searched by {self.tagger!r}"

    @property
    def records(self) -> Sequence[ImageRecord]:
        """Records of all present images: name, path, size, content hash."""
        return self.stored.images.all()

    @property
    def skipped(self) -> list[Skipped]:
        """Images that could not be read, or that the encoder does not know."""
        return self.stored.skipped.all()

    def add(
        self,
        images: Photos,
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Add or update photos like `index`, but never mark other photos as gone.

        Warns if some photos are skipped (see `skipped`). Raises NoneReadableError if all of them are.
        """
        check_not_connected(self.stored)
        listed = photos_of(self.tagger.encoder, images, tags)
        result = self._index(replace(listed, root=None), CHUNK, None, progress or SILENT)
        result.warn_of_skipped()
        return self

    def index(
        self,
        images: Photos,
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        follow_links: bool = False,
        chunk_size: int = CHUNK,
        job_id: int | None = None,
        progress: Progress | None = None,
    ) -> Indexed:
        """Update the catalogue from a folder: encode new and changed images, and detect moved and deleted images.

        Files are compared by path, size and date, and by content if these differ. Each chunk is committed with its
        rows, features, tags and predictions: if the process is killed, call `index` again to continue. Raises
        EncoderMismatchError if `images` are features by another encoder; UserError if the tagger identifies images only
        by number, or the catalogue is connected to another program's library (see `visterm sync`); DataError if the
        encoder reads names and knows none of the images, or none of the photos of features is at its old path;
        StorageError if another process is writing into the catalogue ("in use by").

        Parameters
        ----------
        images : path, Corpus, or sequence of paths or uint8 arrays
            A folder, or the images themselves; or a features folder, whose photos must still be at their old paths:
            photos that were changed or deleted since are skipped.
        tags : path or sequence of lists of str, optional
            Tags that people gave to the images: they replace earlier tags from files, but not tags that a person gave
            in the catalogue. Images of the folder that are not in the tag file are indexed, too, and keep their tags.
        folder : path-like, optional
            Images of the catalogue in this folder are marked as gone if their file no longer exists. None: `images`, if
            it is a folder.
        follow_links : bool
            Whether to index links to photos outside the folder, too; the folder itself may always be a link.
        chunk_size : int
            Number of images per commit.
        job_id : int, optional
            An existing job of the catalogue (`Jobs.start`) to use, which can be cancelled between two chunks; None:
            start a new job.
        progress : Progress, optional
            Shows each image.
        """
        check_not_connected(self.stored)
        self.refresh()
        listed = photos_of(self.tagger.encoder, images, tags, folder)
        if not follow_links:
            listed = listed.without_links_outside()
        return self._index(listed, chunk_size, job_id, progress or SILENT)

    def _index(self, listed: ListedPhotos, chunk_size: int, job_id: int | None, progress: Progress) -> Indexed:
        from visterm.library.index import Indexing

        work = Indexing(self.tagger, self.stored)
        return work.run(listed, chunk_size=chunk_size, job_id=job_id, progress=progress)

    def use(
        self,
        tagger: Tagger | str,
        *,
        kind: str = runs.USE_RUN,
        job_id: int | None = None,
        progress: Progress | None = None,
    ) -> Filled:
        """Switch to another run, which becomes the current run once all images have rows of it.

        Rows are computed from stored features if the run has the same encoder, else the images are encoded. Meanwhile
        searches use the old run. If the process is killed, call `use` again to continue. Returns the number of new
        rows, and of images that were encoded for them.

        Parameters
        ----------
        tagger : Tagger or str
            A run, or the number or first letters of the fingerprint of a run that the catalogue already has.
        kind : str
            The name of this event in the history; see `go_back`.
        job_id, progress
            As in `index`.
        """
        if isinstance(tagger, str):
            tagger = self._own_run(tagger)
        check_has_photos(tagger.encoder)
        filled = runs.switch_run(tagger, self.stored, kind=kind, job_id=job_id, progress=progress or SILENT)
        if self.stored.origin.fingerprint == tagger.fingerprint:
            self._use_tagger(tagger)
        return filled

    def go_back(self, to: str = "", *, progress: Progress | None = None) -> Filled:
        """Go back to the run that was in use before the current one; people's feedback is kept.

        Call it twice to go back two runs, or pass the number of any of the `earlier_runs` as `to`. Missing rows are
        computed again, as by `use`. Raises UserError if the run does not exist; StorageError if its files are gone.
        """
        run = runs.run_to_go_back_to(self.stored, to).fingerprint
        return self.use(run, kind=runs.GO_BACK, progress=progress)

    def earlier_runs(self) -> list[runs.ShownRun]:
        """List the runs that `go_back` can go back to, with their figures, latest first."""
        return runs.shown_runs(self.stored, runs.earlier_runs(self.stored))

    def _own_run(self, name: str) -> Tagger:
        """Open a run of the catalogue by its number or the first letters of its fingerprint."""
        run = runs.find_run(runs.known_runs(self.stored), name)
        return Tagger.open(self.stored.run_folder.with_name(run.fingerprint), self._n_jobs)

    def image(self, image_id: int) -> ImageView:
        """Return one image, present or gone, with its tags: given, predicted, accepted, rejected and written.

        Raises DataError if the id is unknown.
        """
        stored = self.stored
        with stored.database.transaction(writes=False):
            record = known_image(stored, image_id)
            return ImageView(
                record,
                stored.tags.given(image_id, only_active=True),
                stored.tags.predictions(image_id, stored.runs.current().id),
                stored.tags.verdicts(image_id),
                stored.written.of_image(image_id),
                stored.tags.judged_by(image_id),
                stored.connected.links([record.id]).get(record.id),
            )

    def annotate(
        self, image_ids: Sequence[int], k: int = 5, *, progress: Progress | None = None
    ) -> dict[int, list[Prediction]]:
        """Predict tags for images of the catalogue: image id -> tags, best first, without tags that a person rejected.

        Parameters
        ----------
        image_ids : sequence of int
            Unknown images, and images without features or a readable file, are left out.
        k : int
            Maximum number of tags per image; 0 means all.
        progress : Progress, optional
            Shows each image that has to be encoded.
        """
        from visterm.library.rows import annotate_images

        self.refresh()
        return annotate_images(self.tagger, self.stored, image_ids, k, progress or SILENT)

    def judge(self, image_id: int, tag: str, verdict: int) -> int:
        """Record that a tag of an image is right (1) or wrong (-1), or undo that (0), in one transaction.

        A rejected tag no longer appears for that image in predictions, searches, filters or exports. The image counts
        as reviewed. Returns the number of the log entry. Raises DataError if the id is unknown; UserError if the
        verdict is invalid, or the tag is empty.
        """
        stored = self.stored
        name = spelled(self.tagger.vocabulary, tag, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            number = stored.tags.judge(image_id, name, verdict, run_id=stored.runs.current().id)
            stored.images.mark_reviewed([image_id])
        return number

    def give(self, image_id: int, tags: Iterable[str]) -> None:
        """Add a person's tags to an image in one transaction, and undo rejections of these tags."""
        stored = self.stored
        names = all_spelled(self.tagger.vocabulary, tags, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            stored.tags.give(image_id, names, "person")
            undo_verdicts(stored, image_id, names, -1)
            stored.images.mark_reviewed([image_id])

    def take(self, image_id: int, tags: Iterable[str]) -> None:
        """Remove tags from an image in one transaction, and reject those of them that a tag file gives."""
        stored = self.stored
        names = all_spelled(self.tagger.vocabulary, tags, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            from_files = {tag.tag for tag in stored.tags.given(image_id) if tag.source == "file"}
            stored.tags.remove(image_id, names, "person")
            undo_verdicts(stored, image_id, names, 1)
            run_id = stored.runs.current().id
            for name in from_files.intersection(names):  # the file would give the tag again when it is read next
                stored.tags.judge(image_id, name, -1, run_id=run_id)
            stored.images.mark_reviewed([image_id])

    def new_tags(self) -> dict[str, int]:
        """Return the photos' tags that the run has not learned yet, with their number of photos."""
        dictionary = self.tagger.dictionary
        new_names = {name for name in self.stored.tags.names_here().values() if name not in dictionary}
        return {name: len(self.stored.find(Filter(tags=(name,)))) for name in new_names}

    def tags(self) -> list[TagCount]:
        """List all tags of images and of the run, sorted by name, with counts (given, accepted and so on)."""
        return count_tags(self.stored, self.tagger.vocabulary)

    def learn(
        self,
        *,
        full: bool = False,
        min_count: int = 1,
        use_even_if_worse: bool = False,
        cautious: bool = False,
        by_itself: bool = False,
        job_id: int | None = None,
        stop: Callable[[], bool] | None = None,
        progress: Progress | None = None,
    ) -> LearningOutcome:
        """Train a new run on given, accepted and rejected tags with stored features, and make it the current run.

        A tenth of the images, chosen by content, is held out of training to compare the old and the new run, if every
        tag stays learnable and at least 20 images can be compared. If the new run is significantly worse on them, or a
        person went back from it (`go_back`), it is stored but not used.
        Raises DataError if no image has a tag to learn from; UserError if the model cannot be updated, the catalogue
        has far fewer tagged images than its run was trained on, and `full` is False; StorageError if another process
        is writing into the catalogue, or it is in memory only.

        Parameters
        ----------
        full : bool
            Train from scratch. Otherwise, if the model has `partial_fit`, only the rows of tags are updated, in
            one pass over the images, and the rows of images stay valid; new tags need a full fit.
        min_count : int
            For a full fit: leave out tags with fewer images.
        use_even_if_worse : bool
            Always use the new run. You can change that later with `use`.
        cautious : bool
            Also keep the old run if it is better, but not significantly, on the held-out images.
        by_itself : bool
            Training was started automatically: after a person went back, only use a significantly better run.
        job_id : int, optional
            An existing job of the catalogue to use; None: start a new job.
        stop : callable, optional
            Training is cancelled, without changes, when it returns True.
        progress : Progress, optional
            Shows each step.
        """
        from visterm.library.learn import learn

        outcome = learn(
            self.tagger, self.stored, full=full, min_count=min_count, use_even_if_worse=use_even_if_worse,
            cautious=cautious, by_itself=by_itself, job_id=job_id, stop=stop or (lambda: False),
            progress=progress or SILENT,
        )  # fmt: skip
        self.refresh()
        return outcome

    def look_for_mistakes(self, *, job_id: int | None = None, progress: Progress | None = None) -> int | None:
        """Find tags that are probably wrong or missing, and store at most 2,000 of each kind for `mistakes`.

        The run's model is cross-validated: it is trained five times on four fifths of the tagged images and judges the
        others. Tags that people gave, accepted or rejected in the catalogue are never listed. Returns the number of
        stored mistakes; None, without changes, if the job `job_id` was cancelled. Raises DataError if fewer than 50
        images have tags and features; UserError if the model uses a kernel; StorageError if the catalogue is in memory.
        """
        from visterm.library.mistakes import look_for_mistakes

        self.refresh()
        return look_for_mistakes(self.tagger, self.stored, job_id=job_id, progress=progress or SILENT)

    def mistakes(self, limit: int = 100, *, kind: str | None = None, tag: str | None = None) -> list[Mistake] | None:
        """List the most probable mistakes that `look_for_mistakes` found and nobody has answered since.

        Returns at most `limit` mistakes of one `kind` ("missing" or "wrong") or both, missing tags first, of one `tag`
        or all tags, the most probable of a kind first; None if `look_for_mistakes` was never called.
        """
        from visterm.library.mistakes import open_mistakes

        spelling = None if tag is None else self.tagger.vocabulary.spellings(tag)[0]
        return open_mistakes(self.stored, limit, kind=kind, tag=spelling, tree=self.tree)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the catalogue to a new folder, completely or not at all; to its own folder, write only its run.

        Raises StorageError if `path` exists and is not a catalogue.
        """
        if self.stored.folder is not None and os.path.realpath(path) == os.path.realpath(self.stored.folder):
            self.tagger.save(self.stored.run_folder, overwrite=True)
            write_skipped(self.stored.folder / SKIPPED, self.skipped)
            return
        with new_folder(path, "catalogue", changing=True) as folder:
            self.stored.write_into(folder)
            self.tagger.save(folder / RUNS / self.tagger.fingerprint)
            write_skipped(folder / SKIPPED, self.skipped)


def _check_tagger(value: object) -> None:
    if not isinstance(value, Tagger):
        expected = "a fitted Tagger; Tagger.load opens a saved one, and Catalogue.open a saved catalogue"
        raise UserError(setting="tagger", value=value, expected=expected)
