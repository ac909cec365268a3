"""Confidences: the probability that an image has a tag, or all words of a search, from the model's scores."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind, Record, Sizes
from visterm.core.types import Doubles, Floats, Ints
from visterm.metrics.annotation import f1_of_means
from visterm.metrics.significance import upper_share

KINDS: dict[str, Kind] = {
    "slope": Array("float64", ("n_tags_",), least=0),
    "offset": Array("float64", ("n_tags_",)),
    "together": Array("float64", (), least=0, most=1),
    "n_images": Array("int64", (), least=0),
    "curve_knots": Array("float64", ("n_knots",), ascending=True),
    "curve_values": Array("float64", ("n_knots",), ascending=True),
    "curve_slope": Array("float64", (), above=0),
    "curve_bound": Array("float64", ()),
    "curve_n_top": Array("int64", (), least=0),
    "held_out_chances": Array("float32", ("n_entries",), least=0, most=1, empty=True),
    "held_out_right": Array("bool", ("n_entries",), empty=True),
    "held_out_tags": Array("int32", ("n_entries",), least=0, below="n_tags_", empty=True),
    "held_out_images": Array("int32", ("n_entries",), least=0, below="n_held_out", empty=True),
    "held_out_tag_counts": Array("int64", ("n_tags_",), least=0),
    "held_out_image_counts": Array("int64", ("n_held_out",), least=0),
    "held_out_is_learned": Array("bool", ("n_tags_",)),
}
"""The arrays of a calibration in files; a calibration without a part has none of the part's arrays."""

PARTS = ("curve", "held_out")
PRIOR_ENTRIES = 20  # Pseudo-count of entries that are right as often as their confidences say
MEANS = ("photo", "micro", "macro")
MIN_CUTOFF = 0.02  # Most confidences are lower, and are not stored
F1_LEVELS = np.arange(MIN_CUTOFF, 1.5, 0.02)  # Cut-offs of the most frequent tag to choose from


class Curve(NamedTuple):
    """Corrects the log odds of all tags: piecewise linear between knots, and bounded above the last knot.

    The curve is increasing, so it keeps the order of log odds. Below the first knot it has the slope `slope`. At a
    distance d above the last knot it is ``last + room d / (room + d)`` with ``room = bound - last``.
    """

    # float64, shape (n_knots,), both ascending
    knots: Doubles
    values: Doubles
    slope: float
    bound: float  # Log odds of the highest confidence that held-out images support
    n_top: int = 0  # Number of the most confident held-out entries, which set the bound

    def __call__(self, log_odds: Any) -> Doubles:
        """Return corrected log odds of the same shape."""
        x = np.asarray(log_odds, np.float64)
        above, room = np.maximum(x - self.knots[-1], 0), self.bound - self.values[-1]
        between = np.interp(x, self.knots, self.values) + self.slope * np.minimum(x - self.knots[0], 0)
        return np.asarray(between + room * (above / (room + above)))

    def write_steps(self, steps: Any, log_odds: str) -> str:
        """Add the correction of log odds to an ONNX graph; return the name of the result's tensor."""
        room = self.bound - self.values[-1]
        above = steps.add("Relu", steps.add("Sub", log_odds, self.knots[-1]))
        result = steps.add("Mul", room, steps.add("Div", above, steps.add("Add", above, room)))
        slopes = np.diff(self.values) / np.diff(self.knots)
        starts = np.append(-np.inf, self.knots[:-1])  # of each straight line
        for slope, low, high in zip([self.slope, *slopes], starts, self.knots, strict=True):
            part = steps.add("Min", log_odds, high) if np.isinf(low) else steps.add("Clip", log_odds, low, high)
            result = steps.add("Add", result, steps.add("Mul", steps.add("Sub", part, max(low, self.knots[0])), slope))
        return str(steps.add("Add", result, self.values[0]))


