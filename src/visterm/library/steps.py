"""Steps: feedback on many photos at once, stored in one transaction and undone together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.library import feedback
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import AMONG, LISTED, as_list

TAG_PHOTOS, REVIEW, KEEP_ONE, UNDO = "tag photos", "review photos", "keep one of each", "undo"  # Kinds of events
MAX_PHOTOS = 5000  # Maximum number of photos per step, which blocks other writers for up to 30 s

Judgements = set[tuple[str | int, ...]]
"""Entries ("given", image id, tag id, source), ("verdict", image id, tag id, verdict) and ("reviewed", image id)."""


class Step(NamedTuple):
    """The result of a step."""

    number: int  # Argument of `undo_step`
    images: list[int]  # Ids of the photos, without duplicates
    changed: int  # Number of photos whose tags or verdicts changed


def tag_photos(
    catalogue: Catalogue,
    image_ids: Sequence[int],
    *,
    give: Iterable[str] = (),
    take: Iterable[str] = (),
    right: Iterable[str] = (),
    wrong: Iterable[str] = (),
) -> Step:
    """Add, remove, accept or reject tags of many photos in one transaction.

    Each photo is changed as by `Catalogue.give`, `take` and `judge`. The step becomes an entry of the history. Raises
    DataError if an id is unknown; UserError if there are no photos or more than `MAX_PHOTOS`, no tags, or an invalid
    tag.
    """
    images = _checked(image_ids)
    stored, vocabulary = catalogue.stored, catalogue.tagger.vocabulary
    spelled = {
        kind: feedback.all_spelled(vocabulary, tags, stored)
        for kind, tags in (("give", give), ("take", take), ("right", right), ("wrong", wrong))
    }
    names = [name for tags in spelled.values() for name in tags]
    if not names:
        raise UserError("There is no tag to add, remove or judge. Name at least one.")

    def change() -> None:
        for image_id in images:
            if spelled["give"]:
                catalogue.give(image_id, spelled["give"])
            if spelled["take"]:
                catalogue.take(image_id, spelled["take"])
            for verdict, tags in ((1, spelled["right"]), (-1, spelled["wrong"])):
                for tag in tags:
                    catalogue.judge(image_id, tag, verdict)

    details = {kind: ", ".join(tags) for kind, tags in spelled.items() if tags}
    return _step(stored, TAG_PHOTOS, images, names, change, photos=len(images), **details)


def review_photos(catalogue: Catalogue, tag: str, accepted: Sequence[int], rejected: Sequence[int]) -> Step:
    """Accept a tag of the photos that were shown together, and reject it for the wrong ones, in one transaction.

    Each photo is changed as by `Catalogue.judge`. The entry of the history says how many photos were accepted in bulk,
    and its changes which: nobody answered for each of them alone. Raises the errors of `tag_photos`.
    """
    images = _checked([*accepted, *rejected])
    wrong = set(rejected)

    def change() -> None:
        for image_id in images:
            catalogue.judge(image_id, tag, -1 if image_id in wrong else 1)

    name = feedback.spelled(catalogue.tagger.vocabulary, tag, catalogue.stored)
    n_accepted = len(images) - len(wrong)
    details = {"tag": name, "accepted_in_bulk": n_accepted, "rejected": len(wrong)}
    return _step(catalogue.stored, REVIEW, images, [name], change, **details)


def rejected_in(catalogue: Catalogue, number: int) -> set[int]:
    """Return the ids of the photos for which a step rejected a tag."""
    event = catalogue.stored.history.get(number)
    changes = [] if event is None else event.details.get("now", [])
    return {change[1] for change in changes if change[0] == "verdict" and change[3] == -1}


def _checked(image_ids: Sequence[int]) -> list[int]:
    """Return the ids without duplicates; raises UserError if there are none or more than `MAX_PHOTOS`."""
    images = list(dict.fromkeys(image_ids))
    if not 0 < len(images) <= MAX_PHOTOS:
        problem = f"{count_of(len(images), 'photo')} chosen."
        expected = f"1 to {MAX_PHOTOS:,} at once"
        raise UserError(problem, setting="image_ids", value=len(images), expected=expected)
    return images


class Choice(NamedTuple):
    """Ids of duplicate photos: the photo to keep, and the others."""

    keep: int
    others: list[int]


def keep_one_of_each(catalogue: Catalogue, choices: Sequence[Choice], *, merge_tags: bool = True) -> Step:
    """Keep one photo of each group and hide the others, in one transaction; `merge_tags` also copies their tags to it.

    No file is changed. Hidden photos don't appear in searches, counts and exports, and stay hidden when their folder is
    indexed again, unless their file changes. Raises DataError if an id is unknown; UserError if a photo is both kept
    and hidden or is gone already, or the catalogue is connected to another program's library.
    """
    stored = catalogue.stored
    if stored.connected.get() is not None:
        raise UserError("This catalogue shows another program's library, which has its own trash: hide photos there.")
    keepers = [choice.keep for choice in choices]
    other_ids = [image_id for choice in choices for image_id in choice.others]
    if not other_ids or len({*keepers, *other_ids}) < len(keepers) + len(other_ids):
        raise UserError("Name one photo to keep per group, and one or more others to hide, each photo once.")
    for image_id in (*keepers, *other_ids):
        if feedback.known_image(stored, image_id).state != "here":
            raise UserError(f"Photo {image_id} is hidden, or its file is gone. Reload the page.")
    tags_of = stored.tags.held(other_ids) if merge_tags else {}

    def change() -> None:
        for keeper_id, copies in choices:
            tags = sorted({tag for image_id in copies for tag in tags_of.get(image_id, ())})
            if tags:
                catalogue.give(keeper_id, tags)
        stored.mark(other_ids, "gone")
        stored.images.hide(other_ids)

    names = {tag for tags in tags_of.values() for tag in tags}
    return _step(stored, KEEP_ONE, keepers, names, change, kept=len(keepers), hidden=len(other_ids), ids=other_ids)


def _step(
    stored: StoredCatalogue,
    kind: str,
    images: list[int],
    names: Iterable[str],
    change: Callable[[], None],
    **details: object,
) -> Step:
    """Call `change` in one transaction, and store the differences in the history."""
    keys = json.dumps(sorted(set(map(tag_key, names))))  # all spellings of the tags
    ids_query = f"SELECT id FROM tags WHERE key {LISTED}"
    with stored.database.transaction():
        before = _judgements(stored, images, (row[0] for row in stored.database.rows(ids_query, (keys,))))
        change()
        after = _judgements(stored, images, (row[0] for row in stored.database.rows(ids_query, (keys,))))
        number = stored.history.note(kind, **details, was=sorted(before - after), now=sorted(after - before))
    return Step(number, images, len({entry[1] for entry in before ^ after if entry[0] != "reviewed"}))


def undo_step(catalogue: Catalogue, number: int) -> Step:
    """Undo all changes of a step, including hidden photos; the feedback log keeps the undone entries.

    Raises DataError if the step does not exist; UserError if it was undone already, or there is later feedback on the
    same tags of the same photos.
    """
    stored = catalogue.stored
    with stored.database.transaction() as connection:
        event = stored.history.get(number)
        if event is None or event.what not in (TAG_PHOTOS, REVIEW, KEEP_ONE):
            raise DataError(f"There is no step {number}.")
        is_undone = any(other.details.get("step") == number for other in stored.history.of(UNDO))
        old, new = ({tuple(change) for change in event.details[name]} for name in ("was", "now"))
        changes = old | new
        current = _judgements(stored, {c[1] for c in changes}, {c[2] for c in changes if len(c) > 2})
        if is_undone or not new <= current or any(change in current for change in old if change[0] != "reviewed"):
            raise UserError(
                "This step was undone already, or there is later feedback on the same tags of these photos. Change the "
                "photos one by one."
            )

        hidden = [record for record in stored.images.get_many(event.details.get("ids", [])) if record.state == "gone"]
        # Photos whose file was indexed as another photo in the meantime stay hidden
        restored = [record.id for record in hidden if record.path is None or stored.images.by_path(record.path) is None]
        if restored:
            stored.mark(restored, "here")
            stored.images.hide(restored, hidden=False)

        names = dict(connection.execute("SELECT id, name FROM tags").fetchall())
        connection.executemany(
            "DELETE FROM given WHERE image_id = ? AND tag_id = ?", [c[1:3] for c in new if c[0] == "given"]
        )
        connection.executemany(
            "INSERT INTO given (image_id, tag_id, source) VALUES (?, ?, ?)", [c[1:] for c in old if c[0] == "given"]
        )
        verdicts = {c[1:3]: 0 for c in new if c[0] == "verdict"} | {c[1:3]: c[3] for c in old if c[0] == "verdict"}
        run_id = stored.runs.current().id
        for (image_id, tag_id), verdict in sorted(verdicts.items()):
            stored.tags.judge(image_id, names[tag_id], verdict, run_id=run_id)

        settled = stored.tags.settled(change[1] for change in new)  # reviewed by other feedback
        stored.images.mark_reviewed([c[1] for c in new if c[0] == "reviewed" and c[1] not in settled], reviewed=False)
        images = sorted({change[1] for change in changes})
        stored.history.note(UNDO, step=number, photos=len(images))
    return Step(number, images, len({change[1] for change in old ^ new if change[0] != "reviewed"}))


def _judgements(stored: StoredCatalogue, images: Iterable[int], tag_ids: Iterable[int]) -> Judgements:
    """Return the judgements of some tags of some images, and which of the images were reviewed."""
    condition = f"image_id {LISTED} AND tag_id {LISTED}"
    image_list, both_lists = as_list(images), (as_list(images), as_list(tag_ids))
    statements = {
        f"SELECT 'given', image_id, tag_id, source FROM given WHERE {condition}": both_lists,
        f"SELECT 'verdict', image_id, tag_id, verdict FROM verdicts WHERE verdict != 0 AND {condition}": both_lists,
        f"SELECT 'reviewed', id FROM images WHERE reviewed IS NOT NULL AND {AMONG}": (image_list,),
    }
    return {tuple(row) for statement, values in statements.items() for row in stored.database.rows(statement, values)}
