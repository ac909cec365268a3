"""Results of learning from a catalogue: the new tags, and a comparison of both runs on held-out photos, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from visterm.core.wording import count_of

IS_WORSE, WENT_BACK, NOT_BETTER = "worse", "left", "held back"  # Values of `LearningOutcome.why_not`
MAX_LISTED_TAGS = 5  # Maximum number of tags that a message lists

START = "nothing learned yet"  # Fact of the run with which the catalogue of a folder begins, see `library.start`
QUICK = "quick model"  # Value of this fact of the run that answers until the default model has learned
NOT_SURE_YET = "Tags have no confidences until the default model has learned. Try again in a minute."
NO_TAGS = "no tags"  # Value of this fact among the catalogue's, once all photos are in and none has a tag
MIN_COMPARED_PHOTOS = 20  # Minimum number of held-out photos: resamples of fewer say little about either run
MEASURE = "MAP"  # Mean average precision, over the tags that both runs know
BETTER, WORSE, NO_DIFFERENCE, TOO_FEW = "better", "worse", "no clear difference", "too few photos"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, measured on the same photos that were held out from both."""

    before: float  # MAP of the old run: 1 if every right tag of each photo is ranked above all wrong ones
    after: float  # MAP of the new run
    compared: int  # Number of photos that both runs were measured on
    interval: tuple[float, float] | None
    """Ends of the 95 % interval of the difference (paired bootstrap over the photos); None: too few photos."""
    run_before: str = ""  # Fingerprint of the old run

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self | None:
        """Return the comparison in the facts of a catalogue's run; None if the run was not compared with another."""
        if not all(isinstance(facts.get(name), int | float) for name in ("before", "after", "compared")):
            return None
        ends = facts.get("interval")
        interval = None if ends is None else (float(ends[0]), float(ends[1]))
        return cls(facts["before"], facts["after"], facts["compared"], interval, str(facts.get("run_before") or ""))

    @property
    def difference(self) -> float:
        """Difference of the MAP of the runs: positive if the new run is better."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Either "better", "worse", "no clear difference" (the interval contains 0) or "too few photos"."""
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        return BETTER if low > 0 else WORSE if high < 0 else NO_DIFFERENCE

    def summary(self) -> str:
        """Return a sentence with the MAP of both runs, their difference with its interval, and the verdict."""
        interval = "" if self.interval is None else ", 95 % interval {:+.3f} to {:+.3f}".format(*self.interval)
        conclusion = {
            BETTER: ": the new run is better",
            WORSE: ": the new run is worse",
            NO_DIFFERENCE: ": no clear difference",
            TOO_FEW: f", too few to say which run is better ({MIN_COMPARED_PHOTOS} are needed)",
        }[self.verdict]
        return (
            f"{MEASURE} {self.before:.3f} before, {self.after:.3f} now ({self.difference:+.3f}{interval}) "
            f"on {count_of(self.compared, 'photo')} held out{conclusion}."
        )

    def as_dict(self) -> dict[str, object]:
        """Return the comparison as JSON data."""
        return asdict(self) | {
            "measure": MEASURE,
            "difference": self.difference,
            "verdict": self.verdict,
            "in_words": self.summary(),
        }


