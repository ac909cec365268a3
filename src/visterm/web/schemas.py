"""The JSON of requests and answers, as OpenAPI describes it. Answers are tested against it."""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from visterm.core.vocabulary import MAX_LETTERS, MAX_TAGS

TagName = Annotated[str, Field(min_length=1, max_length=MAX_LETTERS, examples=["beach"])]

Id = Annotated[int, Field(description="Id of the photo.")]
ImageName = Annotated[str, Field(description="File name of the photo, relative to the indexed folder.")]
Tag = Annotated[str, Field(description="The tag.")]
Score = Annotated[float, Field(description="The model's score; higher is better.")]
Next = Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class RequestBody(BaseModel):
    """Base of what clients send. Unknown names are errors, so that no typing error is silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, values: object) -> object:
        """Keep only the first unknown name: errors about thousands of names would take too long."""
        if not isinstance(values, dict):
            return values
        known = {name: value for name, value in values.items() if name in cls.model_fields}
        unknown = next((name for name in values if name not in known), None)
        return known if unknown is None else known | {unknown: values[unknown]}


class VerdictRequest(RequestBody):
    """A person's verdict on a tag of a photo."""

    tag: TagName = Field(description="The tag.")
    verdict: int = Field(ge=-1, le=1, description="1: the tag is right; -1: it is wrong; 0: undo the verdict.")


class TagsChange(RequestBody):
    """Tags to add to a photo, and tags to remove from it."""

    give: list[TagName] = Field([], max_length=MAX_TAGS, description="Tags to add; any words are accepted.")
    take: list[TagName] = Field([], max_length=MAX_TAGS, description="Tags to remove.")


class JobRequest(RequestBody):
    """A job to run in the background."""

    kind: Literal["index", "fit", "duplicates", "mistakes", "map", "use run", "go back"] = Field(
        description="index: look for new, changed and missing photos; fit: learn from tags and verdicts; duplicates: "
        "compare photos that were not compared yet; mistakes: look for tags that are probably wrong or missing; map: "
        "draw the map of the photos, or add new ones; use run: search with another run of the catalogue; go back: "
        "search with the previous run."
    )
    full: bool = Field(False, description="For fit: learn from scratch, including tags that are new.")
    use_even_if_worse: bool = Field(False, description="For fit: use the new run even if it is significantly worse.")
    run: str = Field(
        "",
        pattern="^[0-9a-f]{0,64}$",
        description="For use run, and for go back by more than one run: its number or the first letters of its name.",
    )


class ExportBody(RequestBody):
    """Tags to write into files of photos, or to remove from them."""

    to: str = Field(
        "xmp",
        max_length=MAX_LETTERS,
        description="Where the tags go: xmp, embed, txt, lightroom, digikam, darktable, immich or photoprism; for a "
        "connected catalogue the name of its program.",
    )
    k: int = Field(0, ge=0, le=MAX_TAGS, description="Most predictions per photo; 0 for no limit.")
    min_confidence: float | None = Field(
        None, ge=0, le=1, description="Least confidence of predictions (0-1); null for 0.5, without a precision."
    )
    precision: float | None = Field(None, gt=0, lt=1, description="Expected share of right predictions, per tag.")
    parent: str | None = Field(None, max_length=MAX_LETTERS, description="Tag above all predictions, such as visterm.")
    take_off: bool = Field(False, description="Also remove keywords of other programs that people took off.")
    undo: bool = Field(False, description="Remove all tags that visterm wrote with the same `to`.")
    dry_run: bool = Field(True, description="Only say what would be written.")
    into_photos: bool = Field(False, description="Confirms that photos themselves are changed, where `to` does that.")


def answer(name: str, about: str, /, **fields: object) -> type[BaseModel]:
    """Return the form of an object in answers, for OpenAPI: routes write their JSON themselves.

    A field is a type that has a description; or a type, its description and, if it may be absent, its default.
    """
    definitions: dict[str, Any] = {}
    for field, content in fields.items():
        kind, *rest = content if isinstance(content, tuple) else (content,)
        about_field, *default = rest or [None]
        definitions[field] = (kind, Field(*(default or [...]), description=about_field) if rest else ...)
    return create_model(name, __doc__=about, **definitions)


