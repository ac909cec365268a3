"""`visterm info`: what a run, a catalogue or a features folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, say, show, show_tried
from visterm.core.remote import as_path

EXAMPLES = (
    ("visterm info run", "counts, settings, figures"),
    ("visterm info run --plot history.png", "draw how training went"),
    ("visterm info catalogue --check", "look for damage"),
)

LONGEST = 20
"""Entries of a setting that are still shown: relations of tags may be thousands."""


def info(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run, a catalogue, a features folder, or a folder written by `annotate -o`.",
            show_default=False,
            parser=as_path,
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            help="Draw how training went, to a .png, .jpg or .webp file.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check a run or a catalogue for damage."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what is in a run, a catalogue or a features folder."""
    from visterm.library import info as information
    from visterm.library.info import TRIED, describe, training_history

    facts = describe(run)
    if check:
        facts["checked"] = information.check(run)
    if plot is not None:
        from visterm.tagging.plot import plot_history

        plot_history(training_history(run), plot, title=f"{facts['model']}, {facts['encoder']}")
        say(f"The history of {run} is drawn in {plot}")
    if json:
        emit(facts)
        return
    for name, value in facts.items():
        if name == TRIED:
            show(f"{name}:")
            show_tried(value)
        elif isinstance(value, dict):
            show(f"{name}:")
            for key, setting in value.items():
                if key == TRIED:
                    show_tried(setting)
                else:
                    show(f"  {key}: {_setting(setting)}")
        elif not isinstance(value, list):
            show(f"{name}: {_text(value)}")


def _setting(value: object) -> str:
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    return f"{len(value):,} of them" if isinstance(value, list) and len(value) > LONGEST else str(value)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)
