"""What people say of a catalogue's images, and one image or tag as they see it: given, predicted, judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import MOST_LETTERS, MOST_TAGS, Vocabulary, clean_tag, tag_fault, tag_key
from visterm.data.tag_tree import ends_in
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import PREDICTED_FROM, Filter
from visterm.store.history import WrittenTag
from visterm.store.images import ImageRecord
from visterm.store.tags import GivenTag, Prediction, Verdict


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image of a catalogue with all that is known of its tags."""

    record: ImageRecord
    given: list[GivenTag]
    """From tag files and from people, by name, without those that were rejected later, and those of files under one."""
    predicted: list[Prediction]  # The current run's best tags, best first, without those that a person rejected here
    verdicts: dict[str, int]  # The latest of each tag that a person accepted (1) or rejected (-1)
    written: list[WrittenTag]  # Tags that were written into files (`visterm export`)
    link: str | None = None  # Its page in the program that the catalogue is connected to

    @property
    def tags(self) -> list[str]:
        """The tags that the image has: given or accepted, by name."""
        accepted = {tag for tag, verdict in self.verdicts.items() if verdict > 0}
        return sorted(accepted.union(tag.tag for tag in self.given))

    def as_dict(self) -> dict[str, object]:
        """Return the view as it stands in JSON."""
        return {
            "image": asdict(self.record) | ({} if self.link is None else {"link": self.link}),
            "tags": self.tags,
            "given": [tag._asdict() for tag in self.given],
            "predicted": [tag._asdict() for tag in self.predicted],
            "verdicts": self.verdicts,
            "written": [tag._asdict() for tag in self.written],
        }


@dataclass(frozen=True, slots=True)
class TagCount:
    """One tag of a catalogue, and how often it is what; images that are gone do not count."""

    tag: str  # As the run or the catalogue spells it: other spellings and aliases are counted with it
    images: int  # That have it: given or accepted, and not rejected
    # Images that have it from a tag file or a person, and those of which a person said yes or no
    given: int
    accepted: int
    rejected: int
    predicted: int
    """Images for which the current run predicts it with a confidence of at least 0.5 (any, if it has no confidences),
    rejected ones left out."""
    precision: float | None  # Share of the verdicts that accept it; None without verdicts
    learned: bool  # Whether the current run knows it

    def as_dict(self) -> dict[str, object]:
        """Return the counts as they stand in JSON."""
        return asdict(self)


