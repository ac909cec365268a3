"""`visterm info`, `models`, `encoders` and `metrics`: describe a run, a catalogue or features, and list the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.command_line import imported_when_used
from visterm.cli.output import JsonObject, emit, in_minutes, say, show, show_all, table
from visterm.core.errors import UserError
from visterm.core.registry import Registry
from visterm.core.remote import as_path
from visterm.core.tables import ENCODERS, MODELS
from visterm.metrics.table import METRICS

with imported_when_used():
    from visterm.encoders import hub, named
    from visterm.library import info as folder_facts

INFO_EXAMPLES = (
    ("visterm info run", "counts, settings, figures"),
    ("visterm info catalogue", "photos, tags, runs, recent changes"),
    ("visterm info catalogue --check", "look for damage"),
)

MAX_ENTRIES = 20  # Longer lists in settings are shown as their length: relations of tags may have thousands
LABELS = {
    "calibration images": "photos held out to learn confidences",
    "validation images": "photos held out to stop training",
    "right of 5 tags": "right tags out of 5, per new photo (expected)",
    "tags at precision 0.9": "tags with --precision 0.9, per new photo (expected)",
    "highest confidence": "highest confidence that held-out photos support",
    "surest held-out tags": "held-out tags that the highest confidence rests on",
    "images without a row": "photos not indexed yet",
    "gone images": "missing photos",
    "hidden images": "hidden photos",
    "tags of files": "tags from files",
    "tags of people": "tags from people",
    "made by": "run made by",
    "searched": "search",
    "rows in": "rows stored in",
    "made of": "made from",
    "tags given": "tags given to photos, in all",
    "tags read": "different tags read",
    "tags used once": "tags on one photo only",
    "tags with a separator": "tags that contain a separator",
    "tags like lists": "tags that look like several in one",
    "parts": "files of tags",
    "shards": "files of features",
    "current": "in use",
}
"""Fact -> its name for people; JSON has the original names."""


def info(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A run, a catalogue, a features folder, or a folder written by `annotate -o`.",
            show_default=False,
            parser=as_path,
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="For a run or a catalogue: read all its files, and report damage.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what is in a run, a catalogue or a features folder."""
    facts = folder_facts.describe(run)
    if check:
        facts["checked"] = folder_facts.check(run)
    if json:
        emit(facts)
        return
    for name, value in facts.items():
        if name == folder_facts.TRIED_MODELS:
            show(f"{name}:")
            _show_tried(value)
        elif isinstance(value, dict) and value:
            show(f"{label(name)}:")
            for key, setting in value.items():
                if key == folder_facts.TRIED_MODELS:
                    _show_tried(setting)
                elif setting != []:
                    text = _typed(setting) if name.endswith("settings") else _setting(key, setting)
                    show(f"  {label(in_minutes(key))}: {text}")
        elif not isinstance(value, list | dict):
            show(f"{label(name)}: {_text(value)}")


def _show_tried(report: list[JsonObject]) -> None:
    """Print a table of the models that `auto` tried, with dashes for missing values, and feature blocks if any."""
    forms = {"seconds": ".1f", "map": ".3f", "word_map": ".3f", "weight": ".2f"}
    header = ["model", "seconds", "MAP", "word MAP", "weight", "why"]
    rows = []
    for entry in report:
        settings = ", ".join(f"{name}={value}" for name, value in entry["settings"].items())
        figures = ["-" if entry[name] is None else format(entry[name], form) for name, form in forms.items()]
        rows.append([entry["model"] + (f"({settings})" if settings else ""), *figures, entry["reason"]])
    if any(entry.get("block") for entry in report):
        header.insert(1, "features")
        for row, entry in zip(rows, report, strict=True):
            block, encoder = entry.get("block"), entry.get("encoder")
            row.insert(1, "all" if block is None else f"{encoder} ({block})" if encoder else f"block {block}")
    table(rows, header)


