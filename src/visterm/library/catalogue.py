"""The catalogue: photos with their rows, tags and feedback, found by words and learned from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from visterm.core.errors import EncoderMismatchError, StorageError
from visterm.core.persist import new_folder, write_skipped
from visterm.core.progress import SILENT, Progress
from visterm.core.types import CHUNK, Skipped
from visterm.core.wording import count_of
from visterm.library import earlier_runs as earlier
from visterm.library.feedback import ImageView, TagCount, all_spelled, count_tags, known_image, spelled, take_back
from visterm.library.photos import ListedPhotos, check_has_photos, check_not_connected, photos_of
from visterm.library.search.reader import CatalogueReader
from visterm.store.catalogue import RUNS, SKIPPED, Origin, StoredCatalogue
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
    """Photos to search, with the tagger that made their rows, and with what people say of their tags.

    In memory, or in a folder (`create`, `load`): there all that a method has done is on disk when it returns.

    Parameters
    ----------
    tagger : Tagger
        A fitted one; the catalogue keeps a copy of its run, so that it can be searched on its own.

    Attributes
    ----------
    tagger : Tagger
        The current run.
    stored : StoredCatalogue
        The tables and rows themselves: images, tags, runs, jobs.
    skipped : list of Skipped
        Images that could not be read, or that the encoder does not know.

    Examples
    --------
    >>> catalogue = Catalogue(tagger)  # doctest: +SKIP
    >>> catalogue.add("photos").search("snow tree", k=3).hits  # doctest: +SKIP
    [Hit('photos/7.jpg', confidence=0.93, id=6), ...]
    """

    def __init__(self, tagger: Tagger) -> None:
        self._n_jobs: int | None = None
        origin = Origin(tagger.path, tagger.fingerprint, tagger.encoder.fingerprint)
        self.stored = StoredCatalogue(origin)
        self._use_tagger(tagger)

    @classmethod
    def create(cls, path: str | os.PathLike[str], tagger: Tagger, *, store: str = FILES) -> Self:
        """Make an empty catalogue in a folder that is not there or empty.

        Raises StorageError if anything lies there; UserError if there is no such store.

        Parameters
        ----------
        path : path-like
        tagger : Tagger
        store : str
            Where rows are kept: "files", "lance" (LanceDB's tables in the catalogue's folder, extra `lance`) or
            "lance:URI" (at another place, such as ``lance:s3://bucket/folder``). Tables hold dense rows only.
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

        Several processes may search one, and give feedback, while one of them indexes or learns; a second one that
        tries to do so gets an error that names the first. With `run`, which you pass to `use` next, the current run is
        not read: it may be damaged. Raises StorageError if there is no catalogue at `path`, or it was damaged;
        EncoderMismatchError if its run is not the one that made the rows.
        """
        catalogue = cls.__new__(cls)
        catalogue._n_jobs = n_jobs
        catalogue.stored = stored = StoredCatalogue.open(path)
        origin = stored.origin
        if run is not None:
            catalogue._use_tagger(catalogue._own_run(run) if isinstance(run, str) else run)
            catalogue._fingerprint = origin.fingerprint
            return catalogue
        try:
            catalogue._use_tagger(Tagger.open(stored.run_folder, n_jobs))
        except StorageError as error:
            raise earlier.naming_earlier(stored, error) from error
        if catalogue._fingerprint != origin.fingerprint:
            raise EncoderMismatchError(
                f"This catalogue was made by {origin.run or 'an unsaved run'} ({origin.fingerprint}), not by this run "
                f"({catalogue._fingerprint}): their rows cannot be compared. Index the images again with this run."
            )
        return catalogue

    def __len__(self) -> int:
        """Return how many images can be searched."""
        return len(self.stored)

    def __repr__(self) -> str:
        where = "in memory" if self.stored.folder is None else f"in {self.stored.folder}"
        return f"Catalogue of {count_of(len(self), 'photo')} {where}, searched by {self.tagger!r}"

    @property
    def records(self) -> Sequence[ImageRecord]:
        """What is known of each image that is there: name, path, size, content hash."""
        return self.stored.images.all()

    @property
    def skipped(self) -> list[Skipped]:
        """Images that could not be read, or that the encoder does not know, until they can be."""
        return self.stored.skipped.all()

    def add(
        self,
        images: Photos,
        tags: str | os.PathLike[str] | Sequence[Sequence[str]] | None = None,
        *,
        progress: Progress = SILENT,
    ) -> Self:
        """Take photos in, as `index` does, but let none be gone that are there already.

        Warns if some are skipped (`skipped` lists them). Raises NoneReadableError if all are.
        """
        check_not_connected(self.stored)
        listed = photos_of(self.tagger.encoder, images, tags)
        done = self._index(replace(listed, root=None), CHUNK, None, progress)
        done.tell_skipped(images)
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
        progress: Progress = SILENT,
    ) -> Indexed:
        """Bring the catalogue to what lies in a folder: encode what is new or has changed, and see what moved or went.

        Files are compared by path, size and date, and where these differ by content. Each chunk is committed with its
        rows, features, tags and predictions: after a kill the same call goes on. Raises EncoderMismatchError if
        features are given that another encoder made than the tagger's; UserError if the tagger knows images by number:
        there are no photos to keep; or if the catalogue is connected to another program's library, see `visterm sync`;
        DataError if the encoder reads names, and knows none of the images; or features are
        given, and none of the photos is where it was; StorageError if another process writes into it: "in use by".

        Parameters
        ----------
        images : path, Corpus, or sequence of paths or uint8 arrays
            A folder, or the images themselves; or a features folder in place of its images. The photos must still be
            where they were, as the catalogue keeps their places; any that has changed or is gone is skipped.
        tags : path or sequence of lists of str, optional
            The tags that people gave, to keep beside the images: they take the place of those that files gave before.
            Images of the folder that they do not name are indexed, too, and keep the tags that they have. Tags that a
            person gave in the catalogue stay.
        folder : path-like, optional
            Images of the catalogue in this folder whose files are not there any more are gone. None: `images`, where it
            is a folder.
        follow_links : bool
            Take links to photos outside of the folder, too; the folder itself may be a link either way.
        chunk_size : int
            Images between two commits.
        job_id : int, optional
            A job of the catalogue (`Jobs.start`) to go on with, which may be cancelled between two chunks; None: a new
            one.
        progress : Progress
            Shows each image.
        """
        check_not_connected(self.stored)
        self.refresh()
        listed = photos_of(self.tagger.encoder, images, tags, folder)
        if not follow_links:
            listed = listed.inside()
        return self._index(listed, chunk_size, job_id, progress)

    def _index(self, listed: ListedPhotos, chunk_size: int, job_id: int | None, progress: Progress) -> Indexed:
        from visterm.library.index import Indexing

        work = Indexing(self.tagger, self.stored)
        return work.run(listed, chunk_size=chunk_size, job_id=job_id, progress=progress)

    def use(
        self,
        tagger: Tagger | str,
        *,
        kind: str = earlier.USE_RUN,
        chunk_size: int = CHUNK,
        job_id: int | None = None,
        progress: Progress = SILENT,
    ) -> Filled:
        """Go over to another run: it becomes the current one, in one step, when the images have rows of it.

        Rows are made from stored features where its encoder is the one that made these, else the images are encoded;
        after a kill the same call goes on. Until then the old run searches. Returns how many rows were made, and how
        many images encoded for them.

        Parameters
        ----------
        tagger : Tagger or str
            A run, or one that the catalogue has already, by its number or the first letters of its fingerprint.
        kind : str
            What the history calls it; see `go_back`.
        chunk_size, job_id, progress
            As in `index`.
        """
        from visterm.library.runs import adopt

        if isinstance(tagger, str):
            tagger = self._own_run(tagger)
        check_has_photos(tagger.encoder)
        filled = adopt(tagger, self.stored, kind=kind, chunk_size=chunk_size, job_id=job_id, progress=progress)
        if self.stored.origin.fingerprint == tagger.fingerprint:
            self._use_tagger(tagger)
        return filled

    def go_back(
        self, to: str = "", *, chunk_size: int = CHUNK, job_id: int | None = None, progress: Progress = SILENT
    ) -> Filled:
        """Go back to the run that was in use before the current one; all that people said stays as it is.

        Twice goes back by two runs. `to` is another of the `earlier_runs`, by its number. Rows that are not there any
        more are made anew, as by `use`. Raises UserError if there is no such run; StorageError if its files are gone.
        """
        run = earlier.run_to_go_back_to(self.stored, to).fingerprint
        return self.use(run, kind=earlier.GO_BACK, chunk_size=chunk_size, job_id=job_id, progress=progress)

    def earlier_runs(self) -> list[earlier.ShownRun]:
        """List the runs that `go_back` can go back to, with their figures, the latest first."""
        return earlier.shown_runs(self.stored, earlier.earlier_runs(self.stored))

    def _own_run(self, name: str) -> Tagger:
        """Open a run of the catalogue by its number or the first letters of its fingerprint."""
        run = earlier.find_run(earlier.known_runs(self.stored), name)
        return Tagger.open(self.stored.run_folder.with_name(run.fingerprint), self._n_jobs)

    def image(self, image_id: int) -> ImageView:
        """Return one image, here or gone, with its tags: given, predicted, accepted, rejected and written.

        Raises DataError if the id is not known.
        """
        stored = self.stored
        with stored.database.transaction(writes=False):
            record = known_image(stored, image_id)
            return ImageView(
                record,
                stored.tags.given(image_id, standing=True),
                stored.tags.predictions(image_id, stored.runs.current().id),
                stored.tags.verdicts(image_id),
                stored.written.of_image(image_id),
                stored.connected.links([record.id]).get(record.id),
            )

    def annotate(self, image_ids: Sequence[int], k: int = 5) -> dict[int, list[Prediction]]:
        """Tag images of the catalogue, by id, best first, with confidences; tags that a person rejected are left out.

        Parameters
        ----------
        image_ids : sequence of int
            Those that are not known, or have neither features nor a file that can be read, are left out.
        k : int
            Tags an image; 0 means all.
        """
        from visterm.library.rows import annotate_images

        self.refresh()
        return annotate_images(self.tagger, self.stored, image_ids, k)

    def judge(self, image_id: int, tag: str, verdict: int) -> int:
        """Write down that a tag of an image is right (1) or wrong (-1), or take that back (0); one transaction.

        A rejected tag does not come back for that image: not as a prediction, in searches, filters or exports. The
        image counts as reviewed. Raises DataError if the id is not known; UserError if the verdict is another number,
        or the tag is empty. Returns the number of the entry in the log.
        """
        stored = self.stored
        name = spelled(self.tagger.vocabulary, tag, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            number = stored.tags.judge(image_id, name, verdict, run_id=stored.runs.current().id)
            stored.images.mark_reviewed([image_id])
        return number

    def give(self, image_id: int, tags: Iterable[str]) -> None:
        """Add a person's tags to an image, any words; one transaction. Rejections of these are taken back."""
        stored = self.stored
        names = all_spelled(self.tagger.vocabulary, tags, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            stored.tags.give(image_id, names, "person")
            take_back(stored, image_id, names, -1)
            stored.images.mark_reviewed([image_id])

    def take(self, image_id: int, tags: Iterable[str]) -> None:
        """Take tags from an image; one transaction. One that a tag file gives is rejected, so that it stays away."""
        stored = self.stored
        names = all_spelled(self.tagger.vocabulary, tags, stored)
        with stored.database.transaction():
            image_id = known_image(stored, image_id).id
            from_files = {tag.tag for tag in stored.tags.given(image_id) if tag.source == "file"}
            stored.tags.take(image_id, names, "person")
            take_back(stored, image_id, names, 1)
            run_id = stored.runs.current().id
            for name in from_files.intersection(names):  # the file will name it again: what lasts is the rejection
                stored.tags.judge(image_id, name, -1, run_id=run_id)
            stored.images.mark_reviewed([image_id])

    def new_tags(self) -> dict[str, int]:
        """Return the tags of photos that the run has not learned yet, with how many photos have each."""
        known = self.tagger.dictionary
        fresh = {name for name in self.stored.tags.names_here().values() if name not in known}
        return {name: len(self.stored.find(Filter(tags=(name,)))) for name in fresh}

    def tags(self) -> list[TagCount]:
        """List all tags of images and of the run by name: how often given, accepted, rejected and predicted."""
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
        progress: Progress = SILENT,
    ) -> LearningOutcome:
        """Learn from given and accepted tags and from rejected ones, by stored features; the new run is then current.

        A tenth of the images, chosen by their content, is never learned from, if that gives up no tag and leaves 20 or
        more to compare: on them the old and the new run are compared. A new run that is significantly worse there is
        kept, but not used, nor is one that a person went back from (`go_back`). Raises DataError if no image has a tag
        to learn from; UserError if the model learns all at once, the catalogue has far fewer images with tags than its
        run learned from, and `full` was not asked for; StorageError if another process writes into it; or it is in
        memory only.

        Parameters
        ----------
        full : bool
            Learn all anew. Otherwise only the rows of tags move, once over the images, where the model can do that
            (`partial_fit`), so that the rows of images stay valid; new tags want a full fit.
        min_count : int
            Of a full fit: leave out tags of fewer images.
        use_even_if_worse : bool
            Use the new run in any case. `use` changes that later.
        cautious : bool
            Also keep the old run where it is better on held-out images that are too few to tell.
        by_itself : bool
            Learning began by itself: after a person went back, use a new run only if it is significantly better.
        job_id : int, optional
            A job of the catalogue to go on with; None: a new one.
        progress : Progress
            Shows each step.
        """
        from visterm.library.learn import learn

        outcome = learn(
            self.tagger, self.stored, full=full, min_count=min_count, use_even_if_worse=use_even_if_worse,
            cautious=cautious, by_itself=by_itself, job_id=job_id, progress=progress,
        )  # fmt: skip
        self.refresh()
        return outcome

    def look_for_mistakes(self, *, job_id: int | None = None, progress: Progress = SILENT) -> int | None:
        """Find tags that are probably wrong or missing, and keep them for `mistakes`, 2,000 of each kind at most.

        The run's model learns five times, each time from four fifths of the images with tags, and judges the others.
        What people gave, accepted or rejected in the catalogue is not listed. Returns how many are kept; None if the
        job `job_id` was cancelled: then nothing has changed. Raises DataError if fewer than 50 images have tags and
        features; UserError if the model learns from a kernel; StorageError if the catalogue is in memory.
        """
        from visterm.library.mistakes import look_for_mistakes

        self.refresh()
        return look_for_mistakes(self.tagger, self.stored, job_id=job_id, progress=progress)

    def mistakes(self, limit: int = 100, *, kind: str | None = None, tag: str | None = None) -> list[Mistake] | None:
        """List the probable mistakes that `look_for_mistakes` found, without those answered since.

        Returns `limit` at most, of one `kind` ("missing" or "wrong") or both, missing tags first, of one `tag` or all,
        the most probable of a kind first; None if nobody has looked for mistakes yet.
        """
        from visterm.library.mistakes import kept_mistakes

        named = None if tag is None else self.tagger.vocabulary.spellings(tag)[0]
        return kept_mistakes(self.stored, limit, kind=kind, tag=named, tree=self.tree)

    def refresh(self) -> bool:
        """Open the current run again, where another process or thread has learned one since; return whether it has."""
        if self.stored.folder is None or self.stored.origin.fingerprint == self._fingerprint:
            return False
        self._use_tagger(Tagger.open(self.stored.run_folder, self._n_jobs))
        return True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the catalogue as a folder, whole or not there; where it was loaded from, only its run: rows are there.

        Raises StorageError if something that is not a catalogue lies at `path`.
        """
        if self.stored.folder is not None and os.path.realpath(path) == os.path.realpath(self.stored.folder):
            self.tagger.save(self.stored.run_folder, overwrite=True)
            write_skipped(self.stored.folder / SKIPPED, self.skipped)
            return
        with new_folder(path, "catalogue", changing=True) as folder:
            self.stored.write_into(folder)
            self.tagger.save(folder / RUNS / self.tagger.fingerprint)
            write_skipped(folder / SKIPPED, self.skipped)
