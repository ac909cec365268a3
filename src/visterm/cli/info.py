"""`visterm info`: what a run or a catalogue holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit, table


def info(
    run: Annotated[Path, typer.Argument(help="A run or a catalogue.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Show what a run or a catalogue holds: counts, encoder, model, settings, figures."""
    from visterm.app.info import describe

    facts = describe(run)
    if json:
        emit(facts)
        return
    table([[name, _text(value)] for name, value in facts.items()], ["what", "value"])


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)