class HeldOutChances(NamedTuple):
    """Held-out confidences of at least 2 %, highest first, by curves not fitted on their images: to choose cut-offs."""

    # Entries (image, tag), each of shape (n_entries,)
    chances: Floats  # Confidences
    right: NDArray[np.bool_]  # Whether the image has the tag
    tags: NDArray[np.int32]
    images: NDArray[np.int32]
    # Including entries with lower confidences
    tag_counts: Ints  # shape (n_tags,): number of held-out images with each tag
    image_counts: Ints  # shape (n_images,): number of tags of each held-out image
    is_learned: NDArray[np.bool_]  # shape (n_tags,): whether a training image has the tag

    @classmethod
    def of(cls, confidences: Doubles, given: NDArray[np.bool_], counts: Any = None) -> Self:
        """Select from the confidences of all tags and the given tags, both of shape (n_images, n_tags).

        `counts`, shape (n_tags,), are the numbers of training images of each tag; None: every tag has some.
        """
        is_learned = np.ones(given.shape[1], np.bool_) if counts is None else np.asarray(counts) > 0
        images, tags = np.nonzero(confidences >= MIN_CUTOFF)
        order = np.argsort(-confidences[images, tags], kind="stable")
        images, tags = images[order], tags[order]
        chances = confidences[images, tags].astype(np.float32)
        positions = tags.astype(np.int32), images.astype(np.int32)
        return cls(chances, given[images, tags], *positions, given.sum(axis=0), given.sum(axis=1), is_learned)


