"""Commands that need no run: the lists of models, encoders and metrics."""

from __future__ import annotations

from typing import Annotated

from visterm.cli import options
from visterm.cli.completion import network_names
from visterm.cli.output import emit, say, show_all, table
from visterm.core.errors import UserError
from visterm.core.registry import Registry


def models(json: options.Json = False) -> None:
    """List the models."""
    from visterm.core.tables import MODELS

    _list(MODELS, json)


ENCODERS_EXAMPLES = (
    ("visterm encoders", "list them, and networks by name"),
    ("visterm encoders get clip", "fetch a network, once; then --encoder clip"),
)


def encoders(
    action: Annotated[str | None, options.argument(help="get: fetch networks by name.", metavar="get")] = None,
    names: Annotated[
        list[str] | None, options.argument(help="The networks to fetch.", metavar="NAME", autocompletion=network_names)
    ] = None,
    json: options.Json = False,
) -> None:
    """List the encoders, which turn photos into features.

    Among them are networks by name. Nothing is downloaded but by `visterm encoders get NAME`.
    """
    from visterm.encoders.named import is_here, network_named, networks

    if action == "get" and not names:
        raise UserError("Which network? visterm encoders get NAME (visterm encoders lists the names)")
    if action not in (None, "get") or (action is None and names):
        raise UserError("Expected no arguments, which lists all encoders, or: visterm encoders get NAME")
    if action == "get":
        from visterm.encoders.hub import fetch_network

        for row in [network_named(name) for name in names or []]:
            places = fetch_network(row, text=True, say=say)
            if json:
                emit({"name": row.name, "licence": row.licence, "files": places})
        return
    from visterm.core.tables import ENCODERS

    _list(ENCODERS, json)
    objects, rows = [], []
    for row in networks().values():
        here, text = is_here(row), row.text is not None and is_here(row, text=True)
        objects.append({
            "name": row.name, "summary": row.good_for, "licence": row.licence, "size": row.size(),
            "repository": row.repository, "revision": row.revision, "on this machine": here,
            "its words on this machine": text, "run by us": row.run_by_us, "your row": row.yours,
        })  # fmt: skip
        held = "yes" if here and (text or row.text is None) else "without words" if here else "no"
        run = "your row" if row.yours else "yes" if row.run_by_us else "not yet"
        rows.append([row.name, row.good_for, row.size(), row.licence, held, run])
    if not json:
        say("")
    show_all(objects, rows, ["network", "good for", "size", "licence", "here", "run by us"], json=json)
    if not json:
        say("Fetch a network with: visterm encoders get NAME")


def metrics() -> None:
    """List the metrics of `visterm evaluate`."""
    from visterm.metrics.table import METRICS

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
