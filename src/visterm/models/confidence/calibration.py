"""Confidences: what a score says of the chance that an image has a tag, or answers a search by several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind, Record, Sizes
from visterm.metrics.bands import frequency_bands

Doubles = NDArray[np.float64]

KINDS: dict[str, Kind] = {
    "slope": Array("float64", ("n_tags_",), least=0),
    "offset": Array("float64", ("n_tags_",)),
    "together": Array("float64", (), least=0, most=1),
    "n_images": Array("int64", (), least=0),
    "bend": Array("float64", (3,)),
    "doubt": Array("float64", ("n_tags_",), least=0, required=False),
}
HELD_OUT_KINDS: dict[str, Kind] = {
    "held_out_starts": Array("int64", ("n_tags_ + 1",), least=0, ascending=True),
    "held_out_chances": Array("float32", ("n_entries",), least=0, most=1, empty=True),
    "held_out_right": Array("bool", ("n_entries",), empty=True),
    "held_out_groups": Array("int8", ("n_tags_",), least=0),
    "held_out_n_given": Array("int64", (), least=0),
}
"""The arrays of a calibration, as files have them."""

TINY = np.finfo(np.float64).tiny

GROWTH = 0.2
"""The power by which doubted odds grow. Of 0, 0.2, 0.4 and 0.6 it had the smallest loss for rare tags of validation
rows (Delicious, Corel5k with MobileNet; four models); with 0 hardly any rare tag could reach 0.7."""

STEPS = 1024  # Ranges of a word's scores within which confidences are bounded by those at the ends
SLACK = 1e-9  # Of bounds, for their rounding
LEAST_CHANCE = 0.02  # No cut-off lies below; most entries do, and are not kept


class Bend(NamedTuple):
    """The curve ``odds' = low · ln σ(odds) - high · ln σ(-odds) + shift`` of log odds; as it stands, no change.

    It puts right what is too large or too small as a whole. Sigmoids promise too much at their ends: the best scores of
    all still miss what people left out. A beta curve has an end of its own on either side, and keeps the order.
    """

    # Above 0: the slopes for chances near 0 and near 1
    low: float = 1.0
    high: float = 1.0
    shift: float = 0.0

    def __call__(self, odds: Any) -> Doubles:
        """Return the log odds of any shape that are put right."""
        x = np.asarray(odds, np.float64)
        if self == Bend():
            return x
        return self.high * np.logaddexp(0, x) - self.low * np.logaddexp(0, -x) + self.shift


class HeldOutChances(NamedTuple):
    """The chances of 2 % or more, tag by tag and each tag's largest first, by curves not fitted on their images."""

    starts: NDArray[np.int64]  # shape (n_tags + 1,): where the entries of each tag begin
    chances: NDArray[np.float32]  # shape (n_entries,)
    right: NDArray[np.bool_]  # shape (n_entries,): whether the image has the tag
    groups: NDArray[np.int8]
    """shape (n_tags,): tags with about as many training images have the same number, the rarest 0."""
    n_given: int  # Tags that the images have, of any chance

    @property
    def tags(self) -> NDArray[np.int64]:
        """Return the tag of each entry, shape (n_entries,)."""
        return np.repeat(np.arange(self.groups.size), np.diff(self.starts))

    @classmethod
    def of(cls, chances: NDArray[np.float64], given: NDArray[np.bool_], counts: NDArray[Any]) -> Self:
        """Keep what matters of the chances of all tags, shape (n_images, n_tags), and of what people gave.

        `counts` are the training images of each tag, shape (n_tags,).
        """
        images, tags = np.nonzero(chances >= LEAST_CHANCE)
        values = chances[images, tags]
        order = np.lexsort((images, -values, tags))
        starts = np.concatenate([[0], np.cumsum(np.bincount(tags, minlength=chances.shape[1]))]).astype(np.int64)
        right = given[images, tags][order]
        return cls(starts, values[order].astype(np.float32), right, groups_of(counts), int(given.sum()))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what there is to store."""
        return {f"held_out_{name}": np.asarray(value) for name, value in self._asdict().items()}


class Calibration(NamedTuple):
    """A sigmoid for each tag, ``P(tag | image) = σ(doubted(bend(slope · score + offset)))``.

    ``σ(x) = 1 / (1 + exp(-x))``. The doubt of rare tags lowers large confidences and leaves small ones as they are, see
    `doubted`.

    A search by several words asks for images that have them all, and none of those with ``-``. Its confidence lies
    between that of words that have nothing to do with each other, the product of theirs, and that of words of which
    each brings the next, the least of theirs: ``P = (Π P_t)^(1 - λ) · (min P_t)^λ · Π (1 - P_n)`` for wanted words t
    and unwanted words n. One word alone keeps its own confidence.
    """

    # float64, shape (n_tags,): slopes are not below 0: the larger the score of an image, the larger the confidence
    slope: Doubles
    offset: Doubles
    together: float  # λ, from 0 to 1: how far words bring each other
    n_images: int  # Images that it was fitted on
    bend: Bend = Bend()  # What puts right all confidences together
    held_out: HeldOutChances | None = None  # What cut-offs are chosen by; None after more tags came in
    doubt: Doubles | None = None
    """float64, shape (n_tags,): 0 or more; None is 0."""

    def odds(self, scores: Any, tags: Any = None) -> Doubles:
        """Return the log odds of the confidences of scores, with shapes as in `confidences`."""
        some = slice(None) if tags is None else tags
        odds = self.bend(self.slope[some] * np.asarray(scores, np.float64) + self.offset[some])
        return odds if self.doubt is None else doubted(odds, self.doubt[some])

    def confidences(self, scores: Any, tags: Any = None) -> Doubles:
        """Return P(tag | image) for scores of all tags, shape (..., n_tags), or of those of `tags`, of any shape."""
        return np.exp(log_sigmoid(self.odds(scores, tags)))

    def write_steps(self, steps: Any, scores: str) -> str:
        """Add the steps from scores of all tags to confidences to an ONNX graph; return their tensor's name."""
        odds = steps.add("Add", steps.add("Mul", scores, self.slope), self.offset)
        if self.bend != Bend():
            high = steps.add("Mul", steps.add("Softplus", odds), self.bend.high)
            low = steps.add("Mul", steps.add("Softplus", steps.add("Neg", odds)), self.bend.low)
            odds = steps.add("Add", steps.add("Sub", high, low), self.bend.shift)
        if self.doubt is not None:  # as `doubted`, with one logarithm taken out of the sum
            above = steps.add("Add", steps.add("Mul", odds, 1 - GROWTH), np.log(np.maximum(self.doubt, TINY)))
            odds = steps.add("Sub", odds, steps.add("Softplus", above))
        return str(steps.add("Sigmoid", odds))

    def log_confidences(self, scores: Any, tags: Any, signs: Any, certain: NDArray[np.bool_] | None = None) -> Doubles:
        """Return the log of P(all words, no excluded one | image), by which search ranks images: float64, (n_images,).

        `scores` are (n_images, n_words), `tags` the tags that the words are, (n_words,), and `signs` above 0 for a word
        and below 0 for a `-word`. `certain`, bool of shape (n_images, n_words), are words that an image has for sure,
        or a `-word` that it has not, whatever its scores.
        """
        return self.log_of_odds(self.odds(scores, np.asarray(tags)), signs, certain)

    def log_of_odds(self, odds: Doubles, signs: Any, certain: NDArray[np.bool_] | None = None) -> Doubles:
        """Return what `log_confidences` does, of the log odds of the words, (n_images, n_words)."""
        wanted = np.asarray(signs) > 0
        each = log_sigmoid(np.where(wanted, odds, -odds))
        if certain is not None:
            each[certain] = 0.0
        logs: Doubles = each[:, ~wanted].sum(axis=1)
        if wanted.any():
            wanted_logs = each[:, wanted]
            logs = logs + (1 - self.together) * wanted_logs.sum(axis=1) + self.together * wanted_logs.min(axis=1)
        return logs

    def contenders(
        self, scores: Any, tags: Any, signs: Any, k: int, certain: Mapping[int, NDArray[np.int64]] | None = None
    ) -> NDArray[np.int64]:
        """Return the places, in order, of all images that may have one of the k largest `log_confidences`.

        `certain` has, by the number of a word, the places of images of which it is certain.

        A confidence rises with the score. So it is computed at the ends of `STEPS` ranges of each word's scores, and
        bounds those in between; images whose upper bound lies below the lower bounds of k others are left out.
        """
        n_images, n_words = scores.shape
        if n_images <= max(4 * k, STEPS):
            return np.arange(n_images)
        bounds, totals, worst = (
            np.zeros((2, n_images)) for _ in range(3)
        )  # lower and upper bounds of sums, and of minima
        for word, sign, column in zip(range(n_words), signs, np.asarray(scores, np.float64).T, strict=True):
            least = column.min()
            step = max((column.max() - least) / STEPS, TINY)
            odds = self.odds(least + np.arange(-1, STEPS + 3) * step, tags[word])  # a step to spare on either side
            logs = log_sigmoid(odds if sign > 0 else -odds)
            cell = ((column - least) / step).astype(np.int64)
            both = np.stack([np.minimum(logs[:-3], logs[3:]), np.maximum(logs[:-3], logs[3:])])[:, cell]
            if certain is not None and word in certain:
                both[:, certain[word]] = 0.0
            if sign > 0:
                totals += both
                np.minimum(worst, both, out=worst)
            else:
                bounds += both
        lower, upper = bounds + (1 - self.together) * totals + self.together * worst
        kth = np.partition(lower, n_images - k)[n_images - k]
        return np.flatnonzero(upper >= kth - SLACK * abs(kth))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what there is to store."""
        kept = {name: value for name, value in self._asdict().items() if name != "held_out" and value is not None}
        parts = {name: np.asarray(value) for name, value in kept.items()}
        return parts if self.held_out is None else parts | self.held_out.arrays()

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], n_tags: int) -> Self:
        """Make the calibration that `arrays` took apart.

        Raises DataError if it is damaged, or is none of a run with so many tags.
        """
        kinds = KINDS | (HELD_OUT_KINDS if any(name in arrays for name in HELD_OUT_KINDS) else {})
        if unknown := sorted(arrays.keys() - kinds.keys()):
            raise DataError(f"there is an array {unknown[0]!r}, which no calibration has")
        Record(kinds).check(arrays, Sizes({"n_tags_": n_tags}))
        bend = Bend(*arrays["bend"].tolist())
        if min(bend[:2]) <= 0:
            raise DataError(f"bend is {list(bend)}; expected slopes above 0")
        n_images, together = int(arrays["n_images"]), float(arrays["together"])
        held_out = None
        if "held_out_starts" in arrays:
            if arrays["held_out_starts"][[0, -1]].tolist() != [0, n := len(arrays["held_out_chances"])]:
                raise DataError(f"held_out_starts does not go from 0 to {n}")
            starts, chances, right, groups, n_given = (arrays[f"held_out_{name}"] for name in HeldOutChances._fields)
            held_out = HeldOutChances(starts, chances, right.astype(np.bool_), groups, int(n_given))
        return cls(arrays["slope"], arrays["offset"], together, n_images, bend, held_out, arrays.get("doubt"))


def groups_of(counts: NDArray[Any]) -> NDArray[np.int8]:
    """Return the number of each tag's group: tags with about as many training images, the rarest in group 0."""
    groups = np.zeros(len(counts), np.int8)
    for number, band in enumerate(frequency_bands(counts)):
        groups[band.tags] = number
    return groups


def doubted(odds: Doubles, doubt: Any) -> Doubles:
    """Return log odds lowered by a doubt of 0 or more: ``1 / o' = 1 / o + doubt / o^0.2``, o the odds.

    Small odds stay as they are, large ones grow with their fifth root, and the order stays. Log odds and doubts have
    shapes that go together.
    """
    lowered: Doubles = -np.logaddexp(-odds, np.log(np.maximum(doubt, TINY)) - GROWTH * odds)
    return lowered


def log_sigmoid(odds: Doubles) -> Doubles:
    """Return the logs of the probabilities whose log odds are given."""
    return -np.logaddexp(0, -odds)
