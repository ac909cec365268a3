"""The old and the new run of a catalogue on photos that neither learned from: in numbers and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from visterm.core.wording import count_of

FEWEST_COMPARED = 20  # Photos held out below which a resample of them says little of either run
MEASURE = "MAP"  # Mean average precision, over the tags that both runs know
BETTER, WORSE, NO_DIFFERENCE, TOO_FEW = "better", "worse", "no clear difference", "too few photos"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, measured on the same photos that were held out from both."""

    before: float  # MAP of the old run: 1 if every right tag of each photo is ranked above all wrong ones
    after: float  # MAP of the new run
    compared: int  # Photos that both were measured on
    interval: tuple[float, float] | None
    """The difference, from - to, in 95 % of resamples of these photos (paired bootstrap); None: too few photos."""
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

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        more = {"measure": MEASURE, "difference": self.difference, "verdict": self.verdict, "in_words": self.in_words()}
        return asdict(self) | more
