"""From one format of a catalogue's tables to the next: a newer visterm opens every catalogue from format 1 on.

Whoever changes the tables raises `FORMAT` by one, changes ``schema.sql``, and adds a migration that makes the old
tables the new ones and loses nothing that people gave: tags, judgements, history. A migration stays as it is for ever.
Each runs in one transaction together with the change of the number, so that a kill leaves the old format or the new
one, and the next opening goes on from there. What opens runs and features folders reads all formats up to
`persist.FORMAT`, too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

APPLICATION_ID = int.from_bytes(b"vist", "big")
"""What SQLite keeps in the file as ``application_id``: it tells a catalogue, from format 1 on, from all else."""

FORMAT = 1  # Of the tables, which SQLite keeps in the file as ``user_version``

MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}
"""The step from format n to n + 1, by n."""
