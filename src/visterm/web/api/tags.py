"""The tags: their counts, completion, similar tags, the map, and probable mistakes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from visterm.core.vocabulary import MAX_LETTERS, MAX_TAGS
from visterm.library.dictionary import tag_counts, tree_level
from visterm.library.mistakes import MAX_STORED, why_no_mistakes
from visterm.web.errors import json_answer
from visterm.web.query import Cursor, Limit, OneTag, page_from, position_of
from visterm.web.schemas import Id, ImageName, Next, Tag, answer, errors, listed
from visterm.web.service import ServiceDep, in_threads

router = APIRouter(tags=["tags"])

Count = Annotated[int, Query(ge=1, le=MAX_TAGS, description="Maximum number of tags.")]

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
    kind=(str, "`tag`; with `names` also `folder`, `place`, `camera`, `year` or `month`.", "tag"),
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


MistakeAnswer = answer(
    "MistakeAnswer", "A tag that a photo has and probably should not have, or one that it probably should have.",
    image_id=Id, image=ImageName, tag=Tag,
    kind=(Literal["missing", "wrong"], "Whether the tag is probably missing or wrong."),
    chance=(
        float | None,
        "Probability that it is a mistake (0-1); null if the tag has two or three photos, too few to say.",
    ),
    low=(float | None, "Lower end of a 95 % interval of the chance; wide for tags of few photos."),
    high=(float | None, "Upper end of the interval."),
    reason=(str | None, 'If the chance is null: "unusual for this tag", or "without" it.', None),
    follows=(list[Tag], "Tags above a missing one in the tree that are missing with it.", []),
)  # fmt: skip

MistakesAnswer = answer(
    "MistakesAnswer", "One page of the probable mistakes.",
    mistakes=listed(MistakeAnswer, "The mistakes: missing tags first, most probable first."),
    n_mistakes=(int | None, "Number of mistakes on all pages; null before the first search."),
    note=(str | None, "Why there are none, if the features don't predict the tags; otherwise null."),
    next=Next,
)  # fmt: skip


@router.get("/tags", response_model=TagsAnswer, responses=errors())
@in_threads("browsing")
def tags(
    service: ServiceDep,
    sort: Annotated[
        Literal["name", "given", "predicted"], Query(description="Order: by name, or by a count, largest first.")
    ] = "name",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of tags per page.")] = 200,
    cursor: Cursor = None,
) -> Response:
    """List the tags of photos and of the run, with counts."""
    start = position_of(sort, cursor)
    counts = tag_counts(service.catalogue)
    if sort != "name":
        counts = sorted(counts, key=lambda count: -getattr(count, sort))
    page, following = page_from(sort, start, limit, counts)
    return json_answer({"tags": [count.as_dict() for count in page], "n_tags": len(counts), "next": following})


@router.get("/tags/tree", response_model=TreeAnswer, responses=errors())
@in_threads("browsing")
def tree(
    service: ServiceDep,
    under: Annotated[str, Query(max_length=MAX_LETTERS, description="A tag. Default: list the tags at the top.")] = "",
) -> Response:
    """List the tags right under a tag of the tree, with the photos of each and of all tags under it.

    If the tags have no tree, all are at the top.
    """
    return json_answer({"tags": [item._asdict() for item in tree_level(service.catalogue, under)]})


@router.get("/tags/complete", response_model=CompletionsAnswer, responses=errors())
@in_threads("searching")
def complete(
    service: ServiceDep,
    prefix: Annotated[str, Query(max_length=200, description="The first letters of a tag, or of a word in it.")] = "",
    k: Count = 10,
    names: Annotated[bool, Query(description="Also complete folders, places, cameras, years and months.")] = False,
) -> Response:
    """Complete a tag from its first letters, and for a search also the names of photos."""
    return json_answer({"tags": [item._asdict() for item in service.complete(prefix, k, names=names)]})


@router.get("/tags/neighbours", response_model=NeighboursAnswer, responses=errors())
@in_threads("browsing")
def neighbours(service: ServiceDep, tag: OneTag, k: Count = 10) -> Response:
    """Find the tags that are most similar to a tag, by the cosine of the model's vectors."""
    tagger = service.catalogue.tagger
    nearest = [neighbour._asdict() for neighbour in tagger.neighbours(tag, k)]
    return json_answer({"tag": tag, "neighbours": nearest, "from": tagger.tags_compared_by})


@router.get("/tags/map", response_model=TagMapAnswer, responses=errors())
async def tag_map(service: ServiceDep) -> Response:
    """Return a map of the tags: two coordinates for each, close together for similar tags."""
    places = [placed._asdict() for placed in await service.tag_map()]
    return json_answer({"tags": places, "from": service.catalogue.tagger.tags_compared_by})


@router.get("/mistakes", response_model=MistakesAnswer, responses=errors())
@in_threads("browsing")
def mistakes(
    service: ServiceDep,
    kind: Annotated[
        Literal["missing", "wrong"] | None, Query(description="List only missing or only wrong tags.")
    ] = None,
    tag: Annotated[str | None, Query(max_length=MAX_LETTERS, description="List mistakes of this tag only.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List tags that are probably missing or wrong: missing ones first, most probable first.

    The job "mistakes" looks for them. Those that people have answered since are not listed.
    """
    start = position_of("mistakes", cursor)
    probable = service.catalogue.mistakes(2 * MAX_STORED, kind=kind, tag=tag)
    page, following = page_from("mistakes", start, limit, probable or [])
    return json_answer({
        "mistakes": [mistake.as_dict() for mistake in page],
        "n_mistakes": None if probable is None else len(probable),
        "note": why_no_mistakes(service.catalogue.stored) or None, "next": following,
    })  # fmt: skip
