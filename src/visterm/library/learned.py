"""What came of learning from a catalogue: which tags are new, and both runs compared on photos held out, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from visterm.core.wording import count_of

IS_WORSE, LEFT, HELD_BACK = "worse", "left", "held back"  # Why a new run is not used, see `LearningOutcome.why_not`
MOST_SHOWN = 5  # Tags that a message names

FEWEST_COMPARED = 20  # Photos held out below which a resample of them says little of either run
MEASURE = "MAP"  # Mean average precision, over the tags that both runs know
BETTER, WORSE, NO_DIFFERENCE, TOO_FEW = "better", "worse", "no clear difference", "too few photos"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, measured on the same photos that were held out from both."""

    before: float  # MAP of the old run: 1 if every right tag of each photo is ranked above all wrong ones
    after: float  # MAP of the new run
    compared: int  # Photos that both were measured on
    # The difference, from - to, in 95 % of resamples of these photos (paired bootstrap); None: too few photos
    interval: tuple[float, float] | None
    run_before: str = ""  # Fingerprint of the old run

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self | None:
        """Return the comparison among the facts of a catalogue's run; None if it was compared with no other."""
        if not all(isinstance(facts.get(name), int | float) for name in ("before", "after", "compared")):
            return None
        ends = facts.get("interval")
        interval = None if ends is None else (float(ends[0]), float(ends[1]))
        return cls(facts["before"], facts["after"], facts["compared"], interval, str(facts.get("run_before") or ""))

    @property
    def difference(self) -> float:
        """Return by how much the new run is better, in MAP; negative: worse."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Return "better", "worse", "no clear difference" (the interval holds 0) or "too few photos" to tell."""
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        return BETTER if low > 0 else WORSE if high < 0 else NO_DIFFERENCE

    def in_words(self) -> str:
        """Return both figures, the difference with its interval, and what follows from them, in one sentence."""
        interval = "" if self.interval is None else ", 95 % interval {:+.3f} to {:+.3f}".format(*self.interval)
        follows = {
            BETTER: ": the new run is better",
            WORSE: ": the new run is worse",
            NO_DIFFERENCE: ": no clear difference",
            TOO_FEW: f", too few to say which run is better ({FEWEST_COMPARED} are needed)",
        }[self.verdict]
        return (
            f"{MEASURE} {self.before:.3f} before, {self.after:.3f} now ({self.difference:+.3f}{interval}) "
            f"on {count_of(self.compared, 'photo')} held out{follows}."
        )

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        return asdict(self) | {
            "measure": MEASURE,
            "difference": self.difference,
            "verdict": self.verdict,
            "in_words": self.in_words(),
        }


@dataclass(frozen=True, slots=True)
class LearningOutcome:
    """A run that was learned from a catalogue, and what it changed."""

    run: str  # Fingerprint of the run that was learned: of the old one, where nothing was to be learned
    full: bool  # Whether all was learned anew; else only the rows of tags have moved, and those of images stay
    # Learned from, and known
    images: int
    tags: int
    new_tags: int  # Tags that the old run did not know
    held_out: int  # Images that were not learned from: always the same ones, chosen by their content
    # Mean average precision (MAP) of the old and of the new run, over the tags that both know, on images held out that
    # neither of them learned from; None where there are none
    before: float | None
    after: float | None
    compared: int  # How many these are
    run_before: str  # Fingerprint of the old run
    interval: tuple[float, float] | None = None  # As in `Comparison`
    in_use: bool = True  # Whether the run is the current one now: not if `why_not` says why, and that was not asked for
    why_not: str = ""
    """Why it is not used: "worse" (significantly), "left" (a person went back from this very run), "held back" (a
    person went back to the old run, learning began by itself, and the new one is not significantly better)."""
    new: tuple[str, ...] = ()  # The new tags
    too_rare: tuple[str, ...] = ()  # Tags of photos that are not learned: of fewer photos than `min_count`
    confidences: bool = True  # Whether the new run has any
    # Numbers of the new and of the old run in the catalogue, by which people name them
    number: int = 0
    number_before: int = 0
    cancelled: bool = False  # Whether it was cancelled; then nothing has changed

    @property
    def comparison(self) -> Comparison | None:
        """The old and the new run on the same photos; None where there are none."""
        return Comparison.of(asdict(self))

    @property
    def in_words(self) -> str:
        """From how much it was learned, which tags are new, and whether the run has confidences."""
        how = "all learned again" if self.full else "only the tags learned again"
        new_tags = f"{self.new_tags:,} new{': ' if self.new else ''}{some_tags(self.new)}"
        text = f"{count_of(self.tags, 'tag')} ({new_tags}) from {count_of(self.images, 'photo')}, {how}"
        return text if self.confidences else f"{text}; no confidences: too few tagged photos could be held out"

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        return asdict(self) | {"comparison": None if self.comparison is None else self.comparison.as_dict()}


def in_words(learned: LearningOutcome, catalogue: Path) -> str:
    """Return what was learned, what it changed, which run is in use, and how to use the other one."""
    if learned.cancelled:
        return "Stopped; nothing has changed."
    text = learned.in_words
    compared = learned.comparison
    none = "there is no tagged photo that neither learned from. After the first time there mostly is."
    if not learned.held_out:
        none = f"without giving up a tag, fewer than {FEWEST_COMPARED} photos could be kept apart."
    text += f"; the runs are not compared: {none}" if compared is None else f"; {compared.in_words()}"
    new, old = f"run {learned.number}", f"run {learned.number_before}"
    if learned.run == learned.run_before:
        return f"{text} Nothing has changed: {catalogue} goes on with its {old}."
    if learned.in_use:
        return f"{text} {catalogue} uses the new {new}. To go back: visterm use {catalogue} --back"
    reasons = {
        IS_WORSE: f"The new {new} " + ("did worse on these" if learned.interval is None else "is significantly worse"),
        LEFT: f"The new {new} is the one that a person went back from",
        HELD_BACK: f"A person went back to {old}, and the new {new} is not clearly better",
    }
    return (
        f"{text} {reasons[learned.why_not]}, so {catalogue} goes on with its {old}. To use the new one all the same: "
        f"visterm use {catalogue} {learned.number}"
    )


def some_tags(tags: Sequence[str]) -> str:
    """Return the first five tags in words, and how many more there are."""
    more = f" and {len(tags) - MOST_SHOWN:,} more" if len(tags) > MOST_SHOWN else ""
    return ", ".join(tags[:MOST_SHOWN]) + more
