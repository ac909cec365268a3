"""Search by words, by another photo, or by filters alone; and tags for uploaded pictures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from visterm.core.errors import ImageError, UserError
from visterm.core.vocabulary import MAX_TAGS
from visterm.library.search.result import Found
from visterm.store.filters import MAX_INT, Filter
from visterm.web.batching import TagLimits
from visterm.web.bodies import UPLOAD, allow_pictures, read_uploads
from visterm.web.errors import json_answer
from visterm.web.query import cursor_at, position_of
from visterm.web.schemas import Id, ImageName, Next, Score, Tag, TagName, answer, errors, listed
from visterm.web.service import Service, ServiceDep, in_threads

router = APIRouter()

MAX_PAGED_PHOTOS = 10_000  # Photos that one search returns on all its pages
MAX_KEPT_ANSWERS = 1000  # Answers that are kept until anything in the database changes
MAX_KEPT_BYTES = 2**24  # Bytes of all these answers; one may have a 256th of them
Date = Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?$", max_length=19)]
Bytes = Annotated[int, Field(ge=0, le=MAX_INT)]
Tags = Annotated[list[TagName], Field(max_length=20)]

HitAnswer = answer(
    "HitAnswer", "A photo that a search found.",
    id=Id, image=ImageName,
    score=(float | None, "The score by which photos are ranked; null in a list without a search."),
    confidence=(float | None, "Probability that the photo matches (0-1); absent if the run has no confidences.", None),
    source=(
        Literal["person", "accepted"] | None,
        "How people tagged the photo with all the words: added or accepted; absent for other photos.", None,
    ),
    at=(float | None, "For a video: the moment that matches best, in seconds; absent for photos.", None),
    link=(str | None, "The photo's page in the program that the catalogue is connected to; absent for files.", None),
    thumbnail=(str, "Address of the thumbnail."),
)  # fmt: skip

SearchAnswer = answer(
    "SearchAnswer", "One page of a search.",
    hits=listed(HitAnswer, "The photos, best first."),
    unknown=(list[str], "Words that are not known tags, and were ignored."),
    untrained=(list[str], "Words that no training photo has, found by their word vectors."),
    n_likely=(int | None, "Number of photos above the cut-off; null without `cutoff`."),
    n_found=(int | None, "Number of photos that this list goes through, on all its pages."),
    names=(list[str], "Words that name the photos: files, folders, places, cameras or dates.", []),
    next=Next,
)  # fmt: skip

TagAnswer = answer(
    "TagAnswer", "A tag that the model predicts.",
    tag=Tag, score=Score,
    confidence=(float | None, "Probability that the tag is right (0-1); absent if the run has no confidences.", None),
    trained=(bool, "False for a word that no training photo has.", True),
)  # fmt: skip

AnnotatedAnswer = answer(
    "AnnotatedAnswer", "An uploaded picture and its tags.",
    image=(str, "File name of the upload."),
    tags=listed(TagAnswer, "The tags, best first."),
)  # fmt: skip

SkippedAnswer = answer(
    "SkippedAnswer", "An uploaded picture that can't be read.",
    image=(str, "File name of the upload."),
    reason=(str, "Why it can't be read."),
)  # fmt: skip

AnnotateAnswer = answer(
    "AnnotateAnswer", "The tags of uploaded pictures.",
    images=listed(AnnotatedAnswer, "The pictures that could be read, in the order sent."),
    skipped=listed(SkippedAnswer, "The pictures that could not be read."),
)  # fmt: skip


class FilterQuery(BaseModel):
    """Filters of a search. The folder is compared with those of the catalogue, and never opened."""

    tag: Tags = Field([], description="Only photos with this tag. Repeat for more.")
    without: Tags = Field([], description="Only photos without this tag. Repeat for more.")
    predicted: Tags = Field([], description="Only photos for which this tag is predicted. Repeat for more.")
    min_predicted: float | None = Field(
        None, ge=0, le=1, description="Minimum confidence of the predicted tags (0-1). Default: 0.5."
    )
    folder: str | None = Field(None, max_length=4096, description="Only photos in this folder and its subfolders.")
    taken_from: Date | None = Field(None, description="Taken in or after this year, month, day or time.")
    taken_to: Date | None = Field(None, description="Taken in or before this year, month, day or time.")
    min_bytes: Bytes | None = Field(None, description="Minimum size of the file in bytes.")
    max_bytes: Bytes | None = Field(None, description="Maximum size of the file in bytes.")
    file_type: str | None = Field(None, max_length=20, examples=["jpeg"], description="Type of the file.")
    unreviewed: bool = Field(False, description="Only photos that nobody has reviewed.")
    limit: int = Field(50, ge=1, le=200, description="Maximum number of photos per page.")

    def among(self) -> Filter:
        """Return the filters as the catalogue expects them."""
        return Filter(
            tags=tuple(self.tag), without=tuple(self.without), predicted=tuple(self.predicted),
            min_confidence=self.min_predicted, folder=self.folder or None, taken_from=self.taken_from,
            taken_to=self.taken_to, min_bytes=self.min_bytes, max_bytes=self.max_bytes,
            file_type=self.file_type or None, unreviewed=self.unreviewed,
        )  # fmt: skip


class SearchQuery(FilterQuery):
    """A search: by words, by a similar photo, or by filters alone."""

    q: str = Field("", max_length=1000, description='Words to search for: `snow tree -people "polar bear"`.')
    like: int | None = Field(None, ge=0, le=MAX_INT, description="Id of a photo: find similar ones, instead of `q`.")
    cursor: str | None = Field(None, max_length=80, description="`next` of the previous page.")
    combine: Literal["sum", "product", "confidence"] | None = Field(
        None, description="How several words are combined. Default: `confidence`; `sum` in runs without confidences."
    )
    cutoff: bool = Field(False, description="End the list where F1 is expected to be best.")
    min_confidence: float | None = Field(None, ge=0, lt=1, description="Only photos with at least this confidence.")
    sort: Literal["chance", "taken", "oldest", "name", "added"] | None = Field(
        None,
        description="Order. Default: `chance` for searches, otherwise the order of entry. In another order, a search "
        "returns photos with at least 50 % confidence, or the 200 best if there are no confidences.",
    )


@router.get("/search", tags=["search"], response_model=SearchAnswer, responses=errors(404, 409))
@in_threads("searching")
def search(service: ServiceDep, query: Annotated[SearchQuery, Query()]) -> Response:
    """Find photos by words (`q`) or similar to a photo (`like`).

    Filters narrow the search. Without words and a photo, all photos that match the filters are listed.
    """
    database, key = service.catalogue.stored.database, query.model_dump_json()
    database.check_in_place()
    kept: tuple[dict[str, Response], list[int]] = database.keep("answers", lambda: ({}, []))
    answers, sizes = kept
    if (answer := answers.get(key)) is not None:
        return answer
    service.catalogue.refresh()  # again: the run may have changed before `answers` was read
    answer = _search(service, query)
    n_bytes = len(key) + len(answer.body)
    if query.folder is None and n_bytes <= MAX_KEPT_BYTES // 256:  # links in the folder's path are not in the database
        if len(sizes) >= MAX_KEPT_ANSWERS or sum(sizes) + n_bytes > MAX_KEPT_BYTES:
            answers.clear()
            sizes.clear()
        answers[key] = answer
        sizes.append(n_bytes)
    return answer


def _search(service: Service, query: SearchQuery) -> Response:
    words = query.q.strip()
    if words and query.like is not None:
        raise UserError("`q` and `like` can't be used together.", setting="like", advice="Leave one of them out.")
    kind = "words" if words else "all" if query.like is None else "like"
    if query.sort is not None:
        kind += query.sort
    start = position_of(kind, query.cursor, -1 if kind == "all" else 0)
    if not kind.startswith("all") and start > MAX_PAGED_PHOTOS:
        problem = f"A search returns at most {MAX_PAGED_PHOTOS:,} photos."
        raise UserError(problem, setting="cursor", advice="Add a word or a filter.")

    catalogue, among, end = service.catalogue, query.among(), start + query.limit + 1
    if words:
        result = catalogue.search(
            words, end, among=among, combine=query.combine, cutoff=query.cutoff, min_confidence=query.min_confidence,
            sort=query.sort,
        )  # fmt: skip
    elif query.like is not None:
        service.record_of(query.like)
        result = catalogue.like(query.like, end, among=among, sort=query.sort)
    else:
        result = catalogue.browse(among, query.limit + 1, after=start, start=max(start, 0), sort=query.sort)
    return _answer(result, kind, start, query.limit)


@router.post(
    "/similar", tags=["search"], response_model=SearchAnswer, responses=errors(408, 409, 413, 415), openapi_extra=UPLOAD
)
@allow_pictures
async def similar(request: Request, service: ServiceDep, query: Annotated[FilterQuery, Query()]) -> Response:
    """Find photos that are similar to an uploaded picture, which isn't stored."""
    (picture,) = await read_uploads(request, 1)
    pixels = await service.pixels(picture.content)
    result = await service.encoding.run(service.catalogue.like, pixels, query.limit, among=query.among())
    return _answer(result, "like", 0, query.limit)