def hand_over(stored: StoredCatalogue) -> int:
    """Copy what people said of images that are gone to copies that came before they went; return of how many.

    An image that moves to another drive is a copy first. Copies that people have reviewed keep what was said of them.
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
    """List the tags of a catalogue and of its run by name; see `Catalogue.tags`."""
    nothing = {"images": 0, "given": 0, "accepted": 0, "rejected": 0}
    counts: dict[str, dict[str, int]] = {tag: {**nothing, "predicted": 0} for tag in vocabulary.tags}
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
        predicted = dict(rows)

        shown = {tag_key(tag): tag for tag in vocabulary.tags}
        for entry in stored.tags.counts():
            name = entry.pop("tag")
            column = vocabulary.get(name)
            tag = shown.setdefault(tag_key(name), name) if column is None else vocabulary.tags[column]
            spellings[tag].append(name)
            total = counts.setdefault(tag, {**nothing, "predicted": 0})
            for what, n_images in (*entry.items(), ("predicted", predicted.get(name, 0))):
                total[what] += n_images
        for tag, names in spellings.items():
            if len(names) > 1:  # an image may have several of them
                counts[tag]["images"] = len(stored.find(Filter(tags=(tag,), spellings={tag: names})))

    return [
        TagCount(
            tag, **entry, precision=entry["accepted"] / judged if judged else None, learned=tag in vocabulary
        )
        for tag, entry in sorted(counts.items())
        for judged in [entry["accepted"] + entry["rejected"]]
    ]  # fmt: skip


def known_image(stored: StoredCatalogue, image_id: int) -> ImageRecord:
    """Return an image by id, or refuse an id that is none."""
    record = stored.images.get(image_id)
    if record is None:
        problem = f"The catalogue has no image {image_id}."
        raise DataError(problem, setting="image_id", value=image_id, advice="Searches return the ids of images.")
    return record


def take_back(stored: StoredCatalogue, image_id: int, names: Iterable[str], verdict: int) -> None:
    """Take back verdicts of one kind, where there are such."""
    verdicts = stored.tags.verdicts(image_id)
    for name in names:
        if verdicts.get(name) == verdict:
            stored.tags.judge(image_id, name, 0)


def spelled(vocabulary: Vocabulary, tag: str, stored: StoredCatalogue | None = None) -> str:
    """Return a tag as the catalogue spells it, else as the run does; check one that is new.

    This is the one place that says what may become a tag of a catalogue, whoever gives it. A tag that the run knows, or
    the catalogue (`stored`), is accepted as it is. Raises UserError if it is empty, or `tag_fault` says that it cannot
    be a tag.
    """
    name = as_known(vocabulary, tag)
    known = None if stored is None else stored.tags.spelled(name)
    if known is None and name not in vocabulary:
        fault = tag_fault(name)
        if fault is not None:
            begins = f"that begins with {name[:20]!r}" if len(name) > MOST_LETTERS else repr(name)
            raise UserError(f"The tag {begins} {fault}.", setting="tag", value=name[:MOST_LETTERS])
    return known or name


def as_known(vocabulary: Vocabulary, tag: str) -> str:
    """Return a tag as the run spells it, case and all, or as it is where the run has no such tag.

    The path of a tag in the run's tree (``animals/dog``) is that tag. Raises UserError if it is empty.
    """
    name = clean_tag(tag)
    if not name:
        shown = tag[:MOST_LETTERS]
        problem = f"{shown!r} is no tag: there is nothing in it."
        raise UserError(problem, setting="tag", value=shown, advice="Write at least one letter.")
    column = vocabulary.get(name)  # of an alias, that of the tag that it means: another word
    known = None if column is None else vocabulary.tags[column]
    if known is None or tag_key(known) == tag_key(name):
        return known or name
    return known if ends_in(name, known) else name


def all_spelled(
    vocabulary: Vocabulary, tags: Iterable[str], stored: StoredCatalogue | None = None, most: float = MOST_TAGS
) -> list[str]:
    """Return the tags of one image as `spelled` spells them, each once.

    Raises UserError if `tags` is one text, has more than `most` tags, or one that `spelled` refuses.
    """
    if isinstance(tags, str):
        raise UserError(setting="tags", value=tags[:MOST_LETTERS], expected="a list of tags")
    names: dict[str, None] = {}
    for tag in tags:
        names[spelled(vocabulary, tag, stored)] = None
        if len(names) > most:
            problem = f"There are more than {most} tags for an image, and at most as many are accepted at once."
            raise UserError(problem, setting="tags", advice="Leave out those that say least.")
    return list(names)


def verdict_of(stored: StoredCatalogue, number: int) -> Verdict:
    """Return an entry of the log of feedback. Raises DataError if there is no such entry."""
    entries = stored.tags.feedback(after=number - 1, limit=1)
    if not entries or entries[0].id != number:
        raise DataError(f"The log of feedback has no entry {number}.")
    return entries[0]


def verdict_before(stored: StoredCatalogue, entry: Verdict) -> int:
    """Return what had been said of the same tag of the same image before an entry; 0: nothing."""
    before = stored.database.value(
        "SELECT verdict FROM feedback WHERE image_id = ? AND id < ? AND tag_id = "
        "(SELECT tag_id FROM feedback WHERE id = ?) ORDER BY id DESC LIMIT 1",
        (entry.image_id, entry.id, entry.id),
    )
    return int(before or 0)


def undo_verdict(stored: StoredCatalogue, number: int) -> Verdict:
    """Put what had been said before an entry in its place, as a new entry of the log, and give that.

    Raises DataError if there is no such entry; UserError if something else has been said of that tag of that image
    since.
    """
    with stored.database.transaction():
        entry = verdict_of(stored, number)
        later = stored.database.value(
            "SELECT max(id) FROM feedback WHERE image_id = ? AND tag_id = (SELECT tag_id FROM feedback WHERE id = ?)",
            (entry.image_id, number),
        )
        if later != number:
            raise UserError(
                f"Of '{entry.tag}' something else has been said since (entry {later} of the log). Undo that first."
            )
        new = stored.tags.judge(entry.image_id, entry.tag, verdict_before(stored, entry), run_id=entry.run_id)
        return verdict_of(stored, new)
