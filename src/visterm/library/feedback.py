"""People's feedback on a catalogue's images, and views of an image or a tag: given, predicted, accepted, rejected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import MAX_LETTERS, MAX_TAGS, Vocabulary, clean_tag, tag_fault, tag_key
from visterm.data.tag_tree import ends_in
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.store.history import WrittenTag
from visterm.store.images import ImageRecord
from visterm.store.tags import GivenTag, Prediction, Verdict


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image of a catalogue with all its tags and verdicts."""

    record: ImageRecord
    given: list[GivenTag]
    """Tags from tag files and people, sorted by name, without rejected tags and, if from files, their child tags."""
    predicted: list[Prediction]  # Tags predicted by the current run, best first, without tags that a person rejected
    verdicts: dict[str, int]  # Tag -> latest verdict: accepted (1) or rejected (-1)
    written: list[WrittenTag]  # Tags that were written into files (`visterm export`)
    judged_by: dict[str, str] = field(default_factory=dict)  # Tag -> who gave the latest verdict, if that is known
    link: str | None = None  # Address of the image's page in the connected program

    @property
    def tags(self) -> list[str]:
        """The tags that the image has, given or accepted, sorted by name."""
        accepted = {tag for tag, verdict in self.verdicts.items() if verdict > 0}
        return sorted(accepted.union(tag.tag for tag in self.given))

    def as_dict(self) -> dict[str, object]:
        """Return the view as JSON data."""
        return {
            "image": asdict(self.record) | ({} if self.link is None else {"link": self.link}),
            "tags": self.tags,
            "given": [tag._asdict() for tag in self.given],
            "predicted": [tag._asdict() for tag in self.predicted],
            "verdicts": self.verdicts,
            "judged_by": self.judged_by,
            "written": [tag._asdict() for tag in self.written],
        }


@dataclass(frozen=True, slots=True)
class TagCount:
    """One tag of a catalogue with its counts of present images."""

    tag: str  # In the run's or the catalogue's spelling; counts include other spellings and aliases
    images: int  # Number of images that have the tag: given or accepted, and not rejected
    # Number of images with this tag from a tag file or a person, and numbers of verdicts
    given: int
    accepted: int
    rejected: int
    predicted: int
    """Number of images for which the current run predicts the tag with a confidence of at least 0.5 (or at all, if the
    run has no confidences), without images for which a person rejected it."""
    precision: float | None  # Share of accepting verdicts; None without verdicts
    learned: bool  # Whether the current run knows the tag

    def as_dict(self) -> dict[str, object]:
        """Return the counts as JSON data."""
        return asdict(self)


def copy_feedback(stored: StoredCatalogue) -> int:
    """Copy people's feedback from images that are gone to present images with the same content; return their number.

    This is for images that were copied to another drive and then deleted. Reviewed images are not changed.
    """
    copies = stored.database.rows(
        "SELECT gone.id, min(copy.id) FROM images AS gone JOIN images AS copy ON copy.sha256 = gone.sha256 "
        "AND copy.state = 'here' AND copy.id > gone.id AND copy.reviewed IS NULL "
        "WHERE gone.state = 'gone' AND gone.reviewed IS NOT NULL GROUP BY gone.id"
    )
    with stored.database.transaction():
        for gone, copy in copies:
            stored.tags.give(copy, [tag.tag for tag in stored.tags.given(gone) if tag.source == "person"], "person")
            for tag, verdict in stored.tags.verdicts(gone).items():
                stored.tags.judge(copy, tag, verdict)
            stored.images.mark_reviewed([copy])
    return len(copies)


def count_tags(stored: StoredCatalogue, vocabulary: Vocabulary) -> list[TagCount]:
    """List the tags of a catalogue and of its run, sorted by name; see `Catalogue.tags`."""
    counts: dict[str, Counter[str]] = {tag: Counter() for tag in vocabulary.tags}
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    with stored.database.transaction(writes=False):
        rows = stored.database.rows(
            "SELECT tags.name, count(*) FROM predictions AS p JOIN tags ON tags.id = p.tag_id "
            "JOIN images ON images.id = p.image_id AND state = 'here' "
            "WHERE run_id = (SELECT id FROM runs WHERE current = 1) AND NOT EXISTS (SELECT 1 FROM verdicts AS v "
            "WHERE v.image_id = p.image_id AND v.tag_id = p.tag_id AND verdict = -1) "
            "AND (confidence IS NULL OR confidence >= ?) GROUP BY p.tag_id",
            (PREDICTED_FROM,),
        )
        n_predicted = dict(rows)

        tag_of_key = {tag_key(tag): tag for tag in vocabulary.tags}
        for entry in stored.tags.counts():
            name = entry.pop("tag")
            column = vocabulary.get(name)
            tag = tag_of_key.setdefault(tag_key(name), name) if column is None else vocabulary.tags[column]
            spellings[tag].append(name)
            counts.setdefault(tag, Counter()).update(entry, predicted=n_predicted.get(name, 0))
        for tag, names in spellings.items():
            if len(names) > 1:  # an image may have several of them
                counts[tag]["images"] = len(stored.find(Filter(tags=(tag,), spellings={tag: names})))

    results = []
    for tag, n in sorted(counts.items()):
        n_judged = n["accepted"] + n["rejected"]
        precision = n["accepted"] / n_judged if n_judged else None
        numbers = n["images"], n["given"], n["accepted"], n["rejected"], n["predicted"]
        results.append(TagCount(tag, *numbers, precision, tag in vocabulary))
    return results


