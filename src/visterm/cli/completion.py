"""Shell completion: names of models, encoders and metrics, and tags of the run or catalogue on the command line.

Imports are kept light, and errors are ignored.
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

Completions = list[tuple[str, str]]  # (name, description)

_TAGS_OF_PHOTOS_SQL = """
SELECT name FROM tags WHERE EXISTS (SELECT 1 FROM verdicts WHERE tag_id = tags.id AND verdict = 1)
OR EXISTS (SELECT 1 FROM given AS g WHERE tag_id = tags.id AND NOT EXISTS
(SELECT 1 FROM verdicts AS v WHERE v.image_id = g.image_id AND v.tag_id = g.tag_id AND verdict = -1))
"""


def model_names() -> Completions:
    """Return the models with their descriptions."""
    return [(entry.name, entry.summary) for entry in tables.MODELS]


def encoder_names() -> Completions:
    """Return the encoders and the named networks with their descriptions."""
    return [*((entry.name, entry.summary) for entry in tables.ENCODERS), *network_names()]


def network_names() -> Completions:
    """Return the named networks with their purposes; an empty list if the user's table of networks is invalid."""
    try:
        return [(row.name, row.good_for) for row in named.networks().values()]
    except DataError:
        return []


def metric_names() -> Completions:
    """Return the metrics, as they are typed, with their descriptions."""
    return [(entry.example, entry.summary) for entry in table.METRICS]


def one_tag(incomplete: str) -> list[str]:
    """Return the tags of the run or catalogue on the command line that begin with `incomplete`."""
    space = "\\ " if "COMP_WORDS" in os.environ else " "  # bash does not escape completions itself
    return [tag.replace(" ", space) for tag in _tags_on_the_line() if tag.startswith(incomplete)]


def words_of_a_query(incomplete: str) -> list[str]:
    """Return queries in which the last word is completed to a tag; tags of several words are in double quotes."""
    rest, last = (incomplete[: incomplete.rfind(" ") + 1], incomplete[incomplete.rfind(" ") + 1 :])
    if incomplete.count('"') % 2:
        rest, last = incomplete[: incomplete.rfind('"')], incomplete[incomplete.rfind('"') :]
    minus = "-" if last.startswith("-") else ""
    tags = (f'"{tag}"' if " " in tag or last.startswith('"') else tag for tag in _tags_on_the_line())
    return [f"{rest}{minus}{tag}" for tag in tags if tag.startswith(last.removeprefix("-"))]


def _tags_on_the_line() -> Iterable[str]:
    """Return the tags of the first run or catalogue on the command line."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        arguments = shlex.split(line)
    except ValueError:  # a quote that is still open
        arguments = line.split()
    return next((tags for argument in arguments if (tags := tags_of(Path(argument).expanduser()))), [])


def tags_of(folder: Path) -> list[str]:
    """Return the sorted tags of a run or a catalogue; an empty list for anything else."""
    import sqlite3

    try:
        if (folder / "catalogue.sqlite").is_file():
            address = f"{(folder / 'catalogue.sqlite').resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as db:
                names = [name for (name,) in db.execute(_TAGS_OF_PHOTOS_SQL)]
                runs = [run for (run,) in db.execute("SELECT fingerprint FROM runs WHERE current = 1")]
            return sorted({*names, *(tag for run in runs for tag in tags_of(folder / "runs" / run))})
        return sorted(map(str, json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))["tags"]))
    except (OSError, ValueError, LookupError, TypeError, sqlite3.Error):
        return []