class Calibration(NamedTuple):
    """A line for each tag, and a curve for all tags: ``P(tag | image) = σ(curve(slope · score + offset))``.

    ``σ(x) = 1 / (1 + exp(-x))``. For each tag, a higher score is a higher confidence.

    A search by several words looks for images with all words, and with none of the words with ``-``. If words were
    independent, its confidence would be the product of theirs; if each word implied the next, it would be the lowest of
    theirs. It is between these: ``P = (Π P_t)^(1 - λ) · (min P_t)^λ · Π (1 - P_n)`` for wanted words t and unwanted
    words n. The confidence of a single word is that of its tag.
    """

    # float64, shape (n_tags,): slopes are not below 0
    slope: Doubles
    offset: Doubles
    together: float  # λ, from 0 (words are independent) to 1
    n_images: int  # Number of images that the calibration was fitted on
    curve: Curve | None = None
    held_out: HeldOutChances | None = None  # None after tags were added

    def log_odds(self, scores: Any, tags: Any = None) -> Doubles:
        """Return the log odds of confidences; shapes are as in `confidences`."""
        of_tags = slice(None) if tags is None else tags
        result = self.slope[of_tags] * np.asarray(scores, np.float64) + self.offset[of_tags]
        return result if self.curve is None else self.curve(result)

    def confidences(self, scores: Any, tags: Any = None) -> Doubles:
        """Return P(tag | image) for scores of all tags, shape (..., n_tags), or for scores of `tags`, of any shape."""
        return sigmoid(self.log_odds(scores, tags))

    def write_steps(self, steps: Any, scores: str) -> str:
        """Add the steps from scores to confidences to an ONNX graph; return the name of the result's tensor."""
        log_odds = steps.add("Add", steps.add("Mul", scores, self.slope), self.offset)
        return str(steps.add("Sigmoid", log_odds if self.curve is None else self.curve.write_steps(steps, log_odds)))

    def log_confidences(self, log_odds: Doubles, signs: Any, certain: NDArray[np.bool_] | None = None) -> Doubles:
        """Return log P(all words, no excluded word | image), by which a search ranks images: float64, (n_images,).

        `log_odds`, shape (n_images, n_words), are those of the words' tags, and `signs` are above 0 for a word, below 0
        for a `-word`. `certain`, bool of shape (n_images, n_words), marks words that an image has for certain, or a
        `-word` that it lacks for certain, whatever the log odds are.
        """
        each = log_sigmoid(np.where(np.asarray(signs) > 0, log_odds, -log_odds))
        if certain is not None:
            each[certain] = 0.0
        return self.combine(each, signs)

    def combine(self, each: Doubles, signs: Any) -> Doubles:
        """Return the log confidences of images from those of the words, shape (n_images, n_words), with their signs."""
        wanted = np.asarray(signs) > 0
        logs: Any = 0.0 if wanted.size and wanted.all() else each[:, ~wanted].sum(axis=1)
        if wanted.any():
            wanted_logs = each if wanted.all() else each[:, wanted]
            logs = logs + (1 - self.together) * wanted_logs.sum(axis=1) + self.together * wanted_logs.min(axis=1)
        return np.asarray(logs)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store."""
        arrays = {name: np.asarray(getattr(self, name)) for name in self._fields if name not in PARTS}
        for name in PARTS:
            if (part := getattr(self, name)) is not None:
                arrays |= {f"{name}_{key}": np.asarray(value) for key, value in part._asdict().items()}
        return arrays

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], n_tags: int) -> Self:
        """Return the calibration with these stored arrays.

        Raises DataError if the arrays are damaged, or belong to a run with another number of tags.
        """
        absent = tuple(f"{part}_" for part in PARTS if not any(name.startswith(f"{part}_") for name in arrays))
        kinds = {name: kind for name, kind in KINDS.items() if not name.startswith(absent)}
        if unknown := sorted(arrays.keys() - kinds.keys()):
            raise DataError(f"there is an array {unknown[0]!r}, which no calibration has")
        Record(kinds).check(arrays, Sizes({"n_tags_": n_tags}))
        curve = held_out = None
        if "curve_knots" in arrays:
            knots, values, *numbers = (arrays[f"curve_{key}"] for key in Curve._fields)
            curve = Curve(knots, values, *(number.item() for number in numbers))
            if not ((np.diff(knots) > 0).all() and (np.diff([*values, curve.bound]) > 0).all()):
                raise DataError("the curve does not rise")

        if "held_out_chances" in arrays:
            held_out = HeldOutChances(*(arrays[f"held_out_{key}"] for key in HeldOutChances._fields))
        slope, offset, together, n_images = (arrays[name] for name in cls._fields if name not in PARTS)
        return cls(slope, offset, together.item(), n_images.item(), curve, held_out)


def log_sigmoid(log_odds: Doubles) -> Doubles:
    """Return the logarithms of the probabilities with these log odds."""
    return -np.logaddexp(0, -log_odds)


def sigmoid(log_odds: Doubles) -> Doubles:
    """Return the probabilities with these log odds."""
    return np.exp(log_sigmoid(log_odds))


def cutoff_for_precision(held: HeldOutChances, wanted: float) -> Doubles:
    """Return the lowest confidences with the expected precision `wanted`, above 0 and below 1, over all tags.

    The expected precision is that of the held-out images and of `PRIOR_ENTRIES`. A tag has a higher cut-off than others
    if the precision of its own held-out images is clearly lower (the upper end of a one-sided 95 % interval is below
    `wanted`). This does not lower the cut-offs of other tags: some tags are only worse by chance, and without them the
    others would look better than they are.
    """
    confidences = held.chances.astype(np.float64)
    n = np.arange(1, confidences.size + 1)
    expected = (np.cumsum(held.right) + PRIOR_ENTRIES * np.cumsum(confidences) / n) / (n + PRIOR_ENTRIES)
    expected[:-1][confidences[1:] == confidences[:-1]] = 0.0  # equal ones are given together
    precise = np.flatnonzero(expected >= wanted)
    common = confidences[precise[-1]] if precise.size else np.inf if (confidences >= wanted).any() else wanted
    return np.asarray(np.maximum(_min_cutoffs(held, wanted), common))


def _min_cutoffs(held: HeldOutChances, wanted: float) -> Doubles:
    """Return the lowest confidence of each tag at which its own held-out images don't contradict the precision.

    Two right entries are added to those of each tag, so that few images contradict nothing.
    """
    order = np.argsort(held.tags, kind="stable")  # by tag, and highest first
    tags, confidences = held.tags[order], held.chances[order]
    starts = np.searchsorted(tags, np.arange(held.tag_counts.size + 1))
    n_right = np.concatenate([[0], np.cumsum(held.right[order])])
    n = np.arange(1, tags.size + 1) - starts[tags]
    is_precise = upper_share(n_right[1:] - n_right[starts[tags]] + 2, n + 2) >= wanted
    is_precise[:-1] &= (confidences[1:] < confidences[:-1]) | (tags[1:] > tags[:-1])  # the last of equal ones
    n_precise = np.zeros(held.tag_counts.size, np.int64)
    np.maximum.at(n_precise, tags[is_precise], n[is_precise])
    cutoffs = np.full(n_precise.size, MIN_CUTOFF)
    is_cut = np.flatnonzero(n_precise < np.diff(starts))
    last = confidences[starts[is_cut] + np.maximum(n_precise[is_cut], 1) - 1]
    cutoffs[is_cut] = np.where(n_precise[is_cut] > 0, last, np.where(last >= wanted, np.inf, wanted))
    cutoffs[~held.is_learned] = np.inf  # their precision is unknown
    return cutoffs


def cutoff_of_best_f1(held: HeldOutChances, mean: str = "photo") -> Doubles:
    """Return the cut-offs with the best F1 on the held-out images.

    `mean` says which F1: "photo" is the mean over images, "micro" is F1 of all entries together, and "macro" is F1 of
    the means of precision and recall over tags, as in the literature on annotation. For "photo" and "micro" all tags
    have the same cut-off. For "macro", where a rare tag counts as much as a frequent one, cut-offs are proportional to
    the square root of the tag's number of held-out images; other powers, and a cut-off fitted to each tag, were not
    better on fresh images.
    """
    if not held.right.any():
        return np.full(held.tag_counts.size, np.inf)
    shares = (held.tag_counts + 0.5) / (held.tag_counts.max() + 0.5)
    factors = np.sqrt(shares) if mean == "macro" else np.ones_like(shares)
    choices = [np.clip(level * factors, MIN_CUTOFF, 1) for level in F1_LEVELS]
    return max(choices, key=lambda cutoffs: f1_score(held, held.chances >= cutoffs[held.tags], mean))


def f1_score(held: HeldOutChances, given: NDArray[np.bool_], mean: str) -> float:
    """Return F1 if the held-out entries in `given` are given, by a mean of `cutoff_of_best_f1`."""
    right = given & held.right
    if mean == "micro":
        return float(2 * right.sum() / (given.sum() + held.tag_counts.sum()))
    groups, counts = (held.images, held.image_counts) if mean == "photo" else (held.tags, held.tag_counts)
    n_right, n_given = (np.bincount(groups, each, counts.size)[counts > 0] for each in (right, given))
    counts = counts[counts > 0]
    if mean == "photo":
        return float((2 * n_right / (n_given + counts)).mean())
    return float(f1_of_means(n_right / np.maximum(n_given, 1), n_right / counts)[0])


def expected_f1_cutoff(confidences: Any) -> int:
    """Return the number of first entries of a ranking with the highest expected F1, 0 if no entry has a confidence.

    `confidences`, shape (n,), are the probabilities that the entries are relevant, best first; of equal F1, the smaller
    number is returned. Of the first k entries ``Σ_{i ≤ k} P_i`` are expected to be relevant, and ``Σ_i P_i`` of all, so
    F1 is about ``2 Σ_{i ≤ k} P_i / (k + Σ_i P_i)``, and the confidence at the cut-off about half of the best F1.

    References
    ----------
    Lewis: Evaluating and optimizing autonomous text classification systems. SIGIR 1995.
    """
    P = np.asarray(confidences, np.float64)
    total = P.sum()
    if not total > 0:
        return 0
    return int(np.argmax(2 * np.cumsum(P) / (np.arange(1, P.size + 1) + total))) + 1