def listed(model: type[BaseModel], about: str) -> tuple[object, str]:
    """Return a field of `answer`: a list of these objects."""
    return GenericAlias(list, (model,)), about


Error = answer(
    "Error", "What is wrong with a request.",
    code=(str, "Name of the error, for programs."),
    message=(str, "What is wrong, what is accepted, and what to do; for people."),
    field=(str | None, "The part of the request that is wrong.", None),
)  # fmt: skip

ErrorAnswer = answer("ErrorAnswer", "The answer to a request that failed.", error=(Error, "The error."))

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
    names=(list[str], "Words that name the photos: files, folders, cameras or dates.", []),
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

ImageFacts = answer(
    "ImageFacts", "A photo's file.",
    id=Id,
    path=(str | None, "Path or address of the file; null if the catalogue has none."),
    link=(
        str | None,
        "The photo's page in the program that the catalogue is connected to; `path` is then a preview's.", None,
    ),
    name=ImageName,
    n_bytes=(int, "Size of the file in bytes."),
    width=(int, "Width in pixels."), height=(int, "Height in pixels."),
    file_type=(str, "Type of the file, such as jpeg."),
    taken=(str | None, "When the photo was taken, by its EXIF data."),
    camera=(str | None, "The camera, by the EXIF data; empty if they name none."),
    latitude=(float | None, "Where the photo was taken, in degrees north, by its EXIF data."),
    longitude=(float | None, "Degrees east."),
    added=(str, "When the photo was added to the catalogue (UTC)."),
    state=(Literal["here", "gone"], "Whether the file was there when it was last looked for."),
    reviewed=(str | None, "When a person last reviewed the photo (UTC)."),
)  # fmt: skip

GivenTagAnswer = answer(
    "GivenTagAnswer", "A tag from people.",
    tag=Tag,
    source=(str, '"file": from the photo, its sidecar or a tag file; "person": added here.'),
    who=(str, "Who added it; empty if that isn't known."),
)  # fmt: skip

PredictionAnswer = answer(
    "PredictionAnswer", "A tag that the run predicted when the photo was indexed.",
    tag=Tag, score=Score,
    confidence=(float | None, "Probability that the tag is right (0-1); null if the run has no confidences."),
)  # fmt: skip

WrittenTagAnswer = answer(
    "WrittenTagAnswer", "A tag that `visterm export` wrote into a file.",
    image_id=Id, tag=Tag,
    target=(str, "The kind of file, such as xmp."),
    at=(str, "When it was written (UTC)."),
)  # fmt: skip

ImageAnswer = answer(
    "ImageAnswer", "A photo with its tags.",
    image=(ImageFacts, "The file."),
    tags=(list[str], "The tags that the photo has: given or accepted, and not rejected."),
    given=listed(GivenTagAnswer, "Tags from tag files and people."),
    predicted=listed(PredictionAnswer, "The model's best tags, best first, without rejected ones."),
    verdicts=(dict[str, int], "Tags that people accepted (1) or rejected (-1)."),
    judged_by=(dict[str, str], "Who said so, for the verdicts of which that is known."),
    written=listed(WrittenTagAnswer, "Tags that were written into files."),
)  # fmt: skip

VerdictAnswer = answer(
    "VerdictAnswer", "The verdict that was stored.",
    id=(int, "Number of the verdict; `POST /feedback/{number}/undo` undoes it."),
    image_id=Id, tag=Tag,
    verdict=(int, "1 right, -1 wrong, 0 no verdict."),
    before=(int, "The previous verdict; 0 if there was none."),
    who=(str, "Who said so; empty if that isn't known."),
)  # fmt: skip

