"""Files that could not be read, with the reason, until they can."""

from __future__ import annotations

from collections.abc import Iterable

from visterm.core.types import Skipped
from visterm.store.database import Database, as_text, now


class SkippedFiles:
    """The table of files that were left out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, skipped: Iterable[Skipped]) -> None:
        """Write files down with their reasons; the latest reason of each counts."""
        self._database.write_many(
            "INSERT INTO skipped (path, reason, at) VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?) "
            "ON CONFLICT DO UPDATE SET reason = excluded.reason, at = excluded.at",
            ((as_text(item.image), as_text(item.reason), now()) for item in skipped),
        )

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files that could be read now, or that are gone."""
        self._database.write_many(
            "DELETE FROM skipped WHERE path = CAST(? AS TEXT)", ((as_text(path),) for path in paths)
        )

    def all(self) -> list[Skipped]:
        """List all of them by path."""
        return [Skipped(*row) for row in self._database.rows("SELECT path, reason FROM skipped ORDER BY path")]

    def count(self) -> int:
        """Count them."""
        return int(self._database.value("SELECT count(*) FROM skipped"))