def label(name: str) -> str:
    """Return the name of a fact for people; "images" become "photos"."""
    return LABELS.get(name, name.replace("images", "photos"))


def _setting(name: str, value: object) -> str:
    """Return a fact as one line; a dict becomes a list of its entries that are not None."""
    if not isinstance(value, dict):
        return _text(value)
    parts = {str(key): entry for key, entry in value.items() if entry is not None}
    if name.endswith("settings"):
        return ", ".join(f"{key}={_typed(entry)}" for key, entry in parts.items())
    return ", ".join(f"{label(key)} {_text(entry)}" for key, entry in parts.items())


def _typed(value: object) -> str:
    """Return a setting as it is typed, or the length of a long list."""
    if isinstance(value, list) and len(value) > MAX_ENTRIES:
        return f"{len(value):,} entries"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(value: object) -> str:
    """Return a value for people: counts with commas, numbers with four digits, times to the minute."""
    if isinstance(value, dict) and "in_words" in value:
        return str(value["in_words"])
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not set"}[value]
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return in_minutes(str(value))


def models(json: options.Json = False) -> None:
    """List the models."""
    _list(MODELS, json)


ENCODERS_EXAMPLES = (
    ("visterm encoders", "list them, and networks by name"),
    ("visterm encoders get clip", "fetch a network, once; then --encoder clip"),
)


def encoders(
    action: Annotated[str | None, options.argument(help="get: fetch networks by name.", metavar="get")] = None,
    names: Annotated[
        list[str] | None,
        options.argument(help="The networks to fetch.", metavar="NAME", autocompletion=options.network_names),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the encoders, which turn photos into features.

    The list includes networks by name. Only `visterm encoders get NAME` downloads anything.
    """
    if action == "get" and not names:
        raise UserError("Which network? visterm encoders get NAME (visterm encoders lists the names)")
    if action not in (None, "get") or (action is None and names):
        raise UserError("Expected no arguments, which lists all encoders, or: visterm encoders get NAME")
    if action == "get":
        for row in [named.network_named(name) for name in names or []]:
            file_paths = hub.fetch_network(row, say=say)
            if json:
                emit({"name": row.name, "licence": row.licence, "files": file_paths})
        return

    _list(ENCODERS, json)
    objects, rows = [], []
    for row in named.networks().values():
        is_local, has_words = named.is_here(row), row.text is not None and named.is_here(row, text=True)
        objects.append({
            "name": row.name, "summary": row.good_for, "licence": row.licence, "size": row.size(),
            "repository": row.repository, "revision": row.revision, "package": row.package, "on this machine": is_local,
            "its words on this machine": has_words, "run by us": row.run_by_us, "your row": row.yours,
        })  # fmt: skip
        on_disk = "yes" if is_local and (has_words or row.text is None) else "without words" if is_local else "no"
        tested = "your row" if row.yours else "yes" if row.run_by_us else "not yet"
        rows.append([row.name, row.good_for, row.size(), row.licence, on_disk, tested])

    if not json:
        say("")
    show_all(objects, rows, ["network", "good for", "size", "licence", "here", "run by us"], json=json)
    if not json:
        say("Fetch a network with: visterm encoders get NAME")


def metrics() -> None:
    """List the metrics of `visterm evaluate`."""
    table([[entry.example, entry.summary] for entry in METRICS], ["metric", "what it is"])
    say("k is the number after @: p@5 is of the first 5 tags, p@10 of the first 10.")


def _list(registry: Registry, json: bool) -> None:
    objects = [{name: getattr(e, name) for name in ("name", "summary", "paper", "extra", "package")} for e in registry]
    rows = [
        [e.name, e.summary, e.paper or "-", e.package, f"{e.package}[{e.extra}]" if e.extra else "-"] for e in registry
    ]
    show_all(objects, rows, [registry.kind, "what it is", "described in", "package", "needs"], json=json)
    if not json and (others := registry.not_installed()):
        say(f"{len(others)} more are in {others[0].package}: pip install {others[0].package}")
