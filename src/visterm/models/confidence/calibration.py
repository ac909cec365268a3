"""Confidences: what a score says of the chance that an image has a tag, or answers a search by several."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind, Record, Sizes

Doubles = NDArray[np.float64]

KINDS: dict[str, Kind] = {
    "slope": Array("float64", ("n_tags_",), least=0),
    "offset": Array("float64", ("n_tags_",)),
    "together": Array("float64", (), least=0, most=1),
    "n_images": Array("int64", (), least=0),
}
PART_KINDS: dict[str, dict[str, Kind]] = {
    "curve": {
        "knots": Array("float64", ("n_knots",), ascending=True),
        "values": Array("float64", ("n_knots",), ascending=True),
        "slope": Array("float64", (), above=0),
        "bound": Array("float64", ()),
        "n_top": Array("int64", (), least=0),
    },
    "held_out": {
        "chances": Array("float32", ("n_entries",), least=0, most=1, empty=True),
        "right": Array("bool", ("n_entries",), empty=True),
        "tags": Array("int32", ("n_entries",), least=0, below="n_tags_", empty=True),
        "images": Array("int32", ("n_entries",), least=0, below="n_held_out", empty=True),
        "tag_counts": Array("int64", ("n_tags_",), least=0),
        "image_counts": Array("int64", ("n_held_out",), least=0),
        "is_learned": Array("bool", ("n_tags_",)),
    },
}
"""The arrays of a calibration, as files have them; those of a part begin with its name."""

LEAST_CHANCE = 0.02  # No cut-off lies below; most entries do, and are not kept


class Curve(NamedTuple):
    """Corrects the log odds of all tags: straight lines between knots, and above the last one toward a bound.

    It rises everywhere, so that it changes no order. Below the first knot it has a `slope`. A way d above the last one
    it is ``last + room d / (room + d)`` with ``room = bound - last``: always below the bound.
    """

    # float64, shape (n_knots,), both ascending
    knots: Doubles
    values: Doubles
    slope: float
    bound: float  # Log odds of the largest chance that held-out images support
    n_top: int = 0  # Held-out entries of images and tags by which the bound is known

    def __call__(self, odds: Any) -> Doubles:
        """Return corrected log odds, of the same shape."""
        x = np.asarray(odds, np.float64)
        above, room = np.maximum(x - self.knots[-1], 0), self.bound - self.values[-1]
        between = np.interp(x, self.knots, self.values) + self.slope * np.minimum(x - self.knots[0], 0)
        corrected: Doubles = between + room * (above / (room + above))
        return corrected

    def write_steps(self, steps: Any, odds: str) -> str:
        """Add the steps from log odds to corrected ones to an ONNX graph; return their tensor's name."""
        room = self.bound - self.values[-1]
        above = steps.add("Relu", steps.add("Sub", odds, self.knots[-1]))
        result = steps.add("Mul", room, steps.add("Div", above, steps.add("Add", above, room)))
        slopes = np.diff(self.values) / np.diff(self.knots)
        least = np.append(-np.inf, self.knots[:-1])  # of each straight line
        for slope, low, high in zip([self.slope, *slopes], least, self.knots, strict=True):
            part = steps.add("Min", odds, high) if np.isinf(low) else steps.add("Clip", odds, low, high)
            result = steps.add("Add", result, steps.add("Mul", steps.add("Sub", part, max(low, self.knots[0])), slope))
        return str(steps.add("Add", result, self.values[0]))


