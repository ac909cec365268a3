"""`visterm demo`: draw a small photo library, learn its tags, search it, and write a report to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visterm.cli import options
from visterm.cli.output import say, table
from visterm.cli.progress import Bars

EXAMPLES = "Example:  visterm demo -o demo && open demo/report.html"


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("demo"),
    scenes: Annotated[int, typer.Option(min=100, help="How many scenes to draw.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same library.")] = 0,
    jobs: options.Jobs = None,
) -> None:
    """Draw a small photo library, learn its tags, tag and search images never seen, and write a report to look at."""
    from visterm.demo.run import run_demo

    result = run_demo(out, n_scenes=scenes, seed=seed, n_jobs=jobs, progress=Bars())
    table(result.rows, result.header)
    say(f"The report with pictures is {result.report}")
