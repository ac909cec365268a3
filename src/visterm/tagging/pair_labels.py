"""Labels of a picture of an object and one of its part, found together."""

from __future__ import annotations

from typing import Any, NamedTuple

from visterm.core.errors import UserError
from visterm.tagging.part_beliefs import beliefs_of, check_believes
from visterm.tagging.tagger import Tagger


class LabelledPair(NamedTuple):
    """What the object is, what its part is, and the score of both together (higher is better)."""

    object: str
    part: str
    score: float


def label_pair(
    tagger: Tagger,
    object_image: Any,
    part_image: Any,
    k: int = 5,
    *,
    object_tag: str | None = None,
    part_tag: str | None = None,
) -> list[LabelledPair]:
    """Label a picture of an object and one of a part of it together.

    Only pairs are looked at that can be, as `PartBeliefs` says: nothing is part of itself or of its kind.

    Parameters
    ----------
    tagger : Tagger
        Its model must have learned from part-of relations.
    object_image, part_image : path-like or ndarray of uint8, shape (height, width, 3)
        For an encoder of names: names.
    k : int
        How many pairs of tags; 0 means all.
    object_tag, part_tag : str, optional
        The tag of one of the two, where it is known: then only the other is looked for.

    Returns
    -------
    list of LabelledPair
        Best first; fewer than `k` where fewer can be.

    Raises
    ------
    UserError
        If the model knows nothing of parts, or both tags are given.
    UnknownNameError
        If a tag is not in the vocabulary.
    ImageError
        If an image cannot be read.
    """
    check_believes(tagger.model)
    if object_tag is not None and part_tag is not None:
        raise UserError("Both tags are given, so there is nothing to look for. Leave --object-tag or --part-tag out.")
    tags = tagger.vocabulary
    known = {name: [tags.index(tag)] for name, tag in (("objects", object_tag), ("parts", part_tag)) if tag is not None}
    X = tagger.encoder.transform([object_image, part_image])
    possible = beliefs_of(tagger).possible()
    found = tagger.model.annotate_pairs(X[:1], X[1:], k, **known, possible=possible)
    return [
        LabelledPair(tags.tags[whole], tags.tags[part], float(score))
        for whole, part, score in zip(found.objects[0], found.parts[0], found.scores[0], strict=True)
        if possible[whole, part]
    ]
