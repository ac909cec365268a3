"""The JSON of runs, as OpenAPI describes it: each beside the run that was in use before it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


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
    """A run of the catalogue."""

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