TagCountAnswer = answer(
    "TagCountAnswer", "A tag with the numbers of its photos.",
    tag=Tag,
    images=(int, "Photos that have it, an alias, or a tag under it: given or accepted, not rejected."),
    given=(int, "Photos that have it from a tag file or a person."),
    accepted=(int, "Photos for which a person accepted it."),
    rejected=(int, "Photos for which a person rejected it."),
    predicted=(int, "Photos for which the run predicts it with a confidence of at least 0.5."),
    precision=(float | None, "Share of the verdicts that accept it (0-1); null without verdicts."),
    learned=(bool, "Whether the run has learned it."),
)  # fmt: skip

TagsAnswer = answer(
    "TagsAnswer", "One page of the tags.",
    tags=listed(TagCountAnswer, "The tags."),
    n_tags=(int, "Number of tags on all pages."),
    next=Next,
)  # fmt: skip

TreeTagAnswer = answer(
    "TreeTagAnswer", "A tag on a level of the tree.",
    tag=Tag,
    images=(int, "Photos that have it, or a tag under it."),
    below=(int, "Number of tags right under it."),
)  # fmt: skip

TreeAnswer = answer(
    "TreeAnswer", "The tags of one level of the tree.",
    tags=listed(TreeTagAnswer, "The tags, those with tags under them first, by their photos."),
)  # fmt: skip

CompletionAnswer = answer(
    "CompletionAnswer", "A tag, or a name of photos, that completes what was typed.",
    tag=Tag,
    images=(
        int,
        "Training photos that have it; 0 for a word that was added to the run. For a name, and for a tag that the run "
        "has not learned yet: photos that have it now.",
    ),
    kind=(str, "`tag`; with `names` also `folder`, `camera`, `year` or `month`.", "tag"),
)  # fmt: skip

CompletionsAnswer = answer(
    "CompletionsAnswer", "The tags that complete what was typed.",
    tags=listed(CompletionAnswer, "The tags, most frequent first."),
)  # fmt: skip

NeighbourAnswer = answer(
    "NeighbourAnswer", "A tag that is similar to another one.",
    tag=Tag,
    score=(float, "Cosine similarity of the two tags' vectors (-1 to 1)."),
)  # fmt: skip

NeighboursAnswer = answer(
    "NeighboursAnswer", "The tags that are most similar to another one.",
    tag=(str, "The tag of the request."),
    neighbours=listed(NeighbourAnswer, "Similar tags, most similar first."),
    **{"from": (list[str], "Models whose vectors of tags were compared.")},
)  # fmt: skip

PlacedTagAnswer = answer(
    "PlacedTagAnswer", "A tag on the map.",
    tag=Tag,
    x=(float, "Place from left to right, 0 to 1."), y=(float, "Place from top to bottom, 0 to 1."),
    images=(int, "Training photos that have the tag."),
)  # fmt: skip

TagMapAnswer = answer(
    "TagMapAnswer", "A map of the tags on which similar tags are close together.",
    tags=listed(PlacedTagAnswer, "The tags with their places."),
    **{"from": (list[str], "Models whose vectors of tags were compared.")},
)  # fmt: skip

ExplanationAnswer = answer(
    "ExplanationAnswer", "Where in a photo the score of a tag comes from.",
    id=Id, tag=Tag, score=Score,
    rank=(int, "Rank of the tag for this photo, from 1."),
    n_tags=(int, "Number of tags that were ranked."),
    from_places=(float, "Sum of what all places in the photo add to the score."),
    elsewhere=(dict[str, float], "Shares without a place, such as the model's bias, by name."),
    **{"from": (list[str], "Models that the shares come from; for a blend, its members.")},
    strongest=(
        list[dict[str, float]],
        "The places that count most: edges from 0 to 1, and `share`, which is negative if they lower the score.",
    ),
    heat=(str | None, "Address of the heat map; null if there is none."),
    no_heat=(str | None, "Why there is no heat map."),
)  # fmt: skip

DuplicateAnswer = answer(
    "DuplicateAnswer", "A photo in a group of duplicates.",
    id=Id, image=ImageName,
    path=(str | None, "Path or address of the file."),
    width=(int, "Width in pixels."), height=(int, "Height in pixels."),
    bytes=(int, "Size of the file in bytes."),
    distance=(int | None, "Bits (of 64) in which its hash differs from that of `keep`.", None),
    same_bytes=(bool | None, "Whether its file is the same as that of `keep`, byte by byte.", None),
)  # fmt: skip