def _answer(result: Found, kind: str, start: int, limit: int) -> Response:
    """Return one page of a search, and the cursor of the next page."""
    hits, is_list, page = result.hits, kind.startswith("all"), []
    for hit in hits[:limit] if is_list else hits[start : start + limit]:
        fields: dict[str, Any] = hit.as_dict()
        fields.pop("path", None)
        at = "" if hit.at is None else f"?at={hit.at:.3f}"
        fields["thumbnail"] = f"/api/v1/images/{hit.id}/thumbnail{at}"
        page.append(fields | {"score": None} if is_list else fields)

    if is_list:
        following = (page[-1]["id"] if kind == "all" else start + limit) if len(hits) > limit else None
    else:
        following = start + limit if len(hits) > start + limit <= MAX_PAGED_PHOTOS else None

    cursor = None if following is None else cursor_at(kind, following)
    return json_answer({
        "hits": page, "unknown": result.unknown, "untrained": list(result.untrained), "n_likely": result.n_likely,
        "n_found": result.n_found, "names": list(result.names), "next": cursor,
    })  # fmt: skip


@router.post(
    "/annotate", tags=["annotate"], response_model=AnnotateAnswer, responses=errors(408, 413, 415), openapi_extra=UPLOAD
)
@allow_pictures
async def annotate(
    request: Request,
    service: ServiceDep,
    k: Annotated[int | None, Query(ge=1, le=MAX_TAGS, description="Maximum number of tags per picture.")] = None,
    precision: Annotated[
        float | None, Query(gt=0, lt=1, description="Choose the cut-off for this expected precision, such as 0.9.")
    ] = None,
    best_f1: Annotated[bool, Query(description="Choose the cut-off for the best expected F1 of a photo.")] = False,
    min_confidence: Annotated[
        float | None, Query(gt=0, lt=1, description="Return tags with at least this confidence.")
    ] = None,
) -> Response:
    """Tag uploaded pictures, which aren't stored.

    Without options each picture gets five tags. Pictures that can't be read are listed in `skipped`; if none can be
    read, the answer is 422.
    """
    uploads = await read_uploads(request, service.bounds.pictures)
    limits = TagLimits(precision, best_f1, min_confidence)
    answers = await service.annotate_all([upload.content for upload in uploads], k, limits)
    content: dict[str, list[object]] = {"images": [], "skipped": []}
    for upload, tags in zip(uploads, answers, strict=True):
        if isinstance(tags, ImageError):
            content["skipped"].append({"image": upload.name, "reason": tags.reason})
        else:
            content["images"].append({"image": upload.name, "tags": [tag.as_dict() for tag in tags]})
    return json_answer(content)
