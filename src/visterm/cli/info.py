"""`visterm info`: what a run or a catalogue holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import emit


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
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, setting in value.items():
                print(f"  {key}: {setting}")
        else:
            print(f"{name}: {_text(value)}")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)
