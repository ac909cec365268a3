"""What all requests share: the open catalogue, and the bounded threads and processes that work on it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import Depends, Request
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import visterm
from visterm.core.errors import DiskError, ImageError, StorageError, VistermError
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.types import Place, Tag
from visterm.data.image_folders import is_video
from visterm.data.images import max_image_pixels
from visterm.library.catalogue import Catalogue
from visterm.library.feedback import ImageView
from visterm.library.photos import stays_inside
from visterm.library.records import CatalogueVideos
from visterm.library.search.photo_names import complete_names
from visterm.store.images import ImageRecord
from visterm.tagging.explain import Explanation, check_explains, explain, heat_overlay
from visterm.tagging.tag_groups import tag_vectors
from visterm.tagging.tag_map import Completion, Completions, PlacedTag, tag_map
from visterm.tagging.tagger import Tagger
from visterm.web.batching import MAX_BATCH, Batcher, PictureToTag, TagLimits, annotate_together
from visterm.web.bodies import Bodies
from visterm.web.decoding import Decoders, Thumbnails
from visterm.web.errors import LOG, HttpError
from visterm.web.jobs import JobQueue, JobRunner
from visterm.web.metrics import Metrics, figure
from visterm.web.roles import PERSON, Access
from visterm.web.work import Member, Work

R = TypeVar("R")
VERSION: str = visterm.__version__  # looked up once, as a look-up takes longer than a small answer
N_WRITERS = 4  # Threads that write. One commits at a time, and all wait while another process commits.
CHECK_SECONDS = 5.0  # How long a health check waits for the disk of the catalogue
MAX_NAMES = 3  # Names of folders, places, cameras and dates among the completions of a search
MAP_SECONDS = 20.0  # How long a request waits for the map of tags to be drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Limits of a service."""

    upload_bytes: int = 32 * 2**20  # Bytes of a body with pictures; other bodies may have 1 MB or 64 kB, by route
    body_bytes: int = 256 * 2**20  # Bytes of all bodies together that are being received or worked on
    body_seconds: float = 120.0  # Seconds in which a body must arrive
    upload_pixels: int = field(default_factory=max_image_pixels)
    """Pixels of an uploaded picture; by default as many as an indexed photo may have."""
    pictures: int = 16  # Pictures per request
    # Requests, running and waiting together, that search, that list and count, that write, that decode pictures
    # (`decoding`), and that need the model (`encoding`)
    searching: int = 128
    browsing: int = 32
    writing: int = 64
    writing_seconds: float = 30.0  # Seconds that a request may wait for its turn to write
    decoding: int = 64
    encoding: int = 64
    fetching: int = 32  # Requests, running and waiting together, whose pictures are fetched from other servers
    fetchers: int = 16  # Number of such requests that run at the same time
    fetch_bytes: int = 16 * 2**20  # Bytes of all pictures that are fetched for one request
    fetch_seconds: float = 20.0  # Seconds in which all pictures of a request must be fetched
    decoders: int = 2  # Processes that decode uploads; the same number decodes photos of the catalogue
    # Seconds to decode one upload, and one photo of the catalogue
    upload_seconds: float = 10.0
    decoding_seconds: float = 20.0
    decoding_bytes: int = 2**31  # Memory of a decoding process
    thumbnail_bytes: int = 128 * 2**20  # Memory for thumbnails


# Slow to compute, and kept for the run in use
@lru_cache(maxsize=1)
def completions_of(tagger: Tagger) -> Completions:
    """Return the completions of the tags and added words of a run."""
    return Completions(tagger.dictionary)


@lru_cache(maxsize=1)
def has_tag_vectors(tagger: Tagger) -> bool:
    """Return whether a run can compare tags: without vectors of tags there are no similar tags, and no map."""
    return tag_vectors(tagger) is not None


