"""The runs whose rows a catalogue holds, and where the features of its images lie."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from visterm.core.errors import StorageError
from visterm.core.jsonlines import json_text
from visterm.store.database import Table, as_text, now
from visterm.store.images import as_list

SHORT = 12  # Letters of a run's fingerprint that people see and type


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of a catalogue."""

    id: int
    fingerprint: str  # Of encoder and model together: rows of another cannot be compared with these
    encoder_fingerprint: str
    folder: str  # Where it was made; empty if it was never saved
    rows_of: int
    """The run whose image rows serve this one: its own, or an earlier one of which only tag rows have moved."""
    added: str  # UTC
    facts: dict[str, Any]  # Whatever is to be shown of it: counts, validation figures, cut-offs
    current: bool  # The one that searches and answers now


class FeaturePlace(NamedTuple):
    """Where the feature row of an image lies: a shard of ``features/<encoder fingerprint>``, and the row in it."""

    image_id: int
    shard: str
    row: int


class Runs(Table):
    """The table of runs; `StoredCatalogue.use_run` changes the current one."""

    def add(
        self,
        fingerprint: str,
        encoder_fingerprint: str,
        *,
        folder: str = "",
        rows_of: int | None = None,
        facts: dict[str, Any] | None = None,
    ) -> int:
        """Write down a run, and return its id; one that is known keeps its id, and takes the new facts."""
        with self._database.transaction() as connection:
            found = connection.execute(
                "INSERT INTO runs (fingerprint, encoder_fingerprint, folder, rows_of, added, facts) "
                "VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?) ON CONFLICT (fingerprint) DO UPDATE SET facts = "
                "CASE WHEN ? THEN excluded.facts ELSE facts END RETURNING id",
                (
                    fingerprint, encoder_fingerprint, as_text(folder), rows_of, now(), json_text(facts or {}),
                    facts is not None,
                ),
            ).fetchall()  # fmt: skip
        return int(found[0][0])

    def current(self) -> StoredRun | None:
        """Return the run that searches; None in a catalogue that has none yet."""
        return next(iter(self._select("WHERE current = 1")), None)

    def all(self) -> list[StoredRun]:
        """List the runs, oldest first."""
        return self._select("ORDER BY id")

    def set_current(self, run_id: int) -> None:
        """Set the run that searches: use `StoredCatalogue.use_run`, which tells searches too.

        Raises StorageError if there is no such run.
        """
        with self._database.transaction() as connection:
            connection.execute("UPDATE runs SET current = 0 WHERE current = 1")
            if connection.execute("UPDATE runs SET current = 1 WHERE id = ?", (run_id,)).rowcount == 0:
                raise StorageError(f"The catalogue has no run {run_id}.")

    def set_features(self, encoder_fingerprint: str, places: Iterable[FeaturePlace]) -> None:
        """Note where the feature rows of images lie, in place of where they lay before."""
        self._database.write_many(
            "INSERT INTO features (encoder_fingerprint, image_id, shard, row) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET shard = excluded.shard, row = excluded.row",
            ((encoder_fingerprint, *place) for place in places),
        )

    def features(self, encoder_fingerprint: str, image_ids: Iterable[int] | None = None) -> list[FeaturePlace]:
        """Return where the feature rows of images lie (None: of all), by shard and row; those without are left out."""
        among = "" if image_ids is None else "AND image_id IN (SELECT value FROM json_each(?)) "
        values = [encoder_fingerprint] if image_ids is None else [encoder_fingerprint, as_list(image_ids)]
        found = self._database.rows(
            f"SELECT image_id, shard, row FROM features WHERE encoder_fingerprint = ? {among}ORDER BY shard, row",
            values,
        )
        return [FeaturePlace(*row) for row in found]

    def _select(self, where: str) -> list[StoredRun]:
        found = self._database.rows(
            "SELECT id, fingerprint, encoder_fingerprint, folder, coalesce(rows_of, id), added, facts, current "
            f"FROM runs {where}"
        )
        return [StoredRun(*[*known, json.loads(facts), bool(current)]) for *known, facts, current in found]
