"""What a shell completes: names of models, encoders and metrics, and the tags of a run or catalogue named on the line.

Nothing heavy is imported, and nothing is said: a line that is typed gets no errors.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from visterm.cli.command_line import imported_when_used
from visterm.core.errors import DataError

with imported_when_used():
    from visterm.core import tables
    from visterm.encoders import named
    from visterm.metrics import table

Completions = list[tuple[str, str]]  # Each with what it is

_OF_PHOTOS = """
SELECT name FROM tags WHERE EXISTS (SELECT 1 FROM verdicts WHERE tag_id = tags.id AND verdict = 1)
OR EXISTS (SELECT 1 FROM given AS g WHERE tag_id = tags.id AND NOT EXISTS
(SELECT 1 FROM verdicts AS v WHERE v.image_id = g.image_id AND v.tag_id = g.tag_id AND verdict = -1))
"""


def model_names() -> Completions:
    """Return the models, each with what it is."""
    return [(entry.name, entry.summary) for entry in tables.MODELS]


def encoder_names() -> Completions:
    """Return the encoders and the networks by name, each with what it is."""
    return [*((entry.name, entry.summary) for entry in tables.ENCODERS), *network_names()]


def network_names() -> Completions:
    """Return the networks that are known by name, each with what it is good for; none if a user's table is broken."""
    try:
        return [(row.name, row.good_for) for row in named.networks().values()]
    except DataError:
        return []


def metric_names() -> Completions:
    """Return the metrics as they are typed, each with what it is."""
    return [(entry.example, entry.summary) for entry in table.METRICS]


def one_tag(incomplete: str) -> list[str]:
    """Return the tags that begin so, of the run or catalogue on the line."""
    space = "\\ " if "COMP_WORDS" in os.environ else " "  # bash puts what is completed on the line as it is
    return [tag.replace(" ", space) for tag in _tags_on_the_line() if tag.startswith(incomplete)]


def words_of_a_query(incomplete: str) -> list[str]:
    """Return the query with its last word completed; a tag of several words is in double quotes, if they are typed."""
    before, last = (incomplete[: incomplete.rfind(" ") + 1], incomplete[incomplete.rfind(" ") + 1 :])
    if incomplete.count('"') % 2:
        before, last = incomplete[: incomplete.rfind('"')], incomplete[incomplete.rfind('"') :]
    minus = "-" if last.startswith("-") else ""
    tags = (f'"{tag}"' if " " in tag or last.startswith('"') else tag for tag in _tags_on_the_line())
    return [f"{before}{minus}{tag}" for tag in tags if tag.startswith(last.removeprefix("-"))]


def _tags_on_the_line() -> Iterable[str]:
    """Return the tags of the first run or catalogue among the words that were typed."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        arguments = shlex.split(typed)
    except ValueError:  # a quote that is still open
        arguments = typed.split()
    return next((tags for argument in arguments if (tags := tags_of(Path(argument).expanduser()))), [])


def tags_of(folder: Path) -> list[str]:
    """Return the tags of a run or a catalogue, in order; none of anything else."""
    import sqlite3

    try:
        if (folder / "catalogue.sqlite").is_file():
            address = f"{(folder / 'catalogue.sqlite').resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as db:
                names = [name for (name,) in db.execute(_OF_PHOTOS)]
                runs = [run for (run,) in db.execute("SELECT fingerprint FROM runs WHERE current = 1")]
            return sorted({*names, *(tag for run in runs for tag in tags_of(folder / "runs" / run))})
        return sorted(map(str, json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))["tags"]))
    except (OSError, ValueError, LookupError, TypeError, sqlite3.Error):
        return []
