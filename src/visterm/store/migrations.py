"""The tables of a catalogue as earlier visterms made them, brought up to date one version after the other."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from importlib.resources import files

from visterm.core.vocabulary import tag_key

FORMAT = 9  # Version of the tables, kept in ``meta``


def _add_table_versions(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE segments ADD COLUMN table_version INTEGER")


def _add_row_sums(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS row_sums (segment_id INTEGER NOT NULL REFERENCES segments (id) ON DELETE CASCADE, "
        "first INTEGER NOT NULL, n_rows INTEGER NOT NULL, ids_sum INTEGER NOT NULL, rows_sum INTEGER NOT NULL, "
        "PRIMARY KEY (segment_id, first)) STRICT, WITHOUT ROWID"
    )


def _add_tag_keys(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE tags ADD COLUMN key TEXT NOT NULL DEFAULT ''")
    keys = [(tag_key(name), tag_id) for tag_id, name in connection.execute("SELECT id, name FROM tags")]
    connection.executemany("UPDATE tags SET key = ? WHERE id = ?", keys)
    connection.execute("CREATE INDEX tags_by_key ON tags (key)")
    connection.execute("CREATE INDEX given_by_hand ON given (tag_id, image_id, source) WHERE source = 'person'")


def _add_connection(connection: sqlite3.Connection) -> None:
    run_script(connection, "connected.sql")


def _add_frames(connection: sqlite3.Connection) -> None:
    """Let images be frames of videos; a check of values can only be changed with its column."""
    for statement in (
        "DROP INDEX images_here_by_path",
        "DROP INDEX images_gone",
        "ALTER TABLE images ADD COLUMN new_state TEXT NOT NULL DEFAULT 'here' "
        "CHECK (new_state IN ('here', 'gone', 'frame'))",
        "UPDATE images SET new_state = state WHERE state != 'here'",
        "ALTER TABLE images DROP COLUMN state",
        "ALTER TABLE images RENAME COLUMN new_state TO state",
        "CREATE UNIQUE INDEX images_here_by_path ON images (path) WHERE state = 'here'",
        "CREATE INDEX images_gone ON images (id) WHERE state = 'gone'",
        "CREATE TABLE IF NOT EXISTS frames (image_id INTEGER PRIMARY KEY REFERENCES images (id) ON DELETE CASCADE, "
        "video_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE, at REAL NOT NULL) STRICT",
        "CREATE INDEX IF NOT EXISTS frames_by_video ON frames (video_id, at)",
    ):
        connection.execute(statement)


def _add_places(connection: sqlite3.Connection) -> None:
    for column in ("camera TEXT", "latitude REAL", "longitude REAL"):
        connection.execute(f"ALTER TABLE images ADD COLUMN {column}")


def _merge_spellings(connection: sqlite3.Connection) -> None:
    """Make one tag of those that differ in spelling alone.

    The spelling of the current run stays, else that of most photos.
    """
    run = "SELECT 1 FROM predictions JOIN runs ON runs.id = run_id AND current = 1 WHERE tag_id = tags.id"
    shown = f"EXISTS ({run}) DESC, (SELECT count(*) FROM given WHERE tag_id = tags.id) DESC, id"
    kept: dict[str, int] = {}
    keys = [(tag_key(name), n) for n, name in connection.execute(f"SELECT id, name FROM tags ORDER BY {shown}")]
    merged = {n: kept[key] for key, n in keys if kept.setdefault(key, n) != n}
    connection.executemany("UPDATE tags SET key = ? WHERE id = ?", keys)
    for old, new in merged.items():
        for table in ("given", "predictions", "written_tags", "feedback", "remote_pairs"):
            connection.execute(f"UPDATE OR IGNORE {table} SET tag_id = ? WHERE tag_id = ?", (new, old))
        connection.execute(
            "UPDATE given SET source = 'person' WHERE tag_id = ? AND image_id IN "
            "(SELECT image_id FROM given WHERE tag_id = ? AND source = 'person')",
            (new, old),
        )
        for table in ("given", "predictions", "written_tags", "verdicts"):
            connection.execute(f"DELETE FROM {table} WHERE tag_id = ?", (old,))
        connection.execute(
            "INSERT OR REPLACE INTO verdicts SELECT image_id, tag_id, verdict FROM feedback WHERE id IN "
            "(SELECT max(id) FROM feedback WHERE tag_id = ? GROUP BY image_id)",
            (new,),
        )
        connection.execute("DELETE FROM tags WHERE id = ?", (old,))
    steps = connection.execute("SELECT id, details FROM history WHERE json_extract(details, '$.was') IS NOT NULL")
    for number, details in steps.fetchall() if merged else ():
        facts = json.loads(details)
        for name in ("was", "now"):  # ("given" or "verdict", image, tag, ...)
            facts[name] = [[*c[:2], *(merged.get(tag, tag) for tag in c[2:3]), *c[3:]] for c in facts[name]]
        connection.execute("UPDATE history SET details = ? WHERE id = ?", (json.dumps(facts), number))
    connection.execute("DROP INDEX tags_by_key")
    connection.execute("CREATE UNIQUE INDEX tags_by_key ON tags (key)")


def _to_format_8(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS left_places (target TEXT NOT NULL, path TEXT NOT NULL, image_id INTEGER NOT NULL "
        "REFERENCES images (id) ON DELETE CASCADE, PRIMARY KEY (target, path, image_id)) STRICT, WITHOUT ROWID"
    )
    _merge_spellings(connection)
    connection.execute("UPDATE images SET phash = NULL")  # pictures without structure have another hash now


def _to_format_9(connection: sqlite3.Connection) -> None:
    """Add what a server that works in two steps needs; a check of values can only be changed with its table."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(connection)")}
    if "folders" in columns:
        return
    connection.execute("ALTER TABLE connection ADD COLUMN folders TEXT NOT NULL DEFAULT '{}'")
    for column in ("folder", "touched"):
        connection.execute(f"ALTER TABLE remote_photos ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE remote_pairs RENAME TO old_pairs")
    connection.execute("DROP INDEX remote_pairs_by_state")
    script = files("visterm.store").joinpath("connected.sql").read_text(encoding="utf-8")
    table, index = script[script.index("CREATE TABLE remote_pairs") :].split(";")[:2]
    connection.execute(table)
    names = "photo_id, tag, tag_id, confidence, state, at"
    connection.execute(f"INSERT INTO remote_pairs ({names}, sure) SELECT {names}, 1 FROM old_pairs")
    connection.execute("DROP TABLE old_pairs")
    connection.execute(index)


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _add_table_versions,
    2: _add_row_sums,
    3: _add_tag_keys,
    4: _add_connection,
    5: _add_frames,
    6: _add_places,
    7: _to_format_8,
    8: _to_format_9,
}
"""From version n to n + 1, each run in one transaction with the change of the number."""


def run_script(connection: sqlite3.Connection, name: str) -> None:
    """Run the statements of a file inside the transaction (`executescript` would commit it first)."""
    statement = ""
    for line in files("visterm.store").joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