@dataclass(frozen=True, slots=True)
class LearningOutcome:
    """A run that was learned from a catalogue, and what it changed."""

    run: str  # Fingerprint of the new run; of the old run if nothing was learned
    full: bool  # Whether the run was fitted again; otherwise only the rows of tags were updated
    images: int  # Number of training images
    tags: int  # Number of tags that the new run knows
    new_tags: int  # Number of tags that the old run did not know
    held_out: int  # Number of held-out images: always the same images, chosen by their content
    # Mean average precision (MAP) of the old and of the new run, over the tags that both know, on held-out images that
    # neither run learned from; None without such images
    before: float | None
    after: float | None
    compared: int  # Number of images that both runs were measured on
    run_before: str  # Fingerprint of the old run
    interval: tuple[float, float] | None = None  # As in `Comparison`
    in_use: bool = True  # Whether the new run is the current run now
    why_not: str = ""
    """Why the new run is not used: "worse" (significantly), "left" (a person went back from this run), "held back" (a
    person went back to the old run, training started automatically, and the new run is not significantly better)."""
    new: tuple[str, ...] = ()  # The new tags
    too_rare: tuple[str, ...] = ()  # Tags that are not learned, because fewer than `min_count` photos have them
    confidences: bool = True  # Whether the new run has confidences
    # Numbers of the new and of the old run in the catalogue, by which people name them
    number: int = 0
    number_before: int = 0
    cancelled: bool = False  # Whether learning was cancelled; then nothing has changed
    expected: str = ""  # For the first run with the tags of files: what to expect of its tags, as a sentence
    is_first: bool = False  # Whether it is that run: there is none to compare it with, or to go back to
    is_quick: bool = False  # Whether it answers only until that run has learned

    @property
    def comparison(self) -> Comparison | None:
        """The comparison of the old and the new run; None without photos that neither run learned from."""
        return Comparison.of(asdict(self))

    @property
    def summary(self) -> str:
        """The numbers of photos and tags, the new tags, and whether the run has confidences, as text."""
        if self.is_quick:
            return "a quick model answers until the default model has learned"
        scope = "" if self.is_first else ", all learned again" if self.full else ", only the tags learned again"
        new_tags = f"{self.new_tags:,} new{': ' if self.new else ''}{tag_list_text(self.new)}"
        held_out = f" ({self.held_out:,} more are held out to compare runs)" if self.held_out else ""
        text = f"{count_of(self.tags, 'tag')} ({new_tags}) from {count_of(self.images, 'photo')}{held_out}{scope}"
        return text if self.confidences else f"{text}; no confidences: too few tagged photos could be held out"

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON data."""
        return asdict(self) | {"comparison": None if self.comparison is None else self.comparison.as_dict()}


def outcome_text(learned: LearningOutcome, catalogue: Path) -> str:
    """Return text with what was learned, the comparison, which run is in use, and how to use the other run."""
    if learned.cancelled:
        return "Stopped; nothing has changed."
    text, compared = learned.summary, learned.comparison
    if learned.is_first or learned.is_quick:
        return f"{text}. {learned.expected}".rstrip()
    why_none = "no tagged photo was held out from both. After later fits there usually are such photos."
    if not learned.held_out:
        why_none = f"fewer than {MIN_COMPARED_PHOTOS} photos can be held out without losing a tag."
    text += f"; the runs are not compared: {why_none}" if compared is None else f"; {compared.summary()}"
    new_run, old_run = f"run {learned.number}", f"run {learned.number_before}"
    if learned.run == learned.run_before:
        return f"{text} Nothing has changed: {catalogue} still uses {old_run}."
    if learned.in_use:
        return f"{text} {catalogue} uses the new {new_run}. To go back: visterm use {catalogue} --back"
    reasons = {
        IS_WORSE: f"The new {new_run} {'did worse on these' if learned.interval is None else 'is significantly worse'}",
        WENT_BACK: f"The new {new_run} is a run that a person went back from",
        NOT_BETTER: f"A person went back to {old_run}, and the new {new_run} is not clearly better",
    }
    return (
        f"{text} {reasons[learned.why_not]}, so {catalogue} still uses {old_run}. To use the new run "
        f"anyway: visterm use {catalogue} {learned.number}"
    )


def tag_list_text(tags: Sequence[str]) -> str:
    """Return text with the first five tags, and the number of the other tags."""
    more = f" and {len(tags) - MAX_LISTED_TAGS:,} more" if len(tags) > MAX_LISTED_TAGS else ""
    return ", ".join(tags[:MAX_LISTED_TAGS]) + more