def known_image(stored: StoredCatalogue, image_id: int) -> ImageRecord:
    """Return an image by id. Raises DataError if the id is unknown."""
    record = stored.images.get(image_id)
    if record is None:
        problem = f"The catalogue has no image {image_id}."
        raise DataError(problem, setting="image_id", value=image_id, advice="Searches return the ids of images.")
    return record


def undo_verdicts(stored: StoredCatalogue, image_id: int, names: Iterable[str], verdict: int) -> None:
    """Undo the current verdicts on these tags of an image if they equal `verdict`."""
    verdicts = stored.tags.verdicts(image_id)
    for name in names:
        if verdicts.get(name) == verdict:
            stored.tags.judge(image_id, name, 0)


def spelled(vocabulary: Vocabulary, tag: str, stored: StoredCatalogue | None = None) -> str:
    """Return a tag in the spelling of the catalogue or else of the run; a new tag is checked.

    This is the only check of new tags of a catalogue. Tags that the run or the catalogue `stored` knows are always
    accepted. Raises UserError if the tag is empty or invalid according to `tag_fault`.
    """
    name = in_spelling_of_run(vocabulary, tag)
    stored_name = None if stored is None else stored.tags.spelled(name)
    if stored_name is None and name not in vocabulary:
        fault = tag_fault(name)
        if fault is not None:
            tag_text = f"that begins with {name[:20]!r}" if len(name) > MAX_LETTERS else repr(name)
            raise UserError(f"The tag {tag_text} {fault}.", setting="tag", value=name[:MAX_LETTERS])
    return stored_name or name


def in_spelling_of_run(vocabulary: Vocabulary, tag: str) -> str:
    """Return a tag in the run's spelling, or unchanged if the run does not have it.

    A path in the run's tag tree (``animals/dog``) means its last tag. Raises UserError if the tag is empty.
    """
    name = clean_tag(tag)
    if not name:
        excerpt = tag[:MAX_LETTERS]
        problem = f"{excerpt!r} is not a tag: it is empty."
        raise UserError(problem, setting="tag", value=excerpt, advice="Write at least one letter.")
    column = vocabulary.get(name)  # for an alias, the column of its tag
    known_tag = None if column is None else vocabulary.tags[column]
    if known_tag is None or tag_key(known_tag) == tag_key(name):
        return known_tag or name
    return known_tag if ends_in(name, known_tag) else name


def all_spelled(
    vocabulary: Vocabulary, tags: Iterable[str], stored: StoredCatalogue | None = None, max_tags: float = MAX_TAGS
) -> list[str]:
    """Return the tags of one image in the spelling by `spelled`, without duplicates.

    Raises UserError if `tags` is a single text, has more than `max_tags` tags, or has an invalid tag.
    """
    if isinstance(tags, str):
        raise UserError(setting="tags", value=tags[:MAX_LETTERS], expected="a list of tags")
    names: dict[str, None] = {}
    for tag in tags:
        names[spelled(vocabulary, tag, stored)] = None
        if len(names) > max_tags:
            problem = f"There are more than {max_tags} tags for an image, the maximum number at once."
            raise UserError(problem, setting="tags", advice="Leave out the least important tags.")
    return list(names)


def feedback_entry(stored: StoredCatalogue, entry_id: int) -> Verdict:
    """Return an entry of the log of feedback. Raises DataError if there is no such entry."""
    entries = stored.tags.feedback(after=entry_id - 1, limit=1)
    if not entries or entries[0].id != entry_id:
        raise DataError(f"The log of feedback has no entry {entry_id}.")
    return entries[0]


def verdict_before(stored: StoredCatalogue, entry: Verdict) -> int:
    """Return the verdict on the same tag and image before a log entry; 0 without a verdict."""
    verdict = stored.database.value(
        "SELECT verdict FROM feedback WHERE image_id = ? AND id < ? AND tag_id = "
        "(SELECT tag_id FROM feedback WHERE id = ?) ORDER BY id DESC LIMIT 1",
        (entry.image_id, entry.id, entry.id),
    )
    return int(verdict or 0)


def undo_verdict(stored: StoredCatalogue, entry_id: int) -> Verdict:
    """Restore the verdict before a log entry, by adding and returning a new log entry.

    Raises DataError if the entry does not exist; UserError if a later entry has the same tag and image.
    """
    with stored.database.transaction():
        entry = feedback_entry(stored, entry_id)
        latest_id = stored.database.value(
            "SELECT max(id) FROM feedback WHERE image_id = ? AND tag_id = (SELECT tag_id FROM feedback WHERE id = ?)",
            (entry.image_id, entry_id),
        )
        if latest_id != entry_id:
            raise UserError(
                f"There is a later answer about '{entry.tag}' (entry {latest_id} of the log). Undo that first."
            )
        new_id = stored.tags.judge(entry.image_id, entry.tag, verdict_before(stored, entry), run_id=entry.run_id)
        return feedback_entry(stored, new_id)
