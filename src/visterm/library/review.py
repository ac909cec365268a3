"""Choose the most useful questions for people."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.data.tag_tree import TagTree
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import PREDICTED_FROM

MAX_CANDIDATES = 20_000  # Maximum number of predictions to rank, least certain first, to limit the time
MIN_COMMON_IMAGES = 5  # Minimum number of images of a tag that is not rare
MIN_DISAGREEMENT = 0.25  # Minimum difference between the confidences of two runs that is a reason to ask

Question: TypeAlias = tuple[int, str, float | None, float | None]  # Image id, tag, confidence, earlier confidence

_UNANSWERED = (
    "FROM predictions AS p JOIN tags ON tags.id = p.tag_id JOIN images ON images.id = p.image_id "
    "WHERE p.run_id = ? AND images.state = 'here' "
    "AND NOT EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = p.image_id AND g.tag_id = p.tag_id) "
    "AND NOT EXISTS (SELECT 1 FROM verdicts AS v WHERE v.image_id = p.image_id AND v.tag_id = p.tag_id "
    "AND v.verdict != 0) "
)
"""SQL for the predictions `p` of a run that nobody has given, accepted or rejected."""

_SURE = f"{_UNANSWERED} AND coalesce(p.confidence, 1) >= {PREDICTED_FROM} "


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A question for a person: whether an image has a tag."""

    image_id: int
    tag: str
    confidence: float | None  # Of the current run; None if it is not calibrated
    value: float  # Usefulness of an answer: in bits for a rare tag, less for a frequent tag
    why: list[str]  # Reasons for asking, as text

    def as_dict(self) -> dict[str, object]:
        """Return the question as JSON data."""
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
    """Choose the k questions with the most useful answers, best first.

    The value of an answer is its entropy in bits (uncertainty sampling: Lewis, Gale 1994) plus the difference between
    the confidences of the current and the previous run (query by committee: Seung, Opper, Sompolinsky 1992), divided by
    the square root of 1 + the number of images with the tag. Each image appears once, and each chosen tag counts as
    one more image with the tag, so that the questions cover many images and tags.

    With `frequent`, tags that searches often show come first: instead of the division, the value is multiplied by the
    square root of the number of images that have the tag or are predicted to have it.

    Without confidences, the order of predictions is pseudo-random but the same in each call: in experiments, asking
    about each tag's best images first was less useful. Questions come from stored predictions. Left out are tags that
    were given, accepted or rejected, tags that follow from these in the `tree`, and each (image id, tag) in `skip`.
    """
    open_questions = [question for question in _unanswered(stored) if question[:2] not in skip]
    n_images = {tag["tag"]: tag["images"] for tag in stored.tags.counts()}

    if tree is not None:
        open_questions = _without_implied(tree, stored, open_questions)
        counts_by_key = {tag_key(tag): n for tag, n in n_images.items()}
        n_images = {
            tag: sum(counts_by_key.get(tag_key(word), 0) for word in (tag, *tree.below(tag)))
            for tag in dict.fromkeys(tag for _, tag, *_ in open_questions)
        }

    p = np.array([0.5 if q[2] is None else q[2] for q in open_questions], np.float64).clip(1e-9, 1 - 1e-9)
    earlier_p = np.array([x if q[3] is None else q[3] for x, q in zip(p, open_questions, strict=True)], np.float64)
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) + np.abs(p - earlier_p)  # all equal without confidences
    n_predicted = Counter(tag for _, tag, *_ in open_questions)
    chosen: list[ReviewItem] = []
    chosen_images: set[int] = set()
    n_chosen: Counter[str] = Counter()

    def value(number: int) -> float:
        tag = open_questions[number][1]
        if frequent:
            return float(bits[number]) * math.sqrt((n_images.get(tag, 0) + n_predicted[tag]) / (1 + n_chosen[tag]))
        return float(bits[number]) / math.sqrt(1 + n_images.get(tag, 0) + n_chosen[tag])

    candidates = [(-value(number), number) for number in range(len(open_questions))]
    heapq.heapify(candidates)

    while candidates and len(chosen) < k:
        negative_value, number = heapq.heappop(candidates)
        image_id, tag, confidence, earlier = open_questions[number]
        if image_id in chosen_images:
            continue
        new_value = value(number)
        if new_value < -negative_value:  # another image was chosen for this tag in the meantime
            heapq.heappush(candidates, (-new_value, number))
            continue
        chosen_images.add(image_id)
        n_chosen[tag] += 1
        chosen.append(
            ReviewItem(image_id, tag, confidence, new_value, _reasons(confidence, earlier, n_images.get(tag, 0)))
        )
    return chosen


