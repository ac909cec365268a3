"""Taking back the last thing that was said of a tag of an image: what had been said before holds again."""

from __future__ import annotations

from visterm.core.errors import DataError, UserError
from visterm.store.catalogue import StoredCatalogue
from visterm.store.tags import Verdict


def verdict_of(stored: StoredCatalogue, number: int) -> Verdict:
    """Give an entry of the log of feedback.

    Raises
    ------
    DataError
        If there is no such entry.
    """
    found = stored.tags.feedback(after=number - 1, limit=1)
    if not found or found[0].id != number:
        raise DataError(f"The log of feedback has no entry {number}.")
    return found[0]


def verdict_before(stored: StoredCatalogue, entry: Verdict) -> int:
    """Give what had been said of the same tag of the same image before an entry; 0: nothing."""
    found = stored.database.value(
        "SELECT verdict FROM feedback WHERE image_id = ? AND id < ? AND tag_id = "
        "(SELECT tag_id FROM feedback WHERE id = ?) ORDER BY id DESC LIMIT 1",
        (entry.image_id, entry.id, entry.id),
    )
    return int(found or 0)


def undo_verdict(stored: StoredCatalogue, number: int) -> Verdict:
    """Put what had been said before an entry in its place, as a new entry of the log, and give that.

    Raises
    ------
    DataError
        If there is no such entry.
    UserError
        If something else has been said of that tag of that image since.
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
