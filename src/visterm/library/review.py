"""Which answers of a person are worth most: unsure ones, where runs disagree, of rare tags or of frequent ones."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np

from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.data.tag_tree import TagTree
from visterm.store.catalogue import StoredCatalogue

CANDIDATES = 20_000  # Predictions that are weighed, the least sure ones first: bounds the time for large libraries
RARE = 5  # Images with a tag, given or accepted, below which it is called rare
DISAGREE = 0.25  # Difference between the confidences of two runs that is worth telling

Question: TypeAlias = tuple[int, str, float | None, float | None]  # Image, tag, confidence and that of the run before


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A question to a person: whether an image has a tag."""

    image_id: int
    tag: str
    confidence: float | None  # Of the current run; None of a run without calibration
    value: float  # What an answer is expected to teach, in bits for a rare tag, less for a frequent one
    why: list[str]  # What makes it worth asking, in words

    def as_dict(self) -> dict[str, object]:
        """Return the question as it stands in JSON."""
        fields = asdict(self)
        return {"image": fields.pop("image_id"), **fields}


def review_queue(
    stored: StoredCatalogue,
    k: int = 20,
    *,
    skip: Collection[tuple[int, str]] = (),
    frequent: bool = False,
    tree: TagTree | None = None,
) -> list[ReviewItem]:
    """Choose k questions whose answers would teach most, best first.

    The worth of an answer is its entropy, in bits (uncertainty sampling: Lewis, Gale 1994), and how far the confidences
    of the current run and of the one before are apart (query by committee: Seung, Opper, Sompolinsky 1992), over the
    square root of one more than the images that have the tag already. Each image appears once, and a tag that was
    chosen counts as an image more, so that the questions are of many images and tags.

    With `frequent`, what most searches show comes first: the entropy is multiplied by the root of the images that have
    the tag or are predicted to, so that doubts about frequent tags are settled before those about rare ones.

    Without confidences, as before anything was learned, questions are of predictions drawn by chance, the same at each
    call. Asking for each tag's best images first taught less, though more answers were yes: these are found already.

    Questions come from stored predictions. What was given, accepted or rejected is left out, what follows from it in
    the `tree`, and the images and tags of `skip`.
    """
    open_questions = [question for question in _unanswered(stored) if question[:2] not in skip]
    images = {tag["tag"]: tag["images"] for tag in stored.tags.counts()}

    if tree is not None:
        open_questions = _not_known_by(tree, stored, open_questions)
        named = {tag_key(tag): n for tag, n in images.items()}
        images = {
            tag: sum(named.get(tag_key(each), 0) for each in (tag, *tree.below(tag)))
            for tag in dict.fromkeys(tag for _, tag, *_ in open_questions)
        }

    p = np.array([0.5 if now is None else now for _, _, now, _ in open_questions], np.float64).clip(1e-9, 1 - 1e-9)
    earlier = np.array([now if q[3] is None else q[3] for now, q in zip(p, open_questions, strict=True)], np.float64)
    worth = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) + np.abs(p - earlier)  # without confidences all are alike
    predicted = Counter(tag for _, tag, *_ in open_questions)
    chosen: list[ReviewItem] = []
    seen: set[int] = set()
    times: Counter[str] = Counter()

    def value(number: int) -> float:
        tag = open_questions[number][1]
        if frequent:
            return float(worth[number]) * math.sqrt((images.get(tag, 0) + predicted[tag]) / (1 + times[tag]))
        return float(worth[number]) / math.sqrt(1 + images.get(tag, 0) + times[tag])

    waiting = [(-value(number), number) for number in range(len(open_questions))]
    heapq.heapify(waiting)

    while waiting and len(chosen) < k:
        negative, number = heapq.heappop(waiting)
        image_id, tag, confidence, before = open_questions[number]
        if image_id in seen:
            continue
        worth_now = value(number)
        if worth_now < -negative:  # its tag was chosen since it was weighed
            heapq.heappush(waiting, (-worth_now, number))
            continue
        seen.add(image_id)
        times[tag] += 1
        chosen.append(ReviewItem(image_id, tag, confidence, worth_now, _why(confidence, before, images.get(tag, 0))))
    return chosen


def _unanswered(stored: StoredCatalogue) -> list[Question]:
    """Return image, tag, confidence and that of the run before, least sure first, of what has no answer yet."""
    run = stored.runs.current()
    earlier = [other.id for other in stored.runs.all() if other.id != run.id]
    return stored.database.rows(
        "SELECT p.image_id, tags.name, p.confidence, "
        "(SELECT confidence FROM predictions AS e WHERE e.run_id = ? AND e.image_id = p.image_id "
        "AND e.tag_id = p.tag_id) "
        "FROM predictions AS p JOIN tags ON tags.id = p.tag_id JOIN images ON images.id = p.image_id "
        "WHERE p.run_id = ? AND images.state = 'here' "
        "AND NOT EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = p.image_id AND g.tag_id = p.tag_id) "
        "AND NOT EXISTS (SELECT 1 FROM verdicts AS v WHERE v.image_id = p.image_id AND v.tag_id = p.tag_id "
        "AND v.verdict != 0) "
        "ORDER BY abs(coalesce(p.confidence, 0.5) - 0.5), "
        "iif(p.confidence IS NULL, ((p.image_id * 7919 + p.tag_id) * 2654435761) % 1000003, 0), p.image_id, "
        "p.score DESC, tags.name LIMIT ?",
        (max(earlier, default=-1), run.id, CANDIDATES),
    )


def _not_known_by(tree: TagTree, stored: StoredCatalogue, questions: list[Question]) -> list[Question]:
    """Leave out the questions whose answers follow in a tree from the tags that images have or were rejected."""
    ids = list({image_id for image_id, *_ in questions})
    current_tags, rejected = stored.tags.held(ids), stored.tags.rejected(ids)
    known = {
        image_id: tree.follows(current_tags.get(image_id, ()), rejected.get(image_id, ()))
        for image_id in current_tags.keys() | rejected.keys()
    }
    return [question for question in questions if tag_key(question[1]) not in known.get(question[0], ())]


def _why(confidence: float | None, before: float | None, n_images: int) -> list[str]:
    reasons = ["the run has no confidences" if confidence is None else f"{confidence:.0%} sure"]
    if confidence is not None and before is not None and abs(confidence - before) >= DISAGREE:
        reasons.append(f"the run before was {before:.0%} sure")
    if n_images < RARE:
        reasons.append(f"a rare tag: {count_of(n_images, 'photo') if n_images else 'no photo has it yet'}")
    return reasons
