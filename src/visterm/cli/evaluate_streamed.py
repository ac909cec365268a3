"""`visterm evaluate RUN FEATURES` of features larger than memory: what cannot go this way, and what is told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.wording import count_of


def check_usable(options: Mapping[str, Any]) -> None:
    """Refuse options that streamed features do not take, if any is given."""
    given = [option for option, value in options.items() if value not in (None, [], ())]
    if given:
        raise UserError(
            f"{given[0]} needs the features of all images in memory, and these are streamed. Leave it out, or allow "
            "more memory (--memory)."
        )


def show_streamed(
    tagger: Any,
    run: Path,
    features: Path | list[Path],
    tags: str,
    metrics: Sequence[str],
    *,
    named: bool,
    isa: Path | None,
    split: str | None,
    json: bool,
    skipped: Path,
    columns: Mapping[str, str | None],
) -> None:
    """Measure a run on streamed features, print the figures, and leave with the exit code of `visterm evaluate`."""
    from visterm.cli.evaluation_tables import show_annotation
    from visterm.core.jsonlines import write_skipped
    from visterm.evaluation.streamed import evaluate_streamed

    beside = run.absolute().parent
    found = evaluate_streamed(
        tagger, features, tags, metrics,
        work=beside if os.access(beside, os.W_OK) else None,
        split=split, optional=() if named else metrics, isa=isa, progress=Bars(), **columns,
    )  # fmt: skip
    for line in [*found.remarks, *(f"Left out: {reason}" for reason in found.undefined.values())]:
        say(line)
    if found.unknown:
        say(f"{found.unknown:,} of {found.given:,} given tags are not in the run's vocabulary and are not counted.")
    if found.with_siblings is not None:
        say(f"{found.with_siblings:,} of {count_of(len(tagger.vocabulary), 'tag')} have siblings.")
    tell_of_learned([str(run)], [found.learned], found.images)
    if json:
        emit({name: value.mean for name, value in found.values.items()})
    else:
        show_annotation(found.summary(str(run), len(tagger.vocabulary)), [])
    if found.skipped or skipped.exists():
        write_skipped(skipped, found.skipped)
    raise typer.Exit(exit_code(found.skipped, skipped))


def tell_of_learned(names: Sequence[str], learned: Sequence[int], n_images: int) -> None:
    """Warn of images that runs are measured on and have learned from."""
    for name, n_learned in zip(names, learned, strict=True):
        if n_learned:
            say(
                f"{n_learned:,} of {count_of(n_images, 'image')} have names of images that "
                f"{'the run' if len(names) == 1 else name} learned from: the figures are better than those of new "
                "photos. Hold some out before fitting: a column 'split' in the tag file, with train and test."
            )
