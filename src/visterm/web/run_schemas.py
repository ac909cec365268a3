"""The JSON of runs and of probable mistakes, as OpenAPI describes it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from visterm.web.schemas import Id, ImageName, Next, Tag


class ComparisonAnswer(BaseModel):
    """A run and the one that was in use before it, measured on photos that neither learned from."""

    before: float = Field(description="Figure of the run before.")
    after: float = Field(description="Figure of this run.")
    compared: int = Field(description="Number of photos that both were measured on.")
    interval: tuple[float, float] | None = Field(
        description="The difference, from - to, in 95 % of resamples of these photos; null if they are too few."
    )
    run_before: str = Field(description="Fingerprint of the run before; empty if it isn't known.")
    measure: str = Field(description="The measure: MAP, mean average precision, of which 1 is perfect.")
    difference: float = Field(description="Figure of this run less that of the run before.")
    verdict: Literal["better", "worse", "no clear difference", "too few photos"] = Field(
        description="Whether this run is significantly better or worse."
    )
    in_words: str = Field(description="All of it in a sentence.")


class RunAnswer(BaseModel):
    """A run of the catalogue, beside the one that was in use before."""

    number: int = Field(description="Number of the run in the catalogue.")
    run: str = Field(description="Fingerprint of the run.")
    added: str = Field(description="When it was added (UTC).")
    current: bool = Field(description="Whether it is in use.")
    images: int | None = Field(description="Number of photos that it learned from; null if its files are gone.")
    tags: int | None = Field(description="Number of tags that it knows; null if its files are gone.")
    comparison: ComparisonAnswer | None = Field(
        description="The run beside the one before; null if no photos could be compared."
    )


class RunsAnswer(BaseModel):
    """The runs of the catalogue."""

    runs: list[RunAnswer] = Field(description="The runs, newest first.")
    back: int | None = Field(description="Number of the run that the job go back leads to; null if there is none.")


class MistakeAnswer(BaseModel):
    """A tag that a photo has and probably should not have, or one that it probably should have."""

    image_id: Id
    image: ImageName
    tag: Tag
    kind: Literal["wrong", "missing"] = Field(description="What is probably the matter: the tag is wrong, or missing.")
    chance: float = Field(description="Probability that it is a mistake (0-1).")
    low: float = Field(description="The chance in a 95 % interval, from; wide for tags of few photos.")
    high: float = Field(description="The chance in a 95 % interval, to.")
    follows: list[Tag] = Field([], description="Tags above a missing one in the tree that are missing with it.")


class MistakesAnswer(BaseModel):
    """One page of the probable mistakes."""

    mistakes: list[MistakeAnswer] = Field(description="The mistakes: wrong and missing in turn, most probable first.")
    n_mistakes: int | None = Field(description="Number of mistakes on all pages; null before anyone looked for some.")
    next: Next
