"""`visterm tune`: try settings of a model on validation rows, and write a run with the best."""

from __future__ import annotations

from typing import Annotated

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.output import exit_code, say, table
from visterm.cli.progress import Bars

EXAMPLES = (
    ("visterm tune photos -o run --grid dim=50,100 --grid learning_rate=0.001,0.01", "try all four"),
    ("visterm tune photos -o run --random 20 --grid learning_rate=0.0001:0.1:log", "draw 20 rates"),
)


def tune(
    out: learning.OutRequired,
    grid: Annotated[
        list[str],
        options.model_option(
            help="Values to try, NAME=VALUE,VALUE, or with --random a range, NAME=LOW:HIGH or NAME=LOW:HIGH:log. "
            "Repeat for more settings."
        ),
    ],
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    tag_rules: options.TagRulesFile = None,
    encoder: options.EncoderName = None,
    model: learning.ModelToTune = "wsabie",
    set_: learning.ModelSettings = None,
    random: Annotated[
        int | None, options.model_option(min=1, help="Try this many random settings [default: all combinations].")
    ] = None,
    ray: options.Ray = None,
) -> None:
    """Try settings of a model, and learn with the best ones.

    Compares the settings by MAP on held-out photos, then learns from all photos. Finished trials are stored in
    RUN.tune.jsonl; run the same command again to go on. The exit code is 3 if photos were skipped.
    """
    from visterm.tagging.fit_request import FitRequest
    from visterm.tagging.tuning.tune import tune_run

    request = FitRequest(
        images=images, tags=tags, tag_rules=tag_rules, encoder=encoder, model=model,
        model_params=options.settings(set_, "--set"), out=out,
        overwrite=options.may_replace(out, kind="run"),
    )  # fmt: skip
    tuned = tune_run(
        request,
        grid=options.choices(grid),
        n_random=random,
        executor=options.executor_of(ray),
        say=say,
        progress=Bars(),
    )
    names = list(tuned.trials[0].settings)
    rows = []
    for trial in tuned.trials:
        value = "diverged" if trial.value is None else f"{trial.value:.4f}"
        epochs = "-" if trial.epochs is None else str(trial.epochs)
        rows.append([*(str(trial.settings[name]) for name in names), value, epochs, f"{trial.seconds:.1f}"])
    table(rows, [*names, "map", "epochs", "seconds"])
    say(f"Learned from all photos with the best settings. The run is in {out}.")
    raise typer.Exit(exit_code(tuned.tagger.skipped, out / "skipped.jsonl"))