DuplicateGroupAnswer = answer(
    "DuplicateGroupAnswer", "Photos that look the same.",
    keep=(DuplicateAnswer, "The photo with the most pixels."),
    copies=listed(DuplicateAnswer, "The other photos, most similar first."),
)  # fmt: skip

DuplicatesAnswer = answer(
    "DuplicatesAnswer", "One page of the groups of duplicates.",
    groups=listed(DuplicateGroupAnswer, "The groups, largest first."),
    n_groups=(int, "Number of groups on all pages."),
    next=Next,
)  # fmt: skip

JobAnswer = answer(
    "JobAnswer", "A job and its progress.",
    id=(int, "Id of the job."), kind=(str, "The kind of job."),
    state=(
        Literal["waiting", "running", "cancelling", "done", "failed", "cancelled", "lost"],
        "The state; lost: the service ended before the job did.",
    ),
    done=(int, "Steps done so far."),
    total=(int | None, "Steps in all, if known."),
    message=(str, "Progress or result in words."),
    started=(str, "When it started (UTC)."), finished=(str | None, "When it ended (UTC)."),
    error=(str | None, "Why it failed."),
)  # fmt: skip

JobsAnswer = answer("JobsAnswer", "One page of the jobs.", jobs=listed(JobAnswer, "The jobs, newest first."), next=Next)

HealthAnswer = answer(
    "HealthAnswer", "The service runs and can read its catalogue.",
    status=(Literal["ok"], "Always ok; otherwise the answer is 503."),
    version=(str, "Version of visterm."),
)  # fmt: skip

AboutAnswer = answer(
    "AboutAnswer", "The catalogue that is served.",
    version=(str, "Version of visterm."), images=(int, "Number of photos."),
    searchable=(int, "Number of photos that searches can find."),
    tags=(int, "Number of tags that the run has learned."),
    run=(str, "Fingerprint of the run in use."),
    model=(str, "Name of the model."), encoder=(str, "Name of the encoder."),
    calibrated=(bool, "Whether the run has confidences."),
    search=(str, "Whether searches are exact, or use an index."),
    who=(str, "Whose token the request has; empty if that isn't known."),
    role=(Literal["reader", "reviewer", "owner"], "What the token allows."),
)  # fmt: skip

STATUSES = {
    400: ("bad_request", "The request can't be understood."),
    401: ("unauthorised", "The token is missing or wrong."),
    403: ("forbidden", "A page of another site sent the request, or one from another machine would write into files."),
    404: ("not_found", "It doesn't exist."),
    405: ("method_not_allowed", "The address doesn't accept this method."),
    408: ("too_slow", "The body of the request arrived too slowly."),
    409: ("conflict", "Not possible right now: the catalogue is in use, or another step comes first."),
    413: ("too_large", "The request is too large."),
    415: ("unsupported_type", "This type of body isn't accepted."),
    421: ("wrong_host", "The service doesn't have this host name."),
    422: ("invalid", "A value isn't accepted, or a picture can't be read."),
    500: ("internal", "The service failed, or a file of the catalogue is damaged. Its log says more."),
    503: ("busy", "The service is busy, or its disk fails. Retry-After says when to try again, in seconds."),
    507: ("disk_full", "The catalogue's disk is full. Nothing was written."),
}
"""The name of each error for programs, by status, and its description in OpenAPI."""

COMMON_STATUSES = (400, 401, 403, 421, 422, 500, 503, 507)


def file_answers(media_type: str, others: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of a route that answers with a file, a 404, or one of the `others`."""
    answers: dict[int | str, dict[str, Any]] = {status: {"description": text} for status, text in others.items()}
    answers[200] = {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}
    return answers | errors(404)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of a route's errors: those with these statuses, and those that all routes have."""
    return {code: {"model": ErrorAnswer, "description": STATUSES[code][1]} for code in (*COMMON_STATUSES, *statuses)}