class Service:
    """A catalogue as requests use it. Blocking calls run in the threads of one of the kinds of `Work`.

    Call `catalogue` in a thread of `searching` (reads little), `browsing` (lists and counts much), `writing` (may wait
    until another process has written) or `encoding` (uses the model). `decoders` are for photos of the catalogue, and
    `upload_decoders` for uploads, which a client can make slow to decode.
    """

    def __init__(self, catalogue: Place, access: Access, bounds: Bounds, member: Member) -> None:
        n_workers, figures = member.n_workers, member.figures
        self.path = Path(catalogue).absolute()
        self.access = access
        self.bounds = bounds
        self.metrics = Metrics(member.metrics)
        self.bodies = Bodies(bounds.body_bytes, figures)
        self.catalogue = Catalogue.load(self.path, n_jobs=1)  # one core per request suits many requests best
        new_work = partial(Work, figures=figures)
        n_slow = 2 * bounds.pictures  # Uploads of two requests, which are answered whole
        self.searching = new_work("search", 2, bounds.searching, slow_bound=-(-bounds.searching // (4 * n_workers)))
        self.browsing = new_work("browse", 1, bounds.browsing)
        self.writing = new_work("write", N_WRITERS, bounds.writing, patience_seconds=bounds.writing_seconds)
        self.encoding = new_work("annotate", 1, bounds.encoding, slow_bound=n_slow)
        self.checking = new_work("health", 1, bounds.browsing)
        self.fetching = new_work("fetch", -(-bounds.fetchers // n_workers), bounds.fetching)
        n_decoders = -(-bounds.decoders // n_workers)
        new_pool = partial(Decoders, n_decoders, bounds.decoding, memory_bytes=bounds.decoding_bytes, figures=figures)
        self.decoders = new_pool(max_pixels=max_image_pixels(), seconds=bounds.decoding_seconds)
        self.upload_decoders = new_pool(
            max_pixels=bounds.upload_pixels, seconds=bounds.upload_seconds, slow_bound=n_slow, name="decode uploads"
        )
        self.thumbnails = Thumbnails(self.decoders, bounds.thumbnail_bytes // n_workers, figures.gauge("thumbnails"))
        self._runner: JobRunner | None = None
        tell = member.tell
        if tell is None:
            jobs, refresh = self.catalogue.stored.jobs, self.catalogue.refresh
            self._runner = JobRunner(self.path, jobs, self.writing, figures, refresh)
            tell = self._runner.tell

        self.jobs = JobQueue(self.catalogue, self.writing, tell, figures, member.supervisor)
        self._batcher = Batcher(partial(annotate_together, self.catalogue), self.encoding, MAX_BATCH)
        self._tag_map: tuple[Tagger, asyncio.Task[list[PlacedTag]]] | None = None

    async def start(self) -> None:
        """Start the service in the event loop that answers requests."""
        self._blas_limits = threadpool_limits(1)  # many requests share the cores, and more threads would only compete
        try:
            await self.writing.run(self.catalogue.stored.jobs.mark_lost)
        except DiskError as error:
            LOG.error("Searches work, but nothing can be written: %s", error)

    async def stop(self) -> None:
        """Stop threads and processes."""
        if self._runner is not None:
            await self._runner.close()
        self.decoders.close()
        self.upload_decoders.close()
        for work in (self.searching, self.browsing, self.writing, self.encoding, self.checking, self.fetching):
            work.close()
        self.catalogue.stored.close()
        self._blas_limits.restore_original_limits()

    async def catch_up(self) -> None:
        """Open the run in use if another process has changed it; if that fails, the next search raises the error."""
        with suppress(VistermError):
            await self.encoding.do(self.catalogue.refresh)

    def record_of(self, image_id: int) -> ImageRecord:
        """Return an image's record. Raises HttpError (404) if there is no such image."""
        record = self.catalogue.stored.images.get(image_id)
        if record is None:
            raise HttpError(404, f"There is no photo {image_id} in this catalogue. Searches return the ids of photos.")
        return record

    def file_of(self, image_id: int) -> str:
        """Return the path of an image's file, or its address.

        Raises HttpError (404) if there is no such image or file, or if the file is outside the indexed folders.
        """
        record = self.record_of(image_id)
        if record.path is None or record.state == "gone":
            raise HttpError(404, f"The file of image {image_id} is gone.", code="gone")
        if not stays_inside(self.catalogue.stored, record.path):
            problem = f"The file of image {image_id} is outside the indexed folders, or a link that leads out of them."
            raise HttpError(404, f"{problem} Index its folder.", code="gone")
        return record.path

    def picture_of(self, image_id: int, at: float | None = None) -> str:
        """Return the path of the picture that shows an image; for a video, the frame that is nearest to a moment.

        `at` is in seconds; None: the first frame. Errors are those of `file_of`.
        """
        path = self.file_of(image_id)
        if not is_video(path):
            return path
        try:
            return str(CatalogueVideos(self.catalogue.stored).picture_of(self.record_of(image_id), at))
        except ImageError as error:
            raise HttpError(404, f"Image {image_id} has no picture: {error.reason}.", code="gone") from error

    def view(self, image_id: int) -> ImageView:
        """Return an image with its tags; errors are those of `record_of`."""
        self.record_of(image_id)
        return self.catalogue.image(image_id)

    def complete(self, typed: str, k: int, *, names: bool = False) -> list[Completion]:
        """Complete a tag of the run, an added word, or a tag that people gave; and `MAX_NAMES` names of photos."""
        found_names = complete_names(self.catalogue.stored.database, typed, MAX_NAMES) if names else []
        tags = completions_of(self.catalogue.tagger).find(typed, k, self.catalogue.new_tags())
        return [*tags[: max(1, k - len(found_names))], *found_names][:k]

    async def pixels(self, picture: bytes | str) -> NDArray[np.uint8]:
        """Return a picture at the size that the encoder reads, from an upload's content or a path of the catalogue.

        Raises ImageError if it cannot be read.
        """
        decoders = self.decoders if isinstance(picture, str) else self.upload_decoders
        return await decoders.pixels(picture, getattr(self.catalogue.tagger.encoder, "reading_side", None))

    async def annotate(self, picture: bytes | str, k: int | None, limits: TagLimits) -> list[Tag]:
        """Return the tags of a picture, encoded together with others that wait; errors are those of `pixels`."""
        return await self._batcher.ask(PictureToTag(await self.pixels(picture), k, limits))

    async def annotate_all(
        self, pictures: Sequence[bytes], k: int | None, limits: TagLimits
    ) -> list[list[Tag] | ImageError]:
        """Return the tags of each upload, or the error if it can't be read. Raises ImageError if none can be read."""
        answers: list[list[Tag] | ImageError] = []
        calls = [self.annotate(picture, k, limits) for picture in pictures]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ImageError):
                raise answer
            answers.append(answer)
        unreadable = [answer for answer in answers if isinstance(answer, ImageError)]
        if len(unreadable) == len(answers):
            raise unreadable[0]
        return answers

    async def explain(self, image_id: int, tag: str) -> Explanation:
        """Return how much each place in a photo adds to a tag's score.

        Raises HttpError (404) if there is no such image, or its file is gone; UserError if the run can't explain its
        scores, or doesn't know the tag.
        """
        check_explains(self.catalogue.tagger)
        picture: str | NDArray[np.uint8] = self.record_of(image_id).name
        if self.catalogue.tagger.encoder.reads == "pixels":
            picture = await self.pixels(await self.searching.run(self.picture_of, image_id))
        return await self.encoding.run(explain, self.catalogue.tagger, picture, tag)

    async def heat(self, image_id: int, tag: str, side: int) -> bytes:
        """Return the heat map of a tag as a transparent PNG; errors are those of `explain`."""
        explanation = await self.explain(image_id, tag)

        def draw() -> bytes:
            content = BytesIO()
            heat_overlay(explanation, side).save(content, "PNG")
            return content.getvalue()

        return await self.encoding.run(draw)

    async def tag_map(self) -> list[PlacedTag]:
        """Return the map of the tags, which is drawn once per run.

        Raises HttpError (503) if drawing takes longer than a request should wait; UserError if the model has no vectors
        of tags.
        """
        tagger = self.catalogue.tagger
        if self._tag_map is None or self._tag_map[0] is not tagger:
            # In a separate thread, as pages that use `browsing` would wait for the map, too.
            task = asyncio.create_task(asyncio.to_thread(tag_map, tagger.model, tagger.vocabulary))
            self._tag_map = (tagger, task)
        try:  # drawing goes on if this client disconnects, or has waited too long
            return await asyncio.wait_for(asyncio.shield(self._tag_map[1]), MAP_SECONDS)
        except TimeoutError as error:
            message = "The map of the tags is still being drawn. Try again in 10 s."
            raise HttpError(503, message, headers={"retry-after": "10"}) from error

    async def check_catalogue(self) -> None:
        """Check that the catalogue can be read, even while searches and writes wait.

        Raises StorageError if it was removed or replaced, can't be read, or its disk doesn't answer; HttpError (503) if
        too many health checks wait.
        """
        try:
            await asyncio.wait_for(self.checking.run(self.catalogue.stored.database.check_readable), CHECK_SECONDS)
        except TimeoutError as error:
            raise StorageError(f"The disk of {self.path} did not answer within {CHECK_SECONDS:g} s.") from error

    def about(self) -> dict[str, object]:
        """Return facts about the catalogue as JSON."""
        stored, tagger = self.catalogue.stored, self.catalogue.tagger
        return {
            "version": VERSION, "images": stored.images.count(), "searchable": len(stored),
            "tags": len(tagger.vocabulary), "run": stored.origin.fingerprint, "model": MODELS.name_of(tagger.model),
            "encoder": ENCODERS.name_of(tagger.encoder), "calibrated": tagger.calibration is not None,
            "search": stored.how_it_searches(), "who": PERSON.get().name, "role": PERSON.get().role.name.lower(),
        }  # fmt: skip

    async def run_version(self) -> str:
        """Return the fingerprint of the run in use."""
        return await self.searching.run(lambda: self.catalogue.stored.origin.fingerprint)

    def metrics_text(self) -> str:
        """Return all figures in Prometheus' text format."""
        decoders = (self.decoders, self.upload_decoders)
        works = [self.searching, self.browsing, self.writing, self.encoding, self.fetching]
        works += [pool.work for pool in decoders]
        waiting = {work.name: work.waiting.total for work in works}
        refused = {"body": self.bodies.n_refused.total} | {work.name: work.n_refused.total for work in works}
        n_died = sum(pool.n_died.total for pool in decoders)
        return self.metrics.text((
            figure("visterm_info", "Version of visterm.", {VERSION: 1}, label="version"),
            figure("visterm_images", "Photos of the catalogue.", self.catalogue.stored.images.count()),
            figure("visterm_waiting", "Requests running and waiting, by kind.", waiting),
            figure("visterm_refused_total", "Requests that were answered 503, by kind.", refused),
            figure("visterm_body_bytes", "Bytes of request bodies in memory.", self.bodies.n_bytes.total),
            figure("visterm_decoders_died_total", "Processes that a picture crashed; each was replaced.", n_died),
            figure("visterm_thumbnail_bytes", "Bytes of thumbnails in memory.", self.thumbnails.n_bytes.total),
            figure("visterm_jobs_open", "Jobs of this service that run or wait.", self.jobs.n_open.total),
        ))  # fmt: skip


async def service_of(request: Request) -> Service:
    """Return the service of a request's application; asynchronous, so that it needs no thread."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


def in_threads(
    kind: Literal["searching", "browsing", "writing"],
) -> Callable[[Callable[..., R]], Callable[..., Coroutine[object, object, R]]]:
    """Run a route with the parameter `service` in the threads of one kind of `Work`, so that it needs no ``await``.

    It answers with the run that is in use now, even if another program, such as ``visterm watch``, has just learned it.
    """

    def make_route(answer: Callable[..., R]) -> Callable[..., Coroutine[object, object, R]]:
        def answer_now(**parameters: Any) -> R:
            parameters["service"].catalogue.refresh()
            return answer(**parameters)

        @wraps(answer)
        async def route(**parameters: Any) -> R:
            work: Work = getattr(parameters["service"], kind)
            return await work.run(answer_now, **parameters)

        vars(route)["__signature__"] = inspect.signature(answer, eval_str=True)  # the web framework reads it
        return route

    return make_route