class HeldOutChances(NamedTuple):
    """The chances of 2 % or more, largest first, by curves not fitted on their images; cut-offs are chosen by them."""

    # Entries of images and tags, each of shape (n_entries,)
    chances: NDArray[np.float32]
    right: NDArray[np.bool_]  # Whether the image has the tag
    tags: NDArray[np.int32]
    images: NDArray[np.int32]
    # With any chance
    tag_counts: NDArray[np.int64]  # shape (n_tags,): held-out images that have each tag
    image_counts: NDArray[np.int64]  # shape (n_images,): tags that each of them has
    is_learned: NDArray[np.bool_]  # shape (n_tags,): whether any training image has the tag

    @classmethod
    def of(cls, chances: NDArray[np.float64], given: NDArray[np.bool_], counts: Any = None) -> Self:
        """Keep what matters of the chances of all tags, shape (n_images, n_tags), and of what people gave.

        `counts`, (n_tags,), are training images of each tag; None: every tag has some.
        """
        is_learned = np.ones(chances.shape[1], np.bool_) if counts is None else np.asarray(counts) > 0
        images, tags = np.nonzero(chances >= LEAST_CHANCE)
        order = np.argsort(-chances[images, tags], kind="stable")
        images, tags = images[order], tags[order]
        kept = chances[images, tags].astype(np.float32), given[images, tags]
        return cls(
            *kept, tags.astype(np.int32), images.astype(np.int32), given.sum(axis=0), given.sum(axis=1), is_learned
        )


class Calibration(NamedTuple):
    """A line for each tag, and a curve for all: ``P(tag | image) = σ(curve(slope · score + offset))``.

    ``σ(x) = 1 / (1 + exp(-x))``. Of one tag, a larger score always is a larger confidence.

    A search by several words asks for images that have them all, and none of those with ``-``. Its confidence lies
    between that of words that have nothing to do with each other, the product of theirs, and that of words of which
    each brings the next, the least of theirs: ``P = (Π P_t)^(1 - λ) · (min P_t)^λ · Π (1 - P_n)`` for wanted words t
    and unwanted words n. One word alone keeps its own confidence.
    """

    # float64, shape (n_tags,): slopes are not below 0
    slope: Doubles
    offset: Doubles
    together: float  # λ, from 0 to 1: how far words bring each other
    n_images: int  # Images that it was fitted on
    curve: Curve | None = None
    held_out: HeldOutChances | None = None  # None after more tags came in

    def odds(self, scores: Any, tags: Any = None) -> Doubles:
        """Return the log odds of the confidences of scores, with shapes as in `confidences`."""
        some = slice(None) if tags is None else tags
        odds = self.slope[some] * np.asarray(scores, np.float64) + self.offset[some]
        return odds if self.curve is None else self.curve(odds)

    def confidences(self, scores: Any, tags: Any = None) -> Doubles:
        """Return P(tag | image) for scores of all tags, shape (..., n_tags), or of those of `tags`, of any shape."""
        return np.exp(log_sigmoid(self.odds(scores, tags)))

    def write_steps(self, steps: Any, scores: str) -> str:
        """Add the steps from scores of all tags to confidences to an ONNX graph; return their tensor's name."""
        odds = steps.add("Add", steps.add("Mul", scores, self.slope), self.offset)
        return str(steps.add("Sigmoid", odds if self.curve is None else self.curve.write_steps(steps, odds)))

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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what there is to store."""
        parts = {name: np.asarray(getattr(self, name)) for name in KINDS}
        for name in PART_KINDS:
            part = getattr(self, name)
            parts |= {} if part is None else {f"{name}_{key}": np.asarray(v) for key, v in part._asdict().items()}
        return parts

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], n_tags: int) -> Self:
        """Make the calibration that `arrays` took apart.

        Raises DataError if it is damaged, or is none of a run with so many tags.
        """
        kinds = dict(KINDS)
        for name, part in PART_KINDS.items():
            if any(f"{name}_{key}" in arrays for key in part):
                kinds |= {f"{name}_{key}": kind for key, kind in part.items()}
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
        slope, offset, together, n_images = (arrays[name] for name in KINDS)
        return cls(slope, offset, float(together), int(n_images), curve, held_out)


def log_sigmoid(odds: Doubles) -> Doubles:
    """Return the logs of the probabilities whose log odds are given."""
    return -np.logaddexp(0, -odds)


def sigmoid(log_odds: Doubles) -> Doubles:
    """Return the probabilities whose log odds are given."""
    result: Doubles = np.exp(log_sigmoid(log_odds))
    return result