class SurePhotos(NamedTuple):
    """Photos that probably have a tag, to accept together."""

    tag: str
    images: list[int]  # Ids, the most certain photos first
    confidences: list[float | None]  # None: the run is not calibrated
    total: int  # Number of such photos, these included


def sure_photos(
    stored: StoredCatalogue, k: int, *, tag: str = "", skip: Collection[str] = (), tree: TagTree | None = None
) -> SurePhotos | None:
    """Return the k photos that most certainly have `tag`, or else the tag of most such photos; None if there are none.

    The confidence is at least `PREDICTED_FROM`: doubtful photos are asked about one by one. Nobody has given, accepted
    or rejected the tag, and it does not follow from other tags in the `tree`. Tags in `skip` are left out.
    """
    run_id = stored.runs.current().id
    photos = _sure_photos(stored, run_id, k, tag, tree)
    if photos is not None:
        return photos
    statement = f"SELECT tags.name {_SURE} GROUP BY p.tag_id ORDER BY count(*) DESC, tags.name"
    for (name,) in stored.database.rows(statement, (run_id,)):
        photos = None if name in skip else _sure_photos(stored, run_id, k, name, tree)
        if photos is not None:
            return photos
    return None


def _sure_photos(stored: StoredCatalogue, run_id: int, k: int, tag: str, tree: TagTree | None) -> SurePhotos | None:
    statement = (
        f"SELECT p.image_id, tags.name, p.confidence, NULL {_SURE} AND tags.name = ? "
        "ORDER BY p.confidence DESC, p.score DESC, p.image_id"
    )
    questions: list[Question] = stored.database.rows(statement, (run_id, tag))
    if tree is not None:
        questions = _without_implied(tree, stored, questions)
    if not questions:
        return None
    best = questions[:k]
    return SurePhotos(
        tag, [image_id for image_id, *_ in best], [confidence for *_, confidence, _ in best], len(questions)
    )


def _unanswered(stored: StoredCatalogue) -> list[Question]:
    """Return the unanswered predictions as questions, least certain first."""
    run = stored.runs.current()
    earlier_ids = [other.id for other in stored.runs.all() if other.id != run.id]
    return stored.database.rows(
        "SELECT p.image_id, tags.name, p.confidence, "
        "(SELECT confidence FROM predictions AS e WHERE e.run_id = ? AND e.image_id = p.image_id "
        f"AND e.tag_id = p.tag_id) {_UNANSWERED} ORDER BY abs(coalesce(p.confidence, 0.5) - 0.5), "
        "iif(p.confidence IS NULL, ((p.image_id * 7919 + p.tag_id) * 2654435761) % 1000003, 0), p.image_id, "
        "p.score DESC, tags.name LIMIT ?",
        (max(earlier_ids, default=-1), run.id, MAX_CANDIDATES),
    )


def _without_implied(tree: TagTree, stored: StoredCatalogue, questions: list[Question]) -> list[Question]:
    """Leave out questions whose answers follow from an image's tags and rejected tags in the tree."""
    ids = list({image_id for image_id, *_ in questions})
    current_tags, rejected = stored.tags.held(ids), stored.tags.rejected(ids)
    implied = {
        image_id: tree.follows(current_tags.get(image_id, ()), rejected.get(image_id, ()))
        for image_id in current_tags.keys() | rejected.keys()
    }
    return [question for question in questions if tag_key(question[1]) not in implied.get(question[0], ())]


def _reasons(confidence: float | None, earlier: float | None, n_images: int) -> list[str]:
    reasons = ["the run has no confidences" if confidence is None else f"{confidence:.0%} sure"]
    if confidence is not None and earlier is not None and abs(confidence - earlier) >= MIN_DISAGREEMENT:
        reasons.append(f"the previous run was {earlier:.0%} sure")
    if n_images < MIN_COMMON_IMAGES:
        reasons.append(f"a rare tag: {count_of(n_images, 'photo') if n_images else 'no photo has it yet'}")
    return reasons
