"""Steps: what a person says of many photos at once, stored whole or not at all, and undone whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.core.errors import DataError, UserError
from visterm.core.vocabulary import tag_key
from visterm.core.wording import count_of
from visterm.library import feedback
from visterm.store.images import as_list

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.store.catalogue import StoredCatalogue

TAG_PHOTOS, UNDO = "tag photos", "undo"  # What the history calls them
MOST_PHOTOS = 5000  # Photos of one step: half a minute, in which nobody else can write

Said = set[tuple[Any, ...]]
"""("given", image, tag, source), ("verdict", image, tag, verdict) and ("reviewed", image): numbers as in the tables."""


class Step(NamedTuple):
    """A step that was stored."""

    number: int  # By which `undo_step` undoes it
    images: list[int]  # The photos that it was about, each once
    changed: int  # Photos whose tags or verdicts are different now


def tag_photos(
    catalogue: Catalogue,
    image_ids: Sequence[int],
    *,
    give: Iterable[str] = (),
    take: Iterable[str] = (),
    right: Iterable[str] = (),
    wrong: Iterable[str] = (),
) -> Step:
    """Add tags to photos and take tags off, or say that tags are right or wrong for them: all of it or nothing.

    Each photo is changed as by `Catalogue.give`, `take` and `judge`. The step is an entry of the history. Raises
    DataError if an id is not known; UserError if there are no photos or more than `MOST_PHOTOS`, no tags, or a tag that
    cannot be one.
    """
    images = list(dict.fromkeys(image_ids))
    if not 0 < len(images) <= MOST_PHOTOS:
        raise UserError(f"{count_of(len(images), 'photo')} chosen; choose 1 to {MOST_PHOTOS:,} at once.")
    stored, vocabulary = catalogue.stored, catalogue.tagger.vocabulary
    spelled = {
        kind: feedback.all_spelled(vocabulary, tags, stored)
        for kind, tags in (("give", give), ("take", take), ("right", right), ("wrong", wrong))
    }
    names = [name for tags in spelled.values() for name in tags]
    if not names:
        raise UserError("There is no tag to add, remove or judge. Name at least one.")
    with stored.database.transaction():
        before = _said(stored, images, names)
        for image_id in images:
            if spelled["give"]:
                catalogue.give(image_id, spelled["give"])
            if spelled["take"]:
                catalogue.take(image_id, spelled["take"])
            for verdict, tags in ((1, spelled["right"]), (-1, spelled["wrong"])):
                for tag in tags:
                    catalogue.judge(image_id, tag, verdict)
        after = _said(stored, images, names)
        changes = before ^ after
        number = stored.history.note(
            TAG_PHOTOS,
            photos=len(images),
            **{kind: ", ".join(tags) for kind, tags in spelled.items() if tags},
            was=sorted(before - after),
            now=sorted(after - before),
        )
    return Step(number, images, len({change[1] for change in changes if change[0] != "reviewed"}))


def undo_step(catalogue: Catalogue, number: int) -> Step:
    """Put all that a step changed back as it was; what is undone, and the undoing, stay in the log of feedback.

    Raises DataError if there is no such step; UserError if it was undone already, or something else has been said of
    the same tags of the same photos since.
    """
    stored = catalogue.stored
    with stored.database.transaction() as connection:
        event = stored.history.get(number)
        if event is None or event.what != TAG_PHOTOS:
            raise DataError(f"There is no step {number}.")
        was, now = ({tuple(change) for change in event.details[name]} for name in ("was", "now"))
        there = _said_of(stored, was | now)
        if not now <= there or any(change in there for change in was if change[0] != "reviewed"):
            raise UserError(
                "This step was undone already, or something else has been said of these photos since. Change them one "
                "by one."
            )
        names = dict(connection.execute("SELECT id, name FROM tags").fetchall())
        connection.executemany(
            "DELETE FROM given WHERE image_id = ? AND tag_id = ?", [c[1:3] for c in now if c[0] == "given"]
        )
        connection.executemany(
            "INSERT INTO given (image_id, tag_id, source) VALUES (?, ?, ?)", [c[1:] for c in was if c[0] == "given"]
        )
        verdicts = {c[1:3]: 0 for c in now if c[0] == "verdict"} | {c[1:3]: c[3] for c in was if c[0] == "verdict"}
        run = stored.runs.current()
        for (image_id, tag_id), verdict in sorted(verdicts.items()):
            stored.tags.judge(image_id, names[tag_id], verdict, run_id=run.id if run else None)
        settled = stored.tags.settled(change[1] for change in now)  # by what was said otherwise
        unseen = [c[1] for c in now if c[0] == "reviewed" and c[1] not in settled]
        stored.images.mark_reviewed(unseen, reviewed=False)
        images = sorted({change[1] for change in was | now})
        stored.history.note(UNDO, step=number, photos=len(images))
    return Step(number, images, len({change[1] for change in was ^ now if change[0] != "reviewed"}))


def _said(stored: StoredCatalogue, images: Sequence[int], names: Iterable[str]) -> Said:
    """Return what is said of some tags, in all their spellings, of some images."""
    keys = {tag_key(name) for name in names}
    tag_ids = [row[0] for key in keys for row in stored.database.rows("SELECT id FROM tags WHERE key = ?", (key,))]
    return _rows(stored, as_list(images), as_list(tag_ids))


def _said_of(stored: StoredCatalogue, changes: Said) -> Said:
    """Return what is said now of the images and tags of some changes."""
    images, tag_ids = {change[1] for change in changes}, {change[2] for change in changes if len(change) > 2}
    return _rows(stored, as_list(images), as_list(tag_ids))


def _rows(stored: StoredCatalogue, images: str, tag_ids: str) -> Said:
    of = "image_id IN (SELECT value FROM json_each(?)) AND tag_id IN (SELECT value FROM json_each(?))"
    rows, both = stored.database.rows, (images, tag_ids)
    found: Said = {tuple(row) for row in rows(f"SELECT 'given', image_id, tag_id, source FROM given WHERE {of}", both)}
    verdicts = f"SELECT 'verdict', image_id, tag_id, verdict FROM verdicts WHERE verdict != 0 AND {of}"
    found.update(tuple(row) for row in rows(verdicts, both))
    reviewed = "SELECT 'reviewed', id FROM images WHERE reviewed IS NOT NULL AND id IN (SELECT value FROM json_each(?))"
    found.update(tuple(row) for row in rows(reviewed, (images,)))
    return found
